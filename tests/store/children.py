"""Processes that work on the same database as the test.

They are forked from a server process that has imported memrecall once, which saves seconds of
imports for each.
"""

import multiprocessing
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from . import process

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([process.__name__, "memrecall.memory"])


class Child:
    """One process, which is killed when the `with` block ends."""

    def __init__(self, task: process.Task, *arguments: object) -> None:
        self._pipe, child_pipe = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=process.run, args=(child_pipe, task, arguments))
        self._process.start()
        child_pipe.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._pipe.close()
        self._process.close()

    def start(self) -> None:
        """Start the process."""
        self._pipe.send("start")

    def receive(self) -> object:
        """Return the next report of the process; EOFError when it has ended."""
        assert self._pipe.poll(process.TIMEOUT), "the process reports nothing"
        report: object = self._pipe.recv()
        return report

    def receive_new(self) -> object:
        """Return the next report that is sent after this call."""
        while self._pipe.poll():
            self._pipe.recv()
        return self.receive()

    def receive_all(self) -> list[object]:
        """Return all reports until the process ends."""
        reports: list[object] = []
        while True:
            try:
                reports.append(self.receive())
            except (EOFError, OSError):  # OSError: it was killed while it sent a report
                self._process.join(process.TIMEOUT)
                return reports

    def kill(self) -> None:
        """Send SIGKILL, which cannot be caught."""
        self._process.kill()
        self._process.join(process.TIMEOUT)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process; None while it runs."""
        return self._process.exitcode


def run_together(task: process.Task, lists: Sequence[Sequence[object]]) -> list[list[object]]:
    """Run one process for each list of arguments at once; return their reports."""
    with ExitStack() as stack:
        children = [stack.enter_context(Child(task, *arguments)) for arguments in lists]
        for child in children:
            child.start()
        reports = [child.receive_all() for child in children]
        assert [child.exit_code for child in children] == [0] * len(children)
        return reports
