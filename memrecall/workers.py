"""Threads that serve until their owner ends them, also while the interpreter is ending.

The standard executors take nothing more once the main thread is over. What was begun before, a
write and the vectors that follow it, must still come to its end.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_Job = Callable[[], None]


class Workers(ThreadPoolExecutor):
    """An executor with threads of its own. They are daemons: whoever made it shuts it down.

    Some Pythons start no thread while they end: with `ready`, the first one is there before.
    """

    def __init__(self, most: int, name: str = "memrecall", *, ready: bool = False) -> None:
        super().__init__(max_workers=most, thread_name_prefix=name)
        self._most = most
        self._name = name
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._serving: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._guard = threading.Lock()
        self._over = False
        if ready:
            self._hire()
            self._idle.release()

    def submit(
        self,
        fn: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Future[Result]:
        """Have a function called in one of the threads."""
        future: Future[Result] = Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                _carry_out(future, fn, args, kwargs)

        with self._guard:
            if self._over:
                raise RuntimeError("these workers have gone home")
            if not self._idle.acquire(blocking=False) and len(self._serving) < self._most:
                self._hire()
            self._queue.put(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more and end the threads, after what was begun."""
        del cancel_futures  # nothing waits for long here
        with self._guard:
            self._over = True
            for _ in self._serving:
                self._queue.put(None)
        if wait:
            for thread in self._serving:
                thread.join()

    def _hire(self) -> None:
        name = f"{self._name}-{len(self._serving)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending: those who are here must do
            if not self._serving:
                raise
        else:
            self._serving.append(thread)

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            job()
            del job  # or its results would live until the next one
            self._idle.release()


def _carry_out(future: Future[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        result = fn(*args, **kwargs)
    except BaseException as error:  # the caller's, whatever it is: it is raised there
        future.set_exception(error)
    else:
        future.set_result(result)
