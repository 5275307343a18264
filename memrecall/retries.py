"""Pauses between attempts, and how long a server asks to wait."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from memrecall.errors import RunError, StorageError, StorageUnreachable
from memrecall.timing import seconds_left

_T = TypeVar("_T")

# Seconds before the second and the third attempt, unless the server names them.
PAUSES = (0.5, 1.0)
MAX_PAUSE = 10.0
FIRST_PAUSE, LAST_PAUSE = 0.01, 0.5  # of a database, which is near
NODE_SECONDS = 2.0  # after which a node of a cluster that refuses connections counts as lost
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


async def retry(
    attempt: Callable[[], Awaitable[_T]], is_transient: Callable[[RunError], bool]
) -> _T:
    """Return the result of an attempt, repeated up to twice after a transient failure.

    The pause is `retry_after` of the failure's details, if set. One above `MAX_PAUSE` is not
    awaited: the failure is raised, and its caller may wait.
    """
    for pause in PAUSES:
        try:
            return await attempt()
        except RunError as failure:
            retry_after = failure.details.get("retry_after")
            seconds: float = pause if retry_after is None else retry_after
            if seconds > MAX_PAUSE or not is_transient(failure):
                raise
        await asyncio.sleep(seconds)
    return await attempt()


def parse_retry_after(header: str, now: datetime) -> float | None:
    """Return the seconds of a Retry-After header (seconds or a date); None if it is invalid."""
    if _SECONDS.fullmatch(header):
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return max((zoned - now).total_seconds(), 0.0)


def growing_pauses(seconds: float) -> Iterator[float]:
    """Yield growing pauses between attempts, until that many seconds have passed."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while time.monotonic() + pause < deadline:
        yield pause
        pause = min(2 * pause, LAST_PAUSE)


class DatabaseRetries:
    """Attempts that are repeated after transient errors of a database, for some seconds.

    A node of a cluster that refuses connections is waited for more briefly, from its first refusal
    on: later requests for it fail at once, and the first attempt that reaches it succeeds.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._was_reached = False
        self._refusals: dict[str, tuple[float, float]] = {}  # the first and the last of each node

    async def run(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Return the result of the first attempt that succeeds; else raise the last error.

        A server that cannot be reached the first time is reported at once: its URL may be wrong.
        """
        for pause in growing_pauses(seconds_left(self.seconds)):
            begin = time.monotonic()
            try:
                result = await attempt()
            except StorageError as error:
                if not self._may_repeat(error, begin):
                    raise
            else:
                self._was_reached = True
                return result
            await asyncio.sleep(pause)
        return await attempt()

    def _may_repeat(self, error: StorageError, begin: float) -> bool:
        if not isinstance(error, StorageUnreachable):
            return error.is_transient
        if error.lost_node is not None and self._count_as_lost(error.lost_node, begin):
            return False
        return error.is_transient and self._was_reached

    def _count_as_lost(self, node: str, begin: float) -> bool:
        """Note a refusal; return True if the node has refused connections for some time.

        `begin` is when the attempt began: a node that does not answer at all refuses late.
        """
        now = time.monotonic()
        first, last = self._refusals.get(node, (now, now))
        if begin - last > NODE_SECONDS:
            first = now  # it may have been back
        self._refusals[node] = (first, now)
        return now - first >= NODE_SECONDS
