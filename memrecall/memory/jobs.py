"""Work that goes on after an answer was given: its state can be asked for."""

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any

from memrecall.errors import NotFound

_KEPT = 1_000


class Jobs:
    """The background work of one `AsyncMemory`; the latest are remembered after their end."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[dict[str, Any]]] = {}

    def start(self, work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Begin work; tells the job's id and state."""
        job_id = f"job_{secrets.token_hex(8)}"
        self._tasks[job_id] = asyncio.create_task(work)
        for old in list(self._tasks)[:-_KEPT]:
            if self._tasks[old].done():
                del self._tasks[old]
        return self.state(job_id)

    def state(self, job_id: str) -> dict[str, Any]:
        """Whether it is running, done or failed, with the result or the error."""
        task = self._tasks.get(job_id)
        if task is None:
            raise NotFound(f"there is no job {job_id!r}", hint="Jobs end with their process")
        told: dict[str, Any] = {"job_id": job_id}
        if not task.done():
            return {**told, "state": "running"}
        if task.cancelled():
            return {**told, "state": "failed", "error": "cancelled"}
        error = task.exception()
        if error is None:
            return {**told, "state": "done", "result": task.result()}
        return {**told, "state": "failed", "error": f"{type(error).__name__}: {error}"}

    async def wait(self, job_id: str) -> dict[str, Any]:
        """The state at the end of the job."""
        self.state(job_id)
        await asyncio.wait([self._tasks[job_id]])
        return self.state(job_id)

    async def settle(self) -> None:
        """Wait for everything under way."""
        running = [task for task in self._tasks.values() if not task.done()]
        if running:
            await asyncio.wait(running)
