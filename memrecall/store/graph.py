"""The knowledge graph of one scope: the interface of graph databases, and what their rows mean.

Names are compared by their `entity_key`, and each belongs to one entity. `StoreGraphs` keeps the
rows in the tables of the store; another `GraphDB` may keep them elsewhere.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial, wraps
from itertools import chain
from operator import itemgetter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, insert, select, update

from memrecall.errors import InvalidArgument
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, lock_scopes
from memrecall.store.database.statements import (
    KEYS_PER_STATEMENT,
    STRINGS_PER_CONDITION,
    ConnectionReads,
    Reads,
    mentions,
    new_id,
    split,
)
from memrecall.store.database.tables import metadata
from memrecall.text.tokens import entity_key
from memrecall.types import NAME_LENGTH, Message, check_text

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
FindMessages = Callable[[Sequence[str]], Awaitable[list[Message]]]
"""Returns the messages of some ids that a scope may read."""
GraphRow = dict[str, Any]  # with the columns of its table, times as datetime
Conditions = Mapping[str, Sequence[str] | None]  # the values of a column; None for empty ones

MAX_RELATIONS = 5_000  # that one query returns
MAX_SOURCES = 100  # messages that state one relation
# The end of a relation that a correction withdrew: it never held, whatever memories state.
WITHDRAWN = datetime(1000, 1, 1, tzinfo=UTC)
# The tables of a graph and their keys, wherever it is stored; referenced tables come first.
GRAPH_TABLES = {
    "entities": ("entity_id",),
    "aliases": ("agent_id", "alias"),
    "relations": ("relation_id",),
}
# The ends of a relation, and the names that it was stated with.
ENDS = (("source_id", "source_alias"), ("destination_id", "destination_alias"))
_TABLES = {name: metadata.tables[name] for name in GRAPH_TABLES}


@dataclass(frozen=True, slots=True)
class NewRelation:
    """A relation to store, or to end if `ended` is set.

    `replaces` are relationships of which the source has one at a time: those to other entities end
    when this one begins. One that began after `said_at` is later news: this one ends before it.
    With `own` messages, only relations that come from no other ones end.
    """

    source: str
    relationship: str
    destination: str
    source_message_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    ended: bool = False
    replaces: tuple[str, ...] = ()
    said_at: datetime | None = None  # None for now
    own: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class StoredEntity:
    """An entity by its first name; `aliases` has all its names.

    `alias_sources` are the messages that gave a merged entity its other names.
    """

    entity_id: str
    name: str
    type: str
    aliases: tuple[str, ...] = ()
    alias_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """A relation between two entities, which are given by name."""

    relation_id: str
    source: str
    relationship: str
    destination: str
    valid_from: datetime | None
    valid_to: datetime | None
    source_message_ids: tuple[str, ...]
    agent_id: str = DEFAULT_NAME


class GraphTransaction(Protocol):
    """One user's rows of `GRAPH_TABLES`: all changes of a transaction are stored or none."""

    def read(
        self,
        table: str,
        where: Conditions,
        *,
        after: str = "",
        limit: int | None = None,
        newest: bool = False,
    ) -> list[GraphRow]:
        """Return the rows that meet all conditions, in the order of their keys.

        Only rows whose id follows `after`, and at most `limit`: the first ones, or the `newest`.
        """

    def citing(self, table: str, message_ids: Sequence[str]) -> list[GraphRow]:
        """Return the aliases or relations that have any of the messages as a source."""

    def insert(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Store rows whose keys are new."""

    def update(self, table: str, row: GraphRow, changes: GraphRow) -> None:
        """Change columns of a stored row."""

    def delete(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Remove stored rows; those that refer to an entity are removed before it."""


class GraphDB(Protocol):
    """A database of all users' graphs, each of which can be erased completely.

    It stores rows and knows nothing of their meaning: `Graph` does.
    """

    @property
    def is_in_store(self) -> bool:
        """Whether the store exports, imports and erases the graphs with its other tables."""

    async def read(
        self,
        user_id: str,
        table: str,
        where: Conditions,
        *,
        after: str = "",
        limit: int | None = None,
        newest: bool = False,
    ) -> list[GraphRow]:
        """Return rows of a user, as `GraphTransaction.read` does."""

    async def transact(self, scope: Scope, work: Callable[[GraphTransaction], Result]) -> Result:
        """Call `work`, a plain function, in a transaction on the graph of the scope's user."""

    async def compact(self, user_id: str) -> None:
        """Remove the bytes of deleted rows from files too."""

    async def erase_user(self, user_id: str) -> None:
        """Remove everything of a user."""

    async def close(self) -> None:
        """Close all connections and files."""


def check_name(name: str) -> None:
    """Raise InvalidArgument for a text that cannot name an entity."""
    check_text("an entity's name", name)
    if not entity_key(name) or len(name) > NAME_LENGTH:
        raise InvalidArgument(
            f"{name[:80]!r} cannot name an entity", hint=f"Use 1 to {NAME_LENGTH} characters"
        )


def erase_session_rows(rows: GraphTransaction, session_id: str) -> int:
    """Remove a session's relations, then its names without relations; return how many rows."""
    of_session = {"session_id": [session_id]}
    relations = rows.read("relations", of_session)
    rows.delete("relations", relations)
    names = rows.read("aliases", of_session)
    connected = [row for row in names if _is_connected(rows, row["entity_id"])]
    names = [row for row in names if row not in connected]
    rows.delete("aliases", names)
    ids = {row["entity_id"] for row in names}
    ids -= {row["entity_id"] for row in read_names(rows, sorted(ids))}
    entities = rows.read("entities", {"entity_id": sorted(ids)})
    rows.delete("entities", entities)
    return len(relations) + len(names) + len(entities)


def import_rows(rows: GraphTransaction, imported: Mapping[str, Sequence[GraphRow]]) -> None:
    """Store exported rows by their tables; rows whose key exists stay as they are."""
    for table, key in GRAPH_TABLES.items():
        key_of = itemgetter(*key)
        stored = {key_of(row) for row in rows.read(table, {})}
        rows.insert(table, [r for r in imported.get(table, ()) if key_of(r) not in stored])


def end_relations(
    rows: GraphTransaction, ended: Sequence[GraphRow], new: NewRelation, now: datetime
) -> list[datetime]:
    """End relations when a new one begins, but not before they began.

    A relation that began after the new one was said stays, and one that others stated; return when
    the later ones began.
    """
    later = []
    for row in ended:
        if new.own is not None and not new.own.issuperset(row["source_message_ids"]):
            continue
        began = row["valid_from"] or row["created_at"]
        if began > (new.said_at or now):
            later.append(began)
        else:
            end = max(began, new.valid_from or now)
            rows.update("relations", row, {"valid_to": end})
    return later


def add_sources(
    rows: GraphTransaction, table: str, row: GraphRow, message_ids: Sequence[str]
) -> None:
    """Add messages to the evidence of a relation or an alias."""
    sources = list(dict.fromkeys((*row["source_message_ids"], *message_ids)))[:MAX_SOURCES]
    if sources != row["source_message_ids"]:
        rows.update(table, row, {"source_message_ids": sources})


def drop_sources(rows: GraphTransaction, table: str, message_ids: Sequence[str]) -> list[GraphRow]:
    """Remove messages from all evidence; return the rows that have no other."""
    unsupported = []
    for row in rows.citing(table, message_ids):
        sources = [name for name in row["source_message_ids"] if name not in message_ids]
        rows.update(table, row, {"source_message_ids": sources})
        if not sources:
            unsupported.append(row)
    return unsupported


def read_names(rows: GraphTransaction, entity_ids: Sequence[str]) -> list[GraphRow]:
    """Return the aliases of entities."""
    names = rows.read("aliases", {"entity_id": entity_ids})
    return sorted(names, key=itemgetter("alias"))


def erase_relations(rows: GraphTransaction, relations: Sequence[GraphRow]) -> None:
    """Remove relations, and the entities that nothing else connects."""
    rows.delete("relations", relations)
    erase_unconnected(rows, sorted({row[end] for row in relations for end, _ in ENDS}))


def erase_unconnected(rows: GraphTransaction, entity_ids: Sequence[str]) -> None:
    """Remove the entities that have one name and no relations."""
    for entity_id in entity_ids:
        names = read_names(rows, [entity_id])
        if len(names) <= 1 and not _is_connected(rows, entity_id):
            rows.delete("aliases", names)
            rows.delete("entities", rows.read("entities", {"entity_id": [entity_id]}))


def _is_connected(rows: GraphTransaction, entity_id: str) -> bool:
    return any(rows.read("relations", {end: [entity_id]}, limit=1) for end, _ in ENDS)


def erase_name(rows: GraphTransaction, row: GraphRow) -> None:
    """Remove a name of an entity that has others; its relations stay with the entity."""
    of_entity = {"entity_id": [row["entity_id"]]}
    names = read_names(rows, of_entity["entity_id"])
    other = next((name for name in names if name["alias"] != row["alias"]), None)
    if other is None:
        return
    rows.delete("aliases", [row])
    for entity in rows.read("entities", {**of_entity, "name": [row["name"]]}):
        rows.update("entities", entity, {"name": other["name"]})
    for end, end_alias in ENDS:
        stated = {end: of_entity["entity_id"], end_alias: [row["alias"]]}
        for relation in rows.read("relations", stated):
            rows.update("relations", relation, {end_alias: other["alias"]})


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
        cited = sorted(message_ids)
        ids = await self.database.transact(
            self.scope, lambda rows: [row["relation_id"] for row in rows.citing("relations", cited)]
        )
        return await self._to_edges(await self._read("relations", {"relation_id": ids}))

    async def latest(self, limit: int) -> list[StoredRelation]:
        """Return the latest relations, latest first, without ended ones."""

        rows = await _read_valid(
            lambda size: self._read("relations", {}, limit=size, newest=True), None, limit
        )
        edges = await self._to_edges(rows)
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
        # Texts that are no name are skipped among the types, and refused as ends of relations.
        names = {name: kind for name, kind in types.items() if entity_key(name)}
        for relation in new:
            for end in (relation.source, relation.destination):
                names.setdefault(end, "thing")
        for name in names:
            check_name(name)
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
            columns = (("aliases", "entity_id"), *(("relations", end) for end, _ in ENDS))
            for table, column in columns:
                for row in rows.read(table, {column: [merged]}):
                    rows.update(table, row, {column: target})
            rows.delete("entities", rows.read("entities", {"entity_id": [merged]}))
        key = {"agent_id": [self._agent_id], "alias": [entity_key(alias)]}
        (alias_row,) = rows.read("aliases", key)
        add_sources(rows, "aliases", alias_row, source_message_ids)

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
        for end, _ in ENDS:  # Another writer may have related an entity since then.
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
    """Return True for a relation that holds now, or that held and was known at a time."""
    moment = as_of or datetime.now(UTC)
    has_ended = row["valid_to"] is not None and row["valid_to"] <= moment
    return not has_ended and (as_of is None or (row["valid_from"] or row["created_at"]) <= moment)


def read_rows(
    reads: Reads,
    user_id: str,
    table: str,
    where: Conditions,
    *,
    after: str = "",
    limit: int | None = None,
    newest: bool = False,
) -> list[GraphRow]:
    """Return the rows of a user that meet all conditions, in the order of their keys."""
    values = {name: list(items) for name, items in where.items() if items is not None}
    if not all(values.values()):
        return []
    options: dict[str, Any] = {"after": after, "limit": limit, "newest": newest}
    for name, items in values.items():
        if len(items) > KEYS_PER_STATEMENT:
            batches = [{**where, name: batch} for batch in split(items)]
            parts = [read_rows(reads, user_id, table, batch, **options) for batch in batches]
            found = sorted(chain(*parts), key=itemgetter(GRAPH_TABLES[table][-1]))
            first = max(0, len(found) - limit) if newest and limit is not None else 0
            return found[first:][:limit]
    empty = tuple(sorted(where.keys() - values.keys()))
    bounds: dict[str, Any] = {"following": after} if after else {}
    bounds |= {} if limit is None else {"most": limit}
    statement = _select(table, tuple(sorted(values)), empty, tuple(bounds), newest)
    rows = reads.fetch(statement, {"of_user": user_id, **values, **bounds})
    return [row._asdict() for row in (reversed(rows) if newest else rows)]


class TableTransaction:
    """Changes of one user's rows in a transaction, which must have locked the user."""

    def __init__(self, connection: Connection, user_id: str) -> None:
        self._connection = connection
        self._user_id = user_id

    def read(self, table: str, where: Conditions, **options: Any) -> list[GraphRow]:
        """Return the rows that meet all conditions, in the order of their keys."""
        return read_rows(ConnectionReads(self._connection), self._user_id, table, where, **options)

    def citing(self, table: str, message_ids: Sequence[str]) -> list[GraphRow]:
        """Return the aliases or relations that have any of the messages as a source."""
        target = _TABLES[table]
        rows: list[Any] = []
        for batch in split(message_ids, STRINGS_PER_CONDITION):
            is_source = mentions(target.c.source_message_ids, batch)
            statement = select(target).where(target.c.user_id == self._user_id, is_source)
            rows += self._connection.execute(statement)
        return [row._asdict() for row in rows]

    def insert(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Store rows whose keys are new."""
        if rows:
            owned = [{**row, "user_id": self._user_id} for row in rows]
            self._connection.execute(insert(_TABLES[table]), owned)

    def update(self, table: str, row: GraphRow, changes: GraphRow) -> None:
        """Change columns of a stored row."""
        if len(changes.get("source_message_ids", ())) > len(row.get("source_message_ids", ())):
            changes = {**changes, "import_label": None}  # taking an import back leaves it here
        statement = update(_TABLES[table]).where(*self._is_row(table, row))
        self._connection.execute(statement.values(changes))

    def delete(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Remove stored rows."""
        for row in rows:
            self._connection.execute(delete(_TABLES[table]).where(*self._is_row(table, row)))

    def _is_row(self, table: str, row: GraphRow) -> list[ColumnElement[bool]]:
        key = {"user_id": self._user_id, **{name: row[name] for name in GRAPH_TABLES[table]}}
        return [_TABLES[table].c[name] == value for name, value in key.items()]


class StoreGraphs:
    """Graphs in the tables of the store."""

    is_in_store = True

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(
        self, user_id: str, table: str, where: Conditions, **options: Any
    ) -> list[GraphRow]:
        """Return rows of a user."""
        return await self._database.read_together(
            lambda reads: read_rows(reads, user_id, table, where, **options)
        )

    async def transact(self, scope: Scope, work: Callable[[GraphTransaction], Result]) -> Result:
        """Call `work` in a transaction that locks the user."""

        def run(connection: Connection) -> Result:
            locks = lock_scopes(connection, [scope], with_sessions=False)
            result = work(TableTransaction(connection, scope.user_id))
            locks.save(connection)
            return result

        return await self._database.transact(run)

    async def compact(self, user_id: str) -> None:
        """Remove the bytes of deleted rows from the file."""
        await self._database.remove_erased_bytes()

    async def erase_user(self, user_id: str) -> None:
        """Do nothing: the store erases its tables itself."""

    async def close(self) -> None:
        """Do nothing: the store closes the database."""


@cache  # Every search runs some of these, and building one costs as much as running it.
def _select(
    name: str,
    columns: tuple[str, ...],
    empty: tuple[str, ...],
    bounds: tuple[str, ...],
    newest: bool,
) -> Select[Any]:
    table = _TABLES[name]
    key = table.c[GRAPH_TABLES[name][-1]]
    statement = select(table).where(
        table.c.user_id == bindparam("of_user"),
        *(table.c[column].in_(bindparam(column, expanding=True)) for column in columns),
        *(table.c[column].is_(None) for column in empty),
    )
    if "following" in bounds:
        statement = statement.where(key > bindparam("following"))
    statement = statement.order_by(key.desc() if newest else key)
    return statement.limit(bindparam("most")) if "most" in bounds else statement
