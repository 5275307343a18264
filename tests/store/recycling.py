"""Databases that are used again: a test's PostgreSQL database is emptied, not dropped.

Making one costs a copy of eight megabytes, emptying one some milliseconds. A database whose
schema a test has changed is dropped all the same. SQLite files are copies of a migrated one.
"""

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from memrecall.store import Store

from ..conftest import MIGRATED, Databases, PostgresqlServer

Result = TypeVar("Result")

# Whoever is still connected is sent away, and waited for.
HANG_UP = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
SHAPE = """
SELECT concat(
  (SELECT string_agg(concat_ws(' ', c.relname, c.relkind, a.attname, a.attnotnull), ', '
                     ORDER BY c.relname, a.attnum)
   FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
   WHERE c.relnamespace = 'public'::regnamespace),
  (SELECT string_agg(conname, ', ' ORDER BY conname) FROM pg_constraint),
  (SELECT string_agg(extname, ', ' ORDER BY extname) FROM pg_extension))
"""
WRITTEN_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
"""
META = "SELECT name, value FROM memrecall_meta ORDER BY name"


class RecycledDatabases:
    """Lends the databases of one server, and empties those that come back."""

    def __init__(self, server: PostgresqlServer) -> None:
        self._server = server
        self._free: list[str] = []
        self._shape, self._meta = _run(self._look())

    def take(self) -> str:
        """The name of a migrated database without rows."""
        return self._free.pop() if self._free else self._server.create(migrated=True)

    def give_back(self, names: list[str]) -> None:
        """Empty databases for the next test; drop those that cannot be."""
        emptied = [name for name in names if _run(self._empty(name))]
        self._free += emptied
        self._server.drop([name for name in names if name not in emptied])

    async def _look(self) -> tuple[Any, list[Any]]:
        connection = await asyncpg.connect(self._server.uri, database=MIGRATED)
        try:
            return await connection.fetchval(SHAPE), await connection.fetch(META)
        finally:
            await connection.close()

    async def _empty(self, name: str) -> bool:
        connection = await asyncpg.connect(self._server.uri, database=name)
        try:
            await connection.execute(HANG_UP)
            if await connection.fetchval(SHAPE) != self._shape:
                return False
            written = {row["relname"] for row in await connection.fetch(WRITTEN_TABLES)}
            if tables := ", ".join(sorted(written - {"memrecall_meta"})):
                await connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
            if await connection.fetch(META) != self._meta:
                await connection.execute("TRUNCATE memrecall_meta")
                insert = "INSERT INTO memrecall_meta (name, value) VALUES ($1, $2)"
                await connection.executemany(insert, self._meta)
            return True
        finally:
            await connection.close()


class LentDatabases:
    """The databases of one test."""

    def __init__(self, server: PostgresqlServer, recycled: RecycledDatabases) -> None:
        self._server = server
        self._recycled = recycled
        self.lent: list[str] = []
        self.made: list[str] = []

    def fresh(self, *, migrated: bool = True) -> str:
        """The location of a database that nobody has used, or that is as if nobody had."""
        if migrated:
            self.lent.append(self._recycled.take())
            return self._server.location(self.lent[-1])
        self.made.append(self._server.create(migrated=False))
        return self._server.location(self.made[-1])


class CopiedFiles:
    """SQLite files in one folder, copied from a migrated one."""

    def __init__(self, folder: Path, template: Path) -> None:
        self._folder = folder
        self._template = template
        self._numbers = count()

    def fresh(self, *, migrated: bool = True) -> str:
        """The path of a new file, or of none yet where it must not have a schema."""
        file = self._folder / f"memrecall{next(self._numbers)}.db"
        if migrated:
            shutil.copy(self._template, file)
        return str(file)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    with ThreadPoolExecutor(1) as aside:  # the caller may be inside an event loop
        return aside.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def recycled(postgresql_server: PostgresqlServer) -> RecycledDatabases:
    """The databases that all tests of a worker share, one after the other."""
    return RecycledDatabases(postgresql_server)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file that is only copied."""

    async def migrate() -> None:
        async with await Store.open(str(file)):
            pass

    file = tmp_path_factory.mktemp("template") / "memrecall.db"
    _run(migrate())
    return file


@pytest.fixture
def databases(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Databases of the engine under test."""
    if engine == "sqlite":
        yield CopiedFiles(tmp_path, request.getfixturevalue("sqlite_template"))
        return
    recycled: RecycledDatabases = request.getfixturevalue("recycled")
    server: PostgresqlServer = request.getfixturevalue("postgresql_server")
    lent = LentDatabases(server, recycled)
    yield lent
    recycled.give_back(lent.lent)
    server.drop(lent.made)
