"""Knowledge graphs in the tables of the store."""

from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, insert, select, update

from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_scopes
from memrecall.store.database.statements import (
    KEYS_PER_STATEMENT,
    STRINGS_PER_CONDITION,
    ConnectionReads,
    Reads,
    mentions,
    split,
)
from memrecall.store.database.tables import aliases, entities, relations
from memrecall.store.graph_rows import GRAPH_TABLES, Conditions, GraphRow, GraphTransaction

Result = TypeVar("Result")

_TABLES = {table.name: table for table in (entities, aliases, relations)}


def read_rows(
    reads: Reads,
    user_id: str,
    table: str,
    where: Conditions,
    *,
    after: str = "",
    limit: int | None = None,
    newest: bool = False,
) -> list[GraphRow]:
    """Return the rows of a user that meet all conditions, in the order of their keys."""
    values = {name: list(items) for name, items in where.items() if items is not None}
    if not all(values.values()):
        return []
    options: dict[str, Any] = {"after": after, "limit": limit, "newest": newest}
    for name, items in values.items():
        if len(items) > KEYS_PER_STATEMENT:
            batches = [{**where, name: batch} for batch in split(items)]
            parts = [read_rows(reads, user_id, table, batch, **options) for batch in batches]
            return _cut(table, [row for part in parts for row in part], limit, newest)
    empty = tuple(sorted(where.keys() - values.keys()))
    bounds: dict[str, Any] = {"following": after} if after else {}
    bounds |= {} if limit is None else {"most": limit}
    statement = _select(table, tuple(sorted(values)), empty, tuple(bounds), newest)
    rows = reads.fetch(statement, {"of_user": user_id, **values, **bounds})
    return [row._asdict() for row in (reversed(rows) if newest else rows)]


class TableTransaction:
    """Changes of one user's rows in a transaction, which must have locked the user."""

    def __init__(self, connection: Connection, user_id: str) -> None:
        self._connection = connection
        self._user_id = user_id

    def read(self, table: str, where: Conditions, **options: Any) -> list[GraphRow]:
        """Return the rows that meet all conditions, in the order of their keys."""
        return read_rows(ConnectionReads(self._connection), self._user_id, table, where, **options)

    def citing(self, table: str, message_ids: Sequence[str]) -> list[GraphRow]:
        """Return the aliases or relations that have any of the messages as a source."""
        target = _TABLES[table]
        rows: list[Any] = []
        for batch in split(message_ids, STRINGS_PER_CONDITION):
            is_source = mentions(target.c.source_message_ids, batch)
            statement = select(target).where(target.c.user_id == self._user_id, is_source)
            rows += self._connection.execute(statement)
        return [row._asdict() for row in rows]

    def insert(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Store rows whose keys are new."""
        if rows:
            owned = [{**row, "user_id": self._user_id} for row in rows]
            self._connection.execute(insert(_TABLES[table]), owned)

    def update(self, table: str, row: GraphRow, changes: GraphRow) -> None:
        """Change columns of a stored row."""
        if len(changes.get("source_message_ids", ())) > len(row.get("source_message_ids", ())):
            changes = {**changes, "import_label": None}  # taking an import back leaves it here
        statement = update(_TABLES[table]).where(*self._is_row(table, row))
        self._connection.execute(statement.values(changes))

    def delete(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Remove stored rows."""
        for row in rows:
            self._connection.execute(delete(_TABLES[table]).where(*self._is_row(table, row)))

    def _is_row(self, table: str, row: GraphRow) -> list[ColumnElement[bool]]:
        key = {"user_id": self._user_id, **{name: row[name] for name in GRAPH_TABLES[table]}}
        return [_TABLES[table].c[name] == value for name, value in key.items()]


class StoreGraphs:
    """Graphs in the tables of the store."""

    is_in_store = True

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(
        self, user_id: str, table: str, where: Conditions, **options: Any
    ) -> list[GraphRow]:
        """Return rows of a user."""
        return await self._database.read_together(
            lambda reads: read_rows(reads, user_id, table, where, **options)
        )

    async def transact(self, scope: Scope, work: Callable[[GraphTransaction], Result]) -> Result:
        """Call `work` in a transaction that locks the user."""

        def run(connection: Connection) -> Result:
            locks = lock_scopes(connection, [scope], with_sessions=False)
            result = work(TableTransaction(connection, scope.user_id))
            locks.save(connection)
            return result

        return await self._database.transact(run)

    async def compact(self, user_id: str) -> None:
        """Remove the bytes of deleted rows from the file."""
        await self._database.remove_erased_bytes()

    async def erase_user(self, user_id: str) -> None:
        """Do nothing: the store erases its tables itself."""

    async def close(self) -> None:
        """Do nothing: the store closes the database."""


@cache  # Every search runs some of these, and building one costs as much as running it.
def _select(
    name: str,
    columns: tuple[str, ...],
    empty: tuple[str, ...],
    bounds: tuple[str, ...],
    newest: bool,
) -> Select[Any]:
    table = _TABLES[name]
    key = table.c[GRAPH_TABLES[name][-1]]
    statement = select(table).where(
        table.c.user_id == bindparam("of_user"),
        *(table.c[column].in_(bindparam(column, expanding=True)) for column in columns),
        *(table.c[column].is_(None) for column in empty),
    )
    if "following" in bounds:
        statement = statement.where(key > bindparam("following"))
    statement = statement.order_by(key.desc() if newest else key)
    return statement.limit(bindparam("most")) if "most" in bounds else statement


def _cut(name: str, rows: list[GraphRow], limit: int | None, newest: bool) -> list[GraphRow]:
    rows.sort(key=itemgetter(GRAPH_TABLES[name][-1]))
    first = 0 if limit is None or not newest else max(0, len(rows) - limit)
    return rows[first:][:limit]
