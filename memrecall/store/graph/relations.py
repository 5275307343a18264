"""The knowledge graph of one scope: entities with all their names, relations with validity.

Names are compared without regard to width, case and spaces, and each belongs to one entity.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, lock_scopes
from memrecall.store.database.memory_tables import aliases, entities, relations
from memrecall.store.database.statements import filter_scope, new_id, select_by_keys, split
from memrecall.types import NAME_LENGTH, check_text

MAX_RELATIONS = 5_000  # that one query returns


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


def fold_text(text: str) -> str:
    """Return a text without differences of width, case and spacing, to search names in."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def fold_name(name: str) -> str:
    """Return a name as it is compared."""
    return fold_text(name)[:NAME_LENGTH]


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
        names = {name: kind for name, kind in types.items() if fold_name(name)}
        for relation in new:
            names.setdefault(relation.source, "thing")
            names.setdefault(relation.destination, "thing")
        for name in names:
            check_name(name)
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
        for batch in split(sorted({fold_name(name) for name in names} - {""})):
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
        names = await self._fetch_names([row.entity_id for row in rows])
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

    async def is_empty(self) -> bool:
        """Return whether the scope has no relation."""
        statement = filter_scope(select(relations.c.relation_id), relations, self._scope)
        return not await self._database.fetch(statement.limit(1))

    async def _fetch_names(self, entity_ids: list[str]) -> dict[str, list[str]]:
        if not entity_ids:
            return {}
        statement = select(aliases.c.entity_id, aliases.c.name)
        statement = filter_scope(statement, aliases, self._scope).order_by(aliases.c.alias)
        names: dict[str, list[str]] = {}
        for row in await self._database.fetch(statement.where(aliases.c.entity_id.in_(entity_ids))):
            names.setdefault(row.entity_id, []).append(row.name)
        return names

    async def _add(
        self, connection: AsyncConnection, names: dict[str, str], new: Sequence[NewRelation]
    ) -> list[str]:
        locks = await lock_scopes(connection, [self._scope], with_sessions=False)
        ids = await self._ensure_entities(connection, names, locks.now)
        created = []
        for relation in new:
            ends = (ids[fold_name(relation.source)], ids[fold_name(relation.destination)])
            relation_id = await self._relate(connection, relation, *ends, locks.now)
            if relation_id is not None:
                created.append(relation_id)
        await locks.save(connection)
        return created

    async def _ensure_entities(
        self, connection: AsyncConnection, names: dict[str, str], now: datetime
    ) -> dict[str, str]:
        """Return the entity ids of names (name to type) by folded name; create missing ones."""
        folded = {fold_name(name): name for name in reversed(list(names))}
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
        target, merged = ids[fold_name(name)], ids[fold_name(alias)]
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


def _select_relations() -> Select[Any]:
    """Return the query for relations with the names of their ends."""
    source, destination = entities.alias("source"), entities.alias("destination")
    joined = relations.join(
        source,
        and_(
            source.c.user_id == relations.c.user_id,
            source.c.entity_id == relations.c.source_id,
        ),
    ).join(
        destination,
        and_(
            destination.c.user_id == relations.c.user_id,
            destination.c.entity_id == relations.c.destination_id,
        ),
    )
    names = (source.c.name.label("source"), destination.c.name.label("destination"))
    return select(relations, *names).select_from(joined)


def check_name(name: str) -> None:
    """Raise InvalidArgument for a text that cannot name an entity."""
    check_text("an entity's name", name)
    if not fold_name(name) or len(name) > NAME_LENGTH:
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
