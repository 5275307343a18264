"""One user's messages in the order they were said."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    CompoundSelect,
    Select,
    Text,
    asc,
    bindparam,
    cast,
    desc,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.elements import UnaryExpression

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.cursors import open_cursor, seal_cursor
from memrecall.store.database.engine import Database
from memrecall.store.database.statements import chunks
from memrecall.store.database.tables import messages
from memrecall.store.messages.records import ScopedMessage, WriteResult, write_messages
from memrecall.types import Message, NewMessage, Role, check_range, parse_time

PLACES_PER_READ = 200


@dataclass(frozen=True, slots=True)
class _Place:
    """A message without its words: enough to find the way."""

    message_id: str
    parent_message_id: str | None
    ts: datetime
    sequence_no: int


_BRANCH_COLUMNS = [messages.c[name] for name in _Place.__slots__]


class ThreadWalk:
    """One walk back through a session, from each message to the one that led to it.

    No message is passed twice, so parents that form a circle cannot hold the walk.
    """

    def __init__(self, database: Database, of_session: Select[Any], limit: int) -> None:
        self._database = database
        self._of_session = of_session.with_only_columns(*_BRANCH_COLUMNS)
        self._limit = limit
        self._page_size = min(limit, PLACES_PER_READ)
        self._passed: set[str] = set()
        # Read ahead: the place last looked back from, then those before it without a gap.
        self._run: list[_Place] = []

    async def back_from(self, message_id: str | None) -> list[str]:
        """The ids of what leads up to a message, or to the session's end; the latest first."""
        at = None if message_id is None else await self._find(message_id)
        if at is not None:
            self._passed.add(at.message_id)
        found: list[str] = []
        while len(found) < self._limit:
            at = await self._parent_of(at) or await self._said_before(at)
            if at is None:
                break
            self._passed.add(at.message_id)
            found.append(at.message_id)
        return found

    async def _parent_of(self, at: _Place | None) -> _Place | None:
        name = at.parent_message_id if at is not None else None
        if name is None or name in self._passed:
            return None
        for place in await self._look_back(at):
            if place.message_id == name:
                return place
        return await self._find(name)

    async def _said_before(self, at: _Place | None) -> _Place | None:
        while earlier := await self._look_back(at):
            for place in earlier:
                if place.message_id not in self._passed:
                    return place
            at = earlier[-1]
        return None

    async def _look_back(self, at: _Place | None) -> list[_Place]:
        """Some places just before `at`, or the last ones; none where the session begins."""
        if at is None:
            self._run = await self._read(self._of_session)
            return self._run
        here = self._run.index(at) if at in self._run else len(self._run)
        self._run = self._run[here:]
        if len(self._run) < 2:
            earlier = self._of_session.where(_said_before(at))
            self._run = [at, *await self._read(earlier)]
        return self._run[1:]

    async def _find(self, message_id: str) -> _Place | None:
        found = await self._read(self._of_session.where(messages.c.message_id == message_id))
        return found[0] if found else None

    async def _read(self, wanted: Select[Any]) -> list[_Place]:
        latest_first = wanted.order_by(messages.c.ts.desc(), messages.c.sequence_no.desc())
        rows = await self._database.fetch(latest_first.limit(self._page_size))
        return [_Place(**row._mapping) for row in rows]


def _said_before(at: _Place) -> ColumnElement[bool]:
    # Compared as one value: an index seeks it even where a whole import has the same time.
    return tuple_(messages.c.ts, messages.c.sequence_no) < (at.ts, at.sequence_no)


PAGE_SIZE = 50
LARGEST_PAGE = 200
NEIGHBORS_BEFORE = 20
NEIGHBORS_AFTER = 0
LONGEST_THREAD = 1_000

_COLUMNS = [column for column in messages.c if column.name not in ("search_text", "change_no")]
_SAID = (messages.c.ts, messages.c.sequence_no)  # the order in which a session was said
# Every search ends with it: built once, because building costs as much as asking.
_BY_ID = select(*_COLUMNS).where(
    messages.c.user_id == bindparam("of_user"),
    messages.c.message_id.in_(bindparam("ids", expanding=True)),
)


@dataclass(frozen=True, slots=True)
class StoredMessagePage:
    """Some messages, and the cursor of those that follow (None: there are no more)."""

    items: tuple[Message, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages of a timeline are wanted. `since` is included, `until` is not."""

    since: datetime | None = None
    until: datetime | None = None
    role: Role | None = None
    session_id: str | None = None

    def __post_init__(self) -> None:
        check_range(self.since, self.until)

    def fingerprint(self) -> list[str | None]:
        """What a cursor is bound to: the same filter gives the same list."""
        times = [m.isoformat() if m else None for m in (self.since, self.until)]
        return [*times, self.role, self.session_id]


class Timeline:
    """The messages of one scope: write them, read them by time, look around one."""

    def __init__(self, database: Database, scope: Scope, cursor_secret: bytes) -> None:
        self._database = database
        self._scope = scope
        self._secret = cursor_secret

    async def add(self, batch: Sequence[NewMessage]) -> WriteResult:
        """Store a batch, all or nothing; the same again is no new row."""
        return await write_messages(self._database, [ScopedMessage(self._scope, m) for m in batch])

    async def get(self, message_id: str) -> Message:
        """The message of that id; NotFound if this scope has none."""
        found = await self.get_many([message_id])
        if not found:
            raise NotFound(f"there is no message {message_id!r}", hint="Check the id and the user")
        return found[0]

    async def get_many(self, message_ids: Sequence[str]) -> list[Message]:
        """Those of the messages that exist, in no particular order."""
        wanted = _BY_ID
        if self._scope.agent_id is not None:
            wanted = wanted.where(messages.c.agent_id == self._scope.agent_id)
        found: list[Message] = []
        for part in chunks(message_ids):
            given = {"of_user": self._scope.user_id, "ids": list(part)}
            found += await self._fetch(wanted, given)
        return found

    async def page(
        self,
        filter: MessageFilter = MessageFilter(),  # noqa: A002, B008 -- the query API's word; frozen
        *,
        page_size: int = PAGE_SIZE,
        cursor: str | None = None,
    ) -> StoredMessagePage:
        """Messages from the latest to the earliest, `page_size` at a time."""
        check_page_size(page_size)
        wanted = self._filtered(filter)
        binding = ["messages", self._scope.user_id, self._scope.agent_id, *filter.fingerprint()]
        count = page_size + 1  # one more than asked tells whether there is a next page
        order = self._page_order(filter)
        if cursor is None:
            found = await self._fetch(wanted.order_by(*order).limit(count))
        else:
            ts, message_id = open_cursor(self._secret, binding, cursor)
            after = _after_place(wanted, (parse_time(ts), message_id), order, count)
            found = await self._fetch(after)
        items = tuple(found[:page_size])
        if len(found) <= page_size:
            return StoredMessagePage(items)
        place = [items[-1].ts.isoformat(), items[-1].message_id]
        return StoredMessagePage(items, seal_cursor(self._secret, binding, place))

    def _page_order(self, filter: MessageFilter) -> list[Any]:  # noqa: A002
        """The latest first, ties by id."""
        tie: Any = messages.c.message_id
        if filter.session_id is not None and self._database.is_sqlite:
            # By the plain id, SQLite would take the index whose order this is, and read all of the
            # user's messages until it met the session.
            tie = tie + ""
        return [messages.c.ts.desc(), tie]

    async def neighbors(
        self, message_id: str, *, before: int = NEIGHBORS_BEFORE, after: int = NEIGHBORS_AFTER
    ) -> StoredMessagePage:
        """The message with those said just before and after it, from the earliest on."""
        check_count("before", before)
        check_count("after", after)
        anchor = await self.get(message_id)
        around = self._select()
        prior = await self._fetch(_before_anchor(around, anchor, before)) if before else []
        following = await self._fetch(_said_after(around, anchor, after)) if after else []
        return StoredMessagePage((*reversed(prior), anchor, *following))

    async def thread(
        self, before: str | None = None, *, session_id: str, limit: int
    ) -> list[Message]:
        """What leads up to a message of a session, or to its end: the earliest first.

        A message's parent comes before it, whatever was said between the two; without a parent it
        is what was said just before. A message that is not stored has yet to be said: the end of
        the session leads up to it.
        """
        if not 1 <= limit <= LONGEST_THREAD:
            raise InvalidArgument(
                f"limit {limit} is out of range", hint=f"Use 1 to {LONGEST_THREAD}"
            )
        of_session = self._select().where(messages.c.session_id == session_id)
        names = await ThreadWalk(self._database, of_session, limit).back_from(before)
        found = {message.message_id: message for message in await self.get_many(names)}
        # Who was erased meanwhile is left out.
        return [found[name] for name in reversed(names) if name in found]

    async def find_labelled(
        self, label: str, *, session_id: str, depth: int, limit: int = LARGEST_PAGE
    ) -> list[Message]:
        """The latest messages of a session in whose metadata a text stands; the latest first.

        Looked for in the last `depth` messages alone.
        """
        latest = (
            self._select()
            .where(messages.c.session_id == session_id)
            .with_only_columns(messages.c.message_id, messages.c.metadata, *_SAID)
            .order_by(*(column.desc() for column in _SAID))
            .limit(depth)
            .subquery()
        )
        # As JSON writes it: an index cannot look into it, but the bound above keeps this short.
        holds = cast(latest.c.metadata, Text).contains(json.dumps(label), autoescape=True)
        wanted = select(latest.c.message_id).where(holds)
        wanted = wanted.order_by(*(latest.c[column.name].desc() for column in _SAID)).limit(limit)
        names = [row.message_id for row in await self._database.fetch(wanted)]
        found = {message.message_id: message for message in await self.get_many(names)}
        return [found[name] for name in names if name in found]

    def _select(self) -> Select[Any]:
        wanted = select(*_COLUMNS).where(messages.c.user_id == self._scope.user_id)
        if self._scope.agent_id is not None:
            wanted = wanted.where(messages.c.agent_id == self._scope.agent_id)
        return wanted

    def _filtered(self, filter: MessageFilter) -> Select[Any]:  # noqa: A002
        wanted = self._select()
        if filter.since is not None:
            wanted = wanted.where(messages.c.ts >= filter.since)
        if filter.until is not None:
            wanted = wanted.where(messages.c.ts < filter.until)
        if filter.role is not None:
            wanted = wanted.where(messages.c.role == filter.role.value)
        if filter.session_id is not None:
            wanted = wanted.where(messages.c.session_id == filter.session_id)
        return wanted

    async def _fetch(
        self, statement: Select[Any] | CompoundSelect[Any], given: dict[str, Any] | None = None
    ) -> list[Message]:
        rows = await self._database.fetch(statement, given)
        return [to_message(dict(row._mapping)) for row in rows]


def to_message(row: dict[str, Any]) -> Message:
    """A row of the table as a message."""
    return Message.model_validate({**row, "metadata": row["metadata"] or {}})


def check_page_size(page_size: int) -> None:
    """Refuse a page that is empty or larger than a service can afford."""
    if not 1 <= page_size <= LARGEST_PAGE:
        raise InvalidArgument(
            f"page_size {page_size} is out of range", hint=f"Use 1 to {LARGEST_PAGE}"
        )


def check_count(name: str, value: int) -> None:
    """Refuse a number of neighbours that is negative or too large."""
    if not 0 <= value <= LARGEST_PAGE:
        raise InvalidArgument(f"{name} {value} is out of range", hint=f"Use 0 to {LARGEST_PAGE}")


def _after_place(
    wanted: Select[Any], place: tuple[datetime, str], order: list[Any], count: int
) -> CompoundSelect[Any]:
    """What follows a place on a page: as early with a greater id, then what is earlier."""
    ts, message_id = place
    level = wanted.where(messages.c.ts == ts, messages.c.message_id > message_id)
    earlier = wanted.where(messages.c.ts < ts)
    return _joined(level, earlier, [desc("ts"), asc("message_id")], count, order)


def _before_anchor(wanted: Select[Any], anchor: Message, count: int) -> CompoundSelect[Any]:
    """What comes before a message when they are read by time, the nearest first."""
    level = wanted.where(messages.c.ts == anchor.ts, messages.c.message_id < anchor.message_id)
    earlier = wanted.where(messages.c.ts < anchor.ts)
    return _joined(level, earlier, [desc("ts"), desc("message_id")], count)


def _said_after(wanted: Select[Any], anchor: Message, count: int) -> CompoundSelect[Any]:
    """What comes after a message when they are read by time, the nearest first."""
    level = wanted.where(messages.c.ts == anchor.ts, messages.c.message_id > anchor.message_id)
    later = wanted.where(messages.c.ts > anchor.ts)
    return _joined(level, later, [asc("ts"), asc("message_id")], count)


def _joined(
    level: Select[Any],
    beyond: Select[Any],
    order: list[UnaryExpression[Any]],
    count: int,
    within: list[Any] | None = None,
) -> CompoundSelect[Any]:
    """The first rows of two ranges of the index, each read from its beginning.

    One range with a condition on ties would be read from the tie's beginning each time, and an
    import may have given all its messages the same time.
    """
    inner = within or order
    parts = (part.order_by(*inner).limit(count).subquery() for part in (level, beyond))
    both = union_all(*(select(part) for part in parts))
    return both.order_by(*order).limit(count)
