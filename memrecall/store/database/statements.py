"""Pieces of SQL that several parts of the store share, and the connections that run them."""

import asyncio
import json
import secrets
import sqlite3
import time
from collections import namedtuple
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import (
    JSON,
    CompoundSelect,
    Connection,
    Dialect,
    Executable,
    Select,
    String,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    or_,
    select,
)
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql import ColumnElement

from memrecall.scope import Scope
from memrecall.store.database.dialect import DatabaseDialect
from memrecall.store.database.dialects import dialect_of

Item = TypeVar("Item")
Result = TypeVar("Result")

# Both drivers take some 32,000 parameters a statement, and a key has up to three parts.
KEYS_PER_STATEMENT = 5_000
OWNERS_PER_STATEMENT = 400  # SQLite nests expressions at most a thousand deep


class Reads(Protocol):
    """Reads rows: a database, or one connection to it."""

    in_thread: bool  # where heavy work may be done at once: no event loop waits for it

    def can_run(self, statements: int) -> bool:
        """Return whether so many statements can run at the same time."""

    async def fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        """Return all rows of one statement."""


class PreparedStatement:
    """A statement that is compiled once and run on the driver's own connection.

    For the few rows of a search or of a chat turn, SQLAlchemy takes five times as long as SQLite.
    Its types convert the values, and its listeners hear of the statement, all the same.
    """

    def __init__(self, statement: Any, dialect: Dialect, names: Sequence[str]) -> None:
        is_query = isinstance(statement, Select | CompoundSelect)
        columns = list(statement.selected_columns) if is_query else []
        row_type: Any = namedtuple("PreparedRow", [column.key for column in columns])  # type: ignore[misc]
        self._make_row = row_type._make
        self._compiled: Any = statement.compile(
            dialect=dialect, column_keys=None if is_query else list(names)
        )
        processors = [
            _read_json
            if isinstance(column.type, JSON)
            else column.type.dialect_impl(dialect).result_processor(dialect, None)
            for column in columns
        ]
        self._results = [(at, process) for at, process in enumerate(processors) if process]
        self._binders = [
            (name, bound.type.dialect_impl(dialect).bind_processor(dialect))
            for name in self._compiled.positiontup
            for bound in (self._compiled.binds[name],)
        ]
        # Of the values that the statement itself contains.
        self._constants = {
            name: bound.value
            for name, bound in self._compiled.binds.items()
            if not bound.required and name not in names
        }
        self._texts: dict[tuple[int, ...], str] = {}

    def fetch(self, connection: Connection, parameters: Mapping[str, Any]) -> list[Any]:
        """Return all rows of a query. Its lists are padded, so that there are few to compile."""
        padded = {
            name: _pad(value) if isinstance(value, list) else value
            for name, value in (self._constants | dict(parameters)).items()
        }
        text, values = self._bind(padded)
        cursor = _run(connection, text, values, many=False)
        return [self._make_row(self._convert(row)) for row in cursor.fetchall()]

    def execute(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Execute a change for each row of values."""
        bound = [self._bind({**self._constants, **row}) for row in rows]
        many = len(bound) > 1
        _run(
            connection, bound[0][0], [values for _, values in bound] if many else bound[0][1], many
        )

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
        for at, process in self._results:
            values[at] = process(values[at])
        return values


def _read_json(value: Any) -> Any:
    # Most rows have no metadata, and every hit of a search has several such columns.
    if value == "{}":
        return {}
    return json.loads(value) if isinstance(value, str) else value  # SQLite stores 5 as a number


def _pad(items: list[Item]) -> list[Item]:
    """Repeat the last item up to a power of two."""
    return items + items[-1:] * ((1 << (len(items) - 1).bit_length()) - len(items))


def _run(connection: Connection, text: str, values: Any, many: bool) -> Any:
    cursor: Any = connection.connection.cursor()
    for listener in connection.dispatch.before_cursor_execute:
        text, values = listener(connection, cursor, text, values, None, many)
    try:
        (cursor.executemany if many else cursor.execute)(text, values)
    except sqlite3.Error as error:  # as SQLAlchemy raises it
        raise DBAPIError.instance(
            text,
            values,
            error,
            sqlite3.Error,
            hide_parameters=connection.engine.hide_parameters,
            dialect=connection.dialect,
        ) from error
    return cursor


class InlineConnection:
    """The part of an async connection that transactions use, over a synchronous one."""

    in_thread = True

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def can_run(self, statements: int) -> bool:
        """Return whether there is one statement: a connection runs one after the other."""
        return statements == 1

    async def fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        """Return all rows of one statement.

        One that comes with parameters is built once and used often, so that it is prepared.
        """
        if parameters is None:
            return self._connection.execute(statement).all()
        return self._prepare(statement, ()).fetch(self._connection, parameters)

    async def execute_prepared(
        self, statement: Executable, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Execute a statement that is built once, for rows with the same names."""
        self._prepare(statement, tuple(rows[0])).execute(self._connection, rows)

    def _prepare(self, statement: Executable, names: tuple[str, ...]) -> PreparedStatement:
        by_names = _prepared.setdefault(statement, {})
        if names not in by_names:
            by_names[names] = PreparedStatement(statement, self.dialect, names)
        return by_names[names]

    @property
    def dialect(self) -> Dialect:
        """SQLAlchemy's dialect of the database."""
        return self._connection.dialect

    async def execute(self, statement: Executable, parameters: Any = None) -> Any:
        """Execute a statement; all its rows are read before the next one begins."""
        result = self._connection.execute(statement, parameters)
        return result.freeze()() if result.returns_rows else result

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """Return the first value of the first row."""
        return self._connection.scalar(statement, parameters)

    async def scalars(self, statement: Executable, parameters: Any = None) -> Any:
        """Return the first value of every row."""
        return (await self.execute(statement, parameters)).scalars()

    async def run_sync(self, work: Callable[..., Result], *args: Any) -> Result:
        """Call a function with the synchronous connection."""
        return work(self._connection, *args)


_Prepared = dict[tuple[str, ...], PreparedStatement]
_prepared: WeakKeyDictionary[Executable, _Prepared] = WeakKeyDictionary()


async def fetch_prepared(
    reads: AsyncConnection | Reads, statement: Executable, parameters: Mapping[str, Any]
) -> Sequence[Any]:
    """Return the rows of a query that is built once."""
    if not isinstance(reads, AsyncConnection):
        return await reads.fetch(statement, parameters)
    rows: Sequence[Any] = (await reads.execute(statement, parameters)).all()
    return rows


async def fetch_each(
    reads: AsyncConnection | Reads, queries: Sequence[tuple[Executable, Mapping[str, Any]]]
) -> list[Sequence[Any]]:
    """Return the rows of queries that are built once and do not depend on each other."""
    if isinstance(reads, AsyncConnection) or not reads.can_run(len(queries)):
        return [await fetch_prepared(reads, *query) for query in queries]
    return await asyncio.gather(*(fetch_prepared(reads, *query) for query in queries))


async def execute_prepared(
    connection: AsyncConnection | InlineConnection,
    statement: Executable,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Execute a statement that is built once, for rows with the same names."""
    if isinstance(connection, InlineConnection):
        await connection.execute_prepared(statement, rows)
    else:
        await connection.execute(statement, list(rows))


def run_inline(work: Awaitable[Result]) -> Result:
    """Return the result of work that awaits nothing but an `InlineConnection`."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as stop:
        result: Result = stop.value
        return result
    steps.close()
    raise RuntimeError("a transaction awaited something other than its database")


def new_id(prefix: str) -> str:
    """Return a new id that sorts by the time of its creation."""
    return f"{prefix}_{time.time_ns() // 1000:013x}{secrets.token_hex(6)}"


def new_epoch() -> str:
    """Return a mark that differs from that of all data derived so far."""
    return secrets.token_hex(8)


def split(items: Sequence[Item], size: int = KEYS_PER_STATEMENT) -> Iterator[Sequence[Item]]:
    """Yield the items in batches of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def filter_scope(statement: Select[Any], table: Table, scope: Scope) -> Select[Any]:
    """Restrict a query to the rows of the scope's user and, if bound, its agent."""
    statement = statement.where(table.c.user_id == scope.user_id)
    if scope.agent_id is not None:
        statement = statement.where(table.c.agent_id == scope.agent_id)
    return statement


def select_in_key_order(dialect: DatabaseDialect, table: Table) -> Select[Any]:
    """Return the query for all rows of a table, in an order that is the same in all databases."""
    order = [
        dialect.sort_by_bytes(key) if isinstance(key.type, String) else key
        for key in table.primary_key.columns
    ]
    return select(table).order_by(*order)


def mentions(column: ColumnElement[Any], strings: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that JSON contains any of some strings, as a whole string."""
    # JSON contains a string exactly if its text contains the quoted one.
    text = cast(column, Text)
    return or_(*(text.contains(json.dumps(string), autoescape=True) for string in strings))


async def insert_missing(
    connection: AsyncConnection, table: Table, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Insert the rows whose key does not exist yet and leave the others as they are."""
    if rows:
        statement = dialect_of(connection).insert(table).on_conflict_do_nothing()
        await connection.execute(statement, list(rows))


def upsert(
    connection: AsyncConnection, table: Table, columns: Sequence[str], *, add: bool = False
) -> Any:
    """Return an INSERT that sets `columns` of an existing row, or adds to them."""
    statement = dialect_of(connection).insert(table)
    values = {name: statement.excluded[name] for name in columns}
    if add:
        values = {name: table.c[name] + value for name, value in values.items()}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=values)


async def select_by_keys(
    connection: AsyncConnection,
    statement: Select[Any],
    columns: Sequence[ColumnElement[Any]],
    keys: Sequence[Any],
) -> list[RowMapping]:
    """Return the rows whose `columns` are among `keys`: values, or pairs of owner and key."""
    rows: list[RowMapping] = []
    for batch in split(keys):
        for condition in match_keys(columns, batch):
            rows.extend((await connection.execute(statement.where(condition))).mappings())
    return rows


class KeyedQuery:
    """A query for the rows of pairs of owner and key, built once.

    On SQLite it is prepared and executed for each owner; a server gets one query for many owners.
    """

    def __init__(
        self, statement: Select[Any], owner: ColumnElement[Any], key: ColumnElement[Any]
    ) -> None:
        self._statement = statement
        self._columns = (owner, key)
        of_keys = key.in_(bindparam("of_keys", expanding=True))
        self._of_owner = statement.where(owner == bindparam("of_owner"), of_keys)

    async def fetch(
        self, connection: AsyncConnection | InlineConnection, pairs: Sequence[tuple[str, str]]
    ) -> Sequence[Any]:
        """Return the rows of some pairs, as mappings."""
        if not isinstance(connection, InlineConnection):
            return await select_by_keys(connection, self._statement, self._columns, pairs)
        return [
            row._asdict()
            for owner, keys in _group_by_owner(pairs).items()
            for batch in split(keys)
            for row in await connection.fetch(
                self._of_owner, {"of_owner": owner, "of_keys": list(batch)}
            )
        ]


def _group_by_owner(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for owner, key in pairs:
        keys.setdefault(owner, []).append(key)
    return keys


def match_keys(
    columns: Sequence[ColumnElement[Any]], keys: Sequence[Any]
) -> Iterator[ColumnElement[bool]]:
    """Yield conditions for the rows of some keys: values, or pairs of owner and key."""
    if len(columns) == 1:
        yield columns[0].in_(list(keys))
        return
    # Not (owner, key) IN (…): for that SQLite reads the whole table, every user's rows.
    owner, key = columns
    for batch in split(list(_group_by_owner(keys).items()), OWNERS_PER_STATEMENT):
        yield or_(*(and_(owner == name, key.in_(values)) for name, values in batch))
