"""Work that somebody waits for: when they hang up, or the server closes, it is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from memrecall.server.errors import SHUTTING_DOWN, Refused
from memrecall.server.guard import ClientGone

Result = TypeVar("Result")


async def while_listened(
    work: Coroutine[Any, Any, Result], receive: Receive, closing: asyncio.Event
) -> Result:
    """The result of the work, which ends before this does in any case."""
    doing = asyncio.ensure_future(work)
    hang_up = asyncio.ensure_future(_hang_up(receive))
    shutdown = asyncio.ensure_future(closing.wait())
    tasks: tuple[asyncio.Future[Any], ...] = (doing, hang_up, shutdown)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise ClientGone if hang_up.done() else Refused(SHUTTING_DOWN)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
