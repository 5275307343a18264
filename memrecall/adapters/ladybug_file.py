"""One user's graph in one file of Ladybug, the kept successor of Kuzu.

A file a user: nobody's questions cost more because of others, and to erase a user is to remove a
file. (What is deleted inside a file stays in its pages, so that would not do.)
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from memrecall.errors import InvalidArgument, StorageBusy, StorageError

Result = TypeVar("Result")

_BUFFER = 32 * 1024 * 1024
_LARGEST = 16 * 1024 * 1024 * 1024  # address space that is set aside, not memory
_SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Agent(id STRING PRIMARY KEY)",
    "CREATE NODE TABLE IF NOT EXISTS Entity(id STRING PRIMARY KEY, agent STRING, name STRING,"
    " type STRING, created INT64)",
    "CREATE NODE TABLE IF NOT EXISTS Alias(id STRING PRIMARY KEY, agent STRING, alias STRING,"
    " name STRING, session STRING)",
    "CREATE REL TABLE IF NOT EXISTS Named(FROM Alias TO Entity)",
    "CREATE REL TABLE IF NOT EXISTS Relates(FROM Entity TO Entity, id STRING, agent STRING,"
    " session STRING, kind STRING, since INT64, until INT64, sources STRING[], created INT64)",
)


def _library() -> Any:
    try:
        import ladybug
    except ImportError:
        raise InvalidArgument(
            "a graph in Ladybug needs a package that is not installed",
            hint="pip install 'memrecall[ladybug]'",
        ) from None
    return ladybug


class GraphFile:
    """An opened file. One piece of work at a time; each is whole or undone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        library = _library()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _typed_faults(path):
            self._database = library.Database(
                str(path), buffer_pool_size=_BUFFER, max_db_size=_LARGEST, max_num_threads=1
            )
            self._connection = library.Connection(self._database, num_threads=1)
            path.chmod(0o600)
            for statement in _SCHEMA:
                self._connection.execute(statement)

    def read(self, work: Callable[["GraphFile"], Result]) -> Result:
        """Ask something."""
        with self._lock, _typed_faults(self.path):
            return work(self)

    def write(self, work: Callable[["GraphFile"], Result]) -> Result:
        """Change something, all or nothing."""
        with self._lock, _typed_faults(self.path):
            self._connection.execute("BEGIN TRANSACTION")
            try:
                result = work(self)
            except BaseException:
                with suppress(RuntimeError):
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            return result

    def ask(self, query: str, **given: Any) -> list[Sequence[Any]]:
        """The rows of one query; values are parameters, never part of its text."""
        found = self._connection.execute(query, given)
        rows = []
        while found.has_next():
            rows.append(found.get_next())
        found.close()
        return rows

    def close(self) -> None:
        """Give the file back, everything in it written."""
        with self._lock:
            self._connection.close()
            self._database.close()


def remove(path: Path) -> None:
    """Remove a file with its log."""
    for part in (path, *path.parent.glob(f"{path.name}.*")):
        part.unlink(missing_ok=True)


@contextmanager
def _typed_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # the one kind that the library raises
        if "lock" in str(error).lower():
            raise StorageBusy(
                f"the graph {path} is used by another process", hint="One process at a time"
            ) from error
        raise StorageError(f"the graph {path} failed: {error}") from error
