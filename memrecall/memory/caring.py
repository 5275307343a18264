"""The part of `AsyncMemory` that looks after what is stored: jobs, forgetting, moving, erasing."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.memory.face import Face
from memrecall.memory.forgetting import Policy, sweep, sweep_time
from memrecall.memory.reading import each_user
from memrecall.memory.schedule import Schedule
from memrecall.scope import Scope


@dataclass(frozen=True, slots=True)
class _Sweep:
    """How a sweep is done."""

    policy: Policy
    dry_run: bool
    purge: bool
    now: datetime


class CareFace(Face):
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
