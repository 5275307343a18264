"""The ranking of one search: all candidates in order, the first of them reordered, then a page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from memrecall.scope import Scope
from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import MEMORY, NONE, Floats, Mask, Rows, to_micros
from memrecall.search.ranking.calibration import QuerySupport, calibrate
from memrecall.search.ranking.context import thread_scores
from memrecall.search.ranking.features import (
    RankingQuery,
    RowScores,
    compute_features,
    count_matches,
    counted_rows,
    lexical_scores,
    query_support,
    semantic_scores,
)
from memrecall.search.ranking.lexical import match
from memrecall.search.ranking.scores import (
    HYBRID,
    KEYWORD,
    SEMANTIC,
    RankingFeatures,
    RankingWeights,
    combine,
    to_relevance,
)
from memrecall.search.ranking.selection import (
    RankPosition,
    VisibleRows,
    living_rows,
    top_positions,
    visible_rows,
)
from memrecall.search.request import SMALL_PART, Mode
from memrecall.search.results import ScoreParts, SearchPage, describe_threshold
from memrecall.types import to_zone

_WEIGHTS: dict[Mode, RankingWeights] = {"hybrid": HYBRID, "keyword": KEYWORD, "semantic": SEMANTIC}
# The features that the parts of a score are the sums of.
_SCORE_PARTS = (
    ("lexical", "coverage", "exact"),
    ("semantic", "wordless", "cosine"),
    ("thread",),
    ("reply", "day"),
    ("time", "nearby"),
    ("speaker", "voice", "group"),
    ("length", "asks"),
)
_CLAIM_PENALTY = np.float32(2.0)  # of what contradicts the user; a relevance of 0.5 becomes 0.12
_MOST_OUTDATED = 500
_SCORE_STEP = np.float32(0.001)


@dataclass(frozen=True, slots=True)
class RankedRows:
    """The best rows in order, and the page of results with its counts but without the results."""

    rows: list[int]
    scores: list[float]  # that decide the order
    relevance: list[float]
    is_below: list[bool]  # the threshold
    probability: list[float] | None  # only of a hybrid search
    parts: list[ScoreParts]
    has_more: bool
    page: SearchPage


@dataclass(frozen=True, slots=True)
class Ranking:
    """The scored candidates of a search, of which pages are read."""

    columns: Columns
    query: RankingQuery
    rows: Rows
    features: RankingFeatures
    scores: Floats  # that decide the order
    relevance: Floats
    probability: Floats | None  # only of a hybrid search
    support: QuerySupport | None  # the same
    visible: VisibleRows
    withheld: int  # matches that the scope may not see
    unembedded: int
    answered: float | None = None  # the probability that there is an answer, if it was compared

    def first(self, count: int) -> list[int]:
        """Return the places of the first candidates that may be shown, in order."""
        is_open = self.visible.open[self.rows]
        return top_positions(self.columns, self.rows, self.scores, is_open, count, None)

    def reorder(self, places: Sequence[int], chances: Floats, answered: float) -> "Ranking":
        """Return the ranking with some first places in another order, and their probabilities.

        `places` are in the new order. Each row takes the relevance of the place that it moves to.
        `answered` is the probability that there is an answer at all.
        """
        scores, relevance, probability = (
            np.array(values, dtype=np.float32)
            for values in (self.scores, self.relevance, self.probability)
        )
        at = np.array(places, dtype=np.int64)
        # Above all others, in steps that no rounding makes equal.
        scores[at] = np.ceil(scores.max()) + np.arange(len(at), 0, -1)
        relevance[at] = np.sort(relevance[at])[::-1]
        probability[at] = chances
        return replace(
            self, scores=scores, relevance=relevance, probability=probability, answered=answered
        )

    def _outdated(self) -> tuple[str, ...]:
        """Return the keys of memories that were valid before."""
        table = self.columns.table
        ended = (table.kind == MEMORY) & (table.valid_to <= to_micros(self.query.now))
        rows = (ended & self.columns.alive(self.query.version)).nonzero()[0]
        return tuple(table.keys[row] for row in rows[-_MOST_OUTDATED:].tolist())

    def page(self, after: RankPosition | None) -> RankedRows:
        """Return the best rows after a position; those below the threshold only fill the page."""
        request = self.query.request
        is_open = self.visible.open[self.rows]
        is_found = is_open & (self.relevance >= request.threshold)
        # One more than requested shows whether there is a next page.
        found = self._top(is_found, request.limit + 1, after)
        has_more = len(found) > request.limit
        best = found[: request.limit]
        if room := request.limit - len(best):
            best += self._top(is_open & ~is_found, room, after)
        total = int(np.count_nonzero(is_found))
        below = int(np.count_nonzero(is_open)) - total
        best_score = float(self.relevance[is_open].max(initial=0))
        explanation = describe_threshold(request.threshold, below, total, best_score)
        page = SearchPage(
            total_found=total,
            below_threshold=below,
            explanation=explanation if best else _explain(self.visible, self.query),
            withheld=self.withheld,
            unembedded=self.unembedded,
            searched=int(np.count_nonzero(self.visible.open)),
            nearest=self.visible.nearest,
            answered=self.answered,
            outdated=self._outdated(),
        )
        first: Rows = np.array(best, dtype=np.int64)
        chances = self.probability
        return RankedRows(
            rows=self.rows[first].tolist(),
            scores=self.scores[first].tolist(),
            relevance=_rounded(self.relevance[first]),
            is_below=(self.relevance[first] < request.threshold).tolist(),
            probability=None if chances is None else _rounded(chances[first]),
            parts=_score_parts(self.features, _WEIGHTS[request.mode], first),
            has_more=has_more,
            page=page,
        )

    def _top(self, eligible: Mask, count: int, after: RankPosition | None) -> list[int]:
        return top_positions(self.columns, self.rows, self.scores, eligible, count, after)


def rank(columns: Columns, scope: Scope, query: RankingQuery) -> Ranking:
    """Score the rows that can answer a query, as the data was at its version."""
    request = query.request
    alive = living_rows(columns, request, query.version)
    visible = visible_rows(columns, scope, request, alive, query.now)
    lexical = lexical_scores(columns, query, alive)
    semantic = semantic_scores(columns, query)
    counted = counted_rows(columns, request, alive, visible)
    threads = None
    if request.mode == "hybrid":  # the others rank by one side alone
        threads = thread_scores(columns, lexical.weights, lexical.spans, counted, query.version)
    row_scores = RowScores(lexical, semantic, threads)
    # From here on only candidates count: a keyword search has few among many rows.
    matches = matching_rows(columns, query, row_scores)
    if _is_small_part(query, visible):
        matches = matches | visible.open
    rows: Rows = ((visible.open | visible.withheld) & matches).nonzero()[0]
    features = compute_features(columns, query, row_scores, counted, rows)
    scores = _demote_claims(columns, rows, combine(features, _WEIGHTS[request.mode]))
    support, probability = None, None
    if threads is None:
        relevance = to_relevance(scores)
    else:
        support = query_support(query, row_scores, threads, counted)
        relevance, probability = calibrate(scores, visible.open[rows], features, support)
    unembedded = 0 if query.vector is None else np.count_nonzero(alive & ~semantic.embedded)
    withheld = count_matches(query, row_scores, rows[~visible.open[rows]])
    counts = (withheld, int(unembedded))
    return Ranking(
        columns, query, rows, features, scores, relevance, probability, support, visible, *counts
    )


def _rounded(values: Floats) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


def _demote_claims(columns: Columns, rows: Rows, scores: Floats) -> Floats:
    """Return scores with each claim below the memories that it conflicts with."""
    claims = (columns.table.conflicts[rows] != NONE).nonzero()[0]
    if not len(claims):
        return scores
    demoted = scores.copy()
    demoted[claims] -= _CLAIM_PENALTY
    for at in claims:
        contradicted = np.isin(rows, columns.contradicted_rows(int(rows[at])))
        limit = scores[contradicted].min(initial=np.inf) - _SCORE_STEP
        demoted[at] = min(demoted[at], limit)
    return demoted


def matching_rows(columns: Columns, query: RankingQuery, scores: RowScores) -> Mask:
    """Return the rows that can be results at all, however low they rank."""
    if query.query is not None:
        return match(columns, query.query)
    if query.request.mode == "semantic" and query.vector is not None:
        return scores.semantic.cosine > 0
    has_words = scores.lexical.scores > 0 if scores.threads is None else scores.threads.has_words
    return has_words if query.vector is None else has_words | (scores.semantic.cosine > 0)


def _score_parts(
    features: RankingFeatures, weights: RankingWeights, places: Rows
) -> list[ScoreParts]:
    names, shares = _part_shares(weights)
    values = np.array([features[name][places] for name in names], dtype=np.float64)
    return [ScoreParts(*row) for row in (shares @ values).round(4).T.tolist()]


@lru_cache(8)
def _part_shares(weights: RankingWeights) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return the features that parts are made of, and how much of each is in each part."""
    parts = [{name: getattr(weights, name) for name in names} for names in _SCORE_PARTS]
    parts += [{"coverage": 1.0}, {"cosine": 1.0}]
    names = sorted({name for part in parts for name, weight in part.items() if weight})
    return names, np.array([[part.get(name, 0.0) for name in names] for part in parts])


def _is_small_part(query: RankingQuery, visible: VisibleRows) -> bool:
    """Return True for a period or session of few rows, which are shown whether they match or not.

    Who names a day with three messages wants to see these. A query of the query language is a
    condition itself.
    """
    rows = np.count_nonzero(visible.open)
    return query.request.is_of_part and query.query is None and bool(rows <= SMALL_PART)


def _explain(visible: VisibleRows, query: RankingQuery) -> str:
    """Return why nothing is found."""
    request = query.request
    if visible.nearest and request.period:
        day = to_zone(visible.nearest, ZoneInfo(request.time_zone or query.time_zone))
        return f"nothing for “{request.period.text}”; the nearest is from {day:%Y-%m-%d}"
    if not visible.open.any():
        return "no stored row matches the filters"
    return "no match" if request.cursor is None else "no more results"
