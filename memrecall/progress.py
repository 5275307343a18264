"""Progress of long work: a line in a notebook, a bar in a terminal, or a callback.

The line in a notebook needs no widgets and works in every notebook viewer.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int], None]
# True: show it in a notebook or terminal. False: do not. None: in a notebook, for long work.
Progress = Advance | bool | None

_DELAY = 0.5  # seconds before a line appears that was not requested
_INTERVAL = 0.1  # seconds between two updates


@contextmanager
def progress_bar(progress: Progress, title: str, total: int, *, unit: str) -> Iterator[Advance]:
    """Yield a function to be called with the number of units completed."""
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and not in_notebook()):
        yield lambda step: None
    elif in_notebook():
        with _notebook_line(title, total, unit, 0.0 if progress else _DELAY) as advance:
            yield advance
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


@contextmanager
def _notebook_line(title: str, total: int, unit: str, delay: float) -> Iterator[Advance]:
    """Show a line in a notebook, updated in place; yield a function that advances it."""
    from IPython import display as notebook

    display: Any = notebook.display  # has no types
    handle: Any = None
    completed = 0
    next_time = time.monotonic() + delay

    def show() -> None:
        nonlocal handle
        of = f" of {total:,}" if total > completed else ""
        line = {"text/plain": f"{title}: {completed:,}{of} {unit}"}
        if handle is None:
            handle = display(line, raw=True, display_id=True)
        else:
            handle.update(line, raw=True)

    def advance(step: int) -> None:
        nonlocal completed, next_time
        completed += step
        if time.monotonic() >= next_time:
            next_time = time.monotonic() + _INTERVAL
            show()

    yield advance
    if handle is not None or not delay:
        show()
