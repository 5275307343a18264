"""How results look: one JSON object, or something a person likes to read."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from memrecall.text_length import single_line

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
    return single_line(printable(text))


def padded(text: str, cells: int) -> str:
    """A text of exactly so many columns."""
    return set_cell_size(text, cells)


def bar(share: float, style: str, cells: int = BAR) -> Text:
    """A share of 1 as a small bar."""
    filled = round(min(max(share, 0.0), 1.0) * cells)
    return Text.assemble(("━" * filled, style), ("─" * (cells - filled), "dim"))


_LONGEST_SHOWN = 1_000


@cache
def console(*, errors: bool = False) -> Any:
    """The terminal; colours only where there is one."""
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with code 1: whoever reads has seen enough

    return Terminal(stderr=errors, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON object on one line, in UTF-8."""
    typer.echo(as_json(value))


def as_json(value: Any) -> str:
    """The value as JSON on one line, times as RFC 3339."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    from memrecall.types import format_time

    return format_time(value) if isinstance(value, datetime) else str(value)


def message_fields(message: Any) -> dict[str, Any]:
    """A message with the fields of the query API, and what else is known of it."""
    return dict(message.model_dump())


def print_messages(items: Any) -> None:
    """Messages as a conversation; --json gives long ones whole."""
    from memrecall.text.snippets import preview

    for message in items:
        said = escape(preview(message.content, _LONGEST_SHOWN))
        who = message.speaker or message.role.value
        line = f"[dim]{short_time(message.ts)}[/dim] [bold]{escape(who)}[/bold]"
        console().print(f"{line}  {said}  [dim]{escape(message.message_id)}[/dim]")


def short_time(moment: datetime) -> str:
    """A time as people read it in a list."""
    return moment.strftime("%Y-%m-%d %H:%M")


def count(number: int, thing: str) -> str:
    """A number of things in words."""
    many = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else many}"


def escape(text: str) -> str:
    """Text that must not be read as markup, nor move the cursor."""
    from rich.markup import escape as escape_markup

    return escape_markup(printable(text))


def printable(text: str) -> str:
    """Text that cannot move the cursor."""
    safe = "\n\t\u200c\u200d"  # the last two join letters, and emoji into one
    return "".join(char if char.isprintable() or char in safe else "�" for char in text)


@contextmanager
def progress_bar(title: str, total: int, *, unit: str) -> Iterator[Any]:
    """A bar on the error stream; silent where that is not a terminal."""
    from memrecall.progress import terminal_bar

    with terminal_bar(console(errors=True), title, total, unit=unit) as advance:
        yield advance


@contextmanager
def busy(title: str) -> Iterator[None]:
    """A sign of life on the error stream; silent where that is not a terminal."""
    terminal = console(errors=True)
    if not terminal.is_terminal:
        yield
        return
    with terminal.status(title):
        yield
