"""The ranking of one search: features of each row, which rows match, and the best of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from memrecall.scope import Scope
from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import ALWAYS, NEVER, Floats, Mask, Rows, to_micros
from memrecall.search.ranking.calibration import calibrate
from memrecall.search.ranking.lexical import (
    LexicalScores,
    SearchTerm,
    all_terms,
    bm25,
    match,
    query_terms,
)
from memrecall.search.ranking.people import find_speakers
from memrecall.search.ranking.scores import (
    HYBRID,
    KEYWORD,
    SEMANTIC,
    RankingFeatures,
    RankingWeights,
    Standardizer,
    combine,
    logit,
    relevance,
)
from memrecall.search.ranking.selection import (
    RankPosition,
    VisibleRows,
    living_rows,
    top_positions,
    visible_rows,
)
from memrecall.search.request import Mode, SearchRequest
from memrecall.search.results import ScoreParts, SearchPage
from memrecall.text.query import Query, positive_words
from memrecall.text.times import TimeSpan, find_times

_WEIGHTS: dict[Mode, RankingWeights] = {"hybrid": HYBRID, "keyword": KEYWORD, "semantic": SEMANTIC}
# The features that the parts of a score are the sums of.
_SCORE_PARTS = (
    ("lexical", "coverage", "exact"),
    ("semantic", "cosine"),
    ("neighbours", "day"),
    ("time", "nearby"),
    ("speaker", "voice"),
    ("lone", "length", "asks"),
)
# An answer follows its question more often than it precedes it.
BEFORE, TWO_BEFORE, AFTER = 0.46, 0.31, 0.23
DAY = 86_400_000_000  # microseconds
# A question about a day may be answered up to two days before or after it; a question about a
# month is not answered in the days around that month.
NEARBY = 2 * DAY
_SHORT_SPAN = timedelta(days=3)
_MISSING_ROW_SCORE = -2.0  # lower than the score of most rows


@dataclass(frozen=True, slots=True)
class RankingQuery:
    """A request prepared for ranking: parsed, embedded, with its version, time and zone."""

    request: SearchRequest
    query: Query | None
    vector: Floats | None
    version: int
    now: datetime
    time_zone: str

    @property
    def is_hybrid(self) -> bool:
        """Whether both sides and the context count; other modes rank by one side alone."""
        return self.request.mode == "hybrid"


@dataclass(frozen=True, slots=True)
class RankedRows:
    """The best rows in order, and the page of results with its counts but without the results."""

    rows: list[int]
    scores: list[float]
    parts: list[ScoreParts]
    has_more: bool
    is_calibrated: bool
    page: SearchPage
    term_weights: Mapping[SearchTerm, float]


def rank(
    columns: Columns, scope: Scope, query: RankingQuery, after: RankPosition | None
) -> RankedRows:
    """Return the rows that answer a query, as the data was at its version."""
    request = query.request
    weights = _WEIGHTS[request.mode]
    alive = living_rows(columns, request, query.version)
    visible = visible_rows(columns, scope, request, alive, query.now)
    lexical = _lexical_scores(columns, query, alive)
    semantic = _semantic_scores(columns, query)
    matches = _matching_rows(columns, query, semantic, lexical)
    # From here on only candidates count: a keyword search has few among many rows.
    rows: Rows = np.flatnonzero((visible.open | visible.withheld) & matches)
    counted = _counted_rows(columns, request, alive, visible)
    features = compute_features(columns, query, lexical, semantic, counted, rows)
    is_open = visible.open[rows]
    scores = combine(features, weights)
    if query.is_hybrid:
        scores = calibrate(scores, is_open, features["lone"], features["time"])
    is_good = scores >= logit(request.threshold)
    # One more than requested shows whether there is a next page.
    best = top_positions(columns, rows, scores, is_open & is_good, request.limit + 1, after)
    unembedded = 0 if query.vector is None else np.count_nonzero(alive & ~semantic.embedded)
    page = SearchPage(
        total_found=int(np.count_nonzero(is_open & is_good)),
        explanation="" if best else _explain(visible, scores[is_open], request),
        withheld=int(np.count_nonzero(~is_open & is_good)),
        unembedded=int(unembedded),
        searched=int(np.count_nonzero(visible.open)),
    )
    first = best[: request.limit]
    return RankedRows(
        rows=[int(rows[at]) for at in first],
        scores=[float(scores[at]) for at in first],
        parts=_score_parts(features, weights, np.array(first, dtype=np.int64)),
        has_more=len(best) > request.limit,
        is_calibrated=query.is_hybrid,
        page=page,
        term_weights=lexical.weights,
    )


def _counted_rows(
    columns: Columns, request: SearchRequest, alive: Mask, visible: VisibleRows
) -> Mask:
    """Return the rows that scores are measured against: none withheld, none after `until`."""
    counted = alive & ~visible.withheld if visible.withheld.any() else alive
    if request.until is not None:
        counted = counted & (columns.table.ts < to_micros(request.until))
    return counted


def _lexical_scores(columns: Columns, query: RankingQuery, alive: Mask) -> LexicalScores:
    request = query.request
    more = (*request.keywords, *request.expansions)
    if query.query is not None:
        return bm25(columns, all_terms("\n".join((*positive_words(query.query), *more))), alive)
    return bm25(columns, query_terms("\n".join((request.query, *more))), alive)


@dataclass(frozen=True, slots=True)
class SemanticScores:
    """The cosine of each row with the query, and which rows have a vector."""

    cosine: Floats
    embedded: Mask


def _semantic_scores(columns: Columns, query: RankingQuery) -> SemanticScores:
    vector = query.vector
    if vector is None or len(vector) != columns.vectors.dimensions:
        zeros = np.zeros(columns.rows, dtype=np.float32)
        return SemanticScores(zeros, np.zeros(columns.rows, dtype=np.bool_))
    embedded = columns.embedded(query.version)
    cosine = columns.vectors.similarities(vector, columns.rows)
    cosine[~embedded] = 0
    return SemanticScores(cosine, embedded)


def compute_features(
    columns: Columns,
    query: RankingQuery,
    lexical: LexicalScores,
    semantic: SemanticScores,
    counted: Mask,
    rows: Rows,
) -> RankingFeatures:
    """Return the features of some rows, standardised over the counted rows."""
    # Few rows share a word with the query: only those are read.
    scored = np.flatnonzero(lexical.scores > 0)
    words = Standardizer.fit(
        lexical.scores[scored[counted[scored]]], int(np.count_nonzero(counted))
    )
    cosines = semantic.cosine[counted & semantic.embedded]
    meaning = Standardizer.fit(cosines, len(cosines))
    coverage = lexical.coverage(rows)
    features = {
        "lexical": words.apply(lexical.scores[rows]),
        "coverage": coverage,
        "exact": np.maximum(2 * coverage - 1, 0),
        "semantic": meaning.apply(semantic.cosine[rows]) * semantic.embedded[rows],
        "cosine": semantic.cosine[rows],
    }
    if query.is_hybrid:
        base = words.apply(lexical.scores) + meaning.apply(semantic.cosine) * semantic.embedded
        base *= np.float32(0.5)
        if query.request.exclude:
            base[~counted] = 0  # An excluded row must not lift its neighbours either.
        features |= _context_features(columns, query, base, counted, rows)
    return features


def _context_features(
    columns: Columns, query: RankingQuery, scores: Floats, counted: Mask, rows: Rows
) -> dict[str, Floats]:
    zone = ZoneInfo(query.request.time_zone or query.time_zone)
    offset = query.now.astimezone(zone).utcoffset() or timedelta(0)
    text = query.request.query.strip()
    # Several lines are a conversation, in which "today" and "tonight" are small talk.
    spans = [] if "\n" in text else find_times(text, query.now, zone)
    inside, nearby = time_scores(columns, spans)
    speakers = find_speakers(query.request.query, columns.speakers(query.version))
    speaker, is_named = speaker_scores(columns, list(speakers), counted)
    is_dialogue = dialogue_rows(columns, query.version)
    days = day_scores(columns, scores, counted, int(offset.total_seconds()) * 1_000_000)
    return {
        "neighbours": neighbour_scores(columns, scores, query.version)[rows],
        "day": days[rows],
        "time": inside[rows],
        "nearby": nearby[rows],
        "speaker": speaker[rows],
        "voice": (is_named * is_dialogue)[rows],
        "lone": (~is_dialogue).astype(np.float32)[rows],
        "length": (length_scores(columns, counted) * ~is_dialogue)[rows],
        "asks": columns.table.asks.astype(np.float32)[rows],
    }


def _matching_rows(
    columns: Columns, query: RankingQuery, semantic: SemanticScores, lexical: LexicalScores
) -> Mask:
    """Return the rows that can be results at all, however low they rank."""
    if query.query is not None:
        return match(columns, query.query)
    has_words: Mask = lexical.scores > 0
    if query.request.mode == "keyword" or query.vector is None:
        return has_words
    is_similar: Mask = semantic.cosine > 0
    return is_similar if query.request.mode == "semantic" else has_words | is_similar


def _score_parts(
    features: RankingFeatures, weights: RankingWeights, places: Rows
) -> list[ScoreParts]:
    def add_up(names: Sequence[str]) -> npt.NDArray[np.float64]:
        total = np.zeros(len(places))
        for name in names:
            if name in features:
                total += np.float64(getattr(weights, name)) * features[name][places]
        return total

    columns = [*map(add_up, _SCORE_PARTS), features["coverage"][places], features["cosine"][places]]
    rounded = np.round(np.array(columns, dtype=np.float64), 4)
    return [ScoreParts(*row) for row in rounded.T.tolist()]


def _explain(visible: VisibleRows, scores: Floats, request: SearchRequest) -> str:
    if not visible.open.any():
        return "no stored row matches the filters"
    if not len(scores):
        return "no match"
    if request.cursor is not None:
        return "no more results"
    best = relevance(float(scores.max()))
    return f"{len(scores)} below the threshold of {request.threshold:g}; the best scores {best:.2f}"


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
