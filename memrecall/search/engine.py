"""One search engine over messages, memories and knowledge.

A search reads the user's version once and binds to it: its pages are computed as of the first one,
whatever is written in between.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np

from memrecall.embedding import Embedder
from memrecall.embedding.base import EmbedderBreaker, ThreadedEmbedder, embedder_in_time
from memrecall.embedding.embedders import LocalEmbedder
from memrecall.embedding.maps import QueryMap
from memrecall.errors import EmbedderFailed, EmbeddingModelMismatch
from memrecall.scope import DEFAULT_NAME, Permission, Scope
from memrecall.search.index import Floats
from memrecall.search.index.cache import IndexCache, IndexFeed
from memrecall.search.index.columns import Columns
from memrecall.search.index.vectors import mean_direction
from memrecall.search.ranking.features import (
    RankingQuery,
    find_speakers,
    named_rows,
    to_first_person,
    user_to_first_person,
)
from memrecall.search.ranking.ranker import Ranking, RankPosition, StoredRows, rank
from memrecall.search.ranking.rerank import RERANKED, can_rerank, rerank, with_lines_before
from memrecall.search.ranking.scores import BACKGROUND, Noise
from memrecall.search.request import KINDS, EngineRequest, SearchRequest
from memrecall.search.results import SearchPage, unknown_owner
from memrecall.store import (
    Reads,
    Store,
    UserVersion,
    open_cursor,
    require_enabled,
    seal_cursor,
)
from memrecall.text.query import parse_query
from memrecall.text.times import parse_period
from memrecall.timing import CallBatcher
from memrecall.workers import in_process

_CACHED_QUERIES = 256
_QUESTIONS_AT_ONCE = 16
_REQUESTS_AT_ONCE = 8  # to an embedder that can answer several
# At most for a vector, and for loading a local model.
EMBEDDER_SECONDS, _LOAD_SECONDS = 5.0, 120.0
_LAST_LINE_WEIGHT = 1.0  # of 0.3 and 1.0, the latter found a tenth more answers to follow-ups


@dataclass(frozen=True, slots=True)
class Search:
    """One search in progress. Later pages keep the version and the time of the first."""

    scope: Scope
    request: EngineRequest
    feed: IndexFeed
    user: UserVersion
    version: int
    now: datetime
    zone: ZoneInfo
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
        feed: IndexFeed = self._store.feed(scope.user_id)
        if request.kind == "knowledge":
            agent_id = scope.agent_id or DEFAULT_NAME
            feed = self._store.knowledge_feed(agent_id)
            user = await feed.version()
            if user is not None:
                require_enabled("agent", agent_id, user.status)
        elif user is None:
            user = await self._store.read_version(scope)
        if user is None:
            self._cache.forget(feed.owner)
            return unknown_owner(scope, request)
        search = self.begin(scope, EngineRequest.of(request), feed, user)
        vector, failure = await self.embed_request(search)
        noise = await self.measure_noise(vector)
        async with self._cache.open(feed, user) as columns:
            if columns is None:
                return unknown_owner(scope, request)
            await self._cache.fetch_products(columns, vector)
            sources = await self._withheld_sources(search, columns)
            # By the clock, whatever time the search is about: what expired is gone.
            hidden = sources.union(columns.expired_messages(datetime.now(UTC)))
            asked = search.request
            if hidden and asked.kind != "memory":
                asked = replace(asked, exclude=asked.exclude | hidden)
            ranking_query = RankingQuery(
                asked, query, vector, search.version, search.now, search.zone, noise
            )
            read = partial(self._read_page, search, columns, ranking_query)
            page = await self._store.database.read_together(read, is_search=True)
        return replace(page, embedder_failure=failure, withheld_sources=sources)

    def _read_page(
        self, search: Search, columns: Columns, query: RankingQuery, reads: Reads
    ) -> SearchPage:
        """Rank the rows, read the best and return them as a page, with the cursor of the next."""
        scope, store = search.scope, self._store
        ranking = reads.compute(rank, columns, scope, query)
        stored: StoredRows = {}
        # The network was fitted with the vectors of the local model.
        tokens = self._embedder.token_vectors if isinstance(self._embedder, LocalEmbedder) else None
        if tokens is not None and can_rerank(ranking):
            first, texts, stored = prepare_reranking(store, scope, ranking, reads)
            ranking = reads.compute(rerank, ranking, first, texts, tokens)
        places, has_more = reads.compute(ranking.best, search.after)
        rows: list[int] = ranking.rows[places].tolist()
        missing = [row for row in rows if row not in stored]
        stored |= _read_rows(store, scope, columns, missing, reads)
        page = reads.compute(ranking.page, places, stored)
        records = dict(page.records)
        if query.request.with_sources:
            keys = {key for hit in page.results for key in hit.sources} - records.keys()
            messages = store.timeline(scope).read_many(sorted(keys), reads)
            records |= {message.message_id: message for message in messages}
        cursor = None
        if has_more:
            last = RankPosition.of(columns, rows[-1], float(ranking.scores[places[-1]]))
            position = [search.version, search.now.isoformat(), *last]
            cursor = seal_cursor(store.facts.cursor_secret, search.binding(), position)
        return replace(page, records=records, next_cursor=cursor)

    async def _withheld_sources(self, search: Search, columns: Columns) -> frozenset[str]:
        """Return the messages that memories come from which the scope may not see."""
        if not search.request.with_sources or search.scope.allows(Permission.SENSITIVE):
            return frozenset()
        # Dead rows too: what a deleted or superseded memory hid stays hidden.
        keys = [columns.table.keys[row] for row in np.flatnonzero(columns.table.sensitive)]
        states = await self._store.memories(search.scope).get_states(keys)
        return frozenset(key for row in states if row.sensitive for key in row.source_message_ids)

    def begin(
        self, scope: Scope, request: EngineRequest, feed: IndexFeed, user: UserVersion
    ) -> Search:
        """Return a search, or the one that a cursor continues: as of its first page."""
        now = request.now or datetime.now(UTC)
        zone = request.time_zone or user.time_zone
        search = Search(scope, request, feed, user, user.version, now, ZoneInfo(zone), None)
        if request.cursor is not None:
            secret = self._store.facts.cursor_secret
            version, moment, *position = open_cursor(secret, search.binding(), request.cursor)
            now = datetime.fromisoformat(moment)
            after = RankPosition(*position)
            search = replace(search, version=int(version), now=now, after=after)
        if request.time is not None and request.period is None:
            period = parse_period(request.time, now, zone)
            search = replace(search, request=replace(request, period=period))
        return search

    async def embed_request(self, search: Search) -> tuple[Floats | None, str]:
        """Return the query's vector, or why a hybrid search does without it."""
        request = search.request
        if request.mode == "keyword":
            return None, ""
        try:
            if request.kind == "knowledge":  # written as articles are, not as chat
                return await self._embed_text(request.query), ""
            if request.mode == "semantic":
                return await self.embed_query(request.query), ""
            return self._map(await self.embed_conversation(search)), ""
        except (EmbedderFailed, EmbeddingModelMismatch) as error:
            if request.mode == "semantic":
                raise
            return None, str(error)

    async def embed_conversation(self, search: Search) -> Floats:
        """Return the vector of a query; the last line of several counts more."""
        query, names, share = search.request.query, [], 0.0
        # The lock is released before embedding: a slow embedder must not block other searches.
        async with self._cache.open(search.feed, search.user) as columns:
            if columns is not None:
                stored = columns.speakers(search.version)
                speakers = await in_process(len(query), find_speakers, query, stored)
                names = list(speakers.values())
                _, share = named_rows(columns, list(speakers), columns.alive(search.version))
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
            noise = await self.measure_noise(await self._embed_text(text))
        except (EmbedderFailed, EmbeddingModelMismatch):
            return 1.0
        return 1.0 if noise is None else noise.floor(rows)

    async def measure_noise(self, vector: Floats | None) -> Noise | None:
        """Measure how near unrelated texts are to a query's vector."""
        if vector is None or self._embedder is None:
            return None
        background = self._background
        if background is None or background.shape[1] != len(vector):
            try:
                async with self.breaker.in_time(self._seconds):
                    self._background = background = await self._embedder.embed(BACKGROUND)
            except EmbedderFailed:
                return None
        if background.shape[1] != len(vector):  # a plugin, which returns what it likes
            return None
        return Noise.of(background @ vector)


def prepare_reranking(
    store: Store, scope: Scope, ranking: Ranking, reads: Reads
) -> tuple[list[int], dict[int, str], StoredRows]:
    """Return the first places of a ranking, and the texts of their rows and the lines before."""
    first = ranking.first(RERANKED // ranking.query.request.share)
    stored = _read_rows(store, scope, ranking.columns, with_lines_before(ranking, first), reads)
    return first, {row: record.content for row, record in stored.items()}, stored


def _read_rows(
    store: Store, scope: Scope, columns: Columns, rows: Sequence[int], reads: Reads
) -> StoredRows:
    """Read stored rows: only the few that are shown or compared by their texts."""
    table = columns.table
    numbers: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for row in rows:
        numbers[KINDS[table.kind[row]]][table.keys[row]] = row
    stored: StoredRows = {}
    if memories := numbers["memory"]:
        for memory in store.memories(scope).read_many(list(memories), reads):
            stored[memories[memory.memory_key]] = memory
    if messages := numbers["message"]:
        for message in store.timeline(scope).read_many(list(messages), reads):
            stored[messages[message.message_id]] = message
    if entries := numbers["knowledge"]:
        for entry in store.knowledge(scope).read_many(list(entries), reads):
            stored[entries[entry.knowledge_key]] = entry
    return stored
