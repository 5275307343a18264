"""The tables are those of the specification, on both engines.

Two deviations, decided in the design: ids are unique per user, so keys and indexes of user data
begin with `user_id`; and columns that have a default are never null.
"""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Connection,
    DateTime,
    Inspector,
    SmallInteger,
    Text,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import IntegrityError

from memrecall.errors import StorageBusy
from memrecall.store import Store
from memrecall.store.database.engine import Database
from memrecall.store.database.migrations import upgrade
from memrecall.store.database.tables import agents, messages, metadata, sessions, users

from ..cases import check_each_async

# The kind of each column; `id` is string(64), and a trailing `!` means "not null".
_COLUMNS = {
    "agents": (
        "agent_id id!, agent_name string(255)!, agent_type string(50), description text, "
        "config json, status small!, create_time time!, update_time time!, creator id"
    ),
    "users": (
        "user_id id!, agent_id id!, user_name string(255), user_type string(50), profile json, "
        "status small!, create_time time!, update_time time!, last_active_time time"
    ),
    "sessions": (
        "session_id id!, agent_id id!, user_id id!, session_name string(255), "
        "session_type string(50), context json, status small!, create_time time!, "
        "update_time time!, end_time time"
    ),
    "messages": (
        "message_id id!, agent_id id!, user_id id!, session_id id!, role string(20)!, "
        "content text!, content_type string(50)!, metadata json, parent_message_id id, "
        "create_time time!, sequence_no big!"
    ),
}
COLUMNS = {
    table: {
        name: kind.replace("id", "string(64)").replace("!", " not null")
        for name, kind in (column.split(" ") for column in columns.split(", "))
    }
    for table, columns in _COLUMNS.items()
}
KEYS = {
    "agents": ["agent_id"],
    "users": ["user_id"],
    "sessions": ["user_id", "session_id"],
    "messages": ["user_id", "message_id"],
}
# Indexes that the specification requires; a longer index with the same prefix also serves.
REQUIRED_INDEXES = {
    "agents": ["status", "create_time"],
    "users": ["agent_id", "agent_id status", "last_active_time"],
    "sessions": ["agent_id user_id", "user_id", "status create_time", "create_time"],
    "messages": [
        "user_id session_id create_time",
        "user_id session_id sequence_no",
        "user_id create_time",
        "create_time",
    ],
}
REFERENCES = {
    "agents": set(),
    "users": {"agent_id -> agents"},
    "sessions": {"agent_id -> agents", "user_id -> users"},
    "messages": {"agent_id -> agents", "user_id -> users", "user_id session_id -> sessions"},
}
ID_COLUMNS = {"agent_id", "user_id", "session_id", "message_id", "parent_message_id"} | {
    *("memory_key", "trace_id", "key_id", "key", "entity_id", "relation_id", "knowledge_key"),
    *("restore_id", "source_id", "destination_id", "supersedes", "superseded_by", "other_key"),
}


def column_kind(column: Any) -> str:
    kind = column["type"]
    names = {SmallInteger: "small", BigInteger: "big", DateTime: "time", JSON: "json", Text: "text"}
    plain = [name for base, name in names.items() if isinstance(kind, base)]
    kind_name = plain[0] if plain else f"string({kind.length})"
    return kind_name if column["nullable"] else f"{kind_name} not null"


def access_paths(inspector: Inspector, table: str) -> list[str]:
    paths: list[Any] = [inspector.get_pk_constraint(table)["constrained_columns"]]
    paths += [unique["column_names"] for unique in inspector.get_unique_constraints(table)]
    paths += [index["column_names"] for index in inspector.get_indexes(table)]
    return [" ".join(path) for path in paths]


async def inspect_database(database: Database, question: Any) -> Any:
    """Return a reflected property of the database's schema."""
    async with database.read() as connection:
        return await connection.run_sync(lambda c: question(inspect(c)))


class TestSpecifiedTables:
    async def test_columns(self, store: Store) -> None:
        async def compare(table: str) -> None:
            columns = await inspect_database(
                store.database, lambda inspector: inspector.get_columns(table)
            )
            kinds = {column["name"]: column_kind(column) for column in columns}
            assert {name: kinds[name] for name in COLUMNS[table]} == COLUMNS[table]

        await check_each_async(COLUMNS, compare)

    async def test_keys_indexes_and_references(self, store: Store) -> None:
        async def compare(table: str) -> None:
            def question(inspector: Inspector) -> Any:
                key = inspector.get_pk_constraint(table)["constrained_columns"]
                references = {
                    f"{' '.join(key['constrained_columns'])} -> {key['referred_table']}"
                    for key in inspector.get_foreign_keys(table)
                }
                return key, access_paths(inspector, table), references

            key, paths, references = await inspect_database(store.database, question)

            assert key == KEYS[table]
            served = [f"{path} " for path in paths]
            assert [
                w for w in REQUIRED_INDEXES[table] if not any(p.startswith(f"{w} ") for p in served)
            ] == []
            assert references == REFERENCES[table]

        await check_each_async(COLUMNS, compare)


def insert_agent_and_user(connection: Any) -> None:
    connection.execute(insert(agents), {"agent_id": "a", "agent_name": "a"})
    connection.execute(insert(users), {"user_id": "u", "agent_id": "a", "epoch": "e"})
    connection.execute(insert(sessions), {"user_id": "u", "session_id": "s", "agent_id": "a"})


def message_row(message_id: str, **fields: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    owner = {"user_id": "u", "agent_id": "a", "session_id": "s"}
    content = {"role": "user", "content": "hi", "search_text": "hi", "ts": now}
    numbers = {"sequence_no": 1, "change_no": 1}
    return {"message_id": message_id, **owner, **content, **numbers, **fields}


async def test_defaults(store: Store) -> None:
    def work(connection: Any) -> list[Any]:
        insert_agent_and_user(connection)
        connection.execute(insert(messages), message_row("m"))
        return [
            connection.execute(select(table)).mappings().one()
            for table in (agents, users, sessions, messages)
        ]

    before = datetime.now(UTC) - timedelta(seconds=1)  # the database's clock may be coarse
    agent, user, session, message = await store.database.transact(work)
    after = datetime.now(UTC) + timedelta(seconds=1)

    assert [row["status"] for row in (agent, user, session)] == [1, 1, 1]
    assert message["content_type"] == "text"
    assert user["time_zone"] == "UTC"
    for row in (agent, user, session, message):
        assert before < row["create_time"] < after
    for row in (agent, user, session):
        assert before < row["update_time"] < after


VIOLATIONS: list[dict[str, Any]] = [
    {"message_id": "m"},
    {"create_time": datetime(2026, 1, 1, tzinfo=UTC)},
    {"sequence_no": 1},
    {"session_id": "unknown"},
    {"agent_id": "unknown"},
    {"user_id": "unknown"},
    {"content": None},
    {"role": None},
]


def add_row(connection: Any, row: dict[str, Any]) -> None:
    connection.execute(insert(messages), row)


async def test_database_enforces_constraints(store: Store) -> None:
    first = message_row("m", create_time=datetime(2026, 1, 1, tzinfo=UTC))
    second = message_row("n", create_time=datetime(2026, 1, 2, tzinfo=UTC), sequence_no=2)

    def work(connection: Any) -> None:
        insert_agent_and_user(connection)
        connection.execute(insert(messages), first)

    await store.database.transact(work)
    for violation in VIOLATIONS:
        with pytest.raises((IntegrityError, StorageBusy)):  # a missing row may be erased just now
            await store.database.transact(partial(add_row, row={**second, **violation}))
    await store.database.transact(partial(add_row, row=second))


async def test_ids_sort_by_bytes_in_any_server_locale(store: Store, engine: str) -> None:
    if engine == "sqlite":
        expected = text("SELECT count(*) FROM sqlite_master WHERE sql LIKE '%COLLATE%'")
        async with store.database.read() as connection:
            assert await connection.scalar(expected) == 0  # SQLite compares bytes by default
        return
    expected = text(
        "SELECT table_name, column_name, collation_name FROM information_schema.columns"
        " WHERE table_schema = 'public'"
    )
    async with store.database.read() as connection:
        rows = (await connection.execute(expected)).all()
    assert [row for row in rows if row[1] in ID_COLUMNS and row[2] != "C"] == []


def describe_schema(connection: Connection) -> dict[str, Any]:
    """Return everything that reflection shows, in a deterministic order."""
    inspector = inspect(connection)
    return {
        table: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"], column["default"])
                for column in inspector.get_columns(table)
            },
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "references": sorted(
                (k["constrained_columns"], k["referred_table"], k["referred_columns"])
                for k in inspector.get_foreign_keys(table)
            ),
            "uniques": sorted(
                (str(u["name"]), u["column_names"]) for u in inspector.get_unique_constraints(table)
            ),
            "indexes": sorted(
                (str(i["name"]), i["column_names"], i["unique"], str(i.get("column_sorting")))
                for i in inspector.get_indexes(table)
            ),
        }
        for table in inspector.get_table_names()
    }


async def test_migrations_create_the_declared_tables(databases: Any) -> None:
    migrated = Database(databases.fresh(migrated=False))
    declared = Database(databases.fresh(migrated=False))
    try:
        await upgrade(migrated)
        await declared.transact(metadata.create_all)
        async with migrated.read() as first, declared.read() as second:
            assert await first.run_sync(describe_schema) == await second.run_sync(describe_schema)
    finally:
        await migrated.close()
        await declared.close()
