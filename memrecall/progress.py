"""How far long work has come: a bar in a notebook, a bar in a terminal, or a function that is told.

In a notebook the bar is a display of its own that is updated in place. That needs no widgets, works
wherever notebooks are shown, and leaves one line behind.
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
# True: shown in a notebook or a terminal. False: not. None: in a notebook, if it takes a while.
Progress = Advance | bool | None

_PATIENCE = 0.5  # seconds that work may take before anybody wants to know
_INTERVAL = 0.1  # seconds between two drawings
_BLUE = "#3987e5"


@contextmanager
def progress_bar(progress: Progress, title: str, total: int, *, unit: str) -> Iterator[Advance]:
    """Tell how far some work has come; what is yielded is to be called with what was done."""
    if callable(progress):
        yield progress
    elif progress is False:
        yield _ignore
    elif in_notebook():
        bar = NotebookBar(title, total, unit, patience=0.0 if progress else _PATIENCE)
        try:
            yield bar.advance
        finally:
            bar.close()
    elif progress:
        from rich.console import Console

        with terminal_bar(Console(stderr=True), title, total, unit=unit) as advance:
            yield advance
    else:
        yield _ignore


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


@contextmanager
def terminal_bar(console: "Console", title: str, total: int, *, unit: str) -> Iterator[Advance]:
    """A bar in a terminal; silent where there is none."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda step: bar.advance(task, step)


class NotebookBar:
    """A bar that a notebook shows and that is drawn anew as work goes on."""

    def __init__(self, title: str, total: int, unit: str, *, patience: float = 0.0) -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._done = 0
        self._started = time.monotonic()
        self._next = self._started + patience
        self._handle: Any = None
        if not patience:
            self._draw()

    def advance(self, step: int) -> None:
        """So much more was done."""
        self._done += step
        if time.monotonic() >= self._next:
            self._draw()

    def close(self) -> None:
        """Leave the last state behind, if anything was shown."""
        self._started = 0.0  # what took how long tells nothing any more
        if self._handle is not None:
            self._draw()

    def __repr__(self) -> str:
        of = f" of {self._amount(self._total)}" if self._total > self._done else ""
        return f"{self._title}: {self._amount(self._done)}{of}{self._remaining()}"

    def _repr_html_(self) -> str:
        share = min(self._done / self._total, 1.0) if self._total else 1.0
        told = repr(self).removeprefix(f"{self._title}: ")
        return str(
            tag("div", self._title, meter(share, _BLUE), tag("span", told, style=DIM), style=LINE)
        )

    def _amount(self, number: int) -> str:
        if self._unit == "bytes":
            from rich.filesize import decimal

            return decimal(number)
        return f"{number:,} {self._unit}"

    def _remaining(self) -> str:
        if not self._started or not 0 < self._done < self._total:
            return ""
        spent = time.monotonic() - self._started
        return f" · {spent / self._done * (self._total - self._done):.0f} s left"

    def _draw(self) -> None:
        from IPython import display as notebook

        display: Any = notebook.display  # has no types
        self._next = time.monotonic() + _INTERVAL
        if self._handle is None:
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)


def _ignore(step: int) -> None:
    del step
