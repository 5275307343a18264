"""What the store needs of one kind of database; `dialects` has the kinds."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from sqlalchemy import Engine, Table, exists, literal, select
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.sql import ColumnElement

from memrecall.errors import (
    InvalidArgument,
    MemrecallError,
    StorageBusy,
    StorageError,
    StorageUnreachable,
)

Durability = Literal["full", "normal"]
Comparison = Callable[[Any, Any], ColumnElement[bool]]

WAIT_HINT = "Another process is writing; try again"
SPACE_HINT = "Free some space and write again"
ID_HINT = "Check the ids: 1 to 64 printable characters"
INVALID_TEXT = "22021"  # SQLSTATE: a character that the encoding does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How connections are opened; times are in seconds."""

    durability: Durability = "full"
    lock_timeout: float = 10.0  # of a write that waits for another
    statement_timeout: float | None = 20.0  # beside the waiting for locks; None: no limit
    read_only: bool = False


class ErrorCode(NamedTuple):
    """What an error code of the driver means."""

    prefix: str
    error: type[StorageError]
    hint: str
    is_transient: bool = False  # the same work may succeed a moment later


# Citus reports by the code of an internal error that a node was lost during a commit.
_CLUSTER_CODES: tuple[ErrorCode, ...] = (
    ErrorCode("XX000", StorageUnreachable, "A node of the cluster failed; try again", True),
)
# What the coordinator says of a worker that is down or does not answer. A connection that was open
# when the worker restarted is reported in other words, and the next attempt opens another.
_LOST_NODE = re.compile(
    r"connection to the remote node \S+@(\S+) failed with the following error: .*"
    r"(?:refused|No route to host|[Nn]etwork is unreachable|time(?:out expired|d out)"
    r"|could not translate host name)"
    r"|could not establish any connections to the node (\S+) after"
)
# Raised by a process that opened the database before it was distributed. StorageBusy makes grouped
# writes retry one by one.
_STALE_CODES: tuple[ErrorCode, ...] = (
    ErrorCode("0A000", StorageBusy, "The database was distributed meanwhile; restart this process"),
)


def type_error(error: UnicodeEncodeError | PoolTimeout | OSError, location: str) -> MemrecallError:
    """Return the typed error of a database for one that its driver did not raise."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidArgument("a value contains half of a surrogate pair", hint=ID_HINT)
    if isinstance(error, PoolTimeout):
        return StorageBusy(f"no free connection to {location}", hint="Try again")
    is_silent = isinstance(error, TimeoutError)
    reason = "no answer in time" if is_silent else error.strerror or str(error)
    return StorageUnreachable(
        f"cannot reach {location}: {reason}",
        hint="Check that the server runs and the URL is right",
    ).mark_transient(not is_silent)


class DatabaseDialect(ABC):
    """What the store needs of one kind of database."""

    name: ClassVar[str]  # as SQLAlchemy calls it; also the suffix of its migration scripts
    driver: ClassVar[str]
    schemes: ClassVar[frozenset[str]]
    error_codes: ClassVar[tuple[ErrorCode, ...]]
    position_function: ClassVar[str]  # of a text in another, 0 if it is not there
    snapshot_options: ClassVar[Mapping[str, Any]]
    autocommit_options: ClassVar[Mapping[str, Any]] = {}
    write_options: ClassVar[Mapping[str, Any]] = {}
    checkpoint_command: ClassVar[str] = ""  # of databases in a file
    truncate_log_command: ClassVar[str | None] = None
    read_only_probe: ClassVar[Any] = None  # selects in_recovery and is_read_only
    locks_rows: ClassVar[bool] = False  # instead of the whole database
    byte_collation: ClassVar[str | None] = None  # None: text is in the order of its bytes anyway

    @abstractmethod
    def create_engine(
        self, url: URL, options: ConnectionOptions, *, writes: bool = False
    ) -> AsyncEngine:
        """Return the connection pool of reads, or that of writes."""

    def create_direct_engine(self, url: URL, options: ConnectionOptions) -> Engine | None:
        """Return a pool for short work in threads, where that is faster than async."""
        del url, options
        return None

    def get_file(self, url: URL) -> Path | None:
        """Return the file that holds the database, if it is one file."""
        del url
        return None

    def prepare_file(self, url: URL, *, create: bool) -> None:
        """Create the database file if it is missing."""
        del url, create

    @abstractmethod
    def get_error_code(self, error: BaseException) -> str:
        """Return the code that the driver gave an error, or an empty text."""

    def classify(
        self, error: Exception, location: str, *, is_distributed: bool = False
    ) -> MemrecallError | None:
        """Return the typed error of a database for one of its driver, by its code; else None."""
        cause = getattr(error, "orig", None) or error
        message = next(iter(str(cause).splitlines()), type(cause).__name__)
        code = self.get_error_code(cause)
        if code == INVALID_TEXT:
            return InvalidArgument(
                "a value contains characters that no database can store", hint=ID_HINT
            )
        codes: tuple[ErrorCode, ...] = self.error_codes
        for known in codes + (_CLUSTER_CODES if is_distributed else _STALE_CODES):
            if code.startswith(known.prefix):
                typed = known.error(f"{location}: {message}", hint=known.hint)
                if isinstance(typed, StorageUnreachable) and (lost := _LOST_NODE.search(message)):
                    typed.lost_node = lost[1] or lost[2]
                return typed.mark_transient(known.is_transient)
        if getattr(error, "connection_invalidated", False):
            hint = "The server closed the connection"
            return StorageUnreachable(f"{location}: {message}", hint=hint).mark_transient()
        if isinstance(error, DBAPIError) and not isinstance(
            error, OperationalError | InterfaceError
        ):
            return None
        return StorageError(f"{location}: {message}")

    @abstractmethod
    def insert(self, target: Table) -> Any:
        """Return an INSERT that knows `on_conflict_do_update` and `on_conflict_do_nothing`."""

    def get_driver_errors(self) -> tuple[type[Exception], ...]:
        """Return the errors of the driver that reach the store without SQLAlchemy's around them."""
        return ()

    def sort_by_bytes(self, text: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return a text column that compares in the order of its bytes, as in Python."""
        return text if self.byte_collation is None else text.collate(self.byte_collation)

    def avoid_index(self, key: ColumnElement[Any]) -> Any:
        """Return a sort key that keeps the planner from choosing the index on `key`."""
        return key

    @abstractmethod
    def _read_json(self, document: ColumnElement[Any]) -> tuple[Any, ColumnElement[str]]:
        """Return the entries of an object as a table, and the type of their values."""

    def has_json_key(
        self, document: ColumnElement[Any], key: str, *, with_null: bool = False
    ) -> ColumnElement[bool]:
        """Return the condition that an object has a key, optionally with the value null."""
        entries, json_type = self._read_json(document)
        rows = select(literal(1)).select_from(entries).where(entries.c.key == key)
        return exists(rows.where(json_type == "null") if with_null else rows)

    @abstractmethod
    def compare_json(
        self, document: ColumnElement[Any], key: str, compare: Comparison, value: Any
    ) -> ColumnElement[bool]:
        """Return the condition that a key holds or lists a value of this type that compares so."""
