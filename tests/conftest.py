"""Fixtures that all tests share: databases of both engines, a store, a library.

A test that uses `store`, `library` or `location` runs once on each engine. The layers above the
search do not know the engine: `make test` runs them on SQLite, `make test-service` on PostgreSQL.
The PostgreSQL server starts when the first test needs it, one for each worker of pytest-xdist.

`library` is opened with `library_settings` and filled by `populate`: a test package or module
overrides these two instead of opening another library.
"""

import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from memrecall.cli.output import console
from memrecall.embedding.base import Encode
from memrecall.embedding.embedders import LocalEmbedder
from memrecall.memory import Library
from memrecall.settings import Settings
from memrecall.store import Store
from tests.cluster.databases import ClusterDatabases
from tests.cluster.nodes import LOCATION, Cluster, require_source, start_cluster
from tests.databases import (
    DatabasePool,
    Databases,
    PostgresqlDatabases,
    PostgresqlServer,
    SqliteDatabases,
    migrate,
    run_in_thread,
    start_postgresql,
)
from tests.extractors import SentenceExtractor
from tests.scheduling import pytest_xdist_make_scheduler  # noqa: F401 -- a hook

Populate = Callable[[Library], Awaitable[object]]

FOLDER = Path(__file__).parent
# The test packages of the code that depends on the engine.
ENGINE_TESTS = {"store", "search", "library", "cluster"}

# Machines are shared, so the duration of an example says nothing about the code.
hypothesis.settings.register_profile(
    "memrecall",
    deadline=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("memrecall")

# A shell lets programs in the background ignore Ctrl-C (`nohup make test &`), and with them all
# processes that they start; tests interrupt some of these.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    with start_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def database_pool(postgresql_server: PostgresqlServer) -> Iterator[DatabasePool]:
    """The databases that the tests of one worker share, one after the other."""
    with closing(DatabasePool(postgresql_server)) as pool:
        yield pool


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy."""
    file = tmp_path_factory.mktemp("template") / "memrecall.db"
    run_in_thread(migrate(str(file)))
    return file


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A Citus cluster that this run has started, for tests that stop its nodes."""
    with start_cluster(require_source()) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_databases(request: pytest.FixtureRequest) -> ClusterDatabases:
    """Distributed databases: on the cluster that a variable names, or on one of this run."""
    if location := os.environ.get(LOCATION):
        return ClusterDatabases(location=location)
    return ClusterDatabases(request.getfixturevalue("cluster"))


@pytest.fixture(params=os.environ.get("MEMRECALL_TEST_ENGINES", "sqlite postgresql").split())
def engine(request: pytest.FixtureRequest) -> str:
    """The name of the engine under test."""
    return str(request.param)


@pytest.fixture
def databases(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Databases of the engine under test."""
    if engine == "citus":
        clustered = request.getfixturevalue("cluster_databases")
        yield clustered
        clustered.release()
        return
    if engine != "postgresql":
        yield SqliteDatabases(tmp_path, request.getfixturevalue("sqlite_template"))
        return
    server = request.getfixturevalue("postgresql_server")
    postgresql = PostgresqlDatabases(server, request.getfixturevalue("database_pool"))
    yield postgresql
    postgresql.close()


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
    """An open store on its own database."""
    async with await Store.open(location, durability="normal") as open_store:
        yield open_store


def _make_settings(location: str, folder: Path) -> Settings:
    """Return settings that do not depend on the machine, with the hash embedder."""
    return Settings(
        db=location,
        embedder="hash",
        snapshots=False,
        durability="normal",
        cache_dir=str(folder / "cache"),
        data_dir=str(folder),
    )


@pytest.fixture
def library_settings(location: str, tmp_path: Path) -> Settings:
    """The settings of `library`."""
    return _make_settings(location, tmp_path)


@pytest.fixture
def populate() -> Populate:
    """The function that fills `library`; by default it leaves it empty."""

    async def leave_empty(_: Library) -> None:
        return None

    return leave_empty


@pytest.fixture
async def library(library_settings: Settings, populate: Populate) -> AsyncIterator[Library]:
    """An open library on its own database."""
    async with await Library.open(library_settings) as open_library:
        await populate(open_library)
        await open_library.vectors.settle()  # else a search may be by words alone
        yield open_library


@pytest.fixture
async def sqlite_library(
    sqlite_template: Path, tmp_path: Path, populate: Populate
) -> AsyncIterator[Library]:
    """A library on SQLite, for tests that do not depend on the engine."""
    location = SqliteDatabases(tmp_path, sqlite_template).fresh()
    async with await Library.open(_make_settings(location, tmp_path)) as open_library:
        await populate(open_library)
        await open_library.vectors.settle()  # else a search may be by words alone
        yield open_library


@pytest.fixture
def sentence_extractor(monkeypatch: pytest.MonkeyPatch) -> SentenceExtractor:
    """The extractor of every memory and service that the test opens, in place of a model's."""
    extractor = SentenceExtractor()
    for module in ("memrecall.memory.memory", "memrecall.server.mcp.server"):
        monkeypatch.setattr(f"{module}.make_extractor", lambda *_: extractor)
    return extractor


@pytest.fixture
def fresh_console() -> Iterator[None]:
    """Let the command line measure the terminal again: it keeps the width of its first use."""
    console.cache_clear()
    yield
    console.cache_clear()


@cache
def _loaded_embedder() -> tuple[LocalEmbedder, Encode]:
    embedder = LocalEmbedder()
    return embedder, _load_local_model(embedder)


def _share_weights(embedder: LocalEmbedder) -> Encode:
    loaded, encode = _loaded_embedder()
    embedder.token_vectors = loaded.token_vectors
    return encode


_load_local_model = LocalEmbedder._load


@pytest.fixture(autouse=True)
def loaded_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the weights of the local embedder once for all tests."""
    monkeypatch.setattr(LocalEmbedder, "_load", _share_weights)


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the layers above the search on PostgreSQL to `make test-service`."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("engine") != "postgresql":
            continue
        if item.path.relative_to(FOLDER).parts[0] not in ENGINE_TESTS:
            item.add_marker(pytest.mark.service)


def pytest_collection_finish() -> None:
    """Let the garbage collector skip the modules, which are never freed."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report in one line each that tests need a browser or agent frameworks."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)}
    for reason in sorted(reason for reason in reasons if "TESTS LEFT OUT" in reason):
        terminalreporter.write_line(reason.removeprefix("Skipped: "), red=True, bold=True)
