"""Versioned steps from an empty database to the present schema.

A step is a pair of SQL files, one a database kind, frozen once released; a test holds the result
of all steps against `tables.py`. Each step runs in one transaction under a lock, so that two
processes that open an old database at once do not both upgrade it.
"""

import secrets
from importlib import resources

from sqlalchemy import Connection, insert, inspect, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import SchemaTooNew
from memrecall.store.database.engine import Database
from memrecall.store.database.migrations.old_knowledge import index_old_knowledge
from memrecall.store.database.tables import meta
from memrecall.text import TEXT_VERSION

LATEST = 6
# What a step needs done that SQL cannot say.
_FOLLOWED_BY = {5: index_old_knowledge}
_LOCK_KEY = 0x6D656D72  # "memr": the same for every process that upgrades


async def upgrade(database: Database, target: int = LATEST) -> None:
    """Bring the database to schema `target`; a database from the future is refused untouched."""
    async with database.read() as connection:
        version = await schema_version(connection)
    if version > LATEST:
        raise SchemaTooNew(
            f"{database.location} has schema {version}, this memrecall knows up to {LATEST}",
            hint="Upgrade memrecall: pip install -U memrecall",
        )
    if version < target:
        await database.transact(lambda connection: _upgrade(connection, database, target))


async def schema_version(connection: AsyncConnection) -> int:
    """The schema a database has; 0 for an empty one."""
    if not await connection.run_sync(_has_meta):
        return 0
    stored = await connection.scalar(select(meta.c.value).where(meta.c.name == "schema_version"))
    return int(stored or 0)


def _has_meta(connection: Connection) -> bool:
    return inspect(connection).has_table(meta.name)


async def _upgrade(connection: AsyncConnection, database: Database, target: int) -> None:
    if not database.is_sqlite:
        await connection.execute(
            text("SELECT pg_advisory_xact_lock(:key)").bindparams(key=_LOCK_KEY)
        )
    # Read again under the lock: another process may have upgraded meanwhile.
    version = await schema_version(connection)
    for step in range(version + 1, target + 1):
        for statement in _statements(step, "sqlite" if database.is_sqlite else "postgresql"):
            await connection.exec_driver_sql(statement)
        if step in _FOLLOWED_BY:
            await _FOLLOWED_BY[step](connection)
    if version == 0:
        await connection.execute(insert(meta), _birth_certificate())
    await connection.execute(
        update(meta).where(meta.c.name == "schema_version").values(value=str(target))
    )


def _statements(step: int, kind: str) -> list[str]:
    script = resources.files(__package__).joinpath(f"{step:04}.{kind}.sql").read_text("utf-8")
    return [statement.strip() for statement in script.split(";\n") if statement.strip()]


def _birth_certificate() -> list[dict[str, str]]:
    return [
        {"name": "schema_version", "value": "0"},
        {"name": "database_id", "value": secrets.token_hex(16)},
        {"name": "cursor_secret", "value": secrets.token_hex(32)},
        {"name": "text_version", "value": str(TEXT_VERSION)},
    ]
