"""Time expressions of Chinese and English text as ranges: 上周三, 三天前, "since last May".

Words are read by the tables of `chinese` and `english`; nothing here asks for the current time.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal

from memrecall.text.normalize import replace_characters
from memrecall.text.times.parser import TimeExpression, read_times

TimeGrain = Literal["minute", "hour", "day", "week", "month", "season", "year", "range"]

# One character for one character: a position in the folded text is a position in the input.
_SMALL_LETTERS = {ord(upper): ord(upper) + 32 for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_LOOKALIKES = {ord(old): ord(new) for old, new in zip("–—〜○\xa0", "--~〇 ", strict=True)}
_FOLDING = _SMALL_LETTERS | _LOOKALIKES


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time expression: the words, where they stand, and the time they mean.

    `start` is inclusive and `end` exclusive, both in UTC; None is an open end. `grain` is the unit
    the words speak in, "range" if they speak of no single one.
    """

    start: datetime | None
    end: datetime | None
    text: str
    position: int
    grain: TimeGrain


def find_times(
    text: str, now: datetime, zone: tzinfo = UTC, *, past: bool = True
) -> list[TimeSpan]:
    """Find all time expressions of a text, in order, resolved against `now` in the user's zone.

    The most specific reading wins and spans never overlap. A `now` without a zone is UTC. What
    falls outside the years 1 to 9999 is left out. A bare "Wednesday" or "in May" is the last one,
    which is what questions mean; with `past` False it is the nearest, as in statements.
    """
    try:
        local = (now.replace(tzinfo=UTC) if now.utcoffset() is None else now).astimezone(zone)
    except OverflowError:
        return []
    spans = (_to_span(text, found) for found in read_times(_fold(text), local, past=past))
    return [span for span in spans if span is not None]


def _fold(text: str) -> str:
    return replace_characters(text).translate(_FOLDING)


def _to_span(text: str, found: TimeExpression) -> TimeSpan | None:
    try:
        start = found.start and found.start.astimezone(UTC)
        end = found.end and found.end.astimezone(UTC)
    except OverflowError:
        return None
    if start and end and start >= end:
        # A day that a country skipped when it moved across the date line.
        return None
    words = text[found.position : found.stop]
    grain = "hour" if found.grain == "part" else found.grain
    return TimeSpan(start, end, words, found.position, grain)
