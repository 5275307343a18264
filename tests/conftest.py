"""Fixtures that all tests share: databases of both engines, a store, a library.

A test that uses `store`, `library` or `location` runs once on each engine. The PostgreSQL server
starts when the first test needs it, one for each worker of pytest-xdist.

`library` is opened with `library_settings` and filled by `populate`: a package or a module of tests
overrides these two instead of opening a library of its own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from memrecall.memory import Library
from memrecall.settings import Settings
from memrecall.store import Store
from tests.databases import (
    DatabasePool,
    Databases,
    PostgresqlDatabases,
    PostgresqlServer,
    SqliteDatabases,
    migrate,
    run_aside,
    start_postgresql,
)

Populate = Callable[[Library], Awaitable[object]]

# Machines are shared: how long an example takes says nothing about the code.
hypothesis.settings.register_profile(
    "memrecall", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("memrecall")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    with start_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def database_pool(postgresql_server: PostgresqlServer) -> DatabasePool:
    """The databases that the tests of one worker share, one after the other."""
    return DatabasePool(postgresql_server)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy."""
    file = tmp_path_factory.mktemp("template") / "memrecall.db"
    run_aside(migrate(str(file)))
    return file


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of the engine under test."""
    return str(request.param)


@pytest.fixture
def databases(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Databases of the engine under test."""
    if engine != "postgresql":
        yield SqliteDatabases(tmp_path, request.getfixturevalue("sqlite_template"))
        return
    server = request.getfixturevalue("postgresql_server")
    lent = PostgresqlDatabases(server, request.getfixturevalue("database_pool"))
    yield lent
    lent.close()


@pytest.fixture
def location(databases: Databases) -> str:
    """The location of a database that only this test uses."""
    return databases.fresh()


@pytest.fixture
def empty_location(databases: Databases) -> str:
    """The location of a database without tables."""
    return databases.fresh(migrated=False)


@pytest.fixture
async def store(location: str) -> AsyncIterator[Store]:
    """An open store on a database of its own."""
    async with await Store.open(location) as opened:
        yield opened


@pytest.fixture
def library_settings(location: str, tmp_path: Path) -> Settings:
    """Settings that depend on nobody's machine, with an embedder that loads nothing."""
    return Settings(
        db=location,
        embedder="hash",
        snapshots=False,
        durability="normal",
        cache_dir=str(tmp_path / "cache"),
        workspaces_dir=str(tmp_path / "workspaces"),
        backups_dir=str(tmp_path / "backups"),
    )


@pytest.fixture
def populate() -> Populate:
    """What fills `library`: nothing."""

    async def leave_empty(_: Library) -> None:
        return None

    return leave_empty


@pytest.fixture
async def library(library_settings: Settings, populate: Populate) -> AsyncIterator[Library]:
    """An open library on a database of its own."""
    async with await Library.open(library_settings) as opened:
        await populate(opened)
        yield opened


@pytest.fixture(scope="session")
def loaded_model() -> Iterator[None]:
    """Load the weights of the local embedder once, for all libraries that are opened meanwhile."""
    from memrecall.embedding.local import LocalEmbedder

    load = cache(LocalEmbedder()._load)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalEmbedder, "_load", lambda _: load())
        yield


@pytest.hookimpl(trylast=True)  # after the folders have added their groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the groups first: one worker runs a whole group, and none should wait for the last."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line that there was no browser to test the dashboard with."""
    skipped = terminalreporter.stats.get("skipped", [])
    told = {str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)}
    for reason in sorted(reason for reason in told if "BROWSER TESTS LEFT OUT" in reason):
        terminalreporter.write_line(reason.removeprefix("Skipped: "), red=True, bold=True)
