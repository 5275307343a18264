"""Processes that work on the same database as the test.

They are forked from a server process that has imported the store once: a process of its own for
each, without a second of imports for each.
"""

import multiprocessing
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from . import process

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([process.__name__])


class Child:
    """One process; it is gone when the `with` block ends."""

    def __init__(self, verb: process.Verb, *arguments: object) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=process.run, args=(theirs, verb, arguments))
        self._process.start()
        theirs.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._pipe.close()
        self._process.close()

    def go(self) -> None:
        """Let the process begin."""
        self._pipe.send("go")

    def hear(self) -> object:
        """What the process says next; EOFError when it is gone."""
        assert self._pipe.poll(process.PATIENCE), "the process says nothing"
        said: object = self._pipe.recv()
        return said

    def hear_next(self) -> object:
        """What the process says from now on; what it said before is skipped."""
        while self._pipe.poll():
            self._pipe.recv()
        return self.hear()

    def hear_out(self) -> list[object]:
        """All that the process says until its end."""
        heard: list[object] = []
        while True:
            try:
                heard.append(self.hear())
            except (EOFError, OSError):  # OSError: it was killed while it spoke
                self._process.join(process.PATIENCE)
                return heard

    def kill(self) -> None:
        """Send SIGKILL, which no process can catch."""
        self._process.kill()
        self._process.join(process.PATIENCE)

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        return self._process.exitcode


def run_together(verb: process.Verb, lists: Sequence[Sequence[object]]) -> list[list[object]]:
    """One process for each list of arguments, all at once; what each said. All must end well."""
    with ExitStack() as running:
        children = [running.enter_context(Child(verb, *arguments)) for arguments in lists]
        for child in children:
            child.go()
        heard = [child.hear_out() for child in children]
        assert [child.exit_code for child in children] == [0] * len(children)
        return heard
