"""The supported databases, and everything in which they differ.

`parse_location` chooses the dialect when a database is opened. The rest of the package asks the
dialect for what it needs and never which database it talks to.
"""

import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import quote

from sqlalchemy import (
    Connection,
    Engine,
    Numeric,
    Text,
    case,
    cast,
    create_engine,
    event,
    exists,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.sql import ColumnElement

from memrecall.errors import (
    InvalidArgument,
    MemrecallError,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
    requires_extra,
)
from memrecall.store.database.integrity import read_only_mode, require_whole
from memrecall.timing import seconds_left

Durability = Literal["full", "normal"]
Comparison = Callable[[Any, Any], ColumnElement[bool]]

WAIT_HINT = "Another process is writing; try again"
SPACE_HINT = "Free some space and write again"
ID_HINT = "Check the ids: 1 to 64 printable characters"
INVALID_TEXT = "22021"  # SQLSTATE: a character that the encoding does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How connections are opened; times are in seconds."""

    durability: Durability = "full"
    lock_timeout: float = 10.0  # of a write that waits for another
    statement_timeout: float | None = 20.0  # without waits for locks; None: no limit
    read_only: bool = False


class ErrorCode(NamedTuple):
    """What an error code of the driver means."""

    prefix: str
    error: type[StorageError]
    hint: str
    is_transient: bool = False  # the same work may succeed a moment later


# Citus reports by the code of an internal error that a node was lost during a commit.
_CLUSTER_CODES: tuple[ErrorCode, ...] = (
    ErrorCode("XX000", StorageUnreachable, "A node of the cluster failed; try again", True),
)
# What the coordinator says of a worker that is down or does not answer. A connection that was open
# when the worker restarted is reported in other words, and the next attempt opens another.
_LOST_NODE = re.compile(
    r"connection to the remote node \S+@(\S+) failed with the following error: .*"
    r"(?:refused|No route to host|[Nn]etwork is unreachable|time(?:out expired|d out)"
    r"|could not translate host name)"
    r"|could not establish any connections to the node (\S+) after"
)
# Raised by a process that opened the database before it was distributed. StorageBusy makes grouped
# writes retry one by one.
_STALE_CODES: tuple[ErrorCode, ...] = (
    ErrorCode("0A000", StorageBusy, "The database was distributed meanwhile; restart this process"),
)


def type_error(error: UnicodeEncodeError | PoolTimeout | OSError, location: str) -> MemrecallError:
    """Return the typed error for one that does not come from the driver."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidArgument("a value contains half of a surrogate pair", hint=ID_HINT)
    if isinstance(error, PoolTimeout):
        return StorageBusy(f"no free connection to {location}", hint="Try again")
    is_silent = isinstance(error, TimeoutError)
    reason = "no answer in time" if is_silent else error.strerror or str(error)
    return StorageUnreachable(
        f"cannot reach {location}: {reason}",
        hint="Check that the server runs and the URL is right",
    ).mark_transient(not is_silent)


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
    checkpoint_command: ClassVar[str] = ""  # of databases in a file
    truncate_log_command: ClassVar[str | None] = None
    read_only_probe: ClassVar[Any] = None  # selects in_recovery and is_read_only
    locks_rows: ClassVar[bool] = False  # instead of the whole database
    byte_collation: ClassVar[str | None] = None  # None: text is in the order of its bytes anyway
    # Returns an INSERT that knows `on_conflict_do_update` and `on_conflict_do_nothing`.
    insert: ClassVar[Any]

    @abstractmethod
    def create_engine(
        self, url: URL, options: ConnectionOptions, *, writes: bool = False
    ) -> AsyncEngine:
        """Return the connection pool for reads, or the one for writes."""

    def create_direct_engine(self, url: URL, options: ConnectionOptions) -> Engine | None:
        """Return a pool for short work in threads, where that is faster than async."""
        del url, options
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

    def classify(
        self, error: Exception, location: str, *, is_distributed: bool = False
    ) -> MemrecallError | None:
        """Return the typed error for a driver's error, by its code; None for a bug."""
        cause = getattr(error, "orig", None) or error
        message = next(iter(str(cause).splitlines()), type(cause).__name__)
        code = self.get_error_code(cause)
        if code == INVALID_TEXT:
            return InvalidArgument(
                "a value contains characters that no database can store", hint=ID_HINT
            )
        codes: tuple[ErrorCode, ...] = self.error_codes
        for known in codes + (_CLUSTER_CODES if is_distributed else _STALE_CODES):
            if code.startswith(known.prefix):
                typed = known.error(f"{location}: {message}", hint=known.hint)
                if isinstance(typed, StorageUnreachable) and (lost := _LOST_NODE.search(message)):
                    typed.lost_node = lost[1] or lost[2]
                return typed.mark_transient(known.is_transient)
        if getattr(error, "connection_invalidated", False):
            hint = "The server closed the connection"
            return StorageUnreachable(f"{location}: {message}", hint=hint).mark_transient()
        if isinstance(error, DBAPIError) and not isinstance(
            error, OperationalError | InterfaceError
        ):
            return None
        return StorageError(f"{location}: {message}")

    def get_driver_errors(self) -> tuple[type[Exception], ...]:
        """Return the driver's errors that SQLAlchemy does not wrap."""
        return ()

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
        """Return the condition that a key's value, or one of its items, compares so."""


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
    insert = staticmethod(sqlite.insert)
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


_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 1.0  # that the client waits for the server to report its own timeout
_RESTART_HINT = "The server is starting or stopping; try again"
_SLOW_HINT = "Try again, with more time"


class PostgresqlDialect(DatabaseDialect):
    """A PostgreSQL server, through asyncpg."""

    name = "postgresql"
    driver = "postgresql+asyncpg"
    schemes = frozenset({"postgres", "postgresql", "postgresql+asyncpg"})
    position_function = "strpos"
    insert = staticmethod(postgresql.insert)
    snapshot_options: ClassVar[Mapping[str, Any]] = {
        "isolation_level": "REPEATABLE READ",
        "postgresql_readonly": True,
    }
    autocommit_options: ClassVar[Mapping[str, Any]] = {"isolation_level": "AUTOCOMMIT"}
    read_only_probe = select(
        func.pg_is_in_recovery().label("in_recovery"),
        func.current_setting("transaction_read_only").label("is_read_only"),
    )
    locks_rows = True
    byte_collation = "C"
    error_codes = (  # SQLSTATE
        ErrorCode("53100", StorageFull, SPACE_HINT),
        ErrorCode("53300", StorageBusy, "Raise max_connections of the server", is_transient=True),
        ErrorCode("53", StorageBusy, "The server lacks resources; try again"),
        ErrorCode("55P03", StorageBusy, WAIT_HINT),  # lock timeout
        ErrorCode("57014", StorageBusy, _SLOW_HINT),  # statement timeout
        ErrorCode("57P04", StorageUnreachable, "The database was dropped"),
        ErrorCode("57P", StorageUnreachable, _RESTART_HINT, is_transient=True),
        ErrorCode("40", StorageBusy, WAIT_HINT, is_transient=True),  # deadlock, serialization
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
            "timezone": "UTC",
        }
        if options.read_only:  # otherwise the server decides
            server_settings["default_transaction_read_only"] = "on"
        engine = create_async_engine(
            url,
            pool_timeout=limit or options.lock_timeout,
            connect_args={
                "timeout": _CONNECT_SECONDS,
                "command_timeout": limit and limit + _ANSWER_SECONDS,
                "server_settings": server_settings,
            },
        )

        # Closed and silent connections must not be used again. The loop learns of a closed one by
        # itself; asking each one before its use, as the pool could, takes three round trips.
        @event.listens_for(engine.sync_engine, "checkout")
        def require_open(connection: Any, _record: object, _proxy: object) -> None:
            if connection.driver_connection.is_closed():
                raise DisconnectionError("the server closed the connection")

        @event.listens_for(engine.sync_engine, "handle_error")
        def terminate(context: Any) -> None:
            # Otherwise the roll-back waits for the same silent server once more.
            is_silent = isinstance(context.original_exception, TimeoutError)
            if is_silent and context.connection is not None:
                context.connection.connection.driver_connection.terminate()
                context.is_disconnect = True

        return engine

    def get_error_code(self, error: BaseException) -> str:
        """Return the SQLSTATE; text that asyncpg refused counts as a wrong encoding."""
        chain = [error]
        while chain[-1].__cause__ is not None:
            chain.append(chain[-1].__cause__)
        if isinstance(chain[-1], UnicodeError):
            return INVALID_TEXT
        return next((code for e in chain if (code := getattr(e, "sqlstate", None))), "")

    def get_driver_errors(self) -> tuple[type[Exception], ...]:
        """Return asyncpg's errors, which connecting and closing may raise as they are."""
        with requires_extra("PostgreSQL", "postgresql", "asyncpg"):
            import asyncpg
        return (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

    def _read_json(self, document: ColumnElement[Any]) -> tuple[Any, ColumnElement[str]]:
        entries = func.json_each(document).table_valued("key", "value")
        return entries, func.json_typeof(entries.c.value)

    def compare_json(
        self, document: ColumnElement[Any], key: str, compare: Comparison, value: Any
    ) -> ColumnElement[bool]:
        """Return the condition on the value that `json_each` gives for the key, or on its items."""
        entries, json_type = self._read_json(document)
        value_list = func.json_build_array(entries.c.value)
        listed = case((json_type == "array", entries.c.value), else_=value_list)
        items = func.json_array_elements(listed).table_valued("value", joins_implicitly=True)
        json_type = func.json_typeof(items.c.value)
        no_path = literal([], postgresql.ARRAY(Text))
        text = items.c.value.op("#>>", return_type=Text())(no_path)
        rows = select(literal(1)).select_from(entries, items).where(entries.c.key == key)
        if isinstance(value, bool):
            return exists(rows.where(json_type == "boolean", text == str(value).lower()))
        if isinstance(value, str):
            matches = compare(self.sort_by_bytes(text), value)
            return exists(rows.where(json_type == "string", matches))
        # Only CASE guarantees the order: text that is no number must not be cast to one.
        number = cast(case((json_type == "number", text), else_=None), Numeric)
        if isinstance(value, float) and math.isfinite(value):
            value = Decimal(repr(value))  # as its digits say, which is how JSON stores it
        return exists(rows.where(compare(number, value)))


def _milliseconds(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))  # 0 would mean no limit


_LOCATION_HINT = "Use a file path, sqlite:///FILE or postgresql+asyncpg://USER@HOST/NAME"

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


def dialect_of(connection: Connection) -> DatabaseDialect:
    """Return the dialect of the database that a connection is open to."""
    return _BY_NAME[connection.dialect.name]
