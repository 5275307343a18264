"""An event loop in a thread of its own, so that plain code can use what is async.

A notebook's cell runs inside a loop already, where `asyncio.run` is refused; this works there too.
"""

import asyncio
import concurrent.futures.thread  # its own end is registered here, and so comes after ours
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from memrecall.errors import InvalidArgument

Result = TypeVar("Result")


def before_threads_end(call: Callable[[], object]) -> None:
    """Have something called when the interpreter ends and threads can still be started.

    `atexit` comes too late for that: the pools behind an event loop are closed by then. What is
    registered last is called first, so the pools must have been registered before.
    """
    assert concurrent.futures.thread  # noqa: S101 -- imported for its effect
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with suppress(RuntimeError):  # the interpreter is ending already
            register(call)


class LoopThread:
    """Runs coroutines one call at a time or many at once, from any thread but its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
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
