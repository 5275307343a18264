"""Progress of long work: a bar in a terminal, or a callback."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int], None]
Progress = Advance | bool  # True: show it in a terminal


@contextmanager
def progress_bar(progress: Progress, title: str, total: int, *, unit: str) -> Iterator[Advance]:
    """Yield a function to be called with the number of units completed."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda step: None
    else:
        from rich.console import Console

        with terminal_bar(Console(stderr=True), title, total, unit=unit) as advance:
            yield advance


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
