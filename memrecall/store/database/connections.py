"""Connections as the store's work sees them: to a server, or to a SQLite file in a thread.

Work on a database is a coroutine over one of them. Through aiosqlite each statement would be five
trips to a thread, which cost more than the statement: on SQLite the whole work runs in one thread,
with SQLAlchemy's synchronous connection behind the methods of the asynchronous one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Dialect, Executable

from memrecall.store.database.prepared import fetch_rows

_Result = TypeVar("_Result")


class Reads(Protocol):
    """Reads rows: a database, or one connection to it."""

    async def fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        """Return all rows of one statement."""

    async def compute(self, function: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a function that takes long, computed in a thread."""


class ThreadConnection:
    """The part of an async connection that work uses, over a synchronous one."""

    def __init__(self, connection: Connection) -> None:
        # As an async connection does: all rows are read before the next statement begins.
        self._connection = connection.execution_options(prebuffer_rows=True)

    @property
    def dialect(self) -> Dialect:
        """SQLAlchemy's dialect of the database."""
        return self._connection.dialect

    async def fetch(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        """Return all rows of one statement."""
        return fetch_rows(self._connection, statement, parameters)

    async def compute(self, function: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a function: this is a thread already."""
        return function(*args)

    async def execute(self, statement: Executable, parameters: Any = None) -> Any:
        """Execute a statement."""
        return self._connection.execute(statement, parameters)

    async def exec_driver_sql(self, statement: str) -> None:
        """Execute a command in the SQL of the driver."""
        self._connection.exec_driver_sql(statement)

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """Return the first value of the first row."""
        return self._connection.scalar(statement, parameters)

    async def scalars(self, statement: Executable, parameters: Any = None) -> Any:
        """Return the first value of every row."""
        return (await self.execute(statement, parameters)).scalars()

    async def run_sync(self, work: Callable[..., _Result], *args: Any) -> _Result:
        """Call a function with the synchronous connection."""
        return work(self._connection, *args)


def run_in_place(work: Awaitable[_Result]) -> _Result:
    """Return the result of work that awaits nothing but a `ThreadConnection`."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as stop:
        result: _Result = stop.value
        return result
    steps.close()
    raise RuntimeError("work on a SQLite file awaited something other than its connection")
