"""Work that goes on after an answer was given: its state can be asked for."""

import asyncio
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from memrecall.errors import InvalidArgument, MemrecallError, NotFound

log = logging.getLogger(__name__)


class Schedule:
    """Repeats a piece of work until it is stopped. A turn that fails is logged; the next comes.

    The work is given an event that says when it should come to its end.
    """

    def __init__(
        self, name: str, every: float, work: Callable[[asyncio.Event], Awaitable[object]]
    ) -> None:
        self._name = name
        self._every = every
        self._work = work
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return not self._task.done()

    async def stop(self) -> None:
        """Stop it; what has begun comes to its end first."""
        self._stopping.set()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._every)
                return
            try:
                await self._work(self._stopping)
            except MemrecallError as error:
                log.warning("%s did not succeed: %s", self._name, error)


When = Literal["add", "demand"]

DEFAULT_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Process:
    """A registered function. It takes a list of items in the shape of `get_all`."""

    name: str
    function: Callable[[list[dict[str, Any]]], Any]
    when: When
    timeout: float


class Processes:
    """The functions that an application has registered, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Process] = {}

    def register(
        self,
        name: str,
        function: Callable[[list[dict[str, Any]]], Any],
        *,
        when: When = "demand",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Take a function, sync or async; a name can be given once."""
        if not name or not callable(function):
            raise InvalidArgument("a process needs a name and a function")
        if when not in ("add", "demand"):
            raise InvalidArgument(f"when {when!r} is not known", hint="Use add or demand")
        if not timeout > 0:
            raise InvalidArgument(f"timeout {timeout} is not a time", hint="Give seconds")
        if name in self._known:
            raise InvalidArgument(f"a process {name!r} is registered already")
        self._known[name] = Process(name, function, when, timeout)

    def on_add(self) -> list[Process]:
        """Those that run on every add."""
        return [process for process in self._known.values() if process.when == "add"]

    def find(self, name: str) -> Process:
        """The process of that name."""
        if name not in self._known:
            known = ", ".join(sorted(self._known)) or "none"
            raise NotFound(f"there is no process {name!r}", hint=f"Registered: {known}")
        return self._known[name]


async def run_processes(
    processes: Sequence[Process], items: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run them one after another; each tells its result or its error."""
    return [await _run(process, items) for process in processes]


async def _run(process: Process, items: list[dict[str, Any]]) -> dict[str, Any]:
    try:
        async with asyncio.timeout(process.timeout):
            if inspect.iscoroutinefunction(process.function):
                result = await process.function(items)
            else:
                result = await asyncio.to_thread(process.function, items)
                if inspect.isawaitable(result):
                    result = await result
    except TimeoutError:
        return {"name": process.name, "ok": False, "error": f"no end after {process.timeout:g} s"}
    # The function is the application's: whatever it raises is reported, not ours to judge.
    except Exception as error:
        return {"name": process.name, "ok": False, "error": f"{type(error).__name__}: {error}"}
    return {"name": process.name, "ok": True, "result": result}


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
