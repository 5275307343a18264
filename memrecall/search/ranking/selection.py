"""Which rows may be results, and the first of them in order."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memrecall.scope import Permission, Scope
from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import (
    ALWAYS,
    MESSAGE,
    NEVER,
    NONE,
    ROLES,
    Floats,
    Mask,
    Rows,
    to_micros,
)
from memrecall.search.ranking.lexical import match_words
from memrecall.search.request import KINDS, SearchRequest
from memrecall.store import MessageFilter
from memrecall.text.times import TimeSpan

_FAR = 1 << 62  # microseconds, before and after every time


class RankPosition(NamedTuple):
    """A row's position in the order: by score, then the latest first, then by key."""

    score: float
    ts: int
    key: str

    @classmethod
    def of(cls, columns: Columns, row: int, score: float) -> "RankPosition":
        """Return the position of a row with a score."""
        return cls(score, int(columns.table.ts[row]), columns.table.keys[row])


class VisibleRows(NamedTuple):
    """The rows that pass the filters, and those that only a missing permission hides."""

    open: Mask
    withheld: Mask
    nearest: datetime | None  # see `SearchPage`


def visible_rows(
    columns: Columns, scope: Scope, request: SearchRequest, alive: Mask, now: datetime
) -> VisibleRows:
    """Apply scope and filters, before anything is ranked."""
    table = columns.table
    valid = request.with_expired or _valid_at(columns, request.valid_at or now)
    passing = in_scope(columns, scope, alive & valid)
    for condition in _conditions(columns, request):
        passing &= condition
    is_hidden = np.bool_(not scope.allows(Permission.SENSITIVE)) & table.sensitive
    visible, nearest = in_period(columns, passing & ~is_hidden, request.period)
    withheld, _ = in_period(columns, passing & is_hidden, request.period)
    return VisibleRows(visible, withheld, nearest)


def in_period(
    columns: Columns, rows: Mask, period: TimeSpan | None
) -> tuple[Mask, datetime | None]:
    """Return the rows of a period and, if it has none, the time of the row closest to it."""
    if period is None:
        return rows, None
    start = to_micros(period.start) if period.start else -_FAR
    end = to_micros(period.end) if period.end else _FAR
    ts = columns.table.ts
    inside: Mask = rows & (ts >= start) & (ts < end)
    if inside.any() or not rows.any():
        return inside, None
    times = ts[rows]
    nearest = int(times[np.maximum(start - times, times - end).argmin()])
    return inside, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nearest)


def in_scope(columns: Columns, scope: Scope, rows: Mask) -> Mask:
    """Return the rows of the scope's agent, and of its project or of none, if it has them."""
    table = columns.table
    if scope.agent_id is not None:
        rows = rows & (table.agent == table.names.find(scope.agent_id))
    if scope.read_project is not None:
        number = table.names.find(scope.read_project)
        rows = rows & ((table.project == number) | (table.project == NONE))
    return rows


def living_rows(columns: Columns, request: SearchRequest, version: int) -> Mask:
    """Return the rows at a version, as if excluded ones had never been written."""
    alive = columns.alive(version)
    rows = [columns.row_of(kind, key) for key in request.exclude for kind in KINDS]
    excluded = [row for row in rows if row is not None]
    if excluded:
        alive = alive.copy()
        alive[excluded] = False
    return alive


def _valid_at(columns: Columns, now: datetime) -> Mask | bool:
    table, moment = columns.table, to_micros(now)
    is_bounded = columns.cached(
        "bounded", lambda: bool(((table.valid_from != ALWAYS) | (table.valid_to != NEVER)).any())
    )
    if not is_bounded:
        return True
    valid: Mask = (table.valid_from <= moment) & (table.valid_to > moment)
    return valid


def filter_conditions(
    columns: Columns, conditions: SearchRequest | MessageFilter
) -> Iterator[Mask]:
    """Yield a mask for each filter on time, role and session that is set."""
    table = columns.table
    if conditions.since is not None:
        yield table.ts >= to_micros(conditions.since)
    if conditions.until is not None:
        yield table.ts < to_micros(conditions.until)
    if conditions.role is not None:
        yield table.role == ROLES[conditions.role]
    if conditions.session_id is not None:
        yield table.session == table.names.find(conditions.session_id)


def _conditions(columns: Columns, request: SearchRequest) -> Iterator[Mask]:
    table = columns.table
    yield from filter_conditions(columns, request)
    if request.kind is not None:
        yield table.kind == KINDS.index(request.kind)
    if request.memory_types:
        types = [table.names.find(name) for name in request.memory_types]
        includes_messages = "message" in request.memory_types
        yield np.isin(table.memory_type, types) | (includes_messages & (table.kind == MESSAGE))
    of_memories = "knowledge" if request.kind == "knowledge" else "memory"
    for kind, keys in ((of_memories, request.only), ("message", request.only_messages)):
        if keys is not None:
            rows = [columns.row_of(kind, key) for key in keys]
            mask = table.kind != KINDS.index(kind)
            mask[[row for row in rows if row is not None]] = True
            yield mask
    if request.keywords:
        yield np.logical_or.reduce([match_words(columns, word) for word in request.keywords])


def top_positions(
    columns: Columns,
    rows: Rows,
    scores: Floats,
    eligible: Mask,
    limit: int,
    after: RankPosition | None,
) -> list[int]:
    """Return the indexes into `rows` of the first `limit` eligible rows in order."""
    places = eligible.nonzero()[0]
    if after is not None:
        places = places[_comes_after(columns, rows[places], scores[places], after)]
    places = _largest(places, scores[places], limit)
    if len(places) > limit:
        # Many rows share the last score: time decides before keys are compared one by one.
        last = scores[places].min()
        better, level = places[scores[places] > last], places[scores[places] == last]
        level = _largest(level, columns.table.ts[rows[level]], limit - len(better))
        places = np.concatenate([better, level])

    ranked = rows[places]
    order = zip(
        (-scores[places]).tolist(),
        (-columns.table.ts[ranked]).tolist(),
        [columns.table.keys[row] for row in ranked.tolist()],
        places.tolist(),
        strict=True,
    )
    return [place for *_, place in sorted(order)[:limit]]


def _largest(places: Rows, values: npt.NDArray[np.generic], limit: int) -> Rows:
    """Return the places of the `limit` largest values and of all ties with the last of them."""
    if len(places) <= limit:
        return places
    lowest = np.partition(values, len(values) - limit)[len(values) - limit]
    is_large: Mask = values >= lowest
    return places[is_large]


def _comes_after(columns: Columns, rows: Rows, scores: Floats, position: RankPosition) -> Mask:
    ts = columns.table.ts[rows]
    is_level = scores == np.float32(position.score)
    is_after: Mask = (scores < np.float32(position.score)) | (is_level & (ts < position.ts))
    for at in np.flatnonzero(is_level & (ts == position.ts)):
        is_after[at] = columns.table.keys[rows[at]] > position.key
    return is_after
