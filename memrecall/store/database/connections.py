"""Connections as the store's work sees them: to a server, or to a SQLite file in a thread.

Work on a database is a plain function over a synchronous connection. On a server SQLAlchemy runs it
beside the event loop. Through aiosqlite each statement would be five trips to a thread, which cost
more than the statement: on SQLite the whole work runs in one thread, with SQLite's own driver.

Statements that every search or write executes are compiled once for SQLite's own driver. Through
SQLAlchemy's execution a single add takes 1.7 times the processor time, a search 1.3 times and a
range read over HTTP 1.5 times: it spends more on a statement than SQLite does.
"""

import asyncio
import sqlite3
from collections import namedtuple
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from pydantic_core import from_json
from sqlalchemy import (
    JSON,
    CompoundSelect,
    Connection,
    Dialect,
    Executable,
    Select,
    Text,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import StorageBusy, StorageError
from memrecall.store.database.dialect import WAIT_HINT
from memrecall.timing.deadlines import current_deadline

_Result = TypeVar("_Result")

_SHORT_SEARCH = 0.02  # seconds in which most searches end


class Reads(Protocol):
    """Reads rows in work that is a plain function, on a thread or beside the event loop."""

    def fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        """Return all rows of one statement."""

    def compute(self, function: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a function that takes long, computed in a thread."""


class ConnectionReads:
    """Reads on one connection, in the thread that has it or within its transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        """Return all rows of one statement."""
        return fetch_rows(self._connection, statement, parameters)

    def compute(self, function: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a function: this is a thread already."""
        return function(*args)


_DIALECT: Dialect = sqlite.dialect()
_CACHED = 500  # statements; a page of messages has a statement for each set of filters


class PreparedStatement:
    """A compiled statement. SQLAlchemy's types convert the values, and its listeners hear of it."""

    def __init__(self, statement: Any, dialect: Dialect, names: Sequence[str]) -> None:
        is_query = isinstance(statement, Select | CompoundSelect)
        columns = list(statement.selected_columns) if is_query else []
        row_type: Any = namedtuple("PreparedRow", [column.key for column in columns])  # type: ignore[misc]
        self._make_row = row_type._make
        self._compiled: Any = statement.compile(
            dialect=dialect, column_keys=None if is_query else list(names)
        )
        self._converters = [
            (at, convert)
            for at, column in enumerate(columns)
            if (convert := _result_converter(column.type, dialect))
        ]
        self._binders = [
            (name, self._compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect))
            for name in self._compiled.positiontup
        ]
        own = {n: b for n, b in self._compiled.binds.items() if not b.required and n not in names}
        # Values that the statement itself contains, and those that it computes, such as the time.
        self._constants = {name: bound.value for name, bound in own.items() if not bound.callable}
        self._computed = {name: bound.callable for name, bound in own.items() if bound.callable}
        self._texts: dict[tuple[int, ...], str] = {}

    def fetch(self, connection: Connection, parameters: Mapping[str, Any]) -> list[Any]:
        """Return all rows of a query. Its lists are padded, so that there are few to compile."""
        values = {**self._own_values(), **parameters}
        padded = {n: _pad(v) if isinstance(v, list) else v for n, v in values.items()}
        cursor = _run(connection, *self._bind(padded), many=False)
        return [self._make_row(self._convert(row)) for row in cursor.fetchall()]

    def execute(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Execute a change for each row of values."""
        bound = [self._bind({**self._own_values(), **row}) for row in rows]
        values = [row for _, row in bound]
        many = len(bound) > 1
        _run(connection, bound[0][0], values if many else values[0], many)

    def _own_values(self) -> dict[str, Any]:
        return {**self._constants, **{name: make() for name, make in self._computed.items()}}

    def _bind(self, parameters: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        """Return the SQL, which has a placeholder for each item of a list, and its values."""
        sizes = tuple(len(value) for value in parameters.values() if isinstance(value, list))
        if sizes not in self._texts:
            self._texts[sizes] = self._compiled.construct_expanded_state(parameters).statement
        values: list[Any] = []
        for name, process in self._binders:
            value = parameters[name]
            if process is not None:
                values.append(process(value))
            elif isinstance(value, list):
                values += value
            else:
                values.append(value)
        return self._texts[sizes], tuple(values)

    def _convert(self, row: Sequence[Any]) -> list[Any]:
        values = list(row)
        for at, convert in self._converters:
            values[at] = convert(values[at])
        return values


@lru_cache(maxsize=_CACHED)
def prepare(statement: Executable, names: tuple[str, ...] = ()) -> PreparedStatement:
    """Return a change compiled for rows with these names, or a query."""
    return PreparedStatement(statement, _DIALECT, names)


def execute_prepared(
    connection: Connection, statement: Executable, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Execute a change that is built once, for rows with the same names."""
    if connection.dialect.name == "sqlite":
        prepare(statement, tuple(rows[0])).execute(connection, rows)
    else:
        connection.execute(statement, list(rows))


def fetch_rows(
    connection: Connection, statement: Executable, parameters: Mapping[str, Any] | None
) -> Sequence[Any]:
    """Return all rows of a statement; one with parameters is built once, and prepared on SQLite."""
    if parameters is None or connection.dialect.name != "sqlite":
        return connection.execute(statement, parameters).all()
    return prepare(statement).fetch(connection, parameters)


def _result_converter(type_: Any, dialect: Dialect) -> Any:
    if isinstance(type_, JSON):
        return _read_json
    return type_.dialect_impl(dialect).result_processor(dialect, None)


def _read_json(value: Any) -> Any:
    return from_json(value) if isinstance(value, str) else value  # SQLite stores 5 as a number


def _pad(items: list[Any]) -> list[Any]:
    """Repeat the last item up to a power of two."""
    return items + items[-1:] * ((1 << (len(items) - 1).bit_length()) - len(items))


def _run(connection: Connection, text: str, values: Any, many: bool) -> Any:
    cursor: Any = connection.connection.cursor()
    for listener in connection.dispatch.before_cursor_execute:
        text, values = listener(connection, cursor, text, values, None, many)
    try:
        (cursor.executemany if many else cursor.execute)(text, values)
    except sqlite3.Error as error:  # as SQLAlchemy raises it
        cursor.close()  # The traceback holds it, and SQLite closes no file that a cursor reads.
        raise DBAPIError.instance(
            text,
            values,
            error,
            sqlite3.Error,
            hide_parameters=connection.engine.hide_parameters,
            dialect=connection.dialect,
        ) from error
    return cursor


_LIMIT_STATEMENTS = select(
    *(
        func.set_config(name, bindparam("milliseconds", type_=Text), True)
        for name in ("lock_timeout", "statement_timeout")
    )
)


@asynccontextmanager
async def in_time(location: str) -> AsyncIterator[None]:
    """Bound the waits of the block by the deadline of the request, if there is one."""
    limit = current_deadline()
    try:
        async with asyncio.timeout(None if limit is None else limit.left):
            yield
    except TimeoutError:
        raise StorageBusy(f"{location} is busy", hint=WAIT_HINT) from None


@asynccontextmanager
async def only_writer(lock: asyncio.Lock, location: str) -> AsyncIterator[None]:
    """Let one writer of this process through: a queue is fairer than SQLite's polling."""
    async with in_time(location):
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()


class ReaderThreads:
    """The threads of searches: one, and a second beside a search that takes longer than most.

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


class ConnectionUse:
    """The connections of a database that are in use: a pool closes only the others."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._number = 0
        self._is_closed = False
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def connect(
        self, opening: AbstractAsyncContextManager[AsyncConnection], writes: bool = False
    ) -> AsyncIterator[AsyncConnection]:
        """Open a connection, for which a pool may have to be waited for.

        Let the server end what a transaction waits for at the deadline of the request.
        """
        async with AsyncExitStack() as stack:
            stack.enter_context(self._counted())
            async with in_time(self._location):
                connection = await stack.enter_async_context(opening)
                if writes and (limit := current_deadline()) is not None:
                    milliseconds = str(max(1, int(limit.left * 1000)))  # 0 would mean no limit
                    await connection.execute(_LIMIT_STATEMENTS, {"milliseconds": milliseconds})
            yield connection

    def require_open(self) -> None:
        """Raise StorageError after the end: SQLAlchemy would open connections nobody closes."""
        if self._is_closed:
            raise StorageError(f"{self._location} was closed", hint="Open it again")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.require_open()
        self._number += 1
        try:
            yield
        finally:
            self._number -= 1
            if not self._number:
                self._ended.set()

    async def end(self, seconds: float) -> None:
        """Open no more connections, and wait up to that time for those in use."""
        self._is_closed = True
        self._ended.clear()
        if self._number:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), seconds)
