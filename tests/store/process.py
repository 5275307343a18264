"""Tasks that a second process runs on a database.

A task gets a function that sends reports to the test, and the location of the database.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from memrecall.scope import Scope
from memrecall.store import MessageFilter, Store
from memrecall.store.database.engine import Database
from memrecall.store.transfer import export_user, import_user
from memrecall.types import NewMessage, Role

SCOPE = Scope("ann", session_id="shared")
BATCH = 5
TIMEOUT = 60.0

Report = Callable[[object], None]
Task = Callable[..., Coroutine[Any, Any, None]]


def batch(name: str, number: int, size: int = BATCH) -> list[NewMessage]:
    """Return the messages of one batch; their ids contain its name and number."""
    return [
        NewMessage(message_id=f"{name}-{number}-{i}", content=f"{name} {number}", role=Role.USER)
        for i in range(size)
    ]


async def open_only(report: Report, location: str) -> None:
    """Open the database and create its schema if it has none."""
    async with await Store.open(location, lock_timeout=TIMEOUT) as store:
        report(await store.schema_version())


async def write(report: Report, location: str, name: str, batches: int) -> None:
    """Write some small batches into the shared session."""
    async with await Store.open(location, lock_timeout=TIMEOUT, durability="normal") as store:
        for number in range(batches):
            result = await store.timeline(SCOPE).add(batch(name, number, size=1 + number % 3))
            report(result.stored)


async def stream(report: Report, location: str, name: str, pause: float = 0.0) -> None:
    """Write batches without end and report the number of each acknowledged one.

    A pause between two writes lets another process write too: SQLite's lock is not fair.
    """
    async with await Store.open(location, lock_timeout=TIMEOUT) as store:
        for number in count():
            await store.timeline(SCOPE).add(batch(name, number))
            report(number)
            await asyncio.sleep(pause)


async def stream_in_log(report: Report, location: str, name: str) -> None:
    """Write batches into a new database whose file has no schema yet, as of earlier versions."""
    Database._checkpoint = do_nothing  # type: ignore[method-assign,assignment]
    await stream(report, location, name)


def do_nothing(_: object) -> None:
    """Copy nothing from the log to the file."""


async def import_parts(report: Report, location: str, name: str) -> None:
    """Import batches into the shared session without end; report each acknowledged one."""
    async with await Store.open(location, lock_timeout=TIMEOUT) as store:
        for number in count():
            source = f"source-{name}-{number}"
            await store.timeline(Scope(source, session_id="shared")).add(batch(name, number))
            records = [record async for record in export_user(store.database, source)]
            await import_user(store.database, SCOPE.user_id, records)
            report(number)


async def list_messages(report: Report, location: str) -> None:
    """Report the ids of the messages of a database that has no damage."""
    async with await Store.open(location) as store:
        damage = await store.find_damage(deep=True)
        assert not any(damage.values()), damage
        page = await store.timeline(Scope("ann")).page(MessageFilter(), page_size=200)
        report([message.message_id for message in page.items])


def run(test: Connection, task: Task, arguments: tuple[object, ...]) -> None:
    """Wait for the start signal, so that several processes start at once; run the task."""
    test.recv()
    asyncio.run(task(test.send, *arguments))
