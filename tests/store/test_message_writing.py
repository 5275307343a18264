"""Writing of messages: atomic batches, deduplicated and never changed."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.util import await_only

from memrecall.errors import Conflict, Disabled
from memrecall.scope import Scope
from memrecall.store import Reads, ScopedMessage, Store, WriteResult
from memrecall.store.database.locks import lock_users
from memrecall.store.messages import write_messages
from memrecall.store.owners import Owners
from memrecall.types import NewMessage, Role

from ..cases import check_each_async
from ..counting import recorded_statements
from ..waiting import LIMIT, wait_until
from .samples import (
    ANN,
    BEN,
    MORNING,
    add_memory,
    at,
    ids,
    new_message,
    numbered_messages,
    read_tables,
    user_rows,
)


async def test_batch_is_stored_in_order_and_may_repeat_an_equal_message(store: Store) -> None:
    timeline = store.timeline(ANN)

    result = await timeline.add([new_message(name) for name in "baac"])

    assert result.ids == ("b", "a", "a", "c")
    assert result.created == (True, True, False, True)
    assert result.stored == 3
    numbers = {m.message_id: m.sequence_no for m in await timeline.get_many(["a", "b", "c"])}
    assert numbers == {"b": 1, "a": 2, "c": 3}


async def test_every_field_round_trips(store: Store) -> None:
    timeline = store.timeline(Scope("ann", agent_id="helper", session_id="tea"))
    fields_set = NewMessage(
        content="看图 🍵\n\ttwo lines",
        role=Role.TOOL,
        message_id="m",
        ts=MORNING,
        speaker="Ann 安",
        content_type="image",
        parent_message_id="earlier",
        metadata={"tokens": 3, "名": {"list": [1, 2.5, None, True, "é"]}},
    )

    before = datetime.now(UTC)
    await timeline.add([fields_set])
    message = await timeline.get("m")

    assert message.model_dump(include=set(NewMessage.model_fields)) == fields_set.model_dump()
    assert (message.user_id, message.agent_id, message.session_id) == ("ann", "helper", "tea")
    assert message.sequence_no == 1
    assert before <= message.create_time <= datetime.now(UTC)


async def test_message_without_id_and_time_gets_both(store: Store) -> None:
    timeline = store.timeline(ANN)
    without_time = NewMessage(content="now", role=Role.USER)

    before = datetime.now(UTC)
    result = await timeline.add([without_time, without_time])

    assert result.stored == 2
    assert len(set(result.ids)) == 2
    for message in await timeline.get_many(result.ids):
        assert before <= message.ts <= datetime.now(UTC)


async def test_empty_batch_writes_nothing(store: Store) -> None:
    assert (await store.timeline(ANN).add([])).stored == 0
    assert (await store.count())["users"] == 0


async def test_agent_and_session_have_defaults(store: Store) -> None:
    before = datetime.now(UTC)
    await store.timeline(ANN).add([new_message("m")])

    message = await store.timeline(ANN).get("m")
    (user,) = (await store.owners.list_users()).items
    (agent,) = (await store.owners.list_agents()).items
    (session,) = (await store.owners.list_sessions("ann")).items

    assert (message.agent_id, message.session_id) == ("default", "default")
    assert (user["user_id"], user["agent_id"], user["status"]) == ("ann", "default", 1)
    assert before <= user["last_active_time"] <= datetime.now(UTC)
    assert (agent["agent_id"], agent["agent_name"]) == ("default", "default")
    assert (session["session_id"], session["last_sequence_no"]) == ("default", 1)


async def test_equal_message_is_not_stored_twice(store: Store) -> None:
    timeline = store.timeline(ANN)
    await timeline.add(numbered_messages("a", 3))
    before = user_rows(await read_tables(store.database), "ann")

    result = await timeline.add([*numbered_messages("a", 3), new_message("new", ts=at(9))])

    assert result.created == (False, False, False, True)
    after = user_rows(await read_tables(store.database), "ann")
    assert [row for row in after["messages"] if row["message_id"] != "new"] == before["messages"]
    assert (await timeline.get("new")).sequence_no == 4


async def test_other_content_under_a_stored_id_refuses_the_batch(store: Store) -> None:
    timeline = store.timeline(ANN)
    await timeline.add([new_message("m")])
    before = await read_tables(store.database)

    async def refuse(case: tuple[str, Any]) -> None:
        field, value = case
        changed = new_message("m", **{field: value})
        with pytest.raises(Conflict, match=r"'m'.*" + field) as conflict:
            await timeline.add([new_message("x"), changed, new_message("y")])
        assert conflict.value.details["message_id"] == "m"
        assert conflict.value.details["fields"] == [field]
        assert await read_tables(store.database) == before

    others = {
        "content": "something else",
        "ts": at(1),
        "role": Role.ASSISTANT,
        "speaker": "Somebody",
    }
    await check_each_async(others.items(), refuse)
    await timeline.add([new_message("z")])
    assert (await timeline.get("z")).sequence_no == 2


async def test_repeated_message_may_have_no_time_or_another_zone(store: Store) -> None:
    timeline = store.timeline(ANN)
    await timeline.add([new_message("m")])

    for ts in (None, MORNING.astimezone(timezone(timedelta(hours=8)))):
        assert (await timeline.add([new_message("m", ts=ts)])).created == (False,)
    assert (await timeline.get("m")).ts == MORNING


async def test_id_may_repeat_between_users(store: Store) -> None:
    await store.timeline(ANN).add([new_message("m", "mine")])
    await store.timeline(BEN).add([new_message("m", "yours")])

    assert (await store.timeline(ANN).get("m")).content == "mine"
    assert (await store.timeline(BEN).get("m")).content == "yours"


async def test_id_must_not_repeat_in_a_batch_with_other_content(store: Store) -> None:
    with pytest.raises(Conflict, match="'m'") as conflict:
        await store.timeline(ANN).add(
            [new_message("m", "one"), new_message("n"), new_message("m", "two")]
        )

    assert list(conflict.value.details["faults"]) == [2]
    assert (await store.count())["users"] == 0


async def test_message_id_must_not_be_a_memory_key(store: Store) -> None:
    await add_memory(store, "taken")
    before = await read_tables(store.database)

    with pytest.raises(Conflict, match="'taken'"):
        await store.timeline(ANN).add([new_message("free"), new_message("taken")])

    assert await read_tables(store.database) == before
    assert (await store.timeline(BEN).add([new_message("taken")])).stored == 1


@pytest.mark.one_server
async def test_batch_of_several_scopes_is_one_transaction(store: Store) -> None:
    tea, work = Scope("ann", session_id="tea"), Scope("ben", agent_id="helper", session_id="work")
    await write_messages(
        store.database,
        [ScopedMessage(tea, new_message("m1")), ScopedMessage(work, new_message("m1"))],
    )
    before = await read_tables(store.database)

    with pytest.raises(Conflict) as conflict:
        await write_messages(
            store.database,
            [
                ScopedMessage(tea, new_message("m2")),
                ScopedMessage(Scope("cay"), new_message("m1")),
                ScopedMessage(work, new_message("m1", "!")),
            ],
        )

    assert conflict.value.details["user_id"] == "ben"
    assert await read_tables(store.database) == before
    assert (await store.timeline(BEN).get("m1")).agent_id == "helper"


async def test_large_batch_is_stored_whole(store: Store) -> None:
    timeline = store.timeline(ANN)
    batch = [new_message(f"m{n:05}", "x", ts=at(n)) for n in range(6_000)]

    assert (await timeline.add(batch)).stored == 6_000
    assert (await timeline.add(batch)).stored == 0
    assert (await store.count("ann"))["messages"] == 6_000


class TestTogether:
    """Small batches that arrive at once share a transaction, and nothing else."""

    @pytest.mark.one_server
    async def test_batches_that_wait_are_written_together(self, store: Store) -> None:
        batches = [numbered_messages(f"{n}-", 2) for n in range(12)]
        scopes = [Scope(f"user{n % 3}", session_id="s") for n in range(12)]
        for scope in scopes[:3]:
            await store.timeline(scope).add([new_message("first")])

        with recorded_statements() as statements:
            results = await asyncio.gather(
                *(store.timeline(s).add(batch) for s, batch in zip(scopes, batches, strict=True))
            )

        inserts = [text for text in statements if text.startswith("INSERT INTO messages")]
        assert len(inserts) <= 2
        assert [result.ids for result in results] == [(f"{n}-0", f"{n}-1") for n in range(12)]
        assert all(result.created == (True, True) for result in results)
        stored = await store.timeline(scopes[0]).page()
        assert sorted(m.sequence_no for m in stored.items) == list(range(1, 10))

    async def test_conflict_fails_its_own_batch_alone(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("a", "tea")])

        good, bad, also_good = await asyncio.gather(
            store.timeline(ANN).add([new_message("b")]),
            store.timeline(ANN).add([new_message("c"), new_message("a", "coffee")]),
            store.timeline(BEN).add([new_message("d")]),
            return_exceptions=True,
        )

        assert isinstance(bad, Conflict)
        assert "is already stored with" in str(bad)
        assert isinstance(good, WriteResult)
        assert isinstance(also_good, WriteResult)
        assert sorted(await ids(store.timeline(ANN))) == ["a", "b"]

    async def test_same_message_from_several_callers_is_stored_once(self, store: Store) -> None:
        results = await asyncio.gather(
            *(store.timeline(ANN).add([new_message("a")]) for _ in range(5))
        )

        assert sorted(result.stored for result in results) == [0, 0, 0, 0, 1]

    async def test_cancelled_caller_loses_nobody_a_message(self, store: Store) -> None:
        calls = [
            asyncio.create_task(store.timeline(ANN).add([new_message(name)])) for name in "abc"
        ]
        await asyncio.sleep(0)
        calls[1].cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert {"a", "c"} <= set(await ids(store.timeline(ANN)))

    @pytest.mark.parametrize("engine", ["postgresql"])  # SQLite locks all users at once
    async def test_locked_user_makes_no_other_wait(self, store: Store) -> None:
        for scope in (ANN, BEN):
            await store.timeline(scope).add([new_message("first")])

        def hold(connection: Connection) -> None:
            lock_users(connection, ["ann"])
            ann = asyncio.create_task(store.timeline(ANN).add([new_message("a")]))
            ben = asyncio.create_task(store.timeline(BEN).add([new_message("b")]))
            waiting.append(ann)
            assert await_only(ben).stored == 1
            assert not ann.done()

        waiting: list[asyncio.Task[WriteResult]] = []
        await store.database.transact(hold)

        assert (await waiting[0]).stored == 1


REFUSALS: dict[str, tuple[Scope, Callable[[Owners], Awaitable[None]]]] = {
    "user 'ann' is disabled": (ANN, lambda owners: owners.set_user_enabled("ann", False)),
    "agent 'helper' is disabled": (
        Scope("ann", agent_id="helper"),
        lambda owners: owners.set_agent_enabled("helper", False),
    ),
    "session 'tea' has ended": (
        Scope("ann", session_id="tea"),
        lambda owners: owners.end_session("ann", "tea"),
    ),
}


@pytest.mark.parametrize("reason", REFUSALS)
async def test_write_refuses_what_is_disabled_or_ended(store: Store, reason: str) -> None:
    scope, refuse = REFUSALS[reason]
    await store.timeline(scope).add([new_message("m")])
    await refuse(store.owners)
    before = await read_tables(store.database)

    with pytest.raises(Disabled, match=reason):
        await store.timeline(scope).add([new_message("n")])

    assert await read_tables(store.database) == before
    assert await ids(store.timeline(ANN)) == ["m"]
    await store.owners.set_user_enabled("ann", True)
    assert (await store.timeline(ANN).add([new_message("n")])).stored == 1


EXTREMES: list[Any] = [
    ("2026-01-26T18:00:00+08:00", MORNING),
    ("2026-01-26T10:00:00Z", MORNING),
    ("2026-01-26T10:00:00", MORNING),
    (datetime(2026, 1, 26, 10, 0), MORNING),  # noqa: DTZ001 -- no zone means UTC
    (at(0) + timedelta(microseconds=1), at(0) + timedelta(microseconds=1)),
    (datetime(2, 1, 1, tzinfo=UTC), datetime(2, 1, 1, tzinfo=UTC)),
    (datetime.max.replace(year=9998, tzinfo=UTC), datetime.max.replace(year=9998, tzinfo=UTC)),
    (datetime(1969, 12, 31, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC)),
]


async def test_times_round_trip_in_utc_to_the_microsecond(store: Store) -> None:
    timeline = store.timeline(ANN)
    await timeline.add(
        [new_message(f"m{n}", ts=fields_set) for n, (fields_set, _) in enumerate(EXTREMES)]
    )

    for number, (_, expected) in enumerate(EXTREMES):
        message = await timeline.get(f"m{number}")
        assert message.ts == expected
        assert message.ts.utcoffset() == timedelta(0)


async def test_write_does_not_wait_for_searches_in_threads(tmp_path: Path) -> None:
    store = await Store.open(str(tmp_path / "memory.db"))
    reached, release = threading.Event(), threading.Event()

    def search(_: Reads) -> None:
        reached.set()
        release.wait()

    # More than asyncio has threads.
    searches = [
        asyncio.create_task(store.database.read_together(search, is_search=True)) for _ in range(64)
    ]
    try:
        await wait_until(reached.is_set)
        async with asyncio.timeout(LIMIT):
            result = await store.timeline(ANN).add([new_message("m")])
    finally:
        release.set()
        await asyncio.gather(*searches)
        await store.close()
    assert result.stored == 1
