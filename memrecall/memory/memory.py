"""`AsyncMemory`: the memory of an agent's users."""

import asyncio
import json
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from memrecall.embedding import Embedder
from memrecall.errors import Conflict, InvalidArgument, MemrecallError, NotFound
from memrecall.extraction.protocol import USER, Extractor, Utterance, fact_keywords
from memrecall.importers.importer import parse_records
from memrecall.library.library import Library
from memrecall.memory.extractions import ExtractionRequest, Extractions
from memrecall.memory.ingest import Addition, Ingestor
from memrecall.memory.jobs import DEFAULT_TIMEOUT, Jobs, Processes, Schedule, When, run_process
from memrecall.memory.layers import (
    EVERY_MESSAGES,
    EVERY_SECONDS,
    Item,
    LongTermMemory,
    ShortTermMemory,
)
from memrecall.memory.mem0 import (
    choose_limit,
    options_of_config,
    parse_expiration,
    parse_moment,
    parse_update,
    take_scope,
)
from memrecall.memory.recall import make_extractor, make_recaller, require_one_database
from memrecall.memory.results import (
    AddedItems,
    FoundItems,
    HistoryEntry,
    ItemPage,
    Kinds,
    StoredItem,
    UpdatedItem,
    covered_kinds,
    iterate_users,
    list_entities,
    list_kinds,
    list_of_users,
    list_relations,
    memory_item,
    mention_messages,
    message_item,
    name_authors,
    quote_conflicts,
    revision_item,
)
from memrecall.memory.retention import Policy, RecallTimes, SweepOptions, sweep_scope
from memrecall.memory.search import MemorySearch, search_memories
from memrecall.memory.spaces import Sharing, SpaceMemory, accepts_space_keys
from memrecall.memory.summaries import SessionSummaries
from memrecall.messages import parse_new_messages
from memrecall.progress import Progress, progress_bar
from memrecall.scope import (
    DEFAULT_NAME,
    KEY_MEMBER,
    Permission,
    Scope,
    ScopeBinding,
    SpaceRole,
    space_owner,
)
from memrecall.search import VectorDB
from memrecall.settings import Settings, load_settings
from memrecall.store import AuditEntry, GraphDB, MemoryQuery, Removal, Store, read_filter
from memrecall.store.database.cursors import LARGEST_LIST, require_limit
from memrecall.store.database.memberships import show_writer
from memrecall.store.sessions import SESSION
from memrecall.store.transfer import ImportCounts
from memrecall.timing import enforces_deadlines
from memrecall.types import (
    NAME_LENGTH,
    Keyword,
    Language,
    NewMessage,
    check_text,
    format_time,
    name_writer,
    parse_time,
)
from memrecall.workers import ProcessOwner

if TYPE_CHECKING:
    from memrecall.agent import Recaller, RecallOptions, RecallResult
    from memrecall.agent.trace import Observer

SessionKey = tuple[str, str | None, str, str | None]  # user, agent, session, project

APPLICATION = "application"
_LIMIT = 100
_AUDIT_PAGE = 100
_MOST_EXTRACTED = 50  # messages that `extract` reads if none are passed
_MOST_SOURCES = 100  # messages that an experience names
_OF_MESSAGE = "its message was deleted"  # the reason in the history of a memory
# The tables of each kind, with what is derived from it.
_TABLES_OF = {
    "memory": ("memories", "revisions", "entities", "aliases", "relations"),
    "message": ("messages", "summaries", "checkpoints"),
}
# The method by which an object of a wrong kind is recognised.
_METHODS = {
    "extractor": "extract",
    "model_client": "create",
    "embedder": "embed",
    "graph_db": "transact",
    "vector_db": "products",
}


@dataclass(frozen=True, slots=True)
class Resources:
    """An open library and the services that work on it."""

    library: Library
    extractor: Extractor | None  # None without a model
    ingestor: Ingestor
    extractions: Extractions
    recall_times: RecallTimes


@dataclass(frozen=True, slots=True)
class Components:
    """The objects that an application passes in place of those that the settings name."""

    extractor: Extractor | None = None
    model_client: Any = None
    embedder: Embedder | None = None
    graph_db: GraphDB | None = None
    vector_db: VectorDB | None = None

    def __post_init__(self) -> None:
        for name, method in _METHODS.items():
            value = getattr(self, name)
            if value is not None and not callable(getattr(value, method, None)):
                raise InvalidArgument(
                    f"{name} {value!r} has no method {method!r}",
                    hint="Pass an object, or name a built-in one in the settings",
                )


@dataclass(slots=True, eq=False)
class SharedState:
    """What a memory shares with all memories bound from it."""

    settings: Settings
    library: Library | None
    components: Components
    prompt: str | None
    processes: Processes = field(default_factory=Processes)
    jobs: Jobs = field(default_factory=Jobs)
    schedules: list[Schedule] = field(default_factory=list)
    sessions: dict[SessionKey, ShortTermMemory] = field(default_factory=dict)
    _resources: Resources | None = None
    _owner: ProcessOwner | None = None  # of the resources
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def open(self) -> Resources:
        """Return the resources, opened at the first call; a forked child cannot use them."""
        if self._owner is not None:
            self._owner.require_current()
        async with self._lock:
            if self._resources is not None:
                return self._resources
            self._owner = ProcessOwner()
            parts = self.components
            library = self.library or await Library.open(
                self.settings,
                embedder=parts.embedder,
                graphs=parts.graph_db,
                vector_db=parts.vector_db,
            )
            extractor = parts.extractor or make_extractor(library.settings, parts.model_client)
            ingestor = Ingestor(library, extractor, self.processes, self.jobs)
            self._resources = Resources(
                library,
                extractor,
                ingestor,
                Extractions(library, ingestor, self.jobs),
                RecallTimes(library.store),
            )
            return self._resources

    async def close(self, patience: float | None = None) -> None:
        """Wait up to `patience` seconds for running jobs, then release all resources."""
        for schedule in self.schedules:
            await schedule.stop()
        if self._resources is None:
            return
        await self._resources.extractions.close()
        await self.jobs.settle(patience)
        await self._resources.ingestor.summaries.close()
        await self._resources.recall_times.flush()
        if self.library is None:
            await self._resources.library.close()
        self._resources = None


# Those that HTTP does not bound either, and those that wait for other work to end.
@enforces_deadlines(
    "import_",
    "erase",
    "erase_project",
    "reset",
    "sweep",
    "delete_space",
    "extract_stored",
    "undo_extraction",
    "close",
    "schedule_sweeps",
)
class AsyncMemory:
    """Long-term memory for the users of an agent.

    What is bound here (`user_id`, `agent_id`, `session_id`, `project`, `permissions`) holds for
    every call. In a project, others are read with `all_projects` only. `actor` is the author that
    change histories record. Without `db`, `settings` or a `library` the database of the settings
    is opened at first use. Without an `extractor`, the `llm` (also called `model_client`) extracts
    facts, or the model of the settings; without a model what was said is kept as it was said,
    and found. `embedder`, `graph_db` and `vector_db` replace what the settings name; `prompt` is
    used by every `add` without one.
    """

    def __init__(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        project: str | None = None,
        all_projects: bool = False,
        spaces: Iterable[str] = (),
        db: str | None = None,
        settings: Settings | None = None,
        library: Library | None = None,
        permissions: Iterable[Permission] = (),
        actor: str = APPLICATION,
        extractor: Extractor | None = None,
        model_client: Any = None,
        llm: Any = None,
        embedder: Embedder | None = None,
        graph_db: GraphDB | None = None,
        vector_db: VectorDB | None = None,
        prompt: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if config is not None:
            if db is not None or settings is not None:
                raise InvalidArgument("config excludes db and settings", hint="Pass one of them")
            options = options_of_config(config)
            settings, prompt = options["settings"], prompt or options["prompt"]
            embedder = embedder or options["embedder"]
        require_one_database(library, db, settings)
        if library is not None and (embedder or graph_db or vector_db) is not None:
            raise InvalidArgument(
                "library excludes embedder, graph_db and vector_db: it has its own",
                hint="Pass them to Library.open",
            )
        if llm is not None and model_client is not None:
            raise InvalidArgument("llm and model_client are the same", hint="Pass one of them")
        components = Components(extractor, llm or model_client, embedder, graph_db, vector_db)
        self._binding = ScopeBinding(
            user_id,
            agent_id,
            session_id,
            permissions=frozenset(map(Permission, permissions)),
            project=project,
            all_projects=all_projects,
            spaces=tuple(dict.fromkeys(spaces)),
        )
        self._actor = check_text("actor", actor)
        self._is_owner = True
        settings = settings or load_settings({"db": db}).settings
        self._shared = SharedState(settings, library, components, prompt)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return a memory for a configuration of mem0."""
        return cls(config=config)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def user_id(self) -> str | None:
        """The bound user."""
        return self._binding.user_id

    @property
    def agent_id(self) -> str | None:
        """The bound agent."""
        return self._binding.agent_id

    @property
    def session_id(self) -> str | None:
        """The bound session."""
        return self._binding.session_id

    @property
    def project(self) -> str | None:
        """The bound project."""
        return self._binding.project

    async def close(self, patience: float | None = None) -> None:
        """Wait up to `patience` seconds for running jobs, then release all resources.

        Does nothing for a memory made by `bind`: the memory it was bound from owns the resources.
        """
        if self._is_owner:
            await self._shared.close(patience)

    def bind(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        project: str | None = None,
        all_projects: bool = False,
        permissions: Iterable[Permission] | None = None,
        actor: str | None = None,
        spaces: Iterable[str] | None = None,
        member: str | None = None,
    ) -> Self:
        """Return a memory for a narrower scope that shares this one's resources.

        It never allows more than this one; without `permissions` it has the same ones. It need
        not be closed. Searches and recalls cover the `spaces` that the user is a member of, or the
        `member`, a key, as `key:` and its id.
        """
        binding = self._binding.narrow(
            user_id, agent_id, session_id, permissions, project, all_projects, spaces, member
        )
        return self._with(binding, self._actor if actor is None else check_text("actor", actor))

    def bind_scope(self, scope: Scope, actor: str) -> Self:
        """Return a memory for a scope that was checked already, such as a space's."""
        allowed = self.bind(permissions=scope.permissions)._binding.permissions
        fields = {name: getattr(scope, name) for name in ScopeBinding.__slots__}
        return self._with(ScopeBinding(**{**fields, "permissions": allowed}), actor)

    # Adding

    async def add(
        self,
        messages: object,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
        *,
        run_id: str | None = None,
        project: str | None = None,
        sensitive: bool = False,
        expires_at: datetime | str | None = None,
        background: bool = False,
        timestamp: datetime | str | float | None = None,
        expiration_date: date | str | None = None,
    ) -> AddedItems:
        """Store messages and, with a model and `infer`, the facts in them; report what failed.

        `messages` is a text, a dict with role and content, a message object of a supported
        framework, or a list of them. `memory_type` "short" and "long" choose the layer;
        "procedural_memory" stores one summary of the messages instead of facts. `timestamp` is
        when messages without a time were said; `expiration_date` is the last day of the memories.
        With `background` a job, whose id is returned, extracts the facts after this call.
        """
        scope = self._scope(user_id, agent_id, session_id, project, run_id).own
        resources = await self._open()
        library, ingestor = resources.library, resources.ingestor
        parsed = parse_new_messages(messages, metadata)
        new_messages = await library.store.spaces.sign(scope, parsed)
        if (said_at := parse_moment(timestamp, "timestamp")) is not None:
            new_messages = [
                m if m.ts else m.model_copy(update={"ts": said_at}) for m in new_messages
            ]
        expiry = parse_moment(expires_at, "expires_at")
        if expiration_date is not None:
            expiry = parse_expiration(expiration_date)
        is_layer = memory_type in ("short", "long")
        addition = Addition(
            scope=scope,
            messages=new_messages,
            infer=infer,
            prompt=prompt or self._shared.prompt,
            metadata=dict(metadata or {}),
            layer="short" if memory_type == "short" else "long",
            memory_type=None if is_layer else memory_type,
            sensitive=sensitive,
            expires_at=expiry,
        )
        stored = await ingestor.store(addition)
        problems = await self._add_to_short_term(scope, stored.pairs())
        receipt = stored.receipt()
        about = ingestor.describe_work(addition, receipt)
        work = ingestor.finish(addition, stored, problems)
        if background:
            job = await self._shared.jobs.start(library.store, work, scope.user_id, about)
            return cast(AddedItems, {**job, **receipt})
        details = {"messages": receipt["messages"]}
        added = await self._shared.jobs.follow(library.store, work, scope.user_id, details, about)
        return cast(AddedItems, added)

    write = add

    async def extract_stored(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        run_id: str | None = None,
        project: str | None = None,
        since: datetime | str | None = None,
        dry_run: bool = False,
        background: bool = False,
        confirm: Callable[[dict[str, Any]], object] | None = None,
        progress: Progress = False,
    ) -> dict[str, Any]:
        """Let the model read the stored messages that none has read, as after an import.

        With `dry_run` only count what it would read: messages of people, calls of the model and
        about how many tokens are sent. With `background` a job reads, whose id is returned. After
        an interruption, call it again: `run` stays the same. `undo_extraction` takes a run back.
        `confirm` is called with the counts first; what it raises ends the call. `progress` is
        called with the number of messages read. In a space, one's own are read.
        """
        scope = self._scope(user_id, agent_id, session_id, project, run_id).own
        request = ExtractionRequest(
            scope=replace(scope, session_id=None),
            session_id=scope.session_id,
            since=parse_moment(since, "since"),
            prompt=self._shared.prompt,
        )
        extractions = (await self._open()).extractions
        if not dry_run:
            extractions.require_model()
        counts = await extractions.estimate(request)
        report = {"run": None, "dry_run": dry_run, **counts}
        if dry_run or not counts["messages"]:
            return report
        if confirm is not None:
            confirm(counts)
        if background:
            run = await extractions.start(request, counts, lambda step: None)
            return {**report, "run": run, "job_id": run, "state": "running"}
        with progress_bar(progress, "reading", counts["messages"], unit="messages") as advance:
            run = await extractions.start(request, counts, advance)
            running = extractions.find_running(run)
            return {**report, **(await running.task if running else {})}

    async def extractions(self, user_id: str | None = None) -> list[dict[str, Any]]:
        """Return the runs of `extract_stored` that were not undone, the last first."""
        return await (await self._open()).extractions.runs(self._scope(user_id).own)

    async def undo_extraction(self, run: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Take back what a run of `extract_stored` stored or ended; its messages become unread.

        What was changed since because of other messages stays. After an interruption, call it
        again for the rest.
        """
        scope = self._scope(user_id).own
        return await (await self._open()).extractions.undo(scope, run, self._actor)

    async def extract(
        self,
        messages: object = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """Let the model read entities and relations in messages, or in the session's last ones."""
        scope = self._scope(user_id, agent_id, session_id)
        resources = await self._open()
        if messages is None:
            stored = await resources.library.store.timeline(scope).thread(
                session_id=scope.session_id or DEFAULT_NAME, limit=_MOST_EXTRACTED
            )
            utterances = [Utterance.of(message) for message in stored]
        else:
            # These messages are not stored, so the graph cannot name them as sources.
            utterances = [Utterance.of(message, "") for message in parse_new_messages(messages)]
        return await resources.ingestor.extract_graph(scope, utterances)

    # Reading

    @accepts_space_keys
    async def get(
        self, memory_id: str, *, user_id: str | None = None, kinds: Kinds = "all"
    ) -> StoredItem | None:
        """Return a memory or message by its id, or None if it is missing or deleted."""
        covered = covered_kinds(kinds)
        store = await self._store()
        try:
            scope = await self._scope_of(store, memory_id, user_id)
        except NotFound:
            return None
        items: list[StoredItem] = []
        if "memory" in covered:
            items += map(memory_item, await store.memories(scope).get_many([memory_id]))
            await quote_conflicts(store, scope, items)
        if "message" in covered and not items:
            items += map(message_item, await store.timeline(scope).get_many([memory_id]))
        await name_authors(store, items)
        return items[0] if items else None

    async def get_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        limit: int = _LIMIT,
        *,
        run_id: str | None = None,
        project: str | None = None,
        top_k: int | None = None,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
        superseded: bool = False,
        deleted: bool = False,
        show_expired: bool = False,
        kinds: Kinds = "memories",
    ) -> ItemPage:
        """Return a page of memories, newest first; `kinds` lists messages, or both in turn.

        If there are no memories, `kept_messages` is the number of messages and `message` says how
        to list them. `superseded` includes memories that no longer hold; `deleted` lists the
        deleted ones. If no user is bound or named, the agent or session of every user is listed in
        turn.
        """
        ids, rest = take_scope(
            filters,
            user_id=user_id,
            agent_id=agent_id,
            session_id=session_id,
            run_id=run_id,
            project=project,
        )
        scope = self._scope(*ids)
        query = MemoryQuery(
            filter=read_filter(rest),
            session_id=ids.session_id,
            as_of=parse_moment(as_of, "as_of"),
            superseded=superseded,
            deleted=deleted,
            expired=show_expired,
        )
        store = await self._store()
        limit = choose_limit(limit, top_k, _LIMIT)
        require_limit("limit", limit, LARGEST_LIST)
        list_page = partial(list_kinds, store, query, covered_kinds(kinds))
        if self._binding.has_user or ids.user_id is not None:
            page = await list_page(scope, limit, cursor)
        else:
            page = await list_of_users(list_page, self._scopes(store, scope, None), limit, cursor)
        return mention_messages(page)

    async def search(
        self,
        query: str,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        limit: int = _LIMIT,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        rerank: bool = True,
        *,
        session_id: str | None = None,
        project: str | None = None,
        as_of: datetime | str | None = None,
        kinds: Kinds = "all",
        top_k: int | None = None,
        explain: bool = False,
        reference_date: date | datetime | str | float | None = None,
        show_expired: bool = False,
        time: str | None = None,
    ) -> FoundItems:
        """Return the memories and messages most relevant to a query, with scores from 0 to 1.

        A memory and the message that it comes from (`source`) are one result; `kinds` "memories" or
        "messages" searches one kind. `rerank=False` returns the plain rank fusion of words and
        meaning. `reference_date` is today for words such as "yesterday"; `as_of` searches what was
        known and valid then. `time` is a period such as "last week" or 上周; without
        results in it, `nearest` is the closest time. `explain` adds the parts of each score.
        """
        ids, rest = take_scope(
            filters,
            user_id=user_id,
            agent_id=agent_id,
            session_id=session_id,
            run_id=run_id,
            project=project,
        )
        if not self._binding.has_user and ids.user_id is None:
            raise InvalidArgument(
                "a search needs a user_id",
                hint=f"What was added without one belongs to the user {DEFAULT_NAME!r}",
            )
        scope = self._scope(*ids)
        resources = await self._open()
        moment = parse_moment(as_of, "as_of")
        today = parse_moment(reference_date, "reference_date")
        search = MemorySearch(
            query,
            limit=choose_limit(limit, top_k, _LIMIT),
            filters=rest,
            threshold=threshold,
            rerank=rerank,
            session_id=ids.session_id,
            as_of=moment,
            kinds=kinds,
            explain=explain,
            today=today,
            show_expired=show_expired,
            period=await resources.library.find_period(scope, time, today or moment),
        )
        results = await search_memories(resources.library, scope, search)
        keys = [item["id"] for item in results["results"] if item["kind"] == "memory"]
        if resources.recall_times.add(scope.user_id, keys):
            await resources.recall_times.flush()
        return results

    retrieve = search

    @accepts_space_keys
    async def history(self, memory_id: str, *, user_id: str | None = None) -> list[HistoryEntry]:
        """Return the changes of a memory and its predecessors, oldest first, deleted ones too.

        Each entry says what was said (`said`), what replaced what, by whom and why.
        """
        store = await self._store()
        scope = await self._scope_of(store, memory_id, user_id)
        revisions = await store.memories(scope).history(memory_id)
        keys = [key for revision in revisions for key in revision.source_message_ids]
        sources = await store.timeline(scope).get_many(list(dict.fromkeys(keys)))
        messages = {source.message_id: source for source in sources}
        return [revision_item(revision, messages) for revision in revisions]

    async def graph(
        self,
        entity: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        *,
        depth: int = 1,
        as_of: datetime | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Return an entity's relations, or all entities.

        `limit` bounds the lists of entities and relations; `cursor` continues the one of entities.
        """
        for name, value in (("entity", entity), ("cursor", cursor)):
            if value is not None:
                check_text(name, value)
        library = await self._library()
        graph = await library.current_graph(self._scope(user_id, agent_id))
        moment = None if as_of is None else parse_time(as_of, "as_of")
        if entity is None:
            return await list_entities(graph, limit, cursor)
        return await list_relations(graph, entity, depth=depth, as_of=moment, limit=limit)

    async def recall(
        self,
        messages: object,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        project: str | None = None,
        options: "RecallOptions | None" = None,
        as_of: datetime | str | None = None,
        clock: Callable[[], datetime] | None = None,
        observer: "Observer | None" = None,
        time: str | None = None,
    ) -> "RecallResult":
        """Find what the last user message of a conversation refers to, with the evidence.

        `as_of` hides what was said later; `clock` returns the current time; `observer` is called
        with each trace event, in the thread of the memory's event loop. `time` is a period such as
        "last week", outside of which nothing is found.
        """
        recaller = await self.recaller(
            user_id,
            agent_id,
            session_id,
            project=project,
            options=options,
            as_of=as_of,
            clock=clock,
            observer=observer,
        )
        return await recaller.recall(messages, time=time)

    async def recaller(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        project: str | None = None,
        options: "RecallOptions | None" = None,
        as_of: datetime | str | None = None,
        clock: Callable[[], datetime] | None = None,
        observer: "Observer | None" = None,
    ) -> "Recaller":
        """Return the recaller of a scope, which has the open library and the model client."""
        scope = self._scope(user_id, agent_id, session_id, project)
        library = await self._library()
        client = self._shared.components.model_client
        return make_recaller(library, scope, client, options, clock, as_of, observer)

    async def tools(
        self,
        *,
        options: "RecallOptions | None" = None,
        language: Language = "en",
        as_of: datetime | str | None = None,
        clock: Callable[[], datetime] | None = None,
        observer: "Observer | None" = None,
    ) -> list[Any]:
        """Return AutoGen tools for a parent agent to manage the bound user's memories."""
        from memrecall.agent import memory_tools
        from memrecall.agent.driver import utc_now

        recaller = await self.recaller(options=options, as_of=as_of)
        return memory_tools(
            recaller.library,
            recaller.scope,
            model_client=recaller.model_client,
            options=recaller.options,
            language=language,
            clock=clock or utc_now,
            observer=observer,
        )

    # Changing

    @accepts_space_keys
    async def update(
        self,
        /,
        memory_id: str,
        data: object = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        user_id: str | None = None,
        unchanged_since: datetime | str | None = None,
        **fields: Any,
    ) -> UpdatedItem:
        """Update a memory in place: its text (`data`) or fields such as pinned.

        New metadata is merged into the old. Conflict if it was changed after `unchanged_since`.
        """
        if metadata is not None:
            fields["metadata"] = metadata
        values = parse_update(data, fields)
        resources = await self._open()
        library = resources.library
        scope = await self._scope_of(library.store, memory_id, user_id)
        if await library.store.timeline(scope).get_many([memory_id]):
            raise InvalidArgument(
                f"{memory_id!r} is a message: messages are evidence and never rewritten",
                hint="Update the memory that comes from it, or delete the message and add another",
            )
        listing = library.store.memories(scope)
        record = await listing.get(memory_id)
        if "content" in values and "keywords" not in values and record.keywords:
            words = fact_keywords(values["content"], record.subject or USER)
            values["keywords"] = tuple(Keyword(keyword=word[:NAME_LENGTH]) for word in words)
        since = parse_moment(unchanged_since, "unchanged_since")
        changes = library.changes(scope)
        await changes.update(memory_id, values, actor=self._actor, unchanged_since=since)
        record = await listing.get(memory_id)
        if "content" in values:
            await resources.ingestor.relate_memory(scope, record)
        if {"content", "summary"}.intersection(values):
            library.vectors.expect({scope.user_id: 1})
        item = memory_item(record)
        await quote_conflicts(library.store, scope, [item])
        return {**item, "event": "UPDATE", "message": "updated"}

    @accepts_space_keys
    async def delete(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        sources: bool = True,
        kinds: Kinds = "all",
    ) -> dict[str, Any]:
        """Hide a memory and the messages that it comes from, or a message; `undo` restores all.

        With `sources=False` the messages stay. What other memories took from a message stays in
        them; the memories that were derived from a deleted message alone are hidden with it.
        `memories` and `messages` are the ids of what was hidden with it.
        """
        covered = covered_kinds(kinds)
        library = await self._library()
        scope = await self._scope_of(library.store, memory_id, user_id)
        changes = library.changes(scope)
        if "message" in covered and await library.store.timeline(scope).get_many([memory_id]):
            removal = await changes.delete(
                [], message_ids=[memory_id], actor=self._actor, reason=_OF_MESSAGE
            )
        elif "memory" in covered:
            await library.store.memories(scope).get(memory_id)
            removal = await changes.delete([memory_id], actor=self._actor, sources=sources)
        else:
            raise NotFound(f"there is no message {memory_id!r}", hint="Check the id and the user")
        await self._update_short_term(scope.user_id)
        return {
            "id": memory_id,
            "event": "DELETE",
            "message": "deleted",
            **_others(removal, memory_id),
        }

    forget = delete

    async def delete_message(
        self, message_id: str, *, user_id: str | None = None
    ) -> dict[str, Any]:
        """Hide a message, and the memories that were derived from it alone.

        Nothing happens if it is hidden or was erased before; NotFound if the user never had it.
        """
        if not self._binding.has_user and user_id is None:
            raise InvalidArgument("a message needs a user_id", hint="Users may have equal ids")
        library, scope = await self._library(), self._scope(user_id)
        timeline = library.store.timeline(scope)
        removal = Removal()
        if await timeline.get_many([message_id]):
            removal = await library.changes(scope).delete(
                [], message_ids=[message_id], actor=self._actor, reason=_OF_MESSAGE
            )
            await self._update_short_term(scope.user_id)
        elif await timeline.find_state(message_id) is None:
            raise NotFound(f"there is no message {message_id!r}", hint="Check the id and the user")
        return {
            "id": message_id,
            "event": "DELETE",
            "deleted": len(removal.messages),
            "memories": list(removal.memories),
        }

    @accepts_space_keys
    async def undo(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        unchanged_since: datetime | str | None = None,
    ) -> dict[str, Any]:
        """Revert the last change of a memory (update, supersession, deletion, expiry).

        Restores what a deletion hid with it. Of a message, takes back its deletion. Repeated, it
        walks back one change of a memory at a time to the first memory of the fact. Conflict at
        the start, or if it was changed after `unchanged_since`.
        """
        since = parse_moment(unchanged_since, "unchanged_since")
        library = await self._library()
        scope = await self._scope_of(library.store, memory_id, user_id)
        changes = library.changes(scope)
        state = await library.store.timeline(scope).find_state(memory_id)
        if state in ("visible", "hidden"):
            changed = await changes.undo_message(memory_id, actor=self._actor)
        else:
            changed = await changes.undo(memory_id, actor=self._actor, unchanged_since=since)
        library.vectors.expect({scope.user_id: 1 + len(changed)})
        await self._update_short_term(scope.user_id)
        return {"id": memory_id, "event": "UNDO", "message": "undone"}

    @accepts_space_keys
    async def purge(
        self, memory_id: str, *, user_id: str | None = None, sources: bool = True
    ) -> dict[str, Any]:
        """Erase a memory and the messages that it comes from permanently, or a message.

        Its history, vectors and all that quotes it are erased too, and the memories that were
        derived from an erased message alone. With `sources=False` the messages of a memory stay.
        Nothing happens if a message was erased before.
        """
        library = await self._library()
        scope = await self._scope_of(library.store, memory_id, user_id)
        is_message = await library.store.timeline(scope).find_state(memory_id) is not None
        async with library.store.database.erasing():
            if is_message:
                removal = await library.purge_message(scope, memory_id, actor=self._actor)
            else:
                removal = await library.purge(
                    scope, [memory_id], sources=sources, actor=self._actor
                )
            await self._update_short_term(scope.user_id, removal.messages)
        purged = len(removal.messages if is_message else removal.memories)
        return {"id": memory_id, "purged": purged, **_others(removal, memory_id)}

    async def delete_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        dry_run: bool = False,
        sources: bool = True,
        kinds: Kinds = "all",
    ) -> dict[str, Any]:
        """Hide all memories and messages of a scope that match the filters; return their numbers.

        The messages that the memories come from are hidden too, unless `sources=False`. If no
        user is bound or named, every user's are, in one transaction each.
        """
        ids, rest = take_scope(
            filters, user_id=user_id, agent_id=agent_id, session_id=session_id, run_id=run_id
        )
        scope = self._scope(*ids)
        covered = covered_kinds(kinds)
        if scope.read_project is not None:  # what belongs to none is read here, not deleted
            rest = {"AND": [rest, {"project": scope.read_project}]}
        query = MemoryQuery(read_filter(rest), ids.session_id, superseded=True)
        library = await self._library()
        memories = messages = users = 0
        async for owner in self._scopes(library.store, scope, ids.user_id):
            named, removal = await _find_removal(library, owner, query, covered, sources=sources)
            if not dry_run and (removal.memories or removal.messages):
                removal = await library.changes(owner).delete(
                    removal.memories,
                    message_ids=named,
                    actor=self._actor,
                    reason="all",
                    sources=sources,
                )
                await self._update_short_term(owner.user_id)
            users += bool(removal.memories or removal.messages)
            memories += len(removal.memories)
            messages += len(removal.messages)
        message = f"{_noun(memories, 'memory')} and {_noun(messages, 'message')}"
        return {
            "found": memories + messages,
            "deleted": 0 if dry_run else memories + messages,
            "memories": memories,
            "messages": messages,
            "users": users,
            "dry_run": dry_run,
            "message": f"{message} {'would be deleted' if dry_run else 'deleted'}",
        }

    # Sessions

    async def short_term(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        every_messages: int = EVERY_MESSAGES,
        every_seconds: float = EVERY_SECONDS,
    ) -> ShortTermMemory:
        """Return a session's short-term memory; from now on `add` to the session fills it."""
        scope = self._scope(user_id, agent_id, session_id)
        key = _session_key(scope)
        if key not in self._shared.sessions:
            store = await self._store()
            self._shared.sessions[key] = ShortTermMemory(
                store, scope, every_messages=every_messages, every_seconds=every_seconds
            )
        short_term = self._shared.sessions[key]
        await short_term.update()  # other processes may have hidden or erased messages
        return short_term

    async def long_term(
        self, user_id: str | None = None, agent_id: str | None = None
    ) -> LongTermMemory:
        """Return the long-term memory: the user's profile, the agent's knowledge, experience."""
        return LongTermMemory(await self._library(), self._scope(user_id, agent_id))

    async def checkpoint(
        self, user_id: str | None = None, agent_id: str | None = None, session_id: str | None = None
    ) -> dict[str, Any]:
        """Save a session's short-term memory."""
        short_term = await self.short_term(user_id, agent_id, session_id)
        checkpoint = await short_term.checkpoint()
        return {"number": checkpoint.number, "created_at": format_time(checkpoint.created_at)}

    async def restore(
        self, user_id: str | None = None, agent_id: str | None = None, session_id: str | None = None
    ) -> bool:
        """Load a session's last checkpoint; return False if there is none."""
        return await (await self.short_term(user_id, agent_id, session_id)).restore()

    async def summarize(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        whole: bool = True,
    ) -> dict[str, Any]:
        """Summarise a session's messages since the last summary; return all its summaries.

        Without `whole`, only complete groups of messages are summarised. Without a model, the only
        summary (`by` "text") is the most informative sentences of the last messages, computed now.
        """
        scope = self._scope(user_id, agent_id, session_id)
        new, summaries = await (await self._open()).ingestor.summaries.update(scope, whole=whole)
        results = [
            {
                "level": ("turns", "chunk", "session")[summary.level],
                "number": summary.number,
                "first_sequence_no": summary.first_sequence_no,
                "last_sequence_no": summary.last_sequence_no,
                "text": summary.text,
                "by": summary.made_by,
            }
            for summary in summaries
        ]
        return {"new": new, "results": results}

    async def state(
        self,
        max_tokens: int,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> dict[str, Any]:
        """Return a session within `max_tokens`, for a prompt, with its sources.

        It has what is known about the user, then summaries, then the last messages.
        """
        scope = self._scope(user_id, agent_id, session_id)
        resources = await self._open()
        profile = await LongTermMemory(resources.library, scope).user_info.profile()
        facts: list[tuple[str, list[str]]] = []
        for latest, *_ in profile.values():
            author = latest.get("author")  # in a space, the member who wrote it
            value = name_writer(latest["value"], author) if author else latest["value"]
            facts.append((value, latest["evidence"]))
        await resources.ingestor.summaries.settle(scope)
        summaries = SessionSummaries(resources.library.store, scope, resources.extractor)
        return await summaries.context(max_tokens, facts)

    async def end_session(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        success: bool | None = None,
    ) -> dict[str, Any]:
        """End a session: its summary becomes experience, its short-term memory is deleted."""
        scope = self._scope(user_id, agent_id, session_id)
        session = scope.session_id or DEFAULT_NAME
        resources = await self._open()
        library, store = resources.library, resources.library.store
        new, stored = await resources.ingestor.summaries.update(scope, whole=True)
        summaries = [summary for summary in stored if summary.level == SESSION]
        experience = None
        if summaries and summaries[-1].text.strip():  # there may be nothing to say
            messages = await store.timeline(scope).thread(session_id=session, limit=_MOST_SOURCES)
            experience = await LongTermMemory(library, scope).experience.add(
                summaries[-1].text,
                success=success,
                source_message_ids=tuple(message.message_id for message in messages),
            )
        await (await self.short_term(user_id, agent_id, session_id)).end()
        del self._shared.sessions[_session_key(scope)]
        await store.owners.end_session(scope.user_id, session)
        await store.audit(scope).add(AuditEntry("end_session", self._actor, session))
        return {"experience": experience, "summaries": new, "success": success}

    # Jobs

    async def job(self, job_id: str, *, wait: bool = False) -> dict[str, Any]:
        """Return the state of a background job: running, done or failed."""
        jobs, owner = self._shared.jobs, self._binding.user_id
        resources = await self._open()
        running = resources.extractions.find_running(job_id)
        if running is not None and owner in (None, running.scope.user_id):
            if not wait:
                return running.state
            await asyncio.wait([running.task])
            return await jobs.find(resources.library.store, job_id, running.scope.user_id)
        if wait or owner is None:
            return await jobs.wait(job_id, owner) if wait else jobs.state(job_id, owner)
        return await jobs.find(resources.library.store, job_id, owner)

    async def jobs(self, user_id: str | None = None) -> list[dict[str, Any]]:
        """Return the background jobs of a user's last day, the latest first."""
        scope = self._scope(user_id)
        return await self._shared.jobs.list(await self._store(), scope.user_id)

    def running_jobs(self, user_id: str | None = None) -> int:
        """Return how many jobs of a user are running."""
        return self._shared.jobs.running(self._scope(user_id).user_id)

    async def resume(self) -> None:
        """Go on with what other processes leave: vectors, summaries, additions and extractions."""
        resources = await self._open()
        resources.library.vectors.resume()
        resources.extractions.resume()

    def register(
        self,
        name: str,
        function: Callable[[list[dict[str, Any]]], Any],
        *,
        when: When = "demand",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Register a function that `process` runs by name, or every `add` (`when="add"`)."""
        self._shared.processes.register(name, function, when=when, timeout=timeout)

    async def process(
        self,
        name: str,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        limit: int = 100,
        kinds: Kinds = "memories",
    ) -> dict[str, Any]:
        """Run a registered function over the newest memories or messages."""
        process = self._shared.processes.find(name)
        page = await self.get_all(user_id, agent_id, session_id, limit=limit, kinds=kinds)
        return await run_process(process, cast(list[dict[str, Any]], page["results"]))

    # All data of users

    async def sweep(
        self,
        policy: Policy | None = None,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        all_users: bool = False,
        dry_run: bool = True,
        purge: bool = False,
        now: datetime | None = None,
    ) -> dict[str, Any]:
        """Report what a policy removes; with `dry_run=False`, remove it.

        With `all_users` every user is swept in turn and only the counts are returned.
        """
        options = SweepOptions(policy or Policy(), dry_run, purge, now or datetime.now(UTC))
        if not all_users:
            return await self._sweep_user(self._scope(user_id, agent_id), options)
        if user_id is not None or self._binding.has_user:
            raise InvalidArgument(
                "user_id and all_users are mutually exclusive", hint="Leave out one of them"
            )
        return await self._sweep_all_users(agent_id, options, asyncio.Event())

    async def schedule_sweeps(
        self,
        every_seconds: float,
        policy: Policy | None = None,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        dry_run: bool = False,
        purge: bool = False,
        report: Callable[[dict[str, Any]], object] | None = None,
    ) -> Schedule:
        """Sweep at an interval while this memory is open; the first sweep follows one interval.

        Sweeps the bound or named user, else all users. `report` is called with each result.
        """
        if not isinstance(every_seconds, int | float) or not every_seconds > 0:
            raise InvalidArgument(
                f"every_seconds {every_seconds!r} is no positive number", hint="Pass a number"
            )
        all_users = user_id is None and not self._binding.has_user
        first = SweepOptions(policy or Policy(), dry_run, purge, datetime.now(UTC))

        async def run_once(stopping: asyncio.Event) -> None:
            options = replace(first, now=datetime.now(UTC))
            if all_users:
                result = await self._sweep_all_users(agent_id, options, stopping)
            else:
                result = await self._sweep_user(self._scope(user_id, agent_id), options)
            if report is not None:
                report(result)

        schedule = Schedule("a scheduled sweep", every_seconds, run_once)
        self._shared.schedules.append(schedule)
        return schedule

    async def export(
        self, user_id: str | None = None, project: str | None = None, *, kinds: Kinds = "all"
    ) -> AsyncGenerator[str, None]:
        """Yield all data of a user, or of a project, as JSON lines that `import_` accepts.

        `kinds` "memories" or "messages" leaves out the others, and what is derived from them.
        """
        covered = covered_kinds(kinds)
        omitted = {t for kind, tables in _TABLES_OF.items() if kind not in covered for t in tables}
        scope = self._scope_without_agent(user_id, project)
        resources = await self._open()
        await resources.recall_times.flush()
        await self._log_transfer("export", scope)
        rows = resources.library.export_user(scope.user_id, scope.read_project)
        async with aclosing(rows) as records:
            async for record in records:
                if record["table"] not in omitted:
                    yield json.dumps(record, ensure_ascii=False)

    async def import_(
        self, lines: Iterable[str | bytes], user_id: str | None = None, *, invite: bool = False
    ) -> ImportCounts:
        """Import the lines of `export`, all or none; return the counts by table.

        With `invite`, users whom the export of a space names become members when they accept.
        """
        scope = self._scope_without_agent(user_id)
        library = await self._library()
        records = await asyncio.to_thread(parse_records, list(lines))
        member = scope if scope.space else None
        counts = await library.import_user(scope.user_id, records, member, invite=invite)
        await self._log_transfer("import", scope, sum(counts.values()))
        return counts

    async def erase(
        self, user_id: str | None = None, *, with_contributions: bool = False
    ) -> dict[str, int]:
        """Erase a user completely: rows, vectors, snapshots, traces and checkpoints.

        What they wrote to spaces stays there under another name, unless `with_contributions`.
        """
        scope = self._scope_without_agent(user_id)
        if scope.project is not None:
            raise InvalidArgument("this memory is bound to a project", hint="Use erase_project")
        return await self._erase_owner(scope.user_id, with_contributions=with_contributions)

    async def erase_project(
        self, project: str | None = None, user_id: str | None = None
    ) -> dict[str, int]:
        """Erase the messages and memories of a project permanently, and what quotes them.

        What is known about the user stays. By default it is the bound project.
        """
        scope = self._scope(user_id, None, None, project)
        if scope.project is None:
            raise InvalidArgument("no project is named", hint="Pass the name of one")
        library = await self._library()
        async with library.store.database.erasing():
            removal = await library.erase_project(scope.user_id, scope.project, self._actor)
            await self._update_short_term(scope.user_id, removal.messages)
        return {"messages": len(removal.messages), "memories": len(removal.memories)}

    async def reset(self) -> None:
        """Erase all users and spaces completely; only a memory that is bound to nothing can."""
        if self._binding != ScopeBinding(permissions=self._binding.permissions):
            raise InvalidArgument(
                "this memory is bound to a scope, but reset erases all users",
                hint="Use erase or delete_all",
            )
        store = await self._store()
        async for owner in iterate_users(store, disabled=True, spaces=True):
            await self._erase_owner(owner)

    # Spaces

    async def create_space(
        self, space_id: str, *, name: str = "", description: str = ""
    ) -> dict[str, Any]:
        """Create a space whose first admin is the bound user or key; Conflict if it is taken."""
        store = await self._store()
        space = await store.spaces.create(
            space_id, name=name or space_id, description=description, admin=self._own_member()
        )
        return space.as_dict()

    async def spaces(self) -> list[dict[str, Any]]:
        """Return the spaces of the bound user or key by id, with the role in each."""
        store = await self._store()
        return [space.as_dict() for space in await store.spaces.list_of(self._own_member())]

    async def invitations(self) -> list[dict[str, Any]]:
        """Return the spaces that the bound user is invited to: name, role, by whom and when."""
        store = await self._store()
        return [each.as_dict() for each in await store.spaces.invitations_of(self._own_user())]

    async def accept_invitation(self, space_id: str) -> dict[str, Any]:
        """Join a space that the bound user is invited to; NotFound if they are not."""
        store = await self._store()
        return (await store.spaces.accept(self._own_user(), space_id)).as_dict()

    async def decline_invitation(self, space_id: str) -> None:
        """Decline to join a space that the bound user is invited to; NotFound if they are not."""
        store = await self._store()
        await store.spaces.decline(self._own_user(), space_id)

    def space(self, space_id: str) -> "SpaceMemory":
        """Return a space of the bound user; each call on it checks the membership."""
        space_owner(space_id)
        self._own_member()
        return SpaceMemory(self, space_id)

    async def enter(self, space_id: str, least: SpaceRole = SpaceRole.READER) -> Self:
        """Return a memory bound to a space, for one request.

        NotFound if the bound user is not a member, Forbidden if their role is below `least`.
        """
        self._own_member()
        store = await self._store()
        scope = await store.spaces.enter(self._scope(), space_id)
        scope.require_role(least)
        binding = replace(
            self._binding,
            user_id=scope.user_id,
            agent_id=None,
            spaces=(),
            member=scope.member,
            role=scope.role,
        )
        return self._with(binding, str(scope.member))

    @accepts_space_keys
    async def who_can_see(self, memory_id: str) -> dict[str, Any]:
        """Return who can read a memory or message: its owner, and the members or keys with roles.

        NotFound if the caller cannot read it themselves.
        """
        return await Sharing(await self._library(), self._scope()).who_can_see(memory_id)

    async def why_seen(self, key: str) -> list[dict[str, Any]]:
        """Return why the caller can read a hit, or each item of a recall by its trace id."""
        return await Sharing(await self._library(), self._scope()).why_seen(key)

    async def promote(self, memory_id: str, space_id: str) -> dict[str, Any]:
        """Copy a memory of the bound user, with its messages, to a space.

        Promoting it again returns the same copy. `demote` takes it back.
        """
        return await Sharing(await self._library(), self._scope()).promote(memory_id, space_id)

    async def demote(self, memory_id: str, space_id: str) -> dict[str, Any]:
        """Erase a copy that the bound user promoted to a space, with messages only it names.

        `memory_id` is the id of the copy or of the original.
        """
        return await Sharing(await self._library(), self._scope()).demote(memory_id, space_id)

    async def space_info(self) -> dict[str, Any]:
        """Return the space that this memory is bound to, with the caller's role."""
        return (await (await self._store()).spaces.get(self._space_scope())).as_dict()

    async def members(self) -> list[dict[str, Any]]:
        """Return the members of the space, oldest first: id, role, name, since, granted_by.

        To an admin also those who are invited, whose `status` is "invited" instead of "member".
        """
        scope, spaces = self._space_scope(), (await self._store()).spaces
        found = [*await spaces.members(scope), *await spaces.invited(scope)]
        return [member.as_dict() for member in found]

    grants = members

    async def set_member(
        self, member: str, role: SpaceRole | str, *, name: str | None = None, invite: bool = False
    ) -> dict[str, Any]:
        """Add a user or key (`key:` and its id) to the space, or change their role or name.

        With `invite`, a user who is not a member is one only when they accept. Pass it for whoever
        cannot speak for that user; without it, the application does.
        """
        scope, store = self._space_scope(), await self._store()
        kind, _, key_id = member.partition(":")
        if f"{kind}:" == KEY_MEMBER and await store.keys.find_valid(key_id) is None:
            raise NotFound(f"there is no valid key {key_id!r}", hint="See `memrecall keys list`")
        stored = await store.spaces.set_member(scope, member, role, name, invite=invite)
        return stored.as_dict()

    async def remove_member(self, member: str) -> None:
        """Remove a member, or withdraw an invitation; what they wrote stays.

        Conflict for the last admin.
        """
        await (await self._store()).spaces.remove_member(self._space_scope(), member)

    async def leave(self) -> None:
        """Leave the space; what the caller wrote stays. Conflict for the last admin."""
        scope = self._space_scope()
        await (await self._store()).spaces.remove_member(scope, str(scope.member))

    async def audit(
        self, *, limit: int = _AUDIT_PAGE, after: str | None = None
    ) -> list[dict[str, Any]]:
        """Return who changed what in the space, latest first, without contents."""
        page = await (await self._store()).audit(self._space_scope()).page(limit=limit, after=after)
        return [asdict(entry) | {"at": entry.at and format_time(entry.at)} for entry in page.items]

    async def delete_space(self, *, name: str) -> dict[str, int]:
        """Erase the space with everything in it; `name` must be its name."""
        scope, library = self._space_scope(), await self._library()
        await library.store.spaces.require_name(scope, name)
        return (await library.erase_user(scope.user_id)).as_dict()

    # Private

    def _with(self, binding: ScopeBinding, actor: str) -> Self:
        bound = object.__new__(type(self))
        bound._binding = binding
        bound._actor = actor
        bound._is_owner = False
        bound._shared = self._shared
        return bound

    async def _open(self) -> Resources:
        return await self._shared.open()

    async def _library(self) -> Library:
        return (await self._open()).library

    async def _store(self) -> Store:
        return (await self._library()).store

    def _scope(self, *ids: str | None) -> Scope:
        return self._binding.scope(*ids)

    async def _scope_of(self, store: Store, memory_id: str, user_id: str | None) -> Scope:
        """Return the scope of a memory: the bound or named user, else its only owner."""
        binding = self._binding
        if binding.has_user or user_id is not None:
            return binding.scope(user_id)
        owners = [
            user
            for user, agent in await store.find_owners(memory_id)
            if binding.agent_id in (None, agent)
        ]
        if not owners:
            raise NotFound(f"there is no memory {memory_id!r}", hint="Check the id")
        if len(owners) > 1:
            raise Conflict(
                f"{len(owners)} users have a memory {memory_id!r}", hint="Pass user_id too"
            )
        return binding.scope(owners[0])

    async def _scopes(
        self, store: Store, scope: Scope, user_id: str | None
    ) -> AsyncIterator[Scope]:
        """Yield the scope itself if a user is bound or named, else the same scope per user."""
        if self._binding.has_user or user_id is not None:
            yield scope
            return
        async for user in iterate_users(store):
            yield replace(scope, user_id=user)

    def _scope_without_agent(self, user_id: str | None, project: str | None = None) -> Scope:
        """Return the scope of a call that covers all agents and sessions of a user."""
        if self._binding.agent_id is not None:
            raise InvalidArgument(
                f"this memory is bound to agent {self._binding.agent_id!r}, "
                "but the call covers all agents of a user",
                hint="Use a Memory that is not bound to an agent",
            )
        return self._scope(user_id, None, None, project)

    def _own_member(self) -> str:
        """Return the member that the bound user is in spaces."""
        scope = self._scope() if self._binding.has_user else None
        if scope is None or scope.space is not None:
            raise InvalidArgument(
                "spaces need a memory that is bound to a user", hint="Pass user_id to Memory"
            )
        return scope.member or scope.user_id

    def _own_user(self) -> str:
        """Return the bound user: a key answers no invitation of its own."""
        self._own_member()
        return self._scope().user_id

    def _space_scope(self) -> Scope:
        scope = self._scope() if self._binding.has_user else None
        if scope is None or scope.space is None:
            raise InvalidArgument("this memory is not bound to a space", hint="memory.space(…)")
        return scope

    async def _add_to_short_term(
        self, scope: Scope, messages: Sequence[tuple[NewMessage, str]]
    ) -> list[str]:
        """Add new messages to the session's short-term memory, if any; return the problems."""
        short_term = self._shared.sessions.get(_session_key(scope))
        if short_term is None or not messages:
            return []
        spaces = (await self._store()).spaces
        names = await spaces.names(scope.user_id) if scope.author else {}
        items = [
            Item(
                message.content,
                message.role.value,
                show_writer(message.speaker, scope.author, names),
                name,
            )
            for message, name in messages
        ]
        try:
            await short_term.add(items)
        except MemrecallError as error:
            return [f"checkpoint: {error}"]
        return []

    async def _update_short_term(self, user_id: str, erased: Collection[str] = ()) -> None:
        """Refresh short-term memories after messages were hidden, restored or erased."""
        for key, short_term in self._shared.sessions.items():
            if key[0] == user_id:
                await short_term.update(erased)

    async def _sweep_all_users(
        self, agent_id: str | None, options: SweepOptions, stopping: asyncio.Event
    ) -> dict[str, Any]:
        """Sweep user by user, until all are done or `stopping` is set."""
        users = matches = removed = 0
        reasons: Counter[str] = Counter()
        async for user in iterate_users(await self._store(), spaces=True):
            if stopping.is_set():
                break
            scope = Scope.of_owner(user, agent_id, permissions=self._binding.permissions)
            report = await self._sweep_user(scope, options)
            users += bool(report["found"])
            matches += report["found"]
            removed += report["removed"]
            reasons += report["reasons"]
        counts = {"users": users, "found": matches, "removed": removed, "reasons": dict(reasons)}
        return {"dry_run": options.dry_run, **counts}

    async def _sweep_user(self, scope: Scope, options: SweepOptions) -> dict[str, Any]:
        resources = await self._open()
        await resources.recall_times.flush()
        return await sweep_scope(resources.library, scope, options)

    async def _log_transfer(self, action: str, scope: Scope, count: int = 1) -> None:
        library = await self._library()
        if not library.settings.read_only:
            await library.store.audit(scope).add(AuditEntry(action, self._actor, count=count))

    async def _erase_owner(self, owner: str, **options: bool) -> dict[str, int]:
        resources = await self._open()
        await resources.extractions.stop(owner)
        await self._shared.jobs.forget(owner)
        resources.recall_times.discard(owner)
        for key in [key for key in self._shared.sessions if key[0] == owner]:
            del self._shared.sessions[key]
        return (await resources.library.erase_user(owner, **options)).as_dict()


async def _find_removal(
    library: Library, owner: Scope, query: MemoryQuery, covered: frozenset[str], *, sources: bool
) -> tuple[list[str], Removal]:
    """Return the messages that a query covers, and all that is hidden with them and its memories.

    With `sources`, that includes the messages that the memories come from.
    """
    listing = library.store.memories(owner)
    timeline = library.store.timeline(replace(owner, session_id=None))
    keys = await listing.keys(query) if "memory" in covered else []
    messages: list[str] = []
    if "message" in covered:
        withheld = await listing.withheld_sources()  # they stay with their memories
        found = await timeline.keys(query.filter, session_id=query.session_id)
        messages = [key for key in found if key not in withheld]
    hidden = set(messages)
    if sources:
        records = await listing.get_many(keys)
        ids = sorted({name for record in records for name in record.source_message_ids})
        hidden.update(message.message_id for message in await timeline.get_many(ids))
    return messages, Removal(tuple(keys), tuple(hidden))


def _others(removal: Removal, memory_id: str) -> dict[str, list[str]]:
    """Return the ids of what was removed with a memory or message."""
    named = {"memories": removal.memories, "messages": removal.messages}
    return {name: [key for key in keys if key != memory_id] for name, keys in named.items()}


def _noun(count: int, noun: str) -> str:
    plural = {"memory": "memories", "message": "messages"}[noun]
    return f"{count} {noun if count == 1 else plural}"


def _session_key(scope: Scope) -> SessionKey:
    return scope.user_id, scope.agent_id, scope.session_id or DEFAULT_NAME, scope.read_project
