"""Erasure from every table, and on SQLite from the bytes of the files."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, insert

from memrecall.errors import MemrecallError, NotFound
from memrecall.scope import Scope
from memrecall.store import (
    ErasureReport,
    Grant,
    NewRelation,
    PlanStep,
    RowKey,
    Store,
    StoredSummary,
)
from memrecall.store.database.tables import memberships
from memrecall.types import NewMemory, Origin

from ..waiting import wait_until
from .contention import count_blocked, lock_of_another_writer, wait_for_blocked
from .samples import (
    ANN,
    BEN,
    MORNING,
    add_memory,
    ids,
    new_message,
    new_trace,
    numbered_messages,
    pending,
    read_tables,
    user_rows,
    user_tables,
)

TEA, WORK = Scope("ann", session_id="tea"), Scope("ann", session_id="work")


async def fill(store: Store) -> None:
    """Store two equal users, each with rows in every table and two sessions."""
    for user in ("ann", "ben"):
        for session in ("tea", "work"):
            scope = Scope(user, session_id=session)
            await store.timeline(scope).add(numbered_messages(session, 3))
            await add_memory(store, f"memory-{session}", scope=scope)
            await store.traces(scope).add(new_trace(f"trace-{session}"), keep_days=30)
            rows = [
                RowKey(user, "message", f"{session}0"),
                RowKey(user, "memory", f"memory-{session}"),
            ]
            await store.vectors("embedder-1").write(pending(*rows), np.ones((2, 4), np.float32))
            await derive(store, scope)
        await store.keys.create(Grant(frozenset({user})), name=f"phone of {user}")
        grant = {"user_id": user, "member": "eve", "role": "reader", "created_at": MORNING}
        await store.database.transact(partial(_insert_grant, grant=grant))  # as of a space
        await add_memory(store, "purged", scope=Scope(user))
        await store.changes(Scope(user)).purge(["purged"])
    await add_memory(store, "unlabelled")
    await store.traces(ANN).add(new_trace("unlabelled"), keep_days=30)


def _insert_grant(connection: Connection, grant: dict[str, Any]) -> None:
    connection.execute(insert(memberships), grant)


async def derive(store: Store, scope: Scope) -> None:
    """Store a history, a graph, a summary, a checkpoint and feedback of one session."""
    session = scope.session_id
    await store.changes(scope).update(f"memory-{session}", {"metadata": {"n": 1}}, actor="ann")
    relation = NewRelation(f"{session} one", "knows", f"{session} two")
    await store.graph(scope).add({}, [relation])
    summary = StoredSummary(0, 1, 1, 3, f"{session} told", "rules", MORNING)
    await store.session_state(scope).add_summaries([summary])
    await store.session_state(scope).save({"said": session})
    await store.feedback(scope).set(f"trace-{session}", is_right=True, evidence=[f"{session}0"])


async def epoch(store: Store, user_id: str = "ann") -> str:
    version = await store.feed(user_id).version()
    assert version is not None
    return version.epoch


class TestUser:
    async def test_erase_user_removes_only_their_rows_from_every_table(self, store: Store) -> None:
        await fill(store)
        before = await read_tables(store.database)
        assert set(user_rows(before, "ann")) == {table.name for table in user_tables()}

        report = await store.owners.erase_user("ann")

        after = await read_tables(store.database)
        assert report == ErasureReport(
            messages=6, memories=3, vectors=4, sessions=2, traces=3, keys=1, derived=23
        )
        assert user_rows(after, "ann") == {}
        assert user_rows(after, "ben") == user_rows(before, "ben")
        assert after["agents"] == before["agents"]

    async def test_erased_user_can_write_again(self, store: Store) -> None:
        await fill(store)
        before = await epoch(store)
        await store.owners.set_user_enabled("ann", False)
        await store.owners.erase_user("ann")
        assert await store.feed("ann").version() is None

        await store.timeline(TEA).add([new_message("tea0", "other words than before")])

        assert (await store.timeline(TEA).get("tea0")).sequence_no == 1
        assert await epoch(store) != before


class TestSession:
    async def test_erase_session_removes_only_its_rows(self, store: Store) -> None:
        await fill(store)
        before = await read_tables(store.database)

        report = await store.owners.erase_session("ann", "tea")

        after = await read_tables(store.database)
        assert report == ErasureReport(
            messages=3, memories=1, vectors=2, sessions=1, traces=3, derived=11
        )
        for table in ("messages", "memories", "sessions"):
            rows_before = [r for r in user_rows(before, "ann")[table] if r["session_id"] != "tea"]
            assert user_rows(after, "ann")[table] == rows_before
        assert [r["key"] for r in user_rows(after, "ann")["vectors"]] == ["memory-work", "work0"]
        assert not user_rows(after, "ann").get("traces")  # any of them may quote the session
        assert user_rows(after, "ben") == user_rows(before, "ben")

    async def test_erase_session_accepts_a_session_known_from_traces(self, store: Store) -> None:
        await fill(store)
        traces = store.traces(Scope("ann", session_id="unwritten"))
        await traces.add(new_trace("asked"), keep_days=30)

        report = await store.owners.erase_session("ann", "unwritten")
        assert report == ErasureReport(traces=4, derived=2)  # the feedback, which may quote it

        with pytest.raises(NotFound):
            await traces.get("asked")
        with pytest.raises(NotFound):
            await store.owners.erase_session("ann", "unwritten")

    async def test_erase_session_changes_the_epoch_and_reuses_no_numbers(
        self, store: Store
    ) -> None:
        await fill(store)
        before, ben = await store.feed("ann").version(), await epoch(store, "ben")
        assert before is not None
        await store.owners.erase_session("ann", "work")
        assert await epoch(store) != before.epoch
        assert await epoch(store, "ben") == ben

        await store.timeline(WORK).add([new_message("new")])

        rows = user_rows(await read_tables(store.database), "ann")["messages"]
        (new,) = [row for row in rows if row["message_id"] == "new"]
        assert new["change_no"] == before.version + 1

    async def test_erased_session_can_start_again(self, store: Store) -> None:
        await fill(store)
        await store.owners.end_session("ann", "tea")

        await store.owners.erase_session("ann", "tea")
        await store.timeline(TEA).add([new_message("tea0")])

        assert await ids(store.timeline(ANN)) == ["work2", "work1", "tea0", "work0"]


@pytest.mark.concurrent
async def test_erase_user_during_concurrent_writes(store: Store) -> None:
    await fill(store)

    async def write(user: str) -> None:
        for number in range(8):
            await store.timeline(Scope(user)).add([new_message(f"late{number}")])

    await asyncio.gather(
        write("ann"),
        write("ben"),
        store.owners.erase_session("ann", "tea"),
        store.owners.erase_session("ben", "work"),
    )

    assert (await store.count("ann"))["messages"] == (await store.count("ben"))["messages"] == 11


@pytest.mark.concurrent
async def test_writer_recreates_a_user_erased_meanwhile(store: Store, location: str) -> None:
    """The write waits for the erasure."""
    await fill(store)
    async with lock_of_another_writer(location):
        erasure = asyncio.create_task(store.owners.erase_user("ann"))
        await wait_for_blocked(store, 1)
        writing = asyncio.create_task(store.timeline(TEA).add([new_message("late")]))
        await wait_for_blocked(store, 2)

    await erasure
    assert (await writing).stored == 1
    assert await ids(store.timeline(ANN)) == ["late"]


@pytest.mark.concurrent
async def test_erase_agent_during_its_first_write(store: Store, location: str) -> None:
    """One of the two may be too late and then raises a memrecall error."""
    helper = Scope("ann", agent_id="helper")
    await store.timeline(helper).add([new_message("m")])
    await store.owners.erase_user("ann")

    async def waits_or_ends(erasure: asyncio.Task[None]) -> bool:
        return erasure.done() or await count_blocked(store) > 1

    async with lock_of_another_writer(location, new_user="ann"):
        writing = asyncio.create_task(store.timeline(helper).add([new_message("late")]))
        await wait_for_blocked(store, 1)
        erasure = asyncio.create_task(store.owners.erase_agent("helper"))
        await wait_until(partial(waits_or_ends, erasure))

    outcomes = await asyncio.gather(writing, erasure, return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert [error for error in errors if not isinstance(error, MemrecallError)] == []
    assert len(errors) <= 1


CANARY = "zqcanaryzq"


def files_with(word: str, file: Path) -> list[str]:
    """Return the database's files that contain the word."""
    leftovers = file.parent.glob(f"{file.name}*")
    return [path.name for path in leftovers if word.encode() in path.read_bytes()]


async def derive_canaries(store: Store) -> None:
    """Store the word in every derived table and in the history of another session."""
    scope = replace(TEA, agent_id="helper")
    changes = store.changes(WORK)
    await add_memory(store, "home", "lives in Paris", scope=WORK)
    await add_memory(store, "job", "is a cook", scope=scope)
    new = NewMemory(content=f"lives in {CANARY}")
    step = PlanStep("UPDATE", new, "home", reason=f"moved to {CANARY}")
    await store.changes(TEA).apply_plan([step], actor="x")
    await store.changes(scope).update("job", {"content": CANARY}, actor=CANARY)
    await store.changes(scope).undo("job", actor=CANARY)
    await changes.delete(["home"], actor="x")
    await store.graph(scope).add({CANARY: CANARY}, [NewRelation(CANARY, CANARY, f"2{CANARY}")])
    summary = StoredSummary(0, 1, 1, 3, CANARY, CANARY, MORNING)
    await store.session_state(scope).add_summaries([summary])
    for _ in range(5):
        await store.session_state(scope).save({"said": CANARY})


@pytest.mark.parametrize("longest", [60, 700, 2000, 5000])
@pytest.mark.parametrize("whole_user", [True, False], ids=["user", "session"])
async def test_erasure_leaves_no_bytes_in_the_file(
    tmp_path: Path, whole_user: bool, longest: int
) -> None:
    """Interleave long and short rows of two users, so that pages split and cells move."""
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file), durability="normal") as store:
        for number in range(60):
            long = f"{CANARY} {'x' * (number * 97 % longest)}"
            await store.timeline(TEA).add(
                [
                    new_message(f"{number * 37 % 61:02}-{part}", long, speaker=CANARY)
                    for part in range(4)
                ]
            )
            await store.timeline(BEN).add([new_message(f"{number}", "kept " * (number * 31 % 200))])
            memory = NewMemory(content=long, summary=CANARY, metadata={"k": CANARY})
            await store.memories(TEA).add([memory], origin=Origin.USER, actor=CANARY)
            trace = new_trace(query=CANARY, stop_reason=CANARY, body={"events": [long]})
            await store.traces(TEA).add(trace, keep_days=30)
        await derive_canaries(store)
        assert files_with(CANARY, file)

        if whole_user:
            await store.owners.erase_user("ann")
        else:
            await store.owners.erase_session("ann", "tea")

        assert files_with(CANARY, file) == []
        assert len(await ids(store.timeline(BEN))) == 60


@pytest.mark.concurrent
async def test_erasure_completes_despite_an_open_reader(tmp_path: Path) -> None:
    file = tmp_path / "memrecall.db"
    async with await Store.open(str(file), lock_timeout=0.1) as store:
        await store.timeline(ANN).add([new_message("m", CANARY)])
        async with store.database.read() as connection:
            await connection.exec_driver_sql("SELECT count(*) FROM messages")
            await store.owners.erase_user("ann")

    assert files_with(CANARY, file) == []
