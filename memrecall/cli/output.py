"""Terminal and JSON output shared by all commands."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any

import typer

from memrecall.text.terminal import sanitize

_PREVIEW_LENGTH = 1_000


@cache
def console(*, errors: bool = False) -> Any:
    """Return the console of a stream; colours only on a terminal."""
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with code 1, but `| head` is not an error

    return Terminal(stderr=errors, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON on one line."""
    typer.echo(to_json_line(value))


def to_json_line(value: Any) -> str:
    """Return a value as JSON on one line, times as RFC 3339, dataclasses as objects."""
    return json.dumps(value, ensure_ascii=False, default=_encode)


def _encode(value: Any) -> Any:
    from memrecall.types import format_time

    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return format_time(value) if isinstance(value, datetime) else str(value)


def preview(text: str) -> str:
    """Return the beginning of a long text, escaped; --json prints it in full."""
    from memrecall.text.snippets import truncate_at_word

    return escape(truncate_at_word(text, _PREVIEW_LENGTH))


def minute_of(time: datetime | str) -> str:
    """Format a time to the minute, in UTC; a text stays in its own zone."""
    from memrecall import types

    return types.cut_to_minute(time) if isinstance(time, str) else types.format_minute(time)


def count_noun(number: int, noun: str) -> str:
    """Format a number with its noun in singular or plural."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def list_counts(counts: Mapping[str, int], title: str = "") -> str:
    """Return counts by name on one line, "" if there are none."""
    return title * bool(counts) + ", ".join(f"{name} {n:,}" for name, n in counts.items())


def escape(text: str) -> str:
    """Escape markup and replace control characters."""
    from rich.markup import escape as escape_markup

    return escape_markup(sanitize(text))


def show_progress(title: str, total: int, *, unit: str) -> AbstractContextManager[Any]:
    """Show a progress bar on stderr, if that is a terminal."""
    from memrecall.progress import terminal_bar

    return terminal_bar(console(errors=True), title, total, unit=unit)


def spinner(title: str) -> AbstractContextManager[Any]:
    """Show a spinner on stderr, if that is a terminal."""
    terminal = console(errors=True)
    return terminal.status(title) if terminal.is_terminal else nullcontext()
