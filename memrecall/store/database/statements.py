"""Small pieces of SQL that several rooms of the store share."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Select, Table, and_, or_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql import ColumnElement

Item = TypeVar("Item")

# Both drivers take some 32,000 parameters a statement, and a key has up to three parts.
KEYS_PER_STATEMENT = 5_000
OWNERS_PER_STATEMENT = 400  # SQLite nests expressions at most a thousand deep
MICROSECOND = timedelta(microseconds=1)


def new_id(prefix: str) -> str:
    """A fresh id that sorts by the time it was made."""
    return f"{prefix}_{time.time_ns() // 1000:013x}{secrets.token_hex(6)}"


def chunks(items: Sequence[Item], size: int = KEYS_PER_STATEMENT) -> Iterator[Sequence[Item]]:
    """The items in runs of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def insert_missing(
    connection: AsyncConnection, table: Table, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Insert the rows whose key is not there yet, leaving the others as they are."""
    if not rows:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    await connection.execute(dialect.insert(table).on_conflict_do_nothing(), list(rows))


async def select_by_keys(
    connection: AsyncConnection,
    statement: Select[Any],
    columns: Sequence[ColumnElement[Any]],
    keys: Sequence[Any],
) -> list[RowMapping]:
    """The rows whose `columns` are among `keys`: values, or pairs that begin with the owner."""
    found: list[RowMapping] = []
    for part in chunks(keys):
        for condition in _conditions(columns, part):
            found.extend((await connection.execute(statement.where(condition))).mappings())
    return found


def _conditions(
    columns: Sequence[ColumnElement[Any]], keys: Sequence[Any]
) -> Iterator[ColumnElement[bool]]:
    if len(columns) == 1:
        yield columns[0].in_(list(keys))
        return
    # Not (owner, key) IN (…): for that SQLite reads the whole table, every user's rows.
    owner, key = columns
    owned: dict[str, list[str]] = {}
    for name, value in keys:
        owned.setdefault(name, []).append(value)
    for some in chunks(list(owned.items()), OWNERS_PER_STATEMENT):
        yield or_(*(and_(owner == name, key.in_(values)) for name, values in some))


def next_moment(now: datetime, last: datetime | None) -> datetime:
    """`now`, or the first free microsecond after `last`."""
    return now if last is None or now > last else last + MICROSECOND
