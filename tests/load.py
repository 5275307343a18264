"""Run a command while other processes keep the processors busy.

    python -m tests.load 6 pytest tests/server

Tests that pass under such a load do not depend on the speed of the machine.
"""

import multiprocessing
import subprocess
import sys


def _spin(parent: "multiprocessing.connection.Connection[bytes, bytes]") -> None:
    while not parent.poll():  # also true when the parent is gone
        sum(range(20_000))


def main(arguments: list[str]) -> int:
    """Start the load, run the command, end the load; return the command's exit code."""
    count, command = int(arguments[0]), arguments[1:]
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(count)]
    workers = [
        context.Process(target=_spin, args=(child_end,), daemon=True) for _, child_end in pipes
    ]
    for worker in workers:
        worker.start()
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        for (parent_end, _), worker in zip(pipes, workers, strict=True):
            parent_end.close()
            worker.terminate()
            worker.join()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
