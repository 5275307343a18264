"""What surrounds a row: who said it, what was said around it and that day, and when."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memrecall.search.index.columns import Columns, Mask
from memrecall.search.index.rows import ALWAYS, NEVER, to_micros
from memrecall.text.times import TimeSpan

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

# An answer follows its question more often than it precedes it.
BEFORE, BEFORE_THAT, AFTER = 0.46, 0.31, 0.23
DAY = 86_400_000_000  # microseconds
# A question about a day may be answered by what was said two days before or after it; one about a
# month is not helped by the days around that month.
NEARBY = 2 * DAY
_SHORT = timedelta(days=3)
_NOBODY = -2.0  # what a row that is not there scores: lower than most


def dialogue_rows(columns: Columns, version: int) -> Mask:
    """The messages whose neighbour in the session is by somebody else: people talk there."""

    def find() -> Mask:
        before, after = columns.sequence(version)
        table = columns.table
        voice = table.speaker * 8 + table.role  # a speaker without a name is known by the role
        padded = np.append(voice, -99)
        answered: Mask = (before >= 0) & (padded[before] != voice)
        answered |= (after >= 0) & (padded[after] != voice)
        return answered

    if version < columns.version:
        return find()
    return columns.derive("dialogue", find)


def neighbour_scores(columns: Columns, scores: Floats, version: int) -> Floats:
    """For each row of a dialogue, what was said around it scores; 0 for other rows."""
    before, after = columns.sequence(version)
    padded = np.append(scores, np.float32(0))  # row -1 is nobody
    before_that = np.append(before, np.int32(-1))[before]
    around = BEFORE * padded[before] + BEFORE_THAT * padded[before_that] + AFTER * padded[after]
    lifted: Floats = (around * dialogue_rows(columns, version)).astype(np.float32)
    return lifted


class Days(NamedTuple):
    """Rows in the order of their days, and where each day begins."""

    order: Numbers
    starts: Numbers
    day_of: Numbers  # for each place in the order, the number of its day


def _days(columns: Columns, offset: int) -> Days:
    number = (columns.table.ts + offset) // DAY
    order = np.argsort(number, kind="stable")
    ordered = number[order]
    fresh = np.append(True, ordered[1:] != ordered[:-1])
    return Days(order, np.flatnonzero(fresh), np.cumsum(fresh) - 1)


def day_scores(columns: Columns, scores: Floats, counted: Mask, offset: int) -> Floats:
    """For each row, the best that another row of its day scores. Days begin at `offset`."""
    if not columns.rows:
        return np.zeros(0, dtype=np.float32)
    days = columns.derive(f"days{offset}", lambda: _days(columns, offset))
    told = np.where(counted, scores, np.float32(_NOBODY))[days.order]
    best = np.maximum.reduceat(told, days.starts)[days.day_of]
    # The first row that is the best of its day has the second best beside it.
    leads = np.flatnonzero(told == best)
    _, first = np.unique(days.day_of[leads], return_index=True)
    leaders = leads[first]
    rest = told.copy()
    rest[leaders] = _NOBODY
    best[leaders] = np.maximum.reduceat(rest, days.starts)[days.day_of[leaders]]
    others = np.empty(columns.rows, dtype=np.float32)
    others[days.order] = best
    return others


def time_scores(columns: Columns, spans: Sequence[TimeSpan]) -> tuple[Floats, Floats]:
    """1 for rows said within one of the spans, else 0; and the same for just around short ones."""
    said = columns.table.ts
    inside = np.zeros(columns.rows, dtype=np.bool_)
    around = np.zeros(columns.rows, dtype=np.bool_)
    for span in spans:
        start = ALWAYS if span.start is None else to_micros(span.start)
        end = NEVER if span.end is None else to_micros(span.end)
        inside |= (said >= start) & (said < end)
        if span.start and span.end and span.end - span.start <= _SHORT:
            around |= (said >= start - NEARBY) & (said < end + NEARBY)
    return inside.astype(np.float32), (around & ~inside).astype(np.float32)


def speaker_scores(columns: Columns, named: Sequence[str], counted: Mask) -> tuple[Floats, Floats]:
    """1 for what the named people said, less the share they have of everything; else 0."""
    rows = np.zeros(columns.rows, dtype=np.float32)
    if not named:
        return rows, rows
    table = columns.table
    theirs = np.isin(table.speaker, [table.names.find(name) for name in named])
    share = float(theirs[counted].mean()) if counted.any() else 0.0
    return theirs.astype(np.float32) - np.float32(share), theirs.astype(np.float32)


def length_scores(columns: Columns, counted: Mask) -> Floats:
    """How long each row is, in standard deviations of the logarithm."""
    long = columns.derive("log_lengths", lambda: np.log1p(columns.lengths()).astype(np.float32))
    known = long[counted]
    if not len(known):
        return np.zeros(columns.rows, dtype=np.float32)
    spread = max(float(known.std()), 1e-6)
    scores: Floats = ((long - known.mean()) / np.float32(spread)).astype(np.float32)
    return scores
