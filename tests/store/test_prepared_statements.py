"""Statements that every search or turn executes are compiled once and run by SQLite's driver."""

import sqlite3
import threading
from contextlib import closing
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import bindparam, event, insert, literal, select
from sqlalchemy.exc import IntegrityError

from memrecall.store import Store
from memrecall.store.database.dialect import ConnectionOptions
from memrecall.store.database.statements import InlineConnection, run_inline
from memrecall.store.database.tables import messages, users
from memrecall.store.messages.timeline import _SELECT_BY_ID
from memrecall.types import NewMessage, Role

from ..counting import count_calls
from .samples import ANN, at


async def open_store(folder: Path) -> Store:
    store = await Store.open(str(folder / "chat.db"))
    batch = [
        NewMessage(
            role=Role.USER,
            content=f"tea {n}",
            message_id=f"m{n}",
            ts=at(n),
            metadata={"n": [n, "茶"]} if n else {},
        )
        for n in range(9)
    ]
    await store.timeline(ANN).add(batch)
    return store


def select_ids(count: int) -> dict[str, Any]:
    return {"of_user": ANN.user_id, "ids": [f"m{n}" for n in range(count)]}


async def test_rows_are_those_of_sqlalchemy(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        for count in range(1, 10):
            with store.database.read_inline() as connection:
                expected = connection.execute(_SELECT_BY_ID, select_ids(count)).all()
                inline = InlineConnection(connection)
                rows = run_inline(inline.fetch(_SELECT_BY_ID, select_ids(count)))
            assert len(rows) == count
            assert sorted(row._asdict().items() for row in rows) == sorted(
                row._asdict().items() for row in expected
            )


async def test_lists_of_similar_length_share_their_sql(tmp_path: Path) -> None:
    texts: list[str] = []
    async with await open_store(tmp_path) as store:

        @event.listens_for(store.database.read_engine, "before_cursor_execute")
        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            texts.append(statement)

        for count in range(1, 10):
            await store.timeline(ANN).get_many(select_ids(count)["ids"])
    assert len(texts) == 9
    assert len(set(texts)) == 5  # 1, 2, 4, 8 and 16 ids


async def test_reading_takes_few_calls(tmp_path: Path) -> None:
    read = methodcaller("fetch", _SELECT_BY_ID, select_ids(1))
    async with await open_store(tmp_path) as store:
        database = store.database
        database._read_inline(read)
        with database.read_inline() as connection:
            through_sqlalchemy = count_calls(
                lambda: connection.execute(_SELECT_BY_ID, select_ids(1)).all()
            )
            inline = InlineConnection(connection)
            prepared = count_calls(lambda: run_inline(read(inline)))
    assert prepared < through_sqlalchemy / 2


async def test_values_in_the_statement_are_bound_too(tmp_path: Path) -> None:
    by_time = select(literal("UTC").label("zone"), messages.c.message_id).where(
        messages.c.ts == at(3), messages.c.user_id == bindparam("of_user")
    )
    async with await open_store(tmp_path) as store:
        (row,) = await store.database.fetch(by_time, {"of_user": ANN.user_id})
    assert tuple(row) == ("UTC", "m3")


async def test_violated_constraint_is_an_error_of_sqlalchemy(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        row = {"user_id": ANN.user_id, "agent_id": "default", "epoch": "1"}

        async def write(connection: Any) -> None:
            await connection.execute_prepared(insert(users), [row])

        with pytest.raises(IntegrityError):
            await store.database.transact(write)
        statement = select(messages.c.message_id)
        assert len(await store.database.fetch(statement)) == 9


async def test_short_read_needs_no_thread_unless_others_use_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user = select(users.c.user_id).where(users.c.user_id == bindparam("of_user"))
    threads: list[str] = []

    def note(*_: Any) -> None:
        threads.append(threading.current_thread().name)

    async with await open_store(tmp_path) as store:
        database = store.database
        event.listen(database.read_engine, "before_cursor_execute", note)
        read = partial(database.fetch_short, by_user, {"of_user": ANN.user_id})
        async with database.read():  # as a stream or a search does
            beside_another = await read()
        alone = await read()
        monkeypatch.setattr(database, "_options", ConnectionOptions(read_only=True))
        await read()  # of a file that may not have a write-ahead log, and be locked by a writer
    here = threading.current_thread().name
    assert [row.user_id for row in alone] == [row.user_id for row in beside_another] == ["ann"]
    assert [name == here for name in threads] == [False, True, False]


async def test_short_read_sees_the_latest_commit(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store, await Store.open(store.location) as other:
        feed = store.feed(ANN.user_id)
        versions = [await feed.version()]
        for n in range(20, 23):
            new = NewMessage(role=Role.USER, content="more", message_id=f"m{n}", ts=at(n))
            await other.timeline(ANN).add([new])
            versions.append(await feed.version())
    assert len({version.version for version in versions if version}) == 4


async def test_short_read_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        feed = store.feed(ANN.user_id)
        before = await feed.version()
        with closing(sqlite3.connect(store.location, isolation_level=None, timeout=0)) as other:
            other.execute("BEGIN EXCLUSIVE")
            other.execute("UPDATE users SET time_zone = 'Asia/Shanghai'")
            assert await feed.version() == before
            other.execute("ROLLBACK")
