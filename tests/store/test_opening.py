"""Errors of opening a database: typed, one line, with the location, no password."""

import asyncio
import gc
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from memrecall.errors import InvalidArgument, MemrecallError, StorageError, StorageUnreachable
from memrecall.store import Store

from ..databases import PostgresqlServer
from .samples import ANN, ids, new_message

PASSWORD = "hunter2"


async def refusal(location: str, *, create: bool = True) -> MemrecallError:
    """Return the error that opening raises."""
    with pytest.raises(MemrecallError) as error_info:
        await Store.open(location, create=create)
    assert "\n" not in str(error_info.value)
    assert PASSWORD not in f"{error_info.value!r} {error_info.value} {error_info.value.details}"
    return error_info.value


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


class TestFiles:
    async def test_file_of_another_format_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "letter.txt"
        file.write_bytes(b"Dear Ann, " * 1_000)

        error = await refusal(str(file))

        assert isinstance(error, StorageUnreachable)
        assert str(file) in str(error)
        assert file.read_bytes() == b"Dear Ann, " * 1_000

    @pytest.mark.parametrize(
        ("name", "create", "problem"),
        [
            ("", True, "is a folder"),
            ("nowhere/memrecall.db", True, "nowhere does not exist"),
            ("file/x.db", True, "file"),
            ("memrecall.db", False, "there is no database at"),
            ("x" * 300, True, "cannot create"),
        ],
    )
    async def test_impossible_file_is_refused_and_nothing_is_created(
        self, tmp_path: Path, name: str, create: bool, problem: str
    ) -> None:
        (tmp_path / "file").touch()

        error = await refusal(str(tmp_path / name), create=create)

        assert isinstance(error, StorageUnreachable)
        assert problem in str(error)
        assert files_in(tmp_path) == [tmp_path / "file"]

    async def test_new_file_is_readable_by_its_owner_only(self, tmp_path: Path) -> None:
        async with await Store.open(str(tmp_path / "memrecall.db")) as store:
            await store.timeline(ANN).add([new_message("m")])
            modes = {stat.S_IMODE(path.stat().st_mode) for path in files_in(tmp_path)}

        assert modes == {0o600}

    async def test_existing_file_opens_without_create(self, tmp_path: Path) -> None:
        location = f"sqlite:///{tmp_path / 'memrecall.db'}"
        async with await Store.open(location) as store:
            await store.timeline(ANN).add([new_message("m")])

        async with await Store.open(location, create=False) as store:
            assert await ids(store.timeline(ANN)) == ["m"]
            assert store.file == tmp_path / "memrecall.db"

    async def test_path_may_have_any_characters(self, tmp_path: Path) -> None:
        file = tmp_path / "聊天 记录?mode=ro#100%.db"
        async with await Store.open(str(file)) as store:
            await store.timeline(ANN).add([new_message("m")])

        assert file.exists()

    @pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
    async def test_connections_set_safe_pragmas(
        self, tmp_path: Path, durability: str, level: int
    ) -> None:
        file = str(tmp_path / "memrecall.db")
        expected = {
            "journal_mode": "wal",
            "synchronous": level,
            "foreign_keys": 1,
            "trusted_schema": 0,
            "cell_size_check": 1,
            "mmap_size": 0,
            "secure_delete": 1,
            "busy_timeout": 1_500,
        }
        async with (
            await Store.open(file, durability=durability, lock_timeout=1.5) as store,  # type: ignore[arg-type]
            store.database.autocommit() as connection,
        ):
            for name, value in expected.items():
                setting = (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar()
                assert (name, setting) == (name, value)

    async def test_write_begins_with_an_exclusive_lock(self, tmp_path: Path) -> None:
        """A transaction that reads before it writes would fail regardless of the timeout."""
        file = tmp_path / "memrecall.db"
        async with await Store.open(str(file)) as store:

            def work(connection: object) -> None:
                locked = pytest.raises(sqlite3.OperationalError, match="locked")
                with closing(sqlite3.connect(file, timeout=0)) as other, locked:
                    other.execute("BEGIN IMMEDIATE")

            await store.database.transact(work)


MEANINGLESS = {
    "": "is empty",
    "  ": "is empty",
    "://": "cannot be parsed",
    "postgresql://ann:hunter2@localhost:port/x": "cannot be parsed",
    "sqlite://": "in memory",
    "sqlite:///:memory:": "in memory",
    **{
        f"{scheme}://ann:hunter2@localhost/x": repr(scheme)
        for scheme in ("mysql", "mysql+aiomysql", "oracle", "postgresql+psycopg2")
    },
}


@pytest.mark.parametrize("location", MEANINGLESS)
async def test_invalid_location_is_refused_with_a_hint(location: str) -> None:
    error = await refusal(location)

    assert isinstance(error, InvalidArgument)
    assert MEANINGLESS[location] in error.message
    supported = ("file path", "sqlite:///", "postgresql+asyncpg://")
    assert "memory" in error.message or all(name in error.hint for name in supported)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@127.0.0.1:1/chat",
        "postgres://ann:hunter2@127.0.0.1:1/chat",
        "postgresql+asyncpg://ann@127.0.0.1:1/chat?password=hunter2",
    ],
)
async def test_unreachable_server_is_reported(url: str) -> None:
    error = await refusal(url)

    assert isinstance(error, StorageUnreachable)
    assert "127.0.0.1:1/chat" in str(error)
    assert "Check that the server runs" in error.hint


class TestServer:
    async def test_missing_database_is_reported(self, postgresql_server: PostgresqlServer) -> None:
        error = await refusal(postgresql_server.location("nowhere"))

        assert isinstance(error, StorageUnreachable)
        assert "nowhere" in str(error)

    async def test_unknown_database_user_is_reported(
        self, postgresql_server: PostgresqlServer
    ) -> None:
        location = postgresql_server.location("migrated").replace("postgres:@", "nobody:hunter2@")

        error = await refusal(location)

        assert isinstance(error, StorageUnreachable)
        assert "nobody" in str(error)

    async def test_connections_have_timeouts(self, postgresql_server: PostgresqlServer) -> None:
        expected = {
            "lock_timeout": "1500ms",
            "idle_in_transaction_session_timeout": "1min",
            "TimeZone": "UTC",
            "application_name": "memrecall",
        }
        location = postgresql_server.location("migrated")
        async with (
            await Store.open(location, lock_timeout=1.5) as store,
            store.database.autocommit() as connection,
        ):
            for name, value in expected.items():
                setting = (await connection.exec_driver_sql(f"SHOW {name}")).scalar()
                assert (name, setting) == (name, value)

    async def test_location_hides_the_password(self, postgresql_server: PostgresqlServer) -> None:
        location = postgresql_server.location("migrated").replace("postgres:@", "postgres:hunter2@")

        async with await Store.open(location) as store:
            assert PASSWORD not in store.location
            assert "migrated" in store.location
            assert store.file is None


class TestClosing:
    async def test_work_in_progress_is_finished_and_no_more_begun(self, location: str) -> None:
        store = await Store.open(location)
        messages = store.timeline(ANN)
        await messages.add([new_message("m1")])
        reading, closing_began = asyncio.Event(), asyncio.Event()

        async def read() -> list[object]:
            async with store.database.read() as connection:
                reading.set()
                await closing_began.wait()
                return list((await connection.exec_driver_sql("SELECT 1")).scalars())

        reader = asyncio.create_task(read())
        await reading.wait()
        closer = asyncio.create_task(store.close())
        await asyncio.sleep(0)  # closing has begun, and waits
        closing_began.set()
        assert await reader == [1]
        await closer
        gc.collect()  # warns of a connection that nobody closed, which fails the test
        for work in (messages.page(), messages.add([new_message("m2")])):
            with pytest.raises(StorageError, match=r"was closed"):
                await work
