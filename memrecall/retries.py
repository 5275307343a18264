"""Pauses between attempts, and how long a server asks to wait."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from memrecall.errors import RunError

T = TypeVar("T")

# Seconds before the second and the third attempt, unless the server names them.
PAUSES = (0.5, 1.0)
MAX_PAUSE = 10.0
FIRST_PAUSE, LAST_PAUSE = 0.01, 0.5  # of a database, which is near
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


async def retry(attempt: Callable[[], Awaitable[T]], is_transient: Callable[[RunError], bool]) -> T:
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
