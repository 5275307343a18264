"""SQLite in a file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from sqlalchemy import (
    Connection,
    Engine,
    Table,
    case,
    create_engine,
    event,
    exists,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.sql import ColumnElement

from memrecall.errors import (
    InvalidArgument,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
)
from memrecall.store.database.dialect import (
    SPACE_HINT,
    WAIT_HINT,
    Comparison,
    ConnectionOptions,
    DatabaseDialect,
    ErrorCode,
)
from memrecall.store.database.integrity import read_only_mode, require_whole
from memrecall.timing.deadlines import seconds_left

_BEGIN_WRITE = "BEGIN IMMEDIATE"
_BEGIN = "memrecall_begin"  # the execution option that names the statement to begin with


class SqliteDialect(DatabaseDialect):
    """SQLite in a file, through aiosqlite and, for short work, the driver of Python.

    A key of a JSON document is looked up with `json_each`, not by a path: SQLite finds no key by a
    path that JSON writes with escapes, which is every key that is not ASCII.
    """

    name = "sqlite"
    driver = "sqlite+aiosqlite"
    schemes = frozenset({"sqlite", "sqlite+aiosqlite"})
    position_function = "instr"
    snapshot_options: ClassVar[Mapping[str, Any]] = {_BEGIN: "BEGIN"}
    # A transaction that reads first and writes later fails at once when another writer came
    # between, whatever the busy timeout says.
    write_options: ClassVar[Mapping[str, Any]] = {_BEGIN: _BEGIN_WRITE}
    checkpoint_command = "PRAGMA wal_checkpoint(PASSIVE)"
    truncate_log_command = "PRAGMA wal_checkpoint(TRUNCATE)"
    error_codes = (
        ErrorCode("SQLITE_FULL", StorageFull, SPACE_HINT),
        ErrorCode("SQLITE_BUSY", StorageBusy, WAIT_HINT),
        ErrorCode("SQLITE_LOCKED", StorageBusy, WAIT_HINT),
        ErrorCode("SQLITE_READONLY", StorageReadOnly, "Choose a writable folder, with --db"),
        ErrorCode("SQLITE_CANTOPEN", StorageUnreachable, "Check the path and its permissions"),
        ErrorCode("SQLITE_IOERR", StorageError, "Check the disk"),
        ErrorCode("SQLITE_NOTADB", StorageUnreachable, "The file is not a SQLite database"),
        ErrorCode("SQLITE_CORRUPT", StorageError, "The file is damaged; restore a backup"),
    )

    def create_engine(
        self, url: URL, options: ConnectionOptions, *, writes: bool = False
    ) -> AsyncEngine:
        """Return the pool that streams and long reads use."""
        del writes  # they use the direct engine
        engine = create_async_engine(
            _open_existing(url, options), connect_args={"timeout": options.lock_timeout}
        )
        _configure_sqlite(engine.sync_engine, options)
        return engine

    def create_direct_engine(self, url: URL, options: ConnectionOptions) -> Engine | None:
        """Return a pool for single reads and whole transactions in a worker thread.

        Through aiosqlite each statement is five steps (cursor, execute, fetch, close, roll back)
        that cost more than the work: 0.5 ms instead of 0.2 ms for the one row that every search
        reads.
        """
        direct = create_engine(
            _open_existing(url, options).set(drivername="sqlite+pysqlite"),
            connect_args={"timeout": options.lock_timeout},
        )
        _configure_sqlite(direct, options)
        return direct

    def get_file(self, url: URL) -> Path | None:
        """Return the database file; None for a database in memory."""
        return None if url.database in (None, "", ":memory:") else Path(str(url.database))

    def prepare_file(self, url: URL, *, create: bool) -> None:
        """Create the database file, readable by its owner alone."""
        file = self.get_file(url)
        if file is None:
            raise InvalidArgument(
                "a SQLite database in memory cannot be shared by connections",
                hint="Pass a file path, in a temporary folder for temporary data",
            )
        if os.path.isdir(file):  # unlike Path.is_dir, this never raises
            raise StorageUnreachable(f"{file} is a folder", hint="Pass the path of a file in it")
        if os.path.exists(file):
            require_whole(file, create=create)
            return
        if not create:
            raise StorageUnreachable(
                f"there is no database at {file}",
                hint="`memrecall import` and `memrecall add` create one",
            )
        if not file.parent.is_dir():
            raise StorageUnreachable(
                f"the folder {file.parent} does not exist", hint="Create it, or choose another --db"
            )
        try:
            # SQLite gives its log files the mode of the database file.
            os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise StorageUnreachable(
                f"cannot create {file}: {error.strerror}", hint="Choose another place with --db"
            ) from error

    def get_error_code(self, error: BaseException) -> str:
        """Return a name such as SQLITE_BUSY."""
        return getattr(error, "sqlite_errorname", "")

    def insert(self, target: Table) -> Any:
        """Return SQLite's INSERT."""
        return sqlite.insert(target)

    def avoid_index(self, key: ColumnElement[Any]) -> Any:
        """Return the key as an expression, which no index is sorted by."""
        return key + ""

    def _read_json(self, document: ColumnElement[Any]) -> tuple[Any, ColumnElement[str]]:
        entries = func.json_each(document).table_valued("key", "type", "value")
        return entries, entries.c.type

    def compare_json(
        self, document: ColumnElement[Any], key: str, compare: Comparison, value: Any
    ) -> ColumnElement[bool]:
        """Return the condition on the value that `json_each` gives for the key, or on its items."""
        entries, json_type = self._read_json(document)
        listed = case(
            (json_type == "array", entries.c.value),
            (json_type.in_(["true", "false"]), literal("[") + json_type + "]"),
            (json_type != "object", func.json_array(entries.c.value)),
            else_="[]",
        )
        items = func.json_each(listed).table_valued("type", "atom", joins_implicitly=True)
        rows = select(literal(1)).select_from(entries, items).where(entries.c.key == key)
        if isinstance(value, bool):
            return exists(rows.where(items.c.type == str(value).lower()))
        types = ["text"] if isinstance(value, str) else ["integer", "real"]
        return exists(rows.where(items.c.type.in_(types), compare(items.c.atom, value)))


def _open_existing(url: URL, options: ConnectionOptions) -> URL:
    """Return the URL that opens a SQLite file without creating it."""
    file = Path(os.path.abspath(str(url.database)))
    mode = read_only_mode(file) if options.read_only else {"mode": "rw"}
    located = url.set(database=f"file:{quote(str(file))}")
    return located.update_query_dict({"uri": "true", **mode})


def _configure_sqlite(engine: Engine, options: ConnectionOptions) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # `begin` below begins transactions, not the driver
        cursor = connection.cursor()
        writing = (
            "journal_mode=WAL",
            f"synchronous={'FULL' if options.durability == 'full' else 'NORMAL'}",
            "foreign_keys=ON",
            "secure_delete=ON",  # erased rows are overwritten
        )
        always = ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0")
        for pragma in (*(() if options.read_only else writing), *always):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        statement = connection.get_execution_options().get(_BEGIN)
        if statement == _BEGIN_WRITE:  # the only one that waits for others
            milliseconds = int(seconds_left(options.lock_timeout) * 1000)
            connection.connection.cursor().execute(f"PRAGMA busy_timeout={milliseconds}")
        if statement:
            connection.exec_driver_sql(statement)
