"""Waiting for a condition, with a limit that only a stuck program reaches."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable

LIMIT = 60.0  # seconds, more than a busy machine needs
# For a whole process: it may load the weights first. Less than the limit of a test.
PROCESS_LIMIT = 280.0
_PAUSE = 0.01


async def wait_until(condition: Callable[[], object | Awaitable[object]]) -> None:
    """Wait until the condition (plain or awaitable) holds; fail after a minute."""
    async with asyncio.timeout(LIMIT):
        while True:
            value = condition()
            if await value if isawaitable(value) else value:
                return
            await asyncio.sleep(_PAUSE)


def block_until(condition: Callable[[], object]) -> None:
    """Like `wait_until`, outside an event loop."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"{condition} did not hold within {LIMIT:.0f} s"
        time.sleep(_PAUSE)
