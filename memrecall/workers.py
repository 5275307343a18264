"""The rule for where work runs.

The event loop awaits; threads read the database and rank (`in_thread`); processes read long texts
(`in_process`). What has begun to change something ends, whatever becomes of its caller
(`run_to_completion`), and calls that wait at the same time may share their work (`CallBatcher`).
"""

import asyncio
import contextvars
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from memrecall.pools import WorkerProcesses

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Characters up to which reading a text takes less time than moving it to a process, and from which
# it may take a while.
SMALL_TEXT, LARGE_TEXT = 2_000, 20_000


async def in_thread(function: Callable[..., _Result], *args: Any) -> _Result:
    """Call a function in a thread and wait for its end, even if the caller is cancelled."""
    call = partial(contextvars.copy_context().run, function, *args)
    # Not `asyncio.to_thread`: its task doubles the cost of a short call.
    return await run_to_completion(asyncio.get_running_loop().run_in_executor(None, call))


async def in_process(length: int, function: Callable[..., _Result], *args: Any) -> _Result:
    """Call a module's function of a text: at once for a short text, else in a worker process.

    `length` is in characters. WorkerFailed if the call takes too long. Outside of
    `worker_processes`, long texts are read in a thread.
    """
    if length <= SMALL_TEXT:
        return function(*args)
    if _processes is None:
        return await in_thread(function, *args)
    return await _processes.run(function, *args, is_large=length > LARGE_TEXT)


_processes: WorkerProcesses | None = None


@asynccontextmanager
async def worker_processes(
    count: int, modules: Sequence[str], seconds: float = 10.0
) -> AsyncIterator[None]:
    """Let `in_process` use processes inside the block; with a count of 0, threads."""
    global _processes  # one pool for all clients of this process
    if not count:
        yield
        return
    _processes = WorkerProcesses(count, modules, seconds)
    warm_up = asyncio.create_task(_processes.warm_up())  # It takes seconds; nobody has to wait.
    try:
        yield
    finally:
        warm_up.cancel()
        _processes.close()
        _processes = None


async def run_to_completion(
    work: "Coroutine[Any, Any, _Result] | asyncio.Future[_Result]",
) -> _Result:
    """Await `work` to its end, even if the caller is cancelled.

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


class _Queue(Generic[_Item, _Result]):
    """The calls that wait in one event loop, and the tasks that do their work."""

    def __init__(self) -> None:
        self.waiting: list[tuple[_Item, asyncio.Future[_Result]]] = []
        self.tasks: set[asyncio.Task[None]] = set()


class CallBatcher(Generic[_Item, _Result]):
    """Does the work of all calls that wait at once, while later ones gather.

    The work returns a result or an error for each item, in their order. It goes on if a caller is
    cancelled, because others may wait for the same work.
    """

    def __init__(
        self,
        work: Callable[[list[_Item]], Awaitable[Sequence[_Result | BaseException]]],
        most: int,
        groups: int = 1,
    ) -> None:
        """Do up to `groups` groups at the same time, each of at most `most` items."""
        self._work = work
        self._most = most
        self._groups = groups
        # By event loop: a future can be awaited in its own alone, and tasks end with it.
        self._queues: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, _Queue[_Item, _Result]
        ] = weakref.WeakKeyDictionary()

    async def __call__(self, item: _Item) -> _Result:
        """Return the result for an item."""
        loop = asyncio.get_running_loop()
        queue = self._queues.setdefault(loop, _Queue())
        future: asyncio.Future[_Result] = loop.create_future()
        queue.waiting.append((item, future))
        queue.tasks = {task for task in queue.tasks if not task.done()}
        if len(queue.tasks) < self._groups:
            queue.tasks.add(loop.create_task(self._run(queue)))
        return await future

    async def _run(self, queue: _Queue[_Item, _Result]) -> None:
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
