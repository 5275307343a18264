"""What a person types at a terminal, line by line, and what must not get in between."""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

import typer

_WAKING_SECONDS = 0.5


def is_typed() -> bool:
    """Whether a person sits at the other end of the input."""
    return sys.stdin.isatty()


def input_lines(prompt: str, earlier: Sequence[str] = ()) -> Iterator[str]:
    """Each line that says something, until the input ends.

    On a terminal lines can be edited, and the arrow up brings back those before, beginning with the
    `earlier` ones. They are kept for this run alone: what was said lies in the database, where it
    can be erased.
    """
    if is_typed():
        _load_editor(earlier)
    while True:
        try:
            line = _ask(prompt) if is_typed() else input()
        except EOFError:
            if is_typed():
                typer.echo()
            return
        if line.strip():
            yield line


def _ask(prompt: str) -> str:
    """Read a line that is typed; Ctrl-C ends it at any moment.

    A signal that arrives after the prompt is shown and before the editor waits for a key is not
    seen before the next key. Another signal wakes the editor up, now and then, to look.
    """
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        return input(prompt)
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _WAKING_SECONDS, _WAKING_SECONDS)
    try:
        return input(prompt)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _load_editor(earlier: Sequence[str]) -> None:
    """Let `input` edit lines, in any script, where the system has a library for it."""
    with contextlib.suppress(ImportError):  # Windows has an editor of its own
        import readline

        readline.clear_history()
        for line in earlier:
            if line.strip() and "\n" not in line:
                readline.add_history(line)


def show_logs(wanted: bool) -> None:
    """Show the log on the error stream if that is wished, and never in the midst of a talk."""
    logger = logging.getLogger("memrecall")
    if wanted:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
    elif sys.stderr.isatty():
        logger.addHandler(logging.NullHandler())  # else Python itself writes warnings there
