"""Questions to the knowledge graph: who stands beside whom, and by which way two are connected."""

from collections import deque
from datetime import datetime
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.store import ScopedGraph, StoredRelation
from memrecall.types import format_time

DEEPEST = 6
LARGEST_LIMIT = 1_000
MOST_WAYS = 100
MOST_ENTITIES = 2_000  # that one question walks over


def relation_item(relation: StoredRelation) -> dict[str, Any]:
    """A relation as a plain dict."""
    return {
        "id": relation.relation_id,
        "source": relation.source,
        "relationship": relation.relationship,
        "destination": relation.destination,
        "valid_from": None if relation.valid_from is None else format_time(relation.valid_from),
        "valid_to": None if relation.valid_to is None else format_time(relation.valid_to),
        "source_message_ids": list(relation.source_message_ids),
    }


class GraphView:
    """Reads the graph of one scope."""

    def __init__(self, graph: ScopedGraph) -> None:
        self._graph = graph

    async def entities(self, *, limit: int = 100, cursor: str | None = None) -> dict[str, Any]:
        """Entities with their types and names, the earliest first, a page at a time."""
        _check_limit(limit)
        found = await self._graph.page(limit=limit + 1, after=cursor)
        items = [
            {"name": entity.name, "type": entity.type, "aliases": list(entity.aliases)}
            for entity in found[:limit]
        ]
        following = found[limit - 1].entity_id if len(found) > limit else None
        return {"entities": items, "next_cursor": following}

    async def neighbours(
        self, name: str, *, depth: int = 1, as_of: datetime | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """The relations within so many steps of an entity, the nearest first."""
        _check_depth(depth)
        _check_limit(limit)
        frontier = {entity.entity_id for entity in await self._graph.entities([name])}
        seen = set(frontier)
        found: dict[str, StoredRelation] = {}
        for _ in range(depth):
            if not frontier or len(seen) > MOST_ENTITIES or len(found) >= limit:
                break
            around = await self._graph.around(sorted(frontier), as_of)
            found.update({relation.relation_id: relation for _, _, relation in around})
            reached = {end for source, destination, _ in around for end in (source, destination)}
            frontier = reached - seen
            seen |= reached
        return [relation_item(relation) for relation in list(found.values())[:limit]]

    async def paths(
        self, start: str, end: str, *, depth: int = 3, as_of: datetime | None = None
    ) -> list[list[dict[str, Any]]]:
        """The shortest ways from one entity to another, each a list of relations; [] if none."""
        _check_depth(depth)
        begin = {entity.entity_id for entity in await self._graph.entities([start])}
        goal = {entity.entity_id for entity in await self._graph.entities([end])}
        if not begin or not goal or begin & goal:
            return []
        steps = await self._walk(begin, goal, depth, as_of)
        return [[relation_item(relation) for relation in way] for way in _ways(steps, begin, goal)]

    async def _walk(
        self, begin: set[str], goal: set[str], depth: int, as_of: datetime | None
    ) -> dict[str, list[tuple[str, StoredRelation]]]:
        """For each entity that was reached, from where and by which relations, breadth first."""
        level = dict.fromkeys(begin, 0)
        steps: dict[str, list[tuple[str, StoredRelation]]] = {}
        frontier = begin
        for distance in range(1, depth + 1):
            if not frontier or goal & set(level) or len(level) > MOST_ENTITIES:
                break
            for source, destination, relation in await self._graph.around(sorted(frontier), as_of):
                for here, there in ((source, destination), (destination, source)):
                    if level.get(here) == distance - 1 and level.get(there, distance) == distance:
                        level[there] = distance
                        steps.setdefault(there, []).append((here, relation))
            frontier = {name for name, reached in level.items() if reached == distance}
        return steps


def _ways(
    steps: dict[str, list[tuple[str, StoredRelation]]], begin: set[str], goal: set[str]
) -> list[list[StoredRelation]]:
    ways: list[list[StoredRelation]] = []
    open_ends: deque[tuple[str, list[StoredRelation]]] = deque(
        (name, []) for name in sorted(goal & set(steps))
    )
    while open_ends and len(ways) < MOST_WAYS:
        name, way = open_ends.popleft()
        if name in begin:
            ways.append(way)
            continue
        open_ends.extend((here, [relation, *way]) for here, relation in steps[name])
    return ways


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= LARGEST_LIMIT:
        raise InvalidArgument(f"limit {limit} is out of range", hint=f"Use 1 to {LARGEST_LIMIT}")


def _check_depth(depth: int) -> None:
    if not 1 <= depth <= DEEPEST:
        raise InvalidArgument(f"depth {depth} is out of range", hint=f"Use 1 to {DEEPEST}")
