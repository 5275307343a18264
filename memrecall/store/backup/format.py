"""The format of a backup file, and the checks that it must pass before it is used."""

import base64
import binascii
import hashlib
import json
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from memrecall.errors import InvalidArgument, describe_validation_error
from memrecall.store.knowledge import NewKnowledge
from memrecall.store.workspaces import is_task_id
from memrecall.text_length import truncate_text

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
