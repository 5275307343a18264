"""The knowledge graph: relations extracted from messages, and queries to neighbours."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import to_jsonable_python

from memrecall.extraction.protocol import USER, Entity, Extracted, Relation, Utterance
from memrecall.library.graph_evidence import possible_names
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.store import Graph, NewRelation, StoredEntity, StoredRelation
from memrecall.store.database.cursors import LARGEST_LIST, require_limit
from memrecall.text.normalize import entity_key
from memrecall.types import NAME_LENGTH

DEEPEST = 6
MOST_ENTITIES = 2_000  # that one query visits
MOST_RELATED_NAMES = 8
_MOST_RELATIONS = 200

_RELATION_FIELDS = ("source", "relationship", "destination", "ended")


def relation_item(relation: StoredRelation) -> dict[str, Any]:
    """Return a relation as a dict, times as text."""
    fields = to_jsonable_python(relation)
    return {"id": fields.pop("relation_id"), **fields}


def entity_item(entity: StoredEntity) -> dict[str, Any]:
    """Return an entity as a dict, with the messages that gave it other names if there are any."""
    item = {"name": entity.name, "type": entity.type, "aliases": list(entity.aliases)}
    sources = {name: list(ids) for name, ids in entity.alias_sources.items()}
    return {**item, "alias_sources": sources} if sources else item


async def list_entities(graph: Graph, limit: int, cursor: str | None) -> dict[str, Any]:
    """Return a page of entities with their types and aliases, oldest first."""
    require_limit("limit", limit, LARGEST_LIST)
    page = await graph.page(limit=limit + 1, after=cursor)
    items = [entity_item(entity) for entity in page[:limit]]
    next_cursor = page[limit - 1].entity_id if len(page) > limit else None
    return {"entities": items, "next_cursor": next_cursor}


async def list_relations(
    graph: Graph, name: str, *, depth: int, as_of: datetime | None, limit: int
) -> dict[str, Any]:
    """Return the relations within `depth` steps of an entity, nearest first."""
    require_limit("depth", depth, DEEPEST)
    require_limit("limit", limit, LARGEST_LIST)
    frontier = {entity.entity_id for entity in await graph.entities([name])}
    visited = set(frontier)
    relations: dict[str, StoredRelation] = {}
    for _ in range(depth):
        if not frontier or len(visited) > MOST_ENTITIES or len(relations) >= limit:
            break
        edges = await graph.around(sorted(frontier), as_of)
        relations.update({relation.relation_id: relation for _, _, relation in edges})
        ends = {end for source, destination, _ in edges for end in (source, destination)}
        frontier = ends - visited
        visited |= ends
    return {"relations": [relation_item(item) for item in list(relations.values())[:limit]]}


async def related_names(graph: Graph, query: str, as_of: datetime | None) -> tuple[str, ...]:
    """Return the names of entities related to those that a query names, nearest first."""
    entities = await graph.entities(possible_names(query))
    if not entities:
        return ()
    folded_query = entity_key(query)
    ids = {entity.entity_id for entity in entities}
    names: dict[str, None] = {}
    for source, _, relation in await graph.around(sorted(ids), as_of, _MOST_RELATIONS):
        name = relation.destination if source in ids else relation.source
        if entity_key(name) not in folded_query:
            names.setdefault(name)
    return tuple(names)[:MOST_RELATED_NAMES]


async def write_relations(
    library: Library, scope: Scope, extracted: Extracted, utterances: Sequence[Utterance]
) -> list[dict[str, Any]]:
    """Write the entities and relations that were extracted from messages into the graph."""
    if not extracted.relations and not extracted.entities:
        return []
    await library.claim_for_graph(scope)
    graph = library.graph(scope)
    times = {u.message_id: u.ts for u in utterances if u.ts is not None}
    types = {entity.name[:NAME_LENGTH]: entity.type for entity in extracted.entities}
    relations = [_new_relation(relation, times) for relation in extracted.relations]
    await graph.add(dict(types), relations)
    for entity in extracted.entities:
        for alias in entity.aliases:
            await _merge_names(graph, entity, alias[:NAME_LENGTH])
    return [
        {name: getattr(relation, name) for name in _RELATION_FIELDS}
        for relation in extracted.relations
    ]


async def _merge_names(graph: Graph, entity: Entity, alias: str) -> None:
    """Store another name of an entity; the name of the user stands for them."""
    name, sources = entity.name[:NAME_LENGTH], tuple(filter(None, entity.source_ids))
    if name == USER:  # The message is evidence of the name, not of "user".
        await graph.merge(alias, name, ())
        await graph.merge(name, alias, sources)
    else:
        await graph.merge(name, alias, sources)


def _new_relation(relation: Relation, times: Mapping[str, datetime]) -> NewRelation:
    # A message that is not stored has no id, and cannot be a source.
    ids = tuple(filter(None, relation.source_ids))
    return NewRelation(
        relation.source[:NAME_LENGTH],
        relation.relationship[:NAME_LENGTH],
        relation.destination[:NAME_LENGTH],
        ids,
        relation.valid_from,
        relation.ended,
        said_at=max((times[name] for name in ids if name in times), default=None),
    )
