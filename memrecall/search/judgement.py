"""Judging rows: what speaks for each of them, which can be hits, and which come first."""

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from memrecall.scope import Scope
from memrecall.search.columns import Columns, Mask
from memrecall.search.context import neighbour_scores, time_scores
from memrecall.search.lexical import LexicalScores, bm25, match
from memrecall.search.ranking import (
    HYBRID,
    KEYWORD,
    NOTHING,
    PARTS,
    SEMANTIC,
    Evidence,
    Standard,
    Weights,
    combine,
    logit,
    relevance,
)
from memrecall.search.request import Mode, SearchRequest, Why
from memrecall.search.selection import Place, Rows, Visible, first_places, visible_rows
from memrecall.search.terms import all_terms, question_terms
from memrecall.store import UserMark
from memrecall.text.query import Query, positive_words
from memrecall.text.times import find_times

Floats = npt.NDArray[np.float32]

_WEIGHTS: dict[Mode, Weights] = {"hybrid": HYBRID, "keyword": KEYWORD, "semantic": SEMANTIC}


@dataclass(frozen=True, slots=True)
class Question:
    """A request, read: its query parsed, its vector made, its time fixed."""

    request: SearchRequest
    query: Query | None
    vector: Floats | None
    now: datetime


@dataclass(frozen=True, slots=True)
class Ranked:
    """What ranking found: the best rows in order, and the counts around them."""

    rows: list[int]
    scores: list[float]
    why: list[Why]
    total_found: int
    withheld: int
    unembedded: int
    more: bool
    explanation: str


def rank(
    columns: Columns,
    scope: Scope,
    question: Question,
    version: int,
    after: Place | None,
    mark: UserMark,
) -> Ranked:
    """The rows that answer a question, as the user's data was at `version`."""
    request = question.request
    weights = _WEIGHTS[request.mode]
    alive = columns.alive(version)
    visible = visible_rows(columns, scope, request, alive, question.now)
    lexical = _lexical(columns, question, alive)
    sense = _sense(columns, question, version)
    matched = _matched(columns, question, sense, lexical)
    # From here on only candidates are looked at: a keyword search has few among many rows.
    rows: Rows = np.flatnonzero((visible.open | visible.withheld) & matched)
    counted = alive & ~visible.withheld if visible.withheld.any() else alive
    evidence = _gather(columns, question, lexical, sense, counted, version, mark, rows)
    scores = combine(evidence, weights)
    good = scores >= logit(request.threshold)
    shown = visible.open[rows]
    # One more than asked tells whether there is a next page.
    best = first_places(columns, rows, scores, shown & good, request.limit + 1, after)
    page = best[: request.limit]
    return Ranked(
        rows=[int(rows[at]) for at in page],
        scores=[float(scores[at]) for at in page],
        why=_reasons(evidence, weights, np.array(page, dtype=np.int64)),
        total_found=int(np.count_nonzero(shown & good)),
        withheld=int(np.count_nonzero(~shown & good)),
        unembedded=_count_unembedded(question, alive, sense),
        more=len(best) > request.limit,
        explanation="" if best else _explain(visible, scores[shown], request),
    )


def _count_unembedded(question: Question, alive: Mask, sense: "_Sense") -> int:
    return 0 if question.vector is None else int(np.count_nonzero(alive & ~sense.embedded))


def _lexical(columns: Columns, question: Question, alive: Mask) -> LexicalScores:
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


def _sense(columns: Columns, question: Question, version: int) -> _Sense:
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
    question: Question,
    lexical: LexicalScores,
    sense: _Sense,
    counted: Mask,
    version: int,
    mark: UserMark,
    rows: Rows,
) -> Evidence:
    words = _standard_of_words(lexical, counted)
    meaning = NOTHING
    if question.vector is not None:
        embedded = counted & sense.embedded
        meaning = Standard.of(sense.cosine[embedded], int(np.count_nonzero(embedded)))
    neighbours = time = np.zeros(len(rows), dtype=np.float32)
    if question.request.mode == "hybrid":  # the other modes rank by one side alone
        base = words.apply(lexical.scores) + meaning.apply(sense.cosine) * sense.embedded
        spans = find_times(question.request.query, question.now, ZoneInfo(mark.time_zone))
        neighbours = neighbour_scores(columns, base, version)[rows]
        time = time_scores(columns, spans)[rows]
    return Evidence(
        lexical=words.apply(lexical.scores[rows]),
        coverage=lexical.coverage(rows),
        semantic=meaning.apply(sense.cosine[rows]) * sense.embedded[rows],
        cosine=sense.cosine[rows],
        neighbours=neighbours,
        time=time,
    )


def _standard_of_words(lexical: LexicalScores, counted: Mask) -> Standard:
    """Few rows share a word with the question: only those are read."""
    said = np.flatnonzero(lexical.scores > 0)
    return Standard.of(lexical.scores[said[counted[said]]], int(np.count_nonzero(counted)))


def _matched(columns: Columns, question: Question, sense: _Sense, lexical: LexicalScores) -> Mask:
    """The rows that can be hits at all, however low they stand."""
    if question.query is not None:
        return match(columns, question.query)
    spoken: Mask = lexical.scores > 0
    if question.request.mode == "keyword" or question.vector is None:
        return spoken
    meant: Mask = sense.cosine > 0
    return meant if question.request.mode == "semantic" else spoken | meant


def _reasons(evidence: Evidence, weights: Weights, places: Rows) -> list[Why]:
    parts = {
        name: np.float64(getattr(weights, name)) * getattr(evidence, name)[places] for name in PARTS
    }
    columns = (
        parts["lexical"] + parts["coverage"],
        parts["semantic"] + parts["cosine"],
        parts["neighbours"],
        parts["time"],
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
