"""The parts put together: a store, an embedder and a search engine over one database.

Layers above take a `Library` and need not know how it is made.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from memrecall.embedding import Embedder, make_embedder
from memrecall.errors import EmbedderFailed, NotFound
from memrecall.memory.embedding import VectorWriter
from memrecall.scope import Scope
from memrecall.search import (
    IndexCache,
    LexicalQuery,
    MessageSearch,
    ScoredPage,
    SearchEngine,
    SearchPage,
    SearchRequest,
    SemanticQuery,
    SnapshotFolder,
    check_dimensions,
    unit_vector,
)
from memrecall.settings import Settings, default_database
from memrecall.store import Entry, Erased, Outcome, RowKey, Step, Store, Written
from memrecall.types import NewMemory, NewMessage, Origin


class Library:
    """One database, ready to be written to and searched. Get one from `Library.open`."""

    def __init__(self, store: Store, embedder: Embedder | None, settings: Settings) -> None:
        self.store = store
        self.embedder = embedder
        self.settings = settings
        model = embedder.model if embedder else None
        folder = _snapshot_folder(store, settings) if settings.snapshots else None
        budget = settings.index_memory_mb * 1024 * 1024
        self.cache = IndexCache(store, model, folder, budget)
        self.engine = SearchEngine(store, embedder, self.cache)
        self.message_search = MessageSearch(store, self.cache)
        self.vectors = VectorWriter(store, embedder)

    @classmethod
    async def open(cls, settings: Settings, *, create: bool = True) -> "Library":
        """Open the database of the settings; its own folder is made if it is the default one."""
        if create and Path(settings.db) == default_database():
            default_database().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        embedder = make_embedder(
            settings.embedder,
            base_url=settings.embedder_base_url or settings.base_url or None,
            api_key=settings.api_key or None,
        )
        store = await Store.open(
            settings.db,
            create=create,
            durability=settings.durability,
            lock_timeout=settings.lock_timeout,
        )
        return cls(store, embedder, settings)

    async def close(self) -> None:
        """Finish what is under way and give everything back."""
        await self.vectors.settle()
        if self.embedder is not None:
            await self.embedder.close()
        await self.store.close()

    async def __aenter__(self) -> "Library":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        """Search a scope's messages and memories, what was just written here included."""
        if request.mode != "keyword":
            await self.vectors.settle(scope.user_id)
        page = await self.engine.search(scope, request)
        if page.unembedded:
            await self.vectors.top_up(scope.user_id)
        return page

    async def require_user(self, scope: Scope) -> None:
        """Refuse a scope whose user is unknown, or may not be asked about now."""
        mark = await self.store.feed(scope.user_id).mark()
        if mark is None:
            raise NotFound(f"there is no user {scope.user_id!r}")
        await self.store.require_active(mark, scope)

    async def find_messages(self, scope: Scope, query: LexicalQuery) -> ScoredPage:
        """A page of a scope's messages by their words, as of the first page."""
        return await self.message_search.by_words(scope, query)

    async def nearest_messages(self, scope: Scope, query: SemanticQuery) -> ScoredPage:
        """A scope's messages that are closest in meaning, what was just written here included."""
        if self.embedder is None:
            raise EmbedderFailed("no embedder is configured", hint="Set MEMRECALL_EMBEDDER")
        if query.embedding is None:
            vector = await self.engine.vector_of(str(query.text))
        else:
            vector = unit_vector(query.embedding)
            with suppress(EmbedderFailed):  # not yet known: then the stored vectors tell
                check_dimensions(len(vector), self.embedder.dimensions)
        await self.vectors.settle(scope.user_id)
        page = await self.message_search.by_meaning(scope, query, vector)
        if page.unembedded:
            await self.vectors.top_up(scope.user_id)
        return page

    async def add_messages(self, scope: Scope, batch: Sequence[NewMessage]) -> Written:
        """Store messages, all or nothing; their vectors follow."""
        return await self.add_entries([Entry(scope, message) for message in batch])

    async def add_entries(self, entries: Sequence[Entry]) -> Written:
        """Store messages of several scopes, all or nothing; their vectors follow."""
        await self.vectors.prepare()
        written = await self.store.write_messages(list(entries))
        rows = [
            (RowKey(entry.scope.user_id, "message", key), entry.message.content)
            for entry, key, fresh in zip(entries, written.ids, written.fresh, strict=True)
            if fresh
        ]
        await self.vectors.submit(rows)
        return written

    async def add_memories(
        self, scope: Scope, batch: Sequence[NewMemory], *, origin: Origin, actor: str
    ) -> Written:
        """Store memories, all or nothing; their vectors follow."""
        await self.vectors.prepare()
        written = await self.store.memories(scope).add(batch, origin=origin, actor=actor)
        rows = [
            (RowKey(scope.user_id, "memory", key), f"{memory.summary}\n{memory.content}".strip())
            for memory, key, fresh in zip(batch, written.ids, written.fresh, strict=True)
            if fresh
        ]
        await self.vectors.submit(rows)
        return written

    async def apply_plan(self, scope: Scope, steps: Sequence[Step], *, actor: str) -> list[Outcome]:
        """Carry out steps on a scope's memories, all or nothing; vectors follow."""
        await self.vectors.prepare()
        outcomes = await self.store.apply_plan(scope, steps, actor=actor)
        rows = [
            (RowKey(scope.user_id, "memory", outcome.memory_key), outcome.text)
            for outcome in outcomes
            if outcome.event in ("ADD", "UPDATE") and outcome.memory_key is not None
        ]
        await self.vectors.submit(rows)
        return outcomes

    async def stats(self, user_id: str | None = None) -> dict[str, int | str]:
        """What is stored, of one user or of all, and where."""
        facts: dict[str, int | str] = {"database": self.store.place}
        facts.update(await self.store.count(user_id))
        if self.store.file is not None:
            facts["bytes_on_disk"] = _bytes_on_disk(self.store.file)
        facts["schema_version"] = await self.store.schema_version()
        model = self.store.facts.embedding_model or (self.embedder and self.embedder.model)
        facts["embedding_model"] = model or ""
        if model:
            # What counts is the database's model, not the one that happens to be configured here.
            missing = await self.store.vectors(model).count_pending(user_id)
            facts["not_embedded"] = missing
            facts["vectors"] = int(facts["messages"]) + int(facts["memories"]) - missing
        return facts

    async def erase_user(self, user_id: str) -> Erased:
        """Remove every row of a user, and what was derived from them."""
        await self.vectors.settle()
        erased = await self.store.owners.erase_user(user_id)
        self.cache.forget(user_id)
        return erased

    async def erase_session(self, user_id: str, session_id: str) -> Erased:
        """Remove a session, and what was derived from it."""
        await self.vectors.settle()
        erased = await self.store.owners.erase_session(user_id, session_id)
        self.cache.forget(user_id)
        return erased


def _bytes_on_disk(file: Path) -> int:
    """The database with its log; the snapshots beside it are a convenience and do not count."""
    parts = (file, file.with_name(file.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _snapshot_folder(store: Store, settings: Settings) -> SnapshotFolder:
    """Beside a SQLite file, so that a copied file does not share them; else in the cache folder."""
    file = store.file
    database_id = store.facts.database_id
    if file is not None:
        return SnapshotFolder(file.with_name(file.name + "-index"), database_id)
    return SnapshotFolder(Path(settings.cache_dir) / "index" / database_id, database_id)
