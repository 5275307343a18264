"""Reading page by page costs the same at the end as at the start, and a tie costs nothing more."""

import re
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Executable

from memrecall.scope import Scope
from memrecall.store import MessageFilter, Store
from memrecall.store.engine import Database
from memrecall.types import NewMessage, Role

from .samples import ANN

START = datetime(2020, 1, 1, tzinfo=UTC)


def spread(number: int) -> datetime:
    return START + timedelta(minutes=number)


def level(number: int) -> datetime:
    del number
    return START


async def fill(store: Store, count: int, when: Callable[[int], datetime]) -> None:
    for first in range(0, count, 5_000):
        numbers = range(first, min(first + 5_000, count))
        batch = [
            NewMessage(message_id=f"{n:07}", content="x", role=Role.USER, ts=when(n))
            for n in numbers
        ]
        await store.timeline(ANN).add(batch)


async def explain(database: Database, statement: Executable) -> str:
    """How the engine would answer a statement."""
    async with database.peek() as connection:
        text = str(
            statement.compile(  # type: ignore[attr-defined]
                dialect=connection.dialect, compile_kwargs={"literal_binds": True}
            )
        )
        if not database.is_sqlite:
            await connection.exec_driver_sql("ANALYZE messages")
        prefix = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
        rows = await connection.exec_driver_sql(f"{prefix} {text}")
        return "\n".join(str(row[-1]) for row in rows)


@pytest.mark.parametrize("when", [spread, level])
async def test_pages_and_neighbours_are_read_from_the_index(
    store: Store, when: Callable[[int], datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, 3_000, when)
    asked: list[Any] = []
    fetch = Database.fetch

    async def note(self: Database, statement: Executable, given: Any = None) -> Any:
        asked.append((statement, given))
        return await fetch(self, statement, given)

    monkeypatch.setattr(Database, "fetch", note)
    first = await store.timeline(ANN).page()
    await store.timeline(ANN).page(cursor=first.next_cursor)
    await store.timeline(ANN).neighbors("0001500", before=20, after=20)
    monkeypatch.undo()

    plain = [statement for statement, given in asked if given is None]
    assert len(plain) == 4
    for statement in plain:
        told = await explain(store.database, statement)
        assert "ix_messages_ts" in told, told
        assert not re.search(r"SCAN messages|Seq Scan on messages", told), told


async def seconds_of_pages(store: Store, wanted: MessageFilter) -> list[float]:
    """How long each page of a whole reading takes."""
    timeline = store.timeline(Scope("ann"))
    spent: list[float] = []
    cursor = None
    while True:
        begun = time.perf_counter()
        page = await timeline.page(wanted, page_size=200, cursor=cursor)
        spent.append(time.perf_counter() - begun)
        if page.next_cursor is None:
            return spent
        cursor = page.next_cursor


@pytest.mark.long
@pytest.mark.parametrize("when", [spread, level])
async def test_the_last_page_of_a_hundred_thousand_costs_what_the_first_does(
    store: Store, when: Callable[[int], datetime]
) -> None:
    await fill(store, 100_000, when)
    spent = await seconds_of_pages(store, MessageFilter())
    tenth = len(spent) // 10
    early, late = sorted(spent[1 : tenth + 1]), sorted(spent[-tenth:])
    assert late[tenth // 2] < 1.5 * early[tenth // 2], (early, late)


async def test_an_old_session_is_read_from_its_own_index(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sqlite_store
    for session, count in (("old", 20), ("new", 2_000)):
        batch = [
            NewMessage(message_id=f"{session}{n:05}", content="x", role=Role.USER, ts=spread(n))
            for n in range(count)
        ]
        await store.timeline(Scope("ann", session_id=session)).add(batch)
    plans: list[str] = []
    fetch = Database.fetch

    async def explained(self: Database, statement: Executable, given: Any = None) -> Any:
        plans.append(await explain(self, statement))
        return await fetch(self, statement, given)

    monkeypatch.setattr(Database, "fetch", explained)
    wanted = MessageFilter(session_id="old")
    page = await store.timeline(Scope("ann")).page(wanted, page_size=15)
    rest = await store.timeline(Scope("ann")).page(wanted, page_size=15, cursor=page.next_cursor)
    assert [m.message_id for m in (*page.items, *rest.items)] == [
        f"old{n:05}" for n in reversed(range(20))
    ]
    assert all("ix_messages_session_ts (user_id=? AND session_id=?" in plan for plan in plans)


@pytest.fixture
async def sqlite_store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(str(tmp_path / "a.db")) as opened:
        yield opened
