"""Workspaces: one directory for each task, under one root that nothing leads out of.

A path is never put together from what a caller said and then followed: every step is taken from
an opened directory, by a checked name, and no step follows a link.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memrecall.errors import (
    Conflict,
    InvalidArgument,
    NotFound,
    StorageError,
    StorageFull,
    StorageReadOnly,
)
from memrecall.store.locks import folder_lock
from memrecall.store.task_ids import check_task_id, is_task_id

PRIVATE = 0o700
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not waiting for the other end of a pipe that somebody put there.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRASH = ".trash-"


@dataclass(frozen=True, slots=True)
class Found:
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


def walk(root: int, task_id: str) -> Iterator[Found]:
    """Everything in a workspace, in order; links are told of, never followed."""
    for top, folders, files, opened in os.fwalk(task_id, dir_fd=root, follow_symlinks=False):
        folders.sort()
        inside = top[len(task_id) + 1 :]
        for name in sorted([*folders, *files]):
            try:
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield Found(task_id, f"{inside}/{name}" if inside else name, status, opened, name)


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
