"""What happened, counted in memory and written down now and then, beside the requests."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from memrecall.agent import RecallResult
from memrecall.errors import MemrecallError
from memrecall.server.histograms import class_of, tenth_of
from memrecall.store import Counters

log = logging.getLogger("memrecall.server")

FLUSH_SECONDS = 5.0
LEVEL_SECONDS = 300.0


class Tally:
    """Counts until it is flushed. What cannot be written is kept for the next time."""

    def __init__(self, counters: Counters, keep_days: int) -> None:
        self._counters = counters
        self._keep_days = keep_days
        self._counted: dict[tuple[str, str], tuple[int, float]] = {}

    def add(self, name: str, label: str = "", count: int = 1, total: float = 0.0) -> None:
        """Something happened."""
        before = self._counted.get((name, label), (0, 0.0))
        self._counted[name, label] = (before[0] + count, before[1] + total)

    def add_time(self, name: str, seconds: float) -> None:
        """Something took so long."""
        self.add(name, class_of(seconds), total=seconds)

    def add_recall(self, result: RecallResult) -> None:
        """A recall came to an end."""
        self.add("iterations", str(result.iterations))
        self.add("windows", str(max(result.windows)))
        self.add("confidence", tenth_of(result.confidence))
        self.add("abstained", "yes" if result.abstained else "no")

    async def flush(self) -> None:
        """Write down what was counted."""
        counted, self._counted = self._counted, {}
        if not counted:
            return
        try:
            await self._counters.add(counted, datetime.now(UTC), self._keep_days)
        except MemrecallError as error:
            log.warning("not counted", extra={"fields": {"error": type(error).__name__}})
            for (name, label), (count, total) in counted.items():
                self.add(name, label, count, total)

    async def measure(self) -> None:
        """Write down how much is stored."""
        try:
            levels = await self._counters.measure_levels()
            await self._counters.set_levels(levels, datetime.now(UTC), self._keep_days)
        except MemrecallError as error:
            log.warning("not measured", extra={"fields": {"error": type(error).__name__}})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write now and then while the block runs, and what is left at its end."""
        writing = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing
            await self.flush()

    async def _run(self) -> None:
        until_measured = 0.0
        while True:
            if until_measured <= 0:
                await self.measure()
                until_measured = LEVEL_SECONDS
            await asyncio.sleep(FLUSH_SECONDS)
            until_measured -= FLUSH_SECONDS
            await self.flush()
