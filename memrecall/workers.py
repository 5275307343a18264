"""Work that must finish: daemon threads, and tasks shielded from cancellation.

The standard executors accept nothing once the main thread has ended. A write that has begun, and
the vectors that follow it, must still be completed then.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_Job = Callable[[], None]


async def run_to_completion(work: Coroutine[Any, Any, Result]) -> Result:
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
        if not task.cancelled():
            task.exception()  # Marks it as retrieved: no caller is left to receive it.
        raise


class DaemonThreadPool(ThreadPoolExecutor):
    """An executor of daemon threads, which its creator has to shut down.

    Some Python versions start no thread while the interpreter shuts down: `prestart` starts the
    first one at once.
    """

    def __init__(self, size: int, name: str = "memrecall", *, prestart: bool = False) -> None:
        super().__init__(max_workers=size, thread_name_prefix=name)
        self._size = size
        self._name = name
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._pool: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._guard = threading.Lock()
        self._closed = False
        if prestart:
            self._start_thread()
            self._idle.release()

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
