"""The part of `AsyncMemory` that looks after what is stored: jobs, forgetting, moving, erasing."""

import json
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.memory.face import Face
from memrecall.memory.forgetting import Policy, sweep, sweep_time
from memrecall.scope import Scope


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
        dry_run: bool = True,
        purge: bool = False,
        now: datetime | None = None,
    ) -> dict[str, Any]:
        """Forget by policy. It says what it would remove; with `dry_run` False it removes it."""
        scope = self._scope(user_id, agent_id)
        parts = await self._parts()
        await parts.marks.flush()
        moment = sweep_time(now)
        store = parts.library.store
        told = await sweep(
            store, scope, policy or Policy(), dry_run=dry_run, purge=purge, now=moment
        )
        if purge and not dry_run:
            parts.library.cache.forget(scope.user_id)
        return told

    async def export(self, user_id: str | None = None) -> AsyncIterator[str]:
        """Everything of a user as JSON lines that `import_` takes back."""
        scope = self._whole_user(user_id)
        parts = await self._parts()
        await parts.marks.flush()
        async for record in parts.library.store.export_user(scope.user_id):
            yield json.dumps(record, ensure_ascii=False)

    async def import_(self, lines: Iterable[str], user_id: str | None = None) -> dict[str, int]:
        """Take what `export` gave into this database, all or nothing; counts by table."""
        scope = self._whole_user(user_id)
        parts = await self._parts()
        records = [_read_line(number, line) for number, line in enumerate(lines, 1)]
        await parts.library.vectors.prepare()
        counts = await parts.library.store.import_user(scope.user_id, records)
        await parts.library.vectors.embed_left_over([scope.user_id])
        return counts

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
