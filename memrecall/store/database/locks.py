"""Before rows are written: their agents, users and sessions exist, may be written to, are locked.

The user's row is the lock. Whoever holds it hands out that user's change numbers, so numbers
become visible in their order and a reader that asks for "after n" never misses one.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import Disabled, NotFound
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store.database.statements import insert_missing, next_moment, select_by_keys
from memrecall.store.database.tables import agents, sessions, users


@dataclass(slots=True)
class SessionCounter:
    """The last numbers a session gave out. One that has ended gives no more."""

    user_id: str
    session_id: str
    sequence_no: int
    create_time: datetime | None
    ended: bool

    def require_open(self) -> None:
        """Refuse a session that has ended."""
        if self.ended:
            raise Disabled(
                f"session {self.session_id!r} has ended",
                hint="Write to another session",
                user_id=self.user_id,
                session_id=self.session_id,
            )

    def next(self, now: datetime) -> tuple[int, datetime]:
        """The next sequence number and a create time that no message of the session has."""
        self.require_open()
        self.sequence_no += 1
        self.create_time = next_moment(now, self.create_time)
        return self.sequence_no, self.create_time


@dataclass(slots=True)
class Locks:
    """What a transaction has locked: users with their versions, sessions with their counters."""

    now: datetime
    versions: dict[str, int]
    counters: dict[tuple[str, str], SessionCounter]

    def next_change(self, user_id: str) -> int:
        """The user's next change number."""
        self.versions[user_id] += 1
        return self.versions[user_id]

    async def release(self, connection: AsyncConnection, *, active: bool = True) -> None:
        """Write the counters back; the locks go with the transaction."""
        activity = {"last_active_time": self.now} if active else {}
        await connection.execute(
            update(users).where(users.c.user_id == bindparam("of_user")),
            [
                {"of_user": user, "version": version, **activity}
                for user, version in self.versions.items()
            ],
        )
        if self.counters:
            await connection.execute(
                update(sessions).where(
                    sessions.c.user_id == bindparam("of_user"),
                    sessions.c.session_id == bindparam("of_session"),
                ),
                [
                    {
                        "of_user": user,
                        "of_session": session,
                        "last_sequence_no": counter.sequence_no,
                        "last_create_time": counter.create_time,
                        "update_time": self.now,
                    }
                    for (user, session), counter in self.counters.items()
                ],
            )

    async def renew(self, connection: AsyncConnection) -> None:
        """Rows went without a trace: what was derived from the users' rows begins anew."""
        for user in self.versions:
            fresh = update(users).where(users.c.user_id == user)
            await connection.execute(fresh.values(epoch=secrets.token_hex(8)))


def agent_of(scope: Scope) -> str:
    """The scope's agent, or the one called default."""
    return scope.agent_id or DEFAULT_NAME


def session_of(scope: Scope) -> str:
    """The scope's session, or the one called default."""
    return scope.session_id or DEFAULT_NAME


async def claim(
    connection: AsyncConnection, scopes: Iterable[Scope], now: datetime, *, with_sessions: bool
) -> Locks:
    """Make what is missing, lock it, and refuse what is disabled."""
    # In one order for everybody, or two writers could wait for each other.
    ordered = sorted(set(scopes), key=lambda s: (s.user_id, session_of(s), agent_of(s)))
    await claim_agents(connection, sorted({agent_of(scope) for scope in ordered}), now)
    versions = await _claim_users(connection, ordered, now)
    counters: dict[tuple[str, str], SessionCounter] = {}
    if with_sessions:
        counters = await _claim_sessions(connection, ordered, now)
    return Locks(now, versions, counters)


async def claim_known(connection: AsyncConnection, scope: Scope, now: datetime) -> Locks:
    """The same for one user who must be there already; only the agent may be new."""
    await claim_agents(connection, [agent_of(scope)], now)
    locked = await lock_users(connection, [scope.user_id])
    if scope.user_id not in locked:
        raise NotFound(f"there is no user {scope.user_id!r}", hint="Store a message first")
    state = locked[scope.user_id]
    require_enabled("user", scope.user_id, state.status)
    return Locks(now, {scope.user_id: state.version}, {})


async def claim_agents(connection: AsyncConnection, ids: list[str], now: datetime) -> None:
    """Make the agents that are missing and refuse those that are disabled."""
    fresh = [
        {"agent_id": name, "agent_name": name, "create_time": now, "update_time": now}
        for name in ids
    ]
    wanted = select(agents.c.agent_id, agents.c.status)
    rows = await select_by_keys(connection, wanted, [agents.c.agent_id], ids)
    if len(rows) < len(ids):  # seldom: looking first saves every later write a statement
        await insert_missing(connection, agents, fresh)
        rows = await select_by_keys(connection, wanted, [agents.c.agent_id], ids)
    for row in rows:
        require_enabled("agent", row["agent_id"], row["status"])


async def _claim_users(
    connection: AsyncConnection, scopes: list[Scope], now: datetime
) -> dict[str, int]:
    first = {scope.user_id: scope for scope in reversed(scopes)}
    fresh = [
        {
            "user_id": user,
            "agent_id": agent_of(scope),
            "epoch": secrets.token_hex(8),
            "create_time": now,
            "update_time": now,
        }
        for user, scope in sorted(first.items())
    ]
    locked = await lock_users(connection, first)
    while len(locked) < len(first):  # whoever is new, or was erased meanwhile
        await insert_missing(connection, users, fresh)
        locked = await lock_users(connection, first)
    for user, state in locked.items():
        require_enabled("user", user, state.status)
    return {user: state.version for user, state in locked.items()}


@dataclass(frozen=True, slots=True)
class UserState:
    """What a lock on a user's row has read."""

    version: int
    status: int


async def lock_users(connection: AsyncConnection, user_ids: Iterable[str]) -> dict[str, UserState]:
    """Lock those of the users that exist until the transaction ends."""
    wanted = select(users.c.user_id, users.c.status, users.c.version)
    locked = wanted.order_by(users.c.user_id).with_for_update()
    rows = await select_by_keys(connection, locked, [users.c.user_id], sorted(user_ids))
    return {row["user_id"]: UserState(row["version"], row["status"]) for row in rows}


async def _claim_sessions(
    connection: AsyncConnection, scopes: list[Scope], now: datetime
) -> dict[tuple[str, str], SessionCounter]:
    first = {(scope.user_id, session_of(scope)): scope for scope in reversed(scopes)}
    fresh = [
        {
            "user_id": user,
            "session_id": session,
            "agent_id": agent_of(scope),
            "create_time": now,
            "update_time": now,
        }
        for (user, session), scope in sorted(first.items())
    ]
    wanted = select(
        sessions.c.user_id,
        sessions.c.session_id,
        sessions.c.status,
        sessions.c.last_sequence_no,
        sessions.c.last_create_time,
    )
    keys = [sessions.c.user_id, sessions.c.session_id]
    rows = await select_by_keys(connection, wanted, keys, sorted(first))
    if len(rows) < len(first):
        await insert_missing(connection, sessions, fresh)
        rows = await select_by_keys(connection, wanted, keys, sorted(first))
    return {
        (row["user_id"], row["session_id"]): SessionCounter(
            row["user_id"],
            row["session_id"],
            row["last_sequence_no"],
            row["last_create_time"],
            ended=not row["status"],
        )
        for row in rows
    }


def require_enabled(kind: str, name: str, status: int) -> None:
    """Refuse a disabled agent or user by name."""
    if not status:
        hint = f"`memrecall {kind}s enable {name}`"
        raise Disabled(f"{kind} {name!r} is disabled", hint=hint, **{f"{kind}_id": name})
