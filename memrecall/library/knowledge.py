"""An agent's knowledge base: entries found by their words and by their meaning.

What a search gives must have to do with the question. The ranking compares entries with each
other, and the best of three strangers is still a stranger: so an entry must also share telling
words with the question, or lie nearer to it than unrelated texts do.
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
_TOP_UP = 128  # entries left over that one search has embedded first
_TELLING = 0.15  # of the weight of a question's words; less is a common word or two
_JUDGED = 50  # the best of the ranking that are looked at


class KnowledgeBase:
    """What a scope's agent knows; writing needs the permission `knowledge`."""

    def __init__(self, library: Library, scope: Scope) -> None:
        self._library = library
        self._scope = scope
        self._room = library.store.knowledge(scope)

    async def add(self, entry: NewKnowledge) -> str:
        """Store an entry, or write it anew under its key; its key."""
        row = entry.row()  # refused before it is embedded
        text = knowledge_text(row["summary"], row["content"], row["tags"])
        await self._library.vectors.prepare()
        embedder = self._library.embedder
        if embedder is None:
            return await self._room.add(entry)
        try:
            (vector,) = await embedder.embed([text])
        except EmbedderFailed as error:
            log.warning("an entry is stored but waits for its vector: %s", error)
            return await self._room.add(entry)
        packed = self._library.store.knowledge_vectors(embedder.model).pack(vector)
        return await self._room.add(entry, packed)

    async def get(self, key: str) -> KnowledgeEntry:
        """The entry of that key; NotFound if the agent has none."""
        return await self._room.get(key)

    def all(self) -> AsyncIterator[KnowledgeEntry]:
        """Every entry by its key, as of one moment."""
        return self._room.all()

    async def page(self, after: str = "", limit: int = 100) -> list[KnowledgeEntry]:
        """Entries by their keys, those behind `after`."""
        return await self._room.page(after, limit)

    async def count(self) -> int:
        """How many entries there are."""
        return await self._room.count()

    async def delete(self, key: str) -> None:
        """Hide an entry; NotFound if the agent has none."""
        await self._room.delete(key)

    async def search(self, query: str, limit: int = 3) -> list[tuple[KnowledgeEntry, float]]:
        """The best entries that have to do with a query, with their scores; perhaps none."""
        request = SearchRequest(query, limit=limit, kind="knowledge")  # or refuses it
        request = replace(request, limit=max(limit, _JUDGED))
        page = await self._library.engine.search(self._scope, request)
        if page.unembedded and await self.embed_left_over(_TOP_UP):
            page = await self._library.engine.search(self._scope, request)
        if not page.results:
            return []
        floor = await self._library.engine.noise(query, page.searched)
        good = [hit for hit in page.results if _is_relevant(hit, floor)][:limit]
        entries = {e.knowledge_key: e for e in await self._room.get_many([h.key for h in good])}
        return [(entries[hit.key], hit.score) for hit in good if hit.key in entries]

    async def embed_left_over(self, limit: int = _BATCH) -> int:
        """Give vectors to entries that a restore or a failing embedder left without; how many."""
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
            log.warning("entries wait for their vectors: %s", error)
            return 0
        return len(pending)


async def embed_knowledge(store: Store, embedder: Embedder, progress: Callable[[int], None]) -> int:
    """Embed every agent's entries that have no vector of this model; how many there were."""
    vectors, done = store.knowledge_vectors(embedder.model), 0
    while pending := await vectors.pending(_BATCH):
        matrix = await embedder.embed([item.text for item in pending])
        await vectors.write(pending, matrix)
        done += len(pending)
        progress(len(pending))
    return done


def _is_relevant(hit: Hit, floor: float) -> bool:
    return hit.why.coverage >= _TELLING or hit.why.cosine >= floor
