"""Acknowledged writes survive `kill -9`, and no batch is stored partially."""

import asyncio
import secrets
import time
from collections import defaultdict

import pytest
from sqlalchemy import text

from memrecall.store import Store
from memrecall.store.database.dialects import SQLITE

from ..databases import POOL
from ..waiting import wait_until
from . import process
from .children import Child
from .samples import read_pages
from .test_numbering import assert_numbered

pytestmark = pytest.mark.concurrent

RANDOM = secrets.SystemRandom()
OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
AND pid <> pg_backend_pid() AND application_name <> :pool
"""
Batches = dict[str, dict[int, int]]


def kill_a_writer(location: str, name: str, task: process.Task = process.stream) -> int:
    """Start a writer, kill it at a random moment, and return its acknowledged batches."""
    with Child(task, location, name) as child:
        child.start()
        acknowledged_numbers = [child.receive() for _ in range(RANDOM.randint(1, 6))]
        time.sleep(RANDOM.uniform(0, 0.03))
        child.kill()
        acknowledged_numbers += child.receive_all()
    assert acknowledged_numbers == list(range(len(acknowledged_numbers)))
    return len(acknowledged_numbers)


async def read_batches(location: str) -> Batches:
    """Return the number of messages of each batch of each writer."""
    batches: Batches = defaultdict(lambda: defaultdict(int))
    async with await Store.open(location, lock_timeout=60) as store:
        await wait_until(lambda: has_no_other_connections(store))
        messages = await read_pages(store.timeline(process.SCOPE), page_size=200)
        version = await store.feed("ann").version()
        await check_integrity(store)
    assert_numbered(messages)
    assert version is not None
    assert version.version == len(messages)
    for message in messages:
        name, number, _ = message.message_id.split("-")
        batches[name][int(number)] += 1
    return batches


async def has_no_other_connections(store: Store) -> bool:
    """Return True if the server has closed the killed clients, whose commits may still run."""
    if store.database.dialect is SQLITE:
        return True
    async with store.database.autocommit() as connection:
        return bool(await connection.scalar(text(OTHERS), {"pool": POOL}) == 0)


async def check_integrity(store: Store) -> None:
    """Run SQLite's integrity check of the file."""
    if store.database.dialect is not SQLITE:
        return
    async with store.database.read() as connection:
        assert await connection.scalar(text("PRAGMA integrity_check")) == "ok"
        assert (await connection.execute(text("PRAGMA foreign_key_check"))).all() == []


def kill_writers(location: str, kills: int, task: process.Task = process.stream) -> None:
    acknowledged: dict[str, int] = {}
    for number in range(kills):
        acknowledged[f"run{number}"] = kill_a_writer(location, f"run{number}", task)

        batches = asyncio.run(read_batches(location))

        for name, count in acknowledged.items():
            sizes = batches[name]
            assert set(range(count)) <= set(sizes), "an acknowledged batch is lost"
            assert len(sizes) <= count + 1  # the last batch may be stored but not acknowledged
            assert set(sizes.values()) == {process.BATCH}, "a batch is torn"


def test_acknowledged_writes_survive_kill(location: str) -> None:
    kill_writers(location, 5)


def test_imports_into_a_session_in_use_survive_kill(location: str) -> None:
    kill_writers(location, 20, process.import_parts)


@pytest.mark.long
def test_acknowledged_writes_survive_a_hundred_kills(location: str) -> None:
    kill_writers(location, 100)


def test_killed_writer_releases_its_locks(location: str) -> None:
    with Child(process.stream, location, "other", 0.02) as other:
        other.start()
        for number in range(3):
            kill_a_writer(location, f"run{number}")
            last = other.receive_new()
        other.kill()

    batches = asyncio.run(read_batches(location))
    assert isinstance(last, int)
    assert set(range(last + 1)) <= set(batches["other"])
    assert {size for sizes in batches.values() for size in sizes.values()} == {process.BATCH}
