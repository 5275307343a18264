"""Backup and restore of the whole state: what an agent knows, and all workspaces.

A restore is decided by one transaction of the database. Until then nothing has changed; from then
on it is finished by whoever comes next, if need be after the process was killed.
"""

import asyncio
import hashlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memrecall.errors import Conflict, InvalidArgument, MemrecallError, StorageBusy
from memrecall.scope import Scope
from memrecall.store.backup.folder import BackupFolder, sync_folder
from memrecall.store.backup.format import FORMAT, VERSION, Backup, SavedFile, seal, unseal
from memrecall.store.database.locks import agent_of
from memrecall.store.knowledge.entries import KnowledgeEntry
from memrecall.store.store import Store
from memrecall.store.workspaces import (
    PRIVATE,
    WorkspaceEntry,
    Workspaces,
    clear_trash,
    list_tasks,
    remove_tree,
    walk,
    when_free,
)
from memrecall.types import format_time
from memrecall.workers import run_to_completion

PREFIX = ".restore-"
_PLAN = "plan.json"
_PLACING = "placing"
_OLD, _NEW = "old", "new"

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What has to be done once the database has decided."""

    restore_id: str
    agent_id: str
    database_id: str
    old: list[str]


@dataclass(frozen=True, slots=True)
class Stage:
    """One restore's directory under the root of the workspaces."""

    root: Path
    restore_id: str

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.root / f"{PREFIX}{self.restore_id}"

    def prepare(self, root: int, backup: Backup, plan: dict[str, str], at: Step) -> None:
        """Write the new workspaces, and last of all the plan."""
        self.folder.mkdir(mode=PRIVATE)
        for name in (_OLD, _NEW):
            (self.folder / name).mkdir(mode=PRIVATE)
        at("staging")
        for task_id, saved in backup.workspaces.items():
            home = self.folder / _NEW / task_id
            home.mkdir(mode=PRIVATE)
            for path in saved.folders:
                (home / path).mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            for path, file in saved.files.items():
                (home / path).parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
                _write(home / path, file.data(), (file.mode & PRIVATE) | 0o600)
            at("staged a workspace")
        sync_folder(self.folder / _NEW)
        full = RestorePlan(**plan, restore_id=self.restore_id, old=list_tasks(root))
        _write(self.folder / f"{_PLAN}.tmp", json.dumps(asdict(full)).encode(), 0o600)
        at("before the plan")
        (self.folder / f"{_PLAN}.tmp").rename(self.folder / _PLAN)
        sync_folder(self.folder)
        sync_folder(self.root)
        at("planned")

    def plan(self) -> RestorePlan | None:
        """The plan; None if it was not finished, and so nothing was decided."""
        try:
            return RestorePlan(**json.loads((self.folder / _PLAN).read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def finish(self, root: int, plan: RestorePlan, at: Step) -> None:
        """Put the new workspaces in the place of the old; may be repeated at any point."""
        marker = self.folder / _PLACING
        if not marker.exists():
            # Once new ones are being placed, a name under the root is no longer an old one's.
            for name in plan.old:
                self._set_aside(name)
                at("moved an old workspace")
            sync_folder(self.root)
            marker.touch(mode=0o600)
            sync_folder(self.folder)
        at("placing")
        for name in sorted(os.listdir(self.folder / _NEW)):
            self._set_aside(name)  # somebody may have made one of that name meanwhile
            (self.folder / _NEW / name).rename(self.root / name)
            at("placed a workspace")
        sync_folder(self.root)

    def remove(self, root: int, at: Step) -> None:
        """Remove the stage, its plan first: what is left is then recognised as rubbish."""
        (self.folder / _PLAN).unlink(missing_ok=True)
        sync_folder(self.folder)
        at("without a plan")
        remove_tree(root, self.folder.name)
        at("removed")

    def _set_aside(self, name: str) -> None:
        """Take away what lies under the root by that name; nothing may be there any more."""
        target = self.folder / _OLD / name
        if target.exists():
            target = target.with_name(f"{name}.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            (self.root / name).rename(target)


def _write(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def stages(root: Path) -> Iterator[Stage]:
    """The restores that did not come to their end, or have not yet."""
    for name in sorted(os.listdir(root)):
        if name.startswith(PREFIX):
            yield Stage(root, name.removeprefix(PREFIX))


_TRIES = 3
_SETTLING = 3  # readings of a file that somebody is writing


@dataclass(frozen=True, slots=True)
class _Saved:
    """A backup just made, and the number of the last change in it."""

    path: Path
    version: int


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
        return await run_to_completion(self._backup())

    async def restore(self, named: str) -> Path:
        """Replace the state by that of a backup; the path of a backup of the former state.

        Anything wrong with the file is found before anything is touched.
        """
        return await run_to_completion(self._restore(named))

    async def recover(self) -> None:
        """Finish or undo the restores that were cut short; costs a look where there are none."""
        if await asyncio.to_thread(lambda: any(stages(self._workspaces.root))):
            await run_to_completion(self._recover_alone())

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


def _settled(found: WorkspaceEntry, budget: _Budget) -> bytes | None:
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
