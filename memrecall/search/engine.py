"""One search engine over messages and memories.

A search binds to the user's version: its pages are computed as of the first one, whatever is
written meanwhile.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from memrecall.embedding import Embedder
from memrecall.errors import EmbedderFailed
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.search.hits import fetch_hits
from memrecall.search.index.cache import IndexCache
from memrecall.search.index.columns import Columns
from memrecall.search.ranking.calibration import BACKGROUND, noise_floor
from memrecall.search.ranking.features import RankedRows, RankingQuery, rank
from memrecall.search.ranking.people import in_first_person, named_in, told_of
from memrecall.search.ranking.selection import RankPosition, place_of
from memrecall.search.request import Mode, SearchPage, SearchRequest
from memrecall.store import Store, UserVersion, open_cursor, require_enabled, seal_cursor
from memrecall.telemetry import trace_search
from memrecall.text.query import parse_query

Floats = npt.NDArray[np.float32]

# Up to so many rows it costs more to move the work to a thread than it frees the event loop.
_ROWS_FOR_A_THREAD: dict[Mode, int] = {"keyword": 100_000, "semantic": 5_000, "hybrid": 5_000}
_QUERIES_KEPT = 256
_LAST_LINE = 0.3  # on MADial 0.1 to 0.4 find about one more of a hundred pieces of evidence


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a page begins. Later pages keep the version and the time of the first."""

    version: int
    now: datetime
    after: RankPosition | None


class SearchEngine:
    """Searches any scope's rows; results depend on that user's data alone."""

    def __init__(self, store: Store, embedder: Embedder | None, cache: IndexCache) -> None:
        self._store = store
        self._embedder = embedder
        self._cache = cache
        self._vectors: dict[str, Floats] = {}
        self._model_checked = False
        self._background: Floats | None = None

    async def search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        """The best rows for a request, and in words why there are none."""
        with trace_search(request.mode, request.query, request.limit) as span:
            page = await self._search(scope, request)
            span.set({"memrecall.search.results": len(page.results)})
            return page

    async def _search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        query = parse_query(request.query) if request.syntax == "query" else None
        vector, note = await self._embed(scope, request)
        async with self._current(scope, request) as current:
            if current is None:
                return SearchPage(message=_nobody(scope, request))
            mark, columns = current
            await self._require_active(scope, request, mark)
            await self._cache.bring(mark, columns, vector)
            start = self._start(scope, request, mark)
            question = RankingQuery(request, query, vector, start.now)
            work = (columns, scope, question, start.version, start.after, mark)
            if columns.rows > _ROWS_FOR_A_THREAD[request.mode]:
                ranked = await asyncio.to_thread(rank, *work)
            else:
                ranked = rank(*work)
            cursor = self._cursor(scope, request, mark, start, columns, ranked)
            hits, records = await fetch_hits(self._store, scope, columns, ranked)
        return SearchPage(
            results=tuple(hits),
            records=records,
            total_found=ranked.total_found,
            message="; ".join(filter(None, (ranked.explanation, note, *_notes(ranked)))),
            withheld=ranked.withheld,
            unembedded=ranked.unembedded,
            next_cursor=cursor,
            searched=ranked.searched,
            told_of=told_of(request.query, ranked.telling, hits) if query is None else {},
        )

    def _current(
        self, scope: Scope, request: SearchRequest
    ) -> AbstractAsyncContextManager[tuple[UserVersion, Columns] | None]:
        """Whose rows are searched: the user's, or what the agent knows."""
        if request.kind == "knowledge":
            return self._cache.current_knowledge(scope.agent_id or DEFAULT_NAME)
        return self._cache.current(scope.user_id)

    async def _require_active(
        self, scope: Scope, request: SearchRequest, mark: UserVersion
    ) -> None:
        if request.kind == "knowledge":
            require_enabled("agent", scope.agent_id or DEFAULT_NAME, mark.status)
        else:
            await self._store.require_active(mark, scope)

    async def _embed(self, scope: Scope, request: SearchRequest) -> tuple[Floats | None, str]:
        """The query's vector; hybrid search goes on without one and says so."""
        if request.mode == "keyword":
            return None, ""
        try:
            if request.mode == "semantic":
                return await self.vector_of(request.query), ""
            return await self._meaning(await self._spoken(scope, request)), ""
        except EmbedderFailed as error:
            if request.mode == "semantic":
                raise
            return None, f"searched by keywords only: {error.message}"

    async def _spoken(self, scope: Scope, request: SearchRequest) -> str:
        """The question in the first person of those it names, for that is how they speak."""
        # Asked for apart from the search: a slow embedder must not keep others waiting.
        async with self._current(scope, request) as current:
            if current is None:
                return request.query
            mark, columns = current
            # A later page asks as the first did, whoever has begun to speak since.
            speakers = columns.speakers(self._start(scope, request, mark).version)
        return in_first_person(request.query, list(named_in(request.query, speakers).values()))

    async def _meaning(self, text: str) -> Floats:
        """The vector of a question; of a conversation, with its last line a little closer."""
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) <= 1:
            return await self.vector_of(text)
        both = await self.vector_of(text) + np.float32(_LAST_LINE) * await self.vector_of(lines[-1])
        return (both / max(float(np.linalg.norm(both)), 1e-9)).astype(np.float32)

    async def vector_of(self, text: str) -> Floats:
        """The vector of a question; the latest ones are kept."""
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

    async def noise(self, text: str, rows: int) -> float:
        """The cosine below which nearness to one of the rows means nothing; 1: no embedder."""
        try:
            if self._background is None and self._embedder is not None:
                self._background = await self._embedder.embed(BACKGROUND)
            vector = await self.vector_of(text)
        except EmbedderFailed:
            return 1.0
        return 1.0 if self._background is None else noise_floor(self._background @ vector, rows)

    def _start(self, scope: Scope, request: SearchRequest, mark: UserVersion) -> _Start:
        if request.cursor is None:
            return _Start(mark.version, request.now or datetime.now(UTC), None)
        secret = self._store.facts.cursor_secret
        version, now, *place = open_cursor(secret, _binding(scope, request, mark), request.cursor)
        return _Start(int(version), datetime.fromisoformat(now), RankPosition(*place))

    def _cursor(
        self,
        scope: Scope,
        request: SearchRequest,
        mark: UserVersion,
        start: _Start,
        columns: Columns,
        ranked: RankedRows,
    ) -> str | None:
        if not ranked.more:
            return None
        last = place_of(columns, ranked.rows[-1], ranked.scores[-1])
        place = [start.version, start.now.isoformat(), *last]
        return seal_cursor(self._store.facts.cursor_secret, _binding(scope, request, mark), place)


def _nobody(scope: Scope, request: SearchRequest) -> str:
    if request.kind == "knowledge":
        return f"agent {scope.agent_id or DEFAULT_NAME!r} knows nothing yet"
    return f"user {scope.user_id!r} is not known: nothing is stored under this id"


def _notes(ranked: RankedRows) -> Iterator[str]:
    if ranked.withheld:
        yield f"{ranked.withheld} sensitive memories withheld: no permission"
    if ranked.unembedded:
        yield f"{ranked.unembedded} rows are not embedded yet: `memrecall reindex`"


def _binding(scope: Scope, request: SearchRequest, mark: UserVersion) -> list[object]:
    permissions = sorted(scope.permissions)
    return [scope.user_id, scope.agent_id, permissions, mark.epoch, *request.binding()]
