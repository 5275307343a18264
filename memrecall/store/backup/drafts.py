"""Unfinished backups: hidden files beside the backup, which a process that is killed leaves.

Each is a full copy of the database. A file beside it says that it is memrecall's, and its lock
whether the process that writes it is alive.
"""

import asyncio
import fcntl
import json
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, delete, select

from memrecall.errors import MemrecallError
from memrecall.store.database.engine import Database
from memrecall.store.database.statements import insert_missing
from memrecall.store.database.tables import meta
from memrecall.store.workspaces import typed_os_errors

BACKUP_FOLDERS = "backup_folders"  # a row of `memrecall_meta`: where unfinished ones may be
_NAME = re.compile(r"(?P<draft>\..+\.[0-9a-f]{8}\.tmp)(?:-wal|-shm|-journal|-lock)?")
_SIDE_FILES = ("", "-wal", "-shm", "-journal", "-lock")  # the lock last: it guards the others
_OWN = b"the lock of an unfinished backup of memrecall\n"  # the text of the file with the lock
_NOTED = select(meta.c.value).where(meta.c.name == BACKUP_FOLDERS)

log = logging.getLogger(__name__)


@contextmanager
def make_draft(file: Path) -> Iterator[Path]:
    """Yield the name of a draft of a file, which is removed with the end of the block."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
    with _lock(draft):
        try:
            yield draft
        finally:
            _remove(draft)


def sweep_drafts(folder: Path) -> None:
    """Remove the unfinished backups in a folder whose processes are gone."""
    for draft in find_drafts(folder):
        with suppress(BlockingIOError, MemrecallError), _lock(draft):
            _remove(draft)


def find_drafts(folder: Path) -> list[Path]:
    """Return the unfinished backups in a folder, those that are being written too."""
    with suppress(OSError):
        matches = map(_NAME.fullmatch, sorted(os.listdir(folder)))
        drafts = [folder / name for name in dict.fromkeys(m["draft"] for m in matches if m)]
        return list(filter(_is_own, drafts))
    return []


def _is_own(draft: Path) -> bool:
    """Return False for a file of another program that happens to have such a name."""
    with suppress(OSError), open(f"{draft}-lock", "rb") as file:
        return file.read(len(_OWN) + 1) == _OWN
    return False


@asynccontextmanager
async def noting_folder(database: Database, folder: Path) -> AsyncIterator[None]:
    """Let erasures know where a backup is being written, or was when its process was killed."""
    if database.is_read_only:
        yield
        return
    name = await asyncio.to_thread(os.path.abspath, folder)
    await database.transact(partial(_note, name=name, has_drafts=True))
    try:
        yield
    finally:
        has_drafts = bool(await asyncio.to_thread(find_drafts, folder))
        await database.transact(partial(_note, name=name, has_drafts=has_drafts))


def _note(connection: Connection, name: str, *, has_drafts: bool) -> None:
    value = connection.scalar(_NOTED)
    known = [each for each in json.loads(value or "[]") if each != name]
    connection.execute(delete(meta).where(meta.c.name == BACKUP_FOLDERS))
    if folders := [name, *known] if has_drafts else known:
        row = {"name": BACKUP_FOLDERS, "value": json.dumps(folders)}
        insert_missing(connection, meta, [row])


async def warn_of_drafts(database: Database) -> None:
    """Name the unfinished backups that still hold what was just erased."""
    rows = await database.fetch(_NOTED)
    folders = json.loads(rows[0].value) if rows else []
    found = await asyncio.to_thread(lambda: [d for f in folders for d in find_drafts(Path(f))])
    if found:
        names = ", ".join(map(str, found))
        log.warning("unfinished backups still hold what was erased, remove them: %s", names)


@contextmanager
def _lock(draft: Path) -> Iterator[None]:
    """Hold the lock of a draft; BlockingIOError if another process does."""
    with typed_os_errors(draft.parent):
        descriptor = os.open(f"{draft}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, _OWN)
        yield
    finally:
        os.close(descriptor)


def _remove(draft: Path) -> None:
    for suffix in _SIDE_FILES:
        with suppress(OSError):
            draft.with_name(draft.name + suffix).unlink()
