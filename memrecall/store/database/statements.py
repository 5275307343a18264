"""Statements: how they are executed, and pieces of SQL that several parts of the store share.

Statements that every search or write executes are compiled once for SQLite's own driver. Through
SQLAlchemy's execution a single add takes 1.7 times the processor time, a search 1.3 times and a
range read over HTTP 1.5 times: it spends more on a statement than SQLite does.
"""

import json
import secrets
import sqlite3
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    String,
    Table,
    Text,
    and_,
    cast,
    or_,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import ColumnElement

from memrecall.scope import Scope
from memrecall.store.database.dialects import DatabaseDialect, dialect_of

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Both drivers take some 32,000 parameters a statement, and a key has up to three parts.
KEYS_PER_STATEMENT = 5_000
OWNERS_PER_STATEMENT = 400  # SQLite nests expressions at most a thousand deep
STRINGS_PER_CONDITION = 50  # of `mentions` and its like, which no index helps


def new_id(prefix: str) -> str:
    """Return a new id that sorts by the time of its creation."""
    return f"{prefix}_{time.time_ns() // 1000:013x}{secrets.token_hex(6)}"


def new_epoch() -> str:
    """Return a new mark for data derived from rows: older data has another one."""
    return secrets.token_hex(8)


def split(items: Sequence[_Item], size: int = KEYS_PER_STATEMENT) -> Iterator[Sequence[_Item]]:
    """Yield the items in batches of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def filter_scope(statement: Select[Any], table: Table, scope: Scope) -> Select[Any]:
    """Restrict a query to the rows of the scope's user and, if bound, its agent and project."""
    statement = statement.where(table.c.user_id == scope.user_id)
    if scope.agent_id is not None:
        statement = statement.where(table.c.agent_id == scope.agent_id)
    if scope.read_project is not None and "project" in table.c:
        statement = statement.where(in_project(table, scope.read_project))
    return statement


def in_project(table: Table, project: Any) -> ColumnElement[bool]:
    """Return the condition for what is read in a project: its rows, and rows of no project."""
    of_project: ColumnElement[bool] = table.c.project == project
    if table.name == "traces":  # one without a project may quote any
        return of_project
    return or_(of_project, table.c.project.is_(None))


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


def insert_missing(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose key does not exist yet and leave the others as they are."""
    if rows:
        statement = dialect_of(connection).insert(table).on_conflict_do_nothing()
        connection.execute(statement, list(rows))


def upsert(
    connection: Connection,
    table: Table,
    columns: Sequence[str],
    *,
    if_changed: Sequence[str] = (),
) -> Any:
    """Return an INSERT that sets `columns` of an existing row.

    With `if_changed`, the row is left as it is if these columns are equal.
    """
    statement = dialect_of(connection).insert(table)
    values = {name: statement.excluded[name] for name in columns}
    is_changed = [table.c[name] != statement.excluded[name] for name in if_changed]
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_=values,
        where=or_(*is_changed) if is_changed else None,
    )


def select_by_keys(
    connection: Connection,
    statement: Select[Any],
    columns: Sequence[ColumnElement[Any]],
    keys: Sequence[Any],
) -> list[RowMapping]:
    """Return the rows whose `columns` are among `keys`: values, or pairs of owner and key."""
    rows: list[RowMapping] = []
    for batch in split(keys):
        for condition in match_keys(columns, batch):
            rows.extend(connection.execute(statement.where(condition)).mappings())
    return rows


def match_keys(
    columns: Sequence[ColumnElement[Any]], keys: Sequence[Any]
) -> Iterator[ColumnElement[bool]]:
    """Yield conditions for the rows of some keys: values, or pairs of owner and key."""
    if len(columns) == 1:
        yield columns[0].in_(list(keys))
        return
    # Not (owner, key) IN (…): for that SQLite reads the whole table, every user's rows.
    owner, key = columns
    by_owner: dict[str, list[str]] = {}
    for name, value in keys:
        by_owner.setdefault(name, []).append(value)
    for batch in split(list(by_owner.items()), OWNERS_PER_STATEMENT):
        yield or_(*(and_(owner == name, key.in_(values)) for name, values in batch))


class Reads(Protocol):
    """Reads rows in work that is a plain function, in a thread or in a greenlet."""

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
        self._converters: list[tuple[int, Any]] = []
        for at, column in enumerate(columns):
            convert: Any = column.type.dialect_impl(dialect).result_processor(dialect, None)
            if isinstance(column.type, JSON):
                convert = _read_json
            if convert is not None:
                self._converters.append((at, convert))
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
        for name, items in values.items():
            if isinstance(items, list):  # the last item is repeated up to a power of two
                missing = (1 << (len(items) - 1).bit_length()) - len(items)
                values[name] = items + items[-1:] * missing
        cursor = _run(connection, *self._bind(values), many=False)
        rows = []
        for row in cursor.fetchall():
            converted = list(row)
            for at, convert in self._converters:
                converted[at] = convert(converted[at])
            rows.append(self._make_row(converted))
        return rows

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


@lru_cache(maxsize=500)  # a page of messages has a statement for each set of filters
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


def _read_json(value: Any) -> Any:
    return from_json(value) if isinstance(value, str) else value  # SQLite stores 5 as a number


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
