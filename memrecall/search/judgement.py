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
    SEMANTIC,
    Evidence,
    Weights,
    combine,
    logit,
    relevance,
    standardise,
)
from memrecall.search.request import Mode, SearchRequest, Why
from memrecall.search.selection import Place, Rows, Visible, first_rows, visible_rows
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
    """What ranking found: rows in order with their scores, and the counts around them."""

    rows: list[int]
    why: list[Why]
    scores: Floats
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
    alive = columns.alive(version)
    visible = visible_rows(columns, scope, request, alive, question.now)
    weights = _WEIGHTS[request.mode]
    lexical = _lexical(columns, question, alive)
    sense = _sense(columns, question, version)
    counted = alive & ~visible.withheld
    evidence = _gather(columns, question, lexical, sense, counted, version, mark)
    scores = combine(evidence, weights)
    matched = _matched(columns, question, evidence, lexical)
    matched_well = matched & (scores >= logit(request.threshold))
    found: Rows = np.flatnonzero(visible.open & matched_well)
    # One more than asked tells whether there is a next page.
    rows = first_rows(columns, found, scores, request.limit + 1, after)
    return Ranked(
        rows=rows[: request.limit],
        why=[_why(evidence, weights, row) for row in rows[: request.limit]],
        scores=scores,
        total_found=len(found),
        withheld=int(np.count_nonzero(visible.withheld & matched_well)),
        unembedded=0
        if question.vector is None
        else int(np.count_nonzero(alive & ~columns.embedded(version))),
        more=len(rows) > request.limit,
        explanation="" if rows else _explain(visible, matched, scores, request),
    )


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
) -> Evidence:
    words = standardise(lexical.scores, counted)
    meaning = standardise(sense.cosine, counted & sense.embedded)
    meaning[~sense.embedded] = 0
    neighbours = time = np.zeros(columns.rows, dtype=np.float32)
    if question.request.mode == "hybrid":  # the other modes rank by one side alone
        spans = find_times(question.request.query, question.now, ZoneInfo(mark.time_zone))
        neighbours = neighbour_scores(columns, words + meaning, version)
        time = time_scores(columns, spans)
    return Evidence(
        lexical=words,
        coverage=lexical.coverage(),
        semantic=meaning,
        cosine=sense.cosine,
        neighbours=neighbours,
        time=time,
    )


def _matched(
    columns: Columns, question: Question, evidence: Evidence, lexical: LexicalScores
) -> Mask:
    """The rows that can be hits at all, however low they stand."""
    if question.query is not None:
        return match(columns, question.query)
    spoken: Mask = lexical.scores > 0
    if question.request.mode == "keyword" or question.vector is None:
        return spoken
    meant: Mask = evidence.cosine > 0
    return meant if question.request.mode == "semantic" else spoken | meant


def _why(evidence: Evidence, weights: Weights, row: int) -> Why:
    def part(*names: str) -> float:
        total = sum(getattr(weights, name) * getattr(evidence, name)[row] for name in names)
        return round(float(total), 3)

    return Why(
        lexical=part("lexical", "coverage"),
        semantic=part("semantic", "cosine"),
        neighbours=part("neighbours"),
        time=part("time"),
        coverage=round(float(evidence.coverage[row]), 3),
        cosine=round(float(evidence.cosine[row]), 4),
    )


def _explain(visible: Visible, matched: Mask, scores: Floats, request: SearchRequest) -> str:
    if not visible.open.any():
        return "nothing stored passes the filters"
    candidates = visible.open & matched
    if not candidates.any():
        return "no match"
    if request.cursor is not None:
        return "no more results"
    best = relevance(float(scores[candidates].max()))
    count = int(np.count_nonzero(candidates))
    return f"{count} below the threshold of {request.threshold:g}; the best scores {best:.2f}"
