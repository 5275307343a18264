"""The state of the service (readiness, running recalls) and of one request."""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from memrecall.embedding import Embedder
from memrecall.embedding.base import ThreadedEmbedder
from memrecall.embedding.embedders import HashEmbedder
from memrecall.errors import MemrecallError, NotFound, StorageError
from memrecall.library.library import enter_all
from memrecall.memory import AsyncMemory, Library, recall
from memrecall.scope import SPACE_PREFIX, Scope, SpaceRole
from memrecall.search.request import SearchRequest
from memrecall.server.auth import Principal
from memrecall.server.errors import invalid_field
from memrecall.server.http.openapi import ROLE_OF_OPERATION
from memrecall.server.limits import RecallLimiter
from memrecall.server.metrics import Metrics
from memrecall.settings import Settings
from memrecall.store import Store
from memrecall.text.keywords import extract_keywords
from memrecall.types import NewMessage, Role
from memrecall.workers import SMALL_TEXT, in_process

log = logging.getLogger("memrecall.server")
_Event = TypeVar("_Event")

CHECK_SECONDS = 1.0  # for one check
_FAILED_SECONDS = 1.0  # until a failed check runs again
_READY_TEXT = "ready"
_OPENED_USERS = 3  # whose indexes are open when the service is ready
_SAMPLE_USER = "sample"
_SAMPLE = ("My sister lives in Lisbon", "我姐姐住在里斯本")


@dataclass(frozen=True, slots=True)
class Check:
    """Something that requests need, or would use; `run` raises if it is not ready."""

    run: Callable[[], Awaitable[object]]
    seconds: float = 1.0  # that a success is valid
    is_required: bool = True


class Readiness:
    """Named checks, which run at most once a second, however many callers ask."""

    def __init__(self, checks: dict[str, Check], clock: Callable[[], float] = time.monotonic):
        self.checks = checks
        self._clock = clock
        self._outcomes: dict[str, tuple[bool, float]] = {}  # and until when they are valid
        self._lock = asyncio.Lock()

    async def outcomes(self, *, only_required: bool = False) -> dict[str, bool]:
        """Return which checks succeed."""
        names = self._required if only_required else list(self.checks)
        async with self._lock:
            await asyncio.gather(*map(self._renew, names))
            return {name: self._outcomes[name][0] for name in names}

    @property
    def _required(self) -> list[str]:
        return [name for name, check in self.checks.items() if check.is_required]

    @property
    def has_failed(self) -> bool:
        """True if a required check failed when it was last run."""
        return not all(self._outcomes.get(name, (True,))[0] for name in self._required)

    async def _renew(self, name: str) -> None:
        if self._outcomes.get(name, (False, 0.0))[1] > self._clock():
            return
        check = self.checks[name]
        try:
            await _in_time(check)
        except (MemrecallError, TimeoutError) as error:
            fields = {"check": name, "error": type(error).__name__}
            log.warning("not ready", extra={"fields": fields})
            self._outcomes[name] = (False, self._clock() + _FAILED_SECONDS)
        else:
            self._outcomes[name] = (True, self._clock() + check.seconds)


async def _in_time(check: Check) -> None:
    """Run a check; TimeoutError if it takes longer, or takes long to give up."""
    task = asyncio.ensure_future(check.run())
    try:
        await asyncio.wait([task], timeout=CHECK_SECONDS)
    finally:
        if not task.done():  # The driver of a frozen server waits for seconds to cancel a query.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            task.cancel()
    if not task.done():
        raise TimeoutError
    task.result()


def _library_checks(library: Library) -> dict[str, Check]:
    async def ask_database() -> None:
        await library.store.database.probe()
        await library.store.keys.exist()

    ask_worker = partial(in_process, SMALL_TEXT + 1, int)
    checks = {"database": Check(ask_database), "workers": Check(ask_worker)}
    embedder = library.embedder
    if embedder is not None:  # a remote one costs money, so it is not asked every second

        async def ask_embedder() -> None:
            vectors = await embedder.embed([_READY_TEXT])
            with suppress(StorageError):  # the check of the database says so
                await library.store.vectors(embedder.model).check_model(vectors.shape[1])

        checks["embedder"] = Check(ask_embedder, seconds=30.0, is_required=False)  # words suffice
    return checks


async def preload(library: Library, build_routes: Callable[[], object]) -> None:
    """Load what a first recall would wait for, by recalls from a small database of its own.

    Then open the indexes of the users who were active last.
    """
    embedder = library.embedder
    if not isinstance(embedder, ThreadedEmbedder):  # The client of a server stays in its loop.
        embedder = HashEmbedder()
    await asyncio.to_thread(build_routes)
    await asyncio.to_thread(_load, embedder)
    for user in await library.store.owners.latest_users(_OPENED_USERS):
        with suppress(MemrecallError):  # disabled, or erased since
            await library.search(Scope.of_owner(user), SearchRequest(_READY_TEXT, limit=1))
    gc.freeze()  # What exists now stays: the collector need not look at it again and again.


def _load(embedder: Embedder) -> None:
    import_module("memrecall.model.client")
    extract_keywords("tea 茶")  # reads the Chinese dictionaries
    # Without a temporary folder or an embedder, the first recall takes longer.
    with suppress(OSError, MemrecallError), TemporaryDirectory(prefix="memrecall-") as folder:
        asyncio.run(_recall_sample(embedder, folder))


async def _recall_sample(embedder: Embedder, folder: str) -> None:
    settings = Settings(db=f"{folder}/sample.db", cache_dir=folder)
    async with await Store.open(settings.db, durability="normal") as store:
        library = Library(store, embedder, settings)
        said = [NewMessage(role=Role.USER, content=text) for text in _SAMPLE]
        await library.add_messages(Scope(_SAMPLE_USER), said)
        await library.vectors.settle()
        for text in _SAMPLE:
            await recall(f"{text}?", user_id=_SAMPLE_USER, library=library)
        await library.vectors.close(0.0)


async def find_sample_user(store: Store) -> str | None:
    """Return a user for an example request: one that the newest valid key opens, or any."""
    now = datetime.now(UTC)
    keys = [key for key in (await store.keys.list()).items if key.is_valid(now)]
    keys = [key for key in keys if key.users != frozenset()]  # an operator's key opens no user
    if keys and keys[-1].users:
        return min(keys[-1].users)
    users = (await store.owners.list_users(limit=1)).items
    return str(users[0]["user_id"]) if users else None


@dataclass(slots=True)
class Service:
    """An opened library with its metrics and limits."""

    library: Library
    metrics: Metrics
    limiter: RecallLimiter
    memory: AsyncMemory  # of all users; endpoints bind it to the user of the request
    model_client: Any = None  # None: recalls work without a model
    # Set some seconds earlier: proxies should send their requests to others.
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    # When it is set, recalls and chat turns are cancelled; writes that have started are finished.
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    loading: "asyncio.Task[None] | None" = None  # of what the first recall needs
    evaluation: "asyncio.Task[None] | None" = None  # the last one that the dashboard started
    requests: int = 0  # that have arrived
    renamed: set[tuple[str, str]] = field(default_factory=set)  # users and folders of projects
    readiness: Readiness = field(init=False)

    def __post_init__(self) -> None:
        self.readiness = Readiness(_library_checks(self.library))

    @property
    def is_loading(self) -> bool:
        """True until the first recall takes no longer than later ones."""
        return self.loading is not None and not self.loading.done()

    @property
    def state(self) -> str:
        """Whether requests are answered, as of the last checks and the last write."""
        if self.is_loading or self.draining.is_set() or self.readiness.has_failed:
            return "unavailable"
        return "read-only" if self.library.store.database.write_problem else "ready"

    def measure(self) -> None:
        """Refresh the gauges of the metrics."""
        self.metrics.measure(self.state)

    def recall_slot(self, principal: Principal) -> AbstractAsyncContextManager[None]:
        """Return a slot for one of the recalls that a key may run at once."""
        return self.limiter.slot(principal.key_id)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What an endpoint needs: the service, the principal and the fields of the log line."""

    service: Service
    principal: Principal
    log_fields: dict[str, Any]
    least: SpaceRole | None = None  # that the operation needs in a space; None: none suffices

    @property
    def library(self) -> Library:
        """The service's library."""
        return self.service.library

    async def enter(self, user_id: str) -> Principal:
        """Return the principal, inside the space if the id names one."""
        principal = await self.principal.enter(self.library.store, user_id, self.least)
        if principal.entered is not None:
            self.log_fields["space_role"] = principal.entered.role
        return principal

    async def scope(
        self, user_id: str, session_id: str | None = None, project: str | None = None
    ) -> Scope:
        """Return the scope of a user, or of a space that the principal is a member of."""
        return (await self.enter(user_id)).scope(user_id, session_id, project)

    async def require_member(self, scope: Scope) -> None:
        """Raise if a member has left a space of the scope, or lost the role, during a stream."""
        if scope.space is not None:
            await self.enter(scope.user_id)
        await enter_all(self.library.store, scope)

    async def while_valid(self, events: AsyncIterator[_Event]) -> AsyncGenerator[_Event, None]:
        """Yield the events of a stream; raise once its key has been revoked or has expired."""
        is_first = True  # the key was read for this request
        async for event in events:
            if not is_first:
                await self.principal.require_valid(self.library.store.keys)
            is_first = False
            yield event

    async def readable_scope(self, user_id: str, project: str | None = None) -> Scope:
        """Return the scope of a user; raise NotFound if the user is unknown, unless the key names
        them: then they may store something later.
        """
        scope = await self.scope(user_id, project=project)
        if scope.space is None:
            async with self.tolerate_new_user(scope):
                await self.library.require_user(scope)
        return scope

    @asynccontextmanager
    async def tolerate_new_user(self, scope: Scope) -> AsyncIterator[None]:
        """Ignore NotFound in the block if the key names its users, who may have no data yet."""
        try:
            yield
        except NotFound:
            if self.principal.users is None or scope.space is not None:
                raise

    async def memory(
        self, user_id: str | None = None, agent_id: str | None = None, project: str | None = None
    ) -> AsyncMemory:
        """Return the memory of a user, by default of the key's only user."""
        return self._bind(await self._scope(user_id, agent_id, project))

    async def active_memory(
        self, user_id: str | None = None, agent_id: str | None = None, project: str | None = None
    ) -> AsyncMemory:
        """Return the memory of a user; raise Disabled if the user or the agent is disabled.

        A user with nothing stored has an empty memory: that is how a first conversation starts.
        """
        scope = await self._scope(user_id, agent_id, project)
        if scope.space is None:
            await self.library.store.read_version(scope)
        return self._bind(scope)

    async def writable_memory(
        self, user_id: str | None, agent_id: str | None = None, project: str | None = None
    ) -> AsyncMemory:
        """Return the memory of a user for a request that writes."""
        self.principal.require_write()
        return await self.active_memory(user_id, agent_id, project)

    async def _scope(self, user_id: str | None, agent_id: str | None, project: str | None) -> Scope:
        scope = await self.scope(self.principal.resolve_user(user_id), project=project)
        if agent_id is None:
            return scope
        if scope.agent_id not in (None, agent_id):
            raise invalid_field("agent_id", f"must be {scope.agent_id!r}, the agent of this key")
        return replace(scope, agent_id=agent_id)

    def _bind(self, scope: Scope) -> AsyncMemory:
        return self.service.memory.bind_scope(scope, scope.author or self.principal.actor)

    async def promoting_memory(self, space_id: str) -> AsyncMemory:
        """Return the memory of the principal's user, who may write to a space."""
        self.principal.require_write()
        await self.enter(SPACE_PREFIX + space_id)
        return self._bind(self.principal.member_scope())


async def _request_context(request: Request) -> RequestContext:
    state = request.scope["state"]
    principal = state["principal"].bind(dict(request.scope["headers"]))
    route: Any = request.scope["route"]
    least = ROLE_OF_OPERATION.get(route.operation_id or route.name)
    return RequestContext(state["service"], principal, state["log_fields"], least)


Context = Annotated[RequestContext, Depends(_request_context)]
