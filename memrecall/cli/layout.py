"""Lines that fit a terminal: folded between Chinese characters, cut, indented."""

import re
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from memrecall.cli.output import printable

WIDEST = 100  # columns: longer lines are hard to read
BAR = 12
_OPENING = "（「『《【“‘("
_CLOSING = "，。；：、？！」』》】）”’…)"
# A Chinese character or a word, with the punctuation that may not be parted from it.
_UNBROKEN = re.compile(
    rf"[{_OPENING}]*(?:[\u2e80-\uffef]|[^\s\u2e80-\uffef{_OPENING}]+)[{_CLOSING}]*\s*|\s+"
)


def usable_width(columns: int) -> int:
    """How many columns to use of so many."""
    return max(min(columns, WIDEST), 40)


def fold(text: Text, width: int) -> list[Text]:
    """The text in lines; unlike rich alone, it also breaks them between Chinese characters."""
    return [line for part in text.split("\n", allow_blank=True) for line in _fold(part, width)]


def _fold(text: Text, width: int) -> list[Text]:
    breaks: list[int] = []
    used = 0
    for word in _UNBROKEN.finditer(text.plain):
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
    """Where a word starts and how wide it is; one that no line can hold, piece by piece."""
    if cell_len(word.group().rstrip()) <= width:
        return [(word.start(), cell_len(word.group()))]
    return [(at, cell_len(char)) for at, char in enumerate(word.group(), word.start())]


def indent(lines: Iterable[Text], by: int, first: Text | None = None) -> list[Text]:
    """The lines moved to the right; `first` stands in the margin of the first one."""
    blank = Text(" " * by)
    head = Text.assemble(first, " " * (by - first.cell_len)) if first else blank
    # Assembled, not added: a sum would take the style of its first part for all of it.
    return [Text.assemble(blank if at else head, line) for at, line in enumerate(lines)]


def cut(text: Text, width: int) -> Text:
    """The text on one line; what is too long ends in an ellipsis."""
    shorter = text.copy()
    shorter.truncate(max(width, 1), overflow="ellipsis")
    return shorter


def flat(text: str) -> str:
    """A text that cannot leave its line, nor move the cursor."""
    return " ".join(printable(text).split())


def padded(text: str, cells: int) -> str:
    """A text of exactly so many columns."""
    return set_cell_size(text, cells)


def bar(share: float, style: str, cells: int = BAR) -> Text:
    """A share of 1 as a small bar."""
    filled = round(min(max(share, 0.0), 1.0) * cells)
    return Text.assemble(("━" * filled, style), ("─" * (cells - filled), "dim"))
