"""What happened, counted in memory and written down now and then, beside the requests."""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from memrecall.agent import RecallResult
from memrecall.errors import MemrecallError
from memrecall.store import Counters

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_LABELS = tuple(f"{bound:g}" for bound in BOUNDS)
BEYOND = "more"
_TENTHS = tuple(f"{tenth / 10:.1f}" for tenth in range(11))


def class_of(seconds: float) -> str:
    """The class of a time: its upper bound."""
    place = bisect_left(BOUNDS, seconds)
    return _LABELS[place] if place < len(BOUNDS) else BEYOND


def percentile(counts: Mapping[str, int], share: float) -> float | None:
    """The time that such a share stayed below, as far as classes tell; None if nothing counts."""
    total = sum(counts.values())
    if not total:
        return None
    wanted = share * total
    below = 0
    low = 0.0
    for label, bound in zip(_LABELS, BOUNDS, strict=True):
        inside = counts.get(label, 0)
        if inside and below + inside >= wanted:
            return low + (bound - low) * max(wanted - below, 0.0) / inside
        below += inside
        low = bound
    return BOUNDS[-1]


def tenth_of(value: float) -> str:
    """The class of a confidence: the tenth that it lies in, by its lower bound."""
    return _TENTHS[min(int(value * 10 + 1e-9), 9)]


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
