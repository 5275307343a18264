"""One ladder from what a database driver raises to memrecall's typed errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from memrecall.errors import (
    InvalidArgument,
    MemrecallError,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
)

# What the drivers say, in lower case, and what it means. The first that fits is taken.
_SIGNS: tuple[tuple[str, type[StorageError], str], ...] = (
    ("database or disk is full", StorageFull, "Free some space and write again"),
    ("no space left", StorageFull, "Free some space and write again"),
    ("database is locked", StorageBusy, "Another process is writing; try again"),
    ("lock timeout", StorageBusy, "Another process is writing; try again"),
    ("lock not available", StorageBusy, "Another process is writing; try again"),
    ("violates foreign key", StorageBusy, "What it refers to was erased meanwhile; try again"),
    ("deadlock detected", StorageBusy, "Another process is writing; try again"),
    ("readonly database", StorageReadOnly, "Choose a folder that can be written, with --db"),
    ("read-only transaction", StorageReadOnly, "Connect to a server that takes writes"),
    ("unable to open database", StorageUnreachable, "Check the path and the folder's permissions"),
    ("disk i/o error", StorageError, "Check the disk"),
    ("not a database", StorageUnreachable, "The file is not a SQLite database"),
    ("malformed", StorageError, "The file is damaged; restore a backup"),
    ("connection is closed", StorageUnreachable, "The server closed the connection"),
    ("connection was closed", StorageUnreachable, "The server closed the connection"),
    ("already exists", StorageError, "The database holds something else; choose an empty one"),
    ("does not exist", StorageUnreachable, "Check the name in the database URL"),
    ("authentication failed", StorageUnreachable, "Check user and password in the URL"),
)


_CLEAN = "Check the ids: 1 to 64 printable characters"


@contextmanager
def typed_faults(place: str) -> Iterator[None]:
    """Raise driver errors as typed ones that name `place` (a database without its password)."""
    try:
        yield
    except DBAPIError as error:
        typed = _typed(error, place)
        if typed is None:  # a broken constraint or a wrong statement: a bug, not the world's fault
            raise
        raise typed from error
    except UnicodeEncodeError as error:
        raise InvalidArgument("a value contains half of a surrogate pair", hint=_CLEAN) from error
    except PoolTimeout as error:
        raise StorageBusy(f"no free connection to {place}", hint="Try again") from error
    except OSError as error:
        raise StorageUnreachable(
            f"cannot reach {place}: {error.strerror or error}",
            hint="Check that the server runs and the URL is right",
        ) from error


def _typed(error: DBAPIError, place: str) -> MemrecallError | None:
    said = str(error.orig)
    lower = said.lower()
    if "invalid byte sequence" in lower or "codec can't encode" in lower:
        return InvalidArgument("a value contains characters that no database keeps", hint=_CLEAN)
    for sign, kind, hint in _SIGNS:
        if sign in lower:
            return kind(f"{place}: {said.splitlines()[0]}", hint=hint)
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    return StorageError(f"{place}: {said.splitlines()[0] if said else type(error.orig).__name__}")
