"""Work that is done again and again while a memory is open."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from memrecall.errors import MemrecallError

log = logging.getLogger(__name__)


class Schedule:
    """Repeats a piece of work until it is stopped. A turn that fails is logged; the next comes.

    The work is given an event that says when it should come to its end.
    """

    def __init__(
        self, name: str, every: float, work: Callable[[asyncio.Event], Awaitable[object]]
    ) -> None:
        self._name = name
        self._every = every
        self._work = work
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return not self._task.done()

    async def stop(self) -> None:
        """Stop it; what has begun comes to its end first."""
        self._stopping.set()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._every)
                return
            try:
                await self._work(self._stopping)
            except MemrecallError as error:
                log.warning("%s did not succeed: %s", self._name, error)
