"""`Memory`: the synchronous `AsyncMemory`. Every method waits for the one of the same name."""

import asyncio
import inspect
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from memrecall.errors import CallerError, InvalidArgument
from memrecall.memory.jobs import DEFAULT_TIMEOUT, When
from memrecall.memory.layers import DomainKnowledge, Experience, UserInfo
from memrecall.memory.memory import AsyncMemory
from memrecall.memory.results import Kinds
from memrecall.memory.retention import Policy
from memrecall.scope import SpaceRole
from memrecall.workers import DaemonThreadPool, ProcessOwner

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_THREADS = 8


class _ExitHooks:
    """Finalizers that run when the main thread ends, before the interpreter shuts down.

    `atexit` is too late: by then the interpreter waits for threads, such as a database
    connection's, that were never asked to stop. One thread waits on behalf of all.
    """

    def __init__(self) -> None:
        self._owner = ProcessOwner()
        self._finalizers: list[weakref.finalize[Any, Any]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, finalizer: "weakref.finalize[Any, Any]") -> None:
        """Run a finalizer at exit, unless it has run before."""
        if not self._owner.is_current:  # a forked child has neither the thread nor the memories
            self.__init__()  # type: ignore[misc]
        with self._lock:
            alive = [finalizer for finalizer in self._finalizers if finalizer.alive]
            self._finalizers = [*alive, finalizer]
            if self._thread is None:
                self._thread = threading.Thread(target=self._wait, name="memrecall-exit")
                self._thread.start()

    def _wait(self) -> None:
        threading.main_thread().join()
        for finalizer in self._finalizers:
            finalizer()


_exit_hooks = _ExitHooks()


class LoopThread:
    """A thread with an event loop that runs coroutines for other threads."""

    def __init__(self) -> None:
        self._owner = ProcessOwner()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._pool = DaemonThreadPool(_THREADS, prestart=True)
        self._loop.set_default_executor(self._pool)
        self._thread = threading.Thread(target=self._serve, name="memrecall", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Start a coroutine and return its future; cancelling the future cancels it."""
        try:
            if self._is_closed:
                raise InvalidArgument("this memory is closed", hint="Create another one")
            self._owner.require_current()
            if threading.current_thread() is self._thread:
                raise InvalidArgument(
                    "Memory was called from its own event loop, which would deadlock",
                    hint="Use AsyncMemory in async code",
                )
        except CallerError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a coroutine."""
        future = self.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """Yield the items of an async iterator."""

        async def next_item() -> tuple[bool, Result | None]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        while True:
            has_item, item = self.run(next_item())
            if not has_item:
                return
            yield item  # type: ignore[misc]  # has_item says so

    def stop(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run the last coroutine, stop the loop and join its thread; a forked child has none."""
        if self._owner.is_current and not self._is_closed:
            self.run(last())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._pool.shutdown()
        self._is_closed = True


def _blocking(
    method: Callable[Concatenate[AsyncMemory, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["Memory", Arguments], Result]:
    """Return a method of `Memory` that waits for the one of `AsyncMemory`."""

    def call(self: "Memory", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self._thread.run(method(self._inner, *args, **kwargs))

    update_wrapper(call, method)
    return call


class BlockingView:
    """A part of a memory, such as its short-term memory, whose coroutine methods block."""

    def __init__(self, part: Any, thread: LoopThread) -> None:
        self.__dict__.update(_part=part, _thread=thread)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        if isinstance(value, UserInfo | DomainKnowledge | Experience):
            return BlockingView(value, self._thread)
        if inspect.isasyncgenfunction(value):
            return lambda *args, **kwargs: self._thread.iterate(value(*args, **kwargs))
        if not inspect.iscoroutinefunction(value):
            return value
        return update_wrapper(
            lambda *args, **kwargs: self._thread.run(value(*args, **kwargs)), value
        )

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._part, name, value)

    def __dir__(self) -> Iterable[str]:
        return dir(self._part)


class Memory:
    """Long-term memory for the users of an agent.

    Takes the arguments of `AsyncMemory` and runs it in a thread with an event loop, so that it
    works in a notebook too. `close`, or the end of the program, releases all resources.
    """

    def __init__(self, **options: Any) -> None:
        self._inner = AsyncMemory(**options)
        self._thread = LoopThread()
        self._owner: Memory | None = None
        # Must not refer to self, which would otherwise live until the program ends.
        self._finish = weakref.finalize(self, self._thread.stop, self._inner.close)
        self._finish.atexit = False
        _exit_hooks.add(self._finish)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Memory":
        """Return a memory for a configuration of mem0."""
        return cls(config=config)

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for running jobs, then release all resources."""
        if self._owner is None:
            self._finish()

    def bind(self, **scope: Any) -> "Memory":
        """Return a memory for a narrower scope that shares this one's resources."""
        return self._with(self._inner.bind(**scope))

    def _with(self, inner: AsyncMemory) -> "Memory":
        bound = object.__new__(type(self))
        bound._inner = inner
        bound._thread = self._thread
        bound._owner = self._owner or self  # keeps the owner of the thread alive
        return bound

    @property
    def user_id(self) -> str | None:
        """The bound user."""
        return self._inner.user_id

    @property
    def agent_id(self) -> str | None:
        """The bound agent."""
        return self._inner.agent_id

    @property
    def session_id(self) -> str | None:
        """The bound session."""
        return self._inner.session_id

    @property
    def project(self) -> str | None:
        """The bound project."""
        return self._inner.project

    @property
    def async_memory(self) -> AsyncMemory:
        """The `AsyncMemory` behind this one; its coroutines run by `run` and `wait` only."""
        return self._inner

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine of `async_memory` in this memory's event loop."""
        return self._thread.run(work)

    async def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Like `run`, but without blocking the event loop of the caller."""
        return await asyncio.wrap_future(self._thread.submit(work))

    def space(self, space_id: str) -> Any:
        """Return a space of the bound user, with the same methods; each call checks membership."""
        return BlockingView(self._inner.space(space_id), self._thread)

    def enter(self, space_id: str, least: SpaceRole = SpaceRole.READER) -> "Memory":
        """Return a memory bound to a space, for one request; see `space` for longer."""
        return self._with(self._thread.run(self._inner.enter(space_id, least)))

    def running_jobs(self, user_id: str | None = None) -> int:
        """Return how many jobs of a user are running."""
        return self._inner.running_jobs(user_id)

    def register(
        self,
        name: str,
        function: Callable[[list[dict[str, Any]]], Any],
        *,
        when: When = "demand",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Register a function that `process` runs by name, or every `add` (`when="add"`)."""
        self._inner.register(name, function, when=when, timeout=timeout)

    def schedule_sweeps(
        self, every_seconds: float, policy: Policy | None = None, **options: Any
    ) -> None:
        """Sweep at an interval while this memory is open."""
        self._thread.run(self._inner.schedule_sweeps(every_seconds, policy, **options))

    def short_term(self, *args: Any, **options: Any) -> Any:
        """Return a session's short-term memory; from now on `add` to the session fills it."""
        part = self._thread.run(self._inner.short_term(*args, **options))
        return BlockingView(part, self._thread)

    def long_term(self, user_id: str | None = None, agent_id: str | None = None) -> Any:
        """Return the long-term memory: the user's profile, the agent's knowledge, experience."""
        part = self._thread.run(self._inner.long_term(user_id, agent_id))
        return BlockingView(part, self._thread)

    def export(
        self, user_id: str | None = None, project: str | None = None, *, kinds: Kinds = "all"
    ) -> Iterator[str]:
        """Yield all data of a user, or of a project, as JSON lines that `import_` accepts."""
        return self._thread.iterate(self._inner.export(user_id, project, kinds=kinds))

    def import_(
        self, lines: Iterable[str | bytes], user_id: str | None = None, *, invite: bool = False
    ) -> dict[str, int]:
        """Import the lines of `export`, all or none; return the counts by table."""
        return self._thread.run(self._inner.import_(list(lines), user_id, invite=invite))

    add = write = _blocking(AsyncMemory.add)
    search = retrieve = _blocking(AsyncMemory.search)
    delete = forget = _blocking(AsyncMemory.delete)
    get = _blocking(AsyncMemory.get)
    update = _blocking(AsyncMemory.update)
    get_all = _blocking(AsyncMemory.get_all)
    history = _blocking(AsyncMemory.history)
    undo = _blocking(AsyncMemory.undo)
    purge = _blocking(AsyncMemory.purge)
    delete_message = _blocking(AsyncMemory.delete_message)
    delete_all = _blocking(AsyncMemory.delete_all)
    process = _blocking(AsyncMemory.process)
    job = _blocking(AsyncMemory.job)
    jobs = _blocking(AsyncMemory.jobs)
    sweep = _blocking(AsyncMemory.sweep)
    erase = _blocking(AsyncMemory.erase)
    erase_project = _blocking(AsyncMemory.erase_project)
    reset = _blocking(AsyncMemory.reset)
    extract = _blocking(AsyncMemory.extract)
    extract_stored = _blocking(AsyncMemory.extract_stored)
    extractions = _blocking(AsyncMemory.extractions)
    undo_extraction = _blocking(AsyncMemory.undo_extraction)
    graph = _blocking(AsyncMemory.graph)
    recall = _blocking(AsyncMemory.recall)
    summarize = _blocking(AsyncMemory.summarize)
    state = _blocking(AsyncMemory.state)
    checkpoint = _blocking(AsyncMemory.checkpoint)
    restore = _blocking(AsyncMemory.restore)
    end_session = _blocking(AsyncMemory.end_session)
    create_space = _blocking(AsyncMemory.create_space)
    spaces = _blocking(AsyncMemory.spaces)
    invitations = _blocking(AsyncMemory.invitations)
    accept_invitation = _blocking(AsyncMemory.accept_invitation)
    decline_invitation = _blocking(AsyncMemory.decline_invitation)
    space_info = _blocking(AsyncMemory.space_info)
    members = grants = _blocking(AsyncMemory.members)
    set_member = _blocking(AsyncMemory.set_member)
    remove_member = _blocking(AsyncMemory.remove_member)
    leave = _blocking(AsyncMemory.leave)
    audit = _blocking(AsyncMemory.audit)
    delete_space = _blocking(AsyncMemory.delete_space)
    promote = _blocking(AsyncMemory.promote)
    demote = _blocking(AsyncMemory.demote)
    who_can_see = _blocking(AsyncMemory.who_can_see)
    why_seen = _blocking(AsyncMemory.why_seen)
