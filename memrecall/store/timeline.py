"""Reading one user's messages: by time, around a message, along a branch, or those still unread.

A message is unread until a model has read it for memories.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Any, Literal, get_args

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Executable,
    Integer,
    Select,
    asc,
    bindparam,
    case,
    desc,
    func,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.sql.elements import UnaryExpression

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.cursors import (
    LARGEST_PAGE,
    PAGE_SIZE,
    PageLimits,
    StoredPage,
    make_page,
    open_cursor,
    require_limit,
)
from memrecall.store.database.dialects import DatabaseDialect
from memrecall.store.database.engine import Database
from memrecall.store.database.memberships import (
    enter_space,
    qualify_row,
    read_by_owner,
    show_writers,
)
from memrecall.store.database.statements import Reads, filter_scope, in_project, split
from memrecall.store.database.tables import (
    PASSAGE,
    is_hidden,
    is_visible,
    memories,
    messages,
    tombstones,
)
from memrecall.store.memories.filters import Filter, to_condition
from memrecall.store.messages import ScopedMessage, WriteResult, write_messages
from memrecall.types import DIGESTS, Message, NewMessage, Role, check_range, parse_stored_time

NODES_PER_READ = 200
SESSION_ORDER = (messages.c.ts, messages.c.sequence_no)


@dataclass(frozen=True, slots=True)
class _Node:
    """A message without its content: enough to walk along a branch."""

    message_id: str
    parent_message_id: str | None
    role: str
    ts: datetime
    sequence_no: int


class ThreadWalk:
    """One walk back through a session, from each message to the one that led to it.

    No message is visited twice, so parents that form a circle cannot trap the walk.
    """

    def __init__(
        self, database: Database, in_session: Select[Any], limit: int, *, branches: bool = True
    ) -> None:
        self._database = database
        self._branches = branches
        columns = [messages.c[name] for name in _Node.__slots__]
        self._in_session = in_session.with_only_columns(*columns)
        self._limit = limit
        self._page_size = min(limit, NODES_PER_READ)
        self._visited: set[str] = set()
        self._in_branch = False
        # Read ahead: the node that was last looked back from, then those before it without a gap.
        self._read_ahead: list[_Node] = []

    async def walk_back(self, message_id: str | None) -> list[str]:
        """Return the ids that lead up to a message, or to the session's end, latest first."""
        node = None if message_id is None else await self._find(message_id)
        if node is not None:
            self._visited.add(node.message_id)
        ids: list[str] = []
        while len(ids) < self._limit:
            node = await self._get_parent(node) or await self._get_previous(node)
            if node is None:
                break
            self._visited.add(node.message_id)
            ids.append(node.message_id)
        return ids

    async def _get_parent(self, node: _Node | None) -> _Node | None:
        if node is None or not self._branches or node.parent_message_id is None:
            return None
        if node.parent_message_id in self._visited:
            return None
        earlier = await self._look_back(node)
        parent = next((n for n in earlier if n.message_id == node.parent_message_id), None)
        parent = parent or await self._find(node.parent_message_id)
        # Every answer names its question. That alone is no branch: two may be asked at once.
        is_branch = node.role != Role.ASSISTANT or (parent and parent.parent_message_id)
        if parent is not None and (self._in_branch or is_branch):
            self._in_branch = True
            return parent
        return None

    async def _get_previous(self, node: _Node | None) -> _Node | None:
        while earlier := await self._look_back(node):
            for candidate in earlier:
                if candidate.message_id not in self._visited:
                    return candidate
            node = earlier[-1]
        return None

    async def _look_back(self, node: _Node | None) -> list[_Node]:
        """Return some nodes just before one, or the last ones; none at the session's beginning."""
        if node is None:
            self._read_ahead = await self._read(self._in_session)
            return self._read_ahead
        nodes = self._read_ahead
        self._read_ahead = nodes[nodes.index(node) if node in nodes else len(nodes) :]
        if len(self._read_ahead) < 2:
            # Compared as one value: an index seeks it even where an import has one time for all.
            is_earlier = tuple_(*SESSION_ORDER) < (node.ts, node.sequence_no)
            self._read_ahead = [node, *await self._read(self._in_session.where(is_earlier))]
        return self._read_ahead[1:]

    async def _find(self, message_id: str) -> _Node | None:
        nodes = await self._read(self._in_session.where(messages.c.message_id == message_id))
        return nodes[0] if nodes else None

    async def _read(self, statement: Select[Any]) -> list[_Node]:
        latest_first = statement.order_by(*(column.desc() for column in SESSION_ORDER))
        rows = await self._database.fetch(latest_first.limit(self._page_size))
        return [_Node(**row._mapping) for row in rows]


NEIGHBORS_BEFORE = 20
NEIGHBORS_AFTER = 0
LONGEST_THREAD = 1_000

Order = Literal["asc", "desc"]  # by time
MessageState = Literal["visible", "hidden", "erased"]
_Direction = Callable[[Any], UnaryExpression[Any]]  # `asc` or `desc`
_INTERNAL = (
    "search_text",
    "change_no",
    "deleted_at",
    "expires_at",
    "deletion",
    "extracted_by",
    "import_label",
)
_COLUMNS = [column for column in messages.c if column.name not in _INTERNAL]
_NAMES = [column.name for column in _COLUMNS]
# By the parameter that has the value.
_CONDITIONS: dict[str, ColumnElement[bool]] = {
    "of_user": messages.c.user_id == bindparam("of_user"),
    "of_agent": messages.c.agent_id == bindparam("of_agent"),
    "of_project": in_project(messages, bindparam("of_project")),
    "since": messages.c.ts >= bindparam("since"),
    "until": messages.c.ts < bindparam("until"),
    "role": messages.c.role == bindparam("role"),
    "session_id": messages.c.session_id == bindparam("session_id"),
}
_COUNT = bindparam("count", type_=Integer)
_HIDDEN = "hidden"  # among the names of conditions: messages that are hidden instead


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages of a timeline to list: from `since` on, before `until`."""

    since: datetime | None = None
    until: datetime | None = None
    role: Role | None = None
    session_id: str | None = None

    def __post_init__(self) -> None:
        check_range(self.since, self.until)

    def fingerprint(self) -> list[str | None]:
        """Return what a cursor is bound to: equal filters give the same list."""
        times = [time.isoformat() if time else None for time in (self.since, self.until)]
        return [*times, self.role, self.session_id]

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `_CONDITIONS` that the filter gives a value."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}


class Timeline:
    """The messages of one scope: writes them, reads them by time and around one."""

    def __init__(self, database: Database, scope: Scope, limits: PageLimits) -> None:
        self._database = database
        self._scope = scope
        self._limits = limits

    async def add(self, batch: Sequence[NewMessage]) -> WriteResult:
        """Store a batch, all or nothing; an equal message is not stored twice."""
        return await write_messages(self._database, [ScopedMessage(self._scope, m) for m in batch])

    async def get(self, message_id: str) -> Message:
        """Return one message; NotFound if the scope has none of that id."""
        return await self._database.read_together(partial(self._read_one, message_id))

    async def get_many(self, message_ids: Sequence[str]) -> list[Message]:
        """Return the messages that exist, in no particular order."""
        return await self._database.read_together(partial(self.read_many, message_ids))

    def read_many(self, message_ids: Sequence[str], reads: Reads) -> list[Message]:
        """Return the same among other reads."""
        if self._scope.spaces:
            return read_by_owner(
                reads,
                self._scope,
                message_ids,
                lambda scope, keys: self._within(scope).read_many(keys, reads),
            )
        owner = self._owner()
        statement = _select_by_id(tuple(owner))
        items: list[Message] = []
        for batch in split(message_ids):
            rows = reads.fetch(statement, {**owner, "ids": list(batch)})
            items += show_writers(reads, self._scope, list(map(to_message, rows)))
        return items

    def _read_one(self, message_id: str, reads: Reads) -> Message:
        items = self.read_many([message_id], reads)
        if not items:
            raise NotFound(f"there is no message {message_id!r}", hint="Check the id and the user")
        return items[0]

    async def find_state(self, message_id: str) -> MessageState | None:
        """Return whether a message is visible, hidden or erased; None if the scope never had it."""
        columns = select(is_visible(messages).label("is_visible"))
        statement = filter_scope(columns, messages, self._scope)
        rows = await self._database.fetch(statement.where(messages.c.message_id == message_id))
        if rows:
            return "visible" if rows[0].is_visible else "hidden"
        erased = select(tombstones.c.key).where(
            tombstones.c.user_id == self._scope.user_id,
            tombstones.c.kind == "message",
            tombstones.c.key == message_id,
        )
        return "erased" if await self._database.fetch(erased) else None

    async def count(self, session_id: str | None = None) -> int:
        """Return the number of messages that are not hidden."""
        statement = filter_scope(select(func.count()).select_from(messages), messages, self._scope)
        statement = statement.where(is_visible(messages))
        if session_id is not None:
            statement = statement.where(messages.c.session_id == session_id)
        return int((await self._database.fetch(statement))[0][0])

    async def keys(
        self, condition: Filter, *, hidden: bool = False, session_id: str | None = None
    ) -> list[str]:
        """Return the ids of all messages that pass a filter, optionally of hidden ones too."""
        statement = filter_scope(select(messages.c.message_id), messages, self._scope)
        if session_id is not None:
            statement = statement.where(messages.c.session_id == session_id)
        statement = statement.where(to_condition(condition, self._database.dialect, messages))
        if not hidden:
            statement = statement.where(is_visible(messages))
        return [row.message_id for row in await self._database.fetch(statement)]

    async def count_metadata(self, key: str) -> list[tuple[str, datetime, int]]:
        """Return each text under a key of the metadata, since when it is stored, and how often.

        The latest comes first. Hidden messages are counted too.
        """
        value = messages.c.metadata[key].as_string().label("value")
        rows = filter_scope(select(value, messages.c.create_time), messages, self._scope)
        table = rows.where(value.is_not(None)).subquery().c
        first = func.min(table.create_time)
        columns = (first.label("time"), func.count().label("number"))
        counted = select(table.value, *columns).group_by(table.value).order_by(first.desc())
        return [(row.value, row.time, row.number) for row in await self._database.fetch(counted)]

    async def page(
        self,
        filter: MessageFilter = MessageFilter(),  # noqa: A002, B008 -- the query API's word; frozen
        *,
        order: Order = "desc",
        page_size: int = PAGE_SIZE,
        cursor: str | None = None,
        hidden: bool = False,
    ) -> StoredPage[Message]:
        """Return a page of messages, latest or (`asc`) earliest first; ties are ordered by id.

        With `hidden`, of those that are deleted or have expired.
        """
        require_limit("page_size", page_size, LARGEST_PAGE)
        if order not in get_args(Order):
            raise InvalidArgument(f"order {order!r} is unknown", hint="Use asc or desc")
        binding = ["messages", *self._scope.reader(), *filter.fingerprint()]
        if order == "asc":
            binding.append(order)
        if hidden:
            binding.append(_HIDDEN)
        conditions = (_HIDDEN,) if hidden else ()
        parameters = self._owner() | filter.parameters()
        parameters["count"] = page_size + 1  # one row more shows whether there is a next page
        if cursor is not None:
            ts, message_id = open_cursor(self._limits.secret, binding, cursor)
            parameters |= {"from_ts": parse_stored_time(ts), "from_id": message_id}
        elif order == "asc":
            # The index has equal times by id in the other direction only. From the first time on,
            # it is sought by id; otherwise an import with one time would be sorted as a whole.
            earliest = _select_earliest((*parameters, *conditions))
            if not (first := await self._fetch(earliest, parameters)):
                return StoredPage(())
            parameters |= {"from_ts": first[0].ts, "from_id": ""}
        page = _select_page(self._database.dialect, (*parameters, *conditions), order)
        rows = await self._fetch(page, parameters)
        key_of = operator.attrgetter("ts", "message_id")
        size = min(page_size, self._limits.cut(rows))
        return make_page(rows, size, self._limits.secret, binding, key_of)

    async def neighbors(
        self, message_id: str, *, before: int = NEIGHBORS_BEFORE, after: int = NEIGHBORS_AFTER
    ) -> StoredPage[Message]:
        """Return a message with those just before and after it, oldest first.

        The farthest are left out if they take too many bytes.
        """
        space_id, key = self._scope.split_key(message_id)
        if space_id is not None:
            enter = partial(enter_space, scope=self._scope, space_id=space_id)
            inside, _ = await self._database.read_together(enter)
            page = await self._within(inside).neighbors(key, before=before, after=after)
            return StoredPage(tuple(qualify_row(row, space_id) for row in page.items))
        require_limit("before", before, LARGEST_PAGE, smallest=0)
        require_limit("after", after, LARGEST_PAGE, smallest=0)

        def read(reads: Reads) -> tuple[Message, list[Message], list[Message]]:
            anchor = self._read_one(message_id, reads)
            key = self._owner() | {"from_ts": anchor.ts, "from_id": anchor.message_id}
            found = []
            for direction, count in ((desc, before), (asc, after)):
                statement = _select_near(direction, tuple(key))
                found.append(self._read(statement, {**key, "count": count}, reads))
            return anchor, found[0], found[1]

        anchor, earlier, later = await self._database.read_together(read)
        pairs = zip_longest(earlier, later)
        nearest_first = [anchor, *(row for pair in pairs for row in pair if row is not None)]
        kept = set(map(id, nearest_first[: self._limits.cut(nearest_first)]))
        in_order = (*reversed(earlier), anchor, *later)
        return StoredPage(tuple(row for row in in_order if id(row) in kept))

    async def thread(
        self, before: str | None = None, *, session_id: str, limit: int, branches: bool = True
    ) -> list[Message]:
        """Return what leads up to a message of a session, or to its end, oldest first.

        A message is preceded by its parent, whatever was written between the two; without a parent,
        by the message just before it. So is an answer whose question has no parent, because others
        may have written between the two. A message that is not stored follows the session's end.
        Without `branches`, all messages before it are returned, whatever their parents are.
        """
        require_limit("limit", limit, LONGEST_THREAD)
        in_session = select_messages(self._scope).where(messages.c.session_id == session_id)
        walk = ThreadWalk(self._database, in_session, limit, branches=branches)
        ids = (await walk.walk_back(before))[::-1]
        by_id = {message.message_id: message for message in await self.get_many(ids)}
        return [by_id[name] for name in ids if name in by_id]  # some may have been erased since

    def _within(self, scope: Scope) -> "Timeline":
        """Return the messages of the user alone, or of one space that the scope covers."""
        return Timeline(self._database, scope, self._limits)

    def _owner(self) -> dict[str, Any]:
        owner = {"of_user": self._scope.user_id, "of_agent": self._scope.agent_id}
        owner["of_project"] = self._scope.read_project
        return {name: value for name, value in owner.items() if value is not None}

    async def _fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Message]:
        return await self._database.read_together(partial(self._read, statement, parameters))

    def _read(
        self, statement: Executable, parameters: Mapping[str, Any], reads: Reads
    ) -> list[Message]:
        if not parameters["count"]:
            return []
        rows = [to_message(row) for row in reads.fetch(statement, parameters)]
        return show_writers(reads, self._scope, rows)


def select_messages(scope: Scope) -> Select[Any]:
    """Return the query for a scope's messages that are not hidden, without internal columns."""
    return filter_scope(select(*_COLUMNS), messages, scope).where(is_visible(messages))


def to_message(row: Any) -> Message:
    """Return a row of `select_messages` as a message."""
    # Not `_asdict`, which takes five times as long, a tenth of reading a page.
    values = dict(zip(_NAMES, row, strict=True))
    values["metadata"] = values["metadata"] or {}
    return Message.model_validate(values)


def _select_where(names: Sequence[str]) -> Select[Any]:
    """Return the query for messages that meet the conditions on these parameters."""
    conditions = [_CONDITIONS[name] for name in names if name in _CONDITIONS]
    state = is_hidden(messages) if _HIDDEN in names else is_visible(messages)
    return select(*_COLUMNS).where(*conditions, state)


# Cached, because building a statement costs more than reading a page. Every search ends with this.
@lru_cache(maxsize=8)
def _select_by_id(names: tuple[str, ...]) -> Select[Any]:
    """Return the query for messages by their ids."""
    return _select_where(names).where(messages.c.message_id.in_(bindparam("ids", expanding=True)))


@lru_cache(maxsize=256)
def _select_page(
    dialect: DatabaseDialect, names: tuple[str, ...], order: Order
) -> Select[Any] | CompoundSelect[Any]:
    """Return the query for a page; with `from_ts` it begins after that time."""
    tie: Any = messages.c.message_id
    if "session_id" in names:
        # By the plain id, SQLite would take the index that has this order, and read all of the
        # user's messages until it met the session.
        tie = dialect.avoid_index(tie)
    direction = asc if order == "asc" else desc
    columns = [direction(messages.c.ts), tie]
    if "from_ts" in names:
        return _select_beyond(_select_where(names), (direction, asc), columns)
    return _select_where(names).order_by(*columns).limit(_COUNT)


@lru_cache(maxsize=64)
def _select_earliest(names: tuple[str, ...]) -> Select[Any]:
    """Return the query for a message of the earliest time."""
    return _select_where(names).order_by(messages.c.ts).limit(1)


@lru_cache(maxsize=16)
def _select_near(direction: _Direction, names: tuple[str, ...]) -> CompoundSelect[Any]:
    """Return the query for the messages next to one in a direction, nearest first."""
    return _select_beyond(_select_where(names), (direction, direction))


def _select_beyond(
    statement: Select[Any],
    directions: tuple[_Direction, _Direction],
    inner_order: list[Any] | None = None,
) -> CompoundSelect[Any]:
    """Return the query for what follows a time and id in an order, nearest first.

    It reads two ranges of the index, each from its beginning. One range with a condition on equal
    times would be read from the first of them each time, and an import may have given all its
    messages the same time.
    """
    columns = (messages.c.ts, messages.c.message_id)
    key: list[Any] = [bindparam("from_ts"), bindparam("from_id")]
    is_beyond = [
        column > value if direction is asc else column < value
        for column, value, direction in zip(columns, key, directions, strict=True)
    ]
    equal = statement.where(messages.c.ts == key[0], is_beyond[1])
    order = [directions[0]("ts"), directions[1]("message_id")]
    parts = [
        part.order_by(*(inner_order or order)).limit(_COUNT).subquery()
        for part in (equal, statement.where(is_beyond[0]))
    ]
    both = union_all(*(select(part) for part in parts))
    return both.order_by(*order).limit(_COUNT)


BY_ADD = "add"  # what an `add` notes; an extraction of stored messages notes the id of its run
_PEOPLE = (Role.USER.value, Role.OTHER.value)


@dataclass(frozen=True, slots=True)
class Reading:
    """Messages that a model has read, by an `add` or by a run of an extraction."""

    message_ids: Sequence[str]
    run: str | None = None
    once: bool = False  # Conflict if one of them was read since then, as for a run


@dataclass(frozen=True, slots=True)
class UnreadSession:
    """A session in which people said something that no model has read."""

    agent_id: str
    session_id: str


class UnreadMessages:
    """The messages of a scope that no model has read, from `since` on; in a space, one's own."""

    def __init__(
        self,
        database: Database,
        scope: Scope,
        *,
        session_id: str | None = None,
        since: datetime | None = None,
    ) -> None:
        self._database = database
        self._scope = scope
        self._conditions: list[ColumnElement[bool]] = [messages.c.extracted_by.is_(None)]
        if since is not None:
            self._conditions.append(messages.c.ts >= since)
        if session_id is not None:
            self._conditions.append(messages.c.session_id == session_id)
        if scope.author is not None:
            self._conditions.append(messages.c.author == scope.author)

    async def sessions(self) -> list[UnreadSession]:
        """Return the sessions, the one that began first before the others."""
        columns = (messages.c.agent_id, messages.c.session_id)
        of_people = func.sum(case((messages.c.role.in_(_PEOPLE), 1), else_=0))
        statement = filter_scope(select(*columns), messages, self._scope)
        statement = statement.where(is_visible(messages), *self._conditions)
        grouped = statement.group_by(*columns).having(of_people > 0)
        rows = await self._database.fetch(
            grouped.order_by(func.min(messages.c.ts), messages.c.session_id)
        )
        return [UnreadSession(row.agent_id, row.session_id) for row in rows]

    async def page(
        self, session: UnreadSession, after: Message | None, limit: int
    ) -> list[Message]:
        """Return the next messages of a session in its order, whoever wrote them."""
        statement = select_messages(self._scope).where(
            *self._conditions,
            messages.c.agent_id == session.agent_id,
            messages.c.session_id == session.session_id,
        )
        if after is not None:
            statement = statement.where(tuple_(*SESSION_ORDER) > (after.ts, after.sequence_no))
        rows = await self._database.fetch(statement.order_by(*SESSION_ORDER).limit(limit))
        return [to_message(row) for row in rows]

    async def among(self, message_ids: Sequence[str]) -> list[Message]:
        """Return the unread ones of some messages, in the order of their session."""
        found: list[Message] = []
        for batch in split(list(message_ids)):
            statement = select_messages(self._scope).where(
                *self._conditions, messages.c.message_id.in_(batch)
            )
            found += map(to_message, await self._database.fetch(statement))
        return sorted(found, key=lambda message: (message.ts, message.sequence_no))

    async def forgotten(self) -> frozenset[str]:
        """Return the messages, stored still, that somebody has deleted or purged a memory of.

        Reading them again would bring it back. Messages of an extraction that was undone are left
        out.
        """
        user_id = self._scope.user_id
        of_deleted = select(memories.c.source_message_ids).where(
            memories.c.user_id == user_id,
            is_hidden(memories),
            memories.c.memory_type.not_in(DIGESTS),
            memories.c.provenance["run"].as_string().is_(None),
        )
        of_purged = select(tombstones.c.key).where(
            tombstones.c.user_id == user_id, tombstones.c.kind == PASSAGE
        )
        sources = {
            name
            for row in await self._database.fetch(of_deleted)
            for name in row.source_message_ids
        }
        return frozenset(sources | {row.key for row in await self._database.fetch(of_purged)})

    async def runs(self) -> list[tuple[str, int]]:
        """Return the runs that have read messages, with their numbers, the last run first."""
        statement = filter_scope(
            select(messages.c.extracted_by, func.count().label("number")), messages, self._scope
        )
        statement = statement.where(messages.c.extracted_by != BY_ADD)
        if self._scope.author is not None:
            statement = statement.where(messages.c.author == self._scope.author)
        grouped = statement.group_by(messages.c.extracted_by)
        rows = await self._database.fetch(grouped.order_by(messages.c.extracted_by.desc()))
        return [(row.extracted_by, row.number) for row in rows]


def note_reading(connection: Connection, user_id: str, reading: Reading) -> None:
    """Note that messages were read; Conflict if they may not be read any more."""
    unread: list[Any] = [messages.c.user_id == user_id, messages.c.extracted_by.is_(None)]
    if reading.run is not None:
        unread.append(is_visible(messages))
    noted = 0
    for batch in split(list(reading.message_ids)):
        statement = update(messages).where(*unread, messages.c.message_id.in_(batch))
        values = {"extracted_by": reading.run or BY_ADD}
        noted += connection.execute(statement.values(values)).rowcount
    if (reading.run is not None or reading.once) and noted < len(reading.message_ids):
        raise Conflict(
            "messages were read, deleted or erased while the model read them",
            hint="Read what is left again",
            reason="messages_changed",
        )


def forget_reading(connection: Connection, scope: Scope, run: str) -> int:
    """Let the messages of a run be read again; return their number."""
    of_run = filter_scope(select(messages.c.message_id), messages, scope)
    ids = list(connection.scalars(of_run.where(messages.c.extracted_by == run)))
    for batch in split(ids):
        of_user = (messages.c.user_id == scope.user_id, messages.c.message_id.in_(batch))
        connection.execute(update(messages).where(*of_user).values(extracted_by=None))
    return len(ids)
