"""One open database: its connections, its transactions and its errors.

Work on a database is a plain function over a synchronous connection. On a server SQLAlchemy runs it
in a greenlet. Through aiosqlite each statement would be five trips to a thread, which cost more
than the statement: on SQLite the whole work runs in one thread, with SQLite's own driver.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy import (
    DDL,
    BigInteger,
    Connection,
    Engine,
    Executable,
    Row,
    Text,
    bindparam,
    func,
    literal,
    select,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from memrecall.errors import (
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
)
from memrecall.retries import DatabaseRetries, growing_pauses
from memrecall.store.database.dialects import (
    SPACE_HINT,
    WAIT_HINT,
    ConnectionOptions,
    parse_location,
    type_error,
)
from memrecall.store.database.integrity import MOST_PAGE_BYTES, FileGuard
from memrecall.store.database.statements import ConnectionReads, Reads
from memrecall.text.privacy import PrivacyPolicy
from memrecall.timing import CallBatcher, bounded_by, changing, current_deadline
from memrecall.workers import ProcessOwner, in_thread, run_to_completion

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Work = Callable[[Connection], _Result]

log = logging.getLogger(__name__)

_SHORT_SEARCH = 0.02  # seconds in which most searches end
_CLOSE_SECONDS = 5.0  # for work that is in progress when the database is closed
_TRANSACTION_ID = select(func.txid_current())  # outlives the connection to the server
_LIMIT_STATEMENTS = select(
    *(
        func.set_config(name, bindparam("milliseconds", type_=Text), True)
        for name in ("lock_timeout", "statement_timeout")
    )
)
_COMPACT: Any = DDL("VACUUM")  # type: ignore[no-untyped-call]
_COMPACTED_AT_ONCE = 64 * 1024 * 1024  # bytes; a third of a second
_LOW_SPACE = 1024 * 1024  # bytes; with less, small writes may succeed where others fail
WriteProblem = Literal[
    "disk full",
    "disk error",
    "log lost",
    "read-only file",
    "read-only server",
    "read-only setting",
]
_RESERVE_BYTES = 4 * 1024 * 1024


class WriteState:
    """Why the last write failed, until one succeeds or its cause is seen to be gone."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._reason: WriteProblem | None = None
        self._is_cause_seen = False

    def record_success(self) -> None:
        """Forget the last failure, unless the disk is still as good as full."""
        if self._file is None or self._reason != "disk full" or not _is_full(self._file):
            self._reason = None

    def record_failure(self, error: StorageError) -> None:
        """Remember why a write failed, unless the next one may succeed all the same."""
        reason = self._reason
        if isinstance(error, StorageFull):
            reason = "disk full"
        elif isinstance(error, StorageReadOnly):
            reason = "read-only server" if self._file is None else "read-only file"
        elif type(error) is StorageError:
            reason = "disk error"
        if reason != self._reason:
            self._reason, self._is_cause_seen = reason, False

    def problem(self) -> WriteProblem | None:
        """Return why writes fail, or None. Nothing is written to find out."""
        if self._file is None:
            return self._reason
        if self._reason is None:
            return "disk full" if _is_full(self._file) else None
        if self._reason == "disk full":
            has_cause = _is_full(self._file)
        else:
            has_cause = self._reason == "read-only file" and not os.access(self._file, os.W_OK)
        if has_cause:
            self._is_cause_seen = True
        elif self._is_cause_seen:
            self._reason = None
        return self._reason


def _is_full(file: Path) -> bool:
    try:
        return shutil.disk_usage(file.parent).free < _LOW_SPACE
    except OSError:
        return False


@dataclass(slots=True)
class Erasure:
    """The transactions of one erasure."""

    has_committed: bool = False
    uses_reserve: bool = False


class SpaceReserve:
    """A file next to a SQLite database that is deleted when an erasure finds a full disk."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._path = file.with_name(file.name + "-reserve")
        self._erasures = 0  # that use the space
        self.is_kept = False

    def make(self) -> bool:
        """Make the file unless it exists; return False if there is no space for it."""
        try:
            with self._path.open("xb") as file:
                file.write(os.urandom(_RESERVE_BYTES))  # Some file systems store no zeros.
        except FileExistsError:  # another process has made it
            return True
        except OSError:
            self._path.unlink(missing_ok=True)
            return False
        return True

    def give_to(self, erasure: Erasure) -> None:
        """Release the space; until the erasure ends, vectors that follow must not fill it."""
        self._erasures += not erasure.uses_reserve
        erasure.uses_reserve = True
        self._path.unlink(missing_ok=True)

    def take_from(self, erasure: Erasure) -> bool:
        """Make the file again after an erasure; return False if there is no space for it."""
        self._erasures -= erasure.uses_reserve
        return not self.is_kept or self.make()

    def require_unused(self) -> None:
        """Raise StorageFull while an erasure uses the space."""
        if self._erasures:
            message = f"{self._file}: what is left of the disk is for an erasure"
            raise StorageFull(message, hint=SPACE_HINT)


ERASURE: ContextVar[Erasure | None] = ContextVar("memrecall_erasure", default=None)


class ReaderThreads:
    """The threads of searches: one, plus a second while a search runs long.

    Each thread that computes takes as much of the GIL from writes as all requests have together.
    """

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(2)
        self._first = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a thread and hold it during the block."""
        async with self._all, AsyncExitStack() as turn:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SHORT_SEARCH):
                    await turn.enter_async_context(self._first)
            yield


class Database:
    """A connection pool on one SQLite file or PostgreSQL database."""

    def __init__(
        self,
        location: str,
        options: ConnectionOptions | None = None,
        *,
        create: bool = True,
        retry_seconds: float = 10.0,
    ) -> None:
        """Make pools that have not connected yet; without `create` the file must exist."""
        self.dialect, url = parse_location(location)
        self.dialect.prepare_file(url, create=create)
        self._url = url
        self._options = options or ConnectionOptions()
        self.is_read_only = self._options.read_only
        self.retries = DatabaseRetries(retry_seconds)
        self.is_distributed = False  # over the nodes of a cluster, by user; the store sets it
        self.privacy = PrivacyPolicy()  # of what is written; the store sets it
        self.file = self.dialect.get_file(url)
        self._guard = None if self.file is None else FileGuard(self.file)
        self._reserve = None if self.file is None else SpaceReserve(self.file)
        self._writes = WriteState(self.file)
        self._server_problem: WriteProblem | None = None
        errors = self.dialect.get_driver_errors()
        self._driver_errors: tuple[type[Exception], ...] = (DBAPIError, *errors)
        self.owner = ProcessOwner()
        self._engine = self.dialect.create_engine(url, self._options)
        self._direct = self.dialect.create_direct_engine(url, self._options)
        # Writes have a pool of their own: those that wait for a lock must not hold up reads.
        self._writer = self.dialect.create_engine(url, self._options, writes=True)
        # The engines of single reads and of transactions, to attach event listeners to.
        self.read_engine = self._direct or self._engine.sync_engine
        self.write_engine = self._direct or self._writer.sync_engine
        for engine in (self._direct, self._engine.sync_engine):
            if self._guard is not None and engine is not None:
                self._guard.watch(engine)
        self._write_lock = asyncio.Lock()
        self._readers = ReaderThreads()
        self._batchers: dict[Any, CallBatcher[Any, Any]] = {}
        without_password = url.difference_update_query(["password"]).render_as_string()
        self.location = str(self.file) if self.file else without_password
        # A pool closes only the connections that are not in use.
        self._used_connections = 0
        self._is_closed = False
        self._all_unused = asyncio.Event()

    async def prepare(self) -> None:
        """Switch a SQLite file to write-ahead logging; PostgreSQL needs nothing."""
        if self._direct is not None:
            await in_thread(self._switch_to_wal, self._direct)

    def _switch_to_wal(self, direct: Engine) -> None:
        # While another process changes the journal mode, SQLite reports a lock without any waiting.
        for pause in growing_pauses(self._options.lock_timeout):
            with suppress(StorageBusy), self._typed_errors(), direct.connect():
                return
            time.sleep(pause)
        with self._typed_errors(), direct.connect():
            return

    async def close(self) -> None:
        """Close all connections, after a short wait for those in use."""
        self._is_closed = True
        self._all_unused.clear()
        if self._used_connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_unused.wait(), _CLOSE_SECONDS)
        await self._engine.dispose()
        await self._writer.dispose()
        if self._direct is not None:
            self._direct.dispose()

    async def probe(self) -> None:
        """Raise StorageError if a SQLite file is gone; ask a server whether it accepts writes.

        It is asked on a connection for writes, unless some are in use: they may all wait for locks.
        Without that, a server that accepts no more connections would be noticed by writes alone.
        """
        if self._guard is not None:  # SQLite still reads a file that was deleted
            self._guard.check()
            self._guard.check_log_length()
        if self.dialect.read_only_probe is not None:
            pool: Any = self._writer.pool
            engine = self._engine if pool.checkedout() else self._writer
            ask = partial(self._fetch, self.dialect.read_only_probe, engine=engine)
            (row,) = await self.retries.run(ask)
            setting: WriteProblem | None = "read-only setting" if row.is_read_only == "on" else None
            self._server_problem = "read-only server" if row.in_recovery else setting

    @property
    def write_problem(self) -> WriteProblem | None:
        """Why writes fail, by the settings, the last write and the last probe; None: they work."""
        if self.is_read_only:
            return "read-only setting"
        if self._guard is not None and self._guard.has_lost_log():
            return "log lost"
        return self._server_problem or self._writes.problem()

    async def make_reserve(self) -> None:
        """Reserve space next to a SQLite file for erasures on a full disk."""
        if self._reserve is not None and not self.is_read_only:
            self._reserve.is_kept = True
            await in_thread(self._reserve.make)

    @asynccontextmanager
    async def erasing(self) -> AsyncIterator[None]:
        """Let the transactions of the block, which erase, use the reserved space.

        Their bytes are removed from the file at the end of the outermost block. StorageFull is
        raised only if nothing was changed.
        """
        if self.file is None or self._reserve is None or ERASURE.get() is not None:
            yield
            return
        token = ERASURE.set(erasure := Erasure())
        try:
            yield
            if erasure.has_committed:
                await self._remove_erased_bytes(self.file)
        except StorageFull as error:
            if not erasure.has_committed:
                raise
            message = f"{self.location}: the disk is full, and only a part was erased"
            raise StorageError(message, hint="Free some space and erase again") from error
        finally:
            ERASURE.reset(token)
            if not await in_thread(self._reserve.take_from, erasure):
                self._writes.record_failure(StorageFull(f"{self.location}: no space is left"))

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection on which all statements see the same snapshot."""
        with self._typed_errors():
            async with self._connect(self._engine.connect()) as connection:
                yield await connection.execution_options(**self.dialect.snapshot_options)

    @asynccontextmanager
    async def _connect(
        self, opening: AbstractAsyncContextManager[AsyncConnection], writes: bool = False
    ) -> AsyncIterator[AsyncConnection]:
        """Open a connection, for which a pool may have to be waited for.

        Let the server end what a transaction waits for at the deadline of the request.
        """
        self._used_connections += 1
        try:
            async with AsyncExitStack() as stack:
                async with self._in_time():
                    connection = await stack.enter_async_context(opening)
                    if writes and (limit := current_deadline()) is not None:
                        milliseconds = str(max(1, int(limit.left * 1000)))  # 0 would mean no limit
                        await connection.execute(_LIMIT_STATEMENTS, {"milliseconds": milliseconds})
                yield connection
        finally:
            self._used_connections -= 1
            if not self._used_connections:
                self._all_unused.set()

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Bound the waits of the block by the deadline of the request, if there is one."""
        limit = current_deadline()
        try:
            async with asyncio.timeout(None if limit is None else limit.left):
                yield
        except TimeoutError:
            raise StorageBusy(f"{self.location} is busy", hint=WAIT_HINT) from None

    @asynccontextmanager
    async def _only_writer(self) -> AsyncIterator[None]:
        """Let one writer of this process through: a queue is fairer than SQLite's polling."""
        async with self._in_time():
            await self._write_lock.acquire()
        try:
            yield
        finally:
            self._write_lock.release()

    @asynccontextmanager
    async def autocommit(self, engine: AsyncEngine | None = None) -> AsyncIterator[AsyncConnection]:
        """Open a connection on which every statement is a transaction of its own."""
        with self._typed_errors():
            async with self._connect((engine or self._engine).connect()) as connection:
                yield await connection.execution_options(**self.dialect.autocommit_options)

    async def inspect(self, work: Callable[[Connection], _Result]) -> _Result:
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
        with self._typed_errors(), self._direct.connect() as connection:
            yield connection

    async def fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Row[Any]]:
        """Return all rows of one statement."""
        if self._direct is not None:
            return await in_thread(self._read_inline, methodcaller("fetch", statement, parameters))
        return await self.retries.run(lambda: self._fetch(statement, parameters))

    async def compute(self, function: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a function that takes long, computed in a thread."""
        async with self._readers.turn():
            return await in_thread(function, *args)

    async def _fetch(
        self,
        statement: Executable,
        parameters: Mapping[str, Any] | None = None,
        engine: AsyncEngine | None = None,
    ) -> Sequence[Row[Any]]:
        async with self.autocommit(engine) as connection:
            rows: Sequence[Row[Any]] = (await connection.execute(statement, parameters)).all()
            return rows

    async def read_together(
        self, work: Callable[[Reads], _Result], *, is_search: bool = False
    ) -> _Result:
        """Run reads that depend on each other, a plain function; on SQLite in one thread.

        Searches take turns with their threads.
        """
        if self._direct is None:
            return await greenlet_spawn(work, _ServerReads(self))
        if not is_search:
            return await in_thread(self._read_inline, work)
        async with self._readers.turn():
            return await in_thread(self._read_inline, work)

    def _read_inline(self, work: Callable[[Reads], _Result]) -> _Result:
        with self.read_inline() as connection:
            return work(ConnectionReads(connection))

    async def transact(
        self, work: _Work[_Result], *, is_long: bool = False, retry: bool = True
    ) -> _Result:
        """Run `work` in one transaction, which ends even if the caller is cancelled.

        After a lost connection or a deadlock it is run again, unless it was committed or `retry` is
        off. The statements of long work have no time limit.
        """
        return await run_to_completion(self._transact(work, is_long, retry))

    async def _transact(self, work: _Work[_Result], is_long: bool, retry: bool) -> _Result:
        self._require_writable()
        try:
            if self._direct is not None:
                return await self._transact_in_file(self._direct, work)
            if not retry:
                result = await self._transact_once(self._writer, work)
            elif not is_long or self._options.statement_timeout is None:
                result = await self.retries.run(lambda: self._transact_once(self._writer, work))
            else:
                with changing(), bounded_by(None):
                    async with self._unlimited_engine() as engine:
                        result = await self.retries.run(lambda: self._transact_once(engine, work))
        except StorageError as error:
            self._writes.record_failure(error)
            raise
        self._writes.record_success()
        return result

    async def _transact_in_file(self, direct: Engine, work: _Work[_Result]) -> _Result:
        erasure = ERASURE.get()
        async with self._only_writer():
            with changing():  # A thread cannot be stopped.
                if erasure is None and self._reserve is not None:
                    self._reserve.require_unused()
                try:
                    result: _Result = await in_thread(self._transact_inline, direct, work)
                except StorageFull:
                    if erasure is None or self._reserve is None:
                        raise
                    await in_thread(self._reserve.give_to, erasure)
                    await self.truncate_log()  # Its space is needed, too; it is then rewritten.
                    result = await in_thread(self._transact_inline, direct, work)
        if erasure is not None:
            erasure.has_committed = True
        return result

    @asynccontextmanager
    async def _unlimited_engine(self) -> AsyncIterator[AsyncEngine]:
        options = replace(self._options, statement_timeout=None)
        engine = self.dialect.create_engine(self._url, options, writes=True)
        try:
            yield engine
        finally:
            await engine.dispose()

    async def _transact_once(self, engine: AsyncEngine, work: _Work[_Result]) -> _Result:
        transaction_id: int | None = None
        with ExitStack() as commit:
            try:
                with self._typed_errors():
                    async with self._connect(engine.begin(), writes=True) as connection:
                        result = await connection.run_sync(work)
                        transaction_id = await connection.scalar(_TRANSACTION_ID)
                        commit.enter_context(changing())  # What ends before is rolled back.
            except StorageUnreachable as error:
                if transaction_id is None or not await self._was_committed(transaction_id):
                    raise
                log.info("the acknowledgement of a commit was lost: %s", error)
        return result

    async def _was_committed(self, transaction_id: int) -> bool:
        """Return whether a transaction was committed whose acknowledgement was lost."""
        statement = select(func.txid_status(literal(transaction_id, BigInteger)))
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

    def _transact_inline(self, direct: Engine, work: _Work[_Result]) -> _Result:
        with self._typed_errors(), direct.connect() as connection:
            writing = connection.execution_options(**self.dialect.write_options)
            driver: Any = writing.connection.driver_connection
            changes = driver.total_changes
            with writing.begin():
                # As on a server: all rows are read before the next statement begins.
                result = work(writing.execution_options(prebuffer_rows=True))
            if self._guard is not None:
                self._guard.note_log_size()
            if driver.total_changes > changes:  # A commit without changes succeeds on a full disk.
                self._writes.record_success()
            return result

    def batcher(
        self,
        work: Callable[["Database", list[_Item]], Awaitable[Sequence[_Result | BaseException]]],
        most: int,
        **options: bool,
    ) -> CallBatcher[_Item, _Result]:
        """Return `work` on this database, done for up to `most` callers at once."""
        made = self._batchers.get(work) or CallBatcher(partial(work, self), most, **options)
        return self._batchers.setdefault(work, made)

    def _require_writable(self) -> None:
        if self.is_read_only:
            raise StorageReadOnly(
                f"{self.location} is open read-only", hint="Open it without --read-only to write"
            )

    async def save_schema(self, *, is_changed: bool) -> None:
        """Copy SQLite's write-ahead log to the file if the file lacks the schema.

        Without its log, or with a part of it, such a file would be taken for a new database.
        """
        if self.file is None or self.is_read_only:
            return
        if is_changed or self.file.stat().st_size <= MOST_PAGE_BYTES:
            try:
                await in_thread(self._checkpoint)
            except StorageError as error:  # SQLite copies the log later
                log.warning("the schema is in the log only: %s", error)

    def _checkpoint(self) -> None:
        with self.read_inline() as connection:
            connection.exec_driver_sql(self.dialect.checkpoint_command)

    async def truncate_log(self) -> None:
        """Remove erased bytes from SQLite's write-ahead log too, unless the disk is full."""
        if self.dialect.truncate_log_command is None:
            return
        try:
            async with self.autocommit() as connection:
                await connection.exec_driver_sql(self.dialect.truncate_log_command)
                if self._guard is not None:
                    self._guard.note_log_size()
        except StorageFull as error:
            # What was erased is committed: the caller must not take it for undone.
            log.warning("erased bytes stay in the log until there is space: %s", error)

    async def compact(self) -> None:
        """Free the space of erased rows, also in the files."""
        self._require_writable()
        with self._typed_errors():
            async with self._unlimited_engine() as engine, engine.connect() as connection:
                await connection.execution_options(**self.dialect.autocommit_options)
                await connection.execute(_COMPACT)
        await self.truncate_log()

    async def remove_erased_bytes(self) -> None:
        """Remove what a SQLite file may still have of erased rows; in an erasure, at its end."""
        async with self.erasing():
            if erasure := ERASURE.get():
                erasure.has_committed = True

    async def _remove_erased_bytes(self, file: Path) -> None:
        """Rewrite a small file, and empty its log.

        SQLite overwrites a row that it erases, but no copy that it left on a page from which it
        moved the row before. Only rewriting the file removes those, and writes wait for that: a
        large file is left to `compact`. What was erased is committed, so that a failure here is
        no failure of the caller's.
        """
        try:
            async with self._only_writer():
                if await in_thread(os.path.getsize, file) <= _COMPACTED_AT_ONCE:
                    await self.compact()
                    return
        except StorageError as error:
            log.warning("parts of erased rows may stay in the file until `compact`: %s", error)
        await self.truncate_log()

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        """Raise errors of the driver as errors of memrecall that name the database."""
        try:
            self.owner.require_current()
            if self._is_closed:  # SQLAlchemy would open connections that nobody closes
                raise StorageError(f"{self.location} was closed", hint="Open it again")
            yield
        except self._driver_errors as error:
            typed = self.dialect.classify(error, self.location, is_distributed=self.is_distributed)
            if typed is None:  # a violated constraint or a wrong statement is a bug
                raise
            raise typed from error
        except (UnicodeEncodeError, PoolTimeout, OSError) as error:
            raise type_error(error, self.location) from error


class _ServerReads:
    """Reads of a server for work that runs in a greenlet; none holds a connection."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        """Return all rows of one statement."""
        return await_only(self._database.fetch(statement, parameters))

    def compute(self, function: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a function that takes long, computed in a thread."""
        return await_only(self._database.compute(function, *args))
