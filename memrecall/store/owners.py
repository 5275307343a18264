"""Agents, users, sessions and projects: listed, disabled, ended, renamed and erased."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
    union_all,
    update,
)

from memrecall.errors import Conflict, NotFound, StorageFull
from memrecall.scope import SPACE_PREFIX, Scope
from memrecall.store.database.cursors import LARGEST_OWNER_LIST, LIST_SIZE, KeyedPage, require_limit
from memrecall.store.database.distribution import begin_distributed_changes
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_users
from memrecall.store.database.statements import new_epoch
from memrecall.store.database.tables import (
    MEMORY_TABLES,
    agents,
    audit_log,
    checkpoints,
    feedback,
    is_visible,
    knowledge,
    knowledge_bases,
    memories,
    messages,
    meta,
    revisions,
    sessions,
    summaries,
    tombstones,
    traces,
    users,
    vectors,
)
from memrecall.store.graph import TableTransaction, erase_session_rows
from memrecall.store.keys import withdraw_user
from memrecall.store.vectors import LEASE_NAME
from memrecall.types import check_time_zone

PURGE_SIZE = 500  # rows that a writer may have to wait for
_REPORTED = (vectors, messages, memories, traces)  # what others have is reported as derived
_LARGE_TABLES = (*_REPORTED, *MEMORY_TABLES, audit_log, tombstones)
OwnerPage = KeyedPage[dict[str, Any]]  # of agents, users or sessions by id
_LAST_CHARACTER = chr(0x10FFFF)  # sorts after everything that can follow in an id

_INTERNAL = ("last_create_time", "import_label")
_SELECT_SESSIONS = select(*(column for column in sessions.c if column.name not in _INTERNAL))
IS_USER = or_(users.c.user_id < SPACE_PREFIX, users.c.user_id > SPACE_PREFIX + _LAST_CHARACTER)
_SELECT_USERS = select(*(column for column in users.c if column.name not in ("epoch", "version")))


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """How many rows an erasure removed."""

    messages: int = 0
    memories: int = 0
    vectors: int = 0
    sessions: int = 0
    traces: int = 0
    keys: int = 0  # that were valid for the user
    derived: int = 0  # revisions, graph, summaries and checkpoints

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ProjectSummary:
    """A project with the counts of its rows and the time of the last one."""

    project: str
    sessions: int
    messages: int
    memories: int
    last_time: datetime


class Owners:
    """An operator's view of all agents, users, sessions and projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_agents(self, after: str = "", limit: int = LIST_SIZE) -> OwnerPage:
        """Return agents by id."""
        return await self._list(select(agents), agents.c.agent_id, after, limit)

    async def latest_users(self, limit: int) -> list[str]:
        """Return the users who wrote or recalled last."""
        active = select(users.c.user_id).where(users.c.last_active_time.is_not(None))
        latest = active.order_by(users.c.last_active_time.desc()).limit(limit)
        return [row.user_id for row in await self._database.fetch(latest)]

    async def pages(
        self, size: int, since: datetime | None = None, *, disabled: bool = True
    ) -> AsyncIterator[list[str]]:
        """Yield the ids of all users and spaces' owners, or of those active since a moment."""
        statement = select(users.c.user_id).order_by(users.c.user_id).limit(size)
        if since is not None:
            statement = statement.where(users.c.last_active_time >= since)
        if not disabled:
            statement = statement.where(users.c.status == 1)
        page = [""]
        while page:
            rows = await self._database.fetch(statement.where(users.c.user_id > page[-1]))
            if page := [row.user_id for row in rows]:
                yield page

    async def list_users(
        self, agent_id: str | None = None, after: str = "", limit: int = LIST_SIZE
    ) -> OwnerPage:
        """Return users by id: all, or the users of one agent."""
        statement = _SELECT_USERS.where(IS_USER)
        if agent_id is not None:
            statement = statement.where(users.c.agent_id == agent_id)
        return await self._list(statement, users.c.user_id, after, limit)

    async def find_users(self, prefix: str, limit: int = LIST_SIZE) -> list[str]:
        """Return the user ids that begin with a prefix, sorted."""
        # A range, not LIKE: both databases read it from the index, whatever the prefix contains.
        statement = select(users.c.user_id).where(
            IS_USER, users.c.user_id >= prefix, users.c.user_id <= prefix + _LAST_CHARACTER
        )
        rows = await self._database.fetch(statement.order_by(users.c.user_id).limit(limit))
        return [row.user_id for row in rows]

    async def list_sessions(
        self, user_id: str, after: str = "", limit: int = LIST_SIZE
    ) -> OwnerPage:
        """Return one user's sessions by id, with their numbers of messages."""
        statement = _SELECT_SESSIONS.where(sessions.c.user_id == user_id)
        return await self._list(statement, sessions.c.session_id, after, limit)

    async def get_session(
        self, user_id: str, session_id: str, *, agent_id: str | None = None
    ) -> dict[str, Any]:
        """Return one session; NotFound if the user has none, or it is another agent's."""
        key = (sessions.c.user_id == user_id, sessions.c.session_id == session_id)
        rows = await self._database.fetch(_SELECT_SESSIONS.where(*key))
        if not rows or agent_id not in (None, rows[0].agent_id):
            raise _not_found("session", session_id)
        return dict(rows[0]._mapping)

    async def list_projects(self, user_id: str) -> list[ProjectSummary]:
        """Return a user's projects, the latest first."""
        parts = [
            select(table.c.project, table.c.session_id, time.label("time"), literal(n).label("n"))
            .where(table.c.user_id == user_id, table.c.project.is_not(None))
            .where(is_visible(table))
            for n, table, time in (
                (0, memories, memories.c.created_at),
                (1, messages, messages.c.ts),
            )
        ]
        rows = union_all(*parts).subquery().c
        said, last = func.sum(rows.n), func.max(rows.time)
        counted = select(
            rows.project,
            func.count(rows.session_id.distinct()).label("sessions"),
            said.label("messages"),
            (func.count() - said).label("memories"),
            last.label("last_time"),
        )
        latest = counted.group_by(rows.project).order_by(last.desc(), rows.project)
        return [ProjectSummary(**row._mapping) for row in await self._database.fetch(latest)]

    async def rename_project(self, user_id: str, old: str, new: str) -> int:
        """Move the rows of a project to another name, as when its folder gets a remote.

        Return how many were moved. One read of an index tells that there are none.
        """
        Scope(user_id, project=new)  # checks both
        is_left = [
            exists().where(table.c.user_id == user_id, table.c.project == old)
            for table in (messages, memories)
        ]
        if old == new or not await self._database.fetch(select(literal(1)).where(or_(*is_left))):
            return 0

        def work(connection: Connection) -> int:
            lock_users(connection, [user_id])
            count = 0
            for table in (messages, memories, traces):
                moved = update(table).where(table.c.user_id == user_id, table.c.project == old)
                count += connection.execute(moved.values(project=new)).rowcount
            _renew_epoch(connection, user_id)  # indexes in memory have the old name
            return count

        return await self._database.transact(work)

    async def _list(
        self, statement: Select[Any], key: ColumnElement[str], after: str, limit: int
    ) -> OwnerPage:
        require_limit("limit", limit, LARGEST_OWNER_LIST)
        statement = statement.where(key > after).order_by(key).limit(limit + 1)
        rows = await self._database.fetch(statement)
        items = tuple(dict(row._mapping) for row in rows[:limit])
        return KeyedPage(items, items[-1][str(key.key)] if len(rows) > limit else None)

    async def set_agent_enabled(self, agent_id: str, enabled: bool) -> None:
        """Allow or forbid new writes and recalls of an agent."""
        await self._set(agents, {"agent_id": agent_id}, status=int(enabled))

    async def set_user_enabled(self, user_id: str, enabled: bool) -> None:
        """Allow or forbid new writes and recalls of a user."""
        await self._set(users, {"user_id": user_id}, status=int(enabled))

    async def set_time_zone(self, user_id: str, time_zone: str) -> None:
        """Set the time zone in which "yesterday" and days of a user are read."""
        check_time_zone(time_zone)
        await self._set(users, {"user_id": user_id}, time_zone=time_zone)

    async def end_session(self, user_id: str, session_id: str) -> None:
        """End a session: its messages stay, new ones are refused."""
        key = {"user_id": user_id, "session_id": session_id}
        await self._set(sessions, key, status=0, end_time=datetime.now(UTC))

    async def _set(self, table: Table, key: Mapping[str, str], **values: Any) -> None:
        matching = [table.c[name] == value for name, value in key.items()]
        statement = update(table).where(*matching)
        statement = statement.values(**values, update_time=datetime.now(UTC))
        result = await self._database.transact(lambda c: c.execute(statement))
        if not result.rowcount:
            parts = [f"{name.removesuffix('_id')} {value!r}" for name, value in key.items()]
            raise NotFound(
                f"there is no {' of '.join(reversed(parts))}", hint=f"`memrecall {table.name} list`"
            )

    async def erase_session(self, user_id: str, session_id: str) -> ErasureReport:
        """Remove a session, its messages and memories, and all traces, which may quote it."""
        erase = partial(_erase_session, user_id=user_id, session_id=session_id)
        async with self._database.erasing():
            return await self._database.transact(erase)

    async def erase_user(self, user_id: str, *, is_known: bool = False) -> ErasureReport:
        """Remove every row of a user, and the user from all keys.

        NotFound if there are none, unless the user `is_known` elsewhere. On a full disk that has
        no space for this as one transaction, rows are removed in parts.
        """
        counts: Counter[str] = Counter()
        if is_known and not await self._database.fetch(
            select(users.c.user_id).where(users.c.user_id == user_id)
        ):
            return ErasureReport()
        async with self._database.erasing():
            while True:
                try:
                    rest = await self._database.transact(partial(_erase_user, user_id=user_id))
                except StorageFull:
                    # Again if another process has written vectors in between.
                    part = await self._erase_in_parts(user_id)
                    if not part.total():
                        raise
                    counts += part
                else:
                    break
        return ErasureReport(**{name: n + counts[name] for name, n in asdict(rest).items()})

    async def _erase_in_parts(self, user_id: str) -> Counter[str]:
        """Remove most rows of a user, in transactions as large as the disk has space for."""
        counts: Counter[str] = Counter()
        size = PURGE_SIZE
        remaining = list(_LARGE_TABLES)
        while remaining:
            table = remaining[-1]
            try:
                count = await self._database.transact(
                    partial(_erase_part, table=table, user_id=user_id, size=size)
                )
            except StorageFull:
                if size == 1:
                    raise
                size = max(1, size // 4)
                continue
            counts[table.name if table in _REPORTED else "derived"] += count
            if count < size:
                remaining.pop()
        return counts

    async def erase_agent(self, agent_id: str) -> None:
        """Remove an agent that has no users or rows left, and its knowledge."""

        def work(connection: Connection) -> int:
            if self._database.is_distributed:
                begin_distributed_changes(connection)
            for table in (users, sessions, messages, memories, traces):
                statement = select(func.count()).select_from(table)
                if connection.scalar(statement.where(table.c.agent_id == agent_id)):
                    raise Conflict(
                        f"agent {agent_id!r} still has {table.name}", hint="Erase its users first"
                    )
            for table in (knowledge, knowledge_bases):
                connection.execute(delete(table).where(table.c.agent_id == agent_id))
            agent = delete(agents).where(agents.c.agent_id == agent_id)
            return connection.execute(agent).rowcount

        if not await self._database.transact(work):
            raise _not_found("agent", agent_id)

    async def purge_traces(self, before: datetime) -> int:
        """Remove the traces of all users made before a moment, and return how many."""
        count = 0
        async for page in self.pages(LIST_SIZE):
            for user_id in page:
                old = select(traces.c.trace_id).where(
                    traces.c.user_id == user_id, traces.c.created_at < before
                )
                # Selected without a lock: most users have no traces to remove.
                while rows := await self._database.fetch(old.limit(PURGE_SIZE)):
                    is_old = traces.c.trace_id.in_([row.trace_id for row in rows])
                    erase = partial(_erase_rows, table=traces, user_id=user_id, condition=is_old)
                    count += await self._database.transact(erase)
        if count:
            await self._database.remove_erased_bytes()
        return count


def _not_found(kind: str, name: str) -> NotFound:
    return NotFound(f"there is no {kind} {name!r}", hint=f"`memrecall {kind}s list`")


def _erase_user(connection: Connection, user_id: str) -> ErasureReport:
    """Remove every row of a user; what is derived from other rows goes before them."""
    locked = lock_users(connection, [user_id])
    keys = withdraw_user(connection, user_id)
    if not locked and not keys:
        raise _not_found("user", user_id)
    counts: Counter[str] = Counter(keys=keys)
    rows = (vectors, messages, memories, sessions, traces)
    for table in (*MEMORY_TABLES, audit_log, tombstones, *rows):
        name = table.name if table in rows else "derived"
        counts[name] += _erase_rows(connection, table, user_id)
    connection.execute(delete(users).where(users.c.user_id == user_id))
    # The note that a process embeds may name the user, whose rows waited for it.
    of_lease = meta.c.name == LEASE_NAME
    if user_id in (connection.scalar(select(meta.c.value).where(of_lease)) or ""):
        connection.execute(delete(meta).where(of_lease))
    return ErasureReport(**counts)


def _erase_session(connection: Connection, user_id: str, session_id: str) -> ErasureReport:
    if not lock_users(connection, [user_id]):
        raise _not_found("user", user_id)

    def erase(table: Table, condition: ColumnElement[bool] | None = None) -> int:
        return _erase_rows(connection, table, user_id, condition)

    # What is derived from the session's rows goes first: the rows say what that is.
    of_session = {"user_id": user_id, "session_id": session_id}
    message_ids = select(messages.c.message_id).filter_by(**of_session)
    memory_keys = select(memories.c.memory_key).filter_by(**of_session)
    target, key = audit_log.c.target, vectors.c.key
    derived = erase(audit_log, or_(target.in_(message_ids), target.in_(memory_keys)))
    predecessors = update(memories).where(
        memories.c.user_id == user_id, memories.c.superseded_by.in_(memory_keys)
    )
    connection.execute(predecessors.values(superseded_by=None, superseded_reason=None))
    is_named = revisions.c.memory_key.in_(memory_keys) | revisions.c.other_key.in_(memory_keys)
    derived += erase(revisions, is_named)
    derived += erase(summaries, summaries.c.session_id == session_id)
    derived += erase(checkpoints, checkpoints.c.session_id == session_id)
    derived += erase(feedback)  # any feedback of the user may quote the session, as any trace may
    derived += erase_session_rows(TableTransaction(connection, user_id), session_id)
    of_messages = and_(vectors.c.kind == "message", key.in_(message_ids))
    of_memories = and_(vectors.c.kind == "memory", key.in_(memory_keys))
    erased_vectors = erase(vectors, or_(of_messages, of_memories))
    counts = {
        table.name: erase(table, table.c.session_id == session_id)
        for table in (messages, memories, sessions, traces)
    }
    if not counts["sessions"] and not counts["traces"]:
        raise _not_found("session", session_id)
    counts["traces"] += erase(traces)
    _renew_epoch(connection, user_id)
    return ErasureReport(**counts, vectors=erased_vectors, derived=derived)


def _erase_part(connection: Connection, table: Table, user_id: str, size: int) -> int:
    key = tuple_(*table.primary_key)
    some = select(*table.primary_key).where(table.c.user_id == user_id).limit(size)
    count = _erase_rows(connection, table, user_id, key.in_(some))
    _renew_epoch(connection, user_id)
    return count


def _renew_epoch(connection: Connection, user_id: str) -> None:
    """Make indexes in memory drop rows that are gone or have other names."""
    statement = update(users).where(users.c.user_id == user_id)
    connection.execute(statement.values(epoch=new_epoch()))


def _erase_rows(
    connection: Connection,
    table: Table,
    user_id: str,
    condition: ColumnElement[bool] | None = None,
) -> int:
    statement = delete(table).where(table.c.user_id == user_id)
    if condition is not None:
        statement = statement.where(condition)
    return connection.execute(statement).rowcount
