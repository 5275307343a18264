"""One database, opened: connections, transactions and nothing of what they carry.

SQLite needs care that its defaults do not take (see `_configure_sqlite`): a write begins with
`BEGIN IMMEDIATE`, because a transaction that reads first and writes later fails at once when
another writer came between, whatever the busy timeout says.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Dialect, Engine, Executable, Row, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from memrecall.errors import InvalidArgument, StorageBusy, StorageUnreachable
from memrecall.store.database.dialects import describe, read_location, sqlite_file
from memrecall.store.database.faults import typed_faults
from memrecall.workers import run_to_completion

Result = TypeVar("Result")


class InlineConnection:
    """What transactions use of an async connection, over a plain one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def dialect(self) -> Dialect:
        """The database's dialect."""
        return self._connection.dialect

    async def execute(self, statement: Executable, given: Any = None) -> Any:
        """Carry out a statement; its rows are all read before the next one begins."""
        result = self._connection.execute(statement, given)
        return result.freeze()() if result.returns_rows else result

    async def scalar(self, statement: Executable, given: Any = None) -> Any:
        """The first value of the first row."""
        return self._connection.scalar(statement, given)

    async def scalars(self, statement: Executable, given: Any = None) -> Any:
        """The first value of every row."""
        return (await self.execute(statement, given)).scalars()

    async def exec_driver_sql(self, statement: str, given: Any = None) -> Any:
        """Carry out SQL of the driver's own."""
        result = self._connection.exec_driver_sql(statement, given)
        return result.freeze()() if result.returns_rows else result

    @asynccontextmanager
    async def begin_nested(self) -> AsyncIterator[None]:
        """A part of the transaction that can fail alone."""
        with self._connection.begin_nested():
            yield

    async def run_sync(self, work: Callable[..., Result], *args: Any) -> Result:
        """Hand the plain connection to a function."""
        return work(self._connection, *args)


def carry_out(work: Awaitable[Result]) -> Result:
    """The result of work that waits for nothing but an `InlineConnection`."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as done:
        result: Result = done.value
        return result
    steps.close()
    raise RuntimeError("a transaction waited for something else than its database")


Durability = Literal["full", "normal"]


_BEGIN = "memrecall_begin"
_CONNECT_SECONDS = 10
_RETRY_SECONDS = 0.01


class Database:
    """A connection pool on one SQLite file or PostgreSQL database."""

    def __init__(self, engine: AsyncEngine, url: URL, direct: Engine | None = None) -> None:
        self._engine = engine
        self._direct = direct
        self._write_lock = asyncio.Lock()
        self.is_sqlite = url.drivername.startswith("sqlite")
        self.file = sqlite_file(url)
        self.location = describe(url)

    @classmethod
    def connect(
        cls,
        location: str,
        *,
        create: bool = True,
        durability: Durability = "full",
        lock_timeout: float = 10.0,
    ) -> "Database":
        """A pool for `location`; nothing is read yet. With `create=False` a file must be there."""
        url = read_location(location)
        if not url.drivername.startswith("sqlite"):
            return cls(_postgresql_engine(url, lock_timeout), url)
        _prepare_file(url, create)
        engine = _sqlite_engine(url, durability, lock_timeout)
        return cls(engine, url, _sqlite_direct(url, durability, lock_timeout))

    async def prepare(self, lock_timeout: float) -> None:
        """Switch a SQLite file to write-ahead logging; PostgreSQL needs nothing."""
        if self._direct is not None:
            await asyncio.to_thread(self._switch_to_wal, self._direct, lock_timeout)

    def _switch_to_wal(self, direct: Engine, lock_timeout: float) -> None:
        # Several processes may open a new file at once, and where the journal mode changes SQLite
        # reports a lock without waiting for its busy timeout.
        deadline = time.monotonic() + lock_timeout
        while True:
            try:
                with typed_faults(self.location), direct.connect():
                    return
            except StorageBusy:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    async def close(self) -> None:
        """Give all connections back."""
        await self._engine.dispose()
        if self._direct is not None:
            self._direct.dispose()

    @property
    def write_engine(self) -> Engine:
        """The engine that transactions go through, as events see it."""
        return self._direct or self._engine.sync_engine

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A connection whose statements all see the same moment."""
        options: dict[str, Any] = {_BEGIN: "BEGIN"}
        if not self.is_sqlite:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with typed_faults(self.location):
            async with self._engine.connect() as connection:
                yield await connection.execution_options(**options)

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[AsyncConnection]:
        """A connection for single statements, each on its own: the cheapest way to look."""
        with typed_faults(self.location):
            async with self._engine.connect() as connection:
                if not self.is_sqlite:  # there it is the rule: nobody has said BEGIN
                    await connection.execution_options(isolation_level="AUTOCOMMIT")
                yield connection

    async def fetch(
        self, statement: Executable, given: Mapping[str, Any] | None = None
    ) -> Sequence[Row[Any]]:
        """All rows of one statement, by the shortest way: every search begins and ends here."""
        if self._direct is not None:
            return await asyncio.to_thread(self._fetch, self._direct, statement, given)
        async with self.autocommit() as connection:
            rows: Sequence[Row[Any]] = (await connection.execute(statement, given)).all()
            return rows

    def _fetch(
        self, reader: Engine, statement: Executable, given: Mapping[str, Any] | None
    ) -> Sequence[Row[Any]]:
        with typed_faults(self.location), reader.connect() as connection:
            return connection.execute(statement, given).all()

    async def transact(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """Do `work` in one transaction. Begun work ends even if the caller is cancelled."""
        return await run_to_completion(self._transact(work))

    async def _transact(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        if self._direct is not None:
            # One writer at a time in this process: waiting in line is fairer than SQLite's polling.
            async with self._write_lock:
                return await asyncio.to_thread(self._transact_here, self._direct, work)
        with typed_faults(self.location):
            async with self._engine.begin() as connection:
                return await work(connection)

    def _transact_here(self, direct: Engine, work: Callable[[Any], Awaitable[Result]]) -> Result:
        with typed_faults(self.location), direct.connect() as connection:
            begun = connection.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
            with begun.begin():
                return carry_out(work(InlineConnection(begun)))

    async def truncate_log(self) -> None:
        """Let erased bytes leave the write-ahead log too (SQLite); harmless elsewhere."""
        if self.is_sqlite:
            async with self.autocommit() as connection:
                await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _prepare_file(url: URL, create: bool) -> None:
    file = sqlite_file(url)
    if file is None:
        raise InvalidArgument(
            "a SQLite database in memory cannot be shared by connections",
            hint="Give a file path, in a temporary folder if it should not stay",
        )
    if os.path.isdir(file):  # unlike Path's, these never raise
        raise StorageUnreachable(f"{file} is a folder", hint="Give the path of a file in it")
    if os.path.exists(file):
        return
    if not create:
        raise StorageUnreachable(
            f"there is no database at {file}", hint="`memrecall import` and `add` make one"
        )
    if not file.parent.is_dir():
        raise StorageUnreachable(
            f"the folder {file.parent} does not exist", hint="Make it, or choose another --db"
        )
    try:
        # People's messages: readable by their owner alone. The log files inherit the mode.
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StorageUnreachable(
            f"cannot make {file}: {error.strerror}", hint="Choose another place with --db"
        ) from error


def _sqlite_direct(url: URL, durability: Durability, lock_timeout: float) -> Engine:
    """Single reads and whole transactions go to SQLite in one step of a worker thread.

    Through aiosqlite each statement is five steps (cursor, execute, fetch, close, roll back), and
    those cost more than the work: 0.2 ms instead of 0.5 ms for the one row that every search asks
    for.
    """
    direct = create_engine(
        url.set(drivername="sqlite+pysqlite"), connect_args={"timeout": lock_timeout}
    )
    _configure_connections(direct, durability)
    _begin_as_asked(direct)
    return direct


def _begin_as_asked(engine: Engine) -> None:
    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        statement = connection.get_execution_options().get(_BEGIN)
        if statement:
            connection.exec_driver_sql(statement)


def _configure_connections(engine: Engine, durability: Durability) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        _configure_sqlite(connection, durability)


def _sqlite_engine(url: URL, durability: Durability, lock_timeout: float) -> AsyncEngine:
    engine = create_async_engine(url, connect_args={"timeout": lock_timeout})
    _configure_connections(engine.sync_engine, durability)
    _begin_as_asked(engine.sync_engine)
    return engine


def _configure_sqlite(connection: Any, durability: Durability) -> None:
    connection.isolation_level = None  # this module says BEGIN itself
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        f"synchronous={'FULL' if durability == 'full' else 'NORMAL'}",
        "foreign_keys=ON",
        "trusted_schema=OFF",
        "cell_size_check=ON",
        "mmap_size=0",
        "secure_delete=ON",  # erased means overwritten
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _postgresql_engine(url: URL, lock_timeout: float) -> AsyncEngine:
    return create_async_engine(
        url,
        pool_pre_ping=True,
        connect_args={
            "timeout": _CONNECT_SECONDS,
            "server_settings": {
                "application_name": "memrecall",
                # 0 would mean: wait for ever
                "lock_timeout": str(max(1, int(lock_timeout * 1000))),
                "idle_in_transaction_session_timeout": "60000",
                "timezone": "UTC",
            },
        },
    )
