"""What a table of time words is made of.

A rule says which words it reads and which piece of time they make. Pieces are put together by
`reader`: 去年 is a range, 五月 a cycle, and 去年五月 is the one placed in the other.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from memrecall.text.times.ranges import Range
from memrecall.text.times.recurrence import Cycle


class Nothing(Enum):
    """Words about time that name no stretch of it, and keep what follows from doing so."""

    EVERY = auto()  # 每周三: every one of them
    NEVER = auto()  # 2月30日: none of them


Piece = Range | Cycle | Nothing


class Standing(Enum):
    """What words need beside them before they count as a time."""

    FREE = auto()  # nothing: yesterday
    LEANING = auto()  # "in" or another piece: in 2022, Christmas 2022
    SHY = auto()  # "in" or a piece in front: in May, but not "I may"
    BOUND = auto()  # another piece: yesterday at 3 pm


class Rule(NamedTuple):
    """One line of a table: `make` gets the current time and the pattern's groups."""

    pattern: str
    make: Callable[..., Piece]
    standing: Standing = Standing.FREE


class Boundary(Enum):
    """How words beside a time cut it out of all time."""

    WITHIN = auto()  # in May
    BEFORE = auto()
    UNTIL = auto()
    AFTER = auto()
    SINCE = auto()
    BETWEEN = auto()  # like WITHIN, but "and" joins it to its other end


class Marker(NamedTuple):
    """Words before or after a time; `licenses` lets a shy word stand behind them."""

    pattern: str
    edge: Boundary
    licenses: bool = False


Entry = TypeVar("Entry", bound=Rule | Marker)


@dataclass(frozen=True, slots=True)
class RuleMatch(Generic[Entry]):
    """The line of a table that reads a text, its groups, and where it stops."""

    entry: Entry
    groups: tuple[str | None, ...]
    stop: int


class Matcher(Generic[Entry]):
    """All patterns of a table as one expression; the first line that fits is the reading."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # Compiled when first needed: it takes longer than all the rest of the import.
        lines = (f"(?P<line{at}>{entry.pattern})" for at, entry in enumerate(self._entries))
        return compile_pattern(any_of(lines))

    @cached_property
    def _lines(self) -> dict[int, tuple[Entry, int]]:
        """Each line's entry and the end of its groups, by the number of the line's own group."""
        firsts = sorted(self._pattern.groupindex.values())
        ends = [*firsts[1:], self._pattern.groups + 1]
        return dict(zip(firsts, zip(self._entries, ends, strict=True), strict=True))

    def match(self, text: str, position: int) -> RuleMatch[Entry] | None:
        """Read the text at a position, if any line can."""
        found = self._pattern.match(text, position)
        # A line's own group closes last, so that `lastindex` tells which line it was.
        if found is None or found.lastindex is None:
            return None
        entry, end = self._lines[found.lastindex]
        return RuleMatch(entry, found.groups()[found.lastindex : end - 1], found.end())


def any_of(patterns: Iterable[str]) -> str:
    """Return a pattern that matches the first fitting one of several."""
    return f"(?:{'|'.join(patterns)})"


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which a blank stands for a little white space."""
    # Only ASCII counts as a letter: Chinese beside an English word is a border between words.
    return re.compile(pattern.replace(" ", r"(?:\s{1,3})"), re.ASCII)


def every(_now: datetime, *_groups: str | None) -> Nothing:
    """Make nothing of something that recurs."""
    return Nothing.EVERY
