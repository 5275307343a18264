"""Databases that are damaged, deleted or replaced: noticed, named, and never written to."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Connection, column, select, text

from memrecall.errors import StorageError, StorageUnreachable
from memrecall.store import Store
from memrecall.store.database.integrity import find_risks
from memrecall.store.database.migrations import LATEST

from ..databases import Databases
from . import process
from .children import Child
from .samples import ANN, add_memory, ids, new_message, numbered_messages


def delete(file: Path) -> None:
    file.unlink()


def replace(file: Path) -> None:
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    copy.rename(file)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def cut_in_half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (delete, "was deleted"),
        (replace, "was replaced"),
        (empty, "was truncated|malformed|not a database"),  # if SQLite reads a page that is missing
        (cut_in_half, "was truncated|malformed"),
    ],
)
async def test_write_fails_when_the_file_is_gone(
    tmp_path: Path, damage: Callable[[Path], None], problem: str
) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file)) as store:
        await store.timeline(ANN).add(numbered_messages("m", 200))
        await store.database.truncate_log()
        damage(file)
        for _ in range(2):  # it is not repaired by trying again
            with pytest.raises(StorageError, match=problem) as error:
                await store.timeline(ANN).add([new_message("lost")])
            assert str(file) in error.value.message
        assert "lost" not in await ids_or_nothing(store)


async def ids_or_nothing(store: Store) -> list[str]:
    try:
        return await ids(store.timeline(ANN))
    except StorageError:
        return []


@pytest.mark.parametrize("damage", [empty, cut_in_half])
async def test_truncation_is_noticed_before_a_commit(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file)) as store:
        await store.timeline(ANN).add(numbered_messages("m", 200))
        await store.database.truncate_log()
        await store.timeline(ANN).add([new_message("seen")])

        def cut(_: object) -> None:  # after all that the transaction reads
            damage(file)

        with pytest.raises(StorageUnreachable, match="was truncated"):
            await store.database.transact(cut)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_write_fails_when_the_log_is_gone_and_closing_saves_it(
    tmp_path: Path, is_replaced: bool
) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file)) as store:
        await store.timeline(ANN).add(numbered_messages("m", 20))
        log = file.with_name(file.name + "-wal")
        log.unlink()
        if is_replaced:
            log.touch()
        for _ in range(2):
            with pytest.raises(StorageUnreachable, match=r"the log of .* was deleted or replaced"):
                await store.timeline(ANN).add([new_message("lost")])
    async with await Store.open(str(file)) as store:
        assert len(await ids(store.timeline(ANN))) == 20
        assert (await store.timeline(ANN).add([new_message("next")])).stored == 1


@pytest.mark.concurrent
@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
async def test_cut_log_is_noticed_and_what_was_before_the_cut_is_kept(
    tmp_path: Path, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "memrecall.db"
    log = file.with_name(file.name + "-wal")
    async with await Store.open(str(file)) as store:
        await store.timeline(ANN).add(numbered_messages("m", 20))
        await store.database.truncate_log()
        for number in range(20):
            await store.timeline(ANN).add([new_message(f"later {number}")])
        os.truncate(log, int(log.stat().st_size * share))
        add = partial(store.timeline(ANN).add, [new_message("lost")])
        for attempt in (add, partial(store.database.probe)):
            with pytest.raises(StorageUnreachable, match="was cut while it was open"):
                await attempt()
        assert store.database.write_problem == "log lost"
        for use in (add, partial(ids, store.timeline(ANN))):
            with pytest.raises(StorageError):  # not an error of the driver
                await use()
    assert [r.message for r in caplog.records if "was cut" in r.message] == [
        f"{log} was cut while it was open: commits in it are lost"
    ]
    with Child(process.list_messages, str(file)) as child:  # as after a restart
        child.start()
        found = child.receive()
    assert isinstance(found, list)
    later = [name for name in found if name.startswith("later")]
    assert len(found) - len(later) == 20
    assert sorted(later) == sorted(f"later {number}" for number in range(len(later)))
    assert len(later) < 20


def kill_a_writer(file: Path, task: process.Task = process.stream) -> None:
    """Leave a database as a killed process does: the last commits are in its log."""
    with Child(task, str(file), "a") as child:
        child.start()
        child.receive()


@pytest.mark.concurrent
async def test_new_database_has_its_schema_without_its_log(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    kill_a_writer(file)
    copy = shutil.copy(file, tmp_path / "copy.db")
    async with await Store.open(str(copy), create=False, read_only=True) as store:
        assert await store.schema_version() == LATEST
        assert await ids(store.timeline(ANN)) == []


@pytest.mark.concurrent
@pytest.mark.parametrize("read_only", [False, True])
async def test_deleted_log_of_a_killed_process_is_noticed(tmp_path: Path, read_only: bool) -> None:
    file = tmp_path / "memrecall.db"
    kill_a_writer(file)
    log = file.with_name(file.name + "-wal")
    kept = log.rename(tmp_path / "kept")
    with pytest.raises(StorageUnreachable, match=r"-wal was deleted, and had commits that"):
        await Store.open(str(file), read_only=read_only)
    kept.rename(log)
    async with await Store.open(str(file)) as store:
        assert (await store.count("ann"))["messages"] >= process.BATCH


@pytest.mark.concurrent
async def test_cut_log_of_a_killed_process_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "memrecall.db"
    kill_a_writer(file)
    log = file.with_name(file.name + "-wal")
    os.truncate(log, 5_000)  # one page
    async with await Store.open(str(file)) as store:
        assert await store.schema_version() == LATEST
    assert f"{log} was cut: commits in it are lost" in caplog.messages


@pytest.mark.concurrent
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_database_whose_schema_was_in_its_log_is_not_made_anew(
    tmp_path: Path, is_deleted: bool
) -> None:
    """An earlier version did not copy the schema to the file."""
    file = tmp_path / "memrecall.db"
    kill_a_writer(file, task=process.stream_in_log)
    assert file.stat().st_size == 4096
    log = file.with_name(file.name + "-wal")
    if is_deleted:
        log.unlink()
    else:
        os.truncate(log, 5_000)  # one page
    with pytest.raises(StorageUnreachable, match=r"had commits that memrecall.db lacks") as error:
        await Store.open(str(file))
    assert "remove memrecall.db-wal and memrecall.db-shm" in str(error.value)
    file.with_name(file.name + "-shm").unlink()
    log.unlink(missing_ok=True)
    async with await Store.open(str(file)) as store:
        assert await ids(store.timeline(ANN)) == []


@pytest.mark.concurrent
async def test_schema_that_a_killed_process_left_in_the_log_is_saved(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    kill_a_writer(file, task=process.stream_in_log)
    async with await Store.open(str(file)):
        assert file.stat().st_size > 4096


async def test_log_that_another_process_empties_is_not_cut(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file)) as store, await Store.open(str(file)) as other:
        for number in range(5):
            await store.timeline(ANN).add([new_message(f"m{number}")])
            await other.database.truncate_log()
        await store.database.probe()


async def test_file_that_is_compacted_elsewhere_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file)) as store, await Store.open(str(file)) as other:
        await store.timeline(ANN).add(numbered_messages("m", 500))
        await store.database.truncate_log()
        await store.timeline(ANN).add([new_message("before")])
        size = file.stat().st_size
        await other.owners.erase_user("ann")
        await other.database.compact()
        assert file.stat().st_size < size
        assert (await store.timeline(ANN).add([new_message("after")])).stored == 1


async def run_without_foreign_keys(store: Store, *statements: str) -> None:
    """Change rows as a damaged database would, without the checks of the database."""
    if store.file is not None:
        with closing(sqlite3.connect(store.file)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        return
    async with store.database._writer.begin() as connection:
        await connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        for statement in statements:
            await connection.exec_driver_sql(statement)


async def fill(store: Store) -> None:
    await store.timeline(ANN).add(numbered_messages("m", 20))
    await add_memory(store, "k1", "drinks oolong")
    await store.changes(ANN).update("k1", {"content": "drinks pu'er"}, actor="test")
    rows, _ = await store.vectors("model").pending("ann", 30)
    await store.vectors("model").write(rows, np.ones((len(rows), 4), dtype=np.float32))


async def test_whole_database_has_no_damage(store: Store) -> None:
    await fill(store)
    for deep in (False, True):
        damage = await store.find_damage(deep=deep)
        assert damage == {"integrity": [], "tables": [], "references": []}


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM sessions", "20 rows of messages name session_ids that are not in sessions"),
        ("DELETE FROM users", "20 rows of messages name user_ids that are not in users"),
        (
            "DELETE FROM messages WHERE message_id IN ('m0', 'm1', 'm2')",
            "3 rows of vectors of kind message name keys that are not in messages",
        ),
        ("DELETE FROM memories", "1 rows of revisions name memory_keys that are not in memories"),
    ],
)
async def test_orphans_are_found(store: Store, statement: str, problem: str) -> None:
    await fill(store)
    await run_without_foreign_keys(store, statement)
    assert problem in (await store.find_damage())["references"]


async def test_missing_index_and_column_are_found(databases: Databases) -> None:
    async with await Store.open(databases.fresh()) as store:
        await run_without_foreign_keys(
            store, "DROP INDEX ix_messages_ts", "ALTER TABLE traces DROP COLUMN tool_calls"
        )
        for deep in (False, True):
            assert sorted((await store.find_damage(deep=deep))["tables"]) == [
                "there is no column traces.tool_calls",
                "there is no index ix_messages_ts",
            ]


async def test_row_that_its_index_lacks_is_found_by_a_deep_check(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file)) as store:
        await add_memory(store, "unusual-key")
    data = file.read_bytes()
    file.write_bytes(data.replace(b"unusual-key", b"another-key", 1))
    async with await Store.open(str(file)) as store:
        assert (await store.find_damage())["integrity"] == []
        assert "index" in (await store.find_damage(deep=True))["integrity"][0]


async def test_damaged_page_is_found_by_a_quick_check(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file)) as store:
        await store.timeline(ANN).add(numbered_messages("m", 500))
        pages = await store.database.fetch(
            select(column("pageno")).select_from(text("dbstat")).where(text("name = 'messages'"))
        )
    data = bytearray(file.read_bytes())
    at = 4096 * (pages[len(pages) // 2].pageno - 1)
    data[at : at + 64] = b"\xa5" * 64
    file.write_bytes(data)
    async with await Store.open(str(file)) as store:
        with pytest.raises(StorageError, match="malformed"):
            await store.find_damage()


async def test_settings_that_lose_writes_are_found(store: Store) -> None:
    def find_with_commits(connection: Connection) -> list[str]:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL synchronous_commit = on"))
        return find_risks(connection)

    risks = await store.database.inspect(find_risks)
    assert bool(risks) == (store.file is None)
    expected = [risk for risk in risks if not risk.startswith("synchronous_commit")]
    assert await store.database.inspect(find_with_commits) == expected
