"""Background jobs, scheduled work, and the functions that applications register."""

import asyncio
import inspect
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from memrecall.errors import Conflict, InvalidArgument, MemrecallError, NotFound, describe_for_log
from memrecall.scope import Scope
from memrecall.store import JOB_PREFIX, Checkpoint, SessionState, Store
from memrecall.store.sessions import find_open_jobs
from memrecall.timing import current_deadline, in_background

_log = logging.getLogger(__name__)


class Schedule:
    """Work repeated at an interval until it is stopped; failures are logged.

    The work receives an event that is set when it should finish early.
    """

    def __init__(
        self, name: str, every: float, work: Callable[[asyncio.Event], Awaitable[object]]
    ) -> None:
        self._name = name
        self._every = every
        self._work = work
        self._stopping = asyncio.Event()
        self._task = in_background(self._run())

    @property
    def running(self) -> bool:
        """True until it is stopped."""
        return not self._task.done()

    async def stop(self) -> None:
        """Stop after the current run has finished."""
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
                _log.warning("%s failed: %s", self._name, describe_for_log(error))


When = Literal["add", "demand"]

DEFAULT_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Process:
    """A registered function of a list of items in the shape of `get_all`."""

    name: str
    function: Callable[[list[dict[str, Any]]], Any]
    when: When
    timeout: float


class Processes:
    """The registered functions, by name."""

    def __init__(self) -> None:
        self._processes: dict[str, Process] = {}

    def register(
        self,
        name: str,
        function: Callable[[list[dict[str, Any]]], Any],
        *,
        when: When = "demand",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Register a function, sync or async, under a name that is not yet used."""
        if not name or not callable(function):
            raise InvalidArgument(
                "a process needs a name and a function", hint="Call register(name, function)"
            )
        if when not in ("add", "demand"):
            raise InvalidArgument(f"when {when!r} is not known", hint="Use add or demand")
        if not timeout > 0:
            raise InvalidArgument(f"timeout {timeout} is not positive", hint="Pass seconds")
        if name in self._processes:
            raise InvalidArgument(
                f"a process {name!r} is already registered", hint="Choose another name"
            )
        self._processes[name] = Process(name, function, when, timeout)

    def on_add(self) -> list[Process]:
        """Return the functions that run on every `add`."""
        return [process for process in self._processes.values() if process.when == "add"]

    def find(self, name: str) -> Process:
        """Return the function of that name; NotFound if there is none."""
        if name not in self._processes:
            names = ", ".join(sorted(self._processes)) or "none"
            raise NotFound(f"there is no process {name!r}", hint=f"Registered: {names}")
        return self._processes[name]


async def run_process(process: Process, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Run a function; return its result or error."""
    try:
        async with asyncio.timeout(process.timeout):
            if inspect.iscoroutinefunction(process.function):
                result = await process.function(items)
            else:
                result = await asyncio.to_thread(process.function, items)
                if inspect.isawaitable(result):
                    result = await result
    except TimeoutError:
        problem = f"timed out after {process.timeout:g} s"
        return {"name": process.name, "ok": False, "error": problem}
    # The function belongs to the application: whatever it raises is reported.
    except Exception as error:
        return {"name": process.name, "ok": False, "error": f"{type(error).__name__}: {error}"}
    return {"name": process.name, "ok": True, "result": result}


_MOST_JOBS = 1_000  # older results are dropped
KEPT = timedelta(days=1)
WORK = "work"  # what a later process needs to take up a job again
ENDED = ("done", "failed")
_PROCESS = "process"  # which one runs a job
# A process that has not renewed a job for so long counts as gone; four renewals may come late.
LEASE = timedelta(seconds=20)
_RENEWAL_SECONDS = 4.0
_LEFT = "its process ended"
_UNREAD = f"{_LEFT}; `extract_stored` lets a model read what it left"


def _new_id() -> str:
    return f"{JOB_PREFIX}{secrets.token_hex(8)}"


def _record(store: Store, owner: str, job_id: str) -> SessionState:
    """Return where the state of a job is stored: it is the checkpoint of a session of its own."""
    return store.session_state(Scope.of_owner(owner, session_id=job_id))


@cache
def _find_machine() -> list[str]:
    """Return what tells the running system, and the container in it, from others; none on most."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return [boot, os.readlink("/proc/self/ns/pid")]
    except OSError:  # not Linux
        return []


def _is_gone(process: Sequence[Any]) -> bool:
    """Return True if a process of this machine has ended."""
    *machine, pid = process
    if not machine or machine != _find_machine():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _is_running(checkpoint: Checkpoint) -> bool:
    """Return True if the process that runs a job is there, and has said so lately."""
    if checkpoint.state["state"] != "running":
        return False
    is_late = datetime.now(UTC) - checkpoint.created_at > LEASE
    return not is_late and not _is_gone(checkpoint.state.get(_PROCESS, [None]))


def _whole_state(job_id: str, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the state of a job with what a later process needs; it waits if its process ended."""
    state = {"job_id": job_id, **checkpoint.state}
    state.pop(_PROCESS, None)
    if state["state"] == "running" and not _is_running(checkpoint):
        state["state"] = "waiting"
    return state


class _Claim:
    """The right of this process to run a job: the job's latest state is its own, and not old.

    It is renewed while the job runs. Once it is old, another process may store the next state of
    the job; then this process stores none any more.
    """

    def __init__(self, store: Store, owner: str, job_id: str) -> None:
        self._record = _record(store, owner, job_id)
        self._number = 0  # of the latest state
        self._lock = asyncio.Lock()
        self.is_lost = False

    async def take(self, about: dict[str, Any], *, again: bool = False) -> None:
        """Store that the job runs; Conflict while another process runs it, or if it has ended.

        With `again`, a job that has ended starts over.
        """
        await self._record.drop_jobs(datetime.now(UTC) - KEPT)
        last = await self._record.latest()
        if last is not None and _is_running(last):
            raise Conflict(
                "another process runs this job", hint="Wait until it ends", reason="running"
            )
        if last is not None and last.state["state"] in ENDED and not again:
            raise Conflict("the job has ended", hint="Read its result", reason="ended")
        self._number = last.number if last else 0
        try:
            await self.save({**about, "state": "running"})
        except InvalidArgument:  # too large: a later process cannot take it up again
            await self.save({"state": "running"})

    async def save(self, state: dict[str, Any]) -> None:
        """Store a state; Conflict if another process has taken up the job."""
        if state["state"] == "running":
            state = {**state, _PROCESS: [*_find_machine(), os.getpid()]}
        async with self._lock:
            try:
                self._number = (await self._record.save(state, after=self._number)).number
            except Conflict:
                self.is_lost = True
                raise

    async def save_end(self, state: dict[str, Any]) -> None:
        """Store the last state of a job: without its result if that is too large."""
        try:
            # The functions of an application may return what is not JSON.
            await self.save(to_jsonable_python(state, fallback=str))
        except InvalidArgument:
            await self.save({**state, "result": None})
        except MemrecallError as error:  # The process that runs it knows its state all the same.
            _log.warning("the state of a job is not stored: %s", describe_for_log(error))

    async def hold(self, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Await work while renewing the claim; Conflict once another process has the job."""
        task = asyncio.ensure_future(work)
        renewing = in_background(self._renew(task))
        try:
            return await task
        except asyncio.CancelledError:
            if self.is_lost:
                raise Conflict("another process has taken up this job") from None
            raise
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, task: "asyncio.Future[dict[str, Any]]") -> None:
        """Renew the claim until it is lost; then the work ends, because its result is refused."""
        while not self.is_lost:
            await asyncio.sleep(_RENEWAL_SECONDS)
            try:
                async with self._lock:
                    self.is_lost = not await self._record.renew(self._number)
            except MemrecallError as error:  # The next renewal may be in time.
                _log.warning("a running job is not renewed: %s", describe_for_log(error))
        task.cancel()


def _task_state(job_id: str, task: "asyncio.Task[dict[str, Any]]") -> dict[str, Any]:
    if task.cancelled():
        return {"job_id": job_id, "state": "failed", "error": "cancelled"}
    return {"job_id": job_id, **(task.result() if task.done() else {"state": "running"})}


class Jobs:
    """The background jobs of one `AsyncMemory`, with the results of the latest."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._owners: dict[str, str] = {}
        self._claims: dict[str, _Claim] = {}  # of jobs that others may take up
        self.continued: set[str] = set()  # kinds of jobs that this process takes up again

    async def start(
        self,
        store: Store,
        work: Coroutine[Any, Any, dict[str, Any]],
        owner: str,
        about: dict[str, Any],
    ) -> dict[str, Any]:
        """Start a job on a user's data; return its id and state, which other processes can read.

        `about` is what they need to take it up again; without it, the job ends with this process.
        """
        job_id = _new_id()
        claim = _Claim(store, owner, job_id)
        await claim.take(about)
        self._add(job_id, owner, self._run(claim, work, job_id, about))
        return self.state(job_id)

    async def follow(
        self,
        store: Store,
        work: Coroutine[Any, Any, dict[str, Any]],
        owner: str,
        details: dict[str, Any],
        about: dict[str, Any],
    ) -> dict[str, Any]:
        """Await work on what is stored; past a deadline it goes on as a job, as of `start`.

        The error at the deadline has the details and the `job_id`.
        """
        limit = current_deadline()
        if limit is None:
            return await work
        task = in_background(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            job_id = _new_id()
            claim = _Claim(store, owner, job_id)

            async def run_on() -> dict[str, Any]:
                try:
                    await claim.take(about)
                except MemrecallError as error:  # Its end may be stored.
                    _log.warning("the state of a job is not stored: %s", describe_for_log(error))
                return await self._run(claim, task, job_id, about)

            self._add(job_id, owner, run_on())
            limit.details |= {**details, "job_id": job_id}
            raise

    def _add(self, job_id: str, owner: str, work: Coroutine[Any, Any, dict[str, Any]]) -> None:
        self._tasks[job_id] = in_background(work)
        self._owners[job_id] = owner
        for old in list(self._tasks)[:-_MOST_JOBS]:
            if self._tasks[old].done():
                del self._tasks[old], self._owners[old]

    async def run(
        self,
        store: Store,
        work: Callable[[], Awaitable[dict[str, Any]]],
        owner: str,
        job_id: str,
        about: dict[str, Any],
        *,
        again: bool = False,
    ) -> dict[str, Any]:
        """Do work that others can see, and that a later process can take up again.

        Conflict while another process does it, or if it was done and `again` is false.
        """
        claim = _Claim(store, owner, job_id)
        await claim.take(about, again=again)
        self._claims[job_id] = claim
        state: dict[str, Any] = {"state": "waiting"}
        try:
            result = await claim.hold(work())
            state = {"state": "done", "result": result}
        except Exception as error:
            state |= {"state": "failed", "error": f"{type(error).__name__}: {error}"}
            raise
        else:
            return result
        finally:
            await claim.save_end({**about, **state})
            del self._claims[job_id]

    async def report(
        self, store: Store, owner: str, job_id: str, about: dict[str, Any], **state: Any
    ) -> None:
        """Let others see how far a job of `run` is, or how it ended otherwise."""
        record = self._claims.get(job_id) or _record(store, owner, job_id)
        await record.save({**about, "state": "running", **state})

    async def list(self, store: Store, owner: str) -> "list[dict[str, Any]]":
        """Return the jobs of a user, of all processes, the latest first."""
        jobs = await store.session_state(Scope.of_owner(owner)).jobs()
        return [self._stored_state(job_id, checkpoint) for job_id, checkpoint in jobs]

    async def find_open(
        self, store: Store, user_ids: Sequence[str]
    ) -> Sequence[tuple[str, dict[str, Any]]]:
        """Return the jobs of users that have not ended, each with its user, as whole states."""
        found = await find_open_jobs(store.database, user_ids, ENDED)
        return [(user_id, _whole_state(name, latest)) for user_id, name, latest in found]

    def _stored_state(self, job_id: str, checkpoint: Checkpoint) -> dict[str, Any]:
        state = _whole_state(job_id, checkpoint)
        state.pop(WORK, None)
        kind = state.get("kind")
        if state["state"] == "waiting" and kind not in self.continued:
            return {**state, "state": "failed", "error": _UNREAD if kind else _LEFT}
        return state

    async def _run(
        self,
        claim: _Claim,
        work: Awaitable[dict[str, Any]],
        job_id: str,
        about: dict[str, Any],
    ) -> dict[str, Any]:
        state: dict[str, Any] = {"state": "failed", "error": "cancelled"}
        if about:
            state = {**about, "state": "waiting"}
        try:
            state = {"state": "done", "result": await claim.hold(work)}
        except Exception as error:  # `state` reports it to who asks
            state = {"state": "failed", "error": f"{type(error).__name__}: {error}"}
        finally:
            await claim.save_end(state)
        if claim.is_lost:  # The process that has taken it up says how it ends.
            del self._tasks[job_id], self._owners[job_id]
        return state

    async def find(self, store: Store, job_id: str, owner: str) -> dict[str, Any]:
        """Return the state of a user's job of any process; NotFound if there is none."""
        if job_id in self._tasks:
            return self.state(job_id, owner)
        is_job = job_id.startswith(JOB_PREFIX)
        checkpoint = await _record(store, owner, job_id).latest() if is_job else None
        if checkpoint is None or datetime.now(UTC) - checkpoint.created_at > KEPT:
            return self.state(job_id)
        return self._stored_state(job_id, checkpoint)

    def running(self, owner: str) -> int:
        """Return how many jobs of a user are running."""
        return sum(
            not task.done() for job_id, task in self._tasks.items() if self._owners[job_id] == owner
        )

    def state(self, job_id: str, owner: str | None = None) -> dict[str, Any]:
        """Return whether a job is running, done or failed, with its result or error.

        With an `owner`, jobs of other users are not found.
        """
        task = self._tasks.get(job_id)
        if task is None or owner not in (None, self._owners[job_id]):
            raise NotFound(
                f"there is no job {job_id!r}", hint="The state of a job is kept for a day"
            )
        return _task_state(job_id, task)

    async def wait(self, job_id: str, owner: str | None = None) -> dict[str, Any]:
        """Wait for a job to end; return its state."""
        self.state(job_id, owner)
        task = self._tasks[job_id]
        await asyncio.wait([task])
        return _task_state(job_id, task)

    async def forget(self, owner: str) -> None:
        """Wait for all jobs, then drop the results of a user's jobs."""
        await self.settle()
        for job_id in [job_id for job_id, user in self._owners.items() if user == owner]:
            del self._tasks[job_id], self._owners[job_id]

    async def settle(self, patience: float | None = None) -> None:
        """Wait for all running jobs; cancel those that take longer than `patience` seconds."""
        running = [task for task in self._tasks.values() if not task.done()]
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=patience)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
