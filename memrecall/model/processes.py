"""Worker processes, for functions of text that would hold up the event loop in this one."""

import asyncio
import multiprocessing
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from memrecall.errors import WorkerFailed
from memrecall.workers import DaemonThreadPool

Result = TypeVar("Result")

# Characters up to which reading takes less time than moving it to a thread or process, and from
# which it may take a while.
SMALL_TEXT, LARGE_TEXT = 2_000, 20_000


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
        """Return the result of a call; EOFError if the process ended meanwhile."""
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

    A call that takes too long is ended with its process, which the next call starts anew. Calls
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
        self, function: Callable[..., Result], *args: Any, is_large: bool = False
    ) -> Result:
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
        self, worker: _WorkerProcess, function: Callable[..., Result], args: tuple[Any, ...]
    ) -> Result:
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
        result: Result = outcome
        return result

    def close(self) -> None:
        """End the processes. One that is just starting ends when it finds its pipe closed."""
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=False)


_processes: WorkerProcesses | None = None


@asynccontextmanager
async def worker_processes(
    count: int, modules: Sequence[str], seconds: float = 10.0
) -> AsyncIterator[None]:
    """Let `run_aside` use processes inside the block; with a count of 0, threads."""
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


async def run_aside(function: Callable[..., Result], *args: Any, is_large: bool = False) -> Result:
    """Call a function of a module in a worker process, if there are some.

    WorkerFailed if that takes too long. Without processes, large work is done in a thread.
    """
    if _processes is not None:
        return await _processes.run(function, *args, is_large=is_large)
    return await asyncio.to_thread(function, *args) if is_large else function(*args)


async def run_on_text(length: int, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function of so many characters: at once if they are few, else like `run_aside`."""
    if length <= SMALL_TEXT:
        return function(*args)
    return await run_aside(function, *args, is_large=length > LARGE_TEXT)
