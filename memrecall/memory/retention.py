"""Retention: jobs, sweeps by policy, deletion, export, import and erasure of a user's data."""

import asyncio
import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.importers.importer import parse_records
from memrecall.library.library import Library
from memrecall.memory.base import MemoryBase
from memrecall.memory.jobs import Schedule
from memrecall.memory.kinds import Kinds, covered_kinds
from memrecall.memory.records import iterate_users
from memrecall.scope import Scope
from memrecall.settings import Settings, parse_object
from memrecall.store import AuditEntry, MemoryQuery, Store
from memrecall.store.transfer import ImportCounts
from memrecall.types import MemoryRecord

_SWEEP, _EXPIRED = "sweep", "expired"
_PAGE = 500
# The tables of each kind, with what is derived from it.
_TABLES_OF = {
    "memory": ("memories", "revisions", "entities", "aliases", "relations"),
    "message": ("messages", "summaries", "checkpoints"),
}
_KINDS = _TABLES_OF.keys()
_DAY = timedelta(days=1)
_EXAMPLE = '{"hours": 24, "older_than_days": 90, "purge": false}'


@dataclass(frozen=True, slots=True)
class Policy:
    """What a sweep removes; None and False disable a rule. Days count back from the sweep."""

    older_than_days: float | None = None  # since it was written or last updated
    not_recalled_days: float | None = None  # since it was last recalled, or else written
    superseded_days: float | None = None  # since it was superseded
    expired: bool = True
    duplicates: bool = True
    most_memories: int | None = None  # per user; the least recently used are removed

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and value < 0:
                raise InvalidArgument(
                    f"{item.name} {value} is negative", hint="Use 0 or more, or None"
                )


@dataclass(frozen=True, slots=True)
class SweepSchedule:
    """The sweeps of a service: the time between two of them, and what they do."""

    hours: float
    policy: Policy
    purge: bool = False

    @classmethod
    def of(cls, settings: Settings) -> "SweepSchedule | None":
        """Return the schedule of the settings, None if they have none."""
        rules = parse_object("sweep", settings.sweep, _EXAMPLE)
        if not rules:
            return None
        hours, purge = rules.pop("hours", 0), bool(rules.pop("purge", False))
        try:
            schedule = cls(float(hours), Policy(**rules), purge)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"sweep {settings.sweep!r}: {error}", hint=f"Write it like {_EXAMPLE}"
            ) from None
        if not schedule.hours > 0:
            raise InvalidArgument(
                f"sweep {settings.sweep!r} has no hours", hint=f"Write it like {_EXAMPLE}"
            )
        return schedule


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """A policy and how a sweep applies it."""

    policy: Policy
    dry_run: bool
    purge: bool
    now: datetime

    def __post_init__(self) -> None:
        for name, kind in (("policy", Policy), ("now", datetime)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise InvalidArgument(
                    f"{name} {value!r} of a sweep is a {type(value).__name__}",
                    hint=f"Pass a {kind.__name__}",
                )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The fields of a memory that selection needs; small, as all of a user's are loaded."""

    key: str
    pinned: bool
    created_at: datetime
    last_used: datetime
    fingerprint: bytes | None  # equal for duplicates; None if the memory is superseded


async def sweep_scope(library: Library, scope: Scope, options: SweepOptions) -> dict[str, Any]:
    """Find what a policy removes and, unless it is a dry run, hide or purge it."""
    reasons = await _select(library.store, scope, options)
    removed = 0
    if not options.dry_run:
        changes = library.changes(scope)
        for reason in sorted(set(reasons.values())):
            keys = [key for key, key_reason in reasons.items() if key_reason == reason]
            gone = reason == _EXPIRED  # the others leave room: the messages are still true
            if options.purge:
                removal = await library.purge(scope, keys, sources=gone, actor=_SWEEP)
            else:
                removal = await changes.delete(
                    keys, actor=_SWEEP, reason=reason, sources=gone, digests=gone
                )
            removed += len(removal.memories)
    results = [{"id": key, "reason": reason} for key, reason in reasons.items()]
    counts = {"found": len(reasons), "removed": removed, "reasons": Counter(reasons.values())}
    return {"dry_run": options.dry_run, **counts, "results": results}


async def _select(store: Store, scope: Scope, options: SweepOptions) -> dict[str, str]:
    policy = options.policy
    reasons: dict[str, str] = {}
    rest: list[_Candidate] = []
    async for record in _iterate_memories(store, scope):
        reason = None if record.pinned else _reason_to_remove(record, policy, options.now)
        if reason is not None:
            reasons[record.memory_key] = reason
        else:
            rest.append(_candidate(record))
    if policy.duplicates:
        reasons |= dict.fromkeys(_duplicates(rest), "duplicate")
        rest = [candidate for candidate in rest if candidate.key not in reasons]
    if policy.most_memories is not None:
        reasons |= dict.fromkeys(_over_budget(rest, policy.most_memories), "over the budget")
    return reasons


async def _iterate_memories(store: Store, scope: Scope) -> AsyncIterator[MemoryRecord]:
    """Yield every memory that is not deleted, superseded ones included."""
    cursor: str | None = None
    while True:
        page = await store.memories(scope).page(
            MemoryQuery(superseded=True), limit=_PAGE, cursor=cursor
        )
        for record in page.items:
            yield record
        cursor = page.next_cursor
        if cursor is None:
            return


def _candidate(record: MemoryRecord) -> _Candidate:
    fingerprint = None
    if record.valid_to is None:
        text = "".join(unicodedata.normalize("NFKC", record.content).casefold().split())
        place = (record.agent_id, record.project, record.subject, record.speaker, record.layer)
        fingerprint = hashlib.sha256(repr((text, *place)).encode()).digest()[:16]
    last_used = max(filter(None, (record.last_recalled_at, record.updated_at)))
    return _Candidate(record.memory_key, record.pinned, record.created_at, last_used, fingerprint)


def _reason_to_remove(record: MemoryRecord, policy: Policy, now: datetime) -> str | None:
    def is_past(moment: datetime | None, days: float | None) -> bool:
        # No moment is so many days ago that a caller could not ask for more.
        return moment is not None and days is not None and (now - moment) / _DAY >= days

    if policy.expired and is_past(record.expires_at, 0):
        return _EXPIRED
    if is_past(record.valid_to, policy.superseded_days):
        return "superseded"
    if is_past(record.updated_at, policy.older_than_days):
        return "old"
    if is_past(record.last_recalled_at or record.created_at, policy.not_recalled_days):
        return "not recalled"
    return None


def _duplicates(candidates: list[_Candidate]) -> Iterator[str]:
    """Yield all but the first of each group of duplicates; pinned memories are kept."""
    seen: set[bytes] = set()
    for candidate in sorted(candidates, key=lambda c: (not c.pinned, c.created_at, c.key)):
        if candidate.fingerprint is None:
            continue
        if candidate.fingerprint in seen and not candidate.pinned:
            yield candidate.key
        seen.add(candidate.fingerprint)


def _over_budget(candidates: list[_Candidate], most: int) -> Iterator[str]:
    ordered = sorted(candidates, key=lambda c: (c.pinned, c.last_used, c.key), reverse=True)
    for candidate in ordered[most:]:
        if not candidate.pinned:
            yield candidate.key


class RetentionMixin(MemoryBase):
    """Jobs, sweeps, transfer and erasure of a user's data."""

    async def job(self, job_id: str, *, wait: bool = False) -> dict[str, Any]:
        """Return the state of a background job: running, done or failed."""
        jobs, owner = self._shared.jobs, self._binding.user_id
        resources = await self._open()
        running = resources.extractions.find_running(job_id)
        if running is not None and owner in (None, running.scope.user_id):
            if not wait:
                return running.state
            await asyncio.wait([running.task])
            return await jobs.find(resources.library.store, job_id, running.scope.user_id)
        if wait or owner is None:
            return await jobs.wait(job_id, owner) if wait else jobs.state(job_id, owner)
        return await jobs.find(resources.library.store, job_id, owner)

    async def resume(self) -> None:
        """Go on with what other processes leave: vectors, summaries, additions and extractions."""
        resources = await self._open()
        resources.library.vectors.resume()
        resources.extractions.resume()

    async def jobs(self, user_id: str | None = None) -> list[dict[str, Any]]:
        """Return the background jobs of a user's last day, the latest first."""
        scope = self._scope(user_id)
        return await self._shared.jobs.list((await self._open()).library.store, scope.user_id)

    def running_jobs(self, user_id: str | None = None) -> int:
        """Return how many jobs of a user are running."""
        return self._shared.jobs.running(self._scope(user_id).user_id)

    async def sweep(
        self,
        policy: Policy | None = None,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        all_users: bool = False,
        dry_run: bool = True,
        purge: bool = False,
        now: datetime | None = None,
    ) -> dict[str, Any]:
        """Report what a policy removes; with `dry_run=False`, remove it.

        With `all_users` every user is swept in turn and only the counts are returned.
        """
        options = SweepOptions(policy or Policy(), dry_run, purge, now or datetime.now(UTC))
        if not all_users:
            return await self._sweep_user(self._scope(user_id, agent_id), options)
        if user_id is not None or self._binding.has_user:
            raise InvalidArgument(
                "user_id and all_users are mutually exclusive", hint="Leave out one of them"
            )
        return await self._sweep_all_users(agent_id, options, asyncio.Event())

    async def _sweep_all_users(
        self, agent_id: str | None, options: SweepOptions, stopping: asyncio.Event
    ) -> dict[str, Any]:
        """Sweep user by user, until all are done or `stopping` is set."""
        users = matches = removed = 0
        reasons: Counter[str] = Counter()
        async for user in iterate_users((await self._open()).library.store, spaces=True):
            if stopping.is_set():
                break
            scope = Scope.of_owner(user, agent_id, permissions=self._binding.permissions)
            report = await self._sweep_user(scope, options)
            users += bool(report["found"])
            matches += report["found"]
            removed += report["removed"]
            reasons += report["reasons"]
        counts = {"users": users, "found": matches, "removed": removed, "reasons": dict(reasons)}
        return {"dry_run": options.dry_run, **counts}

    async def _sweep_user(self, scope: Scope, options: SweepOptions) -> dict[str, Any]:
        resources = await self._open()
        await resources.recall_times.flush()
        return await sweep_scope(resources.library, scope, options)

    async def schedule_sweeps(
        self,
        every_seconds: float,
        policy: Policy | None = None,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        dry_run: bool = False,
        purge: bool = False,
        report: Callable[[dict[str, Any]], object] | None = None,
    ) -> Schedule:
        """Sweep at an interval while this memory is open; the first sweep follows one interval.

        Sweeps the bound or named user, else all users. `report` is called with each result.
        """
        if not isinstance(every_seconds, int | float) or not every_seconds > 0:
            raise InvalidArgument(
                f"every_seconds {every_seconds!r} is no positive number", hint="Pass a number"
            )
        all_users = user_id is None and not self._binding.has_user
        first = SweepOptions(policy or Policy(), dry_run, purge, datetime.now(UTC))

        async def run_once(stopping: asyncio.Event) -> None:
            options = replace(first, now=datetime.now(UTC))
            if all_users:
                result = await self._sweep_all_users(agent_id, options, stopping)
            else:
                result = await self._sweep_user(self._scope(user_id, agent_id), options)
            if report is not None:
                report(result)

        schedule = Schedule("a scheduled sweep", every_seconds, run_once)
        self._shared.schedules.append(schedule)
        return schedule

    async def export(
        self, user_id: str | None = None, project: str | None = None, *, kinds: Kinds = "all"
    ) -> AsyncGenerator[str, None]:
        """Yield all data of a user, or of a project, as JSON lines that `import_` accepts.

        `kinds` "memories" or "messages" leaves out the others, and what is derived from them.
        """
        omitted = {table for kind in _KINDS - covered_kinds(kinds) for table in _TABLES_OF[kind]}
        scope = self._scope_without_agent(user_id, project)
        resources = await self._open()
        await resources.recall_times.flush()
        await self._log_transfer("export", scope)
        rows = resources.library.export_user(scope.user_id, scope.read_project)
        async with aclosing(rows) as records:
            async for record in records:
                if record["table"] not in omitted:
                    yield json.dumps(record, ensure_ascii=False)

    async def import_(
        self, lines: Iterable[str | bytes], user_id: str | None = None, *, invite: bool = False
    ) -> ImportCounts:
        """Import the lines of `export`, all or none; return the counts by table.

        With `invite`, users whom the export of a space names become members when they accept.
        """
        scope = self._scope_without_agent(user_id)
        library = (await self._open()).library
        records = await asyncio.to_thread(parse_records, list(lines))
        member = scope if scope.space else None
        counts = await library.import_user(scope.user_id, records, member, invite=invite)
        await self._log_transfer("import", scope, sum(counts.values()))
        return counts

    async def _log_transfer(self, action: str, scope: Scope, count: int = 1) -> None:
        library = (await self._open()).library
        if not library.settings.read_only:
            await library.store.audit(scope).add(AuditEntry(action, self._actor, count=count))

    async def erase(
        self, user_id: str | None = None, *, with_contributions: bool = False
    ) -> dict[str, int]:
        """Erase a user completely: rows, vectors, snapshots, traces and checkpoints.

        What they wrote to spaces stays there under another name, unless `with_contributions`.
        """
        scope = self._scope_without_agent(user_id)
        if scope.project is not None:
            raise InvalidArgument("this memory is bound to a project", hint="Use erase_project")
        return await self._erase_owner(scope.user_id, with_contributions=with_contributions)

    async def _erase_owner(self, owner: str, **options: bool) -> dict[str, int]:
        resources = await self._open()
        await resources.extractions.stop(owner)
        await self._shared.jobs.forget(owner)
        resources.recall_times.discard(owner)
        for key in [key for key in self._shared.sessions if key[0] == owner]:
            del self._shared.sessions[key]
        return (await resources.library.erase_user(owner, **options)).as_dict()

    def _scope_without_agent(self, user_id: str | None, project: str | None = None) -> Scope:
        """Return the scope of a call that covers all agents and sessions of a user."""
        if self._binding.agent_id is not None:
            raise InvalidArgument(
                f"this memory is bound to agent {self._binding.agent_id!r}, "
                "but the call covers all agents of a user",
                hint="Use a Memory that is not bound to an agent",
            )
        return self._scope(user_id, None, None, project)
