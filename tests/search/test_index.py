"""The index in memory: current, deterministic, bounded and rebuildable."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.embedding.embedders import HashEmbedder
from memrecall.errors import NotFound, StorageError
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import IndexCache, SearchEngine, SearchPage, SearchRequest, SnapshotFolder
from memrecall.search.index.columns import Columns
from memrecall.search.index.vectors import VectorBlocks
from memrecall.store import feed
from memrecall.types import NewMemory, NewMessage, Origin, Role
from tests.cases import check_each_async
from tests.search.conftest import open_library

LIN = Scope("lin")
NUMBERS = count()
NOW = datetime(2026, 3, 1, tzinfo=UTC)
WORDS = ["tea", "数据库", "配置", "火锅", "deploy", "db_config", "zeppelin", "上海"]


def batch(start: int, size: int) -> list[NewMessage]:
    return [
        NewMessage(
            message_id=f"m{number}",
            role=Role.USER,
            content=" ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 3, 5)),
        )
        for number in range(start, start + size)
    ]


async def top(library: Library, query: str = "tea 数据库") -> SearchPage:
    return await library.search(LIN, SearchRequest(query, limit=50, now=NOW))


def snapshot_file(library: Library) -> Path:
    folder = library.cache._snapshots
    assert folder is not None
    return folder.path("lin")


def loads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each attempt to load a snapshot whether it succeeded."""
    loaded: list[bool] = []
    load: Callable[..., Columns | None] = SnapshotFolder.load

    def watched(self: SnapshotFolder, *arguments: Any) -> Columns | None:
        columns = load(self, *arguments)
        loaded.append(columns is not None)
        return columns

    monkeypatch.setattr(SnapshotFolder, "load", watched)
    return loaded


async def save_snapshot(library: Library) -> tuple[SearchPage, Path]:
    """Store enough rows for a snapshot; return a page of results and the file."""
    await library.add_messages(LIN, batch(0, 600))
    await library.vectors.settle()
    page = await top(library)
    file = snapshot_file(library)
    assert file.exists()
    return page, file


async def test_new_process_loads_snapshot_and_later_changes(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_library(location, tmp_path) as first:
        await save_snapshot(first)
        await first.add_messages(LIN, batch(600, 10))
        before = await top(first)
    loaded = loads(monkeypatch)
    async with await open_library(location, tmp_path) as second:
        assert await top(second) == before
    assert loaded == [True]
    async with await open_library(location, tmp_path, snapshots=False) as third:
        assert await top(third) == before


async def test_damaged_or_foreign_snapshot_is_ignored(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_library(location, tmp_path) as first:
        before, file = await save_snapshot(first)
        data = file.read_bytes()
        await first.add_messages(Scope("maya"), batch(0, 600))
        await first.search(Scope("maya"), SearchRequest("tea", now=NOW))
        folder = first.cache._snapshots
        assert folder is not None
        other_user = folder.path("maya").read_bytes()
    damaged = {
        "cut": data[: len(data) // 2],
        "garbage": os.urandom(999),
        "empty": b"",
        "foreign": other_user,
    }
    loaded = loads(monkeypatch)

    async def check(damage: str) -> None:
        file.write_bytes(damaged[damage])
        async with await open_library(location, tmp_path) as second:
            assert await top(second) == before
        assert loaded.pop() is False

    await check_each_async(damaged, check)
    assert loaded == []


async def test_flipped_bits_in_snapshot_do_not_change_results(
    location: str, tmp_path: Path
) -> None:
    async with await open_library(location, tmp_path) as first:
        before, file = await save_snapshot(first)
    whole = file.read_bytes()
    for position in range(100, len(whole), len(whole) // 8):
        flipped = bytearray(whole)
        flipped[position] ^= 0xFF
        file.write_bytes(flipped)
        async with await open_library(location, tmp_path) as second:
            assert await top(second) == before


async def test_snapshot_of_another_history_is_ignored(tmp_path: Path) -> None:
    """A restored backup reuses change numbers for other rows."""
    original, backup = tmp_path / "a.db", tmp_path / "backup.db"
    async with await open_library(str(original), tmp_path) as library:
        await library.add_messages(LIN, batch(0, 100))
    backup.write_bytes(original.read_bytes())
    async with await open_library(str(original), tmp_path) as library:
        await library.add_messages(LIN, batch(100, 600))
        await top(library)
        assert snapshot_file(library).exists()
    original.write_bytes(backup.read_bytes())
    async with await open_library(str(original), tmp_path) as library:
        await library.add_messages(LIN, batch(2000, 700))
        await library.vectors.settle()
        page = await library.search(LIN, SearchRequest("tea", limit=200))
        numbers = {int(hit.key[1:]) for hit in page.results}
        assert (
            page.total_found
            == (await library.search(LIN, SearchRequest("tea", limit=200, cursor=None))).total_found
        )
        assert all(number < 100 or number >= 2000 for number in numbers)


async def test_snapshot_files_are_private_and_do_not_contain_user_id(
    location: str, tmp_path: Path
) -> None:
    async with await open_library(location, tmp_path) as library:
        _, file = await save_snapshot(library)
        assert file.stat().st_mode & 0o077 == 0
        assert file.parent.stat().st_mode & 0o077 == 0
        assert "lin" not in file.name
        await library.erase_user("lin")
        assert not file.exists()


async def test_search_works_with_unwritable_snapshot_folder(location: str, tmp_path: Path) -> None:
    async with await open_library(location, tmp_path) as library:
        (tmp_path / "file").write_text("not a folder")
        library.cache._snapshots = SnapshotFolder(tmp_path / "file" / "index", "id")
        await library.add_messages(LIN, batch(0, 600))
        assert (await top(library)).results


async def test_erased_session_is_removed_from_index(library: Library) -> None:
    await library.add_messages(LIN.with_session("s1"), batch(0, 5))
    await library.add_messages(LIN.with_session("s2"), batch(5, 5))
    assert (await top(library)).results
    await library.erase_session("lin", "s1")
    remaining = {hit.key for hit in (await top(library)).results}
    assert remaining
    assert remaining <= {f"m{number}" for number in range(5, 10)}


async def test_erasure_by_another_process_is_visible(
    library: Library, location: str, tmp_path: Path
) -> None:
    await library.add_messages(LIN, batch(0, 5))
    assert (await top(library)).results
    async with await open_library(location, tmp_path / "other") as other:
        await other.erase_user("lin")
    assert "there is no user" in (await top(library)).message


async def test_message_deleted_by_another_process_leaves_index_and_snapshot(
    library: Library, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.search.index.cache._ROWS_WORTH_SAVING", 1)
    await library.add_messages(LIN, batch(0, 5))
    async with await open_library(location, tmp_path / "other", snapshots=True) as other:
        assert "m1" in {hit.key for hit in (await top(other)).results}
        assert other.cache._snapshots is not None
        snapshot = other.cache._snapshots.path("lin")
        assert snapshot.exists()
        await library.purge_message(LIN, "m1")
        assert "m1" not in {hit.key for hit in (await top(other)).results}
        assert not snapshot.exists()


async def test_indexes_stay_within_byte_budget(location: str, tmp_path: Path) -> None:
    async with await open_library(location, tmp_path) as library:
        users = [Scope(f"u{number}") for number in range(8)]
        for scope in users:
            await library.add_messages(scope, batch(0, 60))
        await library.vectors.settle()
        await library.search(users[0], SearchRequest("tea", now=NOW))
        index_size = library.cache.nbytes()
        budget = int(index_size * 3.5)
        cache = IndexCache("hash-64", None, budget)
        engine = SearchEngine(library.store, HashEmbedder(), cache)
        expected = [await library.search(scope, SearchRequest("tea", now=NOW)) for scope in users]
        for _ in range(2):
            for scope, page in zip(users, expected, strict=True):
                assert await engine.search(scope, SearchRequest("tea", now=NOW)) == page
                assert cache.nbytes() <= budget
                assert len(cache) <= 3


async def test_loading_an_index_reports_how_much_is_loaded(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    await library.add_messages(LIN, batch(0, 40))
    library.cache.forget("lin")
    shares: list[float] = []
    apply = Columns.apply

    def record(self: Columns, changes: Any) -> None:
        share = library.cache.loaded_share("lin")
        assert share is not None
        shares.append(share)
        apply(self, changes)

    monkeypatch.setattr(Columns, "apply", record)
    monkeypatch.setattr("memrecall.store.feed.CHANGES_PER_READ", 10)
    assert library.cache.loaded_share("lin") is None
    await top(library)
    assert shares[0] == 0.0
    assert len(shares) >= 4
    assert shares == sorted(set(shares))  # it grows
    assert shares[-1] < 1
    assert library.cache.loaded_share("lin") is None


async def test_index_of_an_erased_or_unreadable_user_leaves_the_cache(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    await library.add_messages(LIN, batch(0, 5))
    await top(library)
    assert (len(library.cache), library.cache.nbytes() > 0) == (1, True)

    def fail(*_: object) -> None:
        raise StorageError("the rows cannot be read")

    await library.add_messages(LIN, batch(5, 5))
    with monkeypatch.context() as patch:
        patch.setattr("memrecall.search.index.columns.Columns.apply", fail)
        with pytest.raises(StorageError):
            await top(library)
    assert (len(library.cache), library.cache.nbytes()) == (0, 0)
    assert len((await top(library)).results) > 0
    feed = library.store.feed("lin")
    version = await feed.version()
    assert version is not None
    await library.store.owners.erase_user("lin")
    async with library.cache.open(feed, replace(version, version=version.version - 1)) as columns:
        assert columns is None
    assert (len(library.cache), library.cache.nbytes()) == (0, 0)


def test_vectors_of_a_small_user_take_memory_for_their_rows_only() -> None:
    vectors = VectorBlocks()
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((2_100, 64)).astype(np.float16)
    query = rng.standard_normal(64).astype(np.float32)
    for rows in (1, 8, 9, 2_048, 2_100):
        for row in range(rows):
            vectors.put(row, matrix[row].tobytes())
        assert vectors.nbytes(rows) <= max(8, 2 * rows) * 64 * 4
        more = rows + 3  # without vectors
        expected = np.concatenate([matrix[:rows].astype(np.float32) @ query, np.zeros(3)])
        assert vectors.similarities(query, more) == pytest.approx(expected, abs=1e-4)
        loaded = VectorBlocks()
        loaded.load(vectors.dump(more))
        assert (loaded.dump(more) == vectors.dump(more)).all()
        assert (vectors.dump(more)[:rows] == matrix[:rows]).all()


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Generate writes of messages and memories with searches in between."""
    step = st.tuples(
        st.sampled_from(["messages", "memories", "delete", "search"]), st.integers(1, 7)
    )
    return draw(st.lists(step, min_size=1, max_size=8))


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(histories())
async def test_incremental_index_ranks_like_new_index(
    library: Library, history: list[tuple[str, int]]
) -> None:
    scope = Scope(f"u{next(NUMBERS)}")
    request = SearchRequest("tea 数据库", limit=50, now=NOW)
    number = 0
    for verb, size in history:
        if verb == "messages":
            await library.add_messages(scope, batch(number, size))
        elif verb == "memories":
            memories = [
                NewMemory(memory_key=f"k{n}", content=WORDS[n % len(WORDS)])
                for n in range(number, number + size)
            ]
            await library.add_memories(scope, memories, origin=Origin.USER, actor="test")
        elif verb == "delete":
            with suppress(NotFound):
                await library.purge(scope, [f"k{size}"])
                await library.purge_message(scope, f"m{size}")
        else:
            await library.search(scope, request)
        number += size
    await library.vectors.settle()
    grown = await library.search(scope, request)
    library.cache.forget(scope.user_id)  # neither in memory nor on disk, so the index is rebuilt
    assert await library.search(scope, request) == grown


@pytest.mark.concurrent
async def test_cancelled_search_leaves_index_consistent(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    await library.add_messages(LIN, batch(0, 5))
    await top(library)
    await library.add_messages(LIN, batch(5, 300))
    await library.vectors.settle()
    started, released = threading.Event(), threading.Event()
    apply = Columns.apply

    def slow(self: Columns, changes: Any) -> None:
        started.set()
        released.wait(60)
        apply(self, changes)

    monkeypatch.setattr(Columns, "apply", slow)
    search = asyncio.create_task(top(library))
    assert await asyncio.to_thread(started.wait, 60)
    search.cancel()
    # A cancelled search waits until its thread has ended.
    asyncio.get_running_loop().call_soon(released.set)
    with pytest.raises(asyncio.CancelledError):
        await search
    monkeypatch.undo()
    page = await top(library)
    assert (await top(library)) == page
    assert len({hit.key for hit in page.results}) == 50


@pytest.mark.concurrent
@pytest.mark.parametrize("error", [asyncio.CancelledError, StorageError])
async def test_index_that_takes_longer_than_a_request_is_loaded_on_by_the_next(
    library: Library, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr(feed, "CHANGES_PER_READ", 40)
    await library.add_messages(LIN, batch(0, 100))
    await library.vectors.settle()
    expected = await top(library)
    library.cache.forget(LIN.user_id)
    read, ranges = feed.ChangeFeed._read, list[int]()

    def fail_at_times(self: Any, part: Any, *args: Any) -> Any:
        ranges.append(part.after)
        if len(ranges) in (2, 4):  # the deadline of the request passes
            raise error("gone")
        return read(self, part, *args)

    monkeypatch.setattr(feed.ChangeFeed, "_read", fail_at_times)
    for _ in range(2):
        with pytest.raises(error):
            await top(library)
    assert await top(library) == expected
    assert ranges[:5] == [0, 40, 40, 80, 80]
