"""Migrations: versioned steps from an empty database to the current schema.

A step is a pair of SQL files, one for each dialect, frozen once released; a test compares the
result of all steps with the tables. All steps run in one transaction under a lock, so that two
processes that open an old database at once do not both upgrade it.
"""

import secrets
from collections.abc import Callable
from importlib import resources

from sqlalchemy import Connection, insert, inspect, select, update

from memrecall.errors import SchemaTooNew, StorageError, StorageReadOnly
from memrecall.store.database.distribution import (
    begin_distributed_changes,
    distribute_new_tables,
    lock_schema,
    read_shard_count,
)
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import count_messages_again
from memrecall.store.database.statements import new_epoch
from memrecall.store.database.tables import knowledge, knowledge_bases, meta, metadata
from memrecall.text import TEXT_VERSION, analyze
from memrecall.workers import in_thread

LATEST = 15


async def upgrade(database: Database, target: int = LATEST) -> bool:
    """Upgrade the schema to version `target`, and return whether it was older.

    SchemaTooNew if it is newer than this package.
    """
    if database.file is None:
        async with database.read() as connection:
            version = await connection.run_sync(schema_version)
    else:  # a connection of aiosqlite makes dozens of trips to a thread

        def read_version() -> int:
            with database.read_inline() as direct:
                return schema_version(direct)

        version = await in_thread(read_version)
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
    return version < target


def schema_version(connection: Connection) -> int:
    """Return the version of a database's schema; 0 if it is empty."""
    if meta.name not in _get_table_names(connection):
        return 0
    stored = connection.scalar(select(meta.c.value).where(meta.c.name == "schema_version"))
    return int(stored or 0)


def _get_table_names(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def _upgrade(connection: Connection, database: Database, target: int) -> None:
    if database.file is None:
        lock_schema(connection)
    # Read again under the lock: another process may have upgraded it.
    version = schema_version(connection)
    if version == 0:
        foreign = _get_table_names(connection) & set(metadata.tables)
        if foreign:
            raise StorageError(
                f"{database.location} has a table {min(foreign)!r} of another program",
                hint="Choose an empty database",
            )
    shards = read_shard_count(connection) if version else None
    if shards is not None:
        begin_distributed_changes(connection)
    for step in range(version + 1, target + 1):
        name = f"{step:04}.{database.dialect.name}.sql"
        script = resources.files(__package__).joinpath(name).read_text("utf-8")
        for statement in filter(None, map(str.strip, script.split(";\n"))):
            connection.exec_driver_sql(statement)
        if shards is not None:
            distribute_new_tables(connection, shards)
        if step in _ROW_CHANGES:
            _ROW_CHANGES[step](connection)
    if version == 0:
        facts = {
            "schema_version": "0",
            "database_id": secrets.token_hex(16),
            "cursor_secret": secrets.token_hex(32),
            "text_version": str(TEXT_VERSION),
        }
        rows = [{"name": name, "value": value} for name, value in facts.items()]
        connection.execute(insert(meta), rows)
    set_version = update(meta).where(meta.c.name == "schema_version")
    connection.execute(set_version.values(value=str(target)))


def _index_knowledge(connection: Connection) -> None:
    """Give entries that were stored before step 5 their search text and change number."""
    key = (knowledge.c.agent_id, knowledge.c.knowledge_key)
    statement = select(*key, knowledge.c.summary, knowledge.c.content).order_by(*key)
    numbers: dict[str, int] = {}
    for row in connection.execute(statement).all():
        numbers[row.agent_id] = number = numbers.get(row.agent_id, 0) + 1
        search_text = analyze(f"{row.summary}\n{row.content}").to_search_text()
        same_row = (key[0] == row.agent_id, key[1] == row.knowledge_key)
        changed = update(knowledge).where(*same_row)
        connection.execute(changed.values(search_text=search_text, change_no=number))
    bases = [
        {"agent_id": agent, "version": number, "epoch": new_epoch()}
        for agent, number in numbers.items()
    ]
    if bases:
        connection.execute(insert(knowledge_bases), bases)


# What steps do beyond their SQL.
_ROW_CHANGES: dict[int, Callable[[Connection], None]] = {
    5: _index_knowledge,
    14: count_messages_again,  # earlier imports did not count the messages that they stored
}
