"""The types of the tables of time words.

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

from memrecall.text.times.periods import Range, Recurrence


class NoTime(Enum):
    """Words that name no single time, and consume the time words after them."""

    RECURRING = auto()  # 每周三
    IMPOSSIBLE = auto()  # 2月30日


Piece = Range | Recurrence | NoTime


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
    SINCE = auto()
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
        """The entry of each row and the end of its groups, by the number of the row's group."""
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
