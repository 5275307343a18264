"""The ranking of one search: which rows may be results, their order, and a page of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memrecall.scope import Permission, Scope
from memrecall.search.index import Floats, Mask, Rows
from memrecall.search.index.columns import (
    ALWAYS,
    MEMORY,
    MESSAGE,
    NEVER,
    NONE,
    ROLES,
    Columns,
    to_micros,
)
from memrecall.search.ranking.features import (
    RankingQuery,
    RowScores,
    compute_features,
    count_matches,
    query_support,
    score_rows,
)
from memrecall.search.ranking.lexical import match, match_words
from memrecall.search.ranking.scores import (
    HYBRID,
    KEYWORD,
    SEMANTIC,
    QuerySupport,
    RankingFeatures,
    RankingWeights,
    calibrate,
    combine,
    to_relevance,
)
from memrecall.search.request import KINDS, SMALL_PART, EngineRequest, Mode
from memrecall.search.results import (
    ScoreParts,
    SearchPage,
    UserRow,
    describe_threshold,
    make_hit,
)
from memrecall.store import KnowledgeEntry, MessageFilter
from memrecall.text.times import TimeSpan
from memrecall.types import to_zone

_FAR = 1 << 62  # microseconds, before and after every time

StoredRows = dict[int, UserRow | KnowledgeEntry]
"""Rows of an index as they are stored, by their number."""


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
    counted: Mask  # what scores are measured against: none withheld, none after `until`
    nearest: datetime | None  # see `SearchPage`


def visible_rows(
    columns: Columns, scope: Scope, request: EngineRequest, alive: Mask, now: datetime
) -> VisibleRows:
    """Apply scope and filters, before anything is ranked."""
    table = columns.table
    passing = in_scope(columns, scope, alive.copy())
    is_bounded = columns.cached(
        "bounded", lambda: bool(((table.valid_from != ALWAYS) | (table.valid_to != NEVER)).any())
    )
    if is_bounded and not request.with_expired:
        moment = to_micros(request.valid_at or now)
        passing &= (table.valid_from <= moment) & (table.valid_to > moment)
    for condition in filter_conditions(columns, request):
        passing &= condition
    if request.kind is not None:
        passing &= table.kind == KINDS.index(request.kind)
    if request.memory_types:
        types = [table.names.find(name) for name in request.memory_types]
        includes_messages = "message" in request.memory_types
        passing &= np.isin(table.memory_type, types) | (includes_messages & (table.kind == MESSAGE))
    of_memories = "knowledge" if request.kind == "knowledge" else "memory"
    for kind, keys in ((of_memories, request.only), ("message", request.only_messages)):
        if keys is not None:
            rows = [columns.row_of(kind, key) for key in keys]
            mask = table.kind != KINDS.index(kind)
            mask[[row for row in rows if row is not None]] = True
            passing &= mask
    if request.keywords:
        passing &= np.logical_or.reduce([match_words(columns, word) for word in request.keywords])
    is_hidden = np.bool_(not scope.allows(Permission.SENSITIVE)) & table.sensitive
    visible, nearest = in_period(columns, passing & ~is_hidden, request.period)
    withheld, _ = in_period(columns, passing & is_hidden, request.period)
    counted = alive & ~withheld if np.count_nonzero(withheld) else alive
    if request.until is not None:
        counted = counted & (table.ts < to_micros(request.until))
    return VisibleRows(visible, withheld, counted, nearest)


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


def living_rows(columns: Columns, request: EngineRequest, version: int) -> Mask:
    """Return the rows at a version, as if excluded ones had never been written."""
    alive = columns.alive(version)
    rows = [columns.row_of(kind, key) for key in request.exclude for kind in KINDS]
    excluded = [row for row in rows if row is not None]
    if excluded:
        alive = alive.copy()
        alive[excluded] = False
    return alive


def filter_conditions(
    columns: Columns, conditions: EngineRequest | MessageFilter
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

    def best(self, after: RankPosition | None) -> tuple[list[int], bool]:
        """Return the places of a page after a position, in order, and whether more follow it.

        Those below the threshold only fill the page.
        """
        request = self.query.request
        is_open = self.visible.open[self.rows]
        is_found = is_open & (self.relevance >= request.threshold)
        top = partial(top_positions, self.columns, self.rows, self.scores)
        # One more than requested shows whether there is a next page.
        places = top(is_found, request.limit + 1, after)
        has_more = len(places) > request.limit
        places = places[: request.limit]
        if room := request.limit - len(places):
            places += top(is_open & ~is_found, room, after)
        return places, has_more

    def page(self, places: Sequence[int], stored: StoredRows) -> SearchPage:
        """Return the page of hits at some places. A row that has just been erased is left out."""
        request, table = self.query.request, self.columns.table
        first: Rows = np.array(places, dtype=np.int64)
        chances: list[float | None] = [None] * len(first)
        if self.probability is not None:
            chances = [round(chance, 4) for chance in self.probability[first].tolist()]
        names, shares = _part_shares(_WEIGHTS[request.mode])
        values = np.array([self.features[name][first] for name in names], dtype=np.float64)
        columns = zip(
            self.rows[first].tolist(),
            self.relevance[first].tolist(),
            chances,
            (self.relevance[first] < request.threshold).tolist(),
            (shares @ values).round(4).T.tolist(),
            strict=True,
        )
        hits = [
            make_hit(
                stored[row],
                score=round(score, 4),
                probability=chance,
                below_threshold=is_below,
                why=ScoreParts(*parts),
            )
            for row, score, chance, is_below, parts in columns
            if row in stored
        ]
        is_open = self.visible.open[self.rows]
        matches = int(np.count_nonzero(is_open))
        total = int(np.count_nonzero(is_open & (self.relevance >= request.threshold)))
        best_score = float(self.relevance[is_open].max(initial=0))
        if places:
            explanation = describe_threshold(request.threshold, matches - total, total, best_score)
        else:
            explanation = _explain(self.visible, self.query)
        ended = (table.kind == MEMORY) & (table.valid_to <= to_micros(self.query.now))
        outdated = (ended & self.columns.alive(self.query.version)).nonzero()[0]
        return SearchPage(
            results=tuple(hits),
            total_found=total,
            below_threshold=matches - total,
            explanation=explanation,
            withheld=self.withheld,
            unembedded=self.unembedded,
            searched=int(np.count_nonzero(self.visible.open)),
            nearest=self.visible.nearest,
            answered=self.answered,
            outdated=tuple(table.keys[row] for row in outdated[-_MOST_OUTDATED:].tolist()),
            # No message has the key of a memory.
            records={
                table.keys[row]: record
                for row, record in stored.items()
                if not isinstance(record, KnowledgeEntry)
            },
        )


def rank(columns: Columns, scope: Scope, query: RankingQuery) -> Ranking:
    """Score the rows that can answer a query, as the data was at its version."""
    request = query.request
    alive = living_rows(columns, request, query.version)
    visible = visible_rows(columns, scope, request, alive, query.now)
    row_scores = score_rows(columns, query, alive, visible.counted)
    # From here on only candidates count: a keyword search has few among many rows.
    matches = matching_rows(columns, query, row_scores)
    is_small = np.count_nonzero(visible.open) <= SMALL_PART
    if is_small and request.is_of_part and query.query is None:
        # Who names a day with three messages wants to see these, whether they match or not. A
        # query of the query language is a condition itself.
        matches = matches | visible.open
    rows: Rows = ((visible.open | visible.withheld) & matches).nonzero()[0]
    features = compute_features(columns, query, row_scores, visible.counted, rows)
    scores = _demote_claims(columns, rows, combine(features, _WEIGHTS[request.mode]))
    support, probability = None, None
    if row_scores.threads is None:
        relevance = to_relevance(scores)
    else:
        support = query_support(query, row_scores, row_scores.threads, visible.counted)
        relevance, probability = calibrate(scores, visible.open[rows], features, support)
    missing = 0 if query.vector is None else np.count_nonzero(alive & ~row_scores.embedded)
    return Ranking(
        columns=columns,
        query=query,
        rows=rows,
        features=features,
        scores=scores,
        relevance=relevance,
        probability=probability,
        support=support,
        visible=visible,
        withheld=count_matches(query, row_scores, rows[~visible.open[rows]]),
        unembedded=int(missing),
    )


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
        return scores.cosine > 0
    has_words = scores.lexical.scores > 0 if scores.threads is None else scores.threads.has_words
    return has_words if query.vector is None else has_words | (scores.cosine > 0)


@lru_cache(8)
def _part_shares(weights: RankingWeights) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return the features that parts are made of, and how much of each is in each part."""
    parts = [{name: getattr(weights, name) for name in names} for names in _SCORE_PARTS]
    parts += [{"coverage": 1.0}, {"cosine": 1.0}]
    names = sorted({name for part in parts for name, weight in part.items() if weight})
    return names, np.array([[part.get(name, 0.0) for name in names] for part in parts])


def _explain(visible: VisibleRows, query: RankingQuery) -> str:
    """Return why nothing is found."""
    request = query.request
    if visible.nearest and request.period:
        day = to_zone(visible.nearest, query.zone)
        return f"nothing for “{request.period.text}”; the nearest is from {day:%Y-%m-%d}"
    if not visible.open.any():
        return "no stored row matches the filters"
    return "no match" if request.cursor is None else "no more results"
