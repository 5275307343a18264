"""Derived data made anew: search text when the analysis changed, vectors when the model did."""

from memrecall.errors import EmbedderFailed
from memrecall.library.knowledge import embed_knowledge
from memrecall.library.library import Library
from memrecall.progress import Advance, Progress, progress_bar
from memrecall.text import TEXT_VERSION


class Reindexer:
    """Brings one library up to date, in batches that stay done when it is stopped."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._stale_text = library.store.facts.text_version != TEXT_VERSION

    async def count(self) -> int:
        """How many rows there are to do."""
        store = self._library.store
        rows = 0
        if self._library.embedder is not None:
            rows += await store.vectors(self._library.embedder.model).count_pending()
        if self._stale_text:
            counts = await store.count()
            rows += counts["messages"] + counts["memories"]
        return rows

    async def run(self, progress: Progress = None) -> dict[str, int | str]:
        """Do it; `progress` is told after each batch, and a notebook shows a bar."""
        embedder = self._library.embedder
        if embedder is None:
            raise EmbedderFailed("no embedder is configured", hint="Set MEMRECALL_EMBEDDER")
        with progress_bar(progress, "reindexing", await self.count(), unit="rows") as advance:
            analysed = await self._analyse(advance) if self._stale_text else 0
            await embedder.embed([])  # a broken embedder must not take the database over
            await self._library.store.vectors(embedder.model).set_model()
            embedded = await self._library.vectors.catch_up(advance)
            embedded += await embed_knowledge(self._library.store, embedder, advance)
        return {"embedded": embedded, "analysed": analysed, "model": embedder.model}

    async def _analyse(self, advance: Advance) -> int:
        done = 0
        async for count in self._library.store.rebuild_search_text():
            advance(count)
            done += count
        return done
