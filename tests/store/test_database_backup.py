"""Backup and restore of whole databases, between all kinds of them, and reading a backup."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from memrecall.errors import (
    Conflict,
    InvalidArgument,
    MemrecallError,
    StorageError,
    StorageReadOnly,
)
from memrecall.memory import Library
from memrecall.settings import Settings
from memrecall.store import Grant, Store
from memrecall.store.backup.database import backup_database, restore_database, verify_backup

from ..databases import Databases
from .samples import (
    ANN,
    BEN,
    Rows,
    add_memory,
    ids,
    new_message,
    new_trace,
    numbered_messages,
    read_tables,
)


def ignore(_: int) -> None:
    """Report no progress."""


async def fill(store: Store) -> None:
    """Store rows in many tables, with values that databases treat differently."""
    metadata = {"number": 1e23, "none": None, "文字": ["é", "💡"]}
    await store.timeline(ANN).add([new_message("m", "不吃辣 \u2028 ❤️", metadata=metadata)])
    await store.timeline(ANN).add(numbered_messages("n", 30))
    await add_memory(store, "k1", "drinks oolong")
    await store.traces(ANN).add(new_trace(), keep_days=30)
    await store.keys.create(Grant(frozenset({"ann"})))
    # Named as a fact of a backup is.
    await store.graph(ANN).add({"backup": "tool", "shards": "thing"}, [])
    rows, _ = await store.vectors("model").pending("ann", 3)
    await store.vectors("model").write(rows, np.ones((3, 4), dtype=np.float32))


def comparable(tables: Rows) -> dict[str, list[Any]]:
    """Return the rows without what belongs to one database."""
    return {
        name: sorted(
            repr({key: value for key, value in row.items() if key != "epoch"}) for row in rows
        )
        for name, rows in tables.items()
        if name != "memrecall_meta"
    }


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
async def test_backup_restores_into_either_database(
    databases: Databases, target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = tmp_path / "backup.db"
    async with await Store.open(databases.fresh()) as store:
        await fill(store)
        progress: list[int] = []
        counts = await backup_database(store, file, progress.append)
        before = await read_tables(store.database)
    assert counts == {name: len(rows) for name, rows in before.items()}
    assert sum(progress) == sum(counts.values())
    assert file.stat().st_mode & 0o777 == 0o600
    assert [name for name in os.listdir(tmp_path) if "backup" in name] == ["backup.db"]

    location = str(tmp_path / "restored.db")
    if target == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        location = server.location(name := server.create(migrated=True))
        request.addfinalizer(lambda: server.drop([name]))
    async with await Store.open(location) as restored:
        facts = restored.facts
        assert await restore_database(restored, file, ignore) == counts
        after = await read_tables(restored.database)
        assert comparable(after) == comparable(before)
        epochs = [tables["users"][0]["epoch"] for tables in (before, after)]
        assert epochs[0] != epochs[1]  # indexes of other rows are not used
        meta = {row["name"]: row["value"] for row in after["memrecall_meta"]}
        assert (meta["database_id"], "backup" in meta) == (facts.database_id, False)
        with pytest.raises(Conflict, match="not empty"):
            await restore_database(restored, file, ignore)
        await restored.timeline(ANN).add([new_message("later")])
        await restore_database(restored, file, ignore, overwrite=True)
        assert comparable(await read_tables(restored.database)) == comparable(before)
        assert (await restored.timeline(ANN).add([new_message("later")])).stored == 1


async def test_backup_is_a_snapshot_while_others_write(store: Store, tmp_path: Path) -> None:
    await store.timeline(ANN).add(numbered_messages("m", 1_500))
    writes: list[asyncio.Task[Any]] = []

    def write(_: int) -> None:
        if len(writes) < 5:
            number = len(writes)
            add = store.timeline(ANN).add(numbered_messages(f"later{number}-", 20))
            writes.append(asyncio.create_task(add))

    counts = await backup_database(store, tmp_path / "backup.db", write)
    await asyncio.gather(*writes)

    assert len(writes) == 5
    assert (await store.count("ann"))["messages"] == 1_600
    async with await Store.open(str(tmp_path / "backup.db"), read_only=True) as backup:
        assert counts["messages"] == (await backup.count("ann"))["messages"] == 1_500


async def test_existing_file_is_not_overwritten(sqlite_store: Store, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    file.write_text("precious")
    with pytest.raises(InvalidArgument, match="exists already"):
        await backup_database(sqlite_store, file, ignore)
    assert file.read_text() == "precious"


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from memrecall.store import Store
from memrecall.store.backup.database import backup_database

async def main():
    async with await Store.open(sys.argv[1]) as store:
        await backup_database(store, Path(sys.argv[2]), lambda _: os.kill(os.getpid(), 9))

asyncio.run(main())
"""


async def kill_backup(location: str, file: Path) -> None:
    """Let another process begin a backup, and kill it with its first rows."""
    program = (sys.executable, "-c", _KILLED, location, str(file))
    process = await asyncio.create_subprocess_exec(*program)
    assert await process.wait() == -signal.SIGKILL


async def test_killed_backup_is_named_by_erasures_and_swept_by_the_next(
    location: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    settings = Settings(db=location, embedder="hash", cache_dir=str(tmp_path))
    async with await Library.open(settings) as library:
        store = library.store
        await store.timeline(ANN).add(numbered_messages("m", 30))
        await store.timeline(BEN).add(numbered_messages("m", 2))
        await kill_backup(location, folder / "a.db")
        (left,) = {name.partition(".tmp")[0] for name in os.listdir(folder)}
        draft = ".b.db.0a1b2c3d.tmp"
        foreign = {".notes.0123.tmp", ".notes.0123abcd.tmp", draft, f"{draft}-lock"}
        for other in foreign:  # of other programs
            (folder / other).write_text("precious")
        await library.purge_message(ANN, "m1")
        await library.erase_session("ann", "default")
        await library.erase_user("ann")
        named = [text for text in caplog.messages if f"{folder}/{left}.tmp" in text]
        assert len(named) == 3
        running: list[list[str]] = []

        async def back_up_again() -> None:
            with suppress(InvalidArgument):  # of the same name
                await backup_database(store, folder / "a.db", ignore)

        def advance(_: int) -> None:
            running.append(os.listdir(folder))

        await asyncio.gather(*(back_up_again() for _ in range(3)))
        assert set(os.listdir(folder)) == {*foreign, "a.db"}
        await verify_backup(folder / "a.db")
        await backup_database(store, folder / "b.db", advance)
        assert not any(left in name for names in running for name in names)
        assert set(os.listdir(folder)) == {*foreign, "a.db", "b.db"}
        caplog.clear()
        await library.erase_user("ben")
        assert caplog.messages == []


@pytest.fixture
async def sqlite_store(tmp_path: Path) -> Any:
    async with await Store.open(str(tmp_path / "memrecall.db")) as store:
        yield store


def flip_content(data: bytearray) -> None:
    at = data.index(b"drinks oolong")
    data[at : at + 6] = b"spills"


def cut(data: bytearray) -> None:
    del data[len(data) // 2 :]


def blank(data: bytearray) -> None:
    del data[:]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (flip_content, "do not match their checksum"),
        (cut, "malformed|damaged"),
        (blank, "is empty"),
    ],
)
async def test_damaged_backup_is_not_restored(
    sqlite_store: Store, tmp_path: Path, damage: Callable[[bytearray], None], problem: str
) -> None:
    await fill(sqlite_store)
    file = tmp_path / "backup.db"
    await backup_database(sqlite_store, file, ignore)
    data = bytearray(file.read_bytes())
    damage(data)
    file.write_bytes(data)
    async with await Store.open(str(tmp_path / "restored.db")) as restored:
        before = await read_tables(restored.database)
        with pytest.raises((StorageError, InvalidArgument), match=problem):
            await restore_database(restored, file, ignore)
        assert await read_tables(restored.database) == before


def flip(data: bytes, place: int, bits: int) -> bytes:
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]


async def test_every_damage_of_a_backup_is_a_memrecall_error(store: Store, tmp_path: Path) -> None:
    await fill(store)
    file = tmp_path / "backup.db"
    await backup_database(store, file, ignore)
    data = file.read_bytes()
    random = Random(5)  # noqa: S311 -- equal in every run
    copies = [data[: random.randrange(len(data))] for _ in range(12)]
    copies += [flip(data, random.randrange(len(data)), 1 << n % 8) for n in range(30)]
    for copy in copies:
        file.write_bytes(copy)
        with suppress(MemrecallError):  # a byte that no row uses may be another
            await verify_backup(file)
    # A time, JSON, the manifest and a text that cannot be read.
    for part in (b"2026-01", b'{"number', b'{"created_at', "不".encode()):
        file.write_bytes(flip(data, data.index(part), 16))
        with pytest.raises(StorageError):
            await verify_backup(file)


async def test_failed_restore_changes_nothing(store: Store, tmp_path: Path) -> None:
    await fill(store)
    before = await read_tables(store.database)
    file = tmp_path / "backup.db"
    await backup_database(store, file, ignore)
    total = 0

    def stop_half_way(rows: int) -> None:
        nonlocal total
        total += rows
        if total > 40:
            raise KeyError("stopped")

    with pytest.raises(KeyError):
        await restore_database(store, file, stop_half_way, overwrite=True)
    assert await read_tables(store.database) == before


async def test_read_only_store_reads_and_refuses_writes(store: Store, location: str) -> None:
    await fill(store)
    async with await Store.open(location, read_only=True) as reader:
        assert len(await ids(reader.timeline(ANN))) == 31
        with pytest.raises(StorageReadOnly, match="read-only"):
            await reader.timeline(ANN).add([new_message("x")])
        with pytest.raises(StorageReadOnly):
            await add_memory(reader, "k2")
        with pytest.raises(StorageReadOnly):
            await reader.database.compact()


@pytest.mark.parametrize("kind", ["database", "backup"])
async def test_read_only_file_is_read_and_nothing_is_created(
    sqlite_store: Store, tmp_path: Path, kind: str
) -> None:
    await fill(sqlite_store)
    folder = tmp_path / "mounted"
    folder.mkdir()
    file = folder / "chat.db"
    await backup_database(sqlite_store, file, ignore)
    if kind == "database":  # in write-ahead mode, as the file of a closed store
        async with await Store.open(str(file)) as store:
            await store.timeline(ANN).add([new_message("again")])
    data = file.read_bytes()
    file.chmod(0o400)
    folder.chmod(0o500)
    try:
        async with await Store.open(str(file), read_only=True) as reader:
            assert "m" in await ids(reader.timeline(ANN))
            assert os.listdir(folder) == ["chat.db"]
        assert os.listdir(folder) == ["chat.db"]
        assert file.read_bytes() == data
    finally:
        folder.chmod(0o700)


async def test_read_only_store_sees_what_a_living_process_wrote(
    sqlite_store: Store, tmp_path: Path
) -> None:
    await sqlite_store.timeline(ANN).add([new_message("in the log")])
    before = sorted(os.listdir(tmp_path))
    async with await Store.open(str(tmp_path / "memrecall.db"), read_only=True) as reader:
        assert await ids(reader.timeline(ANN)) == ["in the log"]
    assert sorted(os.listdir(tmp_path)) == before


async def test_read_only_does_not_create_or_upgrade(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no database"):
        await Store.open(str(tmp_path / "none.db"), read_only=True)
    (tmp_path / "empty.db").touch()
    with pytest.raises(StorageError, match="is empty"):
        await Store.open(str(tmp_path / "empty.db"), read_only=True)
    assert os.listdir(tmp_path) == ["empty.db"]
