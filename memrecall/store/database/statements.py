"""Pieces of SQL that several parts of the store share."""

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, String, Table, Text, and_, cast, or_, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.sql import ColumnElement

from memrecall.scope import Scope
from memrecall.store.database.dialect import DatabaseDialect
from memrecall.store.database.dialects import dialect_of

_Item = TypeVar("_Item")

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
    """Return the condition for what is read in a project: its own rows and those of none."""
    of_project: ColumnElement[bool] = table.c.project == project
    if table.name == "traces":  # one of no project may quote any
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
