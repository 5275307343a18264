"""One search engine over messages, memories and knowledge.

A search reads the user's version once and binds to it: its pages are computed as of the first one,
whatever is written meanwhile.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np

from memrecall.embedding import Embedder
from memrecall.embedding.base import EmbedderBreaker, ThreadedEmbedder, Vectors, embedder_in_time
from memrecall.embedding.embedders import LocalEmbedder
from memrecall.embedding.query_map import QueryMap
from memrecall.errors import EmbedderFailed, EmbeddingModelMismatch
from memrecall.scope import DEFAULT_NAME, Permission, Scope
from memrecall.search.index.cache import IndexCache, IndexFeed
from memrecall.search.index.columns import Columns
from memrecall.search.index.rows import Floats
from memrecall.search.index.vectors import mean_direction
from memrecall.search.ranking.calibration import BACKGROUND, Noise
from memrecall.search.ranking.context import named_rows
from memrecall.search.ranking.features import RankingQuery
from memrecall.search.ranking.people import find_speakers, to_first_person, user_to_first_person
from memrecall.search.ranking.ranker import RankedRows, Ranking, rank
from memrecall.search.ranking.rerank import RERANKED, can_rerank, rerank, with_lines_before
from memrecall.search.ranking.selection import RankPosition
from memrecall.search.request import KINDS, SearchRequest
from memrecall.search.results import SearchPage, UserRow, make_hit, unknown_owner
from memrecall.search.sources import add_sources
from memrecall.store import (
    KnowledgeEntry,
    Reads,
    Store,
    UserVersion,
    open_cursor,
    require_enabled,
    seal_cursor,
)
from memrecall.text.query import Query, parse_query
from memrecall.text.times import parse_period
from memrecall.timing.batches import CallBatcher
from memrecall.workers import in_process

_CACHED_QUERIES = 256
_QUESTIONS_AT_ONCE = 16
_REQUESTS_AT_ONCE = 8  # to an embedder that can answer several
# At most for a vector, and for loading a local model.
EMBEDDER_SECONDS, _LOAD_SECONDS = 5.0, 120.0
_LAST_LINE_WEIGHT = 1.0  # of 0.3 and 1.0, the latter found a tenth more answers to follow-ups


@dataclass(frozen=True, slots=True)
class _Search:
    """One search in progress. Later pages keep the version and the time of the first."""

    scope: Scope
    request: SearchRequest
    feed: IndexFeed
    user: UserVersion
    version: int
    now: datetime
    after: RankPosition | None

    def binding(self) -> list[object]:
        """Return what a cursor of this search is bound to."""
        scope = self.scope
        permissions = sorted(scope.permissions)
        owner = [*scope.reader(), permissions, self.user.epoch]
        return [*owner, *self.request.binding()]


class SearchEngine:
    """Searches any scope's rows; results depend on that user's data alone."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None,
        cache: IndexCache,
        query_map: QueryMap | None = None,
        embedder_seconds: float = EMBEDDER_SECONDS,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._cache = cache
        self._query_map = query_map
        self._seconds = embedder_seconds
        self.breaker = EmbedderBreaker()
        groups = 1 if isinstance(embedder, ThreadedEmbedder) else _REQUESTS_AT_ONCE
        self._embed_question = CallBatcher(self._embed_questions, _QUESTIONS_AT_ONCE, groups)
        self._vectors: dict[str, Floats] = {}
        self._is_model_checked = False
        self._dimensions: int | None = None  # of the vectors in the database, as far as known
        self._background: Floats | None = None

    async def search(
        self, scope: Scope, request: SearchRequest, user: UserVersion | None = None
    ) -> SearchPage:
        """Return the best rows for a request, and why if there are none.

        `user` is the user's version if the caller has just read it and checked its status.
        """
        query = None
        if request.syntax == "query":
            query = await in_process(len(request.query), parse_query, request.query)
        elif request.kind != "knowledge":
            request = replace(request, query=user_to_first_person(request.query))
        feed = self._feed(scope, request)
        if user is None or request.kind == "knowledge":
            user = await self._read_version(scope, request, feed)
        if user is None:
            self._cache.forget(feed.owner)
            return unknown_owner(scope, request)
        return await self._run(self._begin(scope, request, feed, user), query)

    async def _run(self, search: _Search, query: Query | None) -> SearchPage:
        """Return the page of a search that sees one version of the user's data."""
        scope, request, user = search.scope, search.request, search.user
        if request.time is not None and request.period is None:
            zone = request.time_zone or user.time_zone
            request = replace(request, period=parse_period(request.time, search.now, zone))
        vector, failure = await self._embed(search)
        noise = await self._noise(vector)
        async with self._cache.open(search.feed, user) as columns:
            if columns is None:
                return unknown_owner(scope, request)
            await self._cache.fetch_products(columns, vector)
            sources = await self._withheld_sources(search, columns)
            # By the clock, whatever time the search is about: what expired is gone.
            hidden = sources.union(columns.expired_messages(datetime.now(UTC)))
            if hidden and request.kind != "memory":
                request = replace(request, exclude=request.exclude | hidden)
            ranking_query = RankingQuery(
                request, query, vector, search.version, search.now, user.time_zone, noise
            )
            read = partial(self._rank, search, columns, ranking_query)
            page, ranked = await self._store.database.read_together(read, is_search=True)
            cursor = self._cursor(search, columns, ranked)
        return replace(page, embedder_failure=failure, next_cursor=cursor, withheld_sources=sources)

    def _rank(
        self, search: _Search, columns: Columns, query: RankingQuery, reads: Reads
    ) -> tuple[SearchPage, RankedRows]:
        """Rank the rows and read the best."""
        scope, request = search.scope, query.request
        ranking = reads.compute(rank, columns, scope, query)
        stored: StoredRows = {}
        # The network was fitted with the vectors of the local model.
        tokens = self._embedder.token_vectors if isinstance(self._embedder, LocalEmbedder) else None
        if tokens is not None and can_rerank(ranking):
            first, texts, stored = prepare_reranking(self._store, scope, ranking, reads)
            ranking = reads.compute(rerank, ranking, first, texts, tokens)
        ranked = reads.compute(ranking.page, search.after)
        missing = [row for row, name in _names(columns, ranked.rows) if name not in stored]
        stored |= _read_rows(self._store, scope, columns, missing, reads)
        page = reads.compute(_make_page, columns, ranked, stored)
        if request.with_sources:
            page = add_sources(self._store, scope, page, reads)
        return page, ranked

    async def _withheld_sources(self, search: _Search, columns: Columns) -> frozenset[str]:
        """Return the messages that memories come from which the scope may not see."""
        if not search.request.with_sources or search.scope.allows(Permission.SENSITIVE):
            return frozenset()
        # Dead rows too: what a deleted or superseded memory hid stays hidden.
        keys = [columns.table.keys[row] for row in np.flatnonzero(columns.table.sensitive)]
        states = await self._store.memories(search.scope).get_states(keys)
        return frozenset(key for row in states if row.sensitive for key in row.source_message_ids)

    async def _read_version(
        self, scope: Scope, request: SearchRequest, feed: IndexFeed
    ) -> UserVersion | None:
        """Return the version of an enabled owner; None for an unknown one."""
        if request.kind != "knowledge":
            return await self._store.read_version(scope)
        version = await feed.version()
        if version is not None:
            require_enabled("agent", scope.agent_id or DEFAULT_NAME, version.status)
        return version

    def _feed(self, scope: Scope, request: SearchRequest) -> IndexFeed:
        if request.kind == "knowledge":
            return self._store.knowledge_feed(scope.agent_id or DEFAULT_NAME)
        return self._store.feed(scope.user_id)

    def _begin(
        self, scope: Scope, request: SearchRequest, feed: IndexFeed, user: UserVersion
    ) -> _Search:
        now = request.now or datetime.now(UTC)
        first = _Search(scope, request, feed, user, user.version, now, None)
        if request.cursor is None:
            return first
        secret = self._store.facts.cursor_secret
        version, now, *position = open_cursor(secret, first.binding(), request.cursor)
        return replace(
            first,
            version=int(version),
            now=datetime.fromisoformat(now),
            after=RankPosition(*position),
        )

    def _cursor(self, search: _Search, columns: Columns, ranked: RankedRows) -> str | None:
        if not ranked.has_more:
            return None
        last = RankPosition.of(columns, ranked.rows[-1], ranked.scores[-1])
        position = [search.version, search.now.isoformat(), *last]
        return seal_cursor(self._store.facts.cursor_secret, search.binding(), position)

    async def _embed(self, search: _Search) -> tuple[Floats | None, str]:
        """Return the query's vector, or why a hybrid search does without it."""
        request = search.request
        if request.mode == "keyword":
            return None, ""
        try:
            if request.kind == "knowledge":  # written as articles are, not as chat
                return await self._embed_text(request.query), ""
            if request.mode == "semantic":
                return await self.embed_query(request.query), ""
            return self._map(await self._embed_conversation(search)), ""
        except (EmbedderFailed, EmbeddingModelMismatch) as error:
            if request.mode == "semantic":
                raise
            return None, str(error)

    async def _embed_conversation(self, search: _Search) -> Floats:
        """Return the vector of a query; the last line of several counts more."""
        query = search.request.query
        names, share = await self._named_speakers(search)
        # People speak of themselves in the first person. Among many speakers a named one is also
        # spoken of, so that both forms count.
        text = to_first_person(query, names)
        vector = await self._embed_text(text)
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) > 1:
            return mean_direction(vector, await self._embed_text(lines[-1]), _LAST_LINE_WEIGHT)
        if names and share < 0.5:
            return mean_direction(vector, await self._embed_text(query), 1 - 2 * share)
        return vector

    async def _named_speakers(self, search: _Search) -> tuple[list[str], float]:
        """Return the names of speakers as the query writes them, and their share of all rows."""
        # The lock is released before embedding: a slow embedder must not block other searches.
        async with self._cache.open(search.feed, search.user) as columns:
            if columns is None:
                return [], 0.0
            query, speakers = search.request.query, columns.speakers(search.version)
            found = await in_process(len(query), find_speakers, query, speakers)
            _, share = named_rows(columns, list(found), columns.alive(search.version))
        return list(found.values()), share

    def _map(self, vector: Floats) -> Floats:
        return vector if self._query_map is None else self._query_map.apply(vector)

    async def embed_query(self, text: str) -> Floats:
        """Return the vector of a query, to compare with those of rows."""
        return self._map(await self._embed_text(text))

    async def _embed_text(self, text: str) -> Floats:
        """Return the vector of a text; the latest ones are cached."""
        embedder = self._require_embedder()
        if not self._is_model_checked:
            self._dimensions = await self._store.vectors(embedder.model).check_model()
            self._is_model_checked = True
        if text in self._vectors:
            return self._vectors[text]
        async with embedder_in_time(_LOAD_SECONDS):
            await self.load_embedder()
        async with self.breaker.in_time(self._seconds):  # waiting for others included
            vector = await self._embed_question(text)
        if len(vector) != self._dimensions:
            vectors = self._store.vectors(embedder.model)
            self._dimensions = await vectors.check_model(len(vector))
        if len(self._vectors) >= _CACHED_QUERIES:
            self._vectors.pop(next(iter(self._vectors)))
        self._vectors[text] = vector
        return vector

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts that are no questions, unless that takes too long."""
        async with self.breaker.in_time(self._seconds):
            return await self._require_embedder().embed(texts)

    def _require_embedder(self) -> Embedder:
        if self._embedder is None:
            raise EmbedderFailed("no embedder is configured", hint="Set MEMRECALL_EMBEDDER")
        return self._embedder

    async def _embed_questions(self, texts: list[str]) -> Sequence[Floats | BaseException]:
        """Return the vectors of questions that are asked at once: together they cost less."""
        embedder = self._require_embedder()
        try:
            async with embedder_in_time(self._seconds):
                return list(await embedder.embed(texts))
        except EmbedderFailed as error:
            if len(texts) == 1:
                return [error]
        # One text may be the reason, which must not fail the others.
        rows = await asyncio.gather(
            *(embedder.embed([text]) for text in texts), return_exceptions=True
        )
        return [row if isinstance(row, BaseException) else row[0] for row in rows]

    async def load_embedder(self) -> None:
        """Load a local model before it is timed. A search says what is wrong with it."""
        if isinstance(self._embedder, ThreadedEmbedder):
            with suppress(EmbedderFailed):
                await self._embedder.load()

    async def noise_floor(self, text: str, rows: int) -> float:
        """Return the cosine below which similarity to knowledge is noise; 1: no embedder."""
        try:
            noise = await self._noise(await self._embed_text(text))
        except (EmbedderFailed, EmbeddingModelMismatch):
            return 1.0
        return 1.0 if noise is None else noise.floor(rows)

    async def _noise(self, vector: Floats | None) -> Noise | None:
        """Measure how near unrelated texts are to a query's vector."""
        if vector is None or self._embedder is None:
            return None
        background = self._background
        if background is None or background.shape[1] != len(vector):
            try:
                self._background = background = await self.embed(BACKGROUND)
            except EmbedderFailed:
                return None
        if background.shape[1] != len(vector):  # a plugin, which returns what it likes
            return None
        return Noise.of(background @ vector)


StoredRows = dict[tuple[str, str], UserRow | KnowledgeEntry]


def _make_page(columns: Columns, ranked: RankedRows, stored: StoredRows) -> SearchPage:
    """Return the page of hits. A row erased meanwhile is left out."""
    chances: Sequence[float | None] = ranked.probability or [None] * len(ranked.rows)
    values = (ranked.relevance, chances, ranked.is_below, ranked.parts)
    fields = ("score", "probability", "below_threshold", "why")
    hits = [
        make_hit(stored[name], dict(zip(fields, row, strict=True)))
        for (_, name), *row in zip(_names(columns, ranked.rows), *values, strict=True)
        if name in stored
    ]
    # No message has the key of a memory.
    records = {key: row for (_, key), row in stored.items() if not isinstance(row, KnowledgeEntry)}
    return replace(ranked.page, results=tuple(hits), records=records)


def prepare_reranking(
    store: Store, scope: Scope, ranking: Ranking, reads: Reads
) -> tuple[list[int], dict[int, str], StoredRows]:
    """Return the first places of a ranking, and the texts of their rows and the lines before."""
    first = ranking.first(RERANKED // ranking.query.request.share)
    lines = with_lines_before(ranking, first)
    stored = _read_rows(store, scope, ranking.columns, lines, reads)
    named = _names(ranking.columns, lines)
    return first, {row: stored[name].content for row, name in named if name in stored}, stored


def _names(columns: Columns, rows: Sequence[int]) -> list[tuple[int, tuple[str, str]]]:
    """Return each row with its kind and key."""
    table = columns.table
    return [(row, (KINDS[table.kind[row]], table.keys[row])) for row in rows]


def _read_rows(
    store: Store, scope: Scope, columns: Columns, rows: Sequence[int], reads: Reads
) -> StoredRows:
    """Read rows by kind and key: only the few that are shown or compared by their texts."""
    names = [name for _, name in _names(columns, rows)]
    keys = {kind: [key for of_kind, key in names if of_kind == kind] for kind in KINDS}
    memories = store.memories(scope).read_many(keys["memory"], reads)
    messages = store.timeline(scope).read_many(keys["message"], reads)
    entries = store.knowledge(scope).read_many(keys["knowledge"], reads)
    return {
        **{("memory", memory.memory_key): memory for memory in memories},
        **{("message", message.message_id): message for message in messages},
        **{("knowledge", entry.knowledge_key): entry for entry in entries},
    }
