"""The knowledge graph of one scope, in whichever graph database its rows are."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, wraps
from operator import itemgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

from memrecall.scope import Scope
from memrecall.store.database.locks import agent_of
from memrecall.store.database.statements import new_id
from memrecall.store.graph_rows import (
    ENDS,
    MAX_RELATIONS,
    Conditions,
    GraphDB,
    GraphRow,
    GraphTransaction,
    NewRelation,
    StoredEntity,
    StoredRelation,
    add_sources,
    check_name,
    collect_names,
    drop_sources,
    end_relations,
    erase_name,
    erase_relations,
    erase_unconnected,
    move,
    read_names,
)
from memrecall.text.normalize import entity_key
from memrecall.types import NAME_LENGTH, Message, check_text

FindMessages = Callable[[Sequence[str]], Awaitable[list[Message]]]
"""Returns the messages of some ids that a scope may read."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def in_transaction(
    method: Callable[Concatenate["Graph", GraphTransaction, Arguments], Result],
) -> Callable[Concatenate["Graph", Arguments], Awaitable[Result]]:
    """Pass a transaction on the user's rows to a method of the graph."""

    @wraps(method)
    async def run(graph: "Graph", /, *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        return await graph.database.transact(
            graph.scope, lambda rows: method(graph, rows, *args, **named)
        )

    return run


class Graph:
    """The graph of one scope; without an agent, of all agents of the user."""

    def __init__(
        self,
        database: GraphDB,
        scope: Scope,
        find_messages: FindMessages | None = None,  # needed in a project
    ) -> None:
        self.database = database
        self.scope = scope
        self._agent_id = agent_of(scope)
        self._find_messages = find_messages

    async def entities(self, names: Iterable[str], *, hidden: bool = False) -> list[StoredEntity]:
        """Return the entities that have any of the names; by `hidden` names too."""
        keys = sorted({entity_key(name) for name in names} - {""})
        aliases = await self._read("aliases", {"alias": keys})
        ids = {row["entity_id"] for row in aliases if hidden or not row["hidden"]}
        if not ids:
            return []  # the usual case when the words of a query are tried as names
        rows = await self._read("entities", {"entity_id": sorted(ids)})
        return await self._in_project(await self._to_entities(rows, hidden))

    async def page(
        self, *, limit: int, after: str | None = None, hidden: bool = False
    ) -> list[StoredEntity]:
        """Return the entities that follow the id `after`, oldest first; `hidden` ones too."""
        page: list[StoredEntity] = []
        last, is_complete = after or "", False
        while len(page) < limit and not is_complete:
            rows = await self._read("entities", {}, after=last, limit=limit)
            named = [e for e in await self._to_entities(rows, hidden) if e.aliases]
            page += await self._in_project(named)
            last, is_complete = rows[-1]["entity_id"] if rows else "", len(rows) < limit
        return page[:limit]

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest relations of entities that are valid, or were at a time."""
        read = partial(self._rows_around, entity_ids)
        return await self._to_edges(await _read_valid(read, as_of, limit))

    async def all_around(
        self, entity_ids: Sequence[str], limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest relations of entities: source id, destination id, relation."""
        return await self._to_edges(await self._rows_around(entity_ids, limit))

    async def find(self, relation_ids: Sequence[str]) -> list[StoredRelation]:
        """Return relations by their ids, ended ones included."""
        edges = await self._to_edges(await self._read("relations", {"relation_id": relation_ids}))
        return [relation for _, _, relation in edges]

    async def citing(self, message_ids: Collection[str]) -> list[tuple[str, str, StoredRelation]]:
        """Return the relations that have any of some messages as a source, ended ones included."""
        ids = await self._ids_citing(sorted(message_ids))
        return await self._to_edges(await self._read("relations", {"relation_id": ids}))

    @in_transaction
    def _ids_citing(self, rows: GraphTransaction, message_ids: Sequence[str]) -> list[str]:
        return [row["relation_id"] for row in rows.citing("relations", message_ids)]

    async def latest(self, limit: int) -> list[StoredRelation]:
        """Return the latest relations, latest first, without ended ones."""

        async def read(size: int) -> list[GraphRow]:
            return await self._read("relations", {}, limit=size, newest=True)

        edges = await self._to_edges(await _read_valid(read, None, limit))
        return [relation for _, _, relation in reversed(edges)]

    async def _read(self, table: str, where: Conditions, **options: Any) -> list[GraphRow]:
        agent_id = self.scope.agent_id
        of_agent = {} if agent_id is None else {"agent_id": [agent_id]}
        return await self.database.read(self.scope.user_id, table, {**where, **of_agent}, **options)

    async def _said_in_project(self, rows: Sequence[GraphRow]) -> list[GraphRow]:
        """Return the rows that a message states which the scope's project may read."""
        if self.scope.read_project is None:
            return list(rows)
        ids = sorted({name for row in rows for name in row["source_message_ids"]})
        found = await self._find_messages(ids) if self._find_messages else []
        known = {message.message_id for message in found}
        return [row for row in rows if known.intersection(row["source_message_ids"])]

    async def _in_project(self, entities: list[StoredEntity]) -> list[StoredEntity]:
        """Return the entities of relations that the scope's project may read."""
        if self.scope.read_project is None:
            return entities
        edges = await self.all_around([entity.entity_id for entity in entities])
        ends = {end for *both, _ in edges for end in both}
        return [entity for entity in entities if entity.entity_id in ends]

    async def _rows_around(self, entity_ids: Sequence[str], limit: int) -> list[GraphRow]:
        rows: dict[str, GraphRow] = {}
        for end, _ in ENDS if entity_ids else ():
            of_end = await self._read("relations", {end: entity_ids}, limit=limit, newest=True)
            rows |= {row["relation_id"]: row for row in of_end}
        return sorted(rows.values(), key=itemgetter("relation_id"))[-limit:]

    async def _to_entities(self, rows: Sequence[GraphRow], hidden: bool) -> list[StoredEntity]:
        """Return entities with their names; one whose own name is hidden has the first other."""
        ids = [row["entity_id"] for row in rows]
        names: dict[str, dict[str, tuple[str, ...]]] = {key: {} for key in ids}
        aliases = (
            await self.database.read(self.scope.user_id, "aliases", {"entity_id": ids})
            if ids
            else []
        )
        merged = [alias for alias in aliases if alias["source_message_ids"]]
        said = {alias["alias"] for alias in await self._said_in_project(merged)}
        for alias in sorted(aliases, key=itemgetter("alias")):
            if alias["source_message_ids"] and alias["alias"] not in said:
                continue
            if hidden or not alias["hidden"]:
                names[alias["entity_id"]][alias["name"]] = tuple(alias["source_message_ids"])
        entities = []
        for row in rows:
            key, name, own = row["entity_id"], row["name"], names[row["entity_id"]]
            shown = name if name in own else next(iter(own), name)
            sources = {alias: messages for alias, messages in own.items() if messages}
            entities.append(StoredEntity(key, shown, row["type"], tuple(own), sources))
        return entities

    async def _to_edges(self, rows: Sequence[GraphRow]) -> list[tuple[str, str, StoredRelation]]:
        rows = await self._said_in_project(rows)
        ids = sorted({row[end] for row in rows for end, _ in ENDS})
        entities = (
            await self.database.read(self.scope.user_id, "entities", {"entity_id": ids})
            if ids
            else []
        )
        names = {e.entity_id: e.name for e in await self._to_entities(entities, False)}
        return [
            (
                row["source_id"],
                row["destination_id"],
                StoredRelation(
                    row["relation_id"],
                    names[row["source_id"]],
                    row["relationship"],
                    names[row["destination_id"]],
                    row["valid_from"],
                    row["valid_to"],
                    tuple(row["source_message_ids"]),
                    row["agent_id"],
                ),
            )
            for row in rows
            if row["source_id"] in names and row["destination_id"] in names
        ]

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name to type) and relations; return the ids of new relations."""
        names = collect_names(types, new)
        if self.scope.author is not None and self._find_messages is not None:
            entities = await self.entities(names)
            edges = await self.all_around([entity.entity_id for entity in entities])
            ids = sorted({name for *_, edge in edges for name in edge.source_message_ids})
            said = [m for m in await self._find_messages(ids) if m.author == self.scope.author]
            own = frozenset(message.message_id for message in said)
            new = [replace(item, own=own.union(item.source_message_ids)) for item in new]
        return await self._add(names, new) if names else []

    @in_transaction
    def _add(
        self, rows: GraphTransaction, names: dict[str, str], new: Sequence[NewRelation]
    ) -> list[str]:
        now = datetime.now(UTC)
        ids = self._ensure_entities(rows, names, now)
        created = [self._relate(rows, relation, ids, now) for relation in new]
        return [relation_id for relation_id in created if relation_id is not None]

    def _ensure_entities(
        self, rows: GraphTransaction, names: dict[str, str], now: datetime
    ) -> dict[str, str]:
        """Return the entity ids of names (name to type) by folded name; create missing ones."""
        folded = {entity_key(name): name for name in reversed(list(names))}
        ids: dict[str, str] = {}
        stored = {"agent_id": [self._agent_id], "alias": sorted(folded)}
        for row in rows.read("aliases", stored):
            ids[row["alias"]] = row["entity_id"]
            if row["hidden"]:  # now it is named again
                rows.update("aliases", row, {"hidden": False})
        new = {alias: new_id("en") for alias in folded if alias not in ids}
        for alias, entity_id in new.items():
            key = {"agent_id": self._agent_id, "entity_id": entity_id, "name": folded[alias]}
            entity: GraphRow = {**key, "type": names[folded[alias]], "created_at": now}
            name: GraphRow = {**key, "alias": alias, "session_id": self.scope.session_id}
            rows.insert("entities", [entity])
            rows.insert("aliases", [{**name, "source_message_ids": [], "hidden": False}])
        return ids | new

    def _relate(
        self, rows: GraphTransaction, new: NewRelation, ids: Mapping[str, str], now: datetime
    ) -> str | None:
        """Store a relation unless it is valid already, or end it; return the id of a new one."""
        relationship = check_text("relationship", new.relationship)[:NAME_LENGTH]
        aliases = (entity_key(new.source), entity_key(new.destination))
        source, destination = (ids[alias] for alias in aliases)
        valid = {"agent_id": [self._agent_id], "source_id": [source], "valid_to": None}
        to_same = {"destination_id": [destination], "relationship": [relationship]}
        same = rows.read("relations", {**valid, **to_same})
        replaced = [
            row
            for row in rows.read("relations", {**valid, "relationship": new.replaces})
            if (row["destination_id"], row["relationship"]) != (destination, relationship)
        ]
        later = end_relations(rows, same if new.ended else replaced, new, now)
        if new.ended:
            return None
        if same:
            add_sources(rows, "relations", same[0], new.source_message_ids)
            return None
        relation: GraphRow = {
            "relation_id": new_id("re"),
            "agent_id": self._agent_id,
            "session_id": self.scope.session_id,
            "source_id": source,
            "relationship": relationship,
            "destination_id": destination,
            "valid_from": new.valid_from,
            "valid_to": min(later, default=None),
            "source_message_ids": list(new.source_message_ids),
            "created_at": now,
            "source_alias": aliases[0],
            "destination_alias": aliases[1],
        }
        rows.insert("relations", [relation])
        return str(relation["relation_id"])

    @in_transaction
    def merge(
        self, rows: GraphTransaction, name: str, alias: str, source_message_ids: Sequence[str] = ()
    ) -> None:
        """Merge two entities: all relations of `alias` become relations of `name`."""
        check_name(name)
        check_name(alias)
        types = {name: "thing", alias: "thing"}
        ids = self._ensure_entities(rows, types, datetime.now(UTC))
        target, merged = ids[entity_key(name)], ids[entity_key(alias)]
        if target != merged:
            move(rows, merged, target)
            rows.delete("entities", rows.read("entities", {"entity_id": [merged]}))
        (row,) = self._read_alias(rows, alias)
        add_sources(rows, "aliases", row, source_message_ids)

    def _read_alias(self, rows: GraphTransaction, name: str) -> list[GraphRow]:
        key = {"agent_id": [self._agent_id], "alias": [entity_key(name)]}
        return rows.read("aliases", key)

    @in_transaction
    def revise(self, rows: GraphTransaction, ends: Mapping[str, datetime | None]) -> None:
        """Set when relations end, by their ids; None for those that hold."""
        for row in rows.read("relations", {"relation_id": list(ends)}):
            rows.update("relations", row, {"valid_to": ends[row["relation_id"]]})

    @in_transaction
    def erase(self, rows: GraphTransaction, relation_ids: Sequence[str]) -> None:
        """Remove relations, and the entities that nothing else connects."""
        erase_relations(rows, rows.read("relations", {"relation_id": relation_ids}))

    @in_transaction
    def erase_unconnected(self, rows: GraphTransaction, entity_ids: Sequence[str]) -> None:
        """Remove the entities that have one name and no relations."""
        erase_unconnected(rows, entity_ids)

    @in_transaction
    def hide_names(self, rows: GraphTransaction, names: Mapping[str, Sequence[str]]) -> None:
        """Hide names of entities from pages, by the entity's id, and show its other names."""
        stored = read_names(rows, list(names))
        name_of = itemgetter("entity_id", "alias")
        hidden = {(key, entity_key(name)) for key, own in names.items() for name in own}
        named = {row["entity_id"] for row in stored if name_of(row) not in hidden}
        for end, _ in ENDS:  # Another writer may have related an entity meanwhile.
            holding = {end: sorted(names.keys() - named), "valid_to": None}
            related = {row[end] for row in rows.read("relations", holding)}
            hidden = {name for name in hidden if name[0] not in related}
        for row in stored:
            is_hidden = name_of(row) in hidden
            if is_hidden != row["hidden"]:
                rows.update("aliases", row, {"hidden": is_hidden})

    @in_transaction
    def erase_names(self, rows: GraphTransaction, names: Mapping[str, Sequence[str]]) -> None:
        """Remove names of entities that have others, by the entity's id."""
        for row in rows.read("aliases", {"entity_id": list(names)}):
            if row["alias"] in map(entity_key, names[row["entity_id"]]):
                erase_name(rows, row)

    @in_transaction
    def erase_sources(
        self, rows: GraphTransaction, message_ids: Sequence[str], stated: Collection[str]
    ) -> None:
        """Remove messages from all evidence, and relations and names without any other.

        The relations that are `stated` elsewhere stay.
        """
        relations = drop_sources(rows, "relations", message_ids)
        for row in drop_sources(rows, "aliases", message_ids):
            erase_name(rows, row)
        erase_relations(rows, [row for row in relations if row["relation_id"] not in stated])


async def _read_valid(
    read: Callable[[int], Awaitable[list[GraphRow]]], as_of: datetime | None, limit: int
) -> list[GraphRow]:
    """Return the latest `limit` valid relations; `read` returns a number of the latest."""
    size = limit
    while True:
        rows = await read(size)
        valid = [row for row in rows if _is_valid(row, as_of)]
        if len(valid) >= limit or len(rows) < size:
            return valid[-limit:]
        size *= 4


def _is_valid(row: GraphRow, as_of: datetime | None) -> bool:
    moment = as_of or datetime.now(UTC)
    has_ended = row["valid_to"] is not None and row["valid_to"] <= moment
    return not has_ended and (as_of is None or (row["valid_from"] or row["created_at"]) <= moment)
