"""Markdown code, which is left alone: spans between backticks, fences, and indented lines.

A span ends on its line, as people write them; what never closes is no span. Both are found in text
that arrives in pieces: nothing here looks further than a line's beginning or a run of marks.
"""

import re
from dataclasses import dataclass, field
from enum import IntEnum

LONGEST_SPAN = 1000  # a backtick that nothing closes within so many characters opens no span
LONGEST_RUN = 64
FENCE = 3  # marks at least
CODE_COLUMNS = 4  # of the indentation of code, at least; a tab is as wide
INDENT = re.compile(r"[\s>*+\-]*")  # what may stand before a fence on its line
_ENDS = re.compile(rf"`{{1,{LONGEST_RUN}}}|\n")
_LONGEST_INDENT = 64
_REST = 64  # blanks around a closing fence
_RUN = re.compile(rf"`{{1,{LONGEST_RUN}}}|~{{1,{LONGEST_RUN}}}")


def is_indent(text: str) -> bool:
    """Whether a text may go on with indentation, and is not long."""
    return len(text) <= _LONGEST_INDENT and not text.strip(" \t\n>*+-")


def count_marks(text: str, at: int) -> int:
    """How many equal marks stand at a place; a longer run is taken for several."""
    if text[at + 1 : at + 2] not in ("`", "~"):
        return 1
    run = _RUN.match(text, at)
    return len(run[0]) if run else 0


class CodeSpan:
    """A run of backticks that may have opened a span, or a fence if it may be one."""

    __slots__ = ("fence", "hunted", "looked", "run", "start")

    def __init__(self, start: int, run: int, fence: bool, looked: int) -> None:
        self.start = start  # behind the run
        self.run = run
        self.fence = fence
        self.looked = looked  # how far its end was looked for
        self.hunted = looked  # how far calls were looked for in it

    def move(self, by: int) -> None:
        """Follow a text whose beginning was cut off."""
        self.start -= by
        self.looked -= by
        self.hunted -= by

    def decide(self, text: str, last: bool) -> "int | Fence | None":
        """Where the span ends; -1 if there is none; the fence that it is; `None`: not known yet."""
        limit = self.start + LONGEST_SPAN
        while found := _ENDS.search(text, self.looked, limit):
            if found[0] == "\n":
                return Fence("`", self.run) if self.fence else -1
            if found.end() == len(text) and not last:
                return None  # the run may go on
            if len(found[0]) == self.run and found.end() < limit:
                return found.end()
            self.fence = False
            self.looked = found.end()
        self.looked = max(self.looked, min(len(text), limit))
        if len(text) >= limit:
            return -1
        if last:
            return Fence("`", self.run) if self.fence else -1
        return None


@dataclass(slots=True)
class Fence:
    """An open fence. It closes on a line that has nothing but as many of its marks."""

    mark: str
    run: int
    at_line: bool = False  # whether the text goes on at the beginning of a line
    _closing: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        run = rf"({re.escape(self.mark)}{{{self.run},{LONGEST_RUN}}})"
        self._closing = re.compile(rf"[ \t>]{{0,{_REST}}}{run}?[ \t\r]{{0,{_REST}}}")

    def read(self, text: str, at: int, last: bool) -> tuple[int, bool]:
        """Read on: how far the text was understood, and whether the fence closed there."""
        while True:
            if not self.at_line:
                end = text.find("\n", at)
                if end < 0:
                    return len(text), False
                at, self.at_line = end + 1, True
            found = self._closing.match(text, at)
            end = found.end() if found else at
            if not last and self._may_close(text, at):
                return at, False
            if found and found[1] and (end == len(text) or text[end] == "\n"):
                return end, True
            self.at_line = False

    def _may_close(self, text: str, at: int) -> bool:
        """Whether the line so far is the beginning of a closing one."""
        line = text[at : at + 2 * _REST + LONGEST_RUN + 1]
        if len(line) > 2 * _REST + LONGEST_RUN or "\n" in line:
            return False
        return not line.strip(" \t\r>").strip(self.mark)


class LineState(IntEnum):
    """What a line may go on with."""

    TEXT = 0
    LIST = 1
    CODE = 2


_FIRST = r"~|`(?:`(?:`|\Z)|\Z)|OPENINGS|\Z"  # what a first word begins with that needs a look
STOPS = {
    LineState.TEXT: rf"\n(?=[ \t]*(?:[^\S \t]|[>*+\-0-9]|{_FIRST}))",
    LineState.LIST: (
        r"\n(?!(?:[ \t]+|[ \t]*[*+\-][ \t>*+\-]*|(?=[0-9]))"
        rf"(?!\s|[>*+\-]|{_FIRST}))"
    ),
    LineState.CODE: r"\n",
}
"""Ends of lines, but not where the next line changes nothing and nothing can begin on it."""


@dataclass(slots=True)
class Indentation:
    """What stands before the first word of a line, and whether that makes the line code.

    Code is indented by four columns, stands behind an empty line, and not in a list: there, such
    lines go on with an item.
    """

    _columns: int = 0
    _marked: bool = False  # marks of lists and quotations stand in it
    _behind_empty: bool = False
    _in_code: bool = False
    _in_list: bool = False

    @property
    def lines(self) -> LineState:
        """What the lines before are."""
        return (
            LineState.CODE if self._in_code else LineState.LIST if self._in_list else LineState.TEXT
        )

    def read(self, blanks: str) -> None:
        """Take a piece of what `INDENT` matches, perhaps with ends of lines in it."""
        if "\n" in blanks:
            self._columns, self._marked, self._behind_empty = 0, False, True
            blanks = blanks[blanks.rindex("\n") + 1 :]
        marks = blanks.strip()
        if marks:
            self._marked = True
            self._in_list = self._in_list or bool(marks.strip("> \t"))
        self._columns += len(blanks) + (CODE_COLUMNS - 1) * blanks.count("\t")

    def begin_line(self, char: str) -> bool:
        """Take the first character of the line; whether the line is code."""
        is_indented = not self._marked and self._columns >= CODE_COLUMNS
        if char in "0123456789":
            self._in_list = True
        elif self._columns == 0:
            self._in_list = False
        is_code = is_indented and not self._in_list and (self._behind_empty or self._in_code)
        self._in_code, self._behind_empty = is_code, False
        self._columns, self._marked = 0, False
        return is_code
