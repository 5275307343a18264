"""One opened database: store, embedder, search, vectors and graphs.

Layers above take a `Library` and need not know how it is assembled.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from memrecall.embedding import Embedder
from memrecall.embedding.embedders import make_embedder
from memrecall.embedding.maps import load_query_map
from memrecall.errors import EmbedderFailed, InvalidArgument, NotFound
from memrecall.json_objects import check_metadata
from memrecall.library.graph_evidence import TrackedChanges, find_graphs
from memrecall.library.vectors import VectorWriter, find_vector_db
from memrecall.progress import Progress, progress_bar
from memrecall.scope import KEY_MEMBER, Permission, Scope, space_owner
from memrecall.search import (
    EngineRequest,
    ExternalVectors,
    IndexCache,
    LexicalQuery,
    MessageSearch,
    ScoredPage,
    SearchEngine,
    SearchPage,
    SearchRequest,
    SemanticQuery,
    SnapshotFolder,
    VectorDB,
    check_dimensions,
    unit_vector,
)
from memrecall.search.results import merge_pages, qualify_page
from memrecall.settings import Settings, default_database
from memrecall.store import (
    GRAPH_TABLES,
    ErasureReport,
    Graph,
    GraphDB,
    PlanOutcome,
    PlanStep,
    Reading,
    Removal,
    ScopedMessage,
    Store,
    StoreGraphs,
    UserVersion,
    WriteResult,
    parse_record,
)
from memrecall.store.backup.folder import warn_of_drafts
from memrecall.store.database.memberships import enter_space, qualify_row
from memrecall.store.database.statements import Reads
from memrecall.store.graph import erase_session_rows, import_rows
from memrecall.store.memories.changes import SYSTEM
from memrecall.store.messages import write_messages
from memrecall.store.privacy import Scan
from memrecall.store.transfer import (
    ImportCounts,
    export_user,
    id_of_label,
    import_user,
    time_of_import,
    to_record,
)
from memrecall.text.times import TimeSpan, parse_period
from memrecall.types import NewMemory, NewMessage, Origin

Value = TypeVar("Value")

SEARCH_SECONDS = 60.0
CONTENT_SECONDS = 10 * 60.0
_MAX_ENTRIES = 512


@dataclass(slots=True)
class TimedCache(Generic[Value]):
    """Values that live for some seconds; the least recently used are evicted first."""

    seconds: float
    _entries: OrderedDict[Hashable, tuple[float, Value]] = field(default_factory=OrderedDict)

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Value]]) -> Value:
        """Return the value of a key, made if it is missing or expired. Failures are not cached."""
        now = time.monotonic()
        entry = self._entries.get(key)
        if entry is not None and now < entry[0]:
            self._entries.move_to_end(key)
            return entry[1]
        value = await make()
        self._entries[key] = (now + self.seconds, value)
        self._entries.move_to_end(key)
        while len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)
        return value


class Caches:
    """The caches that the recalls of one process share."""

    def __init__(self) -> None:
        self.searches: TimedCache[object] = TimedCache(SEARCH_SECONDS)
        self.contents: TimedCache[object] = TimedCache(CONTENT_SECONDS)

    def clear(self) -> None:
        """Drop everything: something was erased, and entries do not say what they quote."""
        self.__init__()  # type: ignore[misc]


Entered = tuple[tuple[Scope, UserVersion], ...]
SearchOwner = Callable[[Scope, UserVersion | None], Awaitable[SearchPage]]
SearchMessages = Callable[[Scope], Awaitable[ScoredPage]]


async def enter_all(store: Store, scope: Scope) -> Entered:
    """Enter the spaces that a scope covers, in one trip to the database."""

    def read(reads: Reads) -> Entered:
        entered = [enter_space(reads, scope, name) for name in scope.spaces]
        return tuple((inside, UserVersion.of_row(row)) for inside, row in entered)

    return await store.database.read_together(read) if scope.spaces else ()


def refuse_cursor(cursor: str | None) -> None:
    """Raise InvalidArgument if a search over spaces asks for a further page."""
    if cursor is not None:
        raise InvalidArgument("a search over spaces has one page", hint="Raise its limit")


_CLOSE_SECONDS = 20.0  # for vectors; rows without them can be embedded later

PlanReview = Callable[["Library", Scope, Sequence[PlanStep]], Awaitable[list[PlanStep]]]
"""Mark steps that contradict the user's own statements as claims."""


class Library:
    """One database, ready to be written to and searched. Get one from `Library.open`."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None,
        settings: Settings,
        graphs: GraphDB | None = None,
        vector_db: VectorDB | None = None,
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.settings = settings
        self.caches = Caches()  # of the recalls on this library
        # The last expiry that a user's graph has followed.
        self._graph_expiries: dict[str, datetime] = {}
        self.graphs = graphs or StoreGraphs(store.database)
        self._vector_db = vector_db
        # A layer above that reads sentences sets it, to find the claims among new memories.
        self.review_plan: PlanReview | None = None
        model = embedder.model if embedder else None
        folder = None
        if settings.snapshots:
            caches = Path(settings.cache_dir)
            folder = SnapshotFolder.of_database(store.facts.database_id, store.file, caches)
        budget = settings.index_memory_mb * 1024 * 1024
        external = ExternalVectors(vector_db, store, model) if vector_db and model else None
        self.cache = IndexCache(model, folder, budget, external)
        query_map = load_query_map(model) if model else None
        self.engine = SearchEngine(store, embedder, self.cache, query_map)
        self.message_search = MessageSearch(store, self.cache)
        self.vectors = VectorWriter(store, embedder, self.engine.breaker)

    @classmethod
    async def open(
        cls,
        settings: Settings,
        *,
        create: bool = True,
        embedder: Embedder | None = None,
        graphs: GraphDB | None = None,
        vector_db: VectorDB | None = None,
    ) -> "Library":
        """Open the database of the settings; the default one's folder is created.

        Objects that are passed are used instead of those that the settings name, and closed too.
        """
        if settings.read_only:
            settings = settings.without_writes()
        elif create and Path(settings.db) == default_database():
            with suppress(OSError):  # the database says that its folder is missing
                default_database().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        embedder = embedder or make_embedder(
            settings.embedder,
            base_url=settings.embedder_base_url or settings.base_url or None,
            api_key=settings.api_key or None,
        )
        make_graphs = find_graphs("" if graphs else settings.graph_db)
        make_vector_db = find_vector_db("" if vector_db else settings.vector_db)
        store = await Store.open(
            settings.db,
            create=create,
            **settings.connection_options(),
        )
        try:
            graphs = graphs or make_graphs(store)
            vector_db = vector_db or make_vector_db(store)
        except BaseException:
            await store.close()
            raise
        return cls(store, embedder, settings, graphs, vector_db)

    async def close(self) -> None:
        """Finish pending work and close everything."""
        await self.vectors.close(_CLOSE_SECONDS)
        if self.embedder is not None:
            await self.embedder.close()
        await self.graphs.close()
        if self._vector_db is not None:
            await self._vector_db.close()
        await self.store.close()

    async def __aenter__(self) -> "Library":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def search(
        self,
        scope: Scope,
        request: SearchRequest,
        user: UserVersion | None = None,
        entered: Entered | None = None,
    ) -> SearchPage:
        """Search a scope's messages and memories, what was just written here included.

        `user` and `entered` are what `read_version` and `enter` returned for this request.
        """
        if scope.spaces and request.kind != "knowledge":
            return await self.search_spaces(scope, request, user, entered)
        if user is None:
            await self.catch_up(scope.user_id, request)
        page = await self.engine.search(scope, request, user)
        self.vectors.expect_missing(scope.user_id, page.unembedded)
        if scope.space is None:
            return page
        names = await self.store.spaces.names(scope.user_id, user)
        named = (replace(h, author=names.get(h.author or "", h.author)) for h in page.results)
        return replace(page, results=tuple(named))

    async def read_version(self, scope: Scope, request: SearchRequest) -> UserVersion | None:
        """Return the version that a search will see; None for an unknown user.

        Raises Disabled if the user or the scope's agent is disabled.
        """
        await self.catch_up(scope.user_id, request)
        return await self.store.read_version(scope)

    async def require_user(self, scope: Scope) -> None:
        """Raise NotFound if the scope's user is unknown, Disabled if disabled."""
        if await self.store.read_version(scope) is None:
            raise NotFound(f"there is no user {scope.user_id!r}")

    async def find_messages(self, scope: Scope, query: LexicalQuery) -> ScoredPage:
        """Return a page of a scope's messages that match a query, as of the first page."""
        search = partial(self.message_search.search_lexical, query=query)
        return await self.search_messages(scope, query, search)

    async def nearest_messages(self, scope: Scope, query: SemanticQuery) -> ScoredPage:
        """Return a scope's messages closest in meaning, what was just written here included."""
        if self.embedder is None:
            raise EmbedderFailed("no embedder is configured", hint="Set MEMRECALL_EMBEDDER")
        if query.embedding is None:
            vector = await self.engine.embed_query(str(query.text))
        else:
            vector = unit_vector(query.embedding)
            with suppress(EmbedderFailed):  # Not known yet: the stored vectors decide.
                check_dimensions(len(vector), self.embedder.dimensions)

        async def search(owner: Scope) -> ScoredPage:
            await self.vectors.catch_up(owner.user_id)
            page = await self.message_search.search_semantic(owner, query, vector)
            self.vectors.expect_missing(owner.user_id, page.unembedded)
            return page

        return await self.search_messages(scope, query, search)

    async def search_spaces(
        self,
        scope: Scope,
        request: SearchRequest,
        user: UserVersion | None,
        entered: Entered | None,
    ) -> SearchPage:
        """Search a user's own data and the spaces of a scope."""
        refuse_cursor(request.cursor)
        entered = entered or await self.enter(scope, request)
        period = await self.find_period(scope, request.time, request.now, request.time_zone)
        part = EngineRequest.of(request)
        part = replace(part, share=1 + len(entered), period=part.period or period)
        page = await self.search_owners(
            scope, user, entered, lambda owner, version: self.search(owner, part, version)
        )
        return replace(page, results=page.results[: request.limit])

    async def search_owners(
        self, scope: Scope, user: UserVersion | None, entered: Entered, search: SearchOwner
    ) -> SearchPage:
        """Return one page of a user's own data and of spaces, each searched by a function."""
        pages = [await search(scope.own, user)]
        # One after the other: ranking takes the processor, and two threads would share it.
        for inside, version in entered:
            page = await search(inside, version)
            pages.append(qualify_page(page, str(inside.space)))
        return merge_pages(pages)

    async def search_messages(
        self, scope: Scope, query: LexicalQuery | SemanticQuery, search: SearchMessages
    ) -> ScoredPage:
        """Return one page of the messages of a user and of the spaces of a scope, by score."""
        if not scope.spaces:
            return await search(scope)
        limit = query.top_k if isinstance(query, SemanticQuery) else query.page_size
        refuse_cursor(None if isinstance(query, SemanticQuery) else query.cursor)
        pages: list[ScoredPage] = []
        with suppress(NotFound):  # a member may have no data of their own
            pages.append(await search(scope.own))
        for inside, version in await enter_all(self.store, scope):
            page, space_id = await search(inside), str(inside.space)
            names = await self.store.spaces.names(inside.user_id, version)
            rows = (qualify_row(hit.message, space_id) for hit in page.items)
            named = (
                row.model_copy(update={"author": names.get(row.author or "", row.author)})
                for row in rows
            )
            hits = map(lambda hit, row: replace(hit, message=row), page.items, named)
            pages.append(replace(page, items=tuple(hits)))
        found = sorted(chain(*(page.items for page in pages)), key=lambda hit: -hit.score)
        unembedded = sum(page.unembedded for page in pages)
        is_cut = any(page.truncated for page in pages)
        return ScoredPage(tuple(found[:limit]), None, unembedded, is_cut)

    async def enter(self, scope: Scope, request: SearchRequest) -> Entered:
        """Enter the spaces of a scope for a search; NotFound for one that it may not read."""
        for name in scope.spaces:
            await self.catch_up(space_owner(name), request)
        return await enter_all(self.store, scope)

    async def catch_up(self, owner: str, request: SearchRequest) -> None:
        """Wait for the vectors of what was just written here, if a search needs them."""
        if request.mode != "keyword":
            await self.vectors.catch_up(owner)

    async def find_period(
        self, scope: Scope, time: str | None, now: datetime | None, zone: str | None = None
    ) -> TimeSpan | None:
        """Return the period of a `time` in the time zone of the scope's user."""
        user = await self.store.read_version(scope.own) if time and not zone else None
        return parse_period(time, now, zone or (user.time_zone if user else "UTC"))

    async def resolve_key(self, scope: Scope, key: str) -> tuple[Scope, str]:
        """Return the scope that a row is in, and its key there; "space:…/…" names a space."""
        space_id, plain = scope.split_key(key)
        if space_id is None:
            return scope.own, key
        return await self.store.spaces.enter(scope, space_id), plain

    async def add_messages(self, scope: Scope, batch: Sequence[NewMessage]) -> WriteResult:
        """Store messages, all or nothing; vectors are added in the background."""
        return await self.add_entries([ScopedMessage(scope, message) for message in batch])

    async def add_entries(self, entries: Sequence[ScopedMessage]) -> WriteResult:
        """Store messages of several scopes, all or nothing; vectors are added in the background."""
        self.require_small_metadata(entry.message for entry in entries)
        await self.vectors.prepare()
        result = await write_messages(self.store.database, list(entries))
        pairs = zip(entries, result.created, strict=True)
        self.vectors.expect(Counter(entry.scope.user_id for entry, is_new in pairs if is_new))
        return result

    async def add_memories(
        self, scope: Scope, batch: Sequence[NewMemory], *, origin: Origin, actor: str
    ) -> WriteResult:
        """Store memories, all or nothing; vectors are added in the background."""
        self.require_small_metadata(batch)
        scope = scope.own
        await self.vectors.prepare()
        result = await self.store.memories(scope).add(batch, origin=origin, actor=actor)
        self.vectors.expect({scope.user_id: result.stored})
        return result

    async def apply_plan(
        self,
        scope: Scope,
        steps: Sequence[PlanStep],
        *,
        actor: str,
        decided_at: int | None = None,
        reading: Reading | None = None,
    ) -> list[PlanOutcome]:
        """Apply steps as `MemoryChanges.apply_plan` does; vectors are added later."""
        self.require_small_metadata(step.memory for step in steps if step.memory)
        scope = scope.own
        await self.vectors.prepare()
        changes = self.store.changes(scope)
        outcomes = await changes.apply_plan(
            steps, actor=actor, decided_at=decided_at, reading=reading
        )
        stored = sum(outcome.event in ("ADD", "UPDATE") for outcome in outcomes)
        self.vectors.expect({scope.user_id: stored})
        ends = {"UPDATE": "previous_key", "DELETE": "memory_key"}
        ended = [getattr(o, ends[o.event]) for o in outcomes if o.event in ends]
        states = await self.store.memories(scope).get_states(ended) if ended else []
        await self.changes(scope).follow(states)
        return outcomes

    def require_small_metadata(self, items: Iterable[NewMessage | NewMemory]) -> None:
        """Reject metadata that is too large; the error names the position of the item."""
        for position, item in enumerate(items):
            try:
                check_metadata(item.metadata)
            except InvalidArgument as error:
                error.details["faults"] = {position: str(error)}
                raise

    def changes(self, scope: Scope) -> TrackedChanges:
        """Return the memory writer of a scope, which its graph follows."""
        # The relations of all projects hold as long as the memories that state them.
        return TrackedChanges(self.store, self.graph(replace(scope, all_projects=True)), scope)

    def graph(self, scope: Scope) -> Graph:
        """Return the knowledge graph of one scope, in whichever database it is."""
        return Graph(self.graphs, scope, find_messages=self.store.timeline(scope).get_many)

    async def current_graph(self, scope: Scope) -> Graph:
        """Return the graph of a scope, without the relations of memories that have expired."""
        user = await self.store.feed(scope.user_id).version()
        last = user.expired_at if user else None
        since = self._graph_expiries.get(scope.user_id, datetime.min.replace(tzinfo=UTC))
        if last is not None and last > since and not self.store.database.is_read_only:
            await self.changes(Scope.of_owner(scope.user_id)).follow_expired(since)
            self._graph_expiries[scope.user_id] = last
        return self.graph(scope)

    async def claim_for_graph(self, scope: Scope) -> None:
        """Create the user of a graph in another database; raises Disabled if they are disabled."""
        if not self.graphs.is_in_store:
            await self.store.ensure_user(scope)

    async def export_user(
        self, user_id: str, project: str | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield everything of a user, or of one project of theirs, as JSON for `import_user`."""
        async with aclosing(export_user(self.store.database, user_id, project)) as records:
            async for record in records:
                yield record
        for table in () if self.graphs.is_in_store or project else GRAPH_TABLES:
            for row in await self.graphs.read(user_id, table, {}):
                yield to_record(table, {"user_id": user_id, **row})

    async def import_user(
        self,
        user_id: str,
        records: Iterable[Mapping[str, Any]],
        member: Scope | None = None,
        *,
        invite: bool = False,
        label: str | None = None,
    ) -> ImportCounts:
        """Store what `export_user` yielded and return the counts by table."""
        elsewhere = () if self.graphs.is_in_store else GRAPH_TABLES
        graph_rows: dict[str, list[dict[str, Any]]] = {table: [] for table in elsewhere}
        rest = []
        for record in records:
            if record.get("table") in graph_rows:
                table, row = parse_record(record)
                graph_rows[table].append(row)
            else:
                rest.append(record)
        await self.vectors.prepare()
        counts = await import_user(
            self.store.database, user_id, rest, member, invite=invite, label=label
        )
        if any(graph_rows.values()):
            scope = Scope.of_owner(user_id)
            await self.graphs.transact(scope, lambda rows: import_rows(rows, graph_rows))
        counts |= {table: len(rows) for table, rows in graph_rows.items()}
        self.vectors.expect({user_id: counts["messages"] + counts["memories"]})
        return counts

    async def erase_user(self, user_id: str, *, with_contributions: bool = False) -> ErasureReport:
        """Delete every row of a user, and what was derived from them.

        What they wrote to spaces stays there under another name, or is erased too.
        """
        spaces, written = self.store.spaces, [0, 0]
        own = await self.store.keys.of_user(user_id, alone=True)
        members = [user_id, *(f"{KEY_MEMBER}{key.key_id}" for key in own)]
        contributed = await spaces.owners_naming(members) if with_contributions else []
        async with self.store.database.erasing():
            for owner in contributed:
                scope = Scope.of_owner(owner, permissions=frozenset({Permission.SENSITIVE}))
                keys, message_ids = await spaces.find_written(owner, members)
                await self.purge(scope, keys, sources=False)
                for message_id in message_ids:
                    await self.purge_message(scope, message_id)
                written = [written[0] + len(message_ids), written[1] + len(keys)]
            left = await spaces.remove_user(members)
            for owner, is_empty in left.items():
                await (self.erase_user(owner) if is_empty else self.forget_derived(owner))
            report = await self.store.owners.erase_user(user_id, is_known=bool(left or contributed))
            await self.graphs.erase_user(user_id)
        await self.forget_derived(user_id)
        await warn_of_drafts(self.store.database)
        messages, memories = report.messages + written[0], report.memories + written[1]
        return replace(report, messages=messages, memories=memories)

    async def erase_session(self, user_id: str, session_id: str) -> ErasureReport:
        """Delete a session, and what was derived from it."""
        report = await self.store.owners.erase_session(user_id, session_id)
        if not self.graphs.is_in_store:
            await self.graphs.transact(
                Scope.of_owner(user_id), lambda rows: erase_session_rows(rows, session_id)
            )
            await self.graphs.compact(user_id)
        await self.forget_derived(user_id)
        await warn_of_drafts(self.store.database)
        return report

    async def purge(
        self, scope: Scope, keys: Sequence[str], *, sources: bool = True, actor: str = SYSTEM
    ) -> Removal:
        """Erase memories, and with `sources` their messages, with everything derived from them."""
        work = self.changes(scope).purge(keys, sources=sources, actor=actor)
        return await self._erase(scope, work)

    async def purge_message(self, scope: Scope, message_id: str, actor: str = SYSTEM) -> Removal:
        """Erase a message, and the memories and relations that were derived from it alone."""
        return await self._erase(scope, self.changes(scope).purge_message(message_id, actor=actor))

    async def take_back(self, scope: Scope, ids: Sequence[str], actor: str = SYSTEM) -> Removal:
        """Erase messages and what was derived from them alone; they can be stored again."""
        return await self._erase(scope, self.changes(scope).take_back(ids, actor=actor))

    async def take_back_export(
        self, scope: Scope, label: str, batch: int, actor: str = SYSTEM
    ) -> Removal:
        """Erase what an import of an export wrote, in batches; it can be stored again."""
        rows = self.store.labelled(scope)
        imported_at = time_of_import(id_of_label(label))
        message_ids, memory_keys = await rows.keys(label)
        removal = Removal()
        async with self.store.database.erasing():
            for start in range(0, max(len(message_ids), len(memory_keys)), batch):
                part = slice(start, start + batch)
                work = self.changes(scope).take_back_export(
                    message_ids[part], memory_keys[part], imported_at, actor=actor
                )
                removal += await self._erase(scope, work)
        await rows.remove_others(label)
        return removal

    async def erase_project(self, user_id: str, project: str, actor: str = SYSTEM) -> Removal:
        """Erase a project of a user; what is known about the user stays."""
        scope = Scope.of_owner(user_id, permissions=frozenset({Permission.SENSITIVE}))
        removal = await self._erase(scope, self.changes(scope).erase_project(project, actor=actor))
        if not removal.memories and not removal.messages:
            raise NotFound(f"user {user_id!r} has no project {project!r}")
        return removal

    async def _erase(self, scope: Scope, work: Awaitable[Removal]) -> Removal:
        """Erase rows, also from files and caches; an index in memory learns of it by itself."""
        async with self.store.database.erasing():
            removal = await work
        self.caches.clear()
        self.cache.forget_snapshot(scope.user_id)
        keys = {"memory": removal.memories, "message": removal.messages}
        if self._vector_db is not None and any(keys.values()):
            await self._vector_db.forget_rows(scope.user_id, keys)
        await warn_of_drafts(self.store.database)
        return removal

    async def scan(self, progress: Progress = False, *, apply: bool = False) -> dict[str, Any]:
        """Report stored secrets and personal data; with `apply`, do what the policy says."""
        scan = Scan(self.store.database, apply=apply)
        with progress_bar(progress, "scanning", await scan.count(), unit="rows") as advance:
            async for count, changed_user in scan.run():
                advance(count)
                if changed_user is not None:
                    await self.forget_derived(changed_user)
        return scan.report()

    async def forget_derived(self, user_id: str) -> None:
        """Drop what was derived for a user, in memory, on disk and in a vector database."""
        self.caches.clear()
        self.cache.forget(user_id)
        self.vectors.forget(user_id)
        self._graph_expiries.pop(user_id, None)
        if self._vector_db is not None:
            await self._vector_db.forget(user_id)

    async def stats(self, user_id: str | None = None) -> dict[str, int | str]:
        """Return what is stored, for one user or all, and where."""
        facts: dict[str, int | str] = {"database": self.store.location}
        facts.update(await self.store.count(user_id))
        if self.store.file is not None:
            facts["bytes_on_disk"] = self.store.bytes_on_disk()
        facts["schema_version"] = await self.store.schema_version()
        facts["embedding_model"] = self._model_of_vectors
        if self._model_of_vectors:
            missing = await self.count_unembedded(user_id)
            facts["not_embedded"] = missing
            facts["vectors"] = int(facts["messages"]) + int(facts["memories"]) - missing
        return facts

    @property
    def _model_of_vectors(self) -> str:
        # The database's model counts, not the one that is configured here.
        return self.store.facts.embedding_model or (self.embedder.model if self.embedder else "")

    async def count_unembedded(self, user_id: str | None = None) -> int:
        """Return how many rows of one user or all wait for vectors; 0 without an embedder."""
        model = self._model_of_vectors
        return await self.store.vectors(model).count_pending(user_id) if model else 0
