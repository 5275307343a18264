"""Somebody else at work on the same rows."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.store.claims import claim, lock_users

from .samples import MORNING


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
            await claim(connection, [Scope(newcomer)], MORNING, with_sessions=False)
        else:
            await lock_users(connection, ["ann"])
        loop.call_soon_threadsafe(begun.set)
        if other.database.is_sqlite:  # a transaction of SQLite has a thread to itself
            enough_here.wait(60)
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
