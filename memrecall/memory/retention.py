"""The part of `AsyncMemory` that looks after what is stored: jobs, forgetting, moving, erasing."""

import asyncio
import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.memory.base import MemoryBase
from memrecall.memory.jobs import Schedule
from memrecall.memory.records import each_user
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.store import MemoryQuery, Store
from memrecall.types import MemoryRecord

ACTOR = "sweep"
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Policy:
    """What may go; None and False leave that kind alone. Days count back from the sweep."""

    older_than_days: float | None = None  # since it was written or last corrected
    not_recalled_days: float | None = None  # since it was last found, or else written
    superseded_days: float | None = None  # since it ceased to hold
    expired: bool = True
    duplicates: bool = True
    most_memories: int | None = None  # a user's budget: the least recently of use go

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and value < 0:
                raise InvalidArgument(f"{item.name} {value} is negative")

    @classmethod
    def of(cls, settings: Settings) -> "Policy":
        """The policy of the settings, where 0 means: not for that reason."""
        return cls(
            settings.sweep_older_days or None,
            settings.sweep_not_recalled_days or None,
            settings.sweep_superseded_days or None,
            most_memories=settings.sweep_most_memories or None,
        )


@dataclass(frozen=True, slots=True)
class _Brief:
    """What choosing must know of a memory: small, because all of a user's are held at once."""

    key: str
    pinned: bool
    created_at: datetime
    of_use: datetime
    said: bytes | None  # None: it holds no longer, and repeats nobody


async def sweep(
    store: Store, scope: Scope, policy: Policy, *, dry_run: bool, purge: bool, now: datetime
) -> dict[str, Any]:
    """Find what a policy would remove and, unless it is a dry run, hide or purge it."""
    chosen = await _choose(store, scope, policy, now)
    removed = 0
    if not dry_run and chosen:
        changes = store.changes(scope)
        for reason in sorted(set(chosen.values())):
            keys = [key for key, why in chosen.items() if why == reason]
            removed += (
                await changes.purge(keys)
                if purge
                else await changes.delete(keys, actor=ACTOR, reason=reason)
            )
    results = [{"id": key, "reason": reason} for key, reason in chosen.items()]
    counts = {"found": len(chosen), "removed": removed, "reasons": Counter(chosen.values())}
    return {"dry_run": dry_run, **counts, "results": results}


async def _choose(store: Store, scope: Scope, policy: Policy, now: datetime) -> dict[str, str]:
    chosen: dict[str, str] = {}
    rest: list[_Brief] = []
    async for record in _all(store, scope):
        reason = None if record.pinned else _reason(record, policy, now)
        if reason is not None:
            chosen[record.memory_key] = reason
        else:
            rest.append(_brief(record))
    if policy.duplicates:
        chosen |= dict.fromkeys(_duplicates(rest), "duplicate")
        rest = [brief for brief in rest if brief.key not in chosen]
    if policy.most_memories is not None:
        chosen |= dict.fromkeys(_over_budget(rest, policy.most_memories), "over the budget")
    return chosen


async def _all(store: Store, scope: Scope) -> AsyncIterator[MemoryRecord]:
    """Every memory that is not hidden, superseded ones included, page by page."""
    cursor: str | None = None
    while True:
        page = await store.memory_list(scope).page(
            MemoryQuery(superseded=True), limit=_PAGE, cursor=cursor
        )
        for record in page.items:
            yield record
        cursor = page.next_cursor
        if cursor is None:
            return


def _brief(record: MemoryRecord) -> _Brief:
    said = None
    if record.valid_to is None:
        words = "".join(unicodedata.normalize("NFKC", record.content).casefold().split())
        same = (words, record.agent_id, record.subject, record.speaker, record.layer)
        said = hashlib.sha256(repr(same).encode()).digest()[:16]
    last = max(filter(None, (record.last_recalled_at, record.updated_at)))
    return _Brief(record.memory_key, record.pinned, record.created_at, last, said)


def _reason(record: MemoryRecord, policy: Policy, now: datetime) -> str | None:
    def past(moment: datetime | None, days: float | None) -> bool:
        return moment is not None and days is not None and moment <= now - timedelta(days=days)

    if policy.expired and past(record.expires_at, 0):
        return "expired"
    if past(record.valid_to, policy.superseded_days):
        return "superseded"
    if past(record.updated_at, policy.older_than_days):
        return "old"
    if past(record.last_recalled_at or record.created_at, policy.not_recalled_days):
        return "not recalled"
    return None


def _duplicates(briefs: list[_Brief]) -> Iterator[str]:
    """All but the first of those that say the same of the same now; a pinned one comes first."""
    seen: set[bytes] = set()
    for brief in sorted(briefs, key=lambda b: (not b.pinned, b.created_at, b.key)):
        if brief.said is None:
            continue
        if brief.said in seen and not brief.pinned:
            yield brief.key
        seen.add(brief.said)


def _over_budget(briefs: list[_Brief], most: int) -> Iterator[str]:
    ordered = sorted(briefs, key=lambda b: (b.pinned, b.of_use, b.key), reverse=True)
    for brief in ordered[most:]:
        if not brief.pinned:
            yield brief.key


def sweep_time(now: datetime | None) -> datetime:
    """The time of a sweep."""
    return now or datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class _Sweep:
    """How a sweep is done."""

    policy: Policy
    dry_run: bool
    purge: bool
    now: datetime


class RetentionMixin(MemoryBase):
    """What becomes of everything that a user has stored."""

    async def job(self, job_id: str, *, wait: bool = False) -> dict[str, Any]:
        """The state of a job that `add` began in the background: running, done or failed."""
        jobs, owner = self._shared.jobs, self._binding.user_id
        return await jobs.wait(job_id, owner) if wait else jobs.state(job_id, owner)

    def running_jobs(self, user_id: str | None = None) -> int:
        """How many jobs of a user are under way."""
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
        """Forget by policy. It says what it would remove; with `dry_run` False it removes it.

        With `all_users` it goes over them one by one and tells numbers alone.
        """
        how = _Sweep(policy or Policy(), dry_run, purge, sweep_time(now))
        if not all_users:
            return await self._sweep(self._scope(user_id, agent_id), how)
        if user_id is not None or self._binding.has_user:
            raise InvalidArgument("all users, or one?", hint="Leave out user_id or all_users")
        return await self._sweep_all(agent_id, how, asyncio.Event())

    async def _sweep_all(
        self, agent_id: str | None, how: "_Sweep", stopping: asyncio.Event
    ) -> dict[str, Any]:
        """Sweep user by user; told to stop, it ends with the one it is at."""
        users = found = removed = 0
        reasons: Counter[str] = Counter()
        async for owner in each_user((await self._parts()).library.store):
            if stopping.is_set():
                break
            told = await self._sweep(self._scope(owner, agent_id), how)
            users += bool(told["found"])
            found += told["found"]
            removed += told["removed"]
            reasons += told["reasons"]
        counts = {"users": users, "found": found, "removed": removed, "reasons": dict(reasons)}
        return {"dry_run": how.dry_run, **counts}

    async def _sweep(self, scope: Scope, how: "_Sweep") -> dict[str, Any]:
        parts = await self._parts()
        await parts.marks.flush()
        told = await sweep(
            parts.library.store,
            scope,
            how.policy,
            dry_run=how.dry_run,
            purge=how.purge,
            now=how.now,
        )
        if how.purge and told["removed"]:
            await parts.library.forget_derived(scope.user_id)
        return told

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
        """Sweep every so many seconds while this memory is open, for the first time after that.

        Of the user who is bound or named, else of all users. `report` is told of each sweep;
        with `dry_run` that is all that happens.
        """
        if not every_seconds > 0:
            raise InvalidArgument(f"{every_seconds} seconds is no interval", hint="Give some")
        everybody = user_id is None and not self._binding.has_user

        async def once(stopping: asyncio.Event) -> None:
            how = _Sweep(policy or Policy(), dry_run, purge, sweep_time(None))
            if everybody:
                told = await self._sweep_all(agent_id, how, stopping)
            else:
                told = await self._sweep(self._scope(user_id, agent_id), how)
            if report is not None:
                report(told)

        made = Schedule("a scheduled sweep", every_seconds, once)
        self._shared.schedules.append(made)
        return made

    async def export(self, user_id: str | None = None) -> AsyncIterator[str]:
        """Everything of a user as JSON lines that `import_` takes back."""
        scope = self._whole_user(user_id)
        parts = await self._parts()
        await parts.marks.flush()
        async with aclosing(parts.library.export_user(scope.user_id)) as records:
            async for record in records:
                yield json.dumps(record, ensure_ascii=False)

    async def import_(self, lines: Iterable[str], user_id: str | None = None) -> dict[str, int]:
        """Take what `export` gave into this database, all or nothing; counts by table."""
        scope = self._whole_user(user_id)
        parts = await self._parts()
        records = [_read_line(number, line) for number, line in enumerate(lines, 1)]
        return await parts.library.import_user(scope.user_id, records)

    async def erase(self, user_id: str | None = None) -> dict[str, int]:
        """Leave nothing of a user: no row, vector, snapshot, trace or checkpoint."""
        scope = self._whole_user(user_id)
        parts = await self._parts()
        await self._shared.jobs.forget(scope.user_id)
        parts.marks.forget(scope.user_id)
        sessions = self._shared.sessions
        for key in [key for key in sessions if key[0] == scope.user_id]:
            del sessions[key]
        return (await parts.library.erase_user(scope.user_id)).as_dict()

    def _whole_user(self, user_id: str | None) -> Scope:
        """The scope of a verb that is about all of a user's agents and sessions."""
        if self._binding.agent_id is not None:
            raise InvalidArgument(
                f"this memory is bound to agent {self._binding.agent_id!r}, and a user has others",
                hint="Use a Memory that is bound to no agent",
            )
        return self._scope(user_id)


def _read_line(number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InvalidArgument(f"line {number} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise InvalidArgument(f"line {number} is not an object")
    return record
