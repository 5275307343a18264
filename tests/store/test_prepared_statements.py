"""Statements that every search or turn executes are compiled once and run by SQLite's driver."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import bindparam, insert, literal, select
from sqlalchemy.exc import IntegrityError

from memrecall.store import Store
from memrecall.store.database.statements import execute_prepared, fetch_rows
from memrecall.store.database.tables import messages, users
from memrecall.store.timeline import _select_by_id
from memrecall.types import NewMessage, Role

from ..counting import recorded_statements
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
    by_id = _select_by_id(("of_user",))
    async with await open_store(tmp_path) as store:
        for count in range(1, 10):
            with store.database.read_inline() as connection:
                expected = connection.execute(by_id, select_ids(count)).all()
                rows = fetch_rows(connection, by_id, select_ids(count))
            assert len(rows) == count
            assert sorted(row._asdict().items() for row in rows) == sorted(
                row._asdict().items() for row in expected
            )


async def test_lists_of_similar_length_share_their_sql(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        with recorded_statements() as texts:
            for count in range(1, 10):
                await store.timeline(ANN).get_many(select_ids(count)["ids"])
    assert len(texts) == 9
    assert len(set(texts)) == 5  # 1, 2, 4, 8 and 16 ids


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

        def write(connection: Any) -> None:
            execute_prepared(connection, insert(users), [row])

        with pytest.raises(IntegrityError):
            await store.database.transact(write)
        assert len(await store.database.fetch(select(messages.c.message_id))) == 9


async def test_read_sees_the_latest_commit(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store, await Store.open(store.location) as other:
        feed = store.feed(ANN.user_id)
        versions = [await feed.version()]
        for n in range(20, 23):
            new = NewMessage(role=Role.USER, content="more", message_id=f"m{n}", ts=at(n))
            await other.timeline(ANN).add([new])
            versions.append(await feed.version())
    assert len({version.version for version in versions if version}) == 4


async def test_read_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        feed = store.feed(ANN.user_id)
        before = await feed.version()
        with closing(sqlite3.connect(store.location, isolation_level=None, timeout=0)) as other:
            other.execute("BEGIN EXCLUSIVE")
            other.execute("UPDATE users SET time_zone = 'Asia/Shanghai'")
            assert await feed.version() == before
            other.execute("ROLLBACK")
