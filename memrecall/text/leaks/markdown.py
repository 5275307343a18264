"""Markdown code: spans, fences and indented lines.

A span ends on its line; without a closing delimiter there is no span. Text arrives in pieces, so
nothing here looks further than the start of a line or a run of delimiters.
"""

import re
from dataclasses import dataclass, field
from enum import IntEnum

MAX_SPAN_LENGTH = 1000  # a backtick that is not closed within this length opens no span
_MAX_RUN = 64
FENCE = 3  # the minimum length of a fence
_CODE_COLUMNS = 4  # the minimum indentation of code, and the width of a tab
INDENT = re.compile(r"[\s>*+\-]*")  # what may precede a fence on its line
_ENDS = re.compile(rf"`{{1,{_MAX_RUN}}}|\n")
_MAX_INDENT = 64
_MAX_BLANKS = 64  # around a closing fence
_RUN = re.compile(rf"`{{1,{_MAX_RUN}}}|~{{1,{_MAX_RUN}}}")


def may_be_indent(text: str) -> bool:
    """Return True if a short text may be the start of an indentation."""
    return len(text) <= _MAX_INDENT and not text.strip(" \t\n>*+-")


def delimiter_length(text: str, position: int) -> int:
    """Return the number of equal delimiters at a position, at most the maximum run."""
    if text[position + 1 : position + 2] not in ("`", "~"):
        return 1
    run = _RUN.match(text, position)
    return len(run[0]) if run else 0


def is_span_mark(text: str, position: int) -> bool:
    """Return True for a backtick that cannot begin a fence."""
    return text[position] == "`" and not "```".startswith(text[position : position + FENCE])


@dataclass(slots=True, eq=False)
class CodeSpan:
    """A run of backticks that may have opened a span or a fence."""

    start: int  # after the run
    run: int
    fence: bool
    searched_end: int  # where the search for its end continues
    scanned_end: int = field(init=False)  # where the search for calls in it continues
    code_end: int | None = None  # its end, once it is known to be a span

    def __post_init__(self) -> None:
        self.scanned_end = self.searched_end

    def move(self, by: int) -> None:
        """Adjust the positions to a text that lost `by` characters at its start."""
        self.start -= by
        self.searched_end -= by
        self.scanned_end -= by
        if self.code_end is not None:
            self.code_end -= by

    def decide(self, text: str, is_final: bool) -> "int | Fence | None":
        """Return the end of the span, -1 if it is none, a fence, or None if undecided."""
        limit = self.start + MAX_SPAN_LENGTH
        while match := _ENDS.search(text, self.searched_end, limit):
            if match[0] == "\n":
                return Fence("`", self.run) if self.fence else -1
            if match.end() == len(text) and not is_final:
                return None  # the run may continue
            if len(match[0]) == self.run and match.end() < limit:
                return match.end()
            self.fence = False
            self.searched_end = match.end()
        self.searched_end = max(self.searched_end, min(len(text), limit))
        if len(text) >= limit:
            return -1
        if is_final:
            return Fence("`", self.run) if self.fence else -1
        return None


@dataclass(slots=True)
class Fence:
    """An open fence, closed by a line with at least as many of its delimiters, or a token."""

    mark: str
    run: int
    at_line_start: bool = False  # whether the position is at the start of a line
    is_closed: bool = False
    _closing: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        run = rf"({re.escape(self.mark)}{{{self.run},{_MAX_RUN}}})"
        self._closing = re.compile(rf"[ \t>]{{0,{_MAX_BLANKS}}}{run}?[ \t\r]{{0,{_MAX_BLANKS}}}")

    def read(self, text: str, position: int, is_final: bool) -> int:
        """Return where the processed text ends, or the end of the fence once it is closed."""
        while True:
            if not self.at_line_start:
                end = text.find("\n", position)
                if end < 0:
                    return len(text)
                position, self.at_line_start = end + 1, True
            match = self._closing.match(text, position)
            end = match.end() if match else position
            if not is_final and self._may_close(text, position):
                return position
            if match and match[1] and text[end : end + 1] in ("", "\n", *"<＜["):
                self.is_closed = True
                return end
            self.at_line_start = False

    def _may_close(self, text: str, position: int) -> bool:
        line = text[position : position + 2 * _MAX_BLANKS + _MAX_RUN + 1]
        if len(line) > 2 * _MAX_BLANKS + _MAX_RUN or "\n" in line:
            return False
        return not line.strip(" \t\r>").strip(self.mark)


class LineState(IntEnum):
    """The block that the lines so far belong to."""

    TEXT = 0
    LIST = 1
    CODE = 2


_FIRST = r"~|(?<=  )`|`(?:`(?:`|\Z)|\Z)|OPENINGS|\Z"  # starts of words that need processing
STOPS = {
    LineState.TEXT: rf"\n(?=[ \t]*(?:[^\S \t]|[>*+\-0-9]|{_FIRST}))",
    LineState.LIST: (
        r"\n(?!(?:[ \t]+|[ \t]*[*+\-][ \t>*+\-]*|(?=[0-9]))"
        rf"(?!\s|[>*+\-]|{_FIRST}))"
    ),
    LineState.CODE: r"\n",
}
"""Line ends, except where the next line changes no state and no format can begin on it."""


@dataclass(slots=True)
class Indentation:
    """The indentation of a line, which decides whether the line is code.

    Code is indented by four columns after an empty line, except in a list, where such lines
    continue an item.
    """

    _columns: int = 0
    _has_marks: bool = False  # whether it contains list or quotation marks
    _after_empty_line: bool = False
    _in_code: bool = False
    _in_list: bool = False

    @property
    def lines(self) -> LineState:
        """The block that the previous lines belong to."""
        if self._in_code:
            return LineState.CODE
        return LineState.LIST if self._in_list else LineState.TEXT

    def read(self, blanks: str) -> None:
        """Add a piece of an indentation, which may contain line ends."""
        if "\n" in blanks:
            self._columns, self._has_marks, self._after_empty_line = 0, False, True
            blanks = blanks[blanks.rindex("\n") + 1 :]
        marks = blanks.strip()
        if marks:
            self._has_marks = True
            self._in_list = self._in_list or bool(marks.strip("> \t"))
        self._columns += len(blanks) + (_CODE_COLUMNS - 1) * blanks.count("\t")

    def begin_line(self, char: str) -> bool:
        """Return True if the line with this first character is code."""
        is_indented = not self._has_marks and self._columns >= _CODE_COLUMNS
        if char in "0123456789":
            self._in_list = True
        elif self._columns == 0:
            self._in_list = False
        is_code = is_indented and not self._in_list and (self._after_empty_line or self._in_code)
        self._in_code, self._after_empty_line = is_code, False
        self._columns, self._has_marks = 0, False
        return is_code
