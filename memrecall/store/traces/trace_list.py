"""Lists of recalls over several users or all, filtered and sorted, for people who debug."""

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, and_, or_, select, tuple_

from memrecall.errors import InvalidArgument
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
from memrecall.store.traces.records import (
    SUMMARY_COLUMNS,
    TraceSummary,
    find_deleted_questions,
)
from memrecall.types import parse_stored_time

SCANNED_TRACES = 5_000  # that one page of a filtered list looks at, at most
# The column of each order, and whether the largest value comes first.
_ORDERS: dict[str, tuple[Column[Any], bool]] = {
    "newest": (traces.c.created_at, True),
    "oldest": (traces.c.created_at, False),
    "least_confident": (traces.c.confidence, False),
    "most_confident": (traces.c.confidence, True),
    "slowest": (traces.c.seconds, True),
    "fastest": (traces.c.seconds, False),
}
TRACE_ORDERS = tuple(_ORDERS)
_KEY = (traces.c.user_id, traces.c.trace_id)
_SMALL_COLUMNS = ("agent_id", "stop_reason", "confidence", "abstained", "seconds")

Position = tuple[Any, str, str]  # the value of the order's column, the user and the trace


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQuery:
    """Which recalls to list, and in which order; None and empty texts select all."""

    text: str = ""  # a part of the question
    stop_reason: str = ""
    model: str = ""  # a part of its name
    abstained: bool | None = None
    min_confidence: float | None = None
    max_confidence: float | None = None
    min_seconds: float | None = None
    order: str = "newest"

    def __post_init__(self) -> None:
        if self.order not in _ORDERS:
            raise InvalidArgument(
                f"unknown order {self.order!r}", hint=f"Use {', '.join(TRACE_ORDERS)}"
            )

    def conditions(self, columns: Any) -> list[ColumnElement[bool]]:
        """Return the conditions on the columns of the table or of a query of it."""
        texts = (("query", self.text), ("model", self.model))
        conditions = [columns[n].icontains(text, autoescape=True) for n, text in texts if text]
        if self.stop_reason:
            conditions.append(columns.stop_reason == self.stop_reason)
        if self.abstained is not None:
            conditions.append(columns.abstained.is_(self.abstained))
        if self.min_confidence is not None:
            conditions.append(columns.confidence >= self.min_confidence)
        if self.max_confidence is not None:
            conditions.append(columns.confidence <= self.max_confidence)
        if self.min_seconds is not None:
            conditions.append(columns.seconds >= self.min_seconds)
        return conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTrace(TraceSummary):
    """The outcome of a recall and its user."""

    user_id: str


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
        """Return a page of recalls, of one agent if it is given."""
        require_limit("limit", limit, LARGEST_PAGE)
        named = None if users is None else sorted(users)
        binding = ["all traces", *astuple(query), named, agent_id]
        start = None
        if cursor is not None:
            start = _parse_position(query, open_cursor(self._secret, binding, cursor))
        positions, end = await self._find(_Search(query, named, agent_id, limit, start))
        items = await self._read([(user, trace) for _, user, trace in positions])
        if query.text:  # a hidden question must not be guessed
            items = [item for item in items if item.query]
        if end is None:
            return StoredPage(tuple(items))
        value, *key = end
        position = [value.isoformat() if isinstance(value, datetime) else value, *key]
        return StoredPage(tuple(items), seal_cursor(self._secret, binding, position))

    async def _find(self, search: "_Search") -> tuple[list[Position], Position | None]:
        """Return the positions of a page, and the one that the next page follows, if any."""
        rows = await self._database.fetch(search.select_matches())
        positions = list(map(_read_position, rows))
        if len(positions) > search.limit:
            return positions[: search.limit], positions[search.limit - 1]
        if not search.is_filtered:
            return positions, None
        last = await self._database.fetch(search.select_window().offset(SCANNED_TRACES - 1))
        return positions, _read_position(last[0]) if last else None

    async def _read(self, keys: Sequence[tuple[str, str]]) -> list[ListedTrace]:
        """Return the summaries of some recalls, in the order of the keys."""
        statement = select(traces.c.user_id, *SUMMARY_COLUMNS)
        found: dict[tuple[str, str], ListedTrace] = {}
        for condition in match_keys(_KEY, keys):
            for row in await self._database.fetch(statement.where(condition)):
                found[row.user_id, row.trace_id] = ListedTrace(**row._mapping)
        items = [found[key] for key in keys if key in found]
        questions = {(item.user_id, item.query) for item in items}
        hidden = await find_deleted_questions(self._database, questions)
        return [replace(i, query="") if (i.user_id, i.query) in hidden else i for i in items]


@dataclass(frozen=True, slots=True)
class _Search:
    """One page of a list as statements."""

    query: TraceQuery
    users: Sequence[str] | None
    agent_id: str | None
    limit: int
    start: Position | None

    @property
    def is_descending(self) -> bool:
        return _ORDERS[self.query.order][1]

    @property
    def is_filtered(self) -> bool:
        """True if not every recall in the order of the list matches."""
        return bool(self._conditions(traces.c))

    def select_matches(self) -> Select[Any]:
        """Return the query for the positions that match, one more than the page has."""
        if not self.is_filtered:
            return self.select_window(self.limit + 1)
        window = self.select_window(SCANNED_TRACES).subquery()
        order = [window.c[column.name] for column in self._order_columns]
        statement = select(*order).where(*self._conditions(window.c))
        return self._sort(statement, order).limit(self.limit + 1)

    def select_window(self, size: int = 1) -> Select[Any]:
        """Return the query for the next recalls in the order of the list, matching or not."""
        order = self._order_columns
        texts = (("query", self.query.text), ("model", self.query.model))
        # The model is stored behind the large body, and questions are long: read if needed only.
        names = [*_SMALL_COLUMNS, *(name for name, text in texts if text)]
        others = [traces.c[name] for name in names if name != order[0].name]
        statement = select(*order, *others)
        if self.users is not None:
            statement = statement.where(traces.c.user_id.in_(self.users))
        if self.start is not None:
            statement = statement.where(self._come_after(self.start))
        return self._sort(statement, order).limit(size)

    @property
    def _order_columns(self) -> list[Column[Any]]:
        return [_ORDERS[self.query.order][0], *_KEY]

    def _sort(self, statement: Select[Any], order: Sequence[ColumnElement[Any]]) -> Select[Any]:
        return statement.order_by(*(c.desc() for c in order) if self.is_descending else order)

    def _come_after(self, position: Position) -> ColumnElement[bool]:
        value, *key = position
        column, other = self._order_columns[0], tuple_(*_KEY)
        if self.is_descending:
            return and_(column <= value, or_(column < value, other < tuple_(*key)))
        return and_(column >= value, or_(column > value, other > tuple_(*key)))

    def _conditions(self, columns: Any) -> list[ColumnElement[bool]]:
        conditions = self.query.conditions(columns)
        if self.agent_id is not None:
            conditions.append(columns.agent_id == self.agent_id)
        return conditions


def _read_position(row: Any) -> Position:
    return (row[0], row[1], row[2])


def _parse_position(query: TraceQuery, values: Sequence[Any]) -> Position:
    value, user, trace = values
    is_time = _ORDERS[query.order][0] is traces.c.created_at
    return (parse_stored_time(value) if is_time else float(value), user, trace)
