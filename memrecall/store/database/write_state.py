"""Whether a database accepts writes, and the space that erasures have when the disk is full.

Erasing needs space before it frees any: SQLite first writes the changed pages to its log.
"""

import os
import shutil
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from memrecall.errors import StorageError, StorageFull, StorageReadOnly
from memrecall.store.database.dialect import SPACE_HINT

_LOW_SPACE = 1024 * 1024  # bytes; with less, small writes may succeed where others fail
WriteProblem = Literal[
    "disk full",
    "disk error",
    "log lost",
    "read-only file",
    "read-only server",
    "read-only setting",
]
_DISK_FULL: Final = "disk full"
_READ_ONLY_FILE: Final = "read-only file"
_RESERVE_BYTES = 4 * 1024 * 1024


class WriteState:
    """Why the last write failed, until one succeeds or its cause is seen to be gone."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._reason: WriteProblem | None = None
        self._is_cause_seen = False

    def record_success(self) -> None:
        """Forget the last failure, unless the disk is still as good as full."""
        if self._file is None or self._reason != _DISK_FULL or not _is_full(self._file):
            self._reason = None

    def record_failure(self, error: StorageError) -> None:
        """Remember why a write failed, unless the next one may succeed all the same."""
        reason = self._reason
        if isinstance(error, StorageFull):
            reason = _DISK_FULL
        elif isinstance(error, StorageReadOnly):
            reason = "read-only server" if self._file is None else _READ_ONLY_FILE
        elif type(error) is StorageError:
            reason = "disk error"
        if reason != self._reason:
            self._reason, self._is_cause_seen = reason, False

    def problem(self) -> WriteProblem | None:
        """Return why writes fail, or None. Nothing is written to find out."""
        if self._file is None:
            return self._reason
        if self._reason is None:
            return _DISK_FULL if _is_full(self._file) else None
        if _has_cause(self._reason, self._file):
            self._is_cause_seen = True
        elif self._is_cause_seen:
            self._reason = None
        return self._reason


def _has_cause(reason: WriteProblem, file: Path) -> bool:
    """Return True if the file system shows why writes fail."""
    if reason == _DISK_FULL:
        return _is_full(file)
    return reason == _READ_ONLY_FILE and not os.access(file, os.W_OK)


def _is_full(file: Path) -> bool:
    try:
        return shutil.disk_usage(file.parent).free < _LOW_SPACE
    except OSError:
        return False


@dataclass(slots=True)
class Erasure:
    """The transactions that erase something together."""

    has_committed: bool = False
    uses_reserve: bool = False


class SpaceReserve:
    """A file beside a SQLite database, which is deleted when an erasure finds a full disk."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._path = file.with_name(file.name + "-reserve")
        self._erasures = 0  # that use the space
        self.is_kept = False

    def make(self) -> bool:
        """Make the file unless it exists; return False if there is no space for it."""
        try:
            with self._path.open("xb") as file:
                file.write(os.urandom(_RESERVE_BYTES))  # Some file systems store no zeros.
        except FileExistsError:  # another process has made it
            return True
        except OSError:
            self.release()
            return False
        return True

    def release(self) -> None:
        """Give the space back to the disk."""
        self._path.unlink(missing_ok=True)

    def give_to(self, erasure: Erasure) -> None:
        """Release the space; until the erasure ends, vectors that follow must not fill it."""
        self._erasures += not erasure.uses_reserve
        erasure.uses_reserve = True
        self.release()

    def take_from(self, erasure: Erasure) -> bool:
        """Make the file again after an erasure; return False if there is no space for it."""
        self._erasures -= erasure.uses_reserve
        return not self.is_kept or self.make()

    def require_unused(self) -> None:
        """Raise StorageFull while an erasure uses the space."""
        if self._erasures:
            message = f"{self._file}: what is left of the disk is for an erasure"
            raise StorageFull(message, hint=SPACE_HINT)


ERASURE: ContextVar[Erasure | None] = ContextVar("memrecall_erasure", default=None)
