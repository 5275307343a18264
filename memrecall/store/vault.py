"""Backup and restore of the whole state: what an agent knows, and all workspaces.

A restore is decided by one transaction of the database. Until then nothing has changed; from then
on it is finished by whoever comes next, if need be after the process was killed.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from memrecall.errors import Conflict, InvalidArgument, MemrecallError, StorageBusy
from memrecall.scope import Scope
from memrecall.store.backup_folder import BackupFolder
from memrecall.store.backup_format import FORMAT, VERSION, Backup, SavedFile, seal, unseal
from memrecall.store.claims import agent_of
from memrecall.store.knowledge import KnowledgeEntry
from memrecall.store.locks import when_free
from memrecall.store.staging import Stage, Step, stages
from memrecall.store.store import Store
from memrecall.store.workspaces import Found, Workspaces, clear_trash, list_tasks, walk
from memrecall.types import format_time

Result = TypeVar("Result")

_TRIES = 3
_SETTLING = 3  # readings of a file that somebody is writing


@dataclass(frozen=True, slots=True)
class _Saved:
    """A backup just made, and the number of the last change in it."""

    path: Path
    version: int


class Vault:
    """Backups of one agent's knowledge and one root of workspaces, in one folder."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        workspaces: Workspaces,
        folder: BackupFolder,
        *,
        software: str,
        patience: float = 10.0,
        at: Step = lambda _step: None,
    ) -> None:
        self._store = store
        self._room = store.knowledge(scope)
        self._agent_id = agent_of(scope)
        self._workspaces = workspaces
        self._folder = folder
        self._software = software
        self._patience = patience
        self._at = at

    async def backup(self) -> Path:
        """Save the state as it is now; the path of the file."""
        return await _to_the_end(self._backup())

    async def restore(self, named: str) -> Path:
        """Replace the state by that of a backup; the path of a backup of the former state.

        Anything wrong with the file is found before anything is touched.
        """
        return await _to_the_end(self._restore(named))

    async def recover(self) -> None:
        """Finish or undo the restores that were cut short; costs a look where there are none."""
        if await asyncio.to_thread(lambda: any(stages(self._workspaces.root))):
            await _to_the_end(self._recover_alone())

    async def _backup(self) -> Path:
        async with self._alone() as root:
            await self._recover(root)
            return (await self._save(root)).path

    async def _restore(self, named: str) -> Path:
        async with self._alone() as root:
            await self._recover(root)
            _, data = await asyncio.to_thread(self._folder.read, named)
            backup = await asyncio.to_thread(unseal, data)
            if backup.manifest.agent_id != self._agent_id:
                raise InvalidArgument(
                    f"the backup is of agent {backup.manifest.agent_id!r}, "
                    f"not of {self._agent_id!r}"
                )
            for tries_left in range(_TRIES - 1, -1, -1):
                former = await self._save(root)
                try:
                    await self._replace(root, backup, former.version)
                except (MemrecallError, OSError) as error:
                    await asyncio.to_thread(self._folder.remove, former.path)
                    # Where something was written meanwhile, the former state is saved again.
                    if not (tries_left and isinstance(error, StorageBusy)):
                        raise
                else:
                    return former.path
        raise AssertionError("the last try returns or raises")

    async def _replace(self, root: int, backup: Backup, version: int) -> None:
        stage = Stage(self._workspaces.root, secrets.token_hex(16))
        said = {"agent_id": self._agent_id, "database_id": self._store.facts.database_id}
        try:
            await asyncio.to_thread(stage.prepare, root, backup, said, self._at)
            await self._room.replace(backup.entries(), stage.restore_id, version=version)
        except (MemrecallError, OSError):
            # A connection may break just after the decision: only the database knows.
            if not await self._room.was_restored(stage.restore_id):
                await self._settle(root, stage)
                raise
        self._at("decided")
        await self._settle(root, stage)

    async def _settle(self, root: int, stage: Stage) -> None:
        """Carry a restore out if it was decided; otherwise leave no trace of it."""
        decided = await self._room.was_restored(stage.restore_id)
        plan = await asyncio.to_thread(stage.plan)
        if decided and plan is not None:
            await asyncio.to_thread(stage.finish, root, plan, self._at)
        if stage.folder.exists():
            await asyncio.to_thread(stage.remove, root, self._at)
        if decided:
            await self._room.close_restore(stage.restore_id)

    async def _recover_alone(self) -> None:
        async with self._alone() as root:
            await self._recover(root)

    async def _recover(self, root: int) -> None:
        await asyncio.to_thread(clear_trash, root)
        for stage in await asyncio.to_thread(lambda: list(stages(self._workspaces.root))):
            plan = await asyncio.to_thread(stage.plan)
            if plan is not None and plan.database_id != self._store.facts.database_id:
                raise Conflict(
                    f"a restore into another database was cut short in {self._workspaces.root}",
                    hint="Open that database once, or choose another folder for workspaces",
                )
            await self._settle(root, stage)

    async def _save(self, root: int) -> _Saved:
        snapshot = await self._room.snapshot()
        self._at("read the knowledge")
        content = await asyncio.to_thread(self._gather, root, snapshot.entries)
        data = await asyncio.to_thread(seal, content)
        self._at("before the backup is written")
        path = await asyncio.to_thread(self._folder.write, data)
        self._at("backed up")
        return _Saved(path, snapshot.version)

    def _gather(self, root: int, entries: list[KnowledgeEntry]) -> dict[str, Any]:
        files: dict[str, dict[str, Any]] = {}
        left_out: list[str] = []
        budget = _Budget(self._folder.largest)
        knowledge = {entry.knowledge_key: _saved_entry(entry) for entry in entries}
        workspaces: dict[str, Any] = {}
        for task_id in list_tasks(root):
            saved: dict[str, Any] = {"folders": [], "files": {}}
            for found in walk(root, task_id):
                where = f"{task_id}/{found.path}"
                data = _settled(found, budget) if found.is_file and found.is_nameable else None
                if data is not None:
                    digest = hashlib.sha256(data).hexdigest()
                    files[where] = {"size": len(data), "sha256": digest}
                    file = SavedFile.of(data, found.status.st_mode & 0o777)
                    saved["files"][found.path] = file.model_dump(exclude_none=True)
                elif found.is_folder and found.is_nameable:
                    saved["folders"].append(found.path)
                else:
                    left_out.append(where.encode(errors="replace").decode())
            workspaces[task_id] = saved
        manifest = {
            "created_at": format_time(datetime.now(UTC)),
            "memrecall": self._software,
            "agent_id": self._agent_id,
            "entries": len(knowledge),
            "workspaces": len(workspaces),
            "files": files,
            "left_out": left_out,
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "knowledge": knowledge,
            "workspaces": workspaces,
            "manifest": manifest,
        }

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[int]:
        """The root of the workspaces, with everybody else kept out."""
        stack = ExitStack()
        root = await when_free(
            lambda: stack.enter_context(self._workspaces.hold(alone=True)), self._patience
        )
        with stack:
            yield root


class _Budget:
    """How many bytes of files a backup still has room for."""

    def __init__(self, room: int) -> None:
        self.room = room

    def spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise InvalidArgument(
                "the workspaces are too large for a backup",
                hint="Clean up workspaces, or set backup_mb higher",
            )


def _settled(found: Found, budget: _Budget) -> bytes | None:
    """A file's bytes, read again while somebody is writing it."""
    data: bytes | None = None
    for _ in range(_SETTLING):
        before = found.look()
        data = found.read(budget.room + 1)
        if before is not None and before == found.look():
            break
    budget.spend(len(data or b""))
    return data


def _saved_entry(entry: KnowledgeEntry) -> dict[str, Any]:
    return {
        "content": entry.content,
        "summary": entry.summary,
        "tags": entry.tags,
        "metadata": entry.metadata,
        "actor": entry.actor,
        "created_at": format_time(entry.created_at),
        "updated_at": format_time(entry.updated_at),
    }


async def _to_the_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Do what must not be left half done, even if the caller goes away meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen: nobody is left to tell
        raise
