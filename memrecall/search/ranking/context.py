"""Features from the surroundings of a row: speaker, neighbours, day and time."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import ALWAYS, NEVER, Floats, Mask, Rows, to_micros
from memrecall.text.times import TimeSpan

# An answer follows its question more often than it precedes it.
BEFORE, TWO_BEFORE, AFTER = 0.46, 0.31, 0.23
DAY = 86_400_000_000  # microseconds
# A question about a day may be answered up to two days before or after it; a question about a
# month is not answered in the days around that month.
NEARBY = 2 * DAY
_SHORT_SPAN = timedelta(days=3)
_MISSING_ROW_SCORE = -2.0  # lower than the score of most rows


def dialogue_rows(columns: Columns, version: int) -> Mask:
    """Return the messages with a neighbour by another speaker in their session."""

    def compute() -> Mask:
        before, after = columns.neighbours(version)
        table = columns.table
        voice = table.speaker * 8 + table.role  # an unnamed speaker is identified by the role
        padded = np.append(voice, -99)
        is_dialogue: Mask = (before >= 0) & (padded[before] != voice)
        is_dialogue |= (after >= 0) & (padded[after] != voice)
        return is_dialogue

    return columns.cached("dialogue", compute, version)


def neighbour_scores(columns: Columns, scores: Floats, version: int) -> Floats:
    """Return the weighted score of the messages around each dialogue row; 0 for other rows."""
    before, after = columns.neighbours(version)
    padded = np.append(scores, np.float32(0))  # index -1 means no row
    two_before = np.append(before, np.int32(-1))[before]
    around = BEFORE * padded[before] + TWO_BEFORE * padded[two_before] + AFTER * padded[after]
    weighted: Floats = (around * dialogue_rows(columns, version)).astype(np.float32)
    return weighted


class Days(NamedTuple):
    """Rows in the order of their days, and where each day begins."""

    order: Rows
    starts: Rows
    day_of: Rows  # for each position in the order, the number of its day


def _days(columns: Columns, offset: int) -> Days:
    number = (columns.table.ts + offset) // DAY
    order = np.argsort(number, kind="stable")
    ordered = number[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    return Days(order, np.flatnonzero(is_first), np.cumsum(is_first) - 1)


def day_scores(columns: Columns, scores: Floats, counted: Mask, offset: int) -> Floats:
    """Return the best score of another row of each row's day. Days begin at `offset`."""
    if not columns.rows:
        return np.zeros(0, dtype=np.float32)
    days = columns.cached(f"days{offset}", lambda: _days(columns, offset))
    ordered = np.where(counted, scores, np.float32(_MISSING_ROW_SCORE))[days.order]
    best = np.maximum.reduceat(ordered, days.starts)[days.day_of]
    # The first row with the best score of its day gets the second best.
    ties = np.flatnonzero(ordered == best)
    _, first = np.unique(days.day_of[ties], return_index=True)
    leaders = ties[first]
    rest = ordered.copy()
    rest[leaders] = _MISSING_ROW_SCORE
    best[leaders] = np.maximum.reduceat(rest, days.starts)[days.day_of[leaders]]
    others = np.empty(columns.rows, dtype=np.float32)
    others[days.order] = best
    return others


def time_scores(columns: Columns, spans: Sequence[TimeSpan]) -> tuple[Floats, Floats]:
    """Return 1 for rows within one of the spans, and 1 for rows just around short spans."""
    ts = columns.table.ts
    inside = np.zeros(columns.rows, dtype=np.bool_)
    around = np.zeros(columns.rows, dtype=np.bool_)
    for span in spans:
        start = ALWAYS if span.start is None else to_micros(span.start)
        end = NEVER if span.end is None else to_micros(span.end)
        inside |= (ts >= start) & (ts < end)
        if span.start and span.end and span.end - span.start <= _SHORT_SPAN:
            around |= (ts >= start - NEARBY) & (ts < end + NEARBY)
    return inside.astype(np.float32), (around & ~inside).astype(np.float32)


def speaker_scores(
    columns: Columns, speakers: Sequence[str], counted: Mask
) -> tuple[Floats, Floats]:
    """Return 1 for rows by the named speakers minus their share of all rows, and plain 1."""
    zeros = np.zeros(columns.rows, dtype=np.float32)
    if not speakers:
        return zeros, zeros
    table = columns.table
    is_named = np.isin(table.speaker, [table.names.find(name) for name in speakers])
    share = float(is_named[counted].mean()) if counted.any() else 0.0
    return is_named.astype(np.float32) - np.float32(share), is_named.astype(np.float32)


def length_scores(columns: Columns, counted: Mask) -> Floats:
    """Return the length of each row, in standard deviations of its logarithm."""
    logarithms = columns.cached(
        "log_lengths", lambda: np.log1p(columns.lengths()).astype(np.float32)
    )
    measured = logarithms[counted]
    if not len(measured):
        return np.zeros(columns.rows, dtype=np.float32)
    spread = max(float(measured.std()), 1e-6)
    scores: Floats = ((logarithms - measured.mean()) / np.float32(spread)).astype(np.float32)
    return scores
