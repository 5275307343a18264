"""Concurrency limits: how many recalls of a key run at once, and how many may wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from memrecall.server.errors import Problem, RequestError
from memrecall.server.metrics import Metrics

RETRY_SECONDS = 2


@dataclass(slots=True)
class _Queue:
    """The recalls of one key."""

    slots: asyncio.Semaphore
    waiting: int = 0
    running: int = 0


@dataclass(slots=True)
class RecallLimiter:
    """Bounds the running and the waiting recalls of each key."""

    metrics: Metrics
    max_running: int
    max_waiting: int
    wait_seconds: float
    _queues: dict[str, _Queue] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of recalls that run or wait."""
        return sum(queue.running + queue.waiting for queue in self._queues.values())

    @asynccontextmanager
    async def slot(self, key_id: str) -> AsyncIterator[None]:
        """Hold one slot of a key; raise RequestError if the queue is full or too slow."""
        queue = self._queues.setdefault(key_id, _Queue(asyncio.Semaphore(self.max_running)))
        try:
            await self._acquire(queue)
            queue.running += 1
            try:
                with self.metrics.running.track_inprogress():
                    yield
            finally:
                queue.running -= 1
                queue.slots.release()
        finally:
            if not queue.running and not queue.waiting:
                self._queues.pop(key_id, None)

    async def _acquire(self, queue: _Queue) -> None:
        if queue.slots.locked() and queue.waiting >= self.max_waiting:
            raise self._exhausted()
        queue.waiting += 1
        try:
            async with asyncio.timeout(self.wait_seconds):
                await queue.slots.acquire()
        except TimeoutError:
            raise self._exhausted() from None
        finally:
            queue.waiting -= 1

    def _exhausted(self) -> RequestError:
        self.metrics.refused.inc()
        recalls = "1 recall" if self.max_running == 1 else f"{self.max_running} recalls"
        message = f"this key already has {recalls} running; try again"
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return RequestError(Problem("RESOURCE_EXHAUSTED", message, headers=headers))
