"""Databases that are damaged, deleted or replaced: noticed, named, and never written to."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from memrecall.errors import StorageError, StorageUnreachable
from memrecall.store import Store

from .samples import ANN, ids, new_message, numbered_messages


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

        async def cut(_: object) -> None:  # after all that the transaction reads
            damage(file)

        with pytest.raises(StorageUnreachable, match="was truncated"):
            await store.database.transact(cut)


async def test_file_that_is_compacted_elsewhere_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file)) as store, await Store.open(str(file)) as other:
        await store.timeline(ANN).add(numbered_messages("m", 500))
        await store.database.truncate_log()
        await store.timeline(ANN).add([new_message("before")])
        size = file.stat().st_size
        await other.owners.erase_user("ann")
        await other.compact()
        assert file.stat().st_size < size
        assert (await store.timeline(ANN).add([new_message("after")])).stored == 1
