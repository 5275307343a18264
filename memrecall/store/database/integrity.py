"""Is a database whole: the file of SQLite, and the rows of both databases."""

from pathlib import Path

from sqlalchemy import Connection, Engine, event, func, select

from memrecall.errors import StorageReadOnly, StorageUnreachable

_MAGIC = b"SQLite format 3\0"
_HEADER = 100  # bytes


class FileGuard:
    """Notices that a SQLite file is deleted, replaced or truncated while it is open.

    SQLite goes on writing to a file that no name leads to any more.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        status = file.stat()
        self._identity = (status.st_dev, status.st_ino)
        self._size = status.st_size

    def watch(self, engine: Engine) -> None:
        """Check the file when a connection is opened and before every commit."""
        event.listen(engine, "connect", self._check)
        event.listen(engine, "commit", self._check)

    def _check(self, *_: object) -> None:
        try:
            status = self._file.stat()
        except OSError:
            raise self._fault("was deleted") from None
        if (status.st_dev, status.st_ino) != self._identity:
            raise self._fault("was replaced")
        # It also shrinks when another process compacts it, and is whole then.
        if status.st_size < self._size and is_truncated(self._file):
            raise self._fault("was truncated")
        self._size = status.st_size

    def _fault(self, event_name: str) -> StorageUnreachable:
        return StorageUnreachable(
            f"{self._file} {event_name} while it was open; nothing was written",
            hint="Put it back or restore a backup, then start again",
        )


def is_truncated(file: Path) -> bool:
    """Return whether a SQLite file has fewer pages than its header says, or no header."""
    with file.open("rb") as stream:
        header = stream.read(_HEADER)
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        return True
    page_size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    return file.stat().st_size < (65_536 if page_size == 1 else page_size) * pages


def read_only_mode(file: Path) -> dict[str, str]:
    """Return the options of SQLite that open a file and create no other one beside it.

    SQLite creates a log beside a file in write-ahead mode, unless it may assume that nobody writes
    to the file: the assumption holds as long as there is no log.
    """
    with file.open("rb") as stream:
        has_log_mode = stream.read(_HEADER)[18:20] == b"\2\2"
    log, index = (file.with_name(file.name + suffix) for suffix in ("-wal", "-shm"))
    if not has_log_mode:
        return {"mode": "ro"}
    if not (log.exists() and log.stat().st_size):
        return {"mode": "ro", "immutable": "1"}
    if not index.exists():
        raise StorageReadOnly(
            f"{log} has changes that are not in {file.name} yet",
            hint="Open the database once without --read-only",
        )
    return {"mode": "ro"}


def find_damage(connection: Connection, *, deep: bool) -> list[str]:
    """Return what SQLite finds wrong with a file; `deep` also reads all indexes."""
    check = func.pragma_integrity_check() if deep else func.pragma_quick_check()
    name = "integrity_check" if deep else "quick_check"
    rows = connection.execute(select(check.table_valued(name).c[name])).scalars()
    return [row for row in rows if row != "ok"]
