"""Knowledge graphs: the interface of graph databases, and the default one in the store's tables.

Names are compared by their `entity_key`, and each belongs to one entity.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, lock_scopes
from memrecall.store.database.memory_tables import aliases, entities, relations
from memrecall.store.database.statements import filter_scope, new_id, select_by_keys, split
from memrecall.text.normalize import entity_key
from memrecall.types import NAME_LENGTH, check_text

Row = Mapping[str, Any]

MAX_RELATIONS = 5_000  # that one query returns
# The tables of an export that hold a graph, wherever it is stored.
GRAPH_TABLES = ("entities", "aliases", "relations")


@dataclass(frozen=True, slots=True)
class NewRelation:
    """A relation to store, or to end if `ended` is set."""

    source: str
    relationship: str
    destination: str
    source_message_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class StoredEntity:
    """An entity by its first name; `aliases` has all its names."""

    entity_id: str
    name: str
    type: str
    aliases: tuple[str, ...] = ()


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


class ScopedGraph(Protocol):
    """The graph of one scope; without an agent, that of all agents of the user."""

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name to type) and relations; return the ids of new relations."""

    async def merge(self, name: str, alias: str) -> None:
        """Merge two entities: all relations of `alias` become relations of `name`."""

    async def entities(self, names: Iterable[str]) -> list[StoredEntity]:
        """Return the entities that have any of the names."""

    async def page(self, *, limit: int, after: str | None = None) -> list[StoredEntity]:
        """Return the entities that follow the id `after`, oldest first."""

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest valid relations of entities, with source id and destination id."""


class GraphDB(Protocol):
    """A database of all users' graphs, each of which can be erased completely."""

    @property
    def is_in_store(self) -> bool:
        """Whether the store exports, imports and erases the graphs with its other tables."""

    def for_scope(self, scope: Scope) -> ScopedGraph:
        """Return the graph of a scope."""

    def rows(self, user_id: str) -> AsyncIterator[tuple[str, Row]]:
        """Yield everything of a user as rows of `GRAPH_TABLES`, times as RFC 3339."""

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Row]]) -> None:
        """Store such rows; those whose key exists stay as they are."""

    async def erase_user(self, user_id: str) -> None:
        """Remove everything of a user."""

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """Remove everything that comes from a session."""

    async def close(self) -> None:
        """Close all connections and files."""


# Every search runs it: built once, because building costs as much as running.
_SELECT_BY_NAME = select(aliases.c.entity_id, aliases.c.agent_id).where(
    aliases.c.user_id == bindparam("of_user"),
    aliases.c.alias.in_(bindparam("names", expanding=True)),
)


class Graph:
    """Writes and reads the graph of one scope."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope
        self._agent_id = agent_of(scope)

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name to type) and relations; return the ids of new relations."""
        names = collect_names(types, new)
        if not names:
            return []
        return await self._database.transact(lambda c: self._add(c, names, new))

    async def merge(self, name: str, alias: str) -> None:
        """Merge two entities: all relations of `alias` become relations of `name`."""
        check_name(name)
        check_name(alias)
        await self._database.transact(lambda c: self._merge(c, name, alias))

    async def entities(self, names: Iterable[str]) -> list[StoredEntity]:
        """Return the entities that have any of the names; the cost grows with the names alone."""
        ids: set[str] = set()
        for batch in split(sorted({entity_key(name) for name in names} - {""})):
            parameters = {"of_user": self._scope.user_id, "names": list(batch)}
            rows = await self._database.fetch(_SELECT_BY_NAME, parameters)
            ids |= {row.entity_id for row in rows if self._scope.agent_id in (None, row.agent_id)}
        if not ids:
            return []  # the usual case when the words of a query are tried as names
        return await self._fetch_entities(
            self._select_entities().where(entities.c.entity_id.in_(sorted(ids)))
        )

    async def page(self, *, limit: int, after: str | None = None) -> list[StoredEntity]:
        """Return the entities that follow the id `after`, oldest first."""
        statement = self._select_entities()
        if after is not None:
            statement = statement.where(entities.c.entity_id > after)
        return await self._fetch_entities(statement.limit(limit))

    def _select_entities(self) -> Select[Any]:
        statement = filter_scope(select(entities), entities, self._scope)
        return statement.order_by(entities.c.entity_id)

    async def _fetch_entities(self, statement: Select[Any]) -> list[StoredEntity]:
        rows = await self._database.fetch(statement)
        of_rows = aliases.c.entity_id.in_([row.entity_id for row in rows])
        select_names = select(aliases.c.entity_id, aliases.c.name).where(of_rows)
        select_names = filter_scope(select_names, aliases, self._scope).order_by(aliases.c.alias)
        names: dict[str, list[str]] = {}
        for row in await self._database.fetch(select_names) if rows else ():
            names.setdefault(row.entity_id, []).append(row.name)
        return [
            StoredEntity(row.entity_id, row.name, row.type, tuple(names.get(row.entity_id, ())))
            for row in rows
        ]

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest valid relations of entities, with source id and destination id."""
        if not entity_ids:
            return []
        ends = or_(
            relations.c.source_id.in_(list(entity_ids)),
            relations.c.destination_id.in_(list(entity_ids)),
        )
        rows = await self._fetch_latest(limit, ends, _is_valid(as_of))
        return [(row.source_id, row.destination_id, _to_relation(row)) for row in rows[::-1]]

    async def latest(self, limit: int) -> list[StoredRelation]:
        """Return the valid relations that were stored last, latest first."""
        rows = await self._fetch_latest(limit, _is_valid(None))
        return [_to_relation(row) for row in rows]

    async def _fetch_latest(self, limit: int, *conditions: ColumnElement[bool]) -> Sequence[Any]:
        statement = filter_scope(_select_relations(), relations, self._scope).where(*conditions)
        # Ids begin with the time of their creation, and the table's key with the owner.
        latest_first = statement.order_by(relations.c.relation_id.desc())
        return await self._database.fetch(latest_first.limit(limit))

    async def _add(
        self, connection: AsyncConnection, names: dict[str, str], new: Sequence[NewRelation]
    ) -> list[str]:
        locks = await lock_scopes(connection, [self._scope], with_sessions=False)
        ids = await self._ensure_entities(connection, names, locks.now)
        created = []
        for relation in new:
            ends = (ids[entity_key(relation.source)], ids[entity_key(relation.destination)])
            relation_id = await self._relate(connection, relation, *ends, locks.now)
            if relation_id is not None:
                created.append(relation_id)
        await locks.save(connection)
        return created

    async def _ensure_entities(
        self, connection: AsyncConnection, names: dict[str, str], now: datetime
    ) -> dict[str, str]:
        """Return the entity ids of names (name to type) by folded name; create missing ones."""
        folded = {entity_key(name): name for name in reversed(list(names))}
        statement = select(aliases.c.alias, aliases.c.entity_id).where(
            aliases.c.user_id == self._scope.user_id, aliases.c.agent_id == self._agent_id
        )
        rows = await select_by_keys(connection, statement, [aliases.c.alias], sorted(folded))
        ids = {row["alias"]: row["entity_id"] for row in rows}
        for alias, name in folded.items():
            if alias not in ids:
                ids[alias] = await self._create(connection, alias, name, names[name], now)
        return ids

    async def _create(
        self, connection: AsyncConnection, alias: str, name: str, kind: str, now: datetime
    ) -> str:
        owner = {"user_id": self._scope.user_id, "agent_id": self._agent_id}
        key = {**owner, "entity_id": new_id("en"), "name": name}
        await connection.execute(insert(entities), {**key, "type": kind, "created_at": now})
        session = {"alias": alias, "session_id": self._scope.session_id}
        await connection.execute(insert(aliases), {**key, **session})
        return key["entity_id"]

    async def _relate(
        self,
        connection: AsyncConnection,
        new: NewRelation,
        source: str,
        destination: str,
        now: datetime,
    ) -> str | None:
        """Store a relation unless it is valid already, or end it; return the id of a new one."""
        check_text("relationship", new.relationship)
        same = (
            relations.c.user_id == self._scope.user_id,
            relations.c.agent_id == self._agent_id,
            relations.c.source_id == source,
            relations.c.destination_id == destination,
            relations.c.relationship == new.relationship[:NAME_LENGTH],
            relations.c.valid_to.is_(None),
        )
        if new.ended:
            statement = update(relations).where(*same)
            await connection.execute(statement.values(valid_to=new.valid_from or now))
            return None
        stored = await connection.scalars(select(relations.c.relation_id).where(*same))
        if stored.first() is not None:
            return None
        row = {
            "user_id": self._scope.user_id,
            "relation_id": new_id("re"),
            "agent_id": self._agent_id,
            "session_id": self._scope.session_id,
            "source_id": source,
            "relationship": new.relationship[:NAME_LENGTH],
            "destination_id": destination,
            "valid_from": new.valid_from,
            "valid_to": None,
            "source_message_ids": list(new.source_message_ids),
            "created_at": now,
        }
        await connection.execute(insert(relations), row)
        return str(row["relation_id"])

    async def _merge(self, connection: AsyncConnection, name: str, alias: str) -> None:
        locks = await lock_scopes(connection, [self._scope], with_sessions=False)
        types = {name: "thing", alias: "thing"}
        ids = await self._ensure_entities(connection, types, locks.now)
        target, merged = ids[entity_key(name)], ids[entity_key(alias)]
        if target != merged:
            user_id = self._scope.user_id
            for table, column in (
                (aliases, "entity_id"),
                (relations, "source_id"),
                (relations, "destination_id"),
            ):
                of_merged = (table.c.user_id == user_id, table.c[column] == merged)
                await connection.execute(update(table).where(*of_merged).values({column: target}))
            of_merged = (entities.c.user_id == user_id, entities.c.entity_id == merged)
            await connection.execute(delete(entities).where(*of_merged))
        await locks.save(connection)


class StoreGraphs:
    """Graphs in the tables of the store."""

    is_in_store = True

    def __init__(self, database: Database) -> None:
        self._database = database

    def for_scope(self, scope: Scope) -> ScopedGraph:
        """Return the graph of a scope."""
        return Graph(self._database, scope)

    async def rows(self, user_id: str) -> AsyncIterator[tuple[str, Row]]:
        """Yield nothing: the store exports its tables itself."""
        no_rows: tuple[tuple[str, Row], ...] = ()
        for row in no_rows:
            yield row

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Row]]) -> None:
        """Do nothing: the store imports its tables itself."""

    async def erase_user(self, user_id: str) -> None:
        """Do nothing: the store erases its tables itself."""

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """Do nothing: the store erases its tables itself."""

    async def close(self) -> None:
        """Do nothing: the store closes the database."""


def _select_relations() -> Select[Any]:
    """Return the query for relations with the names of their ends."""
    source, destination = entities.alias("source"), entities.alias("destination")
    names = (source.c.name.label("source"), destination.c.name.label("destination"))
    statement = select(relations, *names)
    for end, end_id in (
        (source, relations.c.source_id),
        (destination, relations.c.destination_id),
    ):
        same_entity = and_(end.c.user_id == relations.c.user_id, end.c.entity_id == end_id)
        statement = statement.join(end, same_entity)
    return statement


def collect_names(types: dict[str, str], new: Sequence[NewRelation]) -> dict[str, str]:
    """Return the type of every entity to store; InvalidArgument for a text that names none."""
    ends = [end for relation in new for end in (relation.source, relation.destination)]
    typed_names = {name: kind for name, kind in types.items() if entity_key(name)}
    names = {**typed_names, **{end: "thing" for end in ends if end not in typed_names}}
    for name in names:
        check_name(name)
    return names


def check_name(name: str) -> None:
    """Raise InvalidArgument for a text that cannot name an entity."""
    check_text("an entity's name", name)
    if not entity_key(name) or len(name) > NAME_LENGTH:
        raise InvalidArgument(
            f"{name[:80]!r} cannot name an entity", hint=f"Use 1 to {NAME_LENGTH} characters"
        )


def _is_valid(as_of: datetime | None) -> ColumnElement[bool]:
    moment = as_of or datetime.now(UTC)
    has_not_ended = or_(relations.c.valid_to.is_(None), relations.c.valid_to > moment)
    if as_of is None:
        return has_not_ended
    has_begun = or_(
        relations.c.valid_from <= moment,
        and_(relations.c.valid_from.is_(None), relations.c.created_at <= moment),
    )
    return and_(has_not_ended, has_begun)


def _to_relation(row: Any) -> StoredRelation:
    return StoredRelation(
        row.relation_id,
        row.source,
        row.relationship,
        row.destination,
        row.valid_from,
        row.valid_to,
        tuple(row.source_message_ids),
    )
