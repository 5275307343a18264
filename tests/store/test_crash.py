"""An acknowledged write survives `kill -9`, and no batch is ever half there."""

import asyncio
import secrets
import time
from collections import defaultdict

import pytest
from sqlalchemy import text

from memrecall.store import Store
from memrecall.store.database.dialects import SQLITE

from ..waiting import wait_until
from . import process
from .children import Child
from .samples import read_pages
from .test_numbering import assert_numbered

pytestmark = pytest.mark.concurrent

CHANCE = secrets.SystemRandom()
OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
AND pid <> pg_backend_pid()
"""
Batches = dict[str, dict[int, int]]


def kill_a_writer(location: str, name: str) -> int:
    """Start a writer and kill it at some moment; the number of batches it acknowledged."""
    with Child(process.stream, location, name) as child:
        child.start()
        acknowledged = [child.receive() for _ in range(CHANCE.randint(1, 6))]
        time.sleep(CHANCE.uniform(0, 0.03))
        child.kill()
        acknowledged += child.receive_all()
    assert acknowledged == list(range(len(acknowledged)))
    return len(acknowledged)


async def read_batches(location: str) -> Batches:
    """How many messages there are of each batch of each writer."""
    found: Batches = defaultdict(lambda: defaultdict(int))
    async with await Store.open(location, lock_timeout=60) as store:
        await wait_until(lambda: is_alone(store))
        messages = await read_pages(store.timeline(process.SCOPE), page_size=200)
        version = await store.feed("ann").version()
        await require_sound(store)
    assert_numbered(messages)
    assert version is not None
    assert version.version == len(messages)
    for message in messages:
        name, number, _ = message.message_id.split("-")
        found[name][int(number)] += 1
    return found


async def is_alone(store: Store) -> bool:
    """Whether the server is done with the killed: a commit may be under way after its client."""
    if store.database.dialect is SQLITE:
        return True
    async with store.database.autocommit() as connection:
        return bool(await connection.scalar(text(OTHERS)) == 0)


async def require_sound(store: Store) -> None:
    """What SQLite itself says about its file."""
    if store.database.dialect is not SQLITE:
        return
    async with store.database.read() as connection:
        assert await connection.scalar(text("PRAGMA integrity_check")) == "ok"
        assert (await connection.execute(text("PRAGMA foreign_key_check"))).all() == []


def kill_writers(location: str, kills: int) -> None:
    acknowledged: dict[str, int] = {}
    for number in range(kills):
        acknowledged[f"run{number}"] = kill_a_writer(location, f"run{number}")

        found = asyncio.run(read_batches(location))

        for name, count in acknowledged.items():
            stored = found[name]
            assert set(range(count)) <= set(stored), "an acknowledged batch is lost"
            assert len(stored) <= count + 1  # one more may have come in without a word
            assert set(stored.values()) == {process.BATCH}, "a batch is torn"


def test_acknowledged_writes_survive_kill(location: str) -> None:
    kill_writers(location, 5)


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

    found = asyncio.run(read_batches(location))
    assert isinstance(last, int)
    assert set(range(last + 1)) <= set(found["other"])
    assert {size for stored in found.values() for size in stored.values()} == {process.BATCH}
