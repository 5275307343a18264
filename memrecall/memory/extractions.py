"""Extraction of stored messages: runs that are announced, continued after a stop, and undone."""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from memrecall.errors import (
    CallerError,
    Conflict,
    InvalidArgument,
    MemrecallError,
    NotFound,
    describe_for_log,
)
from memrecall.extraction.protocol import Utterance
from memrecall.library.library import Library
from memrecall.memory.ingest import ADD_JOB, CONTEXT, Addition, Derived, Ingestor
from memrecall.memory.jobs import ENDED, KEPT, LEASE, WORK, Jobs
from memrecall.memory.summaries import SUMMARIES_JOB
from memrecall.progress import Advance
from memrecall.scope import DEFAULT_NAME, Scope, space_of
from memrecall.store import JOB_PREFIX, UnreadMessages
from memrecall.timing import in_background
from memrecall.types import Message, format_time, parse_time

log = logging.getLogger(__name__)

_KIND = "extraction"  # of jobs
_AT_ONCE = 4  # calls of the model, for all users in turn
_PAGE_USERS = 200
_LOOK_SECONDS = 300.0  # until the next look for jobs that processes have left
_MOST_FAILURES = 3  # calls of the model in a row that fail before a run gives up
_MOST_PASSES = 3  # over messages that change all the time
_MOST_PROBLEMS = 20  # that a report lists


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionRequest:
    """Which stored messages a model is to read."""

    scope: Scope
    session_id: str | None = None
    since: datetime | None = None
    prompt: str | None = None

    def unread(self, library: Library) -> UnreadMessages:
        """Return the messages that no model has read yet."""
        return library.store.unread(self.scope, session_id=self.session_id, since=self.since)

    def as_dict(self) -> dict[str, Any]:
        """Return what a later process needs to continue."""
        return {
            "agent_id": self.scope.agent_id,
            "session_id": self.session_id,
            "project": self.scope.project,
            "since": self.since and format_time(self.since),
            "author": self.scope.author,
        }

    @classmethod
    def of_job(cls, user_id: str, job: dict[str, Any]) -> "ExtractionRequest":
        """Return the request of a job that an earlier process has left."""
        since = parse_time(job["since"], "since") if job["since"] else None
        scope = Scope.of_owner(user_id, job["agent_id"], project=job["project"])
        return cls(scope=scope, session_id=job["session_id"], since=since)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Messages of one session that one call of the model reads."""

    scope: Scope
    utterances: list[Utterance]

    @property
    def from_people(self) -> int:
        """The number of messages that people have said; without any, nothing is sent."""
        return sum(utterance.is_from_person for utterance in self.utterances)


@dataclass(frozen=True, slots=True)
class _Running:
    """A run of this process."""

    scope: Scope
    run: str
    about: dict[str, Any]  # how far it is
    task: "asyncio.Task[dict[str, Any]]"

    @property
    def state(self) -> dict[str, Any]:
        """The state of its job."""
        return {"job_id": self.run, **self.about, "state": "running"}


class Extractions:
    """Lets the model read stored messages: one run of a user, or member of a space, at a time."""

    def __init__(self, library: Library, ingestor: Ingestor, jobs: Jobs) -> None:
        self._library = library
        self._ingestor = ingestor
        self._jobs = jobs
        if ingestor.has_model:
            jobs.continued.add(_KIND)
        self._running: dict[str, _Running] = {}  # by run
        self._resuming: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)  # first come, first served

    async def estimate(self, request: ExtractionRequest) -> dict[str, Any]:
        """Return how many messages of people are unread, and about what reading them sends."""
        from memrecall.extraction.model import estimate_call

        counts = {"messages": 0, "calls": 0, "tokens": 0}
        scope, before = None, list[Utterance]()
        async for batch in self._batches(request):
            context = before[-CONTEXT:] if batch.scope == scope else list[Utterance]()
            scope, before = batch.scope, batch.utterances
            if batch.from_people:
                counts["messages"] += batch.from_people
                counts["calls"] += 1
                counts["tokens"] += estimate_call(batch.utterances, context)
        return counts

    def require_model(self) -> None:
        """Raise InvalidArgument without a model."""
        if not self._ingestor.has_model:
            raise InvalidArgument(
                "no model is configured, so none can read the messages",
                hint="Set MEMRECALL_MODEL, and MEMRECALL_API_KEY or MEMRECALL_BASE_URL for it",
            )

    async def start(
        self, request: ExtractionRequest, counts: dict[str, Any], advance: Advance
    ) -> str:
        """Start to read what is unread; return the run. One that a process has left is continued.

        Conflict if the user's messages are being read already.
        """
        self.require_model()
        left = await self._unfinished(request)
        running = self._find_of(request.scope)
        if running:
            run = running.run
        elif left:
            run = left["job_id"]
        else:  # It sorts by time, and is the id of the job.
            run = f"{JOB_PREFIX}x{time.time_ns() // 1000:013x}{secrets.token_hex(4)}"
        if running or (left and left["state"] == "running"):
            raise Conflict(
                f"the extraction {run!r} is running already",
                hint="Wait for its job to end, or undo it",
                reason="running",
                run=run,
            )
        self._spawn(request, run, counts, advance)
        return run

    def _spawn(
        self, request: ExtractionRequest, run: str, counts: dict[str, Any], advance: Advance
    ) -> None:
        owner = request.scope.user_id
        about = {"kind": _KIND, **request.as_dict(), "messages": counts["messages"], "read": 0}
        work = partial(self._read, request, run, counts, about, advance)
        task = in_background(self._jobs.run(self._library.store, work, owner, run, about))
        self._running[run] = _Running(request.scope, run, about, task)
        task.add_done_callback(partial(self._end, run))

    def _end(self, run: str, task: "asyncio.Task[dict[str, Any]]") -> None:
        del self._running[run]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Conflict):  # as of another process's run
            log.warning("the extraction %s failed: %s", run, describe_for_log(error))

    def find_running(self, run: str) -> "_Running | None":
        """Return a run of this process, None if it has ended."""
        return self._running.get(run)

    def _find_of(self, scope: Scope) -> "_Running | None":
        """Return the run of a user, or of a member of a space."""
        key = (scope.user_id, scope.author)
        of_scope = (r for r in self._running.values() if (r.scope.user_id, r.scope.author) == key)
        return next(of_scope, None)

    async def stop(self, owner: str | None = None, run: str | None = None) -> None:
        """Stop the runs of an owner, or one of them, or all; what is left can be read later."""
        tasks = [
            each.task
            for each in self._running.values()
            if owner in (None, each.scope.user_id) and run in (None, each.run)
        ]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop all runs; a later process continues them."""
        if self._resuming is not None:
            self._resuming.cancel()
            await asyncio.wait([self._resuming])
        await self.stop()

    def resume(self) -> None:
        """Continue what other processes leave, now and later, with a model."""
        if self._ingestor.has_model:
            self._jobs.continued.add(ADD_JOB)
            if self._resuming is not None:
                self._resuming.cancel()
            self._resuming = in_background(self._resume())

    async def _resume(self) -> None:
        """Look for jobs that were left, sooner again while another process runs one."""
        while True:
            seconds = _LOOK_SECONDS
            try:
                if await self._look():
                    seconds = LEASE.total_seconds()
            except MemrecallError as error:
                log.warning("left jobs are not looked for: %s", describe_for_log(error))
            await asyncio.sleep(seconds)

    async def _look(self) -> bool:
        """Continue the jobs that were left; return True if other processes run some."""
        store, are_running = self._library.store, False
        async for page in store.owners.pages(_PAGE_USERS, datetime.now(UTC) - KEPT):
            for user_id, job in await self._jobs.find_open(store, page):
                if job["state"] == "waiting":
                    await self._continue(user_id, job)
                are_running |= job["state"] == "running"
        return are_running

    async def _continue(self, user_id: str, job: dict[str, Any]) -> None:
        """Continue a job, or leave it to another process that does."""
        kind = job.get("kind")
        if kind == ADD_JOB:
            await self._continue_addition(user_id, job)
        elif kind == SUMMARIES_JOB:
            self._ingestor.summaries.expect(
                Scope.of_owner(user_id, job["agent_id"], session_id=job["session_id"])
            )
        elif kind == _KIND and space_of(user_id) is None:  # in a space, the member has to
            request = ExtractionRequest.of_job(user_id, job)
            counts = await self.estimate(request)
            if self._find_of(request.scope) is None:
                self._spawn(request, job["job_id"], counts, lambda step: None)

    async def _continue_addition(self, user_id: str, job: dict[str, Any]) -> None:
        async def work() -> dict[str, Any]:
            if space_of(user_id) is not None:
                hint = "The member can extract the messages again"
                raise Conflict("its process ended", hint=hint)
            async with self._turns:
                return await self._ingestor.finish_left(user_id, job[WORK])

        about = {"kind": ADD_JOB, WORK: job[WORK]}
        try:
            await self._jobs.run(self._library.store, work, user_id, job["job_id"], about)
        except Conflict:
            log.info("an addition is left to another process, or to the member of a space")
        # An extractor may be a plugin; whatever it raises, others can be finished.
        except Exception as error:
            log.warning("an addition is not finished: %s", describe_for_log(error))

    async def _unfinished(self, request: ExtractionRequest) -> dict[str, Any] | None:
        """Return the job of the run for these messages that has not ended, of any process."""
        same = {name: value for name, value in request.as_dict().items() if name != "since"}
        for job in await self._jobs.list(self._library.store, request.scope.user_id):
            is_open = job.get("kind") == _KIND and job["state"] not in ENDED
            if is_open and same.items() <= job.items():
                return job
        return None

    async def _read(
        self,
        request: ExtractionRequest,
        run: str,
        counts: dict[str, Any],
        about: dict[str, Any],
        advance: Advance,
    ) -> dict[str, Any]:
        """Read batch after batch; return what became of the messages."""
        store, owner = self._library.store, request.scope.user_id
        events: Counter[str] = Counter()
        problems: list[str] = []
        failures = 0
        for _ in range(_MOST_PASSES):
            is_changed = False
            async for batch in self._batches(request):
                try:
                    derived, is_read = await self._read_batch(request, batch, run)
                except Conflict as error:
                    if error.details.get("reason") != "messages_changed":
                        raise
                    is_changed = True  # What is left of the batch is read in the next pass.
                    continue
                events.update(outcome.event for outcome in derived.outcomes)
                problems += derived.problems
                failures = 0 if is_read else failures + 1
                if failures == _MOST_FAILURES:
                    break
                if is_read:
                    about["read"] += batch.from_people
                    await self._jobs.report(store, owner, run, about)
                    advance(batch.from_people)
            if not is_changed or failures:
                break
        left = (await self.estimate(request))["messages"] if failures or problems else 0
        return {
            "run": run,
            **counts,
            "read": about["read"],
            "unread": left,
            "added": events["ADD"],
            "updated": events["UPDATE"],
            "ended": events["DELETE"],
            "problems": list(dict.fromkeys(problems))[:_MOST_PROBLEMS],
        }

    async def _read_batch(
        self, request: ExtractionRequest, batch: _Batch, run: str
    ) -> tuple[Derived, bool]:
        """Let the model read a batch; return what it derived, and whether it was read."""
        derived = Derived()
        addition = Addition(scope=batch.scope, messages=(), prompt=request.prompt)
        try:
            async with self._turns:
                is_read = await self._ingestor.extract_part(
                    addition, batch.utterances, derived, run
                )
        except CallerError:
            raise
        # An extractor may be a plugin; whatever it raises, other messages can be read.
        except Exception as error:
            derived.problems.append(f"memories: {type(error).__name__}: {error}")
            return derived, False
        return derived, is_read

    async def _batches(self, request: ExtractionRequest) -> AsyncIterator[_Batch]:
        """Yield the unread messages, session by session, each in its order."""
        from memrecall.extraction.model import MAX_LINES, split_conversation

        unread = request.unread(self._library)
        forgotten = await unread.forgotten()
        for session in await unread.sessions():
            # As an `add` without these ids stored them: it is about the memories of all agents.
            agent_id = None if session.agent_id == DEFAULT_NAME else session.agent_id
            session_id = None if session.session_id == DEFAULT_NAME else session.session_id
            own = request.scope.own
            scope = replace(own, agent_id=own.agent_id or agent_id, session_id=session_id)
            after: Message | None = None
            while page := await unread.page(session, after, MAX_LINES):
                kept = [message for message in page if message.message_id not in forgotten]
                after = page[-1]
                if kept:
                    part = split_conversation([Utterance.of(message) for message in kept])[0]
                    after = page[-1] if len(part) == len(kept) else kept[len(part) - 1]
                    yield _Batch(scope, part)

    async def runs(self, scope: Scope) -> list[dict[str, Any]]:
        """Return the runs of a scope that were not undone, the last first."""
        runs = await self._library.store.unread(scope).runs()
        return [{"run": run, "messages": count} for run, count in runs]

    async def undo(self, scope: Scope, run: str, actor: str) -> dict[str, Any]:
        """Take back the memories of a run; its messages count as unread again.

        After an interruption, call it again for the rest.
        """
        if run not in {item["run"] for item in await self.runs(scope)}:
            raise NotFound(f"there is no extraction {run!r}", hint="List them with their ids")
        await self.stop(scope.user_id, run)
        store, changed, unread = self._library.store, set[str](), None
        while unread is None:
            keys, unread = await self._library.changes(scope).undo_run(run, actor=actor)
            changed.update(keys)
        self._library.vectors.expect({scope.user_id: len(changed)})
        for _, job in await self._jobs.find_open(store, [scope.user_id]):
            if job["job_id"] == run:  # No process continues it.
                about = {"kind": _KIND}
                await self._jobs.report(
                    store, scope.user_id, run, about, state="failed", error="it was undone"
                )
        return {"run": run, "memories": len(changed), "messages": unread}
