"""An agent's knowledge base, with lexical and semantic search.

The ranking compares entries with each other, and the best of three unrelated entries is still
unrelated. So a result must also share significant words with the query, or be closer to it than
unrelated texts are.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from memrecall.embedding import Embedder
from memrecall.errors import EmbedderFailed, StorageError
from memrecall.library.library import Library
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.search import SearchRequest
from memrecall.store import KnowledgeEntry, NewKnowledge, Store, knowledge_text
from memrecall.store.knowledge import Knowledge, StoredVector

log = logging.getLogger(__name__)

_BATCH = 256
_TOP_UP = 128  # pending entries that one search embeds first
_MIN_COVERAGE = 0.15  # of the weight of the query's words; less is a common word or two
_CANDIDATES = 50  # the best of the ranking, which are checked for relevance


class KnowledgeBase(Knowledge):
    """The knowledge of a scope's agent, embedded when it is written, and searched."""

    def __init__(self, library: Library, scope: Scope) -> None:
        super().__init__(library.store.database, scope)
        self._library = library

    async def add(self, entry: NewKnowledge, vector: StoredVector | None = None) -> str:
        """Store an entry with its vector, or replace the one of its key; return its key."""
        row = entry.row()  # Validates it before it is embedded.
        await self._library.vectors.prepare()
        embedder = self._library.embedder
        if embedder is not None and vector is None:
            text = knowledge_text(row["summary"], row["content"], row["tags"])
            try:
                (embedding,) = await embedder.embed([text])
            except EmbedderFailed as error:
                log.warning("an entry is stored but not embedded yet: %s", error)
            else:
                vector = self._library.store.knowledge_vectors(embedder.model).pack(embedding)
        return await super().add(entry, vector)

    async def search(self, query: str, limit: int = 3) -> list[tuple[KnowledgeEntry, float]]:
        """Return the best entries that are relevant to a query, with their scores."""
        request = SearchRequest(query, limit=limit, kind="knowledge")  # Checks the limit.
        request = replace(request, limit=max(limit, _CANDIDATES))
        page = await self._library.engine.search(self._scope, request)
        if page.unembedded and await self.embed_pending(_TOP_UP):
            page = await self._library.engine.search(self._scope, request)
        if not page.results:
            return []
        floor = await self._library.engine.noise_floor(query, page.searched)
        hits = [
            hit
            for hit in page.results
            if hit.why.coverage >= _MIN_COVERAGE or hit.why.cosine >= floor
        ][:limit]
        entries = {e.knowledge_key: e for e in await self.get_many([hit.key for hit in hits])}
        return [(entries[hit.key], hit.score) for hit in hits if hit.key in entries]

    async def embed_pending(self, limit: int = _BATCH) -> int:
        """Embed entries that a restore or a failing embedder left without; return how many."""
        embedder = self._library.embedder
        if embedder is None:
            return 0
        vectors = self._library.store.knowledge_vectors(embedder.model)
        pending = await vectors.pending(limit, self._scope.agent_id or DEFAULT_NAME)
        if not pending:
            return 0
        try:
            await self._library.vectors.prepare()
            await vectors.write(pending, await embedder.embed([item.text for item in pending]))
        except (EmbedderFailed, StorageError) as error:
            log.warning("entries are not embedded yet: %s", error)
            return 0
        return len(pending)


async def embed_knowledge(store: Store, embedder: Embedder, progress: Callable[[int], None]) -> int:
    """Embed every agent's entries that have no vector of this model; return how many."""
    vectors, total = store.knowledge_vectors(embedder.model), 0
    while pending := await vectors.pending(_BATCH):
        matrix = await embedder.embed([item.text for item in pending])
        await vectors.write(pending, matrix)
        total += len(pending)
        progress(len(pending))
    return total
