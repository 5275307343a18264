"""Time expressions of Chinese and English text as ranges: 上周三, 三天前, "since last May".

Words are read by the tables of `times_zh` and `times_en`; nothing here asks for the current time.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal

from memrecall.text.times_reader import Found, read_times

TimeGrain = Literal["minute", "hour", "day", "week", "month", "season", "year", "range"]

# Traditional characters that stand in time words or beside them, and their simplified forms.
_TRADITIONAL = (
    "週號點後個禮這兩從鐘鍾時間過會節國慶聖誕勞動兒歷歲數幾剛纔內裡裏萬"
    "雙來為與開現氣線樓門車員級輕頭長陣淩學將遠對報語記餅樹"
)
_SIMPLIFIED = (
    "周号点后个礼这两从钟钟时间过会节国庆圣诞劳动儿历岁数几刚才内里里万"
    "双来为与开现气线楼门车员级轻头长阵凌学将远对报语记饼树"
)
# One character for one character: a position in the folded text is a position in the input.
_FOLDING: dict[int, int] = (
    {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    | {ord(upper): ord(upper) + 32 for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    | {code: code - 0xFEE0 + 32 for code in range(0xFF21, 0xFF3B)}
    | {ord(old): ord(new) for old, new in zip(_TRADITIONAL, _SIMPLIFIED, strict=True)}
    | {ord(old): ord(new) for old, new in zip("’‘–—〜○\u3000\xa0", "''--~〇  ", strict=True)}
)


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


def find_times(text: str, now: datetime, zone: tzinfo = UTC) -> list[TimeSpan]:
    """Find all time expressions of a text, in order, resolved against `now` in the user's zone.

    The most specific reading wins and spans never overlap. A `now` without a zone is UTC. What
    falls outside the years 1 to 9999 is left out.
    """
    try:
        local = (now.replace(tzinfo=UTC) if now.utcoffset() is None else now).astimezone(zone)
    except OverflowError:
        return []
    spans = (_to_span(text, found) for found in read_times(text.translate(_FOLDING), local))
    return [span for span in spans if span is not None]


def _to_span(text: str, found: Found) -> TimeSpan | None:
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
