"""Judging rows: what speaks for each of them, which can be hits, and which come first."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from memrecall.scope import Scope
from memrecall.search.index.columns import Columns, Mask
from memrecall.search.index.rows import to_micros
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
    question_terms,
)
from memrecall.search.ranking.people import named_in
from memrecall.search.ranking.scores import (
    HYBRID,
    KEYWORD,
    NOTHING,
    PARTS,
    SEMANTIC,
    Context,
    Evidence,
    RankingWeights,
    Standard,
    combine,
    logit,
    relevance,
)
from memrecall.search.ranking.selection import (
    RankPosition,
    Rows,
    Visible,
    first_places,
    living_rows,
    visible_rows,
)
from memrecall.search.request import Mode, SearchRequest, Why
from memrecall.store import UserVersion
from memrecall.text.query import Query, positive_words
from memrecall.text.times import find_times

Floats = npt.NDArray[np.float32]

_WEIGHTS: dict[Mode, RankingWeights] = {"hybrid": HYBRID, "keyword": KEYWORD, "semantic": SEMANTIC}


@dataclass(frozen=True, slots=True)
class RankingQuery:
    """A request, read: its query parsed, its vector made, its time fixed."""

    request: SearchRequest
    query: Query | None
    vector: Floats | None
    now: datetime


@dataclass(frozen=True, slots=True)
class RankedRows:
    """What ranking found: the best rows in order, and the counts around them."""

    rows: list[int]
    scores: list[float]
    why: list[Why]
    total_found: int
    withheld: int
    unembedded: int
    more: bool
    calibrated: bool
    explanation: str
    searched: int
    telling: Mapping[SearchTerm, float]  # how much each term of the question tells


def rank(
    columns: Columns,
    scope: Scope,
    question: RankingQuery,
    version: int,
    after: RankPosition | None,
    mark: UserVersion,
) -> RankedRows:
    """The rows that answer a question, as the user's data was at `version`."""
    request = question.request
    weights = _WEIGHTS[request.mode]
    alive = living_rows(columns, request, version)
    visible = visible_rows(columns, scope, request, alive, question.now)
    lexical = _lexical(columns, question, alive)
    sense = _sense(columns, question, version)
    matched = _matched(columns, question, sense, lexical)
    # From here on only candidates are looked at: a keyword search has few among many rows.
    rows: Rows = np.flatnonzero((visible.open | visible.withheld) & matched)
    counted = _counted(columns, request, alive, visible)
    evidence = _gather(columns, question, lexical, sense, counted, version, mark, rows)
    shown = visible.open[rows]
    scores = combine(evidence, weights)
    if request.mode == "hybrid":
        scores = calibrate(scores, shown, evidence.part("lone"), evidence.part("time"))
    good = scores >= logit(request.threshold)
    # One more than asked tells whether there is a next page.
    best = first_places(columns, rows, scores, shown & good, request.limit + 1, after)
    page = best[: request.limit]
    return RankedRows(
        rows=[int(rows[at]) for at in page],
        scores=[float(scores[at]) for at in page],
        why=_reasons(evidence, weights, np.array(page, dtype=np.int64)),
        total_found=int(np.count_nonzero(shown & good)),
        withheld=int(np.count_nonzero(~shown & good)),
        unembedded=_count_unembedded(question, alive, sense),
        more=len(best) > request.limit,
        calibrated=request.mode == "hybrid",
        explanation="" if best else _explain(visible, scores[shown], request),
        searched=int(np.count_nonzero(visible.open)),
        telling=lexical.weights,
    )


def _counted(columns: Columns, request: SearchRequest, alive: Mask, visible: Visible) -> Mask:
    """The rows that scores are measured against: nothing secret, nothing later than asked for."""
    counted = alive & ~visible.withheld if visible.withheld.any() else alive
    if request.until is not None:
        counted = counted & (columns.table.ts < to_micros(request.until))
    return counted


def _count_unembedded(question: RankingQuery, alive: Mask, sense: "_Sense") -> int:
    return 0 if question.vector is None else int(np.count_nonzero(alive & ~sense.embedded))


def _lexical(columns: Columns, question: RankingQuery, alive: Mask) -> LexicalScores:
    request = question.request
    more = (*request.keywords, *request.expansions)
    if question.query is not None:
        return bm25(columns, all_terms("\n".join((*positive_words(question.query), *more))), alive)
    return bm25(columns, question_terms("\n".join((request.query, *more))), alive)


@dataclass(frozen=True, slots=True)
class _Sense:
    """The cosine of each row with the question, and which rows have a vector."""

    cosine: Floats
    embedded: Mask


def _sense(columns: Columns, question: RankingQuery, version: int) -> _Sense:
    vector = question.vector
    if vector is None or len(vector) != columns.vectors.dimensions:
        nothing = np.zeros(columns.rows, dtype=np.float32)
        return _Sense(nothing, np.zeros(columns.rows, dtype=np.bool_))
    embedded = columns.embedded(version)
    cosine = columns.vectors.similarities(vector, columns.rows)
    cosine[~embedded] = 0
    return _Sense(cosine, embedded)


def _gather(
    columns: Columns,
    question: RankingQuery,
    lexical: LexicalScores,
    sense: _Sense,
    counted: Mask,
    version: int,
    mark: UserVersion,
    rows: Rows,
) -> Evidence:
    words = _standard_of_words(lexical, counted)
    meaning = NOTHING
    if question.vector is not None:
        embedded = counted & sense.embedded
        meaning = Standard.of(sense.cosine[embedded], int(np.count_nonzero(embedded)))
    context = None
    if question.request.mode == "hybrid":  # the other modes rank by one side alone
        base = words.apply(lexical.scores) + meaning.apply(sense.cosine) * sense.embedded
        base *= np.float32(0.5)
        if question.request.exclude:
            base[~counted] = 0  # nor does what is excluded lift what stands beside it
        context = _look_around(columns, question, base, counted, version, mark, rows)
    return Evidence(
        lexical=words.apply(lexical.scores[rows]),
        coverage=lexical.coverage(rows),
        semantic=meaning.apply(sense.cosine[rows]) * sense.embedded[rows],
        cosine=sense.cosine[rows],
        context=context,
    )


def _look_around(
    columns: Columns,
    question: RankingQuery,
    scores: Floats,
    counted: Mask,
    version: int,
    mark: UserVersion,
    rows: Rows,
) -> Context:
    zone = ZoneInfo(question.request.time_zone or mark.time_zone)
    offset = question.now.astimezone(zone).utcoffset() or timedelta(0)
    query = question.request.query.strip()
    # Several lines are a conversation, whose "today" and "tonight" are small talk.
    spans = [] if "\n" in query else find_times(query, question.now, zone)
    inside, nearby = time_scores(columns, spans)
    named = named_in(question.request.query, columns.speakers(version))
    speaker, theirs = speaker_scores(columns, list(named), counted)
    talk = dialogue_rows(columns, version)
    days = day_scores(columns, scores, counted, int(offset.total_seconds()) * 1_000_000)
    return Context(
        neighbours=neighbour_scores(columns, scores, version)[rows],
        day=days[rows],
        time=inside[rows],
        nearby=nearby[rows],
        speaker=speaker[rows],
        voice=(theirs * talk)[rows],
        lone=(~talk).astype(np.float32)[rows],
        length=(length_scores(columns, counted) * ~talk)[rows],
        asks=columns.table.asks.astype(np.float32)[rows],
    )


def _standard_of_words(lexical: LexicalScores, counted: Mask) -> Standard:
    """Few rows share a word with the question: only those are read."""
    said = np.flatnonzero(lexical.scores > 0)
    return Standard.of(lexical.scores[said[counted[said]]], int(np.count_nonzero(counted)))


def _matched(
    columns: Columns, question: RankingQuery, sense: _Sense, lexical: LexicalScores
) -> Mask:
    """The rows that can be hits at all, however low they stand."""
    if question.query is not None:
        return match(columns, question.query)
    spoken: Mask = lexical.scores > 0
    if question.request.mode == "keyword" or question.vector is None:
        return spoken
    meant: Mask = sense.cosine > 0
    return meant if question.request.mode == "semantic" else spoken | meant


def _reasons(evidence: Evidence, weights: RankingWeights, places: Rows) -> list[Why]:
    parts = {
        name: np.float64(getattr(weights, name)) * evidence.part(name)[places] for name in PARTS
    }
    columns = (
        parts["lexical"] + parts["coverage"] + parts["exact"],
        parts["semantic"] + parts["cosine"],
        parts["neighbours"] + parts["day"],
        parts["time"] + parts["nearby"],
        parts["speaker"] + parts["voice"],
        parts["lone"] + parts["length"] + parts["asks"],
        evidence.coverage[places].astype(np.float64),
        evidence.cosine[places].astype(np.float64),
    )
    told = np.round(np.array(columns), 4).T.tolist()
    return [Why(*reason) for reason in told]


def _explain(visible: Visible, scores: Floats, request: SearchRequest) -> str:
    if not visible.open.any():
        return "nothing stored passes the filters"
    if not len(scores):
        return "no match"
    if request.cursor is not None:
        return "no more results"
    best = relevance(float(scores.max()))
    return f"{len(scores)} below the threshold of {request.threshold:g}; the best scores {best:.2f}"
