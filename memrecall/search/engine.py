"""One search engine over messages and memories.

A search binds to the user's version: its pages are computed as of the first one, whatever is
written meanwhile.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from memrecall.embedding import Embedder
from memrecall.errors import EmbedderFailed
from memrecall.scope import Scope
from memrecall.search.cache import IndexCache
from memrecall.search.columns import Columns, Mask
from memrecall.search.context import neighbour_scores, time_scores
from memrecall.search.hits import fetch_hits
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
from memrecall.search.request import Mode, SearchPage, SearchRequest, Why
from memrecall.search.selection import Place, Rows, Visible, first_rows, place_of, visible_rows
from memrecall.search.terms import all_terms, question_terms
from memrecall.store import Store, UserMark, open_cursor, seal_cursor
from memrecall.text.query import Query, parse_query, positive_words
from memrecall.text.times import find_times

Floats = npt.NDArray[np.float32]

_WEIGHTS: dict[Mode, Weights] = {"hybrid": HYBRID, "keyword": KEYWORD, "semantic": SEMANTIC}
_ROWS_FOR_A_THREAD = 5_000  # below this, moving the work costs more than it frees
_QUERIES_KEPT = 256


@dataclass(frozen=True, slots=True)
class _Question:
    """A request, read: its query parsed, its vector made, its place on the pages known."""

    request: SearchRequest
    query: Query | None
    vector: Floats | None
    note: str
    now: datetime


@dataclass(frozen=True, slots=True)
class _Ranked:
    """What ranking found: rows in order with their scores, and the counts around them."""

    rows: list[int]
    why: list[Why]
    scores: Floats
    total_found: int
    withheld: int
    unembedded: int
    more: bool
    explanation: str


class SearchEngine:
    """Searches any scope's rows; results depend on that user's data alone."""

    def __init__(self, store: Store, embedder: Embedder | None, cache: IndexCache) -> None:
        self._store = store
        self._embedder = embedder
        self._cache = cache
        self._vectors: dict[str, Floats] = {}
        self._model_checked = False

    async def search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        """The best rows for a request, and in words why there are none."""
        question = await self._read(request)
        async with self._cache.current(scope.user_id) as current:
            if current is None:
                return SearchPage(
                    message=f"user {scope.user_id!r} is not known: nothing is stored under this id"
                )
            mark, columns = current
            await self._store.require_active(mark, scope)
            version, after = self._place(scope, request, mark)
            work = (columns, scope, question, version, after, mark)
            if columns.rows > _ROWS_FOR_A_THREAD:
                ranked = await asyncio.to_thread(_rank, *work)
            else:
                ranked = _rank(*work)
            return await self._page(scope, request, question, columns, ranked, mark, version)

    async def _read(self, request: SearchRequest) -> _Question:
        query = parse_query(request.query) if request.syntax == "query" else None
        vector, note = None, ""
        if request.mode != "keyword":
            vector, note = await self._embed(request)
        return _Question(request, query, vector, note, request.now or datetime.now(UTC))

    async def _embed(self, request: SearchRequest) -> tuple[Floats | None, str]:
        """The query's vector; hybrid search goes on without one and says so."""
        try:
            return await self._vector(request.query), ""
        except EmbedderFailed as error:
            if request.mode == "semantic":
                raise
            return None, f"searched by keywords only: {error.message}"

    async def _vector(self, text: str) -> Floats:
        if self._embedder is None:
            raise EmbedderFailed("no embedder is configured", hint="Set MEMRECALL_EMBEDDER")
        if not self._model_checked:
            await self._store.vectors(self._embedder.model).check_model()
            self._model_checked = True
        if text not in self._vectors:
            if len(self._vectors) >= _QUERIES_KEPT:
                self._vectors.pop(next(iter(self._vectors)))
            self._vectors[text] = (await self._embedder.embed([text]))[0]
        return self._vectors[text]

    def _place(
        self, scope: Scope, request: SearchRequest, mark: UserMark
    ) -> tuple[int, Place | None]:
        if request.cursor is None:
            return mark.version, None
        sealed = open_cursor(
            self._store.facts.cursor_secret, _binding(scope, request, mark), request.cursor
        )
        version, *place = sealed
        return int(version), Place(*place)

    async def _page(
        self,
        scope: Scope,
        request: SearchRequest,
        question: _Question,
        columns: Columns,
        ranked: _Ranked,
        mark: UserMark,
        version: int,
    ) -> SearchPage:
        scores = [relevance(float(ranked.scores[row])) for row in ranked.rows]
        hits = await fetch_hits(self._store, scope, columns, ranked.rows, scores, ranked.why)
        cursor = None
        if ranked.more:
            last = [version, *place_of(columns, ranked.scores, ranked.rows[-1])]
            secret = self._store.facts.cursor_secret
            cursor = seal_cursor(secret, _binding(scope, request, mark), last)
        notes = [ranked.explanation, question.note]
        if ranked.withheld:
            notes.append(f"{ranked.withheld} sensitive memories withheld: no permission")
        if ranked.unembedded:
            notes.append(f"{ranked.unembedded} rows are not embedded yet: `memrecall reindex`")
        return SearchPage(
            results=tuple(hits),
            total_found=ranked.total_found,
            message="; ".join(note for note in notes if note),
            withheld=ranked.withheld,
            unembedded=ranked.unembedded,
            next_cursor=cursor,
        )


def _binding(scope: Scope, request: SearchRequest, mark: UserMark) -> list[object]:
    permissions = sorted(scope.permissions)
    return [scope.user_id, scope.agent_id, permissions, mark.epoch, *request.binding()]


def _rank(
    columns: Columns,
    scope: Scope,
    question: _Question,
    version: int,
    after: Place | None,
    mark: UserMark,
) -> _Ranked:
    request = question.request
    alive = columns.alive(version)
    visible = visible_rows(columns, scope, request, alive, question.now)
    lexical = _lexical(columns, question, alive)
    evidence = _gather(columns, question, lexical, alive & ~visible.withheld, version, mark)
    weights = _WEIGHTS[request.mode]
    scores = combine(evidence, weights)
    matched = _matched(columns, question, evidence, lexical)
    matched_well = matched & (scores >= logit(request.threshold))
    found: Rows = np.flatnonzero(visible.open & matched_well)
    # One more than asked tells whether there is a next page.
    rows = first_rows(columns, found, scores, request.limit + 1, after)
    return _Ranked(
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


def _lexical(columns: Columns, question: _Question, alive: Mask) -> LexicalScores:
    request = question.request
    more = (*request.keywords, *request.expansions)
    if question.query is not None:
        return bm25(columns, all_terms("\n".join((*positive_words(question.query), *more))), alive)
    return bm25(columns, question_terms("\n".join((request.query, *more))), alive)


def _gather(
    columns: Columns,
    question: _Question,
    lexical: LexicalScores,
    counted: Mask,
    version: int,
    mark: UserMark,
) -> Evidence:
    cosine = np.zeros(columns.rows, dtype=np.float32)
    embedded = columns.embedded(version)
    if question.vector is not None and columns.vectors.dimensions == len(question.vector):
        cosine = columns.vectors.similarities(question.vector, columns.rows)
        cosine[~embedded] = 0
    words = standardise(lexical.scores, counted)
    sense = standardise(cosine, counted & embedded)
    sense[~embedded] = 0
    spans = find_times(question.request.query, question.now, ZoneInfo(mark.time_zone))
    return Evidence(
        lexical=words,
        coverage=lexical.coverage(),
        semantic=sense,
        cosine=cosine,
        neighbours=neighbour_scores(columns, words + sense, version),
        time=time_scores(columns, spans),
    )


def _matched(
    columns: Columns, question: _Question, evidence: Evidence, lexical: LexicalScores
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
