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
        self._owners: dict[str, str] = {}

    def start(self, work: Coroutine[Any, Any, dict[str, Any]], owner: str) -> dict[str, Any]:
        """Begin work on somebody's data; tells the job's id and state."""
        job_id = f"job_{secrets.token_hex(8)}"
        self._tasks[job_id] = asyncio.create_task(work)
        self._owners[job_id] = owner
        for old in list(self._tasks)[:-_KEPT]:
            if self._tasks[old].done():
                del self._tasks[old], self._owners[old]
        return self.state(job_id)

    def running(self, owner: str) -> int:
        """How many jobs on somebody's data are under way."""
        return sum(
            not task.done() for job_id, task in self._tasks.items() if self._owners[job_id] == owner
        )

    def state(self, job_id: str, owner: str | None = None) -> dict[str, Any]:
        """Whether it is running, done or failed, with the result or the error.

        With an `owner`, the jobs of others are not there.
        """
        task = self._tasks.get(job_id)
        if task is None or owner not in (None, self._owners[job_id]):
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

    async def wait(self, job_id: str, owner: str | None = None) -> dict[str, Any]:
        """The state at the end of the job."""
        self.state(job_id, owner)
        await asyncio.wait([self._tasks[job_id]])
        return self.state(job_id)

    async def forget(self, owner: str) -> None:
        """End with what is under way on somebody's data, and keep no result of it."""
        await self.settle()
        for job_id in [job_id for job_id, of in self._owners.items() if of == owner]:
            del self._tasks[job_id], self._owners[job_id]

    async def settle(self, patience: float | None = None) -> None:
        """Wait for everything under way; what takes longer than `patience` is cancelled."""
        running = [task for task in self._tasks.values() if not task.done()]
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=patience)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
