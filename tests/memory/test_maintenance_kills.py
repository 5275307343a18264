"""A database is whole whenever a reindex or a restore of it, or an import, is killed."""

import asyncio
import json
import secrets
import time
from functools import partial
from pathlib import Path

import pytest

from memrecall.library.library import Library
from memrecall.memory import Reindexer
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.store import NewRelation, Store
from memrecall.store.backup.database import backup_database
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..store.children import Child
from ..store.samples import read_pages
from ..store.test_crash import has_no_other_connections
from ..store.test_numbering import assert_numbered
from ..waiting import wait_until
from . import killed_maintenance

pytestmark = pytest.mark.concurrent

COLUMNS = {
    "messages": ("message_id", "content"),
    "memories": ("memory_key", "content"),
    "relations": ("source_id", "relationship", "destination_id"),
}
RANDOM = secrets.SystemRandom()
ANN = Scope("ann")
SIZES = (32, 64)
ROWS = 80
few_or_many_kills = pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.long)])


def said(name: str, count: int) -> list[NewMessage]:
    return [
        NewMessage(role=Role.USER, content=f"{name} {n}", message_id=f"{name}-{n}")
        for n in range(count)
    ]


async def count_messages(store: Store) -> int:
    await wait_until(lambda: has_no_other_connections(store))
    assert not any((await store.find_damage(deep=True)).values())
    return (await store.count())["messages"]


def kill(child: Child, reports: int) -> None:
    """Kill a process a moment after some reports."""
    with child:
        child.start()
        for _ in range(reports):
            child.receive()
        time.sleep(RANDOM.uniform(0, 0.02))
        child.kill()


async def check_search(library: Library) -> None:
    """Every row is found by its words, and those that have vectors by them."""
    page = await library.search(ANN, SearchRequest("tea 7", mode="keyword", limit=5))
    assert page.results[0].content == "tea 7"
    assert (await library.search(ANN, SearchRequest("tea 7"))).results


@few_or_many_kills
async def test_killed_reindex_leaves_a_database_that_the_next_one_finishes(
    location: str, kills: int
) -> None:
    async with await killed_maintenance.open_library(location, SIZES[1]) as library:
        await library.add_messages(ANN, said("tea", ROWS))
        await library.vectors.settle()
    for number in range(kills):
        size = SIZES[number % 2]
        kill(Child(killed_maintenance.reindex, location, size), RANDOM.randint(1, 8))
        async with await killed_maintenance.open_library(location, size) as library:
            assert await count_messages(library.store) == ROWS
            await check_search(library)
            if number % 5 == 4:
                await Reindexer(library).run()
                vectors = library.store.vectors(f"hash-{size}")
                assert await vectors.check_model() == size
                assert await vectors.count("ann") == ROWS
                assert await vectors.count_pending() == 0
                found = await library.search(ANN, SearchRequest("tea 7", mode="semantic"))
                assert found.results[0].content == "tea 7"


@few_or_many_kills
async def test_killed_restore_leaves_all_rows_of_before_or_after(
    location: str, kills: int, tmp_path: Path
) -> None:
    files = []
    for name, count in (("tea", 30), ("milk", 70)):
        async with await Store.open(str(tmp_path / f"{name}.db")) as store:
            await store.timeline(ANN).add(said(name, count))
            files.append((count, tmp_path / f"{name}.backup"))
            await backup_database(store, files[-1][1], lambda _: None)
    before = 0
    for number in range(kills):
        after, file = files[number % 2]
        kill(Child(killed_maintenance.restore, location, str(file)), RANDOM.randint(1, 6))
        async with await Store.open(location) as store:
            count = await count_messages(store)
            assert count in (before, after)
            assert_numbered(await read_pages(store.timeline(ANN)))
            await store.timeline(ANN).add(said("later", 1))  # the id is there already, or not
            before = (await store.count())["messages"]
            assert before == count + (count in (30, 70, 0))


async def read_rows(library: Library, user_id: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the ids and contents of a user's messages, memories and relations, sorted."""
    rows: dict[str, list[tuple[str, ...]]] = {name: [] for name in COLUMNS}
    async for record in library.export_user(user_id):
        if (columns := COLUMNS.get(record["table"])) is not None:
            rows[record["table"]].append(tuple(str(record["row"][name]) for name in columns))
    return {table: sorted(found) for table, found in rows.items()}


async def fill_and_export(library: Library, file: Path) -> None:
    """Store messages, memories and relations of ann, and write their export."""
    await library.add_messages(ANN, said("tea", ROWS))
    memories = [
        NewMemory(content=f"likes tea {n}", memory_key=f"k{n}", source_message_ids=(f"tea-{n}",))
        for n in range(ROWS // 2)
    ]
    await library.add_memories(ANN, memories, origin=Origin.USER, actor="ann")
    relations = [NewRelation("ann", "likes", f"tea {n}") for n in range(10)]
    await library.store.graph(ANN).add({}, relations)
    lines = [json.dumps(record) async for record in library.export_user("ann")]
    await asyncio.to_thread(file.write_text, "\n".join(lines), "utf-8")


@few_or_many_kills
async def test_killed_import_leaves_whole_parts_that_the_next_one_completes(
    location: str, kills: int, tmp_path: Path
) -> None:
    """The user has messages in a session of the export, so that its messages get new numbers."""
    file, own = tmp_path / "export.jsonl", [("own-0", "own 0"), ("own-1", "own 1")]
    async with await killed_maintenance.open_library(location, SIZES[0]) as library:
        await fill_and_export(library, file)
        whole = await read_rows(library, "ann")
    parts, cut = killed_maintenance.parts_of(file), 0
    sizes = [sum(line["table"] in COLUMNS for line in part) for part in parts]
    for number in range(kills):
        user = f"copy-{number}"
        async with await killed_maintenance.open_library(location, SIZES[0]) as library:
            await library.add_messages(Scope(user), said("own", 2))
        child = Child(killed_maintenance.import_export, location, user, str(file))
        kill(child, RANDOM.randint(1, 2 * len(parts) - 2))
        async with await killed_maintenance.open_library(location, SIZES[0]) as library:
            await wait_until(partial(has_no_other_connections, library.store))
            assert not any((await library.store.find_damage(deep=True)).values())
            count = sum(map(len, (await read_rows(library, user)).values())) - len(own)
            assert count in {sum(sizes[:end]) for end in range(len(parts) + 1)}
            cut += count < sum(sizes)
            for part in parts:
                await library.import_user(user, part)
            stored = await read_rows(library, user)
            assert stored == {**whole, "messages": sorted([*whole["messages"], *own])}
            assert_numbered(await read_pages(library.store.timeline(Scope(user))))
            assert not any((await library.store.find_damage(deep=True)).values())
    assert cut
