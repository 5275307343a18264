"""Somebody else at work on the same rows."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import text

from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.store.database.dialects import SQLITE
from memrecall.store.database.locks import lock_scopes, lock_users

from ..waiting import wait_until

BLOCKED = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


class ThoughtBetter(Exception):
    """The other writer gives up and leaves nothing."""


@asynccontextmanager
async def writer_at_work(location: str, newcomer: str | None = None) -> AsyncIterator[None]:
    """Another store is in the middle of a write, which it will give up when the block ends.

    It holds Ann's row; or it has made a new user whom nobody else can see yet.
    """
    loop = asyncio.get_running_loop()
    begun, enough, enough_here = asyncio.Event(), asyncio.Event(), threading.Event()

    async def work(connection: Any) -> None:
        if newcomer:
            await lock_scopes(connection, [Scope(newcomer)], with_sessions=False)
        else:
            await lock_users(connection, ["ann"])
        loop.call_soon_threadsafe(begun.set)
        if other.database.dialect is SQLITE:  # a transaction of SQLite has a thread to itself
            enough_here.wait(100)
        else:
            await enough.wait()
        raise ThoughtBetter

    async with await Store.open(location) as other:
        writing = asyncio.create_task(other.database.transact(work))
        await begun.wait()
        try:
            yield
        finally:
            enough.set()
            enough_here.set()
            with suppress(ThoughtBetter):
                await writing


async def wait_for_blocked(store: Store, transactions: int) -> None:
    """Return when so many transactions of the store wait for the other writer."""

    async def blocked() -> bool:
        return await count_blocked(store) >= transactions

    await wait_until(blocked)


async def count_blocked(store: Store) -> int:
    """How many transactions of the store have begun and wait."""
    database = store.database
    if database.dialect is SQLITE:  # one waits for the file, the others in line behind it
        line: Any = database._write_lock
        return int(line.locked()) + len(line._waiters or ())
    async with database.autocommit() as connection:
        return int(await connection.scalar(text(BLOCKED)) or 0)
