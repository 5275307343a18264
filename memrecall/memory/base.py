"""The base of `AsyncMemory`: its scope binding and the resources that bound copies share."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from memrecall.embedding import Embedder
from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.extraction.protocol import Extractor
from memrecall.library.library import Library
from memrecall.memory.extractions import Extractions
from memrecall.memory.ingest import Ingestor
from memrecall.memory.jobs import Jobs, Processes, Schedule
from memrecall.memory.layers import ShortTermMemory
from memrecall.memory.mem0 import options_of_config
from memrecall.memory.recall import make_extractor, require_one_database
from memrecall.memory.records import iterate_users
from memrecall.memory.search import RecallTimes
from memrecall.scope import DEFAULT_NAME, Permission, Scope, SpaceRole
from memrecall.search import VectorDB
from memrecall.settings import Settings, load_settings
from memrecall.store import GraphDB, Store
from memrecall.types import check_text
from memrecall.workers import ProcessOwner

SessionKey = tuple[str, str | None, str, str | None]  # user, agent, session, project

APPLICATION = "application"
# The method by which an object of a wrong kind is recognised.
_METHODS = {
    "extractor": "extract",
    "model_client": "create",
    "embedder": "embed",
    "graph_db": "transact",
    "vector_db": "products",
}


@dataclass(frozen=True, slots=True)
class ScopeBinding:
    """The part of the scope that trusted code has fixed; a call may add to it, not change it."""

    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    permissions: frozenset[Permission] = frozenset()
    project: str | None = None
    all_projects: bool = False
    spaces: tuple[str, ...] = ()
    member: str | None = None
    role: SpaceRole | None = None

    def __post_init__(self) -> None:
        # Checks the ids now, not at the first call.
        self.scope(DEFAULT_NAME if self.user_id is None else None)

    @property
    def has_user(self) -> bool:
        """True if calls need not name a user."""
        return self.user_id is not None

    def scope(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        project: str | None = None,
        run_id: str | None = None,
    ) -> Scope:
        """Return the scope of a call; without a user it is the user `default`.

        Raises InvalidArgument if neither the binding nor the call names a user, agent or session.
        """
        user = _join("user_id", self.user_id, user_id)
        agent = _join("agent_id", self.agent_id, agent_id)
        session = _join("session_id", self.session_id, named_session(session_id, run_id))
        if user is None and agent is None and session is None:
            raise InvalidArgument(
                "user_id, agent_id and session_id are all missing",
                hint="Pass user_id, or bind one: Memory(user_id=…)",
            )
        return Scope(
            DEFAULT_NAME if user is None else user,
            agent,
            session,
            self.permissions,
            _join("project", self.project, project),
            self.all_projects,
            self.spaces,
            self.member,
            self.role,
        )

    def narrow(
        self,
        user_id: str | None,
        agent_id: str | None,
        session_id: str | None,
        permissions: Iterable[Permission] | None,
        project: str | None,
        all_projects: bool,
        spaces: Iterable[str] | None,
        member: str | None,
    ) -> "ScopeBinding":
        """Return a binding with more ids bound and no permission that this one lacks."""
        granted = (
            self.permissions if permissions is None else frozenset(map(Permission, permissions))
        )
        if extra := sorted(granted - self.permissions):
            raise InvalidArgument(
                f"this memory does not have the permission {extra[0].value!r}",
                hint="Create the Memory with that permission",
            )
        return ScopeBinding(
            _join("user_id", self.user_id, user_id),
            _join("agent_id", self.agent_id, agent_id),
            _join("session_id", self.session_id, session_id),
            granted,
            _join("project", self.project, project),
            self.all_projects if self.project is not None else all_projects,
            self.spaces if spaces is None else tuple(dict.fromkeys(spaces)),
            _join("member", self.member, member),
            self.role,
        )


def _join(name: str, bound: str | None, value: str | None) -> str | None:
    if bound is not None and value is not None and value != bound:
        raise InvalidArgument(
            f"this memory is bound to {name} {bound!r} and cannot serve {value!r}",
            hint="Create another Memory for it",
        )
    return value if bound is None else bound


def named_session(session_id: str | None, run_id: str | None) -> str | None:
    """Return the session that a call names, as `session_id` or as `run_id`."""
    if session_id is not None and run_id is not None and session_id != run_id:
        raise InvalidArgument(
            f"session_id {session_id!r} and run_id {run_id!r} differ",
            hint="They mean the same: pass one of them",
        )
    return run_id if session_id is None else session_id


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
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    _owner: ProcessOwner | None = None  # of the resources

    async def open(self) -> Resources:
        """Return the resources, opened at the first call; a forked child cannot use them."""
        if self._owner is not None:
            self._owner.require_current()
        async with self._lock:
            if self._resources is None:
                self._owner = ProcessOwner()
                self._resources = self._make(self.library or await self._open_library())
            return self._resources

    def _make(self, library: Library) -> Resources:
        extractor = self.components.extractor or make_extractor(
            library.settings, self.components.model_client
        )
        ingestor = Ingestor(library, extractor, self.processes, self.jobs)
        extractions = Extractions(library, ingestor, self.jobs)
        return Resources(library, extractor, ingestor, extractions, RecallTimes(library.store))

    async def _open_library(self) -> Library:
        parts = self.components
        return await Library.open(
            self.settings,
            embedder=parts.embedder,
            graphs=parts.graph_db,
            vector_db=parts.vector_db,
        )

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


class MemoryBase:
    """A memory bound to a scope; `AsyncMemory` describes the arguments."""

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
        granted = frozenset(map(Permission, permissions))
        covered = tuple(dict.fromkeys(spaces))
        self._binding = ScopeBinding(
            user_id, agent_id, session_id, granted, project, all_projects, covered
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
        """Return a memory for a scope that was checked already, such as that of a space."""
        allowed = self.bind(permissions=scope.permissions)._binding.permissions
        fields = {name: getattr(scope, name) for name in ScopeBinding.__slots__}
        return self._with(ScopeBinding(**{**fields, "permissions": allowed}), actor)

    def _with(self, binding: ScopeBinding, actor: str) -> Self:
        bound = object.__new__(type(self))
        bound._binding = binding
        bound._actor = actor
        bound._is_owner = False
        bound._shared = self._shared
        return bound

    async def _open(self) -> Resources:
        return await self._shared.open()

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
