"""How many recalls run at once, for each key; the others wait in a line that has an end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from memrecall.server.errors import Problem, Refused
from memrecall.server.metrics import Metrics

RETRY_SECONDS = 2


@dataclass(slots=True)
class _Line:
    """One key's recalls."""

    places: asyncio.Semaphore
    waiting: int = 0
    running: int = 0


class RecallGate:
    """Lets so many recalls of a key run, so many more wait, and refuses the rest."""

    def __init__(self, metrics: Metrics, *, running: int, waiting: int, patience: float) -> None:
        self._metrics = metrics
        self._running = running
        self._waiting = waiting
        self._patience = patience
        self._lines: dict[str, _Line] = {}

    def __len__(self) -> int:
        """How many recalls run or wait."""
        return sum(line.running + line.waiting for line in self._lines.values())

    @asynccontextmanager
    async def enter(self, key_id: str) -> AsyncIterator[None]:
        """Hold one of the key's places; Refused if the line is full or does not move."""
        line = self._lines.setdefault(key_id, _Line(asyncio.Semaphore(self._running)))
        try:
            await self._wait(line)
            line.running += 1
            try:
                with self._metrics.running.track_inprogress():
                    yield
            finally:
                line.running -= 1
                line.places.release()
        finally:
            if not line.running and not line.waiting:
                self._lines.pop(key_id, None)

    async def _wait(self, line: _Line) -> None:
        if line.places.locked() and line.waiting >= self._waiting:
            raise self._full()
        line.waiting += 1
        try:
            async with asyncio.timeout(self._patience):
                await line.places.acquire()
        except TimeoutError:
            raise self._full() from None
        finally:
            line.waiting -= 1

    def _full(self) -> Refused:
        self._metrics.count_refusal()
        recalls = "1 recall" if self._running == 1 else f"{self._running} recalls"
        message = f"this key has {recalls} under way already; try again"
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return Refused(Problem("RESOURCE_EXHAUSTED", message, headers=headers))
