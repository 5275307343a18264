"""The rule for where work runs.

The event loop awaits; threads read the database and rank (`in_thread`); processes read long texts
(`in_process`). What has begun to change something ends, whatever becomes of its caller
(`run_to_completion`), and calls that wait at the same time may share their work (`CallBatcher`).

The pools are own classes: the standard executors accept nothing once the main thread has ended,
when a write that has begun must still be completed, and cannot end a call that takes too long.
"""

import asyncio
import contextvars
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from memrecall.errors import OpenedBeforeFork, WorkerFailed
from memrecall.timing import seconds_left

_Arguments = ParamSpec("_Arguments")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Job = Callable[[], None]


class ProcessOwner:
    """The process that made an object with threads, connections or locks."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_current(self) -> bool:
        """True unless this is a forked child of that process."""
        return os.getpid() == self._pid

    def require_current(self) -> None:
        """Raise OpenedBeforeFork in a forked child, which has no threads of its parent."""
        if not self.is_current:
            raise OpenedBeforeFork(
                "this memory was opened before a fork and belongs to the parent process",
                hint="Open it after the fork, in each worker process",
            )


class DaemonThreadPool(ThreadPoolExecutor):
    """An executor of daemon threads, which its creator has to shut down.

    Some Python versions start no thread while the interpreter shuts down: `prestart` starts the
    first one at once.
    """

    def __init__(self, size: int, name: str = "memrecall", *, prestart: bool = False) -> None:
        super().__init__(max_workers=size, thread_name_prefix=name)
        self._owner = ProcessOwner()
        self._size = size
        self._name = name
        self._closed = False
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._pool: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._guard = threading.Lock()
        if prestart:
            self._start_thread()
            self._idle.release()

    def submit(
        self,
        fn: Callable[_Arguments, _Result],
        /,
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> Future[_Result]:
        """Call a function in one of the threads and return a future of its result."""
        self._owner.require_current()
        future: Future[_Result] = Future()

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


def _serve_calls(connection: Connection) -> None:
    """Answer calls until the other end is closed, by the parent or by its death."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides when to stop.
    with suppress(EOFError, OSError):
        while True:
            function, args = connection.recv()
            try:
                outcome = function(*args)
            except Exception as error:  # raised again by the caller
                outcome = error
            connection.send(outcome)


class _WorkerProcess:
    """One process that answers calls one after the other; started at the first one."""

    def __init__(self, context: BaseContext) -> None:
        self._context: Any = context
        self._process: Any = None
        self._connection: Connection | None = None
        self._is_killed = False

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return the result of a call; EOFError if the process ends before."""
        if self._connection is None:
            self._connection, there = self._context.Pipe()
            self._process = self._context.Process(
                target=_serve_calls, args=(there,), name="memrecall-worker", daemon=True
            )
            self._process.start()
            there.close()
            if self._is_killed:  # while it was starting
                self._process.kill()
        try:
            self._connection.send((function, args))
            return self._connection.recv()
        except (EOFError, OSError) as error:
            self.end()
            raise EOFError from error

    def kill(self) -> None:
        """End the process at once; a call that waits for it fails."""
        self._is_killed = True
        if self._process is not None and self._process.pid is not None:
            self._process.kill()

    def end(self) -> None:
        """Release a process; the next call starts another one."""
        if self._connection is not None:
            self._connection.close()
            self._process.join()
            self._process = self._connection = None
            self._is_killed = False


class WorkerProcesses:
    """A few processes that are kept ready.

    A call that takes too long is ended with its process, and the next call starts another. Calls
    with large inputs never take all processes.
    """

    def __init__(self, count: int, modules: Sequence[str], seconds: float) -> None:
        has_server = "forkserver" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if has_server else "spawn")
        # Imported once by the server that the processes are forked from.
        context.set_forkserver_preload(list(modules))
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._workers = [_WorkerProcess(context) for _ in range(count)]
        self._free = list(self._workers)
        self._slots = asyncio.Semaphore(count)
        self._large_slots = asyncio.Semaphore(max(1, count // 2))
        self._threads = DaemonThreadPool(count, "memrecall-workers")

    def belong_here(self) -> bool:
        """Return whether this is their event loop: in another one, calls could not wait for one."""
        return asyncio.get_running_loop() is self._loop

    async def warm_up(self) -> None:
        """Start all processes; calls wait for one that has started.

        A call that took a process which is still starting would end it at its deadline.
        """
        # The next call shows an error.
        await asyncio.gather(*(self._start() for _ in self._workers), return_exceptions=True)

    async def _start(self) -> None:
        async with self._slots:
            worker = self._free.pop()
            try:
                await asyncio.wrap_future(self._threads.submit(worker.call, int, ()))
            finally:
                self._free.append(worker)

    async def run(
        self, function: Callable[..., _Result], *args: Any, is_large: bool = False
    ) -> _Result:
        """Return the result of a function of a module; WorkerFailed if it takes too long."""
        async with self._large_slots if is_large else nullcontext(), self._slots:
            worker = self._free.pop()
            try:
                for _ in range(2):  # A process may have died before this call.
                    with suppress(EOFError):
                        return await self._call(worker, function, args)
            finally:
                self._free.append(worker)
        raise WorkerFailed(f"{function.__name__} ended its worker process")

    async def _call(
        self, worker: _WorkerProcess, function: Callable[..., _Result], args: tuple[Any, ...]
    ) -> _Result:
        call = asyncio.wrap_future(self._threads.submit(worker.call, function, args))
        call.add_done_callback(ignore_outcome)  # The caller may be gone when the process ends.
        seconds = min(self._seconds, seconds_left(self._seconds))
        try:
            done, _ = await asyncio.wait([call], timeout=seconds)
        finally:
            if not call.done():  # too late, or cancelled
                worker.kill()
                await asyncio.wait([call])
        if not done:
            raise WorkerFailed(f"{function.__name__} took longer than {seconds:.3g} s")
        outcome = call.result()
        if isinstance(outcome, Exception):
            raise outcome
        result: _Result = outcome
        return result

    def close(self) -> None:
        """End the processes. One that is just starting ends when it finds its pipe closed."""
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=False)


# Characters up to which any text is read in a few milliseconds, which the event loop can spare, and
# from which it may take a while.
SMALL_TEXT, LARGE_TEXT = 500, 20_000


async def in_thread(function: Callable[..., _Result], *args: Any) -> _Result:
    """Call a function in a thread and wait for its end, even if the caller is cancelled."""
    call = partial(contextvars.copy_context().run, function, *args)
    # Not `asyncio.to_thread`: its task doubles the cost of a short call.
    return await run_to_completion(asyncio.get_running_loop().run_in_executor(None, call))


async def in_process(length: int, function: Callable[..., _Result], *args: Any) -> _Result:
    """Call a module's function of a text: at once for a short text, else in a worker process.

    `length` is in characters. WorkerFailed if the call takes too long. Outside of
    `worker_processes` and its event loop, long texts are read in a thread.
    """
    if length <= SMALL_TEXT:
        return function(*args)
    if _processes is None or not _processes.belong_here():
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
