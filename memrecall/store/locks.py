"""A lock between processes on a folder: many share it, or one has it alone.

It is the system's own (`flock`), so it goes with the process that held it, however that ended.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from memrecall.errors import StorageBusy

NAME = ".lock"
_PAUSE = 0.02


@contextmanager
def folder_lock(folder: int, *, alone: bool, patience: float) -> Iterator[None]:
    """Hold the lock of an opened folder; StorageBusy if it is not to be had in so many seconds."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(NAME, flags, 0o600, dir_fd=folder)
    try:
        _acquire(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, patience)
        yield
    finally:
        os.close(file)  # and with it the lock


def _acquire(file: int, kind: int, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise StorageBusy(
                    "the workspaces are being backed up or restored", hint="Try again"
                ) from None
            time.sleep(_PAUSE)
        else:
            return
