"""The features of rows: what the order of a search is computed from."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import Floats, Mask, Rows, to_micros
from memrecall.search.ranking.calibration import Noise, QuerySupport, significance_of
from memrecall.search.ranking.context import (
    ThreadScores,
    day_scores,
    dialogue_rows,
    length_scores,
    named_rows,
    reply_scores,
    time_scores,
)
from memrecall.search.ranking.lexical import (
    LexicalScores,
    all_terms,
    bm25,
    count_words,
    query_terms,
)
from memrecall.search.ranking.people import find_speakers
from memrecall.search.ranking.scores import RankingFeatures, Standardizer
from memrecall.search.ranking.selection import VisibleRows
from memrecall.search.request import SearchRequest
from memrecall.text.language import FIRST_PERSON, is_question
from memrecall.text.query import Query, positive_words
from memrecall.text.times import find_times

_NO_NOISE = (0.0, 0.0)
# A remark shares words with many rows by chance: they count only if one row has enough of them.
_REMARK_WORDS = (3, 7)  # up to how many words a query is none, from how many it is one
_REMARK_COVERAGE = (0.2, 0.5)
# What a withheld row must have: this share of the query's words, or this significant a similarity.
_MATCHING_COVERAGE, _MATCHING_SIGNIFICANCE = 0.5, 3.0


@dataclass(frozen=True, slots=True)
class RankingQuery:
    """A request prepared for ranking: parsed, embedded, with its version, time and zone."""

    request: SearchRequest
    query: Query | None
    vector: Floats | None
    version: int
    now: datetime
    time_zone: str
    noise: Noise | None = None


def counted_rows(
    columns: Columns, request: SearchRequest, alive: Mask, visible: VisibleRows
) -> Mask:
    """Return the rows that scores are measured against: none withheld, none after `until`."""
    counted = alive & ~visible.withheld if np.count_nonzero(visible.withheld) else alive
    if request.until is not None:
        counted = counted & (columns.table.ts < to_micros(request.until))
    return counted


def lexical_scores(columns: Columns, query: RankingQuery, alive: Mask) -> LexicalScores:
    """Return how well the rows match the words of a query."""
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


def semantic_scores(columns: Columns, query: RankingQuery) -> SemanticScores:
    """Return how near the rows are to a query's vector."""
    vector = query.vector
    if vector is None or len(vector) != columns.vectors.dimensions:
        zeros = np.zeros(columns.rows, dtype=np.float32)
        return SemanticScores(zeros, np.zeros(columns.rows, dtype=np.bool_))
    embedded = columns.embedded(query.version)
    cosine = columns.vectors.similarities(vector, columns.rows)
    cosine[~embedded] = 0
    return SemanticScores(cosine, embedded)


@dataclass(frozen=True, slots=True)
class RowScores:
    """The scores of all rows by words, by meaning and, in a hybrid search, by their threads."""

    lexical: LexicalScores
    semantic: SemanticScores
    threads: ThreadScores | None


def count_matches(query: RankingQuery, scores: RowScores, rows: Rows) -> int:
    """Return how many withheld rows match by themselves.

    Their relevance does not say it: it is measured against the rows that may be shown.
    """
    if query.query is not None or not len(rows):
        return len(rows)
    is_match = scores.lexical.coverage(rows) >= _MATCHING_COVERAGE
    if query.noise is not None:
        nearest = query.noise.median + _MATCHING_SIGNIFICANCE * query.noise.spread
        is_match |= scores.semantic.cosine[rows] >= nearest
    return int(np.count_nonzero(is_match))


def query_support(
    query: RankingQuery, scores: RowScores, threads: ThreadScores, counted: Mask
) -> QuerySupport:
    """Return what the counted rows as a whole have of a query."""
    is_comparable = counted & scores.semantic.embedded
    nearest = float(np.maximum.reduce(scores.semantic.cosine[is_comparable], initial=0))
    return QuerySupport(
        known=threads.known,
        coverage=float(np.maximum.reduce(threads.coverage, initial=0)),
        significance=significance_of(
            nearest, query.noise if np.count_nonzero(is_comparable) else None
        ),
        words=count_words(scores.lexical.weights),
        rows=int(np.count_nonzero(counted)),
        is_personal=FIRST_PERSON.search(query.request.query) is not None,
    )


def compute_features(
    columns: Columns, query: RankingQuery, scores: RowScores, counted: Mask, rows: Rows
) -> RankingFeatures:
    """Return the features of some rows, standardised over the counted rows."""
    lexical, semantic, threads = scores.lexical, scores.semantic, scores.threads
    size = int(np.count_nonzero(counted))
    cosines = semantic.cosine[counted & semantic.embedded]
    meaning = Standardizer.fit(cosines, len(cosines), query.noise or _NO_NOISE)
    near = meaning.apply(semantic.cosine) * semantic.embedded
    features = {"semantic": near[rows], "cosine": semantic.cosine[rows]}
    if threads is None:
        # Few rows share a word with the query: only those are read.
        scored = (lexical.scores > 0).nonzero()[0]
        words = Standardizer.fit(lexical.scores[scored[counted[scored]]], size)
        coverage = lexical.coverage(rows)
        return features | {"lexical": words.apply(lexical.scores[rows]), "coverage": coverage}
    total = threads.own + threads.inherited
    words = Standardizer.fit(total[counted], size)
    coverage, best = threads.coverage[rows], float(np.maximum.reduce(threads.coverage, initial=0))
    trust = np.float32(_trust_in_words(query.request.query, len(lexical.weights), best))
    base = (words.apply(total) + near) * np.float32(0.5)
    return features | {
        "lexical": trust * words.apply(threads.own[rows]),
        "coverage": coverage,
        "exact": trust * np.maximum(2 * coverage - 1, 0),
        "wordless": features["semantic"] * np.float32(1 - best),
        "thread": trust * words.scale(threads.inherited[rows]),
        "day": trust * _day_scores(columns, query, base, counted)[rows],
        "reply": trust * reply_scores(columns, near, query.version)[rows],
        **_row_features(columns, query, counted, rows),
    }


def _trust_in_words(query: str, words: int, best_coverage: float) -> float:
    """Return how much shared words count: all for a question, less for a longer remark."""
    if "\n" in query.strip() or is_question(query):
        return 1.0
    return 1 - _share_of(_REMARK_WORDS, words) * (1 - _share_of(_REMARK_COVERAGE, best_coverage))


def _share_of(bounds: tuple[float, float], value: float) -> float:
    """Return how far a value is from the lower to the upper bound, 0 to 1."""
    low, high = bounds
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _row_features(
    columns: Columns, query: RankingQuery, counted: Mask, rows: Rows
) -> dict[str, Floats]:
    text = query.request.query.strip()
    # Several lines are a conversation, in which "today" and "tonight" are small talk.
    spans = [] if "\n" in text else find_times(text, query.now, _zone(query))
    inside, nearby = time_scores(columns, spans)
    speakers = find_speakers(query.request.query, columns.speakers(query.version))
    is_named, share = named_rows(columns, list(speakers), counted)
    lone = (~dialogue_rows(columns, query.version)[rows]).astype(np.float32)
    named = is_named[rows].astype(np.float32)
    voice = named * (1 - lone)
    return {
        "time": inside[rows],
        "nearby": nearby[rows],
        "speaker": named - np.float32(share),
        "voice": voice,
        "group": voice * np.float32(max(1 - 2 * share, 0)),
        "lone": lone,
        "length": _length_scores(columns, query, counted)[rows] * lone,
        "asks": columns.table.asks[rows].astype(np.float32),
    }


def _day_scores(columns: Columns, query: RankingQuery, scores: Floats, counted: Mask) -> Floats:
    """Return the best score of another row of each row's day, if it is above average."""
    offset = query.now.astimezone(_zone(query)).utcoffset() or timedelta(0)
    best = day_scores(columns, scores, counted, int(offset.total_seconds()) * 1_000_000)
    return np.maximum(best, 0)


def _length_scores(columns: Columns, query: RankingQuery, counted: Mask) -> Floats:
    if counted is not columns.alive(query.version):
        return length_scores(columns, counted)
    # Every living row counts, as in most searches.
    return columns.cached("length_scores", lambda: length_scores(columns, counted), query.version)


def _zone(query: RankingQuery) -> ZoneInfo:
    return ZoneInfo(query.request.time_zone or query.time_zone)
