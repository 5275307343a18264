"""Traces: the events of each recall, stored for some days, and lists of them over users."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import ColumnElement, Connection, Select, delete, insert, literal, select, tuple_

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.cursors import (
    LARGEST_PAGE,
    PAGE_SIZE,
    StoredPage,
    come_after,
    make_page,
    open_cursor,
    require_limit,
    seal_cursor,
)
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, lock_existing_user
from memrecall.store.database.statements import (
    filter_scope,
    match_keys,
    mentions,
    new_id,
    split,
    upsert,
)
from memrecall.store.database.tables import (
    feedback,
    is_hidden,
    is_visible,
    memories,
    messages,
    traces,
)
from memrecall.types import (
    ID_LENGTH,
    NAME_LENGTH,
    Content,
    Id,
    JsonObject,
    Label,
    Moment,
    parse_stored_time,
)
from memrecall.workers import in_thread

SEARCHED_TRACES = 100
BODY_BYTES = 1024 * 1024
MOST_TRACE_DAYS = 36_500  # a hundred years
SCANNED_TRACES = 5_000  # that one page of a filtered list looks at, at most

_Count = Annotated[int, Field(ge=0, lt=2**31)]
_ORDER = (traces.c.created_at, traces.c.trace_id)  # of one user
_LIST_ORDER = (traces.c.created_at, traces.c.user_id, traces.c.trace_id)  # of all users
# The fields of a body that quote what was recalled, or that a model wrote with it in view.
_QUOTING = frozenset(
    {
        "content",
        "summary",
        "search_summary",
        "message",
        "reasoning",
        "question",
        "text",
        "output",
        "arguments",
        "before",
        "after",
        "sources",
        "times",
        "missing",
        "problem",
        "error",
    }
)
_NOT_IN_SUMMARY = ("user_id", "body", "project")
SUMMARY_COLUMNS = [column for column in traces.c if column.name not in _NOT_IN_SUMMARY]


class NewTrace(BaseModel):
    """A recall to record; it gets an id and the current time if it has none."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    query: Content
    stop_reason: Label
    confidence: float = Field(ge=0.0, le=1.0)
    abstained: bool
    iterations: _Count
    model_calls: _Count
    tool_calls: _Count
    seconds: float = Field(ge=0.0, allow_inf_nan=False)
    model: str = Field(default="", max_length=NAME_LENGTH)
    body: JsonObject
    trace_id: Id | None = None
    created_at: Moment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """The outcome of a recall, without its events."""

    trace_id: str
    agent_id: str
    session_id: str | None
    created_at: datetime
    query: str
    stop_reason: str
    confidence: float
    abstained: bool
    iterations: int
    model_calls: int
    tool_calls: int
    seconds: float
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrace(TraceSummary):
    """A recall with all its events in `body`."""

    body: dict[str, Any]


class Traces:
    """The traces of one scope."""

    def __init__(self, database: Database, scope: Scope, cursor_secret: bytes) -> None:
        self._database = database
        self._scope = scope
        self._secret = cursor_secret

    async def add(self, trace: NewTrace, keep_days: int) -> str:
        """Record a recall of a known user, drop what is older than `keep_days`; return its id."""
        require_limit("keep_days", keep_days, MOST_TRACE_DAYS)
        now = datetime.now(UTC)
        row = await in_thread(self._make_row, trace, now)  # A body has thousands of texts.
        of_user = traces.c.user_id == self._scope.user_id

        def work(connection: Connection) -> None:
            locks = lock_existing_user(connection, self._scope)
            # Deleted before the insert: the new trace stays even if it records an old recall.
            is_old = traces.c.created_at < now - timedelta(days=keep_days)
            connection.execute(delete(traces).where(of_user, is_old))
            same = select(traces.c.query, traces.c.body)
            same = same.where(of_user, traces.c.trace_id == row["trace_id"])
            stored = connection.execute(same).mappings().one_or_none()
            if stored is None:
                connection.execute(insert(traces), row)
            else:
                for name in ("query", "body"):
                    if row[name] != stored[name]:
                        raise Conflict(
                            f"trace {row['trace_id']!r} is already stored with another {name}",
                            hint="Give the new trace its own id",
                            trace_id=row["trace_id"],
                        )
            locks.save(connection)  # the version stays: a search finds nothing new

        await self._database.transact(work)
        return str(row["trace_id"])

    def _make_row(self, trace: NewTrace, now: datetime) -> dict[str, Any]:
        size = measure_body(trace.body)
        if size > BODY_BYTES:
            raise InvalidArgument(
                f"the trace's body has {size} bytes of JSON",
                hint=f"Reduce it to {BODY_BYTES}",
                size=size,
            )
        row = {
            **trace.model_dump(),
            "trace_id": trace.trace_id or new_id("t"),
            "created_at": trace.created_at or now,
            "user_id": self._scope.user_id,
            "agent_id": agent_of(self._scope),
            "session_id": self._scope.session_id,
            "project": self._scope.read_project,
        }
        return row | self._database.privacy.protect({name: row[name] for name in ("query", "body")})

    async def get(self, trace_id: str) -> StoredTrace:
        """Return a trace with its body; NotFound if the scope has none of that id.

        Until it is undone, a deletion empties what quotes the deleted memory or message.
        """
        statement = filter_scope(select(*SUMMARY_COLUMNS, traces.c.body), traces, self._scope)
        rows = await self._database.fetch(statement.where(traces.c.trace_id == trace_id))
        if not rows:
            raise NotFound(f"there is no trace {trace_id!r}", hint="Check the id and the user")
        trace = StoredTrace(**rows[0]._mapping)
        names = {text for text in _strings(trace.body) if len(text) <= ID_LENGTH}
        if await find_deleted(self._database, self._scope.user_id, names):
            trace = replace(trace, body=withhold_contents(trace.body))
        if await find_deleted_questions(self._database, [(self._scope.user_id, trace.query)]):
            body = withhold_contents(trace.body, frozenset({"asked"}))
            trace = replace(trace, query="", body=body)
        return trace

    async def page(
        self, limit: int = PAGE_SIZE, cursor: str | None = None
    ) -> StoredPage[TraceSummary]:
        """Return a page of summaries, latest first."""
        require_limit("limit", limit, LARGEST_PAGE)
        statement = filter_scope(select(*SUMMARY_COLUMNS), traces, self._scope)
        binding = ["traces", *self._scope.reader()]
        if cursor is not None:
            created_at, trace_id = open_cursor(self._secret, binding, cursor)
            statement = statement.where(
                come_after(*_ORDER, parse_stored_time(created_at), trace_id)
            )
        summaries = await self._fetch_latest(statement, limit + 1)
        key_of = attrgetter("created_at", "trace_id")
        return make_page(summaries, limit, self._secret, binding, key_of)

    async def since(self, moment: datetime, limit: int) -> list[TraceSummary]:
        """Return the recalls since a moment, latest first."""
        statement = filter_scope(select(*SUMMARY_COLUMNS), traces, self._scope)
        return await self._fetch_latest(statement.where(traces.c.created_at >= moment), limit)

    async def find_mentions(self, key: str, among: int = SEARCHED_TRACES) -> list[TraceSummary]:
        """Return the latest recalls that name a memory or message, latest first."""
        latest = filter_scope(select(traces.c.trace_id), traces, self._scope)
        latest = latest.order_by(_ORDER[0].desc(), _ORDER[1]).limit(among)
        statement = filter_scope(select(*SUMMARY_COLUMNS), traces, self._scope).where(
            traces.c.trace_id.in_(latest.scalar_subquery()), mentions(traces.c.body, [key])
        )
        return await self._fetch_latest(statement, among)

    async def _fetch_latest(self, statement: Select[Any], limit: int) -> list[TraceSummary]:
        latest_first = statement.order_by(_ORDER[0].desc(), _ORDER[1]).limit(limit)
        rows = await self._database.fetch(latest_first)
        questions = {(self._scope.user_id, row.query) for row in rows}
        hidden = {query for _, query in await find_deleted_questions(self._database, questions)}
        summaries = [TraceSummary(**row._mapping) for row in rows]
        return [replace(s, query="") if s.query in hidden else s for s in summaries]


async def find_deleted(database: Database, user_id: str, keys: Collection[str]) -> set[str]:
    """Return the keys of deleted and expired memories and of hidden messages."""
    found: set[str] = set()
    for table, column in ((memories, memories.c.memory_key), (messages, messages.c.message_id)):
        of_user = (table.c.user_id == user_id, is_hidden(table))
        for batch in split(sorted(keys)):
            statement = select(column).where(*of_user, column.in_(list(batch)))
            found |= set(chain.from_iterable(await database.fetch(statement)))
    return found


async def find_deleted_questions(
    database: Database, questions: Collection[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return the (user, question) pairs whose message is hidden."""
    columns = (messages.c.user_id, messages.c.content)
    statement = select(*columns).where(is_hidden(messages))
    found: set[tuple[str, str]] = set()
    for condition in match_keys(columns, sorted(set(questions))):
        rows = await database.fetch(statement.where(condition))
        found |= {(row.user_id, row.content) for row in rows}
    return found


def withhold_contents(value: Any, names: frozenset[str] = _QUOTING) -> Any:
    """Return a body with empty texts in the fields that quote memories and messages."""
    if isinstance(value, list):
        return [withhold_contents(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: type(item)() if name in names and item is not None else withhold_contents(item, names)
        for name, item in value.items()
        if name not in names or name != "output"
    }


def _strings(value: Any) -> Iterator[str]:
    """Yield every text of a body."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def measure_body(body: dict[str, Any]) -> int:
    """Return the size of a body in bytes as it is stored; the limit is `BODY_BYTES`."""
    return len(json.dumps(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQuery:
    """Which recalls to list; None and empty texts select all."""

    text: str = ""  # a part of the question
    stop_reason: str = ""
    abstained: bool | None = None

    def conditions(self, columns: Any) -> list[ColumnElement[bool]]:
        """Return the conditions on the columns of the table or of a query of it."""
        conditions: list[ColumnElement[bool]] = []
        if self.text:
            conditions.append(columns.query.icontains(self.text, autoescape=True))
        if self.stop_reason:
            conditions.append(columns.stop_reason == self.stop_reason)
        if self.abstained is not None:
            conditions.append(columns.abstained.is_(self.abstained))
        return conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTrace(TraceSummary):
    """The outcome of a recall and its user."""

    user_id: str


@dataclass(frozen=True, slots=True)
class TraceOutcome:
    """How a recall ended."""

    stop_reason: str
    abstained: bool
    seconds: float


class TraceList:
    """The recalls of some users, or of all.

    A page looks at no more than `SCANNED_TRACES` recalls of an index, so that a rare match in a
    large database costs no more than a frequent one. It may have fewer items than asked for, or
    none, and still a next page.
    """

    def __init__(self, database: Database, cursor_secret: bytes) -> None:
        self._database = database
        self._secret = cursor_secret

    async def page(
        self,
        query: TraceQuery,
        limit: int,
        cursor: str | None = None,
        *,
        users: Collection[str] | None = None,
        agent_id: str | None = None,
    ) -> StoredPage[ListedTrace]:
        """Return a page of recalls, of one agent if it is given, the newest first."""
        require_limit("limit", limit, LARGEST_PAGE)
        named = None if users is None else sorted(users)
        binding = ["all traces", *astuple(query), named, agent_id]
        start = None
        if cursor is not None:
            created_at, *key = open_cursor(self._secret, binding, cursor)
            start = (parse_stored_time(created_at), *key)
        window = select_window(named, start, with_questions=bool(query.text))
        rows = await self._database.fetch(select_matches(window, query, agent_id, limit + 1))
        last = None  # the row that the next page follows
        if len(rows) > limit:
            last = rows[limit - 1]
        elif query != TraceQuery() or agent_id is not None:
            scanned = window.limit(1).offset(SCANNED_TRACES - 1)
            last = next(iter(await self._database.fetch(scanned)), None)
        items = await self._read_in_order([(row.user_id, row.trace_id) for row in rows[:limit]])
        if query.text:  # a hidden question must not be guessed
            items = [item for item in items if item.query]
        if last is None:
            return StoredPage(tuple(items))
        position = [last.created_at.isoformat(), last.user_id, last.trace_id]
        return StoredPage(tuple(items), seal_cursor(self._secret, binding, position))

    async def outcomes(
        self, since: datetime, *, users: Collection[str] | None = None, agent_id: str | None = None
    ) -> list[TraceOutcome]:
        """Return how the recalls since a time ended, the newest first; `SCANNED_TRACES` at most."""
        columns = [traces.c[name] for name in TraceOutcome.__slots__]
        statement = select(*columns).where(traces.c.created_at >= since)
        if users is not None:
            statement = statement.where(traces.c.user_id.in_(sorted(users)))
        if agent_id is not None:
            statement = statement.where(traces.c.agent_id == agent_id)
        latest_first = statement.order_by(*(column.desc() for column in _LIST_ORDER))
        rows = await self._database.fetch(latest_first.limit(SCANNED_TRACES))
        return [TraceOutcome(**row._mapping) for row in rows]

    async def _read_in_order(self, keys: Sequence[tuple[str, str]]) -> list[ListedTrace]:
        """Return the summaries of recalls, in the order of their keys."""
        statement = select(traces.c.user_id, *SUMMARY_COLUMNS)
        found: dict[tuple[str, str], ListedTrace] = {}
        for condition in match_keys(_LIST_ORDER[1:], keys):
            for row in await self._database.fetch(statement.where(condition)):
                found[row.user_id, row.trace_id] = ListedTrace(**row._mapping)
        items = [found[key] for key in keys if key in found]
        questions = {(item.user_id, item.query) for item in items}
        hidden = await find_deleted_questions(self._database, questions)
        return [replace(i, query="") if (i.user_id, i.query) in hidden else i for i in items]


def select_window(
    users: Sequence[str] | None, start: tuple[Any, ...] | None, *, with_questions: bool
) -> Select[Any]:
    """Return the query for the recalls after a position, matching or not."""
    others = [traces.c[name] for name in ("agent_id", "stop_reason", "abstained")]
    if with_questions:  # They are long: read if needed only.
        others.append(traces.c.query)
    statement = select(*_LIST_ORDER, *others).order_by(*(column.desc() for column in _LIST_ORDER))
    if users is not None:
        statement = statement.where(traces.c.user_id.in_(users))
    if start is not None:
        # The bound on the time alone lets the index seek; the rest decides between equal times.
        position = tuple_(literal(start[0], _LIST_ORDER[0].type), *map(literal, start[1:]))
        statement = statement.where(_LIST_ORDER[0] <= start[0], tuple_(*_LIST_ORDER) < position)
    return statement


def select_matches(
    window: Select[Any], query: TraceQuery, agent_id: str | None, limit: int
) -> Select[Any]:
    """Return the query for the positions that match, among the first of the window."""
    scanned = window.limit(SCANNED_TRACES).subquery().c
    conditions = query.conditions(scanned)
    if agent_id is not None:
        conditions.append(scanned.agent_id == agent_id)
    if not conditions:
        return window.limit(limit)
    order = [scanned[column.name] for column in _LIST_ORDER]
    matches = select(*order).where(*conditions)
    return matches.order_by(*(column.desc() for column in order)).limit(limit)


MAX_EVIDENCE = 100
MAX_LABELLED = 10_000
_WRITTEN = [column.name for column in feedback.c if not column.primary_key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a person said about a recall; with `in_evaluation`, a question to evaluate with."""

    user_id: str
    trace_id: str
    agent_id: str
    query: str
    asked_at: datetime
    is_right: bool
    evidence: tuple[str, ...]  # empty: nothing that is stored answers the question
    in_evaluation: bool
    actor: str
    updated_at: datetime


class FeedbackList:
    """The feedback of some users, or of all."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_many(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Feedback]:
        """Return the feedback on recalls by user and trace; most have none."""
        found: list[Feedback] = []
        for condition in match_keys((feedback.c.user_id, feedback.c.trace_id), sorted(keys)):
            found += await self._read(select(feedback).where(condition))
        return {(item.user_id, item.trace_id): item for item in found}

    async def labelled(
        self, users: Collection[str] | None = None, agent_id: str | None = None
    ) -> list[Feedback]:
        """Return the labelled questions, the latest first."""
        statement = select(feedback).where(feedback.c.in_evaluation)
        if users is not None:
            statement = statement.where(feedback.c.user_id.in_(sorted(users)))
        if agent_id is not None:
            statement = statement.where(feedback.c.agent_id == agent_id)
        latest = (feedback.c.updated_at.desc(), feedback.c.user_id, feedback.c.trace_id)
        return await self._read(statement.order_by(*latest).limit(MAX_LABELLED))

    async def _read(self, statement: Select[Any]) -> list[Feedback]:
        """Return feedback, without what names or quotes something deleted until that is undone."""
        items = [
            Feedback(
                user_id=row.user_id,
                trace_id=row.trace_id,
                agent_id=row.agent_id,
                query=row.query,
                asked_at=row.asked_at,
                is_right=row.is_right,
                evidence=tuple(row.evidence),
                in_evaluation=row.in_evaluation,
                actor=row.actor,
                updated_at=row.updated_at,
            )
            for row in await self._database.fetch(statement)
        ]
        questions = [(item.user_id, item.query) for item in items]
        hidden = await find_deleted_questions(self._database, questions)
        deleted: set[tuple[str, str]] = set()
        for user in {item.user_id for item in items}:
            keys = {key for item in items if item.user_id == user for key in item.evidence}
            deleted |= {(user, key) for key in await find_deleted(self._database, user, keys)}
        return [
            item
            for item in items
            if (item.user_id, item.query) not in hidden
            and deleted.isdisjoint((item.user_id, key) for key in item.evidence)
        ]


class FeedbackWriter:
    """Changes the feedback on the recalls of a scope."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def set(
        self,
        trace_id: str,
        *,
        is_right: bool,
        evidence: Sequence[str],
        in_evaluation: bool = False,
        actor: str = "",
    ) -> None:
        """Store feedback on a recall in place of an earlier one.

        NotFound if the scope has no such recall, InvalidArgument if it has no such evidence.
        """
        keys = list(dict.fromkeys(evidence))
        if len(keys) > MAX_EVIDENCE:
            raise InvalidArgument(
                f"{len(keys)} messages and memories are named", hint=f"Name up to {MAX_EVIDENCE}"
            )

        def work(connection: Connection) -> None:
            locks = lock_existing_user(connection, self._scope)
            columns = (traces.c.agent_id, traces.c.query, traces.c.body)
            statement = filter_scope(select(*columns), traces, self._scope)
            row = connection.execute(statement.where(traces.c.trace_id == trace_id)).first()
            if row is None:
                raise NotFound(f"there is no trace {trace_id!r}", hint="Check the id and the user")
            self._require_stored(connection, keys)
            now = row.body.get("now")  # the time that the question was about
            values = {
                "user_id": self._scope.user_id,
                "trace_id": trace_id,
                "agent_id": row.agent_id,
                "query": row.query,
                "asked_at": locks.now if now is None else datetime.fromisoformat(now),
                "is_right": is_right,
                "evidence": keys,
                "in_evaluation": in_evaluation,
                "actor": actor,
                "updated_at": locks.now,
            }
            connection.execute(upsert(connection, feedback, _WRITTEN), values)
            locks.save(connection, is_activity=False)

        await self._database.transact(work)

    async def remove(self, trace_id: str) -> None:
        """Remove the feedback on a recall, if there is any."""
        of_trace = (feedback.c.user_id == self._scope.user_id, feedback.c.trace_id == trace_id)
        statement = delete(feedback).where(*of_trace)
        if self._scope.agent_id is not None:
            statement = statement.where(feedback.c.agent_id == self._scope.agent_id)
        await self._database.transact(lambda c: c.execute(statement))

    def _require_stored(self, connection: Connection, keys: Sequence[str]) -> None:
        """Raise InvalidArgument unless the user has messages and memories of these keys."""
        missing = set(keys)
        for table, key in ((messages, messages.c.message_id), (memories, memories.c.memory_key)):
            visible = filter_scope(select(key), table, replace(self._scope, session_id=None))
            visible = visible.where(is_visible(table), key.in_(list(keys)))
            missing -= set(connection.scalars(visible))
        if missing:
            raise InvalidArgument(
                f"the user has no message or memory {min(missing)!r}", hint="Check the id"
            )
