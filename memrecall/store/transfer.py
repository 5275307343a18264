"""Export of everything of a user as plain records, and their import into a database."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import ensure_agents, lock_scopes
from memrecall.store.database.memory_tables import USER_TABLES
from memrecall.store.database.statements import insert_missing, split
from memrecall.store.database.tables import UtcTime, memories, messages, sessions, users
from memrecall.types import check_id, check_json, format_time, parse_time

FORMAT = 1
_BATCH = 500
# In an order in which rows can be inserted: referenced tables come first.
_TABLES = (users, sessions, messages, memories, *USER_TABLES)
_BY_NAME = {table.name: table for table in _TABLES}
_DATABASE_COLUMNS = {"version", "epoch"}  # they belong to the database, not to the user

Row = dict[str, Any]


async def export_user(database: Database, user_id: str) -> AsyncGenerator[dict[str, Any], None]:
    """Yield a user's rows as JSON objects, as of one moment, without vectors and traces."""
    async with database.read() as connection:
        for table in _TABLES:
            statement = select(table).where(table.c.user_id == user_id)
            rows = await connection.stream(statement.order_by(*table.primary_key.columns))
            count = 0
            async for row in rows.mappings():
                count += 1
                yield {"format": FORMAT, "table": table.name, "row": _to_json(row)}
            if table is users and not count:
                raise NotFound(f"there is no user {user_id!r}")


def _to_json(row: Mapping[Any, Any]) -> Row:
    return {
        name: format_time(value) if isinstance(value, datetime) else value
        for name, value in row.items()
        if name not in _DATABASE_COLUMNS
    }


async def import_user(
    database: Database, user_id: str, records: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """Store exported rows under a user, all or nothing; return the count of each table.

    Rows whose key exists already stay as they are.
    """
    check_id("user_id", user_id)
    rows: dict[str, list[Row]] = {table.name: [] for table in _TABLES}
    for record in records:
        name, row = _parse(record)
        rows[name].append({**row, "user_id": user_id})
    await database.transact(lambda c: _import(c, user_id, rows))
    return {name: len(table_rows) for name, table_rows in rows.items()}


def table_of(record: Mapping[str, Any]) -> str:
    """Return the table of a record of `export_user`; InvalidArgument for anything else."""
    return _parse(record)[0]


def _parse(record: Mapping[str, Any]) -> tuple[str, Row]:
    table = _BY_NAME.get(str(record.get("table")))
    row = record.get("row")
    if record.get("format") != FORMAT or table is None or not isinstance(row, Mapping):
        raise InvalidArgument(
            "this is not a line of an export", hint="Use a file that `memrecall export` wrote"
        )
    required = {
        column.name
        for column in table.c
        if not column.nullable
        and column.server_default is None
        and column.name not in _DATABASE_COLUMNS
    }
    wrong = sorted((set(row) - set(table.c.keys())) | (required - set(row)))
    if wrong:
        raise InvalidArgument(f"a row of {table.name} has an invalid {wrong[0]!r}")
    check_json(f"a row of {table.name}", dict(row))
    values = {name: value for name, value in row.items() if name not in _DATABASE_COLUMNS}
    for column in table.c:
        if isinstance(column.type, UtcTime) and values.get(column.name) is not None:
            values[column.name] = parse_time(values[column.name], column.name)
    return table.name, values


async def _import(connection: AsyncConnection, user_id: str, rows: dict[str, list[Row]]) -> None:
    all_rows = (row for table_rows in rows.values() for row in table_rows)
    agents = {row["agent_id"] for row in all_rows if row.get("agent_id")}
    await ensure_agents(connection, sorted(agents), datetime.now(UTC))
    first_agent = (rows["users"] or [{}])[0].get("agent_id")
    locks = await lock_scopes(connection, [Scope(user_id, first_agent)], with_sessions=False)
    for row in rows["users"]:
        profile = {name: row.get(name) for name in ("user_name", "user_type", "profile")}
        zone = row.get("time_zone") or "UTC"
        statement = update(users).where(users.c.user_id == user_id)
        await connection.execute(statement.values(**profile, time_zone=zone))
    for table in _TABLES[1:]:
        table_rows = rows[table.name]
        if "change_no" in table.c:
            for row in table_rows:
                row["change_no"] = locks.next_change(user_id)
        # One statement needs the same columns in all its rows.
        names = {name for row in table_rows for name in row}
        uniform = [{name: row.get(name) for name in names} for row in table_rows]
        for batch in split(uniform, _BATCH):
            await insert_missing(connection, table, batch)
    await locks.save(connection)
