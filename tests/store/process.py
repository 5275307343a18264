"""What a second process does to a database.

A verb gets a place to say things to the test and the location of the database.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.types import NewMessage, Role

SCOPE = Scope("ann", session_id="shared")
BATCH = 5
PATIENCE = 60.0

Say = Callable[[object], None]
Verb = Callable[..., Coroutine[Any, Any, None]]


def batch(name: str, number: int, size: int = BATCH) -> list[NewMessage]:
    """The messages of one batch; their ids tell which."""
    return [
        NewMessage(message_id=f"{name}-{number}-{at}", content=f"{name} {number}", role=Role.USER)
        for at in range(size)
    ]


async def open_only(say: Say, location: str) -> None:
    """Open the database, making its schema if it has none."""
    async with await Store.open(location, lock_timeout=PATIENCE) as store:
        say(await store.schema_version())


async def write(say: Say, location: str, name: str, batches: int) -> None:
    """Write some small batches into the shared session."""
    async with await Store.open(location, lock_timeout=PATIENCE, durability="normal") as store:
        for number in range(batches):
            written = await store.timeline(SCOPE).add(batch(name, number, size=1 + number % 3))
            say(written.stored)


async def stream(say: Say, location: str, name: str, pause: float = 0.0) -> None:
    """Write batches for ever; say a batch's number as soon as its write was acknowledged.

    A pause between two writes lets another process write too: SQLite's lock is not fair.
    """
    async with await Store.open(location, lock_timeout=PATIENCE) as store:
        for number in count():
            await store.timeline(SCOPE).add(batch(name, number))
            say(number)
            await asyncio.sleep(pause)


def run(test: Connection, verb: Verb, arguments: tuple[object, ...]) -> None:
    """The life of the process: wait for the word, so that several begin at once, then work."""
    test.recv()
    asyncio.run(verb(test.send, *arguments))
