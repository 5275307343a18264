"""Backup and restore of the whole state: an agent's knowledge and all workspaces.

One transaction of the database decides a restore. Before it nothing has changed; after it, the next
process that opens the workspaces finishes the restore, even if this one was killed.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from memrecall.errors import (
    Conflict,
    InvalidArgument,
    MemrecallError,
    StorageBusy,
    describe_validation_error,
)
from memrecall.scope import Scope
from memrecall.store.backup.folder import BackupFolder, sync_to_disk, write_synced
from memrecall.store.database.locks import agent_of
from memrecall.store.knowledge import KnowledgeEntry, NewKnowledge
from memrecall.store.store import Store
from memrecall.store.workspaces import (
    PRIVATE,
    WorkspaceEntry,
    Workspaces,
    clear_trash,
    is_task_id,
    list_tasks,
    retry_while_busy,
    walk,
)
from memrecall.text_length import truncate_text
from memrecall.types import format_time
from memrecall.workers import run_to_completion

FORMAT = "memrecall-backup"
VERSION = 1
_MAX_DEPTH = 64
_MAX_NAME = 255  # bytes, as file systems have it
_MAX_PATH = 1_024
_CONTROL_CHARACTERS = frozenset(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SavedEntry(_Part):
    """A knowledge entry."""

    content: str
    summary: str
    tags: list[str]
    metadata: dict[str, Any]
    actor: str
    created_at: datetime
    updated_at: datetime


class SavedFile(_Part):
    """A file as text, or as base64 if it is binary."""

    mode: int = Field(ge=0, le=0o777)
    text: str | None = None
    base64: str | None = None

    @classmethod
    def of(cls, data: bytes, mode: int) -> "SavedFile":
        """Return a file with these bytes."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        if text is None or not _CONTROL_CHARACTERS.isdisjoint(text):
            return cls(mode=mode, base64=base64.b64encode(data).decode())
        return cls(mode=mode, text=text)

    def data(self) -> bytes:
        """Return the file's bytes; ValueError unless it has exactly one of text and base64."""
        if (self.text is None) == (self.base64 is None):
            raise ValueError("a file has either text or base64")
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.base64 or "", validate=True)


class SavedWorkspace(_Part):
    """A workspace: its folders, and its files by path."""

    folders: list[str]
    files: dict[str, SavedFile]


class Manifest(BaseModel):
    """What a backup is of, and the checksum of its contents; earlier ones list the files too."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    created_at: datetime
    memrecall: str
    agent_id: str
    left_out: list[str]  # links, pipes and other special files
    sha256: str


class Backup(_Part):
    """A backup: an agent's knowledge and all workspaces."""

    format: Literal["memrecall-backup"]
    version: Literal[1]
    knowledge: dict[str, SavedEntry]
    workspaces: dict[str, SavedWorkspace]
    manifest: Manifest

    def entries(self) -> list[NewKnowledge]:
        """Return the entries to write."""
        return [NewKnowledge(key=key, **dict(saved)) for key, saved in self.knowledge.items()]


def seal(content: dict[str, Any]) -> bytes:
    """Return the bytes of a backup, with the checksum added to its manifest."""
    sealed = {**content, "manifest": {**content["manifest"], "sha256": checksum(content)}}
    return json.dumps(sealed, ensure_ascii=False, separators=(",", ":")).encode()


def checksum(content: dict[str, Any]) -> str:
    """Return the checksum of everything but itself, independent of JSON formatting."""
    manifest = {name: value for name, value in content["manifest"].items() if name != "sha256"}
    canonical = json.dumps({**content, "manifest": manifest}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def unseal(data: bytes) -> Backup:
    """Parse and check a backup; InvalidArgument says what is wrong with it."""
    try:
        content = from_json(data, allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        raise _damaged(f"it is not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _damaged("it was not made by memory_backup")
    if content.get("version") != VERSION:
        raise _damaged(f"its version {content.get('version')!r} is not supported")
    try:
        backup = Backup.model_validate(content)
    except ValidationError as error:
        problem = describe_validation_error(error, quote_value=False)
        raise _damaged(truncate_text(problem, 200)) from None
    if checksum(content) != backup.manifest.sha256:
        raise _damaged("its checksum does not match: it was changed or damaged")
    for entry in backup.entries():
        try:
            entry.row()
        except InvalidArgument as error:
            raise _damaged(f"entry {str(entry.key)[:80]!r}: {error.message}") from None
    for task_id, workspace in backup.workspaces.items():
        _check_workspace(task_id, workspace)
    return backup


def _check_workspace(task_id: str, workspace: SavedWorkspace) -> None:
    if not is_task_id(task_id):
        raise _damaged(f"{task_id[:80]!a} is not a valid workspace name")
    folders = set(workspace.folders)
    for path in (*workspace.folders, *workspace.files):
        parts = _split_path(path)
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if not folders.isdisjoint(workspace.files):
        raise _damaged(f"workspace {task_id!r} has a file and a folder with the same name")
    for path, saved in workspace.files.items():
        try:
            saved.data()
        except (ValueError, binascii.Error):
            raise _damaged(f"the file {path[:80]!r} cannot be read") from None


def _split_path(path: str) -> list[str]:
    """Return the parts of a path that stays inside; InvalidArgument for any other."""
    parts = path.split("/")
    is_safe = all(
        part not in ("", ".", "..") and "\0" not in part and len(part.encode()) <= _MAX_NAME
        for part in parts
    )
    if not is_safe or len(parts) > _MAX_DEPTH or len(path) > _MAX_PATH:
        raise _damaged(f"the path {path[:80]!a} is not allowed")
    return parts


def _damaged(reason: str) -> InvalidArgument:
    return InvalidArgument(
        f"the file is not a backup that can be restored: {reason}", hint="Use another backup"
    )


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
