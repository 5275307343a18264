"""Interrupted operations leave the database as before or as after, never in between."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event

from memrecall.scope import Scope
from memrecall.store import RowKey, ScopedMessage, Store
from memrecall.store.database.dialects import SQLITE, ConnectionOptions
from memrecall.store.database.engine import Database
from memrecall.store.database.migrations import LATEST, schema_version, upgrade
from memrecall.store.messages import write_messages
from memrecall.types import NewMemory, Origin

from ..databases import Databases
from ..waiting import wait_until
from .contention import lock_of_another_writer, wait_for_blocked
from .samples import (
    ANN,
    BEN,
    MORNING,
    Rows,
    add_memory,
    ids,
    new_message,
    new_trace,
    numbered_messages,
    pending,
    read_tables,
)

TEA = Scope("ann", session_id="tea")
VOLATILE = {"epoch", "provenance", "created_at", "updated_at"}


class InjectedFault(Exception):
    """An error that no driver raises."""


Verb = Callable[[Store], Awaitable[object]]
VERBS: dict[str, Verb] = {
    "write messages": lambda store: write_messages(
        store.database,
        [
            ScopedMessage(TEA, new_message("new")),
            ScopedMessage(Scope("cay", agent_id="a2"), new_message("new")),
            ScopedMessage(BEN, new_message("n")),
        ],
    ),
    "add memories": lambda store: store.memories(Scope("ann", session_id="new")).add(
        [NewMemory(memory_key=key, content="new") for key in ("k1", "k2")], origin=Origin.USER
    ),
    "write vectors": lambda store: store.vectors("embedder-2").write(
        pending(RowKey("ann", "message", "m0"), RowKey("ben", "message", "m1")),
        np.ones((2, 3), np.float32),
    ),
    "add trace": lambda store: store.traces(Scope("ann", agent_id="a3")).add(
        new_trace("new"), keep_days=1
    ),
    "erase session": lambda store: store.owners.erase_session("ann", "tea"),
    "erase user": lambda store: store.owners.erase_user("ann"),
}


async def fill(store: Store) -> None:
    """Store two users with rows in every table."""
    for user in ("ann", "ben"):
        await store.timeline(Scope(user, session_id="tea")).add(numbered_messages("m", 3))
        await add_memory(store, "k", scope=Scope(user, session_id="tea"))
        rows = [RowKey(user, "message", "m0"), RowKey(user, "memory", "k")]
        await store.vectors("embedder-1").write(pending(*rows), np.zeros((2, 3), np.float32))
        old = new_trace("old", created_at=MORNING - timedelta(days=365))
        await store.traces(Scope(user, session_id="tea")).add(old, keep_days=30)


async def state(store: Store) -> Rows:
    """Return all rows without random values and times."""
    rows = await read_tables(store.database)
    del rows["memrecall_meta"]
    return {
        name: [
            {key: row[key] for key in row if key not in VOLATILE and not key.endswith("_time")}
            for row in table
        ]
        for name, table in rows.items()
    }


@contextmanager
def at_statement(database: Database, number: int, action: Callable[[], object]) -> Iterator[None]:
    """Run an action before the n-th statement of the block."""
    engine = database.write_engine
    statements = count(1)

    def hook(*_: Any) -> None:
        if next(statements) == number:
            action()

    event.listen(engine, "before_cursor_execute", hook)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", hook)


@contextmanager
def at_commit(database: Database, action: Callable[[Any], object]) -> Iterator[None]:
    """Run an action before each commit."""
    event.listen(database.write_engine, "commit", action)
    try:
        yield
    finally:
        event.remove(database.write_engine, "commit", action)


def fail(*_: object) -> None:
    raise InjectedFault


def checked_out_connections(store: Store) -> int:
    pool: Any = store.database.write_engine.pool
    return int(pool.checkedout())


async def state_after(verb: Verb, location: str) -> Rows:
    """Return the state of another database after an uninterrupted operation."""
    async with await Store.open(location) as store:
        await fill(store)
        await verb(store)
        return await state(store)


@pytest.mark.parametrize("name", VERBS)
async def test_failure_at_any_statement_changes_nothing(
    name: str, store: Store, databases: Databases
) -> None:
    verb = VERBS[name]
    await fill(store)
    before, after = await state(store), await state_after(verb, databases.fresh())
    assert before != after

    with at_commit(store.database, fail), pytest.raises(InjectedFault):
        await verb(store)
    assert await state(store) == before

    for number in count(1):
        with at_statement(store.database, number, fail):
            (outcome,) = await asyncio.gather(verb(store), return_exceptions=True)
        now = await state(store)
        assert checked_out_connections(store) == 0
        if not isinstance(outcome, InjectedFault):
            break
        # The clean-up after a successful erasure may fail.
        assert now == before or (now == after and name.startswith("erase"))
        if now == after:
            break
    assert number > 4
    assert now == after


async def test_failure_at_any_statement_of_a_migration_changes_nothing(empty_location: str) -> None:
    # Without a time limit, migrations use the same connections as other writes.
    database = Database(empty_location, ConnectionOptions(statement_timeout=None))
    try:
        for number in count(
            1, 1 if database.dialect is SQLITE else 3
        ):  # a third of them, because each is slow
            with at_statement(database, number, fail):
                (outcome,) = await asyncio.gather(upgrade(database), return_exceptions=True)
            if outcome is True:
                break
            assert isinstance(outcome, InjectedFault)
            async with database.read() as connection:
                assert await connection.run_sync(schema_version) == 0
        assert number > 20
        async with database.read() as connection:
            assert await connection.run_sync(schema_version) == LATEST
    finally:
        await database.close()


@pytest.mark.concurrent
async def test_cancellation_at_any_statement_of_a_write(store: Store) -> None:
    """A write that has started completes even if its caller is cancelled."""
    timeline, loop = store.timeline(TEA), asyncio.get_running_loop()
    for number in count(1):
        batch = [new_message(f"n{number}-{part}") for part in range(3)]
        writing = asyncio.ensure_future(timeline.add(batch))
        cancel = partial(
            loop.call_soon_threadsafe, writing.cancel
        )  # SQLite's statements run in a thread
        with at_statement(store.database, number, cancel):
            (outcome,) = await asyncio.gather(writing, return_exceptions=True)

        tables = await timeline.get_many([str(message.message_id) for message in batch])
        assert len(tables) == 3
        assert checked_out_connections(store) == 0
        if not isinstance(outcome, asyncio.CancelledError):
            break
    assert number > 4
    assert sorted(m.sequence_no for m in tables) == [3 * number - 2, 3 * number - 1, 3 * number]


@pytest.mark.concurrent
async def test_cancellation_at_any_moment(
    store: Store, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Writes are stored completely or not at all; connections stay usable after reads.

    Nothing is printed or logged: neither by the pool, nor by the loop of a task that nobody awaits.
    """
    timeline = store.timeline(TEA)
    await timeline.add(numbered_messages("m", 5))
    for patience in range(12):
        batch = [new_message(f"p{patience}-{part}") for part in range(3)]
        tasks = [
            asyncio.ensure_future(timeline.add(batch)),
            asyncio.ensure_future(timeline.page()),
            asyncio.ensure_future(timeline.neighbors("m3", after=1)),
            asyncio.ensure_future(store.feed("ann").version()),
        ]
        for _ in range(patience):
            await asyncio.sleep(0.0004 * (patience % 3))
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)

        error_types = [type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]
        assert set(error_types) <= {asyncio.CancelledError}
        tables = await timeline.get_many([str(message.message_id) for message in batch])
        assert len(tables) in (0, 3)
        # A cancelled read's thread may still be reading.
        await wait_until(lambda: checked_out_connections(store) == 0)
    gc.collect()  # The loop reports a lost task or future when it is collected.
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert capfd.readouterr().err == ""


@pytest.mark.concurrent
async def test_cancelled_caller_waits_for_the_outcome(location: str) -> None:
    """This holds for a second cancellation too, as in the shutdown of a server."""
    async with await Store.open(location, lock_timeout=60) as store:
        await store.timeline(ANN).add([new_message("m")])
        async with lock_of_another_writer(location):
            writing = asyncio.create_task(store.timeline(ANN).add([new_message("n")]))
            await wait_for_blocked(store, 1)
            for _ in range(3):
                writing.cancel()
                for _ in range(20):  # enough time for a task that would end
                    await asyncio.sleep(0)
            told_too_early = writing.done()

        await asyncio.wait([writing])
        assert not told_too_early
        assert await ids(store.timeline(ANN)) == ["m", "n"]
