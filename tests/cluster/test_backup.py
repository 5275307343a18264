"""Backup and restore of a distributed database, while it is written to."""

import asyncio
from pathlib import Path

import pytest

from memrecall.errors import Conflict
from memrecall.scope import Scope
from memrecall.store import ScopedMessage, Store
from memrecall.store.backup.database import backup_database, restore_database
from memrecall.store.database.distribution import USER_TABLES, read_status
from memrecall.store.messages import write_messages
from memrecall.store.transfer import export_user, import_user
from memrecall.types import NewMessage, Role
from tests.databases import Databases
from tests.store.samples import read_tables
from tests.store.test_database_backup import comparable, fill, ignore


async def test_backup_restores_into_a_cluster_and_into_a_file(
    databases: Databases, tmp_path: Path
) -> None:
    file = tmp_path / "backup.db"
    async with await Store.open(databases.fresh()) as store:
        await fill(store)
        for number in range(6):
            message = NewMessage(role=Role.USER, content="tea")
            await store.timeline(Scope(f"user{number}", f"agent{number % 2}")).add([message])
        counts = await backup_database(store, file, ignore)
        before = await read_tables(store.database)
        assert {**counts, "memrecall_meta": 0} == {
            name: len(rows) if name != "memrecall_meta" else 0 for name, rows in before.items()
        }
        with pytest.raises(Conflict, match="is not empty"):
            await restore_database(store, file, ignore)
        await store.timeline(Scope("late")).add([NewMessage(role=Role.USER, content="after it")])
        await restore_database(store, file, ignore, overwrite=True)
        assert comparable(await read_tables(store.database)) == comparable(before)
        assert store.database.is_distributed
        assert (await read_status(store.database)).is_distributed
    async with await Store.open(str(tmp_path / "restored.db")) as restored:
        assert not restored.database.is_distributed
        assert await restore_database(restored, file, ignore) == counts
        assert comparable(await read_tables(restored.database)) == comparable(before)


async def test_one_user_is_exported_erased_and_restored(store: Store) -> None:
    await fill(store)
    await store.timeline(Scope("other")).add([NewMessage(role=Role.USER, content="tea")])
    before = await read_tables(store.database)
    owners = {row["user_id"] for row in before["users"]}
    assert {"ann", "other"} <= owners
    lines = [line async for line in export_user(store.database, "ann")]
    await store.owners.erase_user("ann")
    without = await read_tables(store.database)
    assert {row["user_id"] for row in without["messages"]} == owners - {"ann"}
    assert sum((await import_user(store.database, "ann", lines)).values()) == len(lines)
    assert [line async for line in export_user(store.database, "ann")] == lines
    for name, rows in (await read_tables(store.database)).items():
        if name in {table.name for table in USER_TABLES}:
            others = [row for row in rows if row["user_id"] != "ann"]
            assert others == [row for row in before[name] if row["user_id"] != "ann"], name


async def test_backup_under_writes_has_whole_users(store: Store, tmp_path: Path) -> None:
    stop = asyncio.Event()

    async def write(user: str) -> int:
        number = 0
        while not stop.is_set():
            number += 1
            scope = Scope(user, f"agent {user} {number}", f"session {number}")
            message = NewMessage(role=Role.USER, content="tea", message_id=f"m{number}")
            await write_messages(store.database, [ScopedMessage(scope, message)])
        return number

    writers = [asyncio.create_task(write(f"user{number}")) for number in range(4)]
    await asyncio.sleep(0)
    try:
        for number in range(2):
            await backup_database(store, tmp_path / f"{number}.db", ignore)
    finally:
        stop.set()
        await asyncio.gather(*writers)
    for number in range(2):
        async with await Store.open(str(tmp_path / f"{number}.db"), read_only=True) as backup:
            assert not any((await backup.find_damage(deep=True)).values())
            for user in (await backup.owners.list_users()).items:
                versions = await backup.feed(user["user_id"]).version()
                counts = await backup.count(user["user_id"])
                assert versions is not None
                assert versions.version == counts["messages"] == counts["sessions"]
