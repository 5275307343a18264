"""The deadline of a request, as the waits of a database keep it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from sqlalchemy import Text, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.deadlines import current_deadline
from memrecall.errors import StorageBusy
from memrecall.store.database.dialect import WAIT_HINT

_LIMIT_STATEMENTS = select(
    *(
        func.set_config(name, bindparam("milliseconds", type_=Text), True)
        for name in ("lock_timeout", "statement_timeout")
    )
)


@asynccontextmanager
async def in_time(location: str) -> AsyncIterator[None]:
    """Bound the waits of the block by the deadline of the request, if there is one."""
    limit = current_deadline()
    try:
        async with asyncio.timeout(None if limit is None else limit.left):
            yield
    except TimeoutError:
        raise StorageBusy(f"{location} is busy", hint=WAIT_HINT) from None


@asynccontextmanager
async def only_writer(lock: asyncio.Lock, location: str) -> AsyncIterator[None]:
    """Let one writer of this process through: a queue is fairer than SQLite's polling."""
    async with in_time(location):
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()


@asynccontextmanager
async def connect_in_time(
    opening: AbstractAsyncContextManager[AsyncConnection], location: str
) -> AsyncIterator[AsyncConnection]:
    """Open a connection, for which a pool may have to be waited for."""
    async with AsyncExitStack() as stack:
        async with in_time(location):
            connection = await stack.enter_async_context(opening)
        yield connection


async def limit_statements(connection: AsyncConnection) -> None:
    """Let a server end what a transaction waits for at the deadline of the request."""
    limit = current_deadline()
    if limit is not None:
        milliseconds = str(max(1, int(limit.left * 1000)))  # 0 would mean no limit
        await connection.execute(_LIMIT_STATEMENTS, {"milliseconds": milliseconds})
