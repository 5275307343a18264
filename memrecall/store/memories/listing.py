"""Lists of memories: filtered, as of a time, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, and_, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql import ColumnElement

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.cursors import open_cursor, seal_cursor
from memrecall.store.database.engine import Database
from memrecall.store.database.statements import chunks
from memrecall.store.database.tables import memories
from memrecall.store.memories.edits import only_visible
from memrecall.store.memories.filters import Filter, FilterAll, condition
from memrecall.types import MemoryRecord, parse_time

LARGEST_PAGE = 1_000
EVERYTHING = FilterAll(())


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """Which memories of a scope are asked for.

    As they stand now, or stood `as_of` a time; with `superseded` also those that hold no longer.
    `deleted` asks for the hidden ones instead.
    """

    filter: Filter = EVERYTHING
    session_id: str | None = None
    as_of: datetime | None = None
    superseded: bool = False
    deleted: bool = False

    def fingerprint(self) -> list[str]:
        """What a cursor is bound to."""
        return [repr(getattr(self, name)) for name in self.__slots__]


CURRENT = MemoryQuery()


@dataclass(frozen=True, slots=True)
class StoredMemoryPage:
    """Some memories, and the cursor of those that follow (None: there are no more)."""

    items: tuple[MemoryRecord, ...]
    next_cursor: str | None = None


class MemoryList:
    """Reads the memories of one scope, the latest first."""

    def __init__(self, database: Database, scope: Scope, cursor_secret: bytes) -> None:
        self._database = database
        self._scope = scope
        self._secret = cursor_secret

    async def page(
        self,
        wanted: MemoryQuery = CURRENT,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> StoredMemoryPage:
        """So many memories from the latest to the earliest."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise InvalidArgument(f"limit {limit} is out of range", hint=f"Use 1 to {LARGEST_PAGE}")
        binding = ["memories", self._scope.user_id, self._scope.agent_id, *wanted.fingerprint()]
        statement = self._select(select(memories), wanted)
        if cursor is not None:
            created_at, key = open_cursor(self._secret, binding, cursor)
            statement = statement.where(_after(parse_time(created_at), key))
        latest = statement.order_by(memories.c.created_at.desc(), memories.c.memory_key)
        # One more than asked tells whether there is a next page.
        rows = await self._database.fetch(latest.limit(limit + 1))
        items = tuple(MemoryRecord.model_validate(dict(row._mapping)) for row in rows[:limit])
        if len(rows) <= limit:
            return StoredMemoryPage(items)
        place = [items[-1].created_at.isoformat(), items[-1].memory_key]
        return StoredMemoryPage(items, seal_cursor(self._secret, binding, place))

    async def get(self, memory_key: str) -> MemoryRecord:
        """The memory of that key in whatever state, also superseded or hidden; else NotFound."""
        mine = only_visible(select(memories), self._scope)
        rows = await self._database.fetch(mine.where(memories.c.memory_key == memory_key))
        if not rows:
            raise NotFound(f"there is no memory {memory_key!r}", hint="Check the key and the user")
        return MemoryRecord.model_validate(dict(rows[0]._mapping))

    async def keys(self, wanted: MemoryQuery) -> list[str]:
        """The keys of all that are asked for, in the order of the keys."""
        statement = self._select(select(memories.c.memory_key), wanted)
        rows = await self._database.fetch(statement.order_by(memories.c.memory_key))
        return [row.memory_key for row in rows]

    async def count(self, wanted: MemoryQuery) -> int:
        """How many are asked for."""
        rows = await self._database.fetch(
            self._select(select(func.count().label("n")).select_from(memories), wanted)
        )
        return int(rows[0].n)

    async def mark_recalled(self, keys: Sequence[str], at: datetime) -> None:
        """Note that memories were of use; no change that a search would have to learn of."""

        async def work(connection: AsyncConnection) -> None:
            for part in chunks(sorted(set(keys))):
                marked = update(memories).where(
                    memories.c.user_id == self._scope.user_id,
                    memories.c.memory_key.in_(list(part)),
                )
                await connection.execute(marked.values(last_recalled_at=at))

        await self._database.transact(work)

    def _select(self, statement: Select[Any], wanted: MemoryQuery) -> Select[Any]:
        statement = only_visible(statement, self._scope)
        hidden = memories.c.deleted_at
        statement = statement.where(hidden.is_not(None) if wanted.deleted else hidden.is_(None))
        if not wanted.superseded and not wanted.deleted:
            statement = statement.where(_holds(wanted.as_of))
        if wanted.session_id is not None:
            statement = statement.where(memories.c.session_id == wanted.session_id)
        return statement.where(condition(wanted.filter, sqlite=self._database.is_sqlite))


def _holds(as_of: datetime | None) -> ColumnElement[bool]:
    """Whether a memory holds at a time; without one, now, when it counts as soon as it is told."""
    moment = as_of or datetime.now(UTC)
    open_ended = and_(
        or_(memories.c.valid_to.is_(None), memories.c.valid_to > moment),
        or_(memories.c.expires_at.is_(None), memories.c.expires_at > moment),
        or_(memories.c.valid_from.is_(None), memories.c.valid_from <= moment),
    )
    if as_of is None:
        return open_ended
    known = func.coalesce(memories.c.valid_from, memories.c.created_at) <= moment
    return and_(open_ended, known)


def _after(created_at: datetime, key: str) -> ColumnElement[bool]:
    tie = and_(memories.c.created_at == created_at, memories.c.memory_key > key)
    return and_(memories.c.created_at <= created_at, or_(memories.c.created_at < created_at, tie))
