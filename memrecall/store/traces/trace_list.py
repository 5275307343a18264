"""Lists of recalls over several users or all, filtered, for people who debug."""

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, literal, select, tuple_

from memrecall.store.database.cursors import (
    LARGEST_PAGE,
    StoredPage,
    open_cursor,
    require_limit,
    seal_cursor,
)
from memrecall.store.database.engine import Database
from memrecall.store.database.statements import match_keys
from memrecall.store.database.tables import traces
from memrecall.store.traces.records import SUMMARY_COLUMNS, TraceSummary, find_deleted_questions
from memrecall.types import parse_stored_time

SCANNED_TRACES = 5_000  # that one page of a filtered list looks at, at most
_ORDER = (traces.c.created_at, traces.c.user_id, traces.c.trace_id)  # the newest first
_NAMES = [column.name for column in _ORDER]

Position = tuple[datetime, str, str]


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
        positions, end = await self._find(window, query, agent_id, limit)
        items = await self._read([(user, trace) for _, user, trace in positions])
        if query.text:  # a hidden question must not be guessed
            items = [item for item in items if item.query]
        if end is None:
            return StoredPage(tuple(items))
        position = [end[0].isoformat(), *end[1:]]
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
        latest = statement.order_by(*(column.desc() for column in _ORDER)).limit(SCANNED_TRACES)
        return [TraceOutcome(**row._mapping) for row in await self._database.fetch(latest)]

    async def _find(
        self, window: Select[Any], query: TraceQuery, agent_id: str | None, limit: int
    ) -> tuple[list[Position], Position | None]:
        """Return the positions of a page, and the one that the next page follows, if any."""
        rows = await self._database.fetch(select_matches(window, query, agent_id, limit + 1))
        positions = [_read_position(row) for row in rows]
        if len(positions) > limit:
            return positions[:limit], positions[limit - 1]
        if query == TraceQuery() and agent_id is None:
            return positions, None
        last = await self._database.fetch(window.limit(1).offset(SCANNED_TRACES - 1))
        return positions, _read_position(last[0]) if last else None

    async def _read(self, keys: Sequence[tuple[str, str]]) -> list[ListedTrace]:
        """Return the summaries of some recalls, in the order of the keys."""
        statement = select(traces.c.user_id, *SUMMARY_COLUMNS)
        found: dict[tuple[str, str], ListedTrace] = {}
        for condition in match_keys(_ORDER[1:], keys):
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
    statement = select(*_ORDER, *others).order_by(*(column.desc() for column in _ORDER))
    if users is not None:
        statement = statement.where(traces.c.user_id.in_(users))
    if start is not None:
        # The bound on the time alone lets the index seek; the rest decides between equal times.
        position = tuple_(literal(start[0], _ORDER[0].type), *map(literal, start[1:]))
        statement = statement.where(_ORDER[0] <= start[0], tuple_(*_ORDER) < position)
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
    order = [scanned[name] for name in _NAMES]
    matches = select(*order).where(*conditions)
    return matches.order_by(*(column.desc() for column in order)).limit(limit)


def _read_position(row: Any) -> Position:
    return (row[0], row[1], row[2])
