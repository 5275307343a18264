"""A database is whole whenever a reindex or a restore of it is killed."""

import secrets
import time
from pathlib import Path

import pytest

from memrecall.library.library import Library
from memrecall.memory import Reindexer
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.store import Store
from memrecall.store.backup.database import backup_database
from memrecall.types import NewMessage, Role

from ..store.children import Child
from ..store.samples import read_pages
from ..store.test_crash import has_no_other_connections
from ..store.test_numbering import assert_numbered
from ..waiting import wait_until
from . import killed_maintenance

pytestmark = pytest.mark.concurrent

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
