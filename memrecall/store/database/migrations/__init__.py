"""Migrations: versioned steps from an empty database to the current schema.

A step is a pair of SQL files, one for each dialect, frozen once released; a test compares the
result of all steps with the tables. All steps run in one transaction under a lock, so that two
processes that open an old database at once do not both upgrade it.
"""

import secrets
from importlib import resources
from typing import cast

from sqlalchemy import Connection, insert, inspect, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import SchemaTooNew, StorageError, StorageReadOnly
from memrecall.store.database.distribution import (
    begin_distributed_changes,
    distribute_new_tables,
    lock_schema,
    read_shard_count,
)
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import count_messages_again
from memrecall.store.database.memory_tables import knowledge, knowledge_bases
from memrecall.store.database.statements import new_epoch
from memrecall.store.database.tables import meta, metadata
from memrecall.text import TEXT_VERSION, analyze

LATEST = 15


async def upgrade(database: Database, target: int = LATEST) -> None:
    """Upgrade the schema to version `target`; SchemaTooNew if it is newer than this package."""
    version = await _read_version(database)
    if version > LATEST:
        raise SchemaTooNew(
            f"{database.location} has schema {version}, but this memrecall supports up to {LATEST}"
        )
    if version < target and database.is_read_only:
        raise StorageReadOnly(
            f"{database.location} has schema {version}, and {target} is needed",
            hint="Open it once without --read-only",
        )
    if version < target:
        await database.transact(
            lambda connection: _upgrade(connection, database, target), is_long=True
        )


async def _read_version(database: Database) -> int:
    if database.file is None:
        async with database.read() as connection:
            return await schema_version(connection)
    # In one trip to a thread: a connection of aiosqlite makes dozens.
    return await database.read_together(lambda reads: schema_version(cast(AsyncConnection, reads)))


async def schema_version(connection: AsyncConnection) -> int:
    """Return the version of a database's schema; 0 if it is empty."""
    if meta.name not in await connection.run_sync(_get_table_names):
        return 0
    stored = await connection.scalar(select(meta.c.value).where(meta.c.name == "schema_version"))
    return int(stored or 0)


def _get_table_names(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


async def _upgrade(connection: AsyncConnection, database: Database, target: int) -> None:
    if database.file is None:
        await lock_schema(connection)
    # Read again under the lock: another process may have upgraded meanwhile.
    version = await schema_version(connection)
    if version == 0:
        foreign = await connection.run_sync(_get_table_names) & set(metadata.tables)
        if foreign:
            raise StorageError(
                f"{database.location} has a table {min(foreign)!r} of another program",
                hint="Choose an empty database",
            )
    shards = await read_shard_count(connection) if version else None
    if shards is not None:
        await begin_distributed_changes(connection)
    for step in range(version + 1, target + 1):
        for statement in _read_script(step, database.dialect.name):
            await connection.exec_driver_sql(statement)
        if shards is not None:
            await distribute_new_tables(connection, shards)
        await _change_rows(connection, step)
    if version == 0:
        facts = {
            "schema_version": "0",
            "database_id": secrets.token_hex(16),
            "cursor_secret": secrets.token_hex(32),
            "text_version": str(TEXT_VERSION),
        }
        rows = [{"name": name, "value": value} for name, value in facts.items()]
        await connection.execute(insert(meta), rows)
    set_version = update(meta).where(meta.c.name == "schema_version")
    await connection.execute(set_version.values(value=str(target)))


def _read_script(step: int, dialect: str) -> list[str]:
    script = resources.files(__package__).joinpath(f"{step:04}.{dialect}.sql").read_text("utf-8")
    return [statement.strip() for statement in script.split(";\n") if statement.strip()]


async def _change_rows(connection: AsyncConnection, step: int) -> None:
    """Do what a step needs beyond its SQL."""
    if step == 5:
        await _index_knowledge(connection)
    elif step == 14:  # earlier imports did not count the messages that they stored
        await count_messages_again(connection)


async def _index_knowledge(connection: AsyncConnection) -> None:
    """Give entries that were stored before step 5 their search text and change number."""
    key = (knowledge.c.agent_id, knowledge.c.knowledge_key)
    statement = select(*key, knowledge.c.summary, knowledge.c.content).order_by(*key)
    numbers: dict[str, int] = {}
    for row in (await connection.execute(statement)).all():
        numbers[row.agent_id] = number = numbers.get(row.agent_id, 0) + 1
        search_text = analyze(f"{row.summary}\n{row.content}").to_search_text()
        same_row = (key[0] == row.agent_id, key[1] == row.knowledge_key)
        changed = update(knowledge).where(*same_row)
        await connection.execute(changed.values(search_text=search_text, change_no=number))
    bases = [
        {"agent_id": agent, "version": number, "epoch": new_epoch()}
        for agent, number in numbers.items()
    ]
    if bases:
        await connection.execute(insert(knowledge_bases), bases)
