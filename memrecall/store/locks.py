"""A lock between processes on a folder: many share it, or one has it alone.

It is the system's own (`flock`), so it goes with the process that held it, however that ended.
Nobody waits for it inside a thread: the threads of a process are few, and who holds the lock needs
one to go on.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from memrecall.errors import StorageBusy

Result = TypeVar("Result")

NAME = ".lock"
_PAUSE = 0.02


class FolderBusy(StorageBusy):
    """Others have the folder in a way that keeps us out."""


@contextmanager
def folder_lock(folder: int, *, alone: bool) -> Iterator[None]:
    """Hold the lock of an opened folder; FolderBusy if it is not to be had now."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(NAME, flags, 0o600, dir_fd=folder)
    try:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderBusy("the workspaces are in use", hint="Try again") from None
        yield
    finally:
        os.close(file)  # and with it the lock


async def when_free(work: Callable[[], Result], patience: float) -> Result:
    """Do work in a thread that needs a folder's lock; FolderBusy after so many seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return await asyncio.to_thread(work)
        except FolderBusy:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_PAUSE)
