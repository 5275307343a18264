"""A full disk, a lock, a lost server: typed errors and unchanged data."""

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import event

from memrecall.errors import (
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
)
from memrecall.store import Store
from memrecall.store.database.dialects import POSTGRESQL, SQLITE

from ..cases import check_each
from ..databases import PostgresqlServer
from .contention import lock_of_another_writer
from .samples import ANN, ids, new_message, numbered_messages, read_tables
from .test_crash import check_integrity

only_postgresql = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)


async def execute_raw(store: Store, statement: str) -> None:
    """Execute a statement on the only connection that writes so far."""
    if store.database.dialect is SQLITE:
        with store.database.write_engine.connect() as direct:
            direct.exec_driver_sql(statement)
        return
    async with store.database._writer.begin() as connection:
        await connection.exec_driver_sql(statement)


async def write_until_full(store: Store) -> int:
    """Write until the disk is full and return the number of stored batches."""
    for number in range(1_000):
        try:
            await store.timeline(ANN).add(
                [new_message(f"{number}-{n}", "x" * 2_000) for n in range(5)]
            )
        except StorageFull:
            return number
    pytest.fail("the disk is never full")


async def test_full_disk_raises_storage_full_and_changes_nothing(tmp_path: Path) -> None:
    async with await Store.open(str(tmp_path / "memrecall.db")) as store:
        await execute_raw(store, "PRAGMA max_page_count = 120")

        batches = await write_until_full(store)

        assert batches > 3
        assert (await store.count("ann"))["messages"] == 5 * batches
        await check_integrity(store)
        before = await read_tables(store.database)
        with pytest.raises(StorageFull, match=str(store.location)) as full:
            await store.timeline(ANN).add([new_message("again", "x" * 100_000)])
        assert "Free some space" in full.value.hint
        assert await read_tables(store.database) == before

        await execute_raw(store, "PRAGMA max_page_count = 100000")
        assert (await store.timeline(ANN).add(numbered_messages("later", 3))).stored == 3
        assert (await store.timeline(ANN).get("later0")).sequence_no == 5 * batches + 1


@pytest.mark.concurrent
@pytest.mark.parametrize("seconds", [0.2, 0])
async def test_write_raises_storage_busy_after_the_lock_timeout(
    location: str, seconds: float
) -> None:
    async with await Store.open(location, lock_timeout=seconds) as store:
        await store.timeline(ANN).add([new_message("m")])
        before = await read_tables(store.database)

        async with lock_of_another_writer(location):
            blocked = asyncio.create_task(store.timeline(ANN).add([new_message("n")]))
            await asyncio.wait([blocked], timeout=60)
            gave_up = blocked.done()
            assert await ids(store.timeline(ANN)) == ["m"]  # reads are not blocked

        (outcome,) = await asyncio.gather(blocked, return_exceptions=True)
        assert gave_up
        assert isinstance(outcome, StorageBusy)
        assert store.location in str(outcome)
        assert await read_tables(store.database) == before
        assert (await store.timeline(ANN).add([new_message("n")])).stored == 1


async def test_read_only_database_raises_storage_read_only(store: Store) -> None:
    await store.timeline(ANN).add([new_message("m")])
    before = await read_tables(store.database)
    sqlite, postgresql = "PRAGMA query_only = ON", "SET default_transaction_read_only = on"
    await execute_raw(store, sqlite if store.database.dialect is SQLITE else postgresql)

    with pytest.raises(StorageReadOnly, match=r"read-?only"):
        await store.timeline(ANN).add([new_message("n")])

    assert await read_tables(store.database) == before


async def test_damaged_file_raises_storage_error(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file)) as store:
        await store.timeline(ANN).add(numbered_messages("m", 200))
    data = file.read_bytes()
    file.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))

    with pytest.raises(StorageError, match="malformed") as error_info:
        async with await Store.open(str(file)) as store:
            await ids(store.timeline(ANN))

    assert "restore a backup" in error_info.value.hint


def disconnect_clients(server: PostgresqlServer, store: Store) -> None:
    """Close all connections of a store on the server, as a restart would, and wait."""
    name = store.database._engine.url.database
    connections = f"FROM pg_stat_activity WHERE datname = '{name}'"
    server.run(f"SELECT pg_terminate_backend(pid, 60000) {connections}")


@pytest.mark.concurrent
@only_postgresql
async def test_write_reconnects_after_the_server_hung_up(
    store: Store, postgresql_server: PostgresqlServer
) -> None:
    await store.timeline(ANN).add([new_message("m")])
    disconnect_clients(postgresql_server, store)

    assert (await store.timeline(ANN).add([new_message("n")])).stored == 1
    assert await ids(store.timeline(ANN)) == ["m", "n"]


@pytest.mark.concurrent
@only_postgresql
async def test_lost_connection_during_a_write_changes_nothing(
    store: Store, postgresql_server: PostgresqlServer
) -> None:
    await store.timeline(ANN).add([new_message("m")])
    before = await read_tables(store.database)

    def interfere(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("INSERT INTO messages"):
            disconnect_clients(postgresql_server, store)

    engine = store.database.write_engine
    store.database.retries.seconds = 0.1
    event.listen(engine, "before_cursor_execute", interfere)
    with pytest.raises(StorageUnreachable):
        await store.timeline(ANN).add([new_message("n")])
    event.remove(engine, "before_cursor_execute", interfere)

    assert await read_tables(store.database) == before
    assert (await store.timeline(ANN).add([new_message("n")])).stored == 1


REMOTE = "connection to the remote node postgres@db1:5432 failed with the following error: "
LOST_NODES = [
    (REMOTE + "Connection refused\n\tIs the server running on that host?", "db1:5432"),
    (REMOTE + 'connection to server at "db1", port 5432 failed: No route to host', "db1:5432"),
    ("could not establish any connections to the node db1:5432 after 5000 ms", "db1:5432"),
    (REMOTE + "connection not open", None),
    (REMOTE + "server closed the connection unexpectedly", None),
    (REMOTE + "FATAL:  the database system is starting up", None),
    ("connection was closed in the middle of operation", None),
]


def test_node_of_a_cluster_that_cannot_be_reached_is_named() -> None:
    def check(case: tuple[str, str | None]) -> None:
        message, node = case
        error = POSTGRESQL.classify(
            asyncpg.ConnectionFailureError(message), "db", is_distributed=True
        )
        assert isinstance(error, StorageUnreachable)
        assert error.is_transient
        assert error.lost_node == node

    check_each(LOST_NODES, check)
