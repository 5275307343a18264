"""Pieces of SQL that several parts of the store share."""

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Select, String, Table, Text, and_, cast, or_, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql import ColumnElement

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.store.database.dialect import DatabaseDialect
from memrecall.store.database.dialects import dialect_of

Item = TypeVar("Item")

# Both drivers take some 32,000 parameters a statement, and a key has up to three parts.
KEYS_PER_STATEMENT = 5_000
OWNERS_PER_STATEMENT = 400  # SQLite nests expressions at most a thousand deep


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


def require_limit(name: str, value: int, largest: int, smallest: int = 1) -> None:
    """Raise InvalidArgument for what is no whole number, or outside its range."""
    if not isinstance(value, int):
        raise InvalidArgument(
            f"{name} {value!r} is not a whole number", hint=f"Use {smallest} to {largest}"
        )
    if not smallest <= value <= largest:
        raise InvalidArgument(
            f"{name} {value} is out of range", hint=f"Use {smallest} to {largest}"
        )


def filter_scope(statement: Select[Any], table: Table, scope: Scope) -> Select[Any]:
    """Restrict a query to the rows of the scope's user and, if bound, its agent."""
    statement = statement.where(table.c.user_id == scope.user_id)
    if scope.agent_id is not None:
        statement = statement.where(table.c.agent_id == scope.agent_id)
    return statement


def come_after(
    time_column: ColumnElement[Any], key: ColumnElement[Any], last_time: datetime, last_key: str
) -> ColumnElement[bool]:
    """Return the condition for the rows that follow one on a page sorted by latest, then key."""
    is_tie = and_(time_column == last_time, key > last_key)
    # The bound on the time alone lets the index seek; the rest decides between equal times.
    return and_(time_column <= last_time, or_(time_column < last_time, is_tie))


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
        for condition in _match_keys(columns, batch):
            rows.extend((await connection.execute(statement.where(condition))).mappings())
    return rows


def _match_keys(
    columns: Sequence[ColumnElement[Any]], keys: Sequence[Any]
) -> Iterator[ColumnElement[bool]]:
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
