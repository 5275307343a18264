"""Backup and restore of the whole state: an agent's knowledge and all workspaces.

One transaction of the database decides a restore. Before it nothing has changed; after it, the next
process that opens the workspaces finishes the restore, even if this one was killed.
"""

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memrecall.errors import Conflict, InvalidArgument, MemrecallError, StorageBusy
from memrecall.scope import Scope
from memrecall.store.backup.folder import BackupFolder, sync_to_disk, write_synced
from memrecall.store.backup.format import (
    FORMAT,
    VERSION,
    Backup,
    SavedEntry,
    SavedFile,
    seal,
    unseal,
)
from memrecall.store.database.locks import agent_of
from memrecall.store.knowledge import KnowledgeEntry
from memrecall.store.store import Store
from memrecall.store.workspaces import (
    PRIVATE,
    WorkspaceEntry,
    Workspaces,
    clear_trash,
    list_tasks,
    retry_while_busy,
    walk,
)
from memrecall.types import format_time
from memrecall.workers import run_to_completion

PREFIX = ".restore-"
_PLAN = "plan.json"
_PLACING = "placing"
_OLD, _NEW = "old", "new"
_ATTEMPTS = 3
_READ_ATTEMPTS = 3  # of a file that another process is writing


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What to do once the database has decided a restore."""

    restore_id: str
    agent_id: str
    database_id: str
    old: list[str]


@dataclass(frozen=True, slots=True)
class Stage:
    """The directory of one restore, under the root of the workspaces."""

    root: Path
    restore_id: str

    @property
    def folder(self) -> Path:
        """The path of the directory."""
        return self.root / f"{PREFIX}{self.restore_id}"

    def prepare(self, root: int, backup: Backup, plan: dict[str, str]) -> None:
        """Write the new workspaces, and the plan last."""
        self.folder.mkdir(mode=PRIVATE)
        for name in (_OLD, _NEW):
            (self.folder / name).mkdir(mode=PRIVATE)
        for task_id, saved in backup.workspaces.items():
            home = self.folder / _NEW / task_id
            home.mkdir(mode=PRIVATE)
            for path in saved.folders:
                (home / path).mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            for path, file in saved.files.items():
                (home / path).parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
                write_synced(home / path, file.data(), (file.mode & PRIVATE) | 0o600)
        sync_to_disk(self.folder / _NEW)
        full = RestorePlan(**plan, restore_id=self.restore_id, old=list_tasks(root))
        write_synced(self.folder / f"{_PLAN}.tmp", json.dumps(asdict(full)).encode())
        (self.folder / f"{_PLAN}.tmp").rename(self.folder / _PLAN)
        sync_to_disk(self.folder)
        sync_to_disk(self.root)

    def plan(self) -> RestorePlan | None:
        """Return the plan; None if it was not finished, and so nothing was decided."""
        try:
            return RestorePlan(**json.loads((self.folder / _PLAN).read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def finish(self, plan: RestorePlan) -> None:
        """Replace the old workspaces by the new ones; can be repeated at any point."""
        marker = self.folder / _PLACING
        if not marker.exists():
            # After the marker, a name under the root may belong to a new workspace.
            for name in plan.old:
                self._set_aside(name)
            sync_to_disk(self.root)
            marker.touch(mode=0o600)
            sync_to_disk(self.folder)
        for name in sorted(os.listdir(self.folder / _NEW)):
            self._set_aside(name)  # another process may have created one
            (self.folder / _NEW / name).rename(self.root / name)
        sync_to_disk(self.root)

    def remove(self, root: int) -> None:
        """Remove the stage, its plan first: a stage without a plan is garbage."""
        (self.folder / _PLAN).unlink(missing_ok=True)
        sync_to_disk(self.folder)
        shutil.rmtree(self.folder.name, dir_fd=root)

    def _set_aside(self, name: str) -> None:
        """Move a workspace out of the root, if there is one of that name."""
        target = self.folder / _OLD / name
        if target.exists():
            target = target.with_name(f"{name}.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            (self.root / name).rename(target)


def list_stages(root: Path) -> Iterator[Stage]:
    """Yield the restores that have not finished."""
    for name in sorted(os.listdir(root)):
        if name.startswith(PREFIX):
            yield Stage(root, name.removeprefix(PREFIX))


class Backups:
    """Backups of one agent's knowledge and one root of workspaces, in one folder."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        workspaces: Workspaces,
        folder: BackupFolder,
        *,
        software: str,
        lock_timeout: float = 10.0,
    ) -> None:
        self._store = store
        self._knowledge = store.knowledge(scope)
        self._agent_id = agent_of(scope)
        self._workspaces = workspaces
        self._folder = folder
        self._software = software
        self._lock_timeout = lock_timeout

    async def backup(self) -> Path:
        """Save the current state and return the path of the file."""

        async def lock_and_save() -> Path:
            async with self._lock_and_recover() as root:
                path, _ = await self._save(root)
                return path

        return await run_to_completion(lock_and_save())

    async def restore(self, reference: str) -> Path:
        """Restore a backup, and return the path of a backup of the state before it.

        A file that cannot be restored is refused before anything is changed.
        """
        return await run_to_completion(self._restore(reference))

    async def recover(self) -> None:
        """Finish or undo restores that were interrupted."""

        async def recover_all() -> None:
            async with self._lock_and_recover():
                pass

        if await asyncio.to_thread(lambda: any(list_stages(self._workspaces.root))):
            await run_to_completion(recover_all())

    async def _restore(self, reference: str) -> Path:
        async with self._lock_and_recover() as root:
            _, data = await asyncio.to_thread(self._folder.read, reference)
            backup = await asyncio.to_thread(unseal, data)
            if backup.manifest.agent_id != self._agent_id:
                raise InvalidArgument(
                    f"the backup belongs to agent {backup.manifest.agent_id!r}, "
                    f"not {self._agent_id!r}"
                )
            attempts_left = _ATTEMPTS
            while True:
                previous, version = await self._save(root)
                try:
                    await self._replace(root, backup, version)
                except (MemrecallError, OSError) as error:
                    await asyncio.to_thread(self._folder.remove, previous)
                    attempts_left -= 1
                    # If something was written since, the current state is saved again.
                    if not (attempts_left and isinstance(error, StorageBusy)):
                        raise
                else:
                    return previous

    async def _replace(self, root: int, backup: Backup, version: int) -> None:
        stage = Stage(self._workspaces.root, secrets.token_hex(16))
        plan = {"agent_id": self._agent_id, "database_id": self._store.facts.database_id}
        try:
            await asyncio.to_thread(stage.prepare, root, backup, plan)
            await self._knowledge.replace(backup.entries(), stage.restore_id, version=version)
        except (MemrecallError, OSError):
            # The connection may have broken after the commit: only the database knows.
            if not await self._knowledge.was_restored(stage.restore_id):
                await self._settle(root, stage)
                raise
        await self._settle(root, stage)

    async def _settle(self, root: int, stage: Stage) -> None:
        """Finish a restore if it was decided; otherwise remove its stage."""
        is_decided = await self._knowledge.was_restored(stage.restore_id)
        plan = await asyncio.to_thread(stage.plan)
        if is_decided and plan is not None:
            await asyncio.to_thread(stage.finish, plan)
        if stage.folder.exists():
            await asyncio.to_thread(stage.remove, root)
        if is_decided:
            await self._knowledge.close_restore(stage.restore_id)

    async def _save(self, root: int) -> tuple[Path, int]:
        """Write a backup; return its path and the number of the last change in it."""
        snapshot = await self._knowledge.snapshot()
        content = await asyncio.to_thread(self._gather, root, snapshot.entries)
        data = await asyncio.to_thread(seal, content)
        path = await asyncio.to_thread(self._folder.write, data)
        return path, snapshot.version

    def _gather(self, root: int, entries: list[KnowledgeEntry]) -> dict[str, Any]:
        left_out: list[str] = []
        budget = self._folder.largest  # bytes of files that still fit
        knowledge = {entry.knowledge_key: _to_json(entry) for entry in entries}
        workspaces: dict[str, Any] = {}
        for task_id in list_tasks(root):
            saved: dict[str, Any] = {"folders": [], "files": {}}
            for entry in walk(root, task_id):
                path = f"{task_id}/{entry.path}"
                is_readable = entry.is_file and entry.has_valid_name
                data = _read_unchanged(entry, budget) if is_readable else None
                if data is not None:
                    budget -= len(data)
                    file = SavedFile.of(data, entry.status.st_mode & 0o777)
                    saved["files"][entry.path] = file.model_dump(exclude_none=True)
                elif entry.is_folder and entry.has_valid_name:
                    saved["folders"].append(entry.path)
                else:
                    left_out.append(path.encode(errors="replace").decode())
            workspaces[task_id] = saved
        manifest = {
            "created_at": format_time(datetime.now(UTC)),
            "memrecall": self._software,
            "agent_id": self._agent_id,
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
    async def _lock_and_recover(self) -> AsyncIterator[int]:
        """Lock the root of the workspaces exclusively, and settle interrupted restores."""
        stack = ExitStack()
        root = await retry_while_busy(
            lambda: stack.enter_context(self._workspaces.lock(exclusive=True)), self._lock_timeout
        )
        with stack:
            await asyncio.to_thread(clear_trash, root)
            for stage in await asyncio.to_thread(lambda: list(list_stages(self._workspaces.root))):
                plan = await asyncio.to_thread(stage.plan)
                if plan is not None and plan.database_id != self._store.facts.database_id:
                    where = self._workspaces.root
                    raise Conflict(
                        f"a restore into another database was interrupted in {where}",
                        hint="Open that database once, or choose another folder for workspaces",
                    )
                await self._settle(root, stage)
            yield root


def _read_unchanged(entry: WorkspaceEntry, budget: int) -> bytes | None:
    """Return a file's bytes; a file that is being written is read again a few times."""
    data: bytes | None = None
    for _ in range(_READ_ATTEMPTS):
        before = entry.fingerprint()
        data = entry.read(budget + 1)
        if before is not None and before == entry.fingerprint():
            break
    if len(data or b"") > budget:
        raise InvalidArgument(
            "the workspaces are too large for a backup", hint="Clean up workspaces"
        )
    return data


def _to_json(entry: KnowledgeEntry) -> dict[str, Any]:
    values = {name: getattr(entry, name) for name in SavedEntry.model_fields}
    times = {name: format_time(values[name]) for name in ("created_at", "updated_at")}
    return {**values, **times}
