"""The types of the tables of time words, and the table of times in digits.

A rule maps words to a piece of time. `parser` combines pieces: 去年 is a range, 五月 a recurrence,
and 去年五月 is the recurrence placed in the range.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from memrecall.text.times.periods import Count, Range, Recurrence, Unit, calendar_unit, clock


class NoTime(Enum):
    """Words that name no single time, and consume the time words after them."""

    RECURRING = auto()  # 每周三
    IMPOSSIBLE = auto()  # 2月30日


Piece = Range | Recurrence | NoTime
MakeCounted = Callable[[datetime, Count, Unit], Range]  # of "three days ago" and the like


class Requirement(Enum):
    """The context that words need to count as a time."""

    NONE = auto()  # yesterday
    MARKER_OR_NEIGHBOR = auto()  # "in" or another piece: in 2022, Christmas 2022
    MARKER_OR_PREDECESSOR = auto()  # "in" or a piece before: in May, but not "I may"
    NEIGHBOR = auto()  # another piece: yesterday at 3 pm


class Rule(NamedTuple):
    """A row of a table; `make` gets the current time and the groups of the pattern."""

    pattern: str
    make: Callable[..., Piece]
    requirement: Requirement = Requirement.NONE


class Boundary(Enum):
    """How a marker turns a period into a time span."""

    WITHIN = auto()  # in May
    BEFORE = auto()
    UNTIL = auto()
    AFTER = auto()
    SINCE = auto()  # and until now
    FROM = auto()  # like SINCE, but it may also lie just ahead
    BETWEEN = auto()  # like WITHIN, but "and" may join it to its other end


class Marker(NamedTuple):
    """Words before or after a time; `confirms` makes ambiguous words after them a time."""

    pattern: str
    boundary: Boundary
    confirms: bool = False


Entry = TypeVar("Entry", bound=Rule | Marker)


@dataclass(frozen=True, slots=True)
class RuleMatch(Generic[Entry]):
    """The row of a table that matches a text, its groups, and where it ends."""

    entry: Entry
    groups: tuple[str | None, ...]
    stop: int


class Matcher(Generic[Entry]):
    """All patterns of a table as one expression; the first row that matches wins."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # Compiled on first use: it takes longer than the rest of the import.
        rows = (f"(?P<row{index}>{entry.pattern})" for index, entry in enumerate(self._entries))
        return compile_pattern(any_of(rows))

    @cached_property
    def _rows(self) -> dict[int, tuple[Entry, int]]:
        """Map each row's group number to its entry and the end of its groups."""
        firsts = sorted(self._pattern.groupindex.values())
        ends = [*firsts[1:], self._pattern.groups + 1]
        return dict(zip(firsts, zip(self._entries, ends, strict=True), strict=True))

    def match(self, text: str, position: int) -> RuleMatch[Entry] | None:
        """Return the match at a position, if any row matches."""
        match = self._pattern.match(text, position)
        # The group of a row closes last, so that `lastindex` identifies the row.
        if match is None or match.lastindex is None:
            return None
        entry, end = self._rows[match.lastindex]
        return RuleMatch(entry, match.groups()[match.lastindex : end - 1], match.end())


def any_of(patterns: Iterable[str]) -> str:
    """Return a pattern that tries several in order."""
    return f"(?:{'|'.join(patterns)})"


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which a blank matches up to three white spaces."""
    # Only ASCII counts as a letter, so that Chinese next to an English word is a word boundary.
    return re.compile(pattern.replace(" ", r"(?:\s{1,3})"), re.ASCII)


def ignore_recurring(_now: datetime, *_groups: str | None) -> NoTime:
    """Return the piece for words such as "every", which name no single time."""
    return NoTime.RECURRING


# A date is not part of something longer: a version, an address, a telephone number.
_BEGIN = r"(?<![\w./])"
_END = r"(?![\w/]|[.]\d)"
_NO_DASH_BEFORE, _NO_DASH_AFTER = r"(?<!-)", r"(?!-)"
_YEAR = r"(?:19|20|21)\d\d"


def _day(now: datetime, year: str, month: str, day: str) -> Range:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return calendar_unit(midnight.replace(year=int(year), month=int(month), day=int(day)), "day")


def _day_year_last(now: datetime, first: str, second: str, year: str) -> Range:
    """Return the day of 1/15/2025 in American order, and of 15/1/2025 in the other."""
    month, day = (second, first) if int(first) > 12 else (first, second)
    return _day(now, year, month, day)


def _month(now: datetime, year: str, month: str) -> Range:
    start = now.replace(year=int(year), month=int(month), day=1)
    return calendar_unit(start, "month")


def _instant(now: datetime, day: str, time: str, zone: str | None) -> Range:
    moment = datetime.fromisoformat(f"{day}T{time}{(zone or '').upper()}")
    aware = moment.replace(tzinfo=now.tzinfo) if moment.tzinfo is None else moment
    return calendar_unit(aware.astimezone(now.tzinfo), "minute")


def _clock(_now: datetime, hour: str, minute: str) -> Recurrence:
    return clock(int(hour), int(minute), exact=int(hour) > 12 or hour[0] == "0")


NUMERIC_RULES = (
    Rule(
        rf"{_BEGIN}{_NO_DASH_BEFORE}({_YEAR}-\d\d-\d\d)(?:t| )(\d\d:\d\d)"
        r"(?::\d\d(?:[.]\d{1,9})?)?(z|[+-]\d\d:?\d\d)?(?![\w:]| ?[ap][.]?m)",
        _instant,
    ),
    Rule(rf"{_BEGIN}{_NO_DASH_BEFORE}({_YEAR})-(\d\d?)-(\d\d?){_END}{_NO_DASH_AFTER}", _day),
    Rule(rf"{_BEGIN}({_YEAR})/(\d\d?)/(\d\d?){_END}", _day),
    Rule(rf"{_BEGIN}({_YEAR})[.](\d\d?)[.](\d\d?){_END}", _day),
    Rule(rf"{_BEGIN}(\d\d?)/(\d\d?)/({_YEAR}){_END}", _day_year_last),
    Rule(rf"{_BEGIN}{_NO_DASH_BEFORE}({_YEAR})-(0[1-9]|1[0-2]){_END}{_NO_DASH_AFTER}", _month),
    Rule(
        r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?(?![\d:]| ?[ap][.]?m)",
        _clock,
        Requirement.NEIGHBOR,
    ),
)

# How times in digits begin; see `chinese.STARTS`.
NUMERIC_STARTS = rf"\b(?:{_YEAR}[-/.]\d|\d\d?/\d\d?/\d{{4}}|\d\d?:\d\d(?! ?\d))"
