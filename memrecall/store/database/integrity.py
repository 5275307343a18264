"""Is a database whole: the file of SQLite, and the rows of both databases."""

import logging
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from sqlalchemy import (
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    exists,
    func,
    inspect,
    literal,
    select,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from memrecall.errors import StorageReadOnly, StorageUnreachable

_logger = logging.getLogger(__name__)

META_TABLE = "memrecall_meta"  # only databases of memrecall have it
_MAGIC = b"SQLite format 3\0"
_HEADER = 100  # bytes
MOST_PAGE_BYTES = 65_536
_RISKS = {
    "fsync": "a power failure can damage the database",
    "synchronous_commit": "a crash of the server can lose writes that were acknowledged",
}
# Of the index of a log: whether it is valid, the size of a page, the number of pages, and how many
# of them were copied to the database.
_INDEX_START = struct.Struct("=12x ?x H I 76x I")
_LOG_HEADER, _PAGE_HEADER = 32, 24  # bytes
_LOG = "memrecall_log"  # in the notes of a connection: which file was its log


class FileGuard:
    """Detects that an open SQLite file was deleted, replaced or truncated, or its log exchanged.

    SQLite goes on writing to a file that no name leads to any more.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._log_file = _beside(file, "-wal")
        status = file.stat()
        self._identity = (status.st_dev, status.st_ino)
        self._size = status.st_size
        self._has_lost_log = False
        self._has_cut_log = False
        self._log: tuple[int, int] | None = None
        self._log_size = 0  # after the last commit or check

    def watch(self, engine: Engine) -> None:
        """Check the file when a connection is opened and before every commit."""

        @event.listens_for(engine, "connect")
        def note_log(_: object, record: ConnectionPoolEntry) -> None:
            self.check()
            record.info[_LOG] = self._find_log()

        event.listen(engine, "commit", self._check_log)

    def _check_log(self, connection: Connection) -> None:
        """Check that the log is the one that the connection has opened.

        SQLite deletes the log only when no connection is open. A new connection would begin a
        second log, and no write of the first one would be seen in it.
        """
        self.check()
        current = self._find_log()
        # The connection that creates a database has no log until its first transaction.
        opened = self._log = connection.info[_LOG] = connection.info.get(_LOG) or current
        if self._has_lost_log or opened != current:
            self._has_lost_log = True
            raise StorageUnreachable(
                f"the log of {self._file} was deleted or replaced while it was open; "
                "nothing was written",
                hint="Stop all processes that use it, but do not kill them: closing the database "
                "saves what the log contains",
            )
        self.check_log_length()

    def note_log_size(self) -> None:
        """Remember how long the log is, after a commit or after it was emptied."""
        self._log_size = _measure(self._log_file)

    def check_log_length(self) -> None:
        """Raise StorageUnreachable if the log lost what was committed to it."""
        if not self._has_cut_log:
            if self.has_lost_log():
                return
            last_size = self._log_size
            self.note_log_size()
            # Another process may have emptied it. SQLite then first counts no page, and writes
            # pages before it counts them again: the index is another one afterwards.
            if self._log_size >= last_size or not _lacks_pages(self._file):
                return
            self._has_cut_log = True
            _logger.error("%s was cut while it was open: commits in it are lost", self._log_file)
        raise StorageUnreachable(
            f"{self._log_file} was cut while it was open; nothing was written",
            hint="Start again: what was committed before the cut is read. Else restore a backup",
        )

    def has_lost_log(self) -> bool:
        """Return True if the log is not the one that the last commit was written to."""
        is_lost = self._has_lost_log or self._has_cut_log
        return is_lost or (self._log is not None and self._find_log() != self._log)

    def _find_log(self) -> tuple[int, int] | None:
        try:
            status = self._log_file.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def check(self) -> None:
        """Raise StorageUnreachable if the file is not the one that was opened."""
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


def _beside(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)


def _measure(file: Path) -> int:
    """Return the size of a file; 0 if there is none."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _lacks_pages(file: Path) -> bool:
    """Return whether the log of a database lacks pages that its index counts.

    Pages that the database has got do not count.
    """
    index = _beside(file, "-shm")
    if not index.exists():
        return False
    start = _read_start(index, _INDEX_START.size)
    if len(start) < _INDEX_START.size:
        return False
    is_valid, page_size, pages, copied = _INDEX_START.unpack(start)
    page_size = MOST_PAGE_BYTES if page_size == 1 else page_size
    length = _LOG_HEADER + pages * (_PAGE_HEADER + page_size)
    is_short = bool(is_valid and pages > copied and _measure(_beside(file, "-wal")) < length)
    return is_short and _read_start(index, _INDEX_START.size) == start


def _read_start(file: Path, size: int) -> bytes:
    """Return the first bytes of a file of an open database, read by another process.

    Closing any handle of such a file would release the locks that SQLite holds on it for this one.
    """
    script = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read(int(sys.argv[2])))"
    command = [sys.executable, "-I", "-S", "-c", script, str(file), str(size)]
    return subprocess.run(command, capture_output=True).stdout  # noqa: S603


def is_truncated(file: Path) -> bool:
    """Return whether a SQLite file has fewer pages than its header says, or no header."""
    header = _read_start(file, _HEADER)
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        return True
    page_size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    return file.stat().st_size < (MOST_PAGE_BYTES if page_size == 1 else page_size) * pages


def require_whole(file: Path, *, create: bool) -> None:
    """Raise StorageUnreachable for an empty file, unless a new database may be created in it.

    A file with a log or snapshots next to it was a database, and lost its contents. Without
    `create`, a database of another program is refused too, before anything in it is changed.
    """
    if file.stat().st_size:
        _require_log(file)
        if not create:
            _require_own(file)
        return
    was_database = _beside(file, "-index").exists() or _measure(_beside(file, "-wal")) > 0
    problem, hint = f"{file} is empty (0 bytes)", "`memrecall add` makes a database of it"
    if was_database:
        problem += ", and not a database any more"
        hint = "Restore a backup, or remove the file and its -wal and -shm to start empty"
    if was_database or not create:
        raise StorageUnreachable(problem, hint=hint)


def _require_log(file: Path) -> None:
    """Raise StorageUnreachable if the log that the file needs is gone, or was cut to nothing.

    A log that is cut while nobody uses the file keeps what was committed before the cut.
    """
    log = _beside(file, "-wal")
    has_schema = file.stat().st_size > MOST_PAGE_BYTES
    if not has_schema:  # the header says whether the file, without its log, ever had a table
        header = _read_start(file, _HEADER)
        has_schema = not header.startswith(_MAGIC) or any(header[40:44])
    if log.exists() and has_schema:
        if _lacks_pages(file):
            _logger.error("%s was cut: commits in it are lost", log)
        return
    # Without a schema, a process was killed while it created the database, or the log had it.
    had_schema = not has_schema and _beside(file, "-index").exists() and not _measure(log)
    if had_schema or _lacks_pages(file):
        event = "was cut" if log.exists() else "was deleted"
        names = f"{file.name}-wal and {file.name}-shm"
        raise StorageUnreachable(
            f"{log} {event}, and had commits that {file.name} lacks",
            hint=f"Put it back or restore a backup. To go on with what is left, remove {names}",
        )


def _require_own(file: Path) -> None:
    names: list[str] = []
    # If it is no database, or its log cannot be read, opening it will say so.
    with suppress(DBAPIError, OSError, StorageReadOnly):
        query = {"uri": "true", **read_only_mode(file)}
        location = f"file:{quote(os.path.abspath(file))}"
        url = URL.create("sqlite+pysqlite", database=location, query=query)
        names = inspect(create_engine(url, poolclass=NullPool)).get_table_names()
    if names and META_TABLE not in names:
        raise StorageUnreachable(
            f"{file} is a database of another program: it has a table {min(names)!r}, and none of"
            " memrecall's",
            hint="Choose another --db",
        )


def read_only_mode(file: Path) -> dict[str, str]:
    """Return the options of SQLite that open a file without creating any other.

    SQLite creates a log for a file in write-ahead mode, unless it may assume that nobody writes
    to the file: the assumption holds as long as there is no log.
    """
    with file.open("rb") as stream:
        has_log_mode = stream.read(_HEADER)[18:20] == b"\2\2"
    log = _beside(file, "-wal")
    if not has_log_mode:
        return {"mode": "ro"}
    if not _measure(log):
        return {"mode": "ro", "immutable": "1"}
    if not _beside(file, "-shm").exists():
        raise StorageReadOnly(
            f"{log} has changes that are not in {file.name} yet",
            hint="Open the database once without --read-only",
        )
    return {"mode": "ro"}


class RowReference(NamedTuple):
    """A table's columns that refer to a row of another table."""

    table: Table
    columns: tuple[str, ...]
    target: Table
    target_columns: tuple[str, ...]
    kind: str | None = None  # of the rows in `table` that refer to this target


def foreign_keys(tables: Iterable[Table]) -> Iterator[RowReference]:
    """Yield the references that the database itself should guarantee."""
    for table in tables:
        for key in sorted(table.foreign_key_constraints, key=lambda key: tuple(key.column_keys)):
            target = tuple(element.column.name for element in key.elements)
            yield RowReference(table, tuple(key.column_keys), key.referred_table, target)


def find_damage(connection: Connection, *, deep: bool) -> list[str]:
    """Return what the database finds wrong with its own files; `deep` also reads all indexes."""
    if connection.dialect.name != "sqlite":
        return []
    name = "integrity_check" if deep else "quick_check"
    check = getattr(func, f"pragma_{name}")().table_valued(name)
    rows = connection.execute(select(check.c[name])).scalars()
    return [row for row in rows if row != "ok"]


def find_risks(connection: Connection) -> list[str]:
    """Return the settings of a PostgreSQL server that can lose acknowledged writes."""
    if connection.dialect.name != "postgresql":
        return []
    return [
        f"{name} is off: {consequence}"
        for name, consequence in _RISKS.items()
        if connection.scalar(select(func.current_setting(name))) == "off"
    ]


def find_missing_parts(connection: Connection, tables: Iterable[Table]) -> list[str]:
    """Return the tables, columns and indexes that the database should have and lacks."""
    inspector = inspect(connection)
    names, problems = set(inspector.get_table_names()), []
    for table in tables:
        if table.name not in names:
            problems.append(f"there is no table {table.name}")
            continue
        columns = {str(column["name"]) for column in inspector.get_columns(table.name)}
        indexes = {str(index["name"]) for index in inspector.get_indexes(table.name)}
        missing = [f"column {table.name}.{name}" for name in sorted(set(table.c.keys()) - columns)]
        expected = {str(index.name) for index in table.indexes}
        missing += [f"index {name}" for name in sorted(expected - indexes)]
        problems += [f"there is no {part}" for part in missing]
    return problems


def find_orphans(connection: Connection, references: Iterable[RowReference]) -> list[str]:
    """Return how many rows of each table refer to rows that do not exist."""
    problems = []
    for reference in references:
        table, target = reference.table, reference.target.alias()
        columns = [table.c[name] for name in reference.columns]
        pairs = zip(columns, reference.target_columns, strict=True)
        target_row = select(literal(1)).where(*(column == target.c[name] for column, name in pairs))
        statement = select(func.count()).select_from(table).where(~exists(target_row))
        statement = statement.where(*(column.is_not(None) for column in columns if column.nullable))
        if reference.kind:
            statement = statement.where(table.c.kind == reference.kind)
        if count := connection.scalar(statement) or 0:
            of_kind = f" of kind {reference.kind}" if reference.kind else ""
            problems.append(
                f"{count:,} rows of {reference.table.name}{of_kind} name {reference.columns[-1]}s"
                f" that are not in {reference.target.name}"
            )
    return problems
