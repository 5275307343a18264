"""Traces: what each recall of a user did, kept for a while."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Select, Text, and_, cast, delete, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql import ColumnElement

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.cursors import open_cursor, seal_cursor
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, claim_known
from memrecall.store.database.statements import new_id
from memrecall.store.database.tables import traces
from memrecall.types import Content, Id, JsonObject, Label, Moment, parse_time

PAGE_SIZE = 50
LARGEST_PAGE = 200
LOOKED_THROUGH = 100
BODY_BYTES = 1024 * 1024
LONGEST_KEPT = 36_500  # days: a hundred years

_Count = Annotated[int, Field(ge=0, lt=2**31)]
_SUMMARY = [column for column in traces.c if column.name not in ("user_id", "body")]


class NewTrace(BaseModel):
    """A recall to be recorded. Without `trace_id` it gets one; without `created_at` it was now."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    query: Content
    stop_reason: Label
    confidence: float = Field(ge=0.0, le=1.0)
    abstained: bool
    iterations: _Count
    model_calls: _Count
    tool_calls: _Count
    seconds: float = Field(ge=0.0, allow_inf_nan=False)
    body: JsonObject
    trace_id: Id | None = None
    created_at: Moment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What a recall came to, without its events."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrace(TraceSummary):
    """A recall with all its events."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TracePage:
    """Some traces, and the cursor of those that follow (None: there are no more)."""

    items: tuple[TraceSummary, ...]
    next_cursor: str | None = None


class Traces:
    """The traces of one scope."""

    def __init__(self, database: Database, scope: Scope, cursor_secret: bytes) -> None:
        self._database = database
        self._scope = scope
        self._secret = cursor_secret

    async def add(self, trace: NewTrace, keep_days: int) -> str:
        """Record a recall of a known user, and drop what is older than `keep_days`; its id."""
        _check_days(keep_days)
        _check_body(trace.body)
        now = datetime.now(UTC)
        row = {
            **trace.model_dump(),
            "trace_id": trace.trace_id or new_id("t"),
            "created_at": trace.created_at or now,
            "user_id": self._scope.user_id,
            "agent_id": agent_of(self._scope),
            "session_id": self._scope.session_id,
        }
        oldest = now - timedelta(days=keep_days)
        await self._database.transact(lambda connection: self._add(connection, row, now, oldest))
        return str(row["trace_id"])

    async def get(self, trace_id: str) -> StoredTrace:
        """The trace of that id with its body; NotFound if this scope has none."""
        wanted = self._only_mine(select(*_SUMMARY, traces.c.body))
        rows = await self._database.fetch(wanted.where(traces.c.trace_id == trace_id))
        if not rows:
            raise NotFound(f"there is no trace {trace_id!r}", hint="Check the id and the user")
        return StoredTrace(**rows[0]._mapping)

    async def page(self, limit: int = PAGE_SIZE, cursor: str | None = None) -> TracePage:
        """Summaries from the latest to the earliest, `limit` at a time."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise InvalidArgument(f"limit {limit} is out of range", hint=f"Use 1 to {LARGEST_PAGE}")
        wanted = self._only_mine(select(*_SUMMARY))
        binding = ["traces", self._scope.user_id, self._scope.agent_id]
        if cursor is not None:
            created_at, trace_id = open_cursor(self._secret, binding, cursor)
            wanted = wanted.where(_made_before(parse_time(created_at), trace_id))
        newest_first = wanted.order_by(traces.c.created_at.desc(), traces.c.trace_id)
        # One more than asked tells whether there is a next page.
        rows = await self._database.fetch(newest_first.limit(limit + 1))
        items = tuple(TraceSummary(**row._mapping) for row in rows[:limit])
        if len(rows) <= limit:
            return TracePage(items)
        place = [items[-1].created_at.isoformat(), items[-1].trace_id]
        return TracePage(items, seal_cursor(self._secret, binding, place))

    async def since(self, moment: datetime, limit: int) -> list[TraceSummary]:
        """The recalls made from a moment on, the latest first, at most so many."""
        wanted = self._only_mine(select(*_SUMMARY)).where(traces.c.created_at >= moment)
        ordered = wanted.order_by(traces.c.created_at.desc(), traces.c.trace_id)
        rows = await self._database.fetch(ordered.limit(limit))
        return [TraceSummary(**row._mapping) for row in rows]

    async def find_mentions(self, key: str, among: int = LOOKED_THROUGH) -> list[TraceSummary]:
        """Of the latest recalls those that speak of a memory or message, the latest first."""
        latest = self._only_mine(select(traces.c.trace_id))
        newest_first = latest.order_by(traces.c.created_at.desc(), traces.c.trace_id)
        named = cast(traces.c.body, Text).contains(json.dumps(key), autoescape=True)
        wanted = self._only_mine(select(*_SUMMARY)).where(
            traces.c.trace_id.in_(newest_first.limit(among).scalar_subquery()), named
        )
        ordered = wanted.order_by(traces.c.created_at.desc(), traces.c.trace_id)
        rows = await self._database.fetch(ordered)
        return [TraceSummary(**row._mapping) for row in rows]

    def _only_mine(self, wanted: Select[Any]) -> Select[Any]:
        wanted = wanted.where(traces.c.user_id == self._scope.user_id)
        if self._scope.agent_id is not None:
            wanted = wanted.where(traces.c.agent_id == self._scope.agent_id)
        return wanted

    async def _add(
        self, connection: AsyncConnection, row: dict[str, Any], now: datetime, oldest: datetime
    ) -> None:
        claims = await claim_known(connection, self._scope, now)
        of_user = traces.c.user_id == self._scope.user_id
        # First, so that the new one stays even if it tells of an old recall.
        await connection.execute(delete(traces).where(of_user, traces.c.created_at < oldest))
        taken = select(traces.c.query, traces.c.body)
        taken = taken.where(of_user, traces.c.trace_id == row["trace_id"])
        stored = (await connection.execute(taken)).mappings().one_or_none()
        if stored is None:
            await connection.execute(insert(traces), row)
        else:
            _require_same(row, stored)
        await claims.release(connection)  # active, and of the same version: nothing to search for


def measure_body(body: dict[str, Any]) -> int:
    """How many bytes a body takes as it is stored; at most `BODY_BYTES` are."""
    return len(json.dumps(body))


def _check_body(body: dict[str, Any]) -> None:
    size = measure_body(body)
    if size > BODY_BYTES:
        raise InvalidArgument(
            f"the trace's body has {size} bytes of JSON",
            hint=f"Cut it to {BODY_BYTES}",
            size=size,
        )


def _check_days(keep_days: int) -> None:
    if not 1 <= keep_days <= LONGEST_KEPT:
        raise InvalidArgument(
            f"keep_days {keep_days} is out of range", hint=f"Use 1 to {LONGEST_KEPT}"
        )


def _require_same(row: dict[str, Any], stored: Any) -> None:
    for name in ("query", "body"):
        if row[name] != stored[name]:
            raise Conflict(
                f"trace {row['trace_id']!r} is already stored with another {name}",
                hint="Give the new trace its own id",
                trace_id=row["trace_id"],
            )


def _made_before(created_at: datetime, trace_id: str) -> ColumnElement[bool]:
    """What follows a place on a page: earlier, or as early with a greater id."""
    tie = and_(traces.c.created_at == created_at, traces.c.trace_id > trace_id)
    # The bound on the time alone lets the index seek; the rest decides the tie.
    return and_(traces.c.created_at <= created_at, or_(traces.c.created_at < created_at, tie))
