"""The folder of backups: files appear in it complete or not at all."""

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
_TEMPORARY_NAME = re.compile(r"\.memory_backup_[0-9a-f]{16}\.tmp", re.ASCII)
LARGEST_BACKUP = 256 * 1024 * 1024  # bytes
_STALE_SECONDS = 3_600
_LINK_ERRORS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EACCES)


class BackupFolder:
    """One folder of backups; only files directly inside it are read."""

    def __init__(self, folder: Path, largest: int = LARGEST_BACKUP) -> None:
        with typed_os_errors(folder):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self.folder = folder.resolve(strict=True)
        self.largest = largest

    def write(self, data: bytes, now: datetime | None = None) -> Path:
        """Write a new backup to disk and return its path."""
        if len(data) > self.largest:
            raise InvalidArgument(
                f"the backup would have {len(data)} bytes, more than {self.largest}",
                hint="Clean up workspaces",
            )
        moment = (now or datetime.now(UTC)).strftime("%Y%m%d_%H%M%S")
        with typed_os_errors(self.folder):
            self._remove_stale()
            temporary = self.folder / f".memory_backup_{secrets.token_hex(8)}.tmp"
            try:
                write_synced(temporary, data)
                path = self._publish(temporary, moment)
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink()
            sync_folder(self.folder)
        return path

    def read(self, reference: str) -> tuple[Path, bytes]:
        """Return the path and the bytes of a backup, given its name or path."""
        path = self._locate(reference)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with typed_os_errors(self.folder):
            try:
                file = os.open(path, flags)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFound(
                    f"there is no backup {path.name}", hint="Check the backup folder"
                ) from None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise InvalidArgument(f"{path.name} is a link, not a backup") from None
                raise
            data = read_regular(file, self.largest + 1)
        if data is None:
            raise InvalidArgument(f"{path.name} is not a file")
        if len(data) > self.largest:
            raise InvalidArgument(
                f"{path.name} is larger than {self.largest} bytes", hint="Check the file"
            )
        return path, data

    def remove(self, path: Path) -> None:
        """Remove a backup that was not returned to anybody."""
        with typed_os_errors(self.folder):
            path.unlink(missing_ok=True)

    def _locate(self, reference: str) -> Path:
        """Return the path of a name or path, which must be directly in this folder."""
        name = os.path.basename(reference)
        if "\0" in reference or not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"{reference[:200]!a} does not name a backup",
                hint="Pass the path that memory_backup returned",
            )
        parent = os.path.dirname(reference)
        if parent and os.path.realpath(parent) != str(self.folder):
            raise InvalidArgument(
                f"{reference[:200]!a} is outside the backup folder",
                hint="Pass a file name, or the path that memory_backup returned",
            )
        return self.folder / name

    def _publish(self, temporary: Path, moment: str) -> Path:
        """Rename a finished file to the first free name, and never overwrite another."""
        number = 1
        while True:
            suffix = "" if number == 1 else f"_{number}"
            path = self.folder / f"memory_backup_{moment}{suffix}.json"
            try:
                publish(temporary, path)
            except FileExistsError:
                number += 1
                continue
            return path

    def _remove_stale(self) -> None:
        """Remove the temporary files of writers that were killed."""
        for entry in os.scandir(self.folder):
            if _TEMPORARY_NAME.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < time.time() - _STALE_SECONDS:
                        os.unlink(entry.path)


def publish(temporary: Path, path: Path) -> None:
    """Give a finished file its name; FileExistsError instead of overwriting another."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _LINK_ERRORS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.rename(path)  # the file system has no hard links


def write_synced(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Create a file that survives a loss of power once its folder is synced."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder survive a loss of power."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Make sure that a file or folder survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
