"""The memories of one scope: adding them, reading them by key, listing them with filters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Select, Text, and_, bindparam, cast, func, or_, select, update
from sqlalchemy.sql import ColumnElement

from memrecall.errors import NotFound
from memrecall.scope import Permission, Scope
from memrecall.store.database.cursors import (
    LARGEST_LIST,
    PageLimits,
    StoredPage,
    come_after,
    make_page,
    open_cursor,
    require_limit,
)
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_scopes
from memrecall.store.database.memberships import read_by_owner, show_writers
from memrecall.store.database.statements import (
    STRINGS_PER_CONDITION,
    Reads,
    filter_scope,
    in_project,
    mentions,
    split,
)
from memrecall.store.database.tables import has_expired, memories, revisions
from memrecall.store.memories.filters import Filter, FilterAll, to_condition
from memrecall.store.memories.history import (
    LAST_CHANGE,
    REVISION_COLUMNS,
    Revision,
    filter_visible,
    memory_not_found,
)
from memrecall.store.memories.writer import MemoryWriter, with_key
from memrecall.store.messages import WriteResult
from memrecall.store.privacy import protect_new
from memrecall.types import MemoryRecord, NewMemory, Origin, check_text, parse_stored_time

NO_FILTER = FilterAll(())


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """Which memories of a scope to list: those valid now, or valid `as_of` a time.

    `superseded` includes those that are not valid, `expired` only those that have expired;
    `deleted` lists the deleted ones instead.
    """

    filter: Filter = NO_FILTER
    session_id: str | None = None
    as_of: datetime | None = None
    superseded: bool = False
    deleted: bool = False
    expired: bool = False

    def fingerprint(self) -> list[str]:
        """Return what a cursor is bound to."""
        return [repr(getattr(self, name)) for name in self.__slots__]


CURRENT = MemoryQuery()


class Memories:
    """The memories of one scope: adds them, reads them by key and lists them."""

    def __init__(self, database: Database, scope: Scope, limits: PageLimits) -> None:
        self._database = database
        self._scope = scope
        self._limits = limits

    async def add(
        self, batch: Sequence[NewMemory], *, origin: Origin, actor: str = "memrecall"
    ) -> WriteResult:
        """Store a batch, all or nothing; trusted code states its origin and actor."""
        check_text("actor", actor)
        with_keys = [with_key(protect_new(self._database.privacy, memory)) for memory in batch]
        if not with_keys:
            return WriteResult()

        def work(connection: Connection) -> WriteResult:
            locks = lock_scopes(connection, [self._scope], with_sessions=False)
            writer = MemoryWriter(connection, locks, self._scope, actor)
            result = writer.add(with_keys, origin)
            locks.save(connection)
            return result

        return (await self._database.transact(work)).of_items(with_keys)

    async def get(self, memory_key: str) -> MemoryRecord:
        """Return one memory; NotFound if the scope has none, may not see it, or it is deleted."""
        records = await self.get_many([memory_key])
        if not records:
            raise memory_not_found(memory_key)
        return records[0]

    async def get_many(self, keys: Sequence[str]) -> list[MemoryRecord]:
        """Return the memories that exist and may be seen, in no particular order."""
        return await self._database.read_together(partial(self.read_many, keys))

    def read_many(self, keys: Sequence[str], reads: Reads) -> list[MemoryRecord]:
        """Return the same among other reads."""
        if self._scope.spaces:
            return read_by_owner(
                reads,
                self._scope,
                keys,
                lambda scope, own: self._within(scope).read_many(own, reads),
            )
        statement = _select_by_key(
            any_agent=self._scope.agent_id is None,
            any_project=self._scope.read_project is None,
            with_sensitive=self._scope.allows(Permission.SENSITIVE),
        )
        owner = {"of_user": self._scope.user_id, "of_agent": self._scope.agent_id}
        owner["of_project"] = self._scope.read_project
        records: list[MemoryRecord] = []
        for batch in split(keys):
            rows = reads.fetch(statement, {**owner, "keys": list(batch)})
            records += show_writers(reads, self._scope, [_to_record(row) for row in rows])
        return records

    async def page(
        self, query: MemoryQuery = CURRENT, *, limit: int = 100, cursor: str | None = None
    ) -> StoredPage[MemoryRecord]:
        """Return a page of memories, latest first."""
        require_limit("limit", limit, LARGEST_LIST)
        binding = ["memories", *self._scope.reader(), *query.fingerprint()]
        statement = self._filter(select(memories), query)
        order = (memories.c.created_at, memories.c.memory_key)
        if cursor is not None:
            created_at, key = open_cursor(self._limits.secret, binding, cursor)
            statement = statement.where(come_after(*order, parse_stored_time(created_at), key))
        statement = statement.order_by(order[0].desc(), order[1])

        def read(reads: Reads) -> list[MemoryRecord]:
            rows = reads.fetch(statement.limit(limit + 1))
            return show_writers(reads, self._scope, [_to_record(row) for row in rows])

        records = await self._database.read_together(read)
        key_of = attrgetter("created_at", "memory_key")
        size = min(limit, self._limits.cut(records))
        return make_page(records, size, self._limits.secret, binding, key_of)

    async def count(self, query: MemoryQuery = CURRENT) -> int:
        """Return the number of memories."""
        statement = self._filter(select(func.count()).select_from(memories), query)
        return int((await self._database.fetch(statement))[0][0])

    async def last_change(self) -> int:
        """Return the number of the last change of any memory of the user."""
        rows = await self._database.fetch(LAST_CHANGE, {"of_user": self._scope.user_id})
        return int(rows[0][0])

    async def get_any(self, memory_key: str) -> MemoryRecord:
        """Return one memory, deleted and superseded ones too; NotFound if there is none."""
        statement = filter_visible(select(memories), self._scope)
        rows = await self._database.fetch(statement.where(memories.c.memory_key == memory_key))
        if not rows:
            raise memory_not_found(memory_key)
        return _to_record(rows[0])

    async def has_sensitive(self) -> bool:
        """Return True if any memory of the scope is sensitive, deleted ones included."""
        statement = filter_scope(select(memories.c.memory_key), memories, self._scope)
        return bool(await self._database.fetch(statement.where(memories.c.sensitive).limit(1)))

    async def withheld_sources(self) -> frozenset[str]:
        """Return the messages that memories come from which the scope may not see."""
        if self._scope.allows(Permission.SENSITIVE):
            return frozenset()
        statement = filter_scope(select(memories.c.source_message_ids), memories, self._scope)
        rows = await self._database.fetch(statement.where(memories.c.sensitive))
        return frozenset(name for row in rows for name in row.source_message_ids)

    async def get_states(self, keys: Sequence[str]) -> list[MemoryRecord]:
        """Return memories in any state, sensitive ones too: for what is derived from them."""
        return await self._database.read_together(partial(self._read_states, keys))

    def _read_states(self, keys: Sequence[str], reads: Reads) -> list[MemoryRecord]:
        if self._scope.spaces:
            return read_by_owner(
                reads,
                self._scope,
                keys,
                lambda scope, own: self._within(scope)._read_states(own, reads),
            )
        return self._read_where(memories.c.memory_key.in_, keys, reads)

    async def citing(self, message_ids: Sequence[str]) -> list[MemoryRecord]:
        """Return the memories that come from any of the messages, in any state."""
        is_cited = partial(mentions, memories.c.source_message_ids)
        read = partial(self._read_where, is_cited, message_ids)
        return await self._database.read_together(read)

    async def expired(self, since: datetime) -> list[MemoryRecord]:
        """Return the memories that expired after a moment and are not deleted."""
        statement = filter_scope(select(memories), memories, self._scope).where(
            memories.c.deleted_at.is_(None), has_expired(memories), memories.c.expires_at > since
        )
        return [_to_record(row) for row in await self._database.fetch(statement)]

    async def without_sources(self) -> list[MemoryRecord]:
        """Return the memories about somebody that have no messages, in any state."""
        has_none = cast(memories.c.source_message_ids, Text) == "[]"
        statement = filter_scope(select(memories), memories, self._scope)
        statement = statement.where(has_none, memories.c.subject.is_not(None))
        return [_to_record(row) for row in await self._database.fetch(statement)]

    def _read_where(
        self,
        condition: Callable[[list[str]], ColumnElement[bool]],
        values: Sequence[str],
        reads: Reads,
    ) -> list[MemoryRecord]:
        records: dict[str, MemoryRecord] = {}
        for batch in split(sorted(set(values)), STRINGS_PER_CONDITION):
            statement = filter_scope(select(memories), memories, self._scope)
            rows = reads.fetch(statement.where(condition(list(batch))))
            records |= {row.memory_key: _to_record(row) for row in rows}
        return list(records.values())

    async def history(self, memory_key: str) -> list[Revision]:
        """Return the changes of a memory and its predecessors, oldest first, deleted ones too.

        A supersession is one entry: the old text, the new one, and the messages that say so.
        """
        chain = [await self.get_any(memory_key)]
        keys = {memory_key}
        while (earlier := chain[0].supersedes) and earlier not in keys:
            keys.add(earlier)
            try:
                chain.insert(0, await self.get_any(earlier))
            except NotFound:
                break  # purged, or not visible
        statement = select(*(revisions.c[name] for name in REVISION_COLUMNS)).where(
            revisions.c.user_id == self._scope.user_id,
            revisions.c.memory_key.in_([memory.memory_key for memory in chain]),
        )
        changes: dict[str, list[Revision]] = {memory.memory_key: [] for memory in chain}
        for row in await self._database.fetch(statement.order_by(revisions.c.number)):
            changes[row.memory_key].append(Revision(**row._mapping))
        added = [_addition(memory, changes[memory.memory_key]) for memory in chain]
        others = [r.other_key for steps in changes.values() for r in steps if r.other_key]
        visible = filter_visible(select(memories), self._scope)
        rows = await self._database.fetch(visible.where(memories.c.memory_key.in_(others)))
        successors = {row.memory_key: _addition(_to_record(row), ()) for row in rows}
        successors |= {entry.memory_key: entry for entry in added}
        story = [added[0], *(r for steps in changes.values() for r in steps)]
        story = [_with_successor(entry, successors) for entry in story]
        return sorted(story, key=lambda entry: entry.at)

    async def keys(self, query: MemoryQuery) -> list[str]:
        """Return the keys of all matching memories, sorted."""
        statement = self._filter(select(memories.c.memory_key), query)
        rows = await self._database.fetch(statement.order_by(memories.c.memory_key))
        return [row.memory_key for row in rows]

    async def mark_recalled(self, keys: Sequence[str], at: datetime) -> None:
        """Record when memories were last recalled; search indexes need not learn of it."""

        def work(connection: Connection) -> None:
            for batch in split(sorted(set(keys))):
                statement = update(memories).where(
                    memories.c.user_id == self._scope.user_id,
                    memories.c.memory_key.in_(list(batch)),
                )
                connection.execute(statement.values(last_recalled_at=at))

        await self._database.transact(work)

    def _within(self, scope: Scope) -> "Memories":
        """Return the memories of the user alone, or of one space that the scope covers."""
        return Memories(self._database, scope, self._limits)

    def _filter(self, statement: Select[Any], query: MemoryQuery) -> Select[Any]:
        statement = filter_visible(statement, self._scope)
        deleted_at = memories.c.deleted_at
        statement = statement.where(
            deleted_at.is_not(None) if query.deleted else deleted_at.is_(None)
        )
        if not query.superseded and not query.deleted:
            statement = statement.where(_is_valid(query))
        if query.session_id is not None:
            statement = statement.where(memories.c.session_id == query.session_id)
        return statement.where(to_condition(query.filter, self._database.dialect))


def _addition(memory: MemoryRecord, changes: Sequence[Revision]) -> Revision:
    """Return the history entry of a memory's addition."""
    return Revision(
        memory_key=memory.memory_key,
        number=0,
        event="ADD",
        old_text=None,
        new_text=changes[0].old_text if changes else memory.content,
        actor=memory.provenance.actor,
        at=memory.created_at,
        other_key=memory.supersedes,
        source_message_ids=memory.source_message_ids,
    )


def _with_successor(entry: Revision, successors: Mapping[str, Revision]) -> Revision:
    """Return a history entry, completed by the successor if it is a supersession or its undo.

    A supersession leads to the text and the messages of the successor, its undo back from there.
    """
    if entry.event not in ("UPDATE", "UNDO") or entry.other_key is None:
        return entry
    successor = successors.get(entry.other_key)
    text = successor.new_text if successor else None  # of one that is not visible
    if entry.event == "UNDO":
        return replace(entry, old_text=text)
    sources = successor.source_message_ids if successor else entry.source_message_ids
    return replace(entry, new_text=text, source_message_ids=sources)


def _to_record(row: Any) -> MemoryRecord:
    return MemoryRecord.model_validate(row._asdict())


@cache
def _select_by_key(*, any_agent: bool, any_project: bool, with_sensitive: bool) -> Any:
    """Return the statement that every search ends with: building it costs as much as running it."""
    statement = select(memories).where(
        memories.c.user_id == bindparam("of_user"),
        memories.c.memory_key.in_(bindparam("keys", expanding=True)),
        memories.c.deleted_at.is_(None),
    )
    if not any_agent:
        statement = statement.where(memories.c.agent_id == bindparam("of_agent"))
    if not any_project:
        statement = statement.where(in_project(memories, bindparam("of_project")))
    return statement if with_sensitive else statement.where(memories.c.sensitive.is_(False))


def _is_valid(query: MemoryQuery) -> ColumnElement[bool]:
    """Return the condition that a memory is valid at the query's time, or now."""
    moment = query.as_of or datetime.now(UTC)
    within_validity = and_(
        or_(memories.c.valid_to.is_(None), memories.c.valid_to > moment),
        or_(memories.c.valid_from.is_(None), memories.c.valid_from <= moment),
    )
    if not query.expired:
        expires_at = memories.c.expires_at
        within_validity &= or_(expires_at.is_(None), expires_at > moment)
    if query.as_of is None:
        return within_validity
    was_known = func.coalesce(memories.c.valid_from, memories.c.created_at) <= moment
    return and_(within_validity, was_known)
