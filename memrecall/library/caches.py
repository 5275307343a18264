"""Caches with a time limit: searches, contents.

Entries about a user are keyed by that user's version and the scope's permissions, so that they
never show what a write or a revoked permission has changed.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Value = TypeVar("Value")

SEARCH_SECONDS = 60.0
CONTENT_SECONDS = 10 * 60.0
_MAX_ENTRIES = 512


@dataclass(slots=True)
class TimedCache(Generic[Value]):
    """Values that live for some seconds; the least recently used are evicted first."""

    seconds: float
    _entries: OrderedDict[Hashable, tuple[float, Value]] = field(default_factory=OrderedDict)

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Value]]) -> Value:
        """Return the value of a key, made if it is missing or expired. Failures are not cached."""
        now = time.monotonic()
        entry = self._entries.get(key)
        if entry is not None and now < entry[0]:
            self._entries.move_to_end(key)
            return entry[1]
        value = await make()
        self._entries[key] = (now + self.seconds, value)
        self._entries.move_to_end(key)
        while len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)
        return value


class Caches:
    """The caches that the recalls of one process share."""

    def __init__(self) -> None:
        self.searches: TimedCache[object] = TimedCache(SEARCH_SECONDS)
        self.contents: TimedCache[object] = TimedCache(CONTENT_SECONDS)

    def clear(self) -> None:
        """Drop everything: something was erased, and entries do not say what they quote."""
        self.__init__()  # type: ignore[misc]
