"""Counts of calls and statements, which unlike times are equal on every machine."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Calls:
    """A counter of Python and C function calls."""

    def __init__(self) -> None:
        self.number = 0

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Take an event of `sys.setprofile`."""
        del frame, argument
        if event in ("call", "c_call"):
            self.number += 1


class Characters(Calls):
    """A counter of the characters in the local variables of functions that call C functions.

    For code that reads in pieces: the count grows faster than the text if text accumulates and is
    read again.
    """

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Take an event of `sys.setprofile`."""
        super().note(frame, event, argument)
        if event == "c_call":
            self.number += sum(
                len(value) for value in frame.f_locals.values() if type(value) is str
            )


@contextmanager
def counting_calls(counter: Calls) -> Iterator[None]:
    """Count all calls of this thread inside the block."""
    before: Any = sys.getprofile()
    gc.disable()  # a collection would run the finalizers of other tests' objects
    sys.setprofile(counter.note)
    try:
        yield
    finally:
        sys.setprofile(before)
        gc.enable()


def count_calls(function: Callable[[], object]) -> int:
    """Return the number of function calls while `function` runs."""
    calls = Calls()
    with counting_calls(calls):
        function()
    return calls.number


@contextmanager
def _listening(note: Callable[..., None]) -> Iterator[None]:
    from sqlalchemy import Engine, event

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@contextmanager
def recorded_statements() -> Iterator[list[str]]:
    """Yield a list of the SQL statements that are executed inside the block."""
    statements: list[str] = []
    with _listening(lambda _connection, _cursor, statement, *_: statements.append(statement)):
        yield statements


@contextmanager
def recorded_parameters() -> Iterator[list[tuple[str, Any]]]:
    """Yield a list of the statements that are executed, each with its first parameters."""
    statements: list[tuple[str, Any]] = []

    def note(_c: Any, _u: Any, statement: str, parameters: Any, _x: Any, executemany: bool) -> None:
        statements.append((statement, parameters[0] if executemany else parameters))

    with _listening(note):
        yield statements
