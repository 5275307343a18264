"""Folders of backups: files appear in them complete or not at all.

A backup of a database is written to a draft first: a hidden file in the same folder, which a killed
process leaves behind. It may be a full copy of the database. The draft's lock file says that it is
memrecall's, and the lock whether the process that writes it is alive.
"""

import asyncio
import errno
import fcntl
import json
import logging
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, delete, select

from memrecall.errors import InvalidArgument, MemrecallError, NotFound
from memrecall.store.database.engine import Database
from memrecall.store.database.statements import insert_missing
from memrecall.store.database.tables import meta
from memrecall.store.workspaces import PRIVATE, read_regular, typed_os_errors

_NAME = re.compile(r"memory_backup_[0-9]{8}_[0-9]{6}(?:_[0-9]{1,6})?\.json", re.ASCII)
_TEMPORARY_NAME = re.compile(r"\.memory_backup_[0-9a-f]{16}\.tmp", re.ASCII)
LARGEST_BACKUP = 256 * 1024 * 1024  # bytes
_STALE_SECONDS = 3_600
_LINK_ERRORS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EACCES)
BACKUP_FOLDERS = "backup_folders"  # a row of `memrecall_meta`: where drafts may be
_DRAFT_NAME = re.compile(r"(?P<draft>\..+\.[0-9a-f]{8}\.tmp)(?:-wal|-shm|-journal|-lock)?")
_DRAFT_SUFFIXES = ("", "-wal", "-shm", "-journal", "-lock")  # the lock last: it guards the others
_LOCK_TEXT = b"the lock of an unfinished backup of memrecall\n"
_NOTED_FOLDERS = select(meta.c.value).where(meta.c.name == BACKUP_FOLDERS)

log = logging.getLogger(__name__)


class BackupFolder:
    """One folder of backups; only files directly inside it are read."""

    def __init__(self, folder: Path, largest: int = LARGEST_BACKUP) -> None:
        with typed_os_errors(folder):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self.folder = folder.resolve(strict=True)
        self.largest = largest

    def write(self, data: bytes) -> Path:
        """Write a new backup to disk and return its path."""
        if len(data) > self.largest:
            raise InvalidArgument(
                f"the backup would have {len(data)} bytes, more than {self.largest}",
                hint="Clean up workspaces",
            )
        moment = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
        with typed_os_errors(self.folder):
            self._remove_stale()
            temporary = self.folder / f".memory_backup_{secrets.token_hex(8)}.tmp"
            try:
                write_synced(temporary, data)
                path = self._publish(temporary, moment)
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink()
            sync_to_disk(self.folder)
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


def sync_to_disk(path: Path) -> None:
    """Make sure that a file or folder survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def make_draft(file: Path) -> Iterator[Path]:
    """Yield the name of a draft of a file, which is removed with the end of the block."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
    with _lock_draft(draft):
        try:
            yield draft
        finally:
            _remove_draft(draft)


def sweep_drafts(folder: Path) -> None:
    """Remove the unfinished backups in a folder whose processes are gone."""
    for draft in find_drafts(folder):
        with suppress(BlockingIOError, MemrecallError), _lock_draft(draft):
            _remove_draft(draft)


def find_drafts(folder: Path) -> list[Path]:
    """Return the unfinished backups in a folder, also those in progress."""
    with suppress(OSError):
        matches = map(_DRAFT_NAME.fullmatch, sorted(os.listdir(folder)))
        drafts = [folder / name for name in dict.fromkeys(m["draft"] for m in matches if m)]
        return list(filter(_is_draft, drafts))
    return []


def _is_draft(draft: Path) -> bool:
    """Return False for a file of another program that happens to have such a name."""
    with suppress(OSError), open(f"{draft}-lock", "rb") as file:
        return file.read(len(_LOCK_TEXT) + 1) == _LOCK_TEXT
    return False


@asynccontextmanager
async def noting_folder(database: Database, folder: Path) -> AsyncIterator[None]:
    """Record a folder for erasures to look in while a backup is written, or was abandoned."""
    if database.is_read_only:
        yield
        return
    name = await asyncio.to_thread(os.path.abspath, folder)
    await database.transact(partial(_note_folder, name=name, has_drafts=True))
    try:
        yield
    finally:
        has_drafts = bool(await asyncio.to_thread(find_drafts, folder))
        await database.transact(partial(_note_folder, name=name, has_drafts=has_drafts))


def _note_folder(connection: Connection, name: str, *, has_drafts: bool) -> None:
    value = connection.scalar(_NOTED_FOLDERS)
    known = [each for each in json.loads(value or "[]") if each != name]
    connection.execute(delete(meta).where(meta.c.name == BACKUP_FOLDERS))
    if folders := [name, *known] if has_drafts else known:
        row = {"name": BACKUP_FOLDERS, "value": json.dumps(folders)}
        insert_missing(connection, meta, [row])


async def warn_of_drafts(database: Database) -> None:
    """Log the names of unfinished backups that still hold what was just erased."""
    rows = await database.fetch(_NOTED_FOLDERS)
    folders = json.loads(rows[0].value) if rows else []
    found = await asyncio.to_thread(lambda: [d for f in folders for d in find_drafts(Path(f))])
    if found:
        names = ", ".join(map(str, found))
        log.warning("unfinished backups still hold what was erased, remove them: %s", names)


@contextmanager
def _lock_draft(draft: Path) -> Iterator[None]:
    """Hold the lock of a draft; BlockingIOError if another process does."""
    with typed_os_errors(draft.parent):
        descriptor = os.open(f"{draft}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, _LOCK_TEXT)
        yield
    finally:
        os.close(descriptor)


def _remove_draft(draft: Path) -> None:
    for suffix in _DRAFT_SUFFIXES:
        with suppress(OSError):
            draft.with_name(draft.name + suffix).unlink()
