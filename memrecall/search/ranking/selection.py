"""Which rows may be found, and the first of them in order."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memrecall.scope import Permission, Scope
from memrecall.search.index.columns import Columns, Mask
from memrecall.search.index.rows import ALWAYS, MESSAGE, NEVER, role_number, to_micros
from memrecall.search.ranking.lexical import match_words
from memrecall.search.request import KINDS, SearchRequest

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class RankPosition(NamedTuple):
    """Where a row stands in the order: score, then the later first, then the key."""

    score: float
    ts: int
    key: str


class Visible(NamedTuple):
    """The rows that pass the filters; and those that only a missing permission hides."""

    open: Mask
    withheld: Mask


def visible_rows(
    columns: Columns, scope: Scope, request: SearchRequest, alive: Mask, now: datetime
) -> Visible:
    """Apply scope and filters, before anything is ranked."""
    table = columns.table
    passed = alive & _valid_at(columns, now)
    for condition in _asked_for(columns, request):
        passed &= condition
    if scope.agent_id is not None:
        passed &= table.agent == table.names.find(scope.agent_id)
    if scope.allows(Permission.SENSITIVE):
        return Visible(passed, np.zeros_like(passed))
    return Visible(passed & ~table.sensitive, passed & table.sensitive)


def living_rows(columns: Columns, request: SearchRequest, version: int) -> Mask:
    """The rows there are, as if what is excluded had never been written."""
    alive = columns.alive(version)
    rows = [columns.row_of(kind, key) for key in request.exclude for kind in KINDS]
    excluded = [row for row in rows if row is not None]
    if excluded:
        alive = alive.copy()
        alive[excluded] = False
    return alive


def _valid_at(columns: Columns, now: datetime) -> Mask | bool:
    table, moment = columns.table, to_micros(now)
    bounded = columns.derive(
        "bounded", lambda: bool(((table.valid_from != ALWAYS) | (table.valid_to != NEVER)).any())
    )
    if not bounded:
        return True
    valid: Mask = (table.valid_from <= moment) & (table.valid_to > moment)
    return valid


def _asked_for(columns: Columns, request: SearchRequest) -> Iterator[Mask]:
    """A condition for each filter that is set."""
    table = columns.table
    if request.since is not None:
        yield table.ts >= to_micros(request.since)
    if request.until is not None:
        yield table.ts < to_micros(request.until)
    if request.role is not None:
        yield table.role == role_number(request.role)
    if request.kind is not None:
        yield table.kind == KINDS.index(request.kind)
    if request.session_id is not None:
        yield table.session == table.names.find(request.session_id)
    if request.memory_types:
        types = [table.names.find(name) for name in request.memory_types]
        messages_too = "message" in request.memory_types
        yield np.isin(table.memory_type, types) | (messages_too & (table.kind == MESSAGE))
    if request.only is not None:
        yield _named(columns, request.only)
    if request.keywords:
        yield np.logical_or.reduce([match_words(columns, word) for word in request.keywords])


def _named(columns: Columns, keys: frozenset[str]) -> Mask:
    rows = [columns.row_of("memory", key) for key in keys]
    mask = np.zeros(columns.rows, dtype=np.bool_)
    mask[[row for row in rows if row is not None]] = True
    return mask


def first_places(
    columns: Columns,
    rows: Rows,
    scores: Floats,
    wanted: Mask,
    limit: int,
    after: RankPosition | None,
) -> list[int]:
    """Where in `rows` the first `limit` wanted ones are, by score, time and key."""
    places = np.flatnonzero(wanted)
    if after is not None:
        places = places[_comes_after(columns, rows[places], scores[places], after)]
    places = _cut(places, scores[places], limit)
    if len(places) > limit:
        # Many share the last score: time decides before keys are compared one by one.
        last = scores[places].min()
        better, level = places[scores[places] > last], places[scores[places] == last]
        level = _cut(level, columns.table.ts[rows[level]], limit - len(better))
        places = np.concatenate([better, level])

    def order(at: int) -> tuple[float, int, str]:
        place = place_of(columns, int(rows[at]), float(scores[at]))
        return -place.score, -place.ts, place.key

    return sorted(places.tolist(), key=order)[:limit]


def place_of(columns: Columns, row: int, score: float) -> RankPosition:
    """Where a row of that score stands."""
    return RankPosition(score, int(columns.table.ts[row]), columns.table.keys[row])


def _cut(places: Rows, values: npt.NDArray[np.generic], limit: int) -> Rows:
    """The places of the `limit` largest values, and all that are level with the last of them."""
    if len(places) <= limit:
        return places
    least = np.partition(values, len(values) - limit)[len(values) - limit]
    enough: Mask = values >= least
    return places[enough]


def _comes_after(columns: Columns, rows: Rows, scores: Floats, place: RankPosition) -> Mask:
    ts = columns.table.ts[rows]
    level = scores == np.float32(place.score)
    behind: Mask = (scores < np.float32(place.score)) | (level & (ts < place.ts))
    for at in np.flatnonzero(level & (ts == place.ts)):
        behind[at] = columns.table.keys[rows[at]] > place.key
    return behind
