"""The locks of a write: its agents, users and sessions exist, are enabled and are locked.

The user's row is the lock. Whoever holds it takes that user's change numbers, so numbers become
visible in their order and a reader that asks for "after n" never misses one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, func, or_, select, update

from memrecall.errors import Disabled, Forbidden, NotFound
from memrecall.scope import DEFAULT_NAME, Scope, SpaceRole, space_not_found, space_of
from memrecall.store.database.memberships import require_member
from memrecall.store.database.statements import (
    execute_prepared,
    fetch_rows,
    insert_missing,
    new_epoch,
    split,
)
from memrecall.store.database.tables import agents, knowledge_bases, messages, meta, sessions, users

_MICROSECOND = timedelta(microseconds=1)

# Every write executes most of these: built once, because building costs as much as running.
_KEYS: Any = bindparam("keys", expanding=True)
_SESSIONS_PER_STATEMENT = 64  # and users: every pair of both is looked for
_AGENTS = select(agents.c.agent_id, agents.c.status).where(agents.c.agent_id.in_(_KEYS))
_USERS = (
    select(users.c.user_id, users.c.status, users.c.version)
    .where(users.c.user_id.in_(_KEYS))
    .order_by(users.c.user_id)
)
_LOCK_USERS = {wait: _USERS.with_for_update(nowait=not wait) for wait in (True, False)}
_SESSIONS = select(
    sessions.c.user_id,
    sessions.c.session_id,
    sessions.c.status,
    sessions.c.last_sequence_no.label("sequence_no"),
    sessions.c.last_create_time.label("create_time"),
).where(
    sessions.c.user_id.in_(bindparam("of_users", expanding=True)), sessions.c.session_id.in_(_KEYS)
)
_SAVE_USER = update(users).where(users.c.user_id == bindparam("of_user"))
_SAVE_SESSION = update(sessions).where(
    sessions.c.user_id == bindparam("of_user"), sessions.c.session_id == bindparam("of_session")
)

MARK_NAME = "embedded_until"  # the row of `meta`


@dataclass(slots=True)
class SessionCounter:
    """The last numbers that a session gave its messages."""

    user_id: str
    session_id: str
    status: int
    sequence_no: int
    create_time: datetime | None

    def require_open(self) -> None:
        """Raise Disabled if the session has ended."""
        if not self.status:
            raise Disabled(
                f"session {self.session_id!r} has ended",
                hint="Write to another session",
                user_id=self.user_id,
                session_id=self.session_id,
            )

    def next(self, now: datetime) -> tuple[int, datetime]:
        """Return the next sequence number and a create time that is unique in the session."""
        self.require_open()
        self.sequence_no += 1
        last = self.create_time
        self.create_time = now if last is None or now > last else last + _MICROSECOND
        return self.sequence_no, self.create_time


@dataclass(slots=True)
class Locks:
    """The rows that a transaction has locked, with the counters that it advances."""

    now: datetime
    versions: dict[str, int]  # by user
    sessions: dict[tuple[str, str], SessionCounter]  # by user and session
    roles: dict[tuple[str, str | None], SpaceRole] = field(default_factory=dict)  # of members

    def is_own(self, scope: Scope, author: str | None) -> bool:
        """Return True unless a row of a space was written by another member."""
        return scope.author is None or author == scope.author

    def is_admin(self, scope: Scope) -> bool:
        """Return True for an admin of a space."""
        return self.roles.get((scope.user_id, scope.member)) is SpaceRole.ADMIN

    def require_own(self, scope: Scope, author: str | None) -> None:
        """Raise Forbidden for another member's row; only admins change those."""
        if not self.is_admin(scope) and not self.is_own(scope, author):
            raise Forbidden(
                "another member wrote this, and contributors change only their own",
                hint="Ask an admin of the space",
                reason="other_author",
            )

    def next_change(self, user_id: str) -> int:
        """Return the user's next change number."""
        self.versions[user_id] += 1
        return self.versions[user_id]

    def open_session(self, connection: Connection, scope: Scope) -> SessionCounter:
        """Return the counter of the scope's session, which is created if it is missing."""
        key = (scope.user_id, session_of(scope))
        if key not in self.sessions:
            self.sessions |= _open_sessions(connection, [scope], self.now)
        return self.sessions[key]

    def save(self, connection: Connection, *, is_activity: bool = True) -> None:
        """Write the counters back; the locks end with the transaction."""
        activity = {"last_active_time": self.now} if is_activity else {}
        counted = [
            {"of_user": user, "version": version, **activity}
            for user, version in self.versions.items()
        ]
        execute_prepared(connection, _SAVE_USER, counted)
        if self.sessions:
            counters = [
                {
                    "of_user": user,
                    "of_session": session,
                    "last_sequence_no": counter.sequence_no,
                    "last_create_time": counter.create_time,
                    "update_time": self.now,
                }
                for (user, session), counter in self.sessions.items()
            ]
            execute_prepared(connection, _SAVE_SESSION, counters)


def agent_of(scope: Scope) -> str:
    """Return the scope's agent, or the one called default."""
    return scope.agent_id or DEFAULT_NAME


def session_of(scope: Scope) -> str:
    """Return the scope's session, or the one called default."""
    return scope.session_id or DEFAULT_NAME


def lock_scopes(
    connection: Connection, scopes: Iterable[Scope], *, with_sessions: bool, wait: bool = True
) -> Locks:
    """Lock the users of scopes; create what is missing and refuse what is disabled.

    Without `wait`, StorageBusy if another transaction has locked one of the users.
    """
    now = datetime.now(UTC)
    # In one order for all writers, or two of them could wait for each other.
    ordered = sorted(set(scopes), key=lambda s: (s.user_id, session_of(s), agent_of(s)))
    ensure_agents(connection, sorted({agent_of(scope) for scope in ordered}), now)
    first_scopes = {scope.user_id: scope for scope in reversed(ordered)}
    locked = lock_users(connection, first_scopes, wait=wait)
    while len(locked) < len(first_scopes):  # some are new, or were just erased
        if any(space_of(user) is not None for user in first_scopes.keys() - locked.keys()):
            raise space_not_found()
        stamps = {"create_time": now, "update_time": now}
        new = [
            {"user_id": user, "agent_id": agent_of(scope), "epoch": new_epoch(), **stamps}
            for user, scope in sorted(first_scopes.items())
        ]
        insert_missing(connection, users, new)
        locked = lock_users(connection, first_scopes)
    for user, row in locked.items():
        require_enabled("user", user, row.status)
    versions = {user: row.version for user, row in locked.items()}
    roles = _require_members(connection, ordered)
    counters = _open_sessions(connection, ordered, now) if with_sessions else {}
    return Locks(now, versions, counters, roles)


def _require_members(
    connection: Connection, scopes: Iterable[Scope], least: SpaceRole = SpaceRole.CONTRIBUTOR
) -> dict[tuple[str, str | None], SpaceRole]:
    """Return the roles of the members who write to spaces; the spaces must be locked."""
    writers = {(s.user_id, s.member): s for s in scopes if s.space is not None}
    return {key: require_member(connection, s, least) for key, s in writers.items()}


def lock_existing_user(
    connection: Connection, scope: Scope, least: SpaceRole = SpaceRole.CONTRIBUTOR
) -> Locks:
    """Lock the scope's user; NotFound if there is none. A missing agent is created.

    In a space, Forbidden if the role of its member is below `least`.
    """
    now = datetime.now(UTC)
    ensure_agents(connection, [agent_of(scope)], now)
    locked = lock_users(connection, [scope.user_id])
    if scope.user_id not in locked:
        if scope.space is not None:
            raise space_not_found()
        raise NotFound(f"there is no user {scope.user_id!r}", hint="Store a message first")
    user = locked[scope.user_id]
    require_enabled("user", scope.user_id, user.status)
    roles = _require_members(connection, [scope], least)
    return Locks(now, {scope.user_id: user.version}, {}, roles)


def lock_knowledge(connection: Connection, agent_id: str, *, if_enabled: bool = True) -> int:
    """Lock an agent's knowledge and return the number of its last change."""
    ensure_agents(connection, [agent_id], datetime.now(UTC), if_enabled=if_enabled)
    locking = select(knowledge_bases.c.version).where(knowledge_bases.c.agent_id == agent_id)
    locking = locking.with_for_update()
    version = connection.scalar(locking)
    if version is None:
        row = {"agent_id": agent_id, "version": 0, "epoch": new_epoch()}
        insert_missing(connection, knowledge_bases, [row])
        version = connection.scalar(locking)
    return int(version or 0)


def ensure_agents(
    connection: Connection, ids: list[str], now: datetime, *, if_enabled: bool = True
) -> None:
    """Create the agents that are missing and refuse those that are disabled."""
    rows = _fetch_by_keys(connection, _AGENTS, ids)
    if len(rows) < len(ids):  # rare: reading first saves every later write a statement
        stamps = {"create_time": now, "update_time": now}
        new = [{"agent_id": name, "agent_name": name, **stamps} for name in ids]
        insert_missing(connection, agents, new)
        rows = _fetch_by_keys(connection, _AGENTS, ids)
    if if_enabled:
        for row in rows:
            require_enabled("agent", row.agent_id, row.status)


def _fetch_by_keys(
    connection: Connection, statement: Select[Any], keys: Sequence[str]
) -> list[Any]:
    return [
        row
        for batch in split(keys)
        for row in fetch_rows(connection, statement, {"keys": list(batch)})
    ]


def lock_users(
    connection: Connection, user_ids: Iterable[str], *, wait: bool = True
) -> dict[str, Any]:
    """Lock the users that exist until the transaction ends; return their version and status."""
    rows = _fetch_by_keys(connection, _LOCK_USERS[wait], sorted(user_ids))
    return {row.user_id: row for row in rows}


def _open_sessions(
    connection: Connection, scopes: list[Scope], now: datetime
) -> dict[tuple[str, str], SessionCounter]:
    first_scopes = {(scope.user_id, session_of(scope)): scope for scope in reversed(scopes)}
    counters = _fetch_sessions(connection, sorted(first_scopes))
    if len(counters) < len(first_scopes):
        stamps = {"create_time": now, "update_time": now}
        new = [
            {"user_id": user, "session_id": session, "agent_id": agent_of(scope), **stamps}
            for (user, session), scope in sorted(first_scopes.items())
        ]
        insert_missing(connection, sessions, new)
        counters = _fetch_sessions(connection, sorted(first_scopes))
    return counters


def _fetch_sessions(
    connection: Connection, keys: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], SessionCounter]:
    counters: dict[tuple[str, str], SessionCounter] = {}
    for batch in split(keys, _SESSIONS_PER_STATEMENT):
        parameters = {
            "of_users": sorted({user for user, _ in batch}),
            "keys": sorted({session for _, session in batch}),
        }
        for row in fetch_rows(connection, _SESSIONS, parameters):
            counters[row.user_id, row.session_id] = SessionCounter(**row._asdict())
    # The statement returns each of these sessions that any of the users has.
    return {key: counters[key] for key in keys if key in counters}


def count_messages_again(connection: Connection, user_id: str | None = None) -> None:
    """Raise the counters of sessions, of one user or of all, to their last message."""
    key = (messages.c.user_id, messages.c.session_id)
    number = func.max(messages.c.sequence_no).label("number")
    latest = select(*key, number, func.max(messages.c.create_time).label("time")).group_by(*key)
    if user_id is not None:
        latest = latest.where(messages.c.user_id == user_id)
    stored = latest.subquery()
    in_session = [
        sessions.c.user_id == stored.c.user_id,
        sessions.c.session_id == stored.c.session_id,
    ]
    if user_id is not None:  # so that a distributed database asks one node
        in_session.append(sessions.c.user_id == user_id)
    for counter, last in (
        (sessions.c.last_sequence_no, stored.c.number),
        (sessions.c.last_create_time, stored.c.time),
    ):
        behind = update(sessions).where(*in_session, or_(counter.is_(None), counter < last))
        connection.execute(behind.values({counter: last}))


def require_enabled(kind: str, name: str, status: int) -> None:
    """Raise Disabled for a disabled agent or user."""
    if not status:
        hint = f"`memrecall {kind}s enable {name}`"
        raise Disabled(f"{kind} {name!r} is disabled", hint=hint, **{f"{kind}_id": name})


def forget_mark(connection: Connection) -> None:
    """Delete the mark: users who were not active may have rows without vectors, too."""
    connection.execute(delete(meta).where(meta.c.name == MARK_NAME))
