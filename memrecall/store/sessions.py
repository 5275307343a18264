"""Sessions by time, and the state of one: summaries in levels, checkpoints of its memory."""

import json
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    and_,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from memrecall.errors import Conflict, InvalidArgument
from memrecall.scope import Scope
from memrecall.store.database.cursors import (
    LARGEST_PAGE,
    StoredPage,
    come_after,
    make_page,
    open_cursor,
    require_limit,
)
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, lock_existing_user, session_of
from memrecall.store.database.memberships import show_writers
from memrecall.store.database.statements import (
    STRINGS_PER_CONDITION,
    Reads,
    filter_scope,
    in_project,
    mentions,
    split,
)
from memrecall.store.database.tables import (
    PASSAGE,
    checkpoints,
    has_expired,
    is_hidden,
    is_visible,
    memories,
    messages,
    sessions,
    summaries,
    tombstones,
)
from memrecall.store.timeline import select_messages, to_message
from memrecall.types import DIGESTS, Message, Role, check_json, parse_stored_time

TURNS, CHUNKS, SESSION = 0, 1, 2  # the levels of summaries
WITHDRAWN_BY = ""  # has made a summary that waits to be made again
NOTHING = "nothing"  # has made the summary of messages that are all hidden or forgotten
STATE_BYTES = 4 * 1024 * 1024
CHECKPOINTS_KEPT = 3
JOB_PREFIX = "job_"  # of the sessions that the states of background jobs are saved as
_OPENING_LENGTH = 200  # characters of a first message


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A summary of the messages numbered from `first_sequence_no` to `last_sequence_no`."""

    level: int
    number: int
    first_sequence_no: int
    last_sequence_no: int
    text: str
    made_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved state of a session."""

    number: int
    state: dict[str, Any]
    created_at: datetime


_SPAN = (summaries.c.first_sequence_no, summaries.c.last_sequence_no)
# A summary that was made before a message of it expired is read as withdrawn.
_IS_STALE = (
    select(messages.c.message_id)
    .where(
        messages.c.user_id == summaries.c.user_id,
        messages.c.session_id == summaries.c.session_id,
        messages.c.sequence_no.between(*_SPAN),
        has_expired(messages),
        messages.c.expires_at > summaries.c.created_at,
    )
    .correlate(summaries)
    .exists()
)
_MADE_BY = case((_IS_STALE, WITHDRAWN_BY), else_=summaries.c.made_by)
_READ_AS = {"made_by": _MADE_BY, "text": case((_IS_STALE, ""), else_=summaries.c.text)}
_SUMMARY = [_READ_AS.get(n, summaries.c[n]).label(n) for n in StoredSummary.__slots__]
_IS_JOB = checkpoints.c.session_id.startswith(JOB_PREFIX, autoescape=True)
_CHECKPOINT = [checkpoints.c[name] for name in Checkpoint.__slots__]


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session in a list: who and when, how many messages, and how the user opened it."""

    session_id: str
    session_name: str | None
    agent_id: str
    status: int
    last_time: datetime  # of its last message; of its creation if it has none
    messages: int
    opening: str | None  # the beginning of the user's first message


class SessionList:
    """The sessions of a scope's user."""

    def __init__(self, database: Database, scope: Scope, secret: bytes) -> None:
        self._database = database
        self._scope = scope
        self._secret = secret

    async def page(self, limit: int, cursor: str | None = None) -> StoredPage[StoredSession]:
        """Return a page of sessions, the one with the latest message first."""
        require_limit("limit", limit, LARGEST_PAGE)
        binding = ["sessions", *self._scope.reader()]
        # One seek of the index for each session: grouping would read all of the user's messages.
        latest = self._select_messages(messages.c.ts, sessions).order_by(
            messages.c.ts.desc(), messages.c.sequence_no.desc()
        )
        last_time = func.coalesce(latest.limit(1).scalar_subquery(), sessions.c.create_time)
        listed: Select[Any] = select(
            sessions.c.session_id,
            sessions.c.session_name,
            sessions.c.agent_id,
            sessions.c.status,
            last_time.label("last_time"),
        )
        listed = filter_scope(listed, sessions, self._scope)
        if self._scope.read_project is not None:
            listed = listed.where(self._select_messages(messages.c.ts, sessions).exists())
        by_time = listed.subquery()
        order = (by_time.c.last_time, by_time.c.session_id)
        statement = select(by_time)
        if cursor is not None:
            time, session_id = open_cursor(self._secret, binding, cursor)
            statement = statement.where(come_after(*order, parse_stored_time(time), session_id))
        page = statement.order_by(order[0].desc(), order[1]).limit(limit + 1).subquery()
        count = self._select_messages(func.count(), page).scalar_subquery()
        text = func.substr(messages.c.content, 1, _OPENING_LENGTH)
        of_user = self._select_messages(text, page).where(messages.c.role == Role.USER.value)
        first = of_user.order_by(messages.c.ts, messages.c.sequence_no).limit(1).scalar_subquery()
        columns = (*page.c, count.label("messages"), first.label("opening"))
        rows = await self._database.fetch(
            select(*columns).order_by(page.c.last_time.desc(), page.c.session_id)
        )
        items = [StoredSession(**row._mapping) for row in rows]
        return make_page(items, limit, self._secret, binding, attrgetter("last_time", "session_id"))

    def _select_messages(self, column: Any, outer: FromClause) -> Select[Any]:
        of_session = select(column).select_from(messages).correlate(outer)
        of_session = of_session.where(
            messages.c.session_id == outer.c.session_id, is_visible(messages)
        )
        # The messages of all agents count.
        return filter_scope(of_session, messages, replace(self._scope, agent_id=None))


class SessionState:
    """The summaries and checkpoints of a scope's session."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope
        self._key = {
            "user_id": scope.user_id,
            "agent_id": agent_of(scope),
            "session_id": session_of(scope),
        }

    async def summaries(self) -> list[StoredSummary]:
        """Return all summaries that have a text, by level and number."""
        return await self._summaries(_MADE_BY.not_in((WITHDRAWN_BY, NOTHING)))

    async def last_summaries(self, level: int, count: int) -> list[StoredSummary]:
        """Return the last summaries of a level, oldest first."""
        return await self._summaries(summaries.c.level == level, latest=count)

    async def withdrawn_summaries(self, level: int, count: int) -> list[StoredSummary]:
        """Return the last summaries of a level that wait to be made again, oldest first."""
        is_withdrawn = _MADE_BY == WITHDRAWN_BY
        return await self._summaries(summaries.c.level == level, is_withdrawn, latest=count)

    async def summaries_between(
        self, level: int, first: int, last: int | None = None
    ) -> list[StoredSummary]:
        """Return the summaries of a level that begin in a span of messages, oldest first."""
        begins = summaries.c.first_sequence_no
        in_span = begins >= first if last is None else begins.between(first, last)
        return await self._summaries(summaries.c.level == level, in_span)

    async def _summaries(self, *conditions: Any, latest: int | None = None) -> list[StoredSummary]:
        statement = select(*_SUMMARY).where(*self._match(summaries), *conditions)
        # Summaries of the session build on each other: the next one continues the last that stays.
        statement = statement.where(or_(summaries.c.level != SESSION, ~_IS_STALE))
        if self._scope.read_project is not None:
            number = messages.c.sequence_no
            elsewhere = self._select_elsewhere().where(number.between(*_SPAN))
            statement = statement.where(~elsewhere.correlate(summaries).exists())
        order = (summaries.c.level, summaries.c.number)
        if latest is not None:
            last_first = statement.order_by(*(column.desc() for column in order)).limit(latest)
            rows = list(reversed(await self._database.fetch(last_first)))
        else:
            rows = list(await self._database.fetch(statement.order_by(*order)))
        return [StoredSummary(**row._mapping) for row in rows]

    async def add_summaries(self, new: list[StoredSummary]) -> None:
        """Store summaries, in place of stored ones of the same level and number."""

        def work(connection: Connection) -> None:
            locks = lock_existing_user(connection, self._scope)
            for summary in new:
                same = (summaries.c.level == summary.level, summaries.c.number == summary.number)
                if summary.level == SESSION:  # none that includes more than this one is left
                    same = (same[0], summaries.c.number >= summary.number)
                connection.execute(delete(summaries).where(*self._match(summaries), *same))
                connection.execute(insert(summaries), {**self._key, **asdict(summary)})
            locks.save(connection)

        if new:
            await self._database.transact(work)

    async def messages_between(self, first: int, last: int) -> list[Message]:
        """Return the session's messages of a span, oldest first."""
        in_span = messages.c.sequence_no.between(first, last)
        statement = self._select_messages().where(in_span).order_by(messages.c.sequence_no)
        return await self._read_messages(statement)

    async def without_forgotten(self, items: Sequence[Message]) -> list[Message]:
        """Return messages without those that a hidden or purged memory came from."""
        ids = [message.message_id for message in items]
        if not ids:
            return []
        forgotten: set[str] = set()
        for batch in split(ids, STRINGS_PER_CONDITION):
            of_deleted = select(memories.c.source_message_ids).where(
                memories.c.user_id == self._key["user_id"],
                is_hidden(memories),
                memories.c.memory_type.not_in(DIGESTS),
                mentions(memories.c.source_message_ids, batch),
            )
            rows = await self._database.fetch(of_deleted)
            forgotten |= {name for row in rows for name in row.source_message_ids}
        of_purged = select(tombstones.c.key).where(
            tombstones.c.user_id == self._key["user_id"],
            tombstones.c.kind == PASSAGE,
            tombstones.c.key.in_(ids),
        )
        forgotten |= {row.key for row in await self._database.fetch(of_purged)}
        return [message for message in items if message.message_id not in forgotten]

    async def hidden_among(self, message_ids: Sequence[str]) -> frozenset[str]:
        """Return which of some messages are hidden."""
        return await self._among(message_ids, is_hidden(messages))

    async def erased_among(self, message_ids: Sequence[str]) -> frozenset[str]:
        """Return which of some messages are not stored any more."""
        return frozenset(message_ids) - await self._among(message_ids)

    async def _among(
        self, message_ids: Sequence[str], *conditions: ColumnElement[bool]
    ) -> frozenset[str]:
        """Return which of some messages are stored and meet the conditions."""
        of_user = messages.c.user_id == self._key["user_id"]
        statement = select(messages.c.message_id).where(of_user, *conditions)
        found: set[str] = set()
        for batch in split(message_ids):
            rows = await self._database.fetch(statement.where(messages.c.message_id.in_(batch)))
            found |= {row.message_id for row in rows}
        return frozenset(found)

    async def messages_after(self, sequence_no: int, limit: int) -> list[Message]:
        """Return the session's messages numbered above `sequence_no`, oldest first."""
        statement = self._select_messages().where(messages.c.sequence_no > sequence_no)
        return await self._read_messages(statement.order_by(messages.c.sequence_no).limit(limit))

    async def last_messages(self, limit: int, *, before: int | None = None) -> list[Message]:
        """Return the session's last messages, oldest first; `before` is a sequence number."""
        latest_first = self._select_messages().order_by(messages.c.sequence_no.desc())
        if before is not None:
            latest_first = latest_first.where(messages.c.sequence_no < before)
        return (await self._read_messages(latest_first.limit(limit)))[::-1]

    async def _read_messages(self, statement: Select[Any]) -> list[Message]:
        def read(reads: Reads) -> list[Message]:
            rows = [to_message(row) for row in reads.fetch(statement)]
            return show_writers(reads, self._scope, rows)

        return await self._database.read_together(read)

    def _select_elsewhere(self) -> Select[Any]:
        """Return the query for the session's messages of other projects than the scope's."""
        return select(messages.c.message_id).where(
            messages.c.user_id == self._key["user_id"],
            messages.c.session_id == self._key["session_id"],
            ~in_project(messages, self._scope.read_project),
        )

    def _select_messages(self) -> Select[Any]:
        in_session = messages.c.session_id == self._key["session_id"]
        return select_messages(self._scope).where(in_session)

    async def save(self, state: dict[str, Any], *, after: int | None = None) -> Checkpoint:
        """Store a state and drop all but the latest few.

        With `after`, Conflict if a state with a higher number is stored.
        """
        check_json("the state", state)
        size = len(json.dumps(state))
        if size > STATE_BYTES:
            raise InvalidArgument(
                f"the state has {size} bytes of JSON", hint=f"Reduce it to {STATE_BYTES}"
            )
        state = self._database.privacy.protect({"state": state}).get("state", state)

        def work(connection: Connection) -> Checkpoint:
            locks = lock_existing_user(connection, self._scope)
            last = self._last_number(connection)
            if after is not None and last > after:
                raise Conflict(
                    f"a later state of {self._key['session_id']!r} is stored",
                    hint="Read it before you store another",
                    reason="later_state",
                )
            number = max(last, after or 0) + 1
            checkpoint = Checkpoint(number, state, locks.now)
            connection.execute(insert(checkpoints), {**self._key, **asdict(checkpoint)})
            is_old = checkpoints.c.number <= number - CHECKPOINTS_KEPT
            connection.execute(delete(checkpoints).where(*self._match(checkpoints), is_old))
            locks.save(connection)
            return checkpoint

        return await self._database.transact(work)

    async def renew(self, number: int) -> bool:
        """Make the state of a number as old as this moment; False if a later one is stored."""

        def work(connection: Connection) -> bool:
            if self._last_number(connection) > number:
                return False
            same = (*self._match(checkpoints), checkpoints.c.number == number)
            values = {"created_at": datetime.now(UTC)}
            connection.execute(update(checkpoints).where(*same).values(values))
            return True

        return await self._database.transact(work)

    def _last_number(self, connection: Connection) -> int:
        last = select(func.max(checkpoints.c.number)).where(*self._match(checkpoints))
        return int(connection.scalar(last) or 0)

    async def latest(self) -> Checkpoint | None:
        """Return the latest state."""
        statement = select(*_CHECKPOINT).where(*self._match(checkpoints))
        if self._scope.read_project is not None:
            statement = statement.where(~self._select_elsewhere().exists())
        last = statement.order_by(checkpoints.c.number.desc()).limit(1)
        rows = await self._database.fetch(last)
        return Checkpoint(**rows[0]._mapping) if rows else None

    async def jobs(self) -> list[tuple[str, Checkpoint]]:
        """Return the ids and latest states of the user's jobs, the latest first."""
        of_user = select(checkpoints.c.session_id, *_CHECKPOINT).where(
            is_job_of(self._scope.user_id)
        )
        latest: dict[str, Checkpoint] = {}
        for row in await self._database.fetch(of_user.order_by(checkpoints.c.number)):
            latest[row.session_id] = Checkpoint(row.number, row.state, row.created_at)
        return sorted(latest.items(), key=lambda job: job[1].created_at, reverse=True)

    async def drop_jobs(self, before: datetime) -> None:
        """Remove the states of the user's jobs that were saved before a moment."""
        is_old = (is_job_of(self._scope.user_id), checkpoints.c.created_at < before)
        await self._database.transact(lambda c: c.execute(delete(checkpoints).where(*is_old)))

    async def delete_checkpoints(self) -> None:
        """Remove the states of a session that has ended."""
        statement = delete(checkpoints).where(*self._match(checkpoints))
        await self._database.transact(lambda c: c.execute(statement))

    def _match(self, table: Any) -> list[Any]:
        return [table.c[name] == value for name, value in self._key.items()]


async def find_open_jobs(
    database: Database, user_ids: Sequence[str], ended: Collection[str]
) -> list[tuple[str, str, Checkpoint]]:
    """Return the users, ids and latest states of jobs whose `state` is not among the `ended`."""
    later = checkpoints.alias()
    keys = ("user_id", "agent_id", "session_id")
    of_job = (later.c[name] == checkpoints.c[name] for name in keys)
    is_latest = (
        ~select(later.c.number).where(*of_job, later.c.number > checkpoints.c.number).exists()
    )
    statement = select(checkpoints.c.user_id, checkpoints.c.session_id, *_CHECKPOINT).where(
        checkpoints.c.user_id.in_(user_ids),
        _IS_JOB,
        is_latest,
        checkpoints.c.state["state"].as_string().not_in(list(ended)),
    )
    return [
        (row.user_id, row.session_id, Checkpoint(row.number, row.state, row.created_at))
        for row in await database.fetch(statement)
    ]


def is_job_of(user_id: str) -> ColumnElement[bool]:
    """Return the condition for the states of a user's background jobs."""
    return and_(checkpoints.c.user_id == user_id, _IS_JOB)


def withdraw_summaries(
    connection: Connection, user_id: str, session_id: str, numbers: Collection[int]
) -> None:
    """Empty the summaries of messages, by their sequence numbers, until they are made again."""
    in_session = (summaries.c.user_id == user_id, summaries.c.session_id == session_id)
    statement = select(*summaries.primary_key.columns, *_SPAN).where(*in_session)
    ordered = sorted(numbers)
    for row in connection.execute(statement).all():
        place = bisect_left(ordered, row.first_sequence_no)
        if place == len(ordered) or ordered[place] > row.last_sequence_no:
            continue
        key = [column == getattr(row, column.name) for column in summaries.primary_key.columns]
        # Summaries of the session build on each other: the next one continues the last that stays.
        if row.level == SESSION:
            connection.execute(delete(summaries).where(*key))
        else:
            connection.execute(update(summaries).where(*key).values(text="", made_by=WITHDRAWN_BY))


def erase_items(
    connection: Connection, user_id: str, session_id: str, message_ids: Collection[str]
) -> None:
    """Remove messages from the checkpoints of a session."""
    in_session = (checkpoints.c.user_id == user_id, checkpoints.c.session_id == session_id)
    for row in connection.execute(select(checkpoints).where(*in_session)).all():
        items = row.state.get("items")
        if not isinstance(items, list):
            continue
        kept = [item for item in items if item.get("message_id") not in message_ids]
        if len(kept) < len(items):
            key = [c == getattr(row, c.name) for c in checkpoints.primary_key.columns]
            state = {**row.state, "items": kept}
            connection.execute(update(checkpoints).where(*key).values(state=state))


def erase_empty_sessions(
    connection: Connection, user_id: str, session_ids: Collection[str]
) -> None:
    """Remove the sessions that have no messages or memories left, with their states."""
    for batch in split(sorted(session_ids)):
        empty = set(batch)
        for table in (messages, memories):
            of_batch = (table.c.user_id == user_id, table.c.session_id.in_(batch))
            used = select(table.c.session_id).where(*of_batch).distinct()
            empty -= set(connection.scalars(used))
        for table in (summaries, checkpoints, sessions):
            erased = (table.c.user_id == user_id, table.c.session_id.in_(sorted(empty)))
            connection.execute(delete(table).where(*erased))
