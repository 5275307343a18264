"""Writers that hold locks on the rows that a test writes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import text
from sqlalchemy.util import await_only

from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.store.database.dialects import SQLITE
from memrecall.store.database.locks import lock_scopes, lock_users

from ..waiting import wait_until

COUNT_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
# On a cluster a writer waits on the node of the row.
COUNT_WAITING_ON_NODES = "SELECT count(DISTINCT waiting_gpid) FROM citus_lock_waits"


class RolledBack(Exception):
    """Raised in the other writer's transaction to roll it back."""


@asynccontextmanager
async def open_transaction(
    location: str, write: Callable[[Any], object], *, commit: bool = False
) -> AsyncIterator[None]:
    """Keep a transaction of another store open during the block."""
    loop = asyncio.get_running_loop()
    has_written, may_end, may_end_thread = asyncio.Event(), asyncio.Event(), threading.Event()

    def work(connection: Any) -> None:
        write(connection)
        loop.call_soon_threadsafe(has_written.set)
        if other.database.dialect is SQLITE:  # a transaction of SQLite has its own thread
            may_end_thread.wait(100)
        else:
            await_only(may_end.wait())
        if not commit:
            raise RolledBack

    async with await Store.open(location) as other:
        transaction = asyncio.create_task(other.database.transact(work))
        await has_written.wait()
        try:
            yield
        finally:
            may_end.set()
            may_end_thread.set()
            with suppress(RolledBack):
                await transaction


@asynccontextmanager
async def lock_of_another_writer(location: str, new_user: str | None = None) -> AsyncIterator[None]:
    """Lock Ann's row, or an uncommitted new user's, by another store."""

    def write(connection: Any) -> None:
        if new_user:
            lock_scopes(connection, [Scope(new_user)], with_sessions=False)
        else:
            lock_users(connection, ["ann"])

    async with open_transaction(location, write):
        yield


async def wait_for_blocked(store: Store, transactions: int) -> None:
    """Wait until this many transactions of the store wait for the other writer."""

    async def is_blocked() -> bool:
        return await count_blocked(store) >= transactions

    await wait_until(is_blocked)


async def count_blocked(store: Store) -> int:
    """Return the number of started transactions of the store that wait."""
    database = store.database
    if database.dialect is SQLITE:  # one waits for the file, the others queue behind it
        queue: Any = database._write_lock
        return int(queue.locked()) + len(queue._waiters or ())
    async with database.autocommit() as connection:
        return int(
            await connection.scalar(
                text(COUNT_WAITING_ON_NODES if store.database.is_distributed else COUNT_WAITING)
            )
            or 0
        )
