"""Traces: the events of each recall of a user, stored for some days."""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, Select, delete, insert, select

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
)
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, lock_existing_user
from memrecall.store.database.statements import filter_scope, match_keys, mentions, new_id, split
from memrecall.store.database.tables import is_hidden, memories, messages, traces
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

_Count = Annotated[int, Field(ge=0, lt=2**31)]
_ORDER = (traces.c.created_at, traces.c.trace_id)
# The fields of a body that quote what was recalled, or that a model wrote with it in view.
_QUOTING = frozenset(
    {
        *("content", "summary", "search_summary", "message", "reasoning", "question", "text"),
        *("output", "arguments", "before", "after", "sources", "times", "missing"),
        *("problem", "error"),
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
        oldest = now - timedelta(days=keep_days)
        await self._database.transact(lambda connection: self._add(connection, row, oldest))
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
        """Return a trace with its body; NotFound if the scope has none of that id."""
        statement = self._filter(select(*SUMMARY_COLUMNS, traces.c.body))
        rows = await self._database.fetch(statement.where(traces.c.trace_id == trace_id))
        if not rows:
            raise NotFound(f"there is no trace {trace_id!r}", hint="Check the id and the user")
        return await self._withhold(StoredTrace(**rows[0]._mapping))

    async def _withhold(self, trace: StoredTrace) -> StoredTrace:
        """Return a trace without the contents of what is deleted, until that is undone."""
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
        statement = self._filter(select(*SUMMARY_COLUMNS))
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
        statement = self._filter(select(*SUMMARY_COLUMNS)).where(traces.c.created_at >= moment)
        return await self._fetch_latest(statement, limit)

    async def find_mentions(self, key: str, among: int = SEARCHED_TRACES) -> list[TraceSummary]:
        """Return those of the latest recalls that name a memory or message, latest first."""
        latest = self._filter(select(traces.c.trace_id)).order_by(_ORDER[0].desc(), _ORDER[1])
        names_key = mentions(traces.c.body, [key])
        is_latest = traces.c.trace_id.in_(latest.limit(among).scalar_subquery())
        return await self._fetch_latest(
            self._filter(select(*SUMMARY_COLUMNS)).where(is_latest, names_key), among
        )

    def _filter(self, statement: Select[Any]) -> Select[Any]:
        return filter_scope(statement, traces, self._scope)

    async def _fetch_latest(self, statement: Select[Any], limit: int) -> list[TraceSummary]:
        latest_first = statement.order_by(_ORDER[0].desc(), _ORDER[1]).limit(limit)
        rows = await self._database.fetch(latest_first)
        questions = {(self._scope.user_id, row.query) for row in rows}
        hidden = {query for _, query in await find_deleted_questions(self._database, questions)}
        summaries = [TraceSummary(**row._mapping) for row in rows]
        return [replace(s, query="") if s.query in hidden else s for s in summaries]

    def _add(self, connection: Connection, row: dict[str, Any], oldest: datetime) -> None:
        locks = lock_existing_user(connection, self._scope)
        of_user = traces.c.user_id == self._scope.user_id
        # Deleted before the insert: the new trace stays even if it records an old recall.
        connection.execute(delete(traces).where(of_user, traces.c.created_at < oldest))
        statement = select(traces.c.query, traces.c.body)
        statement = statement.where(of_user, traces.c.trace_id == row["trace_id"])
        stored = connection.execute(statement).mappings().one_or_none()
        if stored is None:
            connection.execute(insert(traces), row)
        else:
            _require_equal(row, stored)
        locks.save(connection)  # the version stays: a search finds nothing new


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


def _require_equal(row: dict[str, Any], stored: Any) -> None:
    for name in ("query", "body"):
        if row[name] != stored[name]:
            raise Conflict(
                f"trace {row['trace_id']!r} is already stored with another {name}",
                hint="Give the new trace its own id",
                trace_id=row["trace_id"],
            )
