"""The knowledge graph of one scope: entities under all their names, relations with validity.

A name is compared without regard to width, case and spaces, and belongs to one entity: what is
said of either of an entity's names is said of the entity.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, claim
from memrecall.store.database.memory_tables import aliases, entities, relations
from memrecall.store.database.statements import chunks, new_id, select_by_keys
from memrecall.types import NAME_LENGTH, check_text

MOST_RELATIONS = 5_000  # that one look around brings


@dataclass(frozen=True, slots=True)
class NewRelation:
    """`source` stands in `relationship` to `destination`; `ended`: not any more."""

    source: str
    relationship: str
    destination: str
    source_message_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class StoredEntity:
    """Somebody or something, by its first name; `aliases` has all names."""

    entity_id: str
    name: str
    type: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """A relation of two entities, by their names."""

    relation_id: str
    source: str
    relationship: str
    destination: str
    valid_from: datetime | None
    valid_to: datetime | None
    source_message_ids: tuple[str, ...]


def fold_text(text: str) -> str:
    """A text in which names can be looked for: without width, case and runs of spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def fold_name(name: str) -> str:
    """A name as it is compared."""
    return fold_text(name)[:NAME_LENGTH]


# Asked at every search: built once, because building costs as much as asking.
_NAMED = select(aliases.c.entity_id, aliases.c.agent_id).where(
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
        """Store entities (name and type) and relations; the ids of the relations that are new."""
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
        """Two names are of one entity: what was said of `alias` is said of `name` from now on."""
        for one in (name, alias):
            check_name(one)
        await self._database.transact(lambda c: self._merge(c, name, alias))

    async def entities(self, names: Iterable[str]) -> list[StoredEntity]:
        """Entities by any of their names; it costs the names, not the size of the graph."""
        found: set[str] = set()
        for part in chunks(sorted({fold_name(name) for name in names} - {""})):
            given = {"of_user": self._scope.user_id, "names": list(part)}
            rows = await self._database.fetch(_NAMED, given)
            found |= {row.entity_id for row in rows if self._scope.agent_id in (None, row.agent_id)}
        if not found:
            return []  # as mostly, when a question is looked through for names
        wanted = self._of_scope(select(entities), entities).order_by(entities.c.entity_id)
        of_ids = wanted.where(entities.c.entity_id.in_(sorted(found)))
        return await self._with_names(await self._database.fetch(of_ids))

    async def page(self, *, limit: int, after: str | None = None) -> list[StoredEntity]:
        """So many entities, the earliest first, beginning after the one of that id."""
        wanted = self._of_scope(select(entities), entities).order_by(entities.c.entity_id)
        if after is not None:
            wanted = wanted.where(entities.c.entity_id > after)
        return await self._with_names(await self._database.fetch(wanted.limit(limit)))

    async def _with_names(self, rows: Sequence[Any]) -> list[StoredEntity]:
        called = await self._names([row.entity_id for row in rows])
        return [
            StoredEntity(row.entity_id, row.name, row.type, tuple(called.get(row.entity_id, ())))
            for row in rows
        ]

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MOST_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """The latest relations that hold and touch an entity: source id, destination id, it."""
        if not entity_ids:
            return []
        ends = or_(
            relations.c.source_id.in_(list(entity_ids)),
            relations.c.destination_id.in_(list(entity_ids)),
        )
        wanted = self._of_scope(_named_relations(), relations).where(ends, _holds(as_of))
        latest = wanted.order_by(relations.c.relation_id.desc()).limit(limit)
        rows = (await self._database.fetch(latest))[::-1]
        return [(row.source_id, row.destination_id, _stored(row)) for row in rows]

    async def latest(self, limit: int) -> list[StoredRelation]:
        """The relations that hold and were learnt last, the latest first."""
        # Ids begin with the time they were made at, and the key of the table with the owner.
        wanted = self._of_scope(_named_relations(), relations).where(_holds(None))
        rows = await self._database.fetch(
            wanted.order_by(relations.c.relation_id.desc()).limit(limit)
        )
        return [_stored(row) for row in rows]

    async def is_empty(self) -> bool:
        """Whether the scope has no relation at all."""
        wanted = self._of_scope(select(relations.c.relation_id), relations).limit(1)
        return not await self._database.fetch(wanted)

    def _of_scope(self, wanted: Select[Any], table: Any) -> Select[Any]:
        wanted = wanted.where(table.c.user_id == self._scope.user_id)
        if self._scope.agent_id is not None:
            wanted = wanted.where(table.c.agent_id == self._agent_id)
        return wanted

    async def _names(self, entity_ids: list[str]) -> dict[str, list[str]]:
        if not entity_ids:
            return {}
        wanted = self._of_scope(select(aliases.c.entity_id, aliases.c.name), aliases)
        wanted = wanted.where(aliases.c.entity_id.in_(entity_ids)).order_by(aliases.c.alias)
        called: dict[str, list[str]] = {}
        for row in await self._database.fetch(wanted):
            called.setdefault(row.entity_id, []).append(row.name)
        return called

    async def _add(
        self, connection: AsyncConnection, names: dict[str, str], new: Sequence[NewRelation]
    ) -> list[str]:
        now = datetime.now(UTC)
        claims = await claim(connection, [self._scope], now, with_sessions=False)
        ids = await self._entity_ids(connection, names, now)
        made = []
        for relation in new:
            ends = (ids[fold_name(relation.source)], ids[fold_name(relation.destination)])
            identity = await self._relate(connection, relation, *ends, now)
            if identity is not None:
                made.append(identity)
        await claims.release(connection)
        return made

    async def _entity_ids(
        self, connection: AsyncConnection, names: dict[str, str], now: datetime
    ) -> dict[str, str]:
        folded = {fold_name(name): name for name in reversed(list(names))}
        known = select(aliases.c.alias, aliases.c.entity_id).where(
            aliases.c.user_id == self._scope.user_id, aliases.c.agent_id == self._agent_id
        )
        rows = await select_by_keys(connection, known, [aliases.c.alias], sorted(folded))
        ids = {row["alias"]: row["entity_id"] for row in rows}
        for alias, name in folded.items():
            if alias not in ids:
                ids[alias] = await self._make(connection, alias, name, names[name], now)
        return ids

    async def _make(
        self, connection: AsyncConnection, alias: str, name: str, kind: str, now: datetime
    ) -> str:
        owner = {"user_id": self._scope.user_id, "agent_id": self._agent_id}
        named = {"entity_id": new_id("en"), "name": name}
        made = {**owner, **named, "type": kind, "created_at": now}
        await connection.execute(insert(entities), made)
        session = {"alias": alias, "session_id": self._scope.session_id}
        await connection.execute(insert(aliases), {**owner, **named, **session})
        return named["entity_id"]

    async def _relate(
        self,
        connection: AsyncConnection,
        new: NewRelation,
        source: str,
        destination: str,
        now: datetime,
    ) -> str | None:
        """Store a relation that does not hold yet, or end one that does; None: nothing new."""
        check_text("relationship", new.relationship)
        same = (
            relations.c.user_id == self._scope.user_id,
            relations.c.agent_id == self._agent_id,
            relations.c.source_id == source,
            relations.c.destination_id == destination,
            relations.c.relationship == new.relationship[:NAME_LENGTH],
            relations.c.valid_to.is_(None),
        )
        held = (await connection.scalars(select(relations.c.relation_id).where(*same))).first()
        if new.ended:
            ended = update(relations).where(*same)
            await connection.execute(ended.values(valid_to=new.valid_from or now))
            return None
        if held is not None:
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
        now = datetime.now(UTC)
        claims = await claim(connection, [self._scope], now, with_sessions=False)
        kept = (await self._entity_ids(connection, {name: "thing"}, now))[fold_name(name)]
        gone = (await self._entity_ids(connection, {alias: "thing"}, now))[fold_name(alias)]
        if kept != gone:
            of_user = self._scope.user_id
            for table, column in (
                (aliases, "entity_id"),
                (relations, "source_id"),
                (relations, "destination_id"),
            ):
                moved = update(table).where(table.c.user_id == of_user, table.c[column] == gone)
                await connection.execute(moved.values({column: kept}))
            await connection.execute(
                delete(entities).where(entities.c.user_id == of_user, entities.c.entity_id == gone)
            )
        await claims.release(connection)


def _named_relations() -> Select[Any]:
    """Relations with the names of both their ends."""
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
    """Refuse what cannot name an entity."""
    check_text("an entity's name", name)
    if not fold_name(name) or len(name) > NAME_LENGTH:
        raise InvalidArgument(
            f"{name[:80]!r} cannot name an entity", hint=f"Use 1 to {NAME_LENGTH} characters"
        )


def _holds(as_of: datetime | None) -> Any:
    moment = as_of or datetime.now(UTC)
    ended = or_(relations.c.valid_to.is_(None), relations.c.valid_to > moment)
    if as_of is None:
        return ended
    begun = or_(
        relations.c.valid_from <= moment,
        and_(relations.c.valid_from.is_(None), relations.c.created_at <= moment),
    )
    return and_(ended, begun)


def _stored(row: Any) -> StoredRelation:
    return StoredRelation(
        row.relation_id,
        row.source,
        row.relationship,
        row.destination,
        row.valid_from,
        row.valid_to,
        tuple(row.source_message_ids),
    )
