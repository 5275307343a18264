"""The ranking of one search: features of each row, which rows match, and the best of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from memrecall.scope import Scope
from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import Floats, Mask, Rows, to_micros
from memrecall.search.ranking.calibration import calibrate
from memrecall.search.ranking.context import (
    day_scores,
    dialogue_rows,
    length_scores,
    neighbour_scores,
    speaker_scores,
    time_scores,
)
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
    FEATURES,
    HYBRID,
    KEYWORD,
    NO_SPREAD,
    SEMANTIC,
    ContextFeatures,
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
from memrecall.search.request import Mode, ScoreParts, SearchRequest
from memrecall.text.query import Query, positive_words
from memrecall.text.times import find_times

_WEIGHTS: dict[Mode, RankingWeights] = {"hybrid": HYBRID, "keyword": KEYWORD, "semantic": SEMANTIC}


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
    """The best rows in order, and the counts of the search."""

    rows: list[int]
    scores: list[float]
    parts: list[ScoreParts]
    total_found: int
    withheld: int
    unembedded: int
    has_more: bool
    is_calibrated: bool
    explanation: str
    searched: int
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
        scores = calibrate(scores, is_open, features.get("lone"), features.get("time"))
    is_good = scores >= logit(request.threshold)
    # One more than requested shows whether there is a next page.
    best = top_positions(columns, rows, scores, is_open & is_good, request.limit + 1, after)
    page = best[: request.limit]
    return RankedRows(
        rows=[int(rows[at]) for at in page],
        scores=[float(scores[at]) for at in page],
        parts=_score_parts(features, weights, np.array(page, dtype=np.int64)),
        total_found=int(np.count_nonzero(is_open & is_good)),
        withheld=int(np.count_nonzero(~is_open & is_good)),
        unembedded=_count_unembedded(query, alive, semantic),
        has_more=len(best) > request.limit,
        is_calibrated=query.is_hybrid,
        explanation="" if best else _explain(visible, scores[is_open], request),
        searched=int(np.count_nonzero(visible.open)),
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


def _count_unembedded(query: RankingQuery, alive: Mask, semantic: "SemanticScores") -> int:
    return 0 if query.vector is None else int(np.count_nonzero(alive & ~semantic.embedded))


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
    meaning = NO_SPREAD
    if query.vector is not None:
        embedded = counted & semantic.embedded
        meaning = Standardizer.fit(semantic.cosine[embedded], int(np.count_nonzero(embedded)))
    context = None
    if query.is_hybrid:
        base = words.apply(lexical.scores) + meaning.apply(semantic.cosine) * semantic.embedded
        base *= np.float32(0.5)
        if query.request.exclude:
            base[~counted] = 0  # An excluded row must not lift its neighbours either.
        context = _context_features(columns, query, base, counted, rows)
    return RankingFeatures(
        lexical=words.apply(lexical.scores[rows]),
        coverage=lexical.coverage(rows),
        semantic=meaning.apply(semantic.cosine[rows]) * semantic.embedded[rows],
        cosine=semantic.cosine[rows],
        context=context,
    )


def _context_features(
    columns: Columns, query: RankingQuery, scores: Floats, counted: Mask, rows: Rows
) -> ContextFeatures:
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
    return ContextFeatures(
        neighbours=neighbour_scores(columns, scores, query.version)[rows],
        day=days[rows],
        time=inside[rows],
        nearby=nearby[rows],
        speaker=speaker[rows],
        voice=(is_named * is_dialogue)[rows],
        lone=(~is_dialogue).astype(np.float32)[rows],
        length=(length_scores(columns, counted) * ~is_dialogue)[rows],
        asks=columns.table.asks.astype(np.float32)[rows],
    )


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
    weighted = {
        name: np.float64(getattr(weights, name)) * features.get(name)[places] for name in FEATURES
    }
    columns = (
        weighted["lexical"] + weighted["coverage"] + weighted["exact"],
        weighted["semantic"] + weighted["cosine"],
        weighted["neighbours"] + weighted["day"],
        weighted["time"] + weighted["nearby"],
        weighted["speaker"] + weighted["voice"],
        weighted["lone"] + weighted["length"] + weighted["asks"],
        features.coverage[places].astype(np.float64),
        features.cosine[places].astype(np.float64),
    )
    return [ScoreParts(*row) for row in np.round(np.array(columns), 4).T.tolist()]


def _explain(visible: VisibleRows, scores: Floats, request: SearchRequest) -> str:
    if not visible.open.any():
        return "nothing stored passes the filters"
    if not len(scores):
        return "no match"
    if request.cursor is not None:
        return "no more results"
    best = relevance(float(scores.max()))
    return f"{len(scores)} below the threshold of {request.threshold:g}; the best scores {best:.2f}"
