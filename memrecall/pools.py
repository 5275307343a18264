"""Pools of daemon threads and of worker processes.

The standard executors accept nothing once the main thread has ended, and cannot end a call that
takes too long. A write that has begun must still be completed then; a long text must not keep a
process for ever.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from memrecall.errors import OpenedBeforeFork, WorkerFailed

_Arguments = ParamSpec("_Arguments")
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
        self._seconds = seconds
        self._workers = [_WorkerProcess(context) for _ in range(count)]
        self._free = list(self._workers)
        self._slots = asyncio.Semaphore(count)
        self._large_slots = asyncio.Semaphore(max(1, count // 2))
        self._threads = DaemonThreadPool(count, "memrecall-workers")

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
        try:
            done, _ = await asyncio.wait([call], timeout=self._seconds)
        finally:
            if not call.done():  # too late, or cancelled
                worker.kill()
                await asyncio.wait([call])
                call.exception()  # Marks it as retrieved.
        if not done:
            raise WorkerFailed(f"{function.__name__} took longer than {self._seconds:g} s")
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
