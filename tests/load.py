"""Run a command while other processes keep the processors busy.

    python -m tests.load 6 pytest tests/server

What passes beside such a load does not depend on how fast the machine is.
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
    hogs = [context.Process(target=_spin, args=(theirs,), daemon=True) for _, theirs in pipes]
    for hog in hogs:
        hog.start()
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        for (ours, _), hog in zip(pipes, hogs, strict=True):
            ours.close()
            hog.terminate()
            hog.join()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
