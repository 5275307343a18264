"""Reading workspaces: searching their text files, and showing them whole, both within bounds."""

import asyncio
import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from memrecall.store.backup.format import check_task_id, is_task_id
from memrecall.text.normalize import normalize

Result = TypeVar("Result")

NAME = ".lock"
_PAUSE = 0.02


class FolderBusy(StorageBusy):
    """Others have the folder in a way that keeps us out."""


@contextmanager
def folder_lock(folder: int, *, alone: bool) -> Iterator[None]:
    """Hold the lock of an opened folder; FolderBusy if it is not to be had now."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(NAME, flags, 0o600, dir_fd=folder)
    try:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderBusy("the workspaces are in use", hint="Try again") from None
        yield
    finally:
        os.close(file)  # and with it the lock


async def when_free(work: Callable[[], Result], patience: float) -> Result:
    """Do work in a thread that needs a folder's lock; FolderBusy after so many seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return await asyncio.to_thread(work)
        except FolderBusy:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_PAUSE)


PRIVATE = 0o700
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not waiting for the other end of a pipe that somebody put there.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRASH = ".trash-"


@dataclass(frozen=True, slots=True)
class WorkspaceEntry:
    """Something in a workspace: `folder` is open while it is looked at."""

    task_id: str
    path: str  # inside the workspace, with slashes
    status: os.stat_result
    folder: int
    name: str

    @property
    def is_file(self) -> bool:
        """Whether it is an ordinary file: no link, pipe, socket or device."""
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_nameable(self) -> bool:
        """Whether its name is text."""
        try:
            self.path.encode()
        except UnicodeEncodeError:
            return False
        return True

    def look(self) -> tuple[int, int, int] | None:
        """What tells whether somebody is writing it; None if it is gone."""
        try:
            status = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def read(self, limit: int) -> bytes | None:
        """Its first `limit` bytes; None if it is no ordinary file by now, or may not be read."""
        try:
            file = os.open(self.name, _FILE, dir_fd=self.folder)
        except OSError:  # gone, or exchanged for a link meanwhile
            return None
        return read_regular(file, limit)


class Workspaces:
    """The workspaces under one root. Nothing here waits: FolderBusy if others keep us out."""

    def __init__(self, root: Path) -> None:
        with typed_os_errors(root):
            root.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self.root = root.resolve(strict=True)

    def create(self, task_id: str) -> Path:
        """Make a fresh workspace; Conflict if the task has one."""
        check_task_id(task_id)
        with self.hold() as root:
            try:
                os.mkdir(task_id, PRIVATE, dir_fd=root)
            except FileExistsError:
                raise Conflict(
                    f"task {task_id!r} has a workspace already", hint="Clean it up first"
                ) from None
            folder = os.open(task_id, _DIRECTORY, dir_fd=root)
            try:
                os.fchmod(folder, PRIVATE)  # whatever the umask took away
            finally:
                os.close(folder)
        return self.root / task_id

    def remove(self, task_id: str) -> Path:
        """Remove a workspace with all that is in it; NotFound if the task has none."""
        check_task_id(task_id)
        with self.hold() as root:
            if not _is_folder(root, task_id):
                raise NotFound(f"task {task_id!r} has no workspace")
            # Gone at once: what is then removed bit by bit has no task's name.
            trash = _TRASH + secrets.token_hex(8)
            os.rename(task_id, trash, src_dir_fd=root, dst_dir_fd=root)
            remove_tree(root, trash)
        return self.root / task_id

    def names(self) -> list[str]:
        """The tasks that have a workspace, in order."""
        with self.hold() as root:
            return list_tasks(root)

    @contextmanager
    def hold(self, *, alone: bool = False) -> Iterator[int]:
        """The opened root, with others or alone; the world's faults have our names inside."""
        with typed_os_errors(self.root):
            root = os.open(self.root, _DIRECTORY)
            try:
                with folder_lock(root, alone=alone):
                    yield root
            finally:
                os.close(root)


def list_tasks(root: int) -> list[str]:
    """The tasks that have a workspace under an opened root, in order."""
    with os.scandir(root) as entries:
        return sorted(
            entry.name
            for entry in entries
            if is_task_id(entry.name) and entry.is_dir(follow_symlinks=False)
        )


def walk(root: int, task_id: str) -> Iterator[WorkspaceEntry]:
    """Everything in a workspace, in order; links are told of, never followed."""
    for top, folders, files, opened in os.fwalk(task_id, dir_fd=root, follow_symlinks=False):
        folders.sort()
        inside = top[len(task_id) + 1 :]
        for name in sorted([*folders, *files]):
            try:
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield WorkspaceEntry(
                task_id, f"{inside}/{name}" if inside else name, status, opened, name
            )


def read_regular(file: int, limit: int) -> bytes | None:
    """The first `limit` bytes of an opened file, which is closed; None if it is no ordinary one."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with open(file, "rb") as opened:
        return opened.read(limit)


def remove_tree(root: int, name: str) -> None:
    """Remove a directory with all that is in it, following nothing out of it."""
    shutil.rmtree(name, dir_fd=root)


def clear_trash(root: int) -> None:
    """Finish the removals that were cut short."""
    with os.scandir(root) as entries:
        left = [entry.name for entry in entries if entry.name.startswith(_TRASH)]
    for name in left:
        remove_tree(root, name)


def _is_folder(root: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def typed_os_errors(place: Path) -> Iterator[None]:
    """Give the system's errors the names that callers know."""
    try:
        yield
    except OSError as error:
        raise _typed(error, place) from error


def _typed(error: OSError, place: Path) -> Exception:
    said = f"{place}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(f"no space is left in {place}", hint="Nothing was changed")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StorageReadOnly(said, hint="Choose a folder that may be written")
    if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
        return InvalidArgument(f"{said}: it is not a folder", hint="Choose another one")
    return StorageError(said)


_LOOKED_AT = 8_192  # bytes that tell whether a file is text
_SNIPPET = 240  # characters


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
    """A file that a query was found in, with the line that says most of it."""

    key: str  # task_id/relative/path
    line: int
    snippet: str
    words: int  # of the query in that line
    whole: bool  # the query as it stands is in that line


@dataclass(slots=True)
class WorkspaceReading:
    """What a reading found, and what it left out."""

    hits: list[FileHit] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    seen: int = 0

    def skip(self, why: str) -> None:
        """Count a file that was not read."""
        self.left_out[why] = self.left_out.get(why, 0) + 1


def search_files(workspaces: Workspaces, query: str, limits: ReadLimits) -> WorkspaceReading:
    """The files that have every word of a query, whatever the case; the best first."""
    words = fold(query).split()
    reading = WorkspaceReading()
    with workspaces.hold() as root:
        for found in _files(root, reading, limits.files):
            text = _text_of(found, reading, limits)
            hit = None if text is None else _match(found, text, words)
            if hit is not None:
                reading.hits.append(hit)
    reading.hits.sort(key=lambda hit: (not hit.whole, -hit.words, hit.key))
    for _ in reading.hits[limits.hits :]:
        reading.skip("more hits")
    del reading.hits[limits.hits :]
    return reading


def show_files(workspaces: Workspaces, limits: ReadLimits) -> WorkspaceReading:
    """Every workspace with its files: their size, and their text as far as there is room."""
    reading = WorkspaceReading()
    with workspaces.hold() as root:
        reading.files = {task_id: {} for task_id in list_tasks(root)}
        for found in _files(root, reading, limits.shown_files):
            shown: dict[str, Any] = {"size": found.status.st_size}
            room = min(limits.shown_bytes, limits.shown_total - reading.bytes)
            data = found.read(room + 1) if room > 0 else None
            text = None if data is None else _decode(data[: max(room, 0)], cut=len(data) > room)
            if text is not None:
                reading.bytes += len(text.encode())
                shown["text"] = text
            if text is None or len(data or b"") > room:
                why = "binary files" if data is not None and text is None else "texts cut short"
                shown["left_out"] = why
                reading.skip(why)
            reading.files[found.task_id][found.path] = shown
    return reading


def fold(text: str) -> str:
    """Text as it is compared: one form of each character, no case."""
    return normalize(text).casefold()


def _files(root: int, reading: WorkspaceReading, most: int) -> Iterator[WorkspaceEntry]:
    """The ordinary files of all workspaces, as many as may be looked at."""
    for task_id in list_tasks(root):
        for found in walk(root, task_id):
            if found.is_folder:
                continue
            if not found.is_file or not found.is_nameable:
                reading.skip("links and special files")
            elif reading.seen >= most:
                reading.skip("more files")
            else:
                reading.seen += 1
                yield found


def _text_of(found: WorkspaceEntry, reading: WorkspaceReading, limits: ReadLimits) -> str | None:
    size = found.status.st_size
    if size > limits.file_bytes or reading.bytes + size > limits.total_bytes:
        reading.skip("large files")
        return None
    data = found.read(limits.file_bytes)
    text = None if data is None else _decode(data, cut=False)
    if data is None or text is None:
        reading.skip("binary files" if data is not None else "unreadable files")
        return None
    reading.bytes += len(data)
    return text


def _decode(data: bytes, *, cut: bool) -> str | None:
    """The bytes as text; None if they are none. What was cut may end inside a character."""
    if b"\0" in data[:_LOOKED_AT]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if cut and error.start >= len(data) - 3:
            return data[: error.start].decode()
        return None


def _match(found: WorkspaceEntry, text: str, words: list[str]) -> FileHit | None:
    folded = fold(text)
    if not words or not all(word in folded for word in words):
        return None
    phrase = " ".join(words)
    best: tuple[bool, int, int, str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        said = fold(line)
        score = (phrase in said, sum(word in said for word in words), -number, line)
        if best is None or score[:3] > best[:3]:
            best = score
    if best is None:
        return None
    key = f"{found.task_id}/{found.path}"
    return FileHit(key, -best[2], _cut(best[3], words), best[1], best[0])


def _cut(line: str, words: list[str]) -> str:
    """The part of a long line where the query begins."""
    line = line.strip()
    if len(line) <= _SNIPPET:
        return line
    places = [fold(line).find(word) for word in words]
    start = max(0, min((place for place in places if place >= 0), default=0) - 40)
    return ("…" if start else "") + line[start : start + _SNIPPET] + "…"
