"""Reindexing: search text of an older version and vectors of another model are made again."""

from memrecall.errors import EmbedderFailed
from memrecall.library.library import Library
from memrecall.progress import Progress, progress_bar
from memrecall.store.texts import rebuild_search_text
from memrecall.text import TEXT_VERSION

_USERS_PER_PAGE = 20


class Reindexer:
    """Updates derived data: search text of an older version, vectors of another model.

    It works in batches; those that are complete stay so if it is interrupted.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._is_text_stale = library.store.facts.text_version != TEXT_VERSION

    async def count(self) -> int:
        """Count the rows to be updated."""
        store = self._library.store
        rows = 0
        if self._library.embedder is not None:
            rows += await store.vectors(self._library.embedder.model).count_pending()
        if self._is_text_stale:
            counts = await store.count()
            rows += counts["messages"] + counts["memories"]
        return rows

    async def run(self, progress: Progress = False) -> dict[str, int | str]:
        """Update everything; `progress` is called after each batch."""
        library, embedder = self._library, self._library.embedder
        if embedder is None:
            raise EmbedderFailed("no embedder is configured", hint="Set MEMRECALL_EMBEDDER")
        with progress_bar(progress, "reindexing", await self.count(), unit="rows") as advance:
            analysed = 0
            if self._is_text_stale:
                async for count in rebuild_search_text(library.store.database):
                    advance(count)
                    analysed += count
            await embedder.embed([])  # A broken embedder must not claim the database.
            # From here on, the database has the embedder's model and size.
            if await library.store.vectors(embedder.model).set_model(embedder.dimensions):
                async for page in library.store.owners.pages(_USERS_PER_PAGE):
                    for user_id in page:
                        await library.forget_derived(user_id)
            embedded = await library.vectors.embed_all(advance)
        return {"embedded": embedded, "analysed": analysed, "model": embedder.model}
