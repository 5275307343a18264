"""Statements as they were executed, and the plans that Citus makes for them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from memrecall.store import Store

Statement = tuple[str, Any]
_PLANNED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "(")
_TASKS = re.compile(r"Task Count: (\d+)")


@contextmanager
def recorded_parameters() -> Iterator[dict[str, Statement]]:
    """Yield the statements that are executed inside the block, each with its first parameters."""
    statements: dict[str, Statement] = {}

    def note(_c: Any, _u: Any, statement: str, parameters: Any, _x: Any, executemany: bool) -> None:
        if statement.lstrip().upper().startswith(_PLANNED):
            first = parameters[0] if executemany else parameters
            statements.setdefault(statement, (statement, first))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def find_multi_shard(store: Store, statements: dict[str, Statement]) -> dict[str, str]:
    """Return the plans of statements that touch more than one shard, by statement."""
    wrong: dict[str, str] = {}
    for statement, parameters in statements.values():
        async with store.database.autocommit() as connection:
            rows = await connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
            plan = "\n".join(row[0] for row in rows)
        tasks = [int(number) for number in _TASKS.findall(plan)]
        if any(number > 1 for number in tasks) or "Distributed Subplan" in plan:
            wrong[statement] = plan
    return wrong
