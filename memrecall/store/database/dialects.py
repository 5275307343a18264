"""The supported databases, and everything in which they differ.

`parse_location` chooses the dialect when a database is opened. The rest of the package asks the
dialect for what it needs and never which database it talks to.
"""

import math
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from sqlalchemy import (
    DDL,
    BigInteger,
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
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql import ColumnElement

from memrecall.errors import (
    InvalidArgument,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
    requires_extra,
)
from memrecall.store.database.dialect import (
    INVALID_TEXT,
    Comparison,
    ConnectionOptions,
    DatabaseDialect,
    ErrorCode,
)
from memrecall.store.database.integrity import read_only_mode, require_whole

_LOCATION_HINT = "Use a file path, sqlite:///FILE or postgresql+asyncpg://USER@HOST/NAME"
_BEGIN = "memrecall_begin"  # the execution option that names the statement to begin with
_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 1.0  # that the client waits for the server to report its own timeout
_WAIT_HINT = "Another process is writing; try again"
_SPACE_HINT = "Free some space and write again"
_RESTART_HINT = "The server is starting or stopping; try again"
_SLOW_HINT = "Try again, or set MEMRECALL_STATEMENT_TIMEOUT higher"


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
        ErrorCode("SQLITE_FULL", StorageFull, _SPACE_HINT),
        ErrorCode("SQLITE_BUSY", StorageBusy, _WAIT_HINT),
        ErrorCode("SQLITE_LOCKED", StorageBusy, _WAIT_HINT),
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
    locks_rows = can_distribute = True
    byte_collation = "C"
    error_codes = (  # SQLSTATE
        ErrorCode("53100", StorageFull, _SPACE_HINT),
        ErrorCode("53300", StorageBusy, "Raise max_connections of the server", is_transient=True),
        ErrorCode("53", StorageBusy, "The server lacks resources; try again"),
        ErrorCode("55P03", StorageBusy, _WAIT_HINT),  # lock timeout
        ErrorCode("57014", StorageBusy, _SLOW_HINT),  # statement timeout
        ErrorCode("57P04", StorageUnreachable, "The database was dropped"),
        ErrorCode("57P", StorageUnreachable, _RESTART_HINT, is_transient=True),
        ErrorCode("40", StorageBusy, _WAIT_HINT, is_transient=True),  # deadlock, serialization
        ErrorCode(
            "23503", StorageBusy, "A row that it refers to was erased concurrently; try again"
        ),
        ErrorCode("25006", StorageReadOnly, "Connect to a server that accepts writes"),
        ErrorCode("25P03", StorageBusy, "The transaction was idle for too long; try again"),
        ErrorCode("08", StorageUnreachable, "Check that the server runs", is_transient=True),
        ErrorCode("3D000", StorageUnreachable, "Check the name in the database URL"),
        ErrorCode("28", StorageUnreachable, "Check user and password in the URL"),
        ErrorCode("58", StorageError, "Check the disk of the server"),
        ErrorCode("XX001", StorageError, "The database is damaged; restore a backup"),
        ErrorCode("XX002", StorageError, "An index is damaged; REINDEX it"),
    )

    def create_engine(
        self, url: URL, options: ConnectionOptions, *, writes: bool = False
    ) -> AsyncEngine:
        """Return a pool; durability is a setting of the server."""
        patience = options.lock_timeout if writes else 0.0
        limit = options.statement_timeout and options.statement_timeout + patience
        server_settings = {
            "application_name": "memrecall",
            "lock_timeout": _milliseconds(options.lock_timeout),
            "statement_timeout": _milliseconds(limit) if limit else "0",
            "idle_in_transaction_session_timeout": "60000",
            "default_transaction_read_only": "on" if options.read_only else "off",
            "timezone": "UTC",
        }
        engine = create_async_engine(
            url,
            pool_timeout=limit or options.lock_timeout,
            connect_args={
                "timeout": _CONNECT_SECONDS,
                "command_timeout": limit and limit + _ANSWER_SECONDS,
                "server_settings": server_settings,
            },
        )
        _drop_dead_connections(engine.sync_engine)
        return engine

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

    def get_driver_errors(self) -> tuple[type[Exception], ...]:
        """Return asyncpg's errors, which connecting and closing may raise as they are."""
        with requires_extra("PostgreSQL", "postgresql", "asyncpg"):
            import asyncpg
        return (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

    def select_transaction_id(self) -> Select[Any] | None:
        """Return the query for an id that outlives the connection."""
        return select(func.txid_current())

    def select_transaction_status(self, transaction_id: int) -> Select[Any]:
        """Return the query for the state of a transaction, in words."""
        return select(func.txid_status(literal(transaction_id, BigInteger)))

    def lock_schema(self, key: int) -> Executable | None:
        """Return the statement that takes an advisory lock until the transaction ends."""
        return select(func.pg_advisory_xact_lock(key))

    def lock_tables(self, tables: Sequence[str]) -> Executable | None:
        """Return the statement that lets others read only, until the transaction ends."""
        locking: Executable = DDL(f"LOCK TABLE {', '.join(tables)} IN EXCLUSIVE MODE")  # type: ignore[no-untyped-call]
        return locking

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


def _milliseconds(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))  # 0 would mean no limit


def _drop_dead_connections(engine: Engine) -> None:
    """Keep closed and silent connections from being used again.

    The loop learns of a closed connection by itself; asking each one before its use, as the pool
    could, takes three round trips.
    """

    @event.listens_for(engine, "checkout")
    def require_open(connection: Any, _record: object, _proxy: object) -> None:
        if connection.driver_connection.is_closed():
            raise DisconnectionError("the server closed the connection")

    @event.listens_for(engine, "handle_error")
    def terminate(context: Any) -> None:
        # Otherwise the roll-back waits for the same silent server once more.
        if isinstance(context.original_exception, TimeoutError) and context.connection is not None:
            context.connection.connection.driver_connection.terminate()
            context.is_disconnect = True


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
        if statement:
            connection.exec_driver_sql(statement)


def _to_decimal(value: int | float) -> int | float | Decimal:
    """Return a number as its digits say, which is how JSON stores it."""
    return Decimal(repr(value)) if isinstance(value, float) and math.isfinite(value) else value
