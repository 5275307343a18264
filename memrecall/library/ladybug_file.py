"""A graph file of Ladybug: its schema, and transactions on it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from memrecall.errors import StorageBusy, StorageError, requires_extra

Result = TypeVar("Result")

_DIVIDER = "\x1f"  # in no id and no name: both are printable
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BUFFER = 32 * 1024 * 1024
_LARGEST = 16 * 1024 * 1024 * 1024  # reserved address space, not memory
_SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Agent(id STRING PRIMARY KEY)",
    "CREATE NODE TABLE IF NOT EXISTS Entity(id STRING PRIMARY KEY, agent STRING, name STRING,"
    " type STRING, created INT64)",
    "CREATE NODE TABLE IF NOT EXISTS Alias(id STRING PRIMARY KEY, agent STRING, alias STRING,"
    " name STRING, session STRING)",
    "CREATE REL TABLE IF NOT EXISTS Named(FROM Alias TO Entity)",
    "CREATE REL TABLE IF NOT EXISTS Relates(FROM Entity TO Entity, id STRING, agent STRING,"
    " session STRING, kind STRING, since INT64, until INT64, sources STRING[], created INT64)",
    "ALTER TABLE Alias ADD IF NOT EXISTS sources STRING[]",
    "ALTER TABLE Alias ADD IF NOT EXISTS hidden BOOLEAN",
    "ALTER TABLE Relates ADD IF NOT EXISTS source_alias STRING",
    "ALTER TABLE Relates ADD IF NOT EXISTS destination_alias STRING",
)


def _library() -> Any:
    with requires_extra("a graph in Ladybug", "ladybug", "ladybug"):
        import ladybug
    return ladybug


class GraphFile:
    """An open graph file, which runs one transaction at a time."""

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
        """Run a query."""
        with self._lock, _typed_faults(self.path):
            return work(self)

    def write(self, work: Callable[["GraphFile"], Result]) -> Result:
        """Run changes in a transaction."""
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

    def ask(self, query: str, **parameters: Any) -> list[Sequence[Any]]:
        """Return the rows of one query."""
        result = self._connection.execute(query, parameters)
        rows: list[Sequence[Any]] = result.get_all()
        result.close()
        return rows

    def close(self) -> None:
        """Write everything and close the file."""
        with self._lock:
            self._connection.close()
            self._database.close()


def remove(path: Path) -> None:
    """Delete a file and its log."""
    for part in (path, *path.parent.glob(f"{path.name}.*")):
        part.unlink(missing_ok=True)


@contextmanager
def _typed_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # The library raises no other type, and no codes.
        if "lock" in str(error).lower():
            raise StorageBusy(
                f"the graph {path} is used by another process",
                hint="Only one process can open it at a time",
            ) from error
        raise StorageError(f"the graph {path} failed: {error}") from error


def alias_key(agent: str, alias: str) -> str:
    """Return the key of an alias, which is unique per agent."""
    return f"{agent}{_DIVIDER}{alias}"


def micros(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(micros: int | None) -> datetime | None:
    """Return the time of microseconds since 1970."""
    return None if micros is None else _EPOCH + micros * _MICROSECOND
