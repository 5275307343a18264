"""A backup as data: what is in the file, and the checks that a file must pass before it is used."""

import base64
import binascii
import hashlib
import json
import re
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from memrecall.errors import InvalidArgument
from memrecall.store.knowledge.entries import NewKnowledge

LONGEST = 64
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?", re.ASCII)
# Names that mean a device on Windows, with any ending.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9])(?:\..*)?", re.I)


def is_task_id(name: str) -> bool:
    """Whether this can be a task's id, and so a directory's name."""
    if not 1 <= len(name) <= LONGEST or not _NAME.fullmatch(name):
        return False
    return not _DEVICE.fullmatch(name)


def check_task_id(name: str) -> str:
    """Return the name if it can be a task's id; no other ever becomes part of a path."""
    if not is_task_id(name):
        raise InvalidArgument(
            f"task_id {name[:80]!a} is not a name for a workspace",
            hint=f"Use 1 to {LONGEST} of A-Z, a-z, 0-9, '.', '_' and '-', beginning with a letter"
            " or digit, not ending with '.', and no name of a device",
        )
    return name


FORMAT = "memrecall-backup"
VERSION = 1
_DEEPEST = 64
_LONGEST_NAME = 255  # bytes, as file systems have it
_LONGEST_PATH = 1_024
_UNWRITABLE = frozenset(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))


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
    """A file: its text, or its bytes where it is no text."""

    mode: int = Field(ge=0, le=0o777)
    text: str | None = None
    base64: str | None = None

    @classmethod
    def of(cls, data: bytes, mode: int) -> "SavedFile":
        """A file of these bytes."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        if text is None or not _UNWRITABLE.isdisjoint(text):
            return cls(mode=mode, base64=base64.b64encode(data).decode())
        return cls(mode=mode, text=text)

    def data(self) -> bytes:
        """The file's bytes; ValueError if it has none or two."""
        if (self.text is None) == (self.base64 is None):
            raise ValueError("a file has its text or its bytes")
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.base64 or "", validate=True)


class SavedWorkspace(_Part):
    """A workspace: its folders and its files by their paths."""

    folders: list[str]
    files: dict[str, SavedFile]


class FileSum(_Part):
    """By which a file is recognised."""

    size: int
    sha256: str


class Manifest(_Part):
    """What a backup contains, and the checksum of all of it."""

    created_at: datetime
    memrecall: str
    agent_id: str
    entries: int
    workspaces: int
    files: dict[str, FileSum]
    left_out: list[str]  # links, pipes and the like, which a backup does not hold
    sha256: str


class Backup(_Part):
    """The whole state: what an agent knows, and all workspaces."""

    format: Literal["memrecall-backup"]
    version: Literal[1]
    knowledge: dict[str, SavedEntry]
    workspaces: dict[str, SavedWorkspace]
    manifest: Manifest

    def entries(self) -> list[NewKnowledge]:
        """The entries as they are written again."""
        return [
            NewKnowledge(
                saved.content,
                saved.summary,
                tuple(saved.tags),
                saved.metadata,
                key,
                saved.actor,
                saved.created_at,
                saved.updated_at,
            )
            for key, saved in self.knowledge.items()
        ]


def seal(content: dict[str, Any]) -> bytes:
    """The bytes of a backup whose manifest has no checksum yet."""
    sealed = {**content, "manifest": {**content["manifest"], "sha256": checksum(content)}}
    return json.dumps(sealed, ensure_ascii=False, separators=(",", ":")).encode()


def checksum(content: dict[str, Any]) -> str:
    """The checksum of everything but itself, however it is written down."""
    manifest = {name: value for name, value in content["manifest"].items() if name != "sha256"}
    canonical = json.dumps({**content, "manifest": manifest}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def unseal(data: bytes) -> Backup:
    """The backup that these bytes are; InvalidArgument says why they are none."""
    try:
        content = from_json(data, allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        raise _damaged(f"it is not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _damaged("it was not made by memory_backup")
    if content.get("version") != VERSION:
        raise _damaged(f"its version {content.get('version')!r} is not known here")
    try:
        backup = Backup.model_validate(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))[:200]
        raise _damaged(f"{where} is missing or wrong") from None
    if checksum(content) != backup.manifest.sha256:
        raise _damaged("its checksum does not fit: it was changed or damaged")
    _check_counts(backup)
    _check_entries(backup)
    for task_id, workspace in backup.workspaces.items():
        _check_workspace(backup, task_id, workspace)
    return backup


def _check_counts(backup: Backup) -> None:
    manifest = backup.manifest
    files = {f"{task}/{path}" for task, saved in backup.workspaces.items() for path in saved.files}
    said = (manifest.entries, manifest.workspaces, set(manifest.files))
    if said != (len(backup.knowledge), len(backup.workspaces), files):
        raise _damaged("its manifest names other things than it contains")


def _check_entries(backup: Backup) -> None:
    for entry in backup.entries():
        try:
            entry.row()
        except InvalidArgument as error:
            raise _damaged(f"entry {str(entry.key)[:80]!r}: {error.message}") from None


def _check_workspace(backup: Backup, task_id: str, workspace: SavedWorkspace) -> None:
    if not is_task_id(task_id):
        raise _damaged(f"{task_id[:80]!a} is not a name for a workspace")
    folders = set(workspace.folders)
    for path in (*workspace.folders, *workspace.files):
        parts = _parts(path)
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if not folders.isdisjoint(workspace.files):
        raise _damaged(f"workspace {task_id!r} has a file and a folder of one name")
    for path, saved in workspace.files.items():
        told = backup.manifest.files[f"{task_id}/{path}"]
        try:
            data = saved.data()
        except (ValueError, binascii.Error):
            raise _damaged(f"the file {path[:80]!r} cannot be read") from None
        if FileSum(size=len(data), sha256=hashlib.sha256(data).hexdigest()) != told:
            raise _damaged(f"the file {path[:80]!r} is not the one that was saved")


def _parts(path: str) -> list[str]:
    """The steps of a path that stays inside; InvalidArgument for any other."""
    parts = path.split("/")
    sound = all(
        part not in ("", ".", "..") and "\0" not in part and len(part.encode()) <= _LONGEST_NAME
        for part in parts
    )
    if not sound or len(parts) > _DEEPEST or len(path) > _LONGEST_PATH:
        raise _damaged(f"the path {path[:80]!a} leads astray")
    return parts


def _damaged(why: str) -> InvalidArgument:
    return InvalidArgument(f"the file is not a backup that can be restored: {why}")
