"""The supported databases, and everything in which they differ.

`parse_location` chooses the dialect when a database is opened. The rest of the package asks the
dialect for what it needs and never which database it talks to.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal

from sqlalchemy import (
    Connection,
    Engine,
    Executable,
    Numeric,
    Select,
    Table,
    Text,
    case,
    cast,
    column,
    create_engine,
    event,
    exists,
    func,
    literal,
    select,
    table,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql import ColumnElement

from memrecall.errors import (
    InvalidArgument,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
)

Durability = Literal["full", "normal"]
# The beginning of an error code of the driver, the error that it means, and a hint for the user.
ErrorCode = tuple[str, type[StorageError], str]
Comparison = Callable[[Any, Any], ColumnElement[bool]]

INVALID_TEXT = "22021"  # SQLSTATE: a character that the encoding does not have
_LOCATION_HINT = "Use a file path, sqlite:///FILE or postgresql+asyncpg://USER@HOST/NAME"
_BEGIN = "memrecall_begin"  # the execution option that names the statement to begin with
_CONNECT_SECONDS = 10
_WAIT_HINT = "Another process is writing; try again"
_SPACE_HINT = "Free some space and write again"


class DatabaseDialect(ABC):
    """What the store needs of one kind of database."""

    name: ClassVar[str]  # as SQLAlchemy calls it; also the suffix of its migration scripts
    driver: ClassVar[str]
    schemes: ClassVar[frozenset[str]]
    error_codes: ClassVar[tuple[ErrorCode, ...]]
    position_function: ClassVar[str]  # of a text in another, 0 if it is not there
    snapshot_options: ClassVar[Mapping[str, Any]]
    autocommit_options: ClassVar[Mapping[str, Any]] = {}
    write_options: ClassVar[Mapping[str, Any]] = {}
    truncate_log_command: ClassVar[str | None] = None
    locks_rows: ClassVar[bool] = False  # instead of the whole database
    byte_collation: ClassVar[str | None] = None  # None: text is in the order of its bytes anyway

    @abstractmethod
    def create_engine(self, url: URL, durability: Durability, lock_timeout: float) -> AsyncEngine:
        """Return the connection pool."""

    def create_direct_engine(
        self, url: URL, durability: Durability, lock_timeout: float
    ) -> Engine | None:
        """Return a pool for short work in threads, where that is faster than async."""
        del url, durability, lock_timeout
        return None

    def get_file(self, url: URL) -> Path | None:
        """Return the file that holds the database, if it is one file."""
        del url
        return None

    def prepare_file(self, url: URL, *, create: bool) -> None:
        """Create the database file if it is missing."""
        del url, create

    @abstractmethod
    def get_error_code(self, error: BaseException) -> str:
        """Return the code that the driver gave an error, or an empty text."""

    @abstractmethod
    def insert(self, target: Table) -> Any:
        """Return an INSERT that knows `on_conflict_do_update` and `on_conflict_do_nothing`."""

    def lock_schema(self, key: int) -> Executable | None:
        """Return the statement that keeps other processes from changing the schema."""
        del key
        return None

    def estimate_rows(self, tables: Sequence[str]) -> Select[Any] | None:
        """Return a query for `name` and `rows` of tables as the planner knows them."""
        del tables
        return None

    def require_pgvector(self) -> None:
        """Raise InvalidArgument unless the database can have the pgvector extension."""
        raise InvalidArgument(
            "vector_db 'pgvector' needs a PostgreSQL database",
            hint="Set db to a postgresql:// URL, or leave out vector_db",
        )

    def sort_by_bytes(self, text: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return a text column that compares in the order of its bytes, as in Python."""
        return text if self.byte_collation is None else text.collate(self.byte_collation)

    def avoid_index(self, key: ColumnElement[Any]) -> Any:
        """Return a sort key that keeps the planner from choosing the index on `key`."""
        return key

    @abstractmethod
    def _read_json(self, document: ColumnElement[Any]) -> tuple[Any, ColumnElement[str]]:
        """Return the entries of an object as a table, and the type of their values."""

    def has_json_key(
        self, document: ColumnElement[Any], key: str, *, with_null: bool = False
    ) -> ColumnElement[bool]:
        """Return the condition that an object has a key, optionally with the value null."""
        entries, json_type = self._read_json(document)
        rows = select(literal(1)).select_from(entries).where(entries.c.key == key)
        return exists(rows.where(json_type == "null") if with_null else rows)

    @abstractmethod
    def compare_json(
        self, document: ColumnElement[Any], key: str, compare: Comparison, value: Any
    ) -> ColumnElement[bool]:
        """Return the condition that a key holds a value of the same type that compares so."""


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
    write_options: ClassVar[Mapping[str, Any]] = {_BEGIN: "BEGIN IMMEDIATE"}
    truncate_log_command = "PRAGMA wal_checkpoint(TRUNCATE)"
    error_codes = (
        ("SQLITE_FULL", StorageFull, _SPACE_HINT),
        ("SQLITE_BUSY", StorageBusy, _WAIT_HINT),
        ("SQLITE_LOCKED", StorageBusy, _WAIT_HINT),
        ("SQLITE_READONLY", StorageReadOnly, "Choose a folder that can be written, with --db"),
        ("SQLITE_CANTOPEN", StorageUnreachable, "Check the path and the folder's permissions"),
        ("SQLITE_IOERR", StorageError, "Check the disk"),
        ("SQLITE_NOTADB", StorageUnreachable, "The file is not a SQLite database"),
        ("SQLITE_CORRUPT", StorageError, "The file is damaged; restore a backup"),
    )

    def create_engine(self, url: URL, durability: Durability, lock_timeout: float) -> AsyncEngine:
        """Return the pool that streams and long reads use."""
        engine = create_async_engine(url, connect_args={"timeout": lock_timeout})
        _configure_sqlite(engine.sync_engine, durability)
        return engine

    def create_direct_engine(
        self, url: URL, durability: Durability, lock_timeout: float
    ) -> Engine | None:
        """Return a pool for single reads and whole transactions in a worker thread.

        Through aiosqlite each statement is five steps (cursor, execute, fetch, close, roll back)
        that cost more than the work: 0.5 ms instead of 0.2 ms for the one row that every search
        reads.
        """
        direct = create_engine(
            url.set(drivername="sqlite+pysqlite"), connect_args={"timeout": lock_timeout}
        )
        _configure_sqlite(direct, durability)
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
        entries = func.json_each(document).table_valued("key", "type", "atom")
        return entries, entries.c.type

    def compare_json(
        self, document: ColumnElement[Any], key: str, compare: Comparison, value: Any
    ) -> ColumnElement[bool]:
        """Return the condition on the value that `json_each` gives for the key."""
        entries, json_type = self._read_json(document)
        rows = select(literal(1)).select_from(entries).where(entries.c.key == key)
        if isinstance(value, bool):
            return exists(rows.where(json_type == str(value).lower()))
        types = ["text"] if isinstance(value, str) else ["integer", "real"]
        return exists(rows.where(json_type.in_(types), compare(entries.c.atom, value)))


class PostgresqlDialect(DatabaseDialect):
    """A PostgreSQL server, through asyncpg."""

    name = "postgresql"
    driver = "postgresql+asyncpg"
    schemes = frozenset({"postgres", "postgresql", "postgresql+asyncpg"})
    position_function = "strpos"
    snapshot_options: ClassVar[Mapping[str, Any]] = {
        "isolation_level": "REPEATABLE READ",
        "postgresql_readonly": True,
    }
    autocommit_options: ClassVar[Mapping[str, Any]] = {"isolation_level": "AUTOCOMMIT"}
    locks_rows = True
    byte_collation = "C"
    error_codes = (  # SQLSTATE
        ("53100", StorageFull, _SPACE_HINT),
        ("55P03", StorageBusy, _WAIT_HINT),  # lock timeout
        ("40P01", StorageBusy, _WAIT_HINT),  # deadlock
        ("23503", StorageBusy, "A row that it refers to was erased concurrently; try again"),
        ("25006", StorageReadOnly, "Connect to a server that accepts writes"),
        ("08", StorageUnreachable, "Check that the server runs"),
        ("3D000", StorageUnreachable, "Check the name in the database URL"),
        ("28", StorageUnreachable, "Check user and password in the URL"),
    )

    def create_engine(self, url: URL, durability: Durability, lock_timeout: float) -> AsyncEngine:
        """Return the pool; durability is a setting of the server."""
        del durability
        server_settings = {
            "application_name": "memrecall",
            "lock_timeout": str(max(1, int(lock_timeout * 1000))),  # 0 would wait for ever
            "idle_in_transaction_session_timeout": "60000",
            "timezone": "UTC",
        }
        return create_async_engine(
            url,
            pool_pre_ping=True,
            connect_args={"timeout": _CONNECT_SECONDS, "server_settings": server_settings},
        )

    def get_error_code(self, error: BaseException) -> str:
        """Return the SQLSTATE, or that of a wrong encoding for text that asyncpg refused."""
        chain = [error]
        while chain[-1].__cause__ is not None:
            chain.append(chain[-1].__cause__)
        if isinstance(chain[-1], UnicodeError):
            return INVALID_TEXT
        return next((code for e in chain if (code := getattr(e, "sqlstate", None))), "")

    def insert(self, target: Table) -> Any:
        """Return PostgreSQL's INSERT."""
        return postgresql.insert(target)

    def lock_schema(self, key: int) -> Executable | None:
        """Return the statement that takes an advisory lock until the transaction ends."""
        return select(func.pg_advisory_xact_lock(key))

    def estimate_rows(self, tables: Sequence[str]) -> Select[Any] | None:
        """Return a query of the planner's statistics."""
        classes = table("pg_class", column("relname"), column("reltuples"))
        columns = (classes.c.relname.label("name"), classes.c.reltuples.label("rows"))
        return select(*columns).where(classes.c.relname.in_(tables))

    def require_pgvector(self) -> None:
        """Accept: whether the extension is installed shows when its tables are created."""

    def _read_json(self, document: ColumnElement[Any]) -> tuple[Any, ColumnElement[str]]:
        entries = func.json_each(document).table_valued("key", "value")
        return entries, func.json_typeof(entries.c.value)

    def compare_json(
        self, document: ColumnElement[Any], key: str, compare: Comparison, value: Any
    ) -> ColumnElement[bool]:
        """Return the condition on the value that `json_each` gives for the key."""
        entries, json_type = self._read_json(document)
        no_path = literal([], postgresql.ARRAY(Text))
        text = entries.c.value.op("#>>", return_type=Text())(no_path)
        rows = select(literal(1)).select_from(entries).where(entries.c.key == key)
        if isinstance(value, bool):
            return exists(rows.where(json_type == "boolean", text == str(value).lower()))
        if isinstance(value, str):
            matches = compare(self.sort_by_bytes(text), value)
            return exists(rows.where(json_type == "string", matches))
        # Only CASE guarantees the order: text that is no number must not be cast to one.
        number = cast(case((json_type == "number", text), else_=None), Numeric)
        return exists(rows.where(compare(number, _to_decimal(value))))


SQLITE = SqliteDialect()
POSTGRESQL = PostgresqlDialect()
DIALECTS: tuple[DatabaseDialect, ...] = (SQLITE, POSTGRESQL)
_BY_SCHEME = {scheme: dialect for dialect in DIALECTS for scheme in dialect.schemes}
_BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def parse_location(location: str) -> tuple[DatabaseDialect, URL]:
    """Return the dialect and the URL of a path (`chat.db`), a SQLite or a PostgreSQL URL."""
    if not location.strip():
        raise InvalidArgument("the database location is empty", hint=_LOCATION_HINT)
    if "://" not in location:
        return SQLITE, URL.create(SQLITE.driver, database=str(Path(location).expanduser()))
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        raise InvalidArgument("the database URL cannot be parsed", hint=_LOCATION_HINT) from None
    dialect = _BY_SCHEME.get(url.drivername)
    if dialect is None:
        raise InvalidArgument(
            f"the database {url.drivername!r} is not supported", hint=_LOCATION_HINT
        )
    return dialect, url.set(drivername=dialect.driver)


def dialect_of(connection: AsyncConnection) -> DatabaseDialect:
    """Return the dialect of the database that a connection is open to."""
    return _BY_NAME[connection.dialect.name]


def _configure_sqlite(engine: Engine, durability: Durability) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # `begin` below begins transactions, not the driver
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            f"synchronous={'FULL' if durability == 'full' else 'NORMAL'}",
            "foreign_keys=ON",
            "trusted_schema=OFF",
            "cell_size_check=ON",
            "mmap_size=0",
            "secure_delete=ON",  # erased rows are overwritten
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        statement = connection.get_execution_options().get(_BEGIN)
        if statement:
            connection.exec_driver_sql(statement)


def _to_decimal(value: int | float) -> int | float | Decimal:
    """Return a number as its digits say, which is how JSON stores it."""
    return Decimal(repr(value)) if isinstance(value, float) and math.isfinite(value) else value
