"""Workspaces: a directory for each task, searched and shown as text within limits."""

import asyncio
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from memrecall.errors import (
    Conflict,
    InvalidArgument,
    NotFound,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
)
from memrecall.text.tokens import normalize_caseless
from memrecall.text_length import ELLIPSIS, truncate_text
from memrecall.timing import seconds_left

_Result = TypeVar("_Result")

PRIVATE = 0o700
_LOCK_FILE = ".lock"
_TRASH_PREFIX = ".trash-"
_RETRY_SECONDS = 0.02
_LOCK_SECONDS = 10.0
_SAMPLE_BYTES = 8_192  # that show whether a file is text
_SNIPPET_LENGTH = 240
_OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would wait for its other end.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TASK_ID_LENGTH = 64
_TASK_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?", re.ASCII)
# Names of devices on Windows, with any suffix.
_DEVICE_NAME = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9])(?:\..*)?", re.I)


def is_task_id(name: str) -> bool:
    """Return True if a name can be the id of a task, and so the name of a directory."""
    if not 1 <= len(name) <= _TASK_ID_LENGTH or not _TASK_ID.fullmatch(name):
        return False
    return not _DEVICE_NAME.fullmatch(name)


def require_task_id(name: str) -> None:
    """Raise InvalidArgument unless a name can be the id of a task."""
    if not is_task_id(name):
        raise InvalidArgument(
            f"task_id {name[:80]!a} is not a valid workspace name",
            hint=f"Use 1 to {_TASK_ID_LENGTH} of A-Z, a-z, 0-9, '.', '_' and '-', beginning with a"
            " letter or digit, not ending with '.', and not a device name",
        )


class FolderBusy(StorageBusy):
    """Another process holds a lock of the folder."""


async def retry_while_busy(work: Callable[[], _Result], seconds: float = _LOCK_SECONDS) -> _Result:
    """Run work in a thread until it gets a folder's lock; FolderBusy after so long."""
    deadline = time.monotonic() + seconds_left(seconds)
    while True:
        try:
            return await asyncio.to_thread(work)
        except FolderBusy:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


@dataclass(frozen=True, slots=True)
class WorkspaceEntry:
    """A file, folder or link in a workspace; `folder` is open while entries are walked."""

    task_id: str
    path: str  # inside the workspace, with slashes
    status: os.stat_result
    folder: int
    name: str

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, not a link, pipe, socket or device."""
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def has_valid_name(self) -> bool:
        """Whether its name is valid text."""
        try:
            self.path.encode()
        except UnicodeEncodeError:
            return False
        return True

    def fingerprint(self) -> tuple[int, int, int] | None:
        """Return a value that changes when the file is written; None if it is gone."""
        try:
            status = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def read(self, limit: int) -> bytes | None:
        """Return the first `limit` bytes; None if it is not a readable regular file."""
        try:
            file = os.open(self.name, _OPEN_FILE, dir_fd=self.folder)
        except OSError:  # removed, or replaced by a link since then
            return None
        return read_regular(file, limit)


class Workspaces:
    """The workspaces under one root. No method waits: FolderBusy if the root is locked."""

    def __init__(self, root: Path) -> None:
        with typed_os_errors(root):
            root.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self.root = root.resolve(strict=True)

    def create(self, task_id: str) -> Path:
        """Create an empty workspace; Conflict if the task has one."""
        require_task_id(task_id)
        with self.lock() as root:
            try:
                os.mkdir(task_id, PRIVATE, dir_fd=root)
            except FileExistsError:
                raise Conflict(
                    f"task {task_id!r} already has a workspace", hint="Clean it up first"
                ) from None
            folder = os.open(task_id, _OPEN_FOLDER, dir_fd=root)
            try:
                os.fchmod(folder, PRIVATE)  # whatever the umask removed
            finally:
                os.close(folder)
        return self.root / task_id

    def remove(self, task_id: str) -> Path:
        """Remove a workspace with its content; NotFound if the task has none."""
        require_task_id(task_id)
        with self.lock() as root:
            if task_id not in list_tasks(root):
                raise NotFound(f"task {task_id!r} has no workspace", hint="Check the task id")
            # The rename removes it at once; deleting its files may take a while or be interrupted.
            trash = _TRASH_PREFIX + secrets.token_hex(8)
            os.rename(task_id, trash, src_dir_fd=root, dst_dir_fd=root)
            shutil.rmtree(trash, dir_fd=root)
        return self.root / task_id

    def names(self) -> list[str]:
        """Return the tasks that have a workspace, sorted."""
        with self.lock() as root:
            return list_tasks(root)

    @contextmanager
    def lock(self, *, exclusive: bool = False) -> Iterator[int]:
        """Open the root and lock it; errors of the system are raised as typed ones."""
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        with typed_os_errors(self.root), ExitStack() as stack:
            root = os.open(self.root, _OPEN_FOLDER)
            stack.callback(os.close, root)
            file = os.open(_LOCK_FILE, _OPEN_LOCK, 0o600, dir_fd=root)
            stack.callback(os.close, file)  # this releases the lock
            try:
                fcntl.flock(file, mode | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderBusy("the workspaces are in use", hint="Try again") from None
            yield root


def list_tasks(root: int) -> list[str]:
    """Return the tasks that have a workspace under an open root, sorted."""
    with os.scandir(root) as entries:
        return sorted(
            entry.name
            for entry in entries
            if is_task_id(entry.name) and entry.is_dir(follow_symlinks=False)
        )


def walk(root: int, task_id: str) -> Iterator[WorkspaceEntry]:
    """Yield everything in a workspace, sorted; links are yielded but never followed."""
    for top, folders, files, folder in os.fwalk(task_id, dir_fd=root, follow_symlinks=False):
        folders.sort()
        inside = top[len(task_id) + 1 :]
        for name in sorted([*folders, *files]):
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            path = f"{inside}/{name}" if inside else name
            yield WorkspaceEntry(task_id, path, status, folder, name)


def read_regular(file: int, limit: int) -> bytes | None:
    """Return the first bytes of an open file and close it; None if it is not a regular one."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with open(file, "rb") as stream:
        return stream.read(limit)


def clear_trash(root: int) -> None:
    """Finish the removals that were interrupted."""
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(_TRASH_PREFIX)]
    for name in names:
        shutil.rmtree(name, dir_fd=root)


@contextmanager
def typed_os_errors(place: Path) -> Iterator[None]:
    """Raise errors of the system as errors of memrecall that name the folder."""
    try:
        yield
    except OSError as error:
        message = f"{place}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "Nothing was changed"
            raise StorageFull(f"no space is left in {place}", hint=hint) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise StorageReadOnly(message, hint="Choose a folder that may be written") from error
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
            message += ": it is not a folder"
            raise InvalidArgument(message, hint="Choose another one") from error
        raise StorageError(message) from error


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What one reading of the workspaces may cost."""

    file_bytes: int = 1024 * 1024  # larger files are not searched
    total_bytes: int = 64 * 1024 * 1024
    files: int = 20_000
    hits: int = 50
    shown_bytes: int = 64 * 1024  # of each file
    shown_total: int = 2 * 1024 * 1024
    shown_files: int = 2_000


@dataclass(frozen=True, slots=True)
class FileHit:
    """A file that matches a query, with its best line."""

    key: str  # task_id/relative/path
    line: int
    snippet: str
    words: int  # of the query in that line
    whole: bool  # whether the line has the words of the query in sequence


@dataclass(slots=True)
class WorkspaceReading:
    """The result of a reading, and the number of files left out by reason."""

    hits: list[FileHit] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    file_count: int = 0

    def skip(self, reason: str) -> None:
        """Count a file that was not read."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


def search_files(workspaces: Workspaces, query: str, limits: ReadLimits) -> WorkspaceReading:
    """Return the files that contain every word of a query in any case, best first."""
    words = normalize_caseless(query).split()
    reading = WorkspaceReading()
    with workspaces.lock() as root:
        for entry in _iterate_files(root, reading, limits.files):
            text = _read_text(entry, reading, limits)
            hit = None if text is None else _match(entry, text, words)
            if hit is not None:
                reading.hits.append(hit)
    reading.hits.sort(key=lambda hit: (not hit.whole, -hit.words, hit.key))
    for _ in reading.hits[limits.hits :]:
        reading.skip("more hits")
    del reading.hits[limits.hits :]
    return reading


def show_files(workspaces: Workspaces, limits: ReadLimits) -> WorkspaceReading:
    """Return every file of every workspace with its size and, within limits, its text."""
    reading = WorkspaceReading()
    with workspaces.lock() as root:
        reading.files = {task_id: {} for task_id in list_tasks(root)}
        for entry in _iterate_files(root, reading, limits.shown_files):
            item: dict[str, Any] = {"size": entry.status.st_size}
            budget = min(limits.shown_bytes, limits.shown_total - reading.bytes)
            data = entry.read(budget + 1) if budget > 0 else None
            is_cut = len(data or b"") > budget
            text = None if data is None else _decode(data[: max(budget, 0)], is_cut=is_cut)
            if text is not None:
                reading.bytes += len(text.encode())
                item["text"] = text
            if text is None or is_cut:
                reason = "binary files" if data is not None and text is None else "texts cut short"
                item["left_out"] = reason
                reading.skip(reason)
            reading.files[entry.task_id][entry.path] = item
    return reading


def _iterate_files(root: int, reading: WorkspaceReading, limit: int) -> Iterator[WorkspaceEntry]:
    """Yield at most `limit` regular files of all workspaces, and count the others."""
    for task_id in list_tasks(root):
        for entry in walk(root, task_id):
            if entry.is_folder:
                continue
            if not entry.is_file or not entry.has_valid_name:
                reading.skip("links and special files")
            elif reading.file_count >= limit:
                reading.skip("more files")
            else:
                reading.file_count += 1
                yield entry


def _read_text(entry: WorkspaceEntry, reading: WorkspaceReading, limits: ReadLimits) -> str | None:
    size = entry.status.st_size
    if size > limits.file_bytes or reading.bytes + size > limits.total_bytes:
        reading.skip("large files")
        return None
    data = entry.read(limits.file_bytes)
    text = None if data is None else _decode(data, is_cut=False)
    if data is None or text is None:
        reading.skip("binary files" if data is not None else "unreadable files")
        return None
    reading.bytes += len(data)
    return text


def _decode(data: bytes, *, is_cut: bool) -> str | None:
    """Return bytes as text; None if they are binary. Cut bytes may end inside a character."""
    if b"\0" in data[:_SAMPLE_BYTES]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(data) - 3:
            return data[: error.start].decode()
        return None


def _match(entry: WorkspaceEntry, text: str, words: list[str]) -> FileHit | None:
    folded = normalize_caseless(text)
    if not words or not all(word in folded for word in words):
        return None
    phrase = " ".join(words)
    best: tuple[bool, int, int, str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        folded = normalize_caseless(line)
        score = (phrase in folded, sum(word in folded for word in words), -number, line)
        if best is None or score[:3] > best[:3]:
            best = score
    if best is None:
        return None
    is_whole, count, place, line = best
    snippet = line.strip()
    if len(snippet) > _SNIPPET_LENGTH:  # it begins where the query does
        positions = [normalize_caseless(snippet).find(word) for word in words]
        found = min((position for position in positions if position >= 0), default=0)
        start = max(0, found - 40)
        snippet = (ELLIPSIS if start else "") + truncate_text(snippet[start:], _SNIPPET_LENGTH)
    return FileHit(f"{entry.task_id}/{entry.path}", -place, snippet, count, is_whole)
