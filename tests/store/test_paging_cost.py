"""The cost of a page does not depend on its position or on equal times."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Dialect, Executable

from memrecall.scope import Scope
from memrecall.store import MessageFilter, Store
from memrecall.store.database.dialects import SQLITE
from memrecall.store.database.engine import Database, _ServerReads
from memrecall.store.database.statements import ConnectionReads
from memrecall.store.timeline import Order
from memrecall.types import NewMessage, Role

from .samples import ANN, read_pages

START = datetime(2020, 1, 1, tzinfo=UTC)


def one_minute_apart(number: int) -> datetime:
    return START + timedelta(minutes=number)


def same_time(number: int) -> datetime:
    del number
    return START


async def fill(store: Store, count: int, time_of: Callable[[int], datetime]) -> None:
    for first in range(0, count, 5_000):
        numbers = range(first, min(first + 5_000, count))
        batch = [
            NewMessage(message_id=f"{n:07}", content="x", role=Role.USER, ts=time_of(n))
            for n in numbers
        ]
        await store.timeline(ANN).add(batch)


def literal(statement: Executable, dialect: Dialect) -> str:
    """Return a statement with literal values."""
    compiled = statement.compile(  # type: ignore[attr-defined]
        dialect=dialect, compile_kwargs={"literal_binds": True}
    )
    return str(compiled)


async def explain(database: Database, statement: Executable) -> str:
    """Return the engine's plan for a statement."""
    async with database.autocommit() as connection:
        text = literal(statement, connection.dialect)
        if database.dialect is not SQLITE:
            await connection.exec_driver_sql("ANALYZE messages")
        prefix = "EXPLAIN QUERY PLAN" if database.dialect is SQLITE else "EXPLAIN"
        rows = await connection.exec_driver_sql(f"{prefix} {text}")
        return "\n".join(str(row[-1]) for row in rows)


async def put_in_order(database: Database) -> None:
    """Lay the rows out by time: in holes that earlier tests left, each may have its own block."""
    if database.dialect is not SQLITE:
        async with database.autocommit() as connection:
            await connection.exec_driver_sql("CLUSTER messages USING ix_messages_ts")


async def count_work(database: Database, statement: Executable) -> int:
    """Return the work for a statement: SQLite's steps or PostgreSQL's blocks."""
    async with database.autocommit() as connection:
        text = literal(statement, connection.dialect)
        if database.dialect is not SQLITE:
            result = await connection.exec_driver_sql(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}"
            )
            plan = result.scalar_one()[0]["Plan"]
            return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    assert database.file is not None
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(sqlite3.connect(database.file)) as direct:
        direct.set_progress_handler(step, 1)
        assert direct.execute(text).fetchall()
    return steps


@pytest.mark.parametrize("order", ["desc", "asc"])
@pytest.mark.parametrize("time_of", [one_minute_apart, same_time])
async def test_pages_and_neighbors_use_the_index(
    store: Store, time_of: Callable[[int], datetime], order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, 3_000, time_of)
    await put_in_order(store.database)
    statements: list[Any] = []
    reads: Any = ConnectionReads if store.database.dialect is SQLITE else _ServerReads
    fetch = reads.fetch

    def note(self: Any, statement: Any, parameters: dict[str, Any]) -> Any:
        if "count" in parameters and (order == "desc" or "from_ts" in parameters):
            statements.append(statement.params(parameters))
        return fetch(self, statement, parameters)

    monkeypatch.setattr(reads, "fetch", note)
    timeline = store.timeline(ANN)
    page = await timeline.page(order=order)
    while page.next_cursor is not None:
        page = await timeline.page(order=order, cursor=page.next_cursor)
    pages = statements.copy()
    statements.clear()
    await timeline.neighbors("0001500", before=20, after=20)
    monkeypatch.undo()
    around = statements

    assert (len(pages), len(around)) == (3_000 // 50, 2)
    for statement in (*pages[:2], *around):
        plan = await explain(store.database, statement)
        assert "ix_messages_ts" in plan, plan
        assert not re.search(r"SCAN messages|Seq Scan on messages", plan), plan
    # The last page costs as much as the second, not as much as all before it.
    early_cost, late_cost = [await count_work(store.database, pages[at]) for at in (1, -2)]
    assert 0 < late_cost < 1.5 * early_cost, (early_cost, late_cost)


@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_session_page_uses_the_session_index(
    store: Store, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session, count in (("old", 20), ("new", 2_000)):
        batch = [
            NewMessage(
                message_id=f"{session}{n:05}", content="x", role=Role.USER, ts=one_minute_apart(n)
            )
            for n in range(count)
        ]
        await store.timeline(Scope("ann", session_id=session)).add(batch)
    statements: list[Any] = []
    reads: Any = ConnectionReads if store.database.dialect is SQLITE else _ServerReads
    fetch = reads.fetch

    def note(self: Any, statement: Any, parameters: dict[str, Any]) -> Any:
        statements.append(statement.params(parameters))
        return fetch(self, statement, parameters)

    monkeypatch.setattr(reads, "fetch", note)
    messages = await read_pages(
        store.timeline(Scope("ann")), MessageFilter(session_id="old"), order=order, page_size=15
    )
    in_order = range(20) if order == "asc" else reversed(range(20))
    assert [m.message_id for m in messages] == [f"old{n:05}" for n in in_order]
    assert len(statements) == (3 if order == "asc" else 2)  # the earliest time is looked up first
    for statement in statements:
        plan = await explain(store.database, statement)
        assert "ix_messages_session_ts" in plan, plan
        assert not re.search(r"SCAN messages|Seq Scan on messages", plan), plan
