"""What may be kept for a while: keyword expansions, searches, contents.

Entries about a user are keyed by that user's version and the scope's permissions, so that nothing
is shown that a write or a revoked permission has changed.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")

KEYWORD_SECONDS = 5 * 60.0
SEARCH_SECONDS = 60.0
CONTENT_SECONDS = 10 * 60.0
_ENTRIES = 512


class TimedCache(Generic[Value]):
    """Values that live for some seconds; the least recently used go first."""

    def __init__(
        self,
        seconds: float,
        *,
        entries: int = _ENTRIES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._entries = entries
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, Value]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Value]]) -> Value:
        """The value of a key, made if it is missing or too old. A failure is not kept."""
        now = self._clock()
        kept = self._kept.get(key)
        if kept is not None and now < kept[0]:
            self._kept.move_to_end(key)
            return kept[1]
        value = await make()
        self._kept[key] = (now + self._seconds, value)
        self._kept.move_to_end(key)
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)
        return value


class Caches:
    """The caches that recalls of one place share."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.keywords: TimedCache[tuple[str, ...]] = TimedCache(KEYWORD_SECONDS, clock=clock)
        self.searches: TimedCache[object] = TimedCache(SEARCH_SECONDS, clock=clock)
        self.contents: TimedCache[object] = TimedCache(CONTENT_SECONDS, clock=clock)
