"""A SQLite transaction carried out in one step of one thread.

Through an async driver every statement is several trips to the driver's thread and back. Those
cost more than the statements, and on a busy machine many times more. Here the whole transaction is
one trip: the same code, whose every `await` is answered at once.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Dialect, Executable

Result = TypeVar("Result")


class InlineConnection:
    """What transactions use of an async connection, over a plain one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def dialect(self) -> Dialect:
        """The database's dialect."""
        return self._connection.dialect

    async def execute(self, statement: Executable, given: Any = None) -> Any:
        """Carry out a statement; its rows are all read before the next one begins."""
        result = self._connection.execute(statement, given)
        return result.freeze()() if result.returns_rows else result

    async def scalar(self, statement: Executable, given: Any = None) -> Any:
        """The first value of the first row."""
        return self._connection.scalar(statement, given)

    async def scalars(self, statement: Executable, given: Any = None) -> Any:
        """The first value of every row."""
        return (await self.execute(statement, given)).scalars()

    async def exec_driver_sql(self, statement: str, given: Any = None) -> Any:
        """Carry out SQL of the driver's own."""
        result = self._connection.exec_driver_sql(statement, given)
        return result.freeze()() if result.returns_rows else result

    @asynccontextmanager
    async def begin_nested(self) -> AsyncIterator[None]:
        """A part of the transaction that can fail alone."""
        with self._connection.begin_nested():
            yield

    async def run_sync(self, work: Callable[..., Result], *args: Any) -> Result:
        """Hand the plain connection to a function."""
        return work(self._connection, *args)


def carry_out(work: Awaitable[Result]) -> Result:
    """The result of work that waits for nothing but an `InlineConnection`."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as done:
        result: Result = done.value
        return result
    steps.close()
    raise RuntimeError("a transaction waited for something else than its database")
