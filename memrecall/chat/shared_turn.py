"""Running turns that several callers follow, because the same message was sent more than once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from weakref import WeakKeyDictionary

from memrecall.chat.events import ChatEvent

Events = AsyncGenerator[ChatEvent, None]
TurnKey = tuple[object, ...]


class SharedTurn:
    """A turn that runs in a task of its own; each caller gets all its events.

    It runs as long as one caller follows it, whoever started it.
    """

    def __init__(self, events: Events) -> None:
        self.followers = 0
        self.is_over = False
        self._events: list[ChatEvent] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run(events))

    async def follow(self) -> Events:
        """Yield the events from the first one on; raise the error of a failed turn."""
        position = 0
        while True:
            while position < len(self._events):
                yield self._events[position]
                position += 1
            if self.is_over:
                await self._task
                return
            await self._news.wait()

    async def stop(self) -> None:
        """Cancel the turn unless it is over, and wait for its end."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, events: Events) -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    self._events.append(event)
                    self._announce()
        finally:
            self.is_over = True
            self._announce()

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


# By event loop: turns of another thread, or of a parent process, cannot be followed.
_RUNNING: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[TurnKey, SharedTurn]]
_RUNNING = WeakKeyDictionary()


async def join_turn(key: TurnKey, play: Callable[[], Events]) -> Events:
    """Yield the events of the running turn with a key; start it with `play` if there is none."""
    running = _RUNNING.setdefault(asyncio.get_running_loop(), {})
    turn = running.get(key)
    if turn is None or turn.is_over:
        turn = running[key] = SharedTurn(play())
    turn.followers += 1
    try:
        async with aclosing(turn.follow()) as events:
            async for event in events:
                yield event
    finally:
        turn.followers -= 1
        if not turn.followers:
            if running.get(key) is turn:
                del running[key]  # before it stops, so that nobody joins a cancelled turn
            await turn.stop()
