"""Work that must finish or survive: daemon threads, shielded tasks, groups of calls, and forks.

The standard executors accept nothing once the main thread has ended. A write that has begun, and
the vectors that follow it, must still be completed then. A forked child has none of its parent's
threads, and must not use its connections and locks.
"""

import asyncio
import contextvars
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Item = TypeVar("Item")

_Job = Callable[[], None]


class ForkAware:
    """A base of objects with threads, connections or locks; `watch_forks` registers them."""

    __slots__ = ("__weakref__",)

    def watch_forks(self) -> None:
        """Call the methods below when this process forks, as long as the object lives."""
        with _forks.lock:
            _forks.watched.add(self)

    def before_fork(self) -> None:
        """Prepare in the parent; no other thread can be relied on to go on."""

    def after_fork_in_parent(self) -> None:
        """Go on in the parent."""

    def after_fork_in_child(self) -> None:
        """Replace what belongs to the parent."""


class _Forks:
    """The objects that forks concern; the lock keeps their number constant during one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.watched: weakref.WeakSet[ForkAware] = weakref.WeakSet()
        # Finalizers of what belongs to the parent would close its connections.
        self.abandoned: list[object] = []
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
            os.register_at_fork(
                before=self._before,
                after_in_parent=self._after_in_parent,
                after_in_child=self._after_in_child,
            )

    def _before(self) -> None:
        self.lock.acquire()
        for item in list(self.watched):
            item.before_fork()

    def _after_in_parent(self) -> None:
        for item in list(self.watched):
            item.after_fork_in_parent()
        self.lock.release()

    def _after_in_child(self) -> None:
        self.lock = threading.RLock()
        for item in list(self.watched):
            item.after_fork_in_child()


_forks = _Forks()


def abandon(*items: object) -> None:
    """Keep what belongs to the parent process from being finalized in this one."""
    _forks.abandoned.extend(items)


class ForkGate:
    """Counts the uses of something that must be idle when the process forks."""

    def __init__(self) -> None:
        self._idle = threading.Condition()
        self._uses = 0

    def __enter__(self) -> None:
        with self._idle:
            self._uses += 1

    def __exit__(self, *_: object) -> None:
        with self._idle:
            self._uses -= 1
            if not self._uses:
                self._idle.notify_all()

    @property
    def is_idle(self) -> bool:
        """True if there is no use at the moment."""
        return not self._uses

    def close(self, patience: float) -> bool:
        """Wait for all uses to end and keep out new ones; False if it took too long."""
        self._idle.acquire()
        return self._idle.wait_for(lambda: not self._uses, patience)

    def open(self) -> None:
        """Let uses begin again."""
        self._idle.release()


async def run_beside(is_long: bool, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function, in a thread if it would hold up the event loop."""
    return await asyncio.to_thread(function, *args) if is_long else function(*args)


class Turns:
    """Lets one call at a time hold up the event loop.

    Calls of many requests that are ready at the same moment would otherwise run one after another,
    and the short steps of all other requests wait for them together.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function when it is its turn."""
        await self._lock.acquire()
        try:
            return function(*args)
        finally:
            # Not at once: what else is ready comes before the next call.
            asyncio.get_running_loop().call_soon(self._lock.release)


def start_in_thread(function: Callable[..., Result], *args: Any) -> "asyncio.Future[Result]":
    """Call a function in a thread, like `asyncio.to_thread` but at once and without a task.

    To be passed to `run_to_completion`: a task of its own would double the cost of a short call.
    """
    call = partial(contextvars.copy_context().run, function, *args)
    return asyncio.get_running_loop().run_in_executor(None, call)


async def run_to_completion(
    work: "Coroutine[Any, Any, Result] | asyncio.Future[Result]",
) -> Result:
    """Await `work` to its end, even if the caller is cancelled meanwhile.

    A cancelled caller sees the cancellation only when the outcome is settled.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):  # a second cancellation waits as well
                await asyncio.wait([task])
        ignore_outcome(task)  # No caller is left to receive it.
        raise


def ignore_outcome(task: "asyncio.Future[Any]") -> None:
    """Mark the exception of a finished task as retrieved, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


class _Queue(Generic[Item, Result]):
    """The calls that wait in one event loop, and the tasks that do their work."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self.tasks: set[asyncio.Task[None]] = set()


class Grouped(Generic[Item, Result]):
    """Does the work of all calls that wait at once, while later ones gather.

    The work returns a result or an error for each item, in their order. It goes on if a caller is
    cancelled, because others may wait for the same work.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Awaitable[Sequence[Result | BaseException]]],
        most: int,
        groups: int = 1,
    ) -> None:
        """Do up to `groups` groups of at most so many items at the same time."""
        self._work = work
        self._most = most
        self._groups = groups
        # By event loop: a future can be awaited in its own alone, and tasks end with it.
        self._queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue[Item, Result]] = (
            weakref.WeakKeyDictionary()
        )

    async def __call__(self, item: Item) -> Result:
        """Return the result for an item."""
        loop = asyncio.get_running_loop()
        queue = self._queues.setdefault(loop, _Queue())
        future: asyncio.Future[Result] = loop.create_future()
        queue.waiting.append((item, future))
        queue.tasks = {task for task in queue.tasks if not task.done()}
        if len(queue.tasks) < self._groups:
            queue.tasks.add(loop.create_task(self._run(queue)))
        return await future

    async def _run(self, queue: _Queue[Item, Result]) -> None:
        while queue.waiting:
            calls, queue.waiting = queue.waiting[: self._most], queue.waiting[self._most :]
            try:
                outcomes = await self._work([item for item, _ in calls])
            except Exception as error:  # raised again by every caller
                outcomes = [error] * len(calls)
            for (_, future), outcome in zip(calls, outcomes, strict=True):
                if future.done():  # Its caller was cancelled.
                    continue
                if isinstance(outcome, BaseException):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)


class DaemonThreadPool(ThreadPoolExecutor, ForkAware):
    """An executor of daemon threads, which its creator has to shut down.

    In a forked child it starts new threads; what was queued is done by the parent.

    Some Python versions start no thread while the interpreter shuts down: `prestart` starts the
    first one at once.
    """

    def __init__(self, size: int, name: str = "memrecall", *, prestart: bool = False) -> None:
        super().__init__(max_workers=size, thread_name_prefix=name)
        self._size = size
        self._name = name
        self._closed = False
        self.after_fork_in_child()
        self.watch_forks()
        if prestart:
            self._start_thread()
            self._idle.release()

    def after_fork_in_child(self) -> None:
        """Begin without threads and without work."""
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._pool: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._guard = threading.Lock()

    def submit(
        self,
        fn: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Future[Result]:
        """Call a function in one of the threads and return a future of its result."""
        future: Future[Result] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # Raised again where the future is awaited.
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._guard:
            if self._closed:
                raise RuntimeError("the thread pool is shut down")
            if not self._idle.acquire(blocking=False) and len(self._pool) < self._size:
                self._start_thread()
            self._queue.put(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work and end the threads after the work that is queued."""
        del cancel_futures  # Queued work is always finished.
        with self._guard:
            self._closed = True
            for _ in self._pool:
                self._queue.put(None)
        if wait:
            for thread in self._pool:
                thread.join()

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._pool)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # The interpreter is shutting down: the existing threads go on.
            if not self._pool:
                raise
        else:
            self._pool.append(thread)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            job()
            del job  # Its results would otherwise live until the next job.
            self._idle.release()
