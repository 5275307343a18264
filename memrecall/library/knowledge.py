"""An agent's knowledge base, with lexical and semantic search.

The ranking compares entries with each other, and the best of three unrelated entries is still
unrelated. So a result must also share significant words with the query, or be closer to it than
unrelated texts are.
"""

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from memrecall.embedding import Embedder
from memrecall.errors import EmbedderFailed, StorageError
from memrecall.library.library import Library
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.search import Hit, SearchRequest
from memrecall.store import KnowledgeEntry, NewKnowledge, Store, knowledge_text

log = logging.getLogger(__name__)

_BATCH = 256
_TOP_UP = 128  # pending entries that one search embeds first
_MIN_COVERAGE = 0.15  # of the weight of the query's words; less is a common word or two
_CANDIDATES = 50  # the best of the ranking, which are checked for relevance


class KnowledgeBase:
    """The knowledge of a scope's agent; writing needs the permission `knowledge`."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self._library = library
        self._scope = scope
        self._entries = library.store.knowledge(scope)

    async def add(self, entry: NewKnowledge) -> str:
        """Store an entry, or replace the one of its key; return its key."""
        row = entry.row()  # Validates it before it is embedded.
        text = knowledge_text(row["summary"], row["content"], row["tags"])
        await self._library.vectors.prepare()
        embedder = self._library.embedder
        if embedder is None:
            return await self._entries.add(entry)
        try:
            (vector,) = await embedder.embed([text])
        except EmbedderFailed as error:
            log.warning("an entry is stored but not embedded yet: %s", error)
            return await self._entries.add(entry)
        packed = self._library.store.knowledge_vectors(embedder.model).pack(vector)
        return await self._entries.add(entry, packed)

    async def get(self, key: str) -> KnowledgeEntry:
        """Return the entry of a key; NotFound if the agent has none."""
        return await self._entries.get(key)

    def all(self) -> AsyncIterator[KnowledgeEntry]:
        """Yield every entry by key, as of one moment."""
        return self._entries.all()

    async def page(self, after: str = "", limit: int = 100) -> list[KnowledgeEntry]:
        """Return entries by key, those that follow `after`."""
        return await self._entries.page(after, limit)

    async def count(self) -> int:
        """Count the entries."""
        return await self._entries.count()

    async def delete(self, key: str) -> None:
        """Hide an entry; NotFound if the agent has none."""
        await self._entries.delete(key)

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
        hits = [hit for hit in page.results if _is_relevant(hit, floor)][:limit]
        entries = {e.knowledge_key: e for e in await self._entries.get_many([h.key for h in hits])}
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


def _is_relevant(hit: Hit, floor: float) -> bool:
    return hit.why.coverage >= _MIN_COVERAGE or hit.why.cosine >= floor
