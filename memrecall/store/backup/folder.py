"""The folder of backups: files appear in it whole or not at all, and only its own are read."""

import errno
import os
import re
import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from memrecall.errors import InvalidArgument, NotFound
from memrecall.store.workspaces import PRIVATE, read_regular, typed_os_errors

_NAME = re.compile(r"memory_backup_[0-9]{8}_[0-9]{6}(?:_[0-9]{1,6})?\.json", re.ASCII)
_TEMPORARY = re.compile(r"\.memory_backup_[0-9a-f]{16}\.tmp", re.ASCII)
_STALE_SECONDS = 3_600
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EACCES)


class BackupFolder:
    """One folder; what it gives are names inside it."""

    def __init__(self, folder: Path, largest: int) -> None:
        with typed_os_errors(folder):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self.folder = folder.resolve(strict=True)
        self.largest = largest

    def write(self, data: bytes, now: datetime | None = None) -> Path:
        """Write a new backup, safely on disk when this returns; its path."""
        if len(data) > self.largest:
            raise InvalidArgument(
                f"the backup would have {len(data)} bytes, more than {self.largest}",
                hint="Clean up workspaces, or set backup_mb higher",
            )
        moment = (now or datetime.now(UTC)).strftime("%Y%m%d_%H%M%S")
        with typed_os_errors(self.folder):
            self._sweep()
            temporary = self.folder / f".memory_backup_{secrets.token_hex(8)}.tmp"
            try:
                _write_through(temporary, data)
                path = self._publish(temporary, moment)
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink()
            sync_folder(self.folder)
        return path

    def read(self, named: str) -> tuple[Path, bytes]:
        """A backup of this folder by its name or path; the path, and the bytes."""
        path = self._locate(named)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with typed_os_errors(self.folder):
            try:
                file = os.open(path, flags)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFound(f"there is no backup {path.name}") from None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise InvalidArgument(f"{path.name} is a link, not a backup") from None
                raise
            data = read_regular(file, self.largest + 1)
        if data is None:
            raise InvalidArgument(f"{path.name} is not a file")
        if len(data) > self.largest:
            raise InvalidArgument(
                f"{path.name} is larger than {self.largest} bytes", hint="Set backup_mb higher"
            )
        return path, data

    def remove(self, path: Path) -> None:
        """Take a backup away that nobody was told of."""
        with typed_os_errors(self.folder):
            path.unlink(missing_ok=True)

    def _locate(self, named: str) -> Path:
        """Where a name or path leads, which must be directly into this folder."""
        name = os.path.basename(named)
        if "\0" in named or not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"{named[:200]!a} does not name a backup",
                hint="Give the path that memory_backup returned",
            )
        parent = os.path.dirname(named)
        if parent and os.path.realpath(parent) != str(self.folder):
            raise InvalidArgument(
                f"{named[:200]!a} lies outside the folder of backups",
                hint="Give a file's name, or the path that memory_backup returned",
            )
        return self.folder / name

    def _publish(self, temporary: Path, moment: str) -> Path:
        """Give a finished file the first name that is free; never one that is taken."""
        number = 1
        while True:
            suffix = "" if number == 1 else f"_{number}"
            path = self.folder / f"memory_backup_{moment}{suffix}.json"
            try:
                os.link(temporary, path)
            except FileExistsError:
                number += 1
                continue
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if path.exists():
                    number += 1
                    continue
                temporary.rename(path)  # where the file system has no links
            return path

    def _sweep(self) -> None:
        """Remove what writers that were killed left behind."""
        for entry in os.scandir(self.folder):
            if _TEMPORARY.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < time.time() - _STALE_SECONDS:
                        os.unlink(entry.path)


def _write_through(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make sure that a folder's names survive a loss of power."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
