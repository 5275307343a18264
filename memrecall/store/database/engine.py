"""One open database: its connections, its transactions and its errors."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar, cast

from sqlalchemy import DDL, Connection, Engine, Executable, Row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from memrecall.errors import StorageBusy, StorageError, StorageReadOnly, StorageUnreachable
from memrecall.retries import FIRST_PAUSE, DatabaseRetries, growing_pauses
from memrecall.store.database.dialect import ConnectionOptions, type_error
from memrecall.store.database.dialects import parse_location
from memrecall.store.database.integrity import FileGuard
from memrecall.store.database.statements import InlineConnection, Reads, run_inline
from memrecall.workers import (
    ForkAware,
    ForkGate,
    Grouped,
    abandon,
    run_to_completion,
    start_in_thread,
)

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[AsyncConnection], Awaitable[Result]]

log = logging.getLogger(__name__)

_FORK_SECONDS = 10.0  # that a fork waits for statements and streams to end
_READERS = 2  # threads of searches: with more, writes wait for a thread, a connection and the GIL
_IDLE_CONNECTIONS = 4  # of reads in threads, kept open
_COMPACT: Any = DDL("VACUUM")  # type: ignore[no-untyped-call]


class _WriteConnection(InlineConnection):
    """The connection of a transaction, which migrations run their scripts on."""

    async def exec_driver_sql(self, statement: str, parameters: Any = None) -> Any:
        """Execute SQL that the driver takes as it is."""
        result = await self.run_sync(Connection.exec_driver_sql, statement, parameters)
        return result.freeze()() if result.returns_rows else result


class Database(ForkAware):
    """A connection pool on one SQLite file or PostgreSQL database."""

    in_thread = False

    def __init__(
        self,
        location: str,
        options: ConnectionOptions | None = None,
        *,
        create: bool = True,
        retry_seconds: float = 10.0,
    ) -> None:
        """Make pools that have not connected yet; without `create` the file must exist.

        Work that a lost server interrupted is repeated for `retry_seconds`.
        """
        self.dialect, url = parse_location(location)
        self.dialect.prepare_file(url, create=create)
        self._url = url
        self._options = options or ConnectionOptions()
        self.retries = DatabaseRetries(retry_seconds)
        self.is_distributed = False  # over the nodes of a cluster, by user; the store sets it
        self.file = self.dialect.get_file(url)
        self._guard = None if self.file is None else FileGuard(self.file)
        self._driver_errors: tuple[type[Exception], ...] = (
            DBAPIError,
            *self.dialect.get_driver_errors(),
        )
        self._make_pools()
        self.watch_forks()
        without_password = url.difference_update_query(["password"]).render_as_string()
        self.location = str(self.file) if self.file else without_password

    def _make_pools(self) -> None:
        self._engine = self.dialect.create_engine(self._url, self._options)
        self._direct = self.dialect.create_direct_engine(self._url, self._options)
        # Writes have a pool of their own: those that wait for a lock must not hold up reads.
        self._writer = self.dialect.create_engine(self._url, self._options, writes=True)
        for engine in (self._direct, self._engine.sync_engine):
            if self._guard is not None and engine is not None:
                self._guard.watch(engine)
        self._idle: list[Connection] = []  # for reads in threads, kept out of the pool
        self._write_lock = asyncio.Lock()
        self._readers = asyncio.Semaphore(_READERS)
        self._gate = ForkGate()
        self._groups: dict[Any, Grouped[Any, Any]] = {}

    def before_fork(self) -> None:
        """Close the connections to a SQLite file.

        SQLite notes per process which locks its connections hold. A child would inherit the note
        without the locks, and its writes could be lost.
        """
        if self._direct is None:
            return
        if not self._gate.close(_FORK_SECONDS):
            log.warning("%s is in use during a fork, which can lose writes", self.location)
        if self._idle or self._direct.pool.checkedin() or self._engine.sync_engine.pool.checkedin():  # type: ignore[attr-defined]
            # In a thread, because this one may run an event loop.
            thread = threading.Thread(target=lambda: asyncio.run(self.close()))
            thread.start()
            thread.join()

    def after_fork_in_parent(self) -> None:
        """Let connections be opened again."""
        if self._direct is not None:
            self._gate.open()

    def after_fork_in_child(self) -> None:
        """Open connections of its own when they are needed."""
        abandon(self._engine, self._direct, self._writer, self._idle)
        self._make_pools()

    async def prepare(self) -> None:
        """Switch a SQLite file to write-ahead logging; PostgreSQL needs nothing."""
        if self._direct is not None:
            await asyncio.to_thread(self._switch_to_wal, self._direct)

    def _switch_to_wal(self, direct: Engine) -> None:
        # Several processes may open a new file at once, and while the journal mode changes, SQLite
        # reports a lock without waiting for its busy timeout.
        deadline = time.monotonic() + self._options.lock_timeout
        while True:
            try:
                with self._typed_errors(), direct.connect():
                    return
            except StorageBusy:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(FIRST_PAUSE)

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()
        await self._writer.dispose()
        while self._idle:
            self._idle.pop().close()
        if self._direct is not None:
            self._direct.dispose()

    def require_file(self) -> None:
        """Raise StorageUnreachable if a SQLite file was deleted, replaced or truncated."""
        if self._guard is not None:
            self._guard.check()

    @property
    def is_read_only(self) -> bool:
        """Whether writes are refused."""
        return self._options.read_only

    @property
    def read_engine(self) -> Engine:
        """The engine of single reads, to attach event listeners to."""
        return self._direct or self._engine.sync_engine

    @property
    def write_engine(self) -> Engine:
        """The engine of the transactions, to attach event listeners to."""
        return self._direct or self._writer.sync_engine

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection on which all statements see the same snapshot."""
        with self._typed_errors():
            async with self._engine.connect() as connection:
                yield await connection.execution_options(**self.dialect.snapshot_options)

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection on which every statement is a transaction of its own."""
        with self._typed_errors():
            async with self._engine.connect() as connection:
                yield await connection.execution_options(**self.dialect.autocommit_options)

    async def inspect(self, work: Callable[[Connection], Result]) -> Result:
        """Run a read without a time limit, in one snapshot, with a synchronous connection."""
        with self._typed_errors():
            async with self._unlimited_engine() as engine, engine.connect() as connection:
                await connection.execution_options(**self.dialect.snapshot_options)
                return await connection.run_sync(work)

    @contextmanager
    def read_inline(self) -> Iterator[Connection]:
        """Open a connection to a SQLite file in the current thread."""
        if self._direct is None:
            raise RuntimeError(f"{self.location} is not read in a thread")
        with self._typed_errors():
            # Taking a connection from the pool and back costs as much as a short read.
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._direct.connect()
            try:
                yield connection
                connection.rollback()
            except BaseException:
                connection.close()
                raise
            if len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
            else:
                connection.close()

    async def fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Row[Any]]:
        """Return all rows of one statement, by the fastest way that the database has."""
        if self._direct is not None:
            read = methodcaller("fetch", statement, parameters)
            return await asyncio.to_thread(self._read_inline, read)
        return await self.retries.run(lambda: self._fetch(statement, parameters))

    async def fetch_short(
        self, statement: Executable, parameters: Mapping[str, Any]
    ) -> Sequence[Row[Any]]:
        """Return the rows of a query by keys; without a thread if none uses the SQLite file.

        A trip to a thread takes three times as long as such a read. Beside busy threads the read
        would hold up the event loop, because after each step SQLite's driver waits for the GIL. A
        connection that is open reads the write-ahead log, and waits for no lock of a writer.
        """
        if self._idle and self._gate.is_idle and not self.is_read_only:
            return self._read_inline(methodcaller("fetch", statement, parameters))
        return await self.fetch(statement, parameters)

    async def _fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Row[Any]]:
        async with self.autocommit() as connection:
            rows: Sequence[Row[Any]] = (await connection.execute(statement, parameters)).all()
            return rows

    def can_run(self, statements: int) -> bool:
        """Return whether the pool has so many connections left that it keeps open.

        Others would be opened for these statements alone, which takes longer than they do.
        """
        pool: Any = self._engine.pool
        return self._direct is None and pool.size() - pool.checkedout() >= statements

    async def read_together(
        self, work: Callable[[Reads], Awaitable[Result]], *, is_short: bool = False
    ) -> Result:
        """Run reads that depend on each other, on SQLite in one trip to a thread.

        There `work` awaits nothing but its reads, and ends even if the caller is cancelled: it may
        be using what the caller has locked. Short work need not wait for searches.
        """
        if self._direct is None:
            return await work(self)
        async with nullcontext() if is_short else self._readers:
            return await run_to_completion(start_in_thread(self._read_inline, work))

    def _read_inline(self, work: Callable[[Reads], Awaitable[Result]]) -> Result:
        with self.read_inline() as connection:
            return run_inline(work(InlineConnection(connection)))

    async def transact(
        self, work: Work[Result], *, is_long: bool = False, retry: bool = True
    ) -> Result:
        """Run `work` in one transaction, which ends even if the caller is cancelled.

        After a lost connection or a deadlock it is run again, unless it was committed or `retry` is
        off. The statements of long work have no time limit.
        """
        return await run_to_completion(self._transact(work, is_long, retry))

    async def _transact(self, work: Work[Result], is_long: bool, retry: bool) -> Result:
        self._require_writable()
        if self._direct is not None:
            # One writer at a time in this process: a queue is fairer than SQLite's polling.
            async with self._write_lock:
                return await asyncio.to_thread(self._transact_inline, self._direct, work)
        if not retry:
            return await self._transact_once(self._writer, work)
        if not is_long or self._options.statement_timeout is None:
            return await self.retries.run(lambda: self._transact_once(self._writer, work))
        async with self._unlimited_engine() as engine:
            return await self.retries.run(lambda: self._transact_once(engine, work))

    @asynccontextmanager
    async def _unlimited_engine(self) -> AsyncIterator[AsyncEngine]:
        options = replace(self._options, statement_timeout=None)
        engine = self.dialect.create_engine(self._url, options, writes=True)
        try:
            yield engine
        finally:
            await engine.dispose()

    async def _transact_once(self, engine: AsyncEngine, work: Work[Result]) -> Result:
        select_id = self.dialect.select_transaction_id()
        transaction_id: int | None = None
        try:
            with self._typed_errors():
                async with engine.begin() as connection:
                    result = await work(connection)
                    if select_id is not None:
                        transaction_id = await connection.scalar(select_id)
        except StorageUnreachable as error:
            if transaction_id is None or not await self._was_committed(transaction_id):
                raise
            log.info("the acknowledgement of a commit was lost: %s", error)
        return result

    async def _was_committed(self, transaction_id: int) -> bool:
        """Return whether a transaction was committed whose acknowledgement was lost."""
        statement = self.dialect.select_transaction_status(transaction_id)
        unknown = StorageUnreachable(
            f"{self.location}: the connection was lost during a commit, which may have succeeded",
            hint="Write again with the same ids",
        )
        for pause in growing_pauses(self.retries.seconds):
            try:
                ((status,),) = await self._fetch(statement)
            except StorageError as error:
                if not error.is_transient:
                    raise unknown from error
            else:
                if status != "in progress":
                    return bool(status == "committed")
            await asyncio.sleep(pause)
        raise unknown

    def _transact_inline(self, direct: Engine, work: Work[Result]) -> Result:
        with self._typed_errors(), direct.connect() as connection:
            writing = connection.execution_options(**self.dialect.write_options)
            with writing.begin():
                return run_inline(work(cast(AsyncConnection, _WriteConnection(writing))))

    def grouped(
        self,
        work: Callable[["Database", list[Item]], Awaitable[Sequence[Result | BaseException]]],
        most: int,
    ) -> Grouped[Item, Result]:
        """Return `work` on this database, done for up to `most` callers at once."""
        if work not in self._groups:
            self._groups[work] = Grouped(partial(work, self), most)
        return self._groups[work]

    def _require_writable(self) -> None:
        if self.is_read_only:
            raise StorageReadOnly(
                f"{self.location} is open read-only", hint="Open it without --read-only to write"
            )

    async def truncate_log(self) -> None:
        """Remove erased bytes from SQLite's write-ahead log too."""
        if self.dialect.truncate_log_command is not None:
            async with self.autocommit() as connection:
                await connection.exec_driver_sql(self.dialect.truncate_log_command)

    async def compact(self) -> None:
        """Free the space of erased rows, in the files too."""
        self._require_writable()
        with self._typed_errors():
            async with self._unlimited_engine() as engine, engine.connect() as connection:
                await connection.execution_options(**self.dialect.autocommit_options)
                await connection.execute(_COMPACT)
        await self.truncate_log()

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        """Raise errors of the driver as errors of memrecall that name the database."""
        try:
            with self._gate:
                yield
        except self._driver_errors as error:
            typed = self.dialect.classify(error, self.location, is_distributed=self.is_distributed)
            if typed is None:  # a violated constraint or a wrong statement is a bug
                raise
            raise typed from error
        except (UnicodeEncodeError, PoolTimeout, OSError) as error:
            raise type_error(error, self.location) from error
