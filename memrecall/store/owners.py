"""Agents, users and sessions: list them, disable or end them, erase them.

These are an operator's verbs. Erasing goes over one owner at a time.
"""

import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from sqlalchemy import ColumnElement, Delete, delete, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_users
from memrecall.store.database.memory_tables import (
    OF_USERS,
    aliases,
    checkpoints,
    entities,
    knowledge,
    knowledge_bases,
    relations,
    revisions,
    summaries,
)
from memrecall.store.database.tables import (
    agents,
    memories,
    messages,
    sessions,
    traces,
    users,
    vectors,
)
from memrecall.store.keys import withdraw_user
from memrecall.types import check_time_zone


async def erase_derived(connection: AsyncConnection, user_id: str, session_id: str | None) -> int:
    """Remove what was derived of a user, or of a session; how many rows. Before the rows go."""
    if session_id is None:
        return sum(
            [
                await _count(connection, delete(table).where(table.c.user_id == user_id))
                for table in OF_USERS
            ]
        )
    gone = await _erase_revisions(connection, user_id, session_id)
    for table in (summaries, checkpoints, relations):
        gone += await _count(
            connection,
            delete(table).where(table.c.user_id == user_id, table.c.session_id == session_id),
        )
    return gone + await _erase_names(connection, user_id, session_id)


async def _erase_revisions(connection: AsyncConnection, user_id: str, session_id: str) -> int:
    """Histories of the session's memories, and what others' histories tell of them."""
    of_session = select(memories.c.memory_key).where(
        memories.c.user_id == user_id, memories.c.session_id == session_id
    )
    silenced = update(memories).where(
        memories.c.user_id == user_id, memories.c.superseded_by.in_(of_session)
    )
    await connection.execute(silenced.values(superseded_by=None, superseded_reason=None))
    told = or_(revisions.c.memory_key.in_(of_session), revisions.c.other_key.in_(of_session))
    return await _count(connection, delete(revisions).where(revisions.c.user_id == user_id, told))


async def _erase_names(connection: AsyncConnection, user_id: str, session_id: str) -> int:
    """Names that were first said in the session, and entities that nothing relates to any more."""
    gone = await _count(
        connection,
        delete(aliases).where(
            aliases.c.user_id == user_id,
            aliases.c.session_id == session_id,
            ~_related(aliases.c.entity_id, user_id),
        ),
    )
    unnamed = ~exists().where(
        aliases.c.user_id == user_id, aliases.c.entity_id == entities.c.entity_id
    )
    return gone + await _count(
        connection, delete(entities).where(entities.c.user_id == user_id, unnamed)
    )


def _related(entity_id: Any, user_id: str) -> ColumnElement[bool]:
    ends = or_(relations.c.source_id == entity_id, relations.c.destination_id == entity_id)
    found = select(func.count()).select_from(relations)
    return found.where(relations.c.user_id == user_id, ends).scalar_subquery() > 0


async def _count(connection: AsyncConnection, statement: Delete) -> int:
    return (await connection.execute(statement)).rowcount


LIST_SIZE = 100
PURGE_SIZE = 500  # as many as a writer may have to wait for
_LAST_CHARACTER = chr(0x10FFFF)  # sorts after everything that an id may go on with

_SESSIONS = select(*(column for column in sessions.c if column.name != "last_create_time"))


@dataclass(frozen=True, slots=True)
class OwnerList:
    """Some rows of agents, users or sessions in the order of their ids, and where to go on."""

    items: tuple[dict[str, Any], ...]
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """How much an erasure removed."""

    messages: int = 0
    memories: int = 0
    vectors: int = 0
    sessions: int = 0
    traces: int = 0
    keys: int = 0  # that opened this user's data; they do no longer
    derived: int = 0  # revisions, graph, summaries and checkpoints

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


class Owners:
    """The operator's view of who there is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_agents(self, after: str = "", limit: int = LIST_SIZE) -> OwnerList:
        """Agents by id."""
        return await self._list(select(agents), agents.c.agent_id, after, limit)

    async def list_users(
        self, agent_id: str | None = None, after: str = "", limit: int = LIST_SIZE
    ) -> OwnerList:
        """Users by id, perhaps of one agent."""
        hidden = {"epoch", "version"}
        wanted = select(*(column for column in users.c if column.name not in hidden))
        if agent_id is not None:
            wanted = wanted.where(users.c.agent_id == agent_id)
        return await self._list(wanted, users.c.user_id, after, limit)

    async def find_users(self, prefix: str, limit: int = LIST_SIZE) -> list[str]:
        """The ids of users that begin so, in their order."""
        # A range and not LIKE: both databases read it from the index, whatever is in the prefix.
        wanted = select(users.c.user_id).where(
            users.c.user_id >= prefix, users.c.user_id <= prefix + _LAST_CHARACTER
        )
        rows = await self._database.fetch(wanted.order_by(users.c.user_id).limit(limit))
        return [row.user_id for row in rows]

    async def list_sessions(
        self,
        user_id: str,
        after: str = "",
        limit: int = LIST_SIZE,
        *,
        agent_id: str | None = None,
    ) -> OwnerList:
        """One user's sessions by id, each with its number of messages, perhaps of one agent."""
        wanted = _SESSIONS.where(sessions.c.user_id == user_id)
        if agent_id is not None:
            wanted = wanted.where(sessions.c.agent_id == agent_id)
        return await self._list(wanted, sessions.c.session_id, after, limit)

    async def get_session(
        self, user_id: str, session_id: str, *, agent_id: str | None = None
    ) -> dict[str, Any]:
        """One session; NotFound if the user has none of that id, or it is another agent's."""
        wanted = _SESSIONS.where(sessions.c.user_id == user_id, sessions.c.session_id == session_id)
        rows = await self._database.fetch(wanted)
        if not rows or agent_id not in (None, rows[0].agent_id):
            raise NotFound(f"there is no session {session_id!r}", hint="`memrecall sessions list`")
        return dict(rows[0]._mapping)

    async def _list(self, wanted: Any, key: Any, after: str, limit: int) -> OwnerList:
        if not 1 <= limit <= 10_000:
            raise InvalidArgument(f"limit {limit} is out of range", hint="Use 1 to 10000")
        async with self._database.autocommit() as connection:
            ordered = wanted.where(key > after).order_by(key).limit(limit + 1)
            rows = (await connection.execute(ordered)).mappings().all()
        items = tuple(dict(row) for row in rows[:limit])
        return OwnerList(items, items[-1][key.name] if len(rows) > limit else None)

    async def set_agent_enabled(self, agent_id: str, enabled: bool) -> None:
        """Allow or forbid new writes and recalls of an agent."""
        await self._set(agents, {"agent_id": agent_id}, status=int(enabled))

    async def set_user_enabled(self, user_id: str, enabled: bool) -> None:
        """Allow or forbid new writes and recalls of a user."""
        await self._set(users, {"user_id": user_id}, status=int(enabled))

    async def set_time_zone(self, user_id: str, time_zone: str) -> None:
        """Where the user lives: "yesterday" and days are read in that zone."""
        check_time_zone(time_zone)
        await self._set(users, {"user_id": user_id}, time_zone=time_zone)

    async def end_session(self, user_id: str, session_id: str) -> None:
        """Close a session: its messages stay, new ones are refused."""
        key = {"user_id": user_id, "session_id": session_id}
        await self._set(sessions, key, status=0, end_time=datetime.now(UTC))

    async def _set(self, table: Any, key: dict[str, str], **values: Any) -> None:
        where = [table.c[name] == value for name, value in key.items()]

        async def work(connection: AsyncConnection) -> int:
            stamped = update(table).where(*where).values(**values, update_time=datetime.now(UTC))
            return (await connection.execute(stamped)).rowcount

        if not await self._database.transact(work):
            kinds = reversed([f"{name.removesuffix('_id')} {key[name]!r}" for name in key])
            named = " of ".join(kinds)
            raise NotFound(f"there is no {named}", hint=f"`memrecall {table.name} list`")

    async def erase_session(self, user_id: str, session_id: str) -> ErasureReport:
        """Remove a session with its messages and memories, and the traces, which may quote it."""
        return await self._erase(user_id, session_id)

    async def erase_user(self, user_id: str) -> ErasureReport:
        """Remove every row of a user, and the user from all keys."""
        return await self._erase(user_id, None)

    async def erase_agent(self, agent_id: str) -> None:
        """Remove an agent that has no users or rows left, and what it knows."""

        async def work(connection: AsyncConnection) -> int:
            for table in (users, sessions, messages, memories, traces):
                wanted = select(func.count()).select_from(table).where(table.c.agent_id == agent_id)
                if await connection.scalar(wanted):
                    raise Conflict(
                        f"agent {agent_id!r} still has {table.name}", hint="Erase its users first"
                    )
            for table in (knowledge, knowledge_bases):
                await connection.execute(delete(table).where(table.c.agent_id == agent_id))
            gone = await connection.execute(delete(agents).where(agents.c.agent_id == agent_id))
            return gone.rowcount

        if not await self._database.transact(work):
            raise NotFound(f"there is no agent {agent_id!r}", hint="`memrecall agents list`")

    async def purge_traces(self, before: datetime) -> int:
        """Remove the traces made before a moment, owner by owner; how many there were."""
        gone = 0
        after: str | None = ""
        while after is not None:
            page = await self._list(select(users.c.user_id), users.c.user_id, after, LIST_SIZE)
            for user in page.items:
                gone += await self._purge_traces(user["user_id"], before)
            after = page.next_after
        await self._database.truncate_log()
        return gone

    async def _purge_traces(self, user_id: str, before: datetime) -> int:
        of_user = traces.c.user_id == user_id
        old = select(traces.c.trace_id).where(of_user, traces.c.created_at < before)
        gone = 0
        # Looked for without a lock: most owners have none to remove.
        while found := await self._database.fetch(old.limit(PURGE_SIZE)):
            some = [row.trace_id for row in found]
            statement = delete(traces).where(of_user, traces.c.trace_id.in_(some))
            gone += await self._database.transact(partial(_count_gone, statement))
        return gone

    async def _erase(self, user_id: str, session_id: str | None) -> ErasureReport:
        erased = await self._database.transact(lambda c: _erase(c, user_id, session_id))
        await self._database.truncate_log()
        return erased


async def _erase(
    connection: AsyncConnection, user_id: str, session_id: str | None
) -> ErasureReport:
    known = await lock_users(connection, [user_id])
    keys = await withdraw_user(connection, user_id) if session_id is None else 0
    if not known and not keys:
        raise NotFound(f"there is no user {user_id!r}", hint="`memrecall users list`")
    gone = {
        "keys": keys,
        "derived": await erase_derived(connection, user_id, session_id),
        "vectors": await _erase_vectors(connection, user_id, session_id),
        "messages": await _erase_from(connection, messages, user_id, session_id),
        "memories": await _erase_from(connection, memories, user_id, session_id),
        "sessions": await _erase_from(connection, sessions, user_id, session_id),
    }
    labelled = await _erase_from(connection, traces, user_id, session_id)
    # Any other trace may quote what was said in the session: they go too.
    gone["traces"] = labelled + await _erase_from(connection, traces, user_id, None)
    if session_id is None:
        await connection.execute(delete(users).where(users.c.user_id == user_id))
    elif not gone["sessions"] and not labelled:
        raise NotFound(f"there is no session {session_id!r}", hint="`memrecall sessions list`")
    else:
        fresh = update(users).where(users.c.user_id == user_id)
        await connection.execute(fresh.values(epoch=secrets.token_hex(8)))
    return ErasureReport(**gone)


async def _count_gone(statement: Delete, connection: AsyncConnection) -> int:
    return (await connection.execute(statement)).rowcount


async def _erase_from(
    connection: AsyncConnection, table: Any, user_id: str, session_id: str | None
) -> int:
    statement = delete(table).where(table.c.user_id == user_id)
    if session_id is not None:
        statement = statement.where(table.c.session_id == session_id)
    return await _count_gone(statement, connection)


async def _erase_vectors(connection: AsyncConnection, user_id: str, session_id: str | None) -> int:
    if session_id is None:
        return await _erase_from(connection, vectors, user_id, None)
    gone = 0
    kinds: tuple[tuple[Literal["message", "memory"], Any, Any], ...] = (
        ("message", messages, messages.c.message_id),
        ("memory", memories, memories.c.memory_key),
    )
    for kind, table, key in kinds:
        of_session = select(key).where(table.c.user_id == user_id, table.c.session_id == session_id)
        statement = delete(vectors).where(
            vectors.c.user_id == user_id, vectors.c.kind == kind, vectors.c.key.in_(of_session)
        )
        gone += (await connection.execute(statement)).rowcount
    return gone
