"""Somebody else at work on the same rows."""

import asyncio
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
    begun, enough = asyncio.Event(), asyncio.Event()

    async def work(connection: Any) -> None:
        if newcomer:
            await claim(connection, [Scope(newcomer)], MORNING, with_sessions=False)
        else:
            await lock_users(connection, ["ann"])
        begun.set()
        await enough.wait()
        raise ThoughtBetter

    async with await Store.open(location) as other:
        writing = asyncio.create_task(other.database.transact(work))
        await begun.wait()
        try:
            yield
        finally:
            enough.set()
            with suppress(ThoughtBetter):
                await writing
