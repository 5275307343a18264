"""An event loop in a thread of its own, so that plain code can use what is async.

A notebook's cell runs inside a loop already, where `asyncio.run` is refused; this works there too.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from memrecall.errors import InvalidArgument
from memrecall.workers import Workers

Result = TypeVar("Result")

_THREADS = 8


class _AtTheEnd:
    """Calls back when the main thread is over, before the interpreter takes anything down.

    `atexit` comes too late: by then the interpreter waits for threads that nobody has told to end,
    such as those behind a database's connections. One thread waits for all.
    """

    def __init__(self) -> None:
        self._calls: list[weakref.finalize[Any, Any]] = []
        self._guard = threading.Lock()
        self._waiting: threading.Thread | None = None
        self._process = 0

    def call(self, finish: "weakref.finalize[Any, Any]") -> None:
        """Have a finalizer called at the end, unless it was called before."""
        with self._guard:
            self._calls = [*(call for call in self._calls if call.alive), finish]
            if self._waiting is None or self._process != os.getpid():  # a fork has no such thread
                self._process = os.getpid()
                self._waiting = threading.Thread(target=self._wait, name="memrecall-end")
                self._waiting.start()

    def _wait(self) -> None:
        threading.main_thread().join()
        for finish in self._calls:
            finish()


at_the_end = _AtTheEnd()


class LoopThread:
    """Runs coroutines one call at a time or many at once, from any thread but its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._workers = Workers(_THREADS, ready=True)
        self._loop.set_default_executor(self._workers)
        self._thread = threading.Thread(target=self._serve, name="memrecall", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine."""
        if self._loop.is_closed():
            work.close()
            raise InvalidArgument("this memory is closed", hint="Make another one")
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidArgument(
                "Memory is called from its own event loop, which would wait for itself",
                hint="Use AsyncMemory in async code",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """The items of an async iterator, one by one."""

        async def following() -> tuple[bool, Result | None]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        while True:
            more, item = self.run(following())
            if not more:
                return
            yield item  # type: ignore[misc]  # there was one

    def stop(self) -> None:
        """End the loop and its thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._workers.shutdown()
