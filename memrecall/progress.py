"""Progress of long work: a bar in a notebook or a terminal, or a callback.

In a notebook the bar is a display that is updated in place. It needs no widgets, works in every
notebook viewer and leaves one line behind.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memrecall.text.html import DIM, LINE, meter, tag

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int], None]
# True: show a bar in a notebook or terminal. False: none. None: in a notebook, for long work.
Progress = Advance | bool | None

_DELAY = 0.5  # seconds before a bar appears that was not requested
_INTERVAL = 0.1  # seconds between two updates
_BLUE = "#3987e5"


@contextmanager
def progress_bar(progress: Progress, title: str, total: int, *, unit: str) -> Iterator[Advance]:
    """Yield a function to be called with the number of units completed."""
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and not in_notebook()):
        yield lambda step: None
    elif in_notebook():
        bar = NotebookBar(title, total, unit, delay=0.0 if progress else _DELAY)
        try:
            yield bar.advance
        finally:
            bar.close()
    else:
        from rich.console import Console

        with terminal_bar(Console(stderr=True), title, total, unit=unit) as advance:
            yield advance


def in_notebook() -> bool:
    """Return True if this runs in the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


@contextmanager
def terminal_bar(console: "Console", title: str, total: int, *, unit: str) -> Iterator[Advance]:
    """Show a bar in a terminal; yield a function that advances it."""
    from rich import progress as rich
    from rich.text import Text

    class RateColumn(rich.ProgressColumn):
        def render(self, task: rich.Task) -> Text:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    with rich.Progress(
        rich.TextColumn(title),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn(unit),
        RateColumn(),
        rich.TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda step: bar.advance(task, step)


class NotebookBar:
    """A progress bar in a notebook, updated in place."""

    def __init__(self, title: str, total: int, unit: str, *, delay: float = 0.0) -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._completed = 0
        self._started = time.monotonic()
        self._next = self._started + delay
        self._handle: Any = None
        if not delay:
            self._draw()

    def advance(self, step: int) -> None:
        """Add completed units."""
        self._completed += step
        if time.monotonic() >= self._next:
            self._draw()

    def close(self) -> None:
        """Show the final state, if the bar was shown at all."""
        self._started = 0.0  # No remaining time is shown any more.
        if self._handle is not None:
            self._draw()

    def __repr__(self) -> str:
        of = f" of {self._amount(self._total)}" if self._total > self._completed else ""
        return f"{self._title}: {self._amount(self._completed)}{of}{self._remaining()}"

    def _repr_html_(self) -> str:
        share = min(self._completed / self._total, 1.0) if self._total else 1.0
        amount = repr(self).removeprefix(f"{self._title}: ")
        return str(
            tag("div", self._title, meter(share, _BLUE), tag("span", amount, style=DIM), style=LINE)
        )

    def _amount(self, number: int) -> str:
        if self._unit == "bytes":
            from rich.filesize import decimal

            return decimal(number)
        return f"{number:,} {self._unit}"

    def _remaining(self) -> str:
        if not self._started or not 0 < self._completed < self._total:
            return ""
        elapsed = time.monotonic() - self._started
        return f" · {elapsed / self._completed * (self._total - self._completed):.0f} s left"

    def _draw(self) -> None:
        from IPython import display as notebook

        display: Any = notebook.display  # has no types
        self._next = time.monotonic() + _INTERVAL
        if self._handle is None:
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)
