"""Everything of a user as plain records, and back into a database, perhaps another one."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import claim, claim_agents
from memrecall.store.database.memory_tables import OF_USERS
from memrecall.store.database.statements import chunks, insert_missing
from memrecall.store.database.tables import UtcTime, memories, messages, sessions, users
from memrecall.types import check_id, check_json, format_time, parse_time

FORMAT = 1
_BATCH = 500
# In an order in which rows may be added: what is referred to comes first.
_TABLES = (users, sessions, messages, memories, *OF_USERS)
_BY_NAME = {table.name: table for table in _TABLES}
_OWN = {"version", "epoch"}  # of the database that has them


async def export_user(database: Database, user_id: str) -> AsyncGenerator[dict[str, Any], None]:
    """A user's rows as JSON objects, as of one moment; vectors and traces are made anew."""
    async with database.read() as connection:
        for table in _TABLES:
            wanted = select(table).where(table.c.user_id == user_id)
            rows = await connection.stream(wanted.order_by(*table.primary_key.columns))
            count = 0
            async for row in rows.mappings():
                count += 1
                yield {"format": FORMAT, "table": table.name, "row": _plain(dict(row))}
            if table is users and not count:
                raise NotFound(f"there is no user {user_id!r}")


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: format_time(value) if isinstance(value, datetime) else value
        for name, value in row.items()
        if name not in _OWN
    }


async def import_user(
    database: Database, user_id: str, records: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """Store exported rows under a user, all or nothing; how many there were of each table.

    What is there already under the same key stays as it is.
    """
    check_id("user_id", user_id)
    rows: dict[str, list[dict[str, Any]]] = {table.name: [] for table in _TABLES}
    for record in records:
        name, row = _read(record)
        rows[name].append({**row, "user_id": user_id})
    await database.transact(lambda c: _import(c, user_id, rows))
    return {name: len(found) for name, found in rows.items()}


def table_of(record: Mapping[str, Any]) -> str:
    """The table that a record of `export_user` is of; InvalidArgument for anything else."""
    return _read(record)[0]


def _read(record: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A record of `export_user`; InvalidArgument for anything else."""
    table = _BY_NAME.get(str(record.get("table")))
    row = record.get("row")
    if record.get("format") != FORMAT or table is None or not isinstance(row, Mapping):
        raise InvalidArgument("this is not a line of an export", hint="Use what `export` gave")
    required = {
        column.name
        for column in table.c
        if not column.nullable and column.server_default is None and column.name not in _OWN
    }
    wrong = sorted((set(row) - set(table.c.keys())) | (required - set(row)))
    if wrong:
        raise InvalidArgument(f"a row of {table.name} has no proper {wrong[0]!r}")
    check_json(f"a row of {table.name}", dict(row))
    values: dict[str, Any] = {name: value for name, value in row.items() if name not in _OWN}
    for column in table.c:
        if isinstance(column.type, UtcTime) and values.get(column.name) is not None:
            values[column.name] = parse_time(values[column.name], column.name)
    return table.name, values


async def _import(
    connection: AsyncConnection, user_id: str, rows: dict[str, list[dict[str, Any]]]
) -> None:
    now = datetime.now(UTC)
    named = {row["agent_id"] for found in rows.values() for row in found if row.get("agent_id")}
    await claim_agents(connection, sorted(named), now)
    first = (rows["users"] or [{}])[0].get("agent_id")
    claims = await claim(connection, [Scope(user_id, first)], now, with_sessions=False)
    for row in rows["users"]:
        profile = {name: row.get(name) for name in ("user_name", "user_type", "profile")}
        zone = row.get("time_zone") or "UTC"
        mine = update(users).where(users.c.user_id == user_id)
        await connection.execute(mine.values(**profile, time_zone=zone))
    for table in _TABLES[1:]:
        for row in rows[table.name]:
            if "change_no" in table.c:
                row["change_no"] = claims.next_change(user_id)
        for part in chunks(_uniform(rows[table.name]), _BATCH):
            await insert_missing(connection, table, part)
    await claims.release(connection)


def _uniform(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the same columns, as one statement takes them."""
    names = {name for row in rows for name in row}
    return [{name: row.get(name) for name in names} for row in rows]
