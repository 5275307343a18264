"""The context of rows: what was said before them and by whom, on which day, how long they are.

In a conversation a subject is named once and then spoken of: "the phone is …" belongs to the shop
that was named three lines before. So a line inherits the words of the earlier lines of its session,
the nearer the more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import ALWAYS, MESSAGE, NEVER, Floats, Mask, Rows, to_micros
from memrecall.search.ranking.lexical import SearchTerm, Spans, language_cost, posting_rows
from memrecall.text.times import TimeSpan

DAY = 86_400_000_000  # microseconds
# A question about a day may be answered up to two days before or after it; a question about a
# month is not answered in the days around that month.
NEARBY = 2 * DAY
_SHORT_SPAN = timedelta(days=3)
_HALF_TRUST_ROWS = 8  # with this many rows, lengths count half
_MISSING_ROW_SCORE = -2.0  # lower than the score of most rows
_REACH = 16  # lines
PAUSE = DAY // 2  # after a longer one, people speak of something else
_DECAY = np.float32(0.9) ** np.arange(_REACH + 1, dtype=np.float32)


class SessionOrder(NamedTuple):
    """All rows, those of a session in a run, by time; a long pause begins another."""

    rows: Rows
    position: Rows  # of each row in `rows`
    end: Rows  # for each position, where its session ends


@dataclass(frozen=True, slots=True)
class ThreadScores:
    """The query's words in each row: its own, and those that it inherits."""

    own: Floats  # the squared weights of its words
    inherited: Floats  # the same for words of earlier lines, lower with the distance
    coverage: Floats  # its share of the query, by the rarity of words in the language
    known: float  # the share of the query that any row has, by the same measure
    has_words: Mask  # also of rows that do not count


def thread_scores(
    columns: Columns,
    weights: Mapping[SearchTerm, float],
    spans: Sequence[Spans],
    counted: Mask,
    version: int,
) -> ThreadScores:
    """Return the scores of all rows for a query's weighted terms. Only counted rows have words."""
    order = columns.cached("sessions", lambda: _session_order(columns, version), version)
    rows, terms = posting_rows(columns, spans)
    has_words = np.zeros(columns.rows, dtype=np.bool_)
    has_words[rows] = True
    if np.count_nonzero(counted) < columns.rows:
        is_counted = counted[rows]
        rows, terms = rows[is_counted], terms[is_counted]
    squares = np.array([weight**2 for weight in weights.values()], dtype=np.float64)
    costs = np.array([language_cost(term) for term in weights], dtype=np.float64)
    shares = costs / (np.add.reduce(costs) or 1.0)
    inherited = np.zeros(columns.rows, dtype=np.float32)
    inherited[order.rows] = _inherited(order, rows, terms, squares)
    return ThreadScores(
        own=_sum_by_row(rows, squares[terms], columns.rows),
        inherited=inherited,
        coverage=_sum_by_row(rows, shares[terms], columns.rows),
        known=float(np.add.reduce(shares[np.bincount(terms, minlength=len(shares)) > 0])),
        has_words=has_words,
    )


def _inherited(
    order: SessionOrder, rows: Rows, terms: Rows, weights: npt.NDArray[np.float64]
) -> Floats:
    """Return the term scores that following rows inherit, until the term occurs again."""
    # All terms at once: those of a question are many, and most are rare.
    shift = len(order.rows).bit_length()
    places = (terms << shift) | order.position[rows]
    places.sort(kind="stable")  # quick where sessions follow one another: they are in order
    at = places & ((1 << shift) - 1)
    ends = np.minimum(order.end[at], at + (_REACH + 1))
    # The next row with the same term; with another term, it is beyond all rows.
    np.minimum(ends[:-1], at[:-1] + np.diff(places), out=ends[:-1])
    lengths = ends - at - 1
    # A frequent term is in the next line again, which then inherits nothing.
    givers = lengths.nonzero()[0]
    at, lengths, gains = at[givers], lengths[givers], weights[places[givers] >> shift]
    # For each line that inherits: the row with the term that it follows, and how far behind it is.
    source = np.repeat(np.arange(len(at)), lengths)
    distance = np.arange(1, len(source) + 1) - (np.cumsum(lengths) - lengths)[source]
    return _sum_by_row(at[source] + distance, gains[source] * _DECAY[distance], len(order.rows))


def _sum_by_row(rows: Rows, values: npt.NDArray[np.float64], size: int) -> Floats:
    return np.bincount(rows, values, size).astype(np.float32)


def _session_order(columns: Columns, version: int) -> SessionOrder:
    table = columns.table
    is_message = (table.kind == MESSAGE) & columns.alive(version)
    messages = np.flatnonzero(is_message)
    keys = (table.place[messages], table.ts[messages], table.session[messages])
    messages = messages[np.lexsort(keys)]
    rows = np.concatenate([messages, np.flatnonzero(~is_message)])
    session, ts = table.session[messages], table.ts[messages]
    is_first = np.ones(len(rows), dtype=np.bool_)  # rows without a session stand alone
    is_first[1 : len(messages)] = (session[1:] != session[:-1]) | (np.diff(ts) > PAUSE)
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(rows))
    position = np.empty(len(rows), dtype=np.int64)
    position[rows] = np.arange(len(rows))
    return SessionOrder(rows, position, ends[np.cumsum(is_first) - 1])


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


def reply_scores(columns: Columns, scores: Floats, version: int) -> Floats:
    """Return the score of the question that each dialogue row follows; 0 for other rows."""
    if not columns.cached("has_questions", lambda: bool(columns.table.asks.any())):
        return np.zeros(columns.rows, dtype=np.float32)
    before, _ = columns.neighbours(version)
    padded = np.append(scores * columns.table.asks, np.float32(0))  # index -1 means no row
    replies: Floats = (padded[before] * dialogue_rows(columns, version)).astype(np.float32)
    return replies


class Days(NamedTuple):
    """Rows in the order of their days, and where each day begins."""

    order: Rows
    starts: Rows
    day_of: Rows  # for each position in the order, the number of its day


def _days(columns: Columns, offset: int) -> Days:
    number = (columns.table.ts + offset) // DAY
    order = np.argsort(number, kind="stable")
    ordered = number[order]
    is_first = _is_first(ordered)
    return Days(order, np.flatnonzero(is_first), np.cumsum(is_first) - 1)


def _is_first(ordered: npt.NDArray[np.int64]) -> Mask:
    """Return for each of some ordered numbers whether it differs from the one before it."""
    is_first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first


def day_scores(columns: Columns, scores: Floats, counted: Mask, offset: int) -> Floats:
    """Return the best score of another row of each row's day. Days begin at `offset`."""
    if not columns.rows:
        return np.zeros(0, dtype=np.float32)
    days = columns.cached(f"days{offset}", lambda: _days(columns, offset))
    ordered = np.where(counted, scores, np.float32(_MISSING_ROW_SCORE))[days.order]
    best = np.maximum.reduceat(ordered, days.starts)[days.day_of]
    # The first row with the best score of its day gets the second best.
    ties = (ordered == best).nonzero()[0]
    leaders = ties[_is_first(days.day_of[ties])]
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
    if not spans:
        return inside.astype(np.float32), around.astype(np.float32)
    for span in spans:
        start = ALWAYS if span.start is None else to_micros(span.start)
        end = NEVER if span.end is None else to_micros(span.end)
        inside |= (ts >= start) & (ts < end)
        if span.start and span.end and span.end - span.start <= _SHORT_SPAN:
            around |= (ts >= start - NEARBY) & (ts < end + NEARBY)
    return inside.astype(np.float32), (around & ~inside).astype(np.float32)


def named_rows(columns: Columns, speakers: Sequence[str], counted: Mask) -> tuple[Mask, float]:
    """Return the rows by the named speakers, and their share of the counted rows."""
    table = columns.table
    if not speakers:
        return np.zeros(columns.rows, dtype=np.bool_), 0.0
    is_named = np.isin(table.speaker, [table.names.find(name) for name in speakers])
    return is_named, float(is_named[counted].mean()) if counted.any() else 0.0


def length_scores(columns: Columns, counted: Mask) -> Floats:
    """Return the length of each row, in standard deviations of its logarithm."""
    logarithms = columns.cached(
        "log_lengths", lambda: np.log1p(columns.lengths()).astype(np.float32)
    )
    measured = logarithms[counted]
    if not len(measured):
        return np.zeros(columns.rows, dtype=np.float32)
    spread = max(float(measured.std()), 1e-6)
    trust = len(measured) / (len(measured) + _HALF_TRUST_ROWS)
    scores: Floats = ((logarithms - measured.mean()) * (trust / spread)).astype(np.float32)
    return scores
