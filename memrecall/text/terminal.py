"""Layout of text in a terminal: widths, line breaks, bars."""

import re
from collections.abc import Iterable

from rich.cells import cell_len
from rich.text import Text

from memrecall.text_length import single_line

MAX_WIDTH = 100  # columns: longer lines are hard to read
BAR = 12
_OPENING = "（「『《【“‘("
_CLOSING = "，。；：、？！」』》】）”’…)"
# A Chinese character or a word, with the punctuation that must stay on its line.
_UNBREAKABLE = re.compile(
    rf"[{_OPENING}]*(?:[\u2e80-\uffef]|[^\s\u2e80-\uffef{_OPENING}]+)[{_CLOSING}]*\s*|\s+"
)


def usable_width(columns: int) -> int:
    """Return how many of the terminal's columns to use."""
    return max(min(columns, MAX_WIDTH), 40)


def wrap(text: Text, width: int) -> list[Text]:
    """Wrap text into lines; unlike rich, also break between Chinese characters."""
    return [line for part in text.split("\n", allow_blank=True) for line in _wrap_line(part, width)]


def _wrap_line(text: Text, width: int) -> list[Text]:
    breaks: list[int] = []
    used = 0
    for word in _UNBREAKABLE.finditer(text.plain):
        for start, cells in _pieces(word, width):
            if used and used + cells > width:
                breaks.append(start)
                used = 0
            used += cells
    lines = list(text.divide(breaks))
    for line in lines:
        line.rstrip()
    return lines


def _pieces(word: re.Match[str], width: int) -> Iterable[tuple[int, int]]:
    """Return start and width of a word, or of its characters if no line can hold it."""
    if cell_len(word.group().rstrip()) <= width:
        return [(word.start(), cell_len(word.group()))]
    return [(at, cell_len(char)) for at, char in enumerate(word.group(), word.start())]


def indent(lines: Iterable[Text], by: int, first: Text | None = None) -> list[Text]:
    """Indent lines; `first` goes into the margin of the first one."""
    blank = Text(" " * by)
    head = Text.assemble(first, " " * (by - first.cell_len)) if first else blank
    # Text.assemble, not "+": a sum would take the style of its first part for all of it.
    return [Text.assemble(blank if at else head, line) for at, line in enumerate(lines)]


def cut_line(text: Text, width: int) -> Text:
    """Truncate text to one line, with an ellipsis."""
    shorter = text.copy()
    shorter.truncate(max(width, 1), overflow="ellipsis")
    return shorter


def flatten(text: str) -> str:
    """Return text on one line, without control characters."""
    return single_line(sanitize(text))


def score_style(score: float) -> str:
    """Return the colour of a score: green, yellow or red."""
    if score >= 0.6:
        return "green"
    return "yellow" if score >= 0.3 else "red"


def draw_bar(share: float, style: str, cells: int = BAR) -> Text:
    """Draw a share between 0 and 1 as a bar."""
    filled = round(min(max(share, 0.0), 1.0) * cells)
    return Text.assemble(("━" * filled, style), ("─" * (cells - filled), "dim"))


def sanitize(text: str) -> str:
    """Replace control characters, which could move the cursor."""
    safe = "\n\t\u200c\u200d"  # the last two join letters and emoji
    return "".join(char if char.isprintable() or char in safe else "�" for char in text)
