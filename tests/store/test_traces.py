"""Traces of recalls: writing, reading, retention, and isolation from searches."""

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from memrecall.errors import Conflict, Disabled, InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store import BODY_BYTES, Store, measure_body
from memrecall.store import owners as owners_module

from ..cases import check_each, check_each_async
from .contention import lock_of_another_writer, wait_for_blocked
from .samples import ANN, BEN, new_message, new_trace, read_tables

KEEP_DAYS = 30


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def add_first_message(store: Store, *scopes: Scope) -> None:
    """Create a user by a first message."""
    for scope in scopes:
        await store.timeline(scope).add([new_message("m")])


async def list_ids(store: Store, scope: Scope = ANN, limit: int = 50) -> list[str]:
    """Return the ids of all traces of a scope, read page by page."""
    trace_ids: list[str] = []
    cursor = None
    while True:
        page = await store.traces(scope).page(limit, cursor)
        assert len(page.items) <= limit
        trace_ids += [trace.trace_id for trace in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return trace_ids


class TestAdd:
    async def test_trace_round_trips(self, store: Store) -> None:
        await add_first_message(store, ANN)
        body = {"events": [{"kind": "搜索", "score": 1e23, "n": 2**63, "none": None}], "ok": True}
        fields_set = new_trace(
            "t", "我喝什么 ☕？", body=body, confidence=1, created_at=days_ago(1)
        )

        trace_id = await store.traces(Scope("ann", session_id="unwritten")).add(
            fields_set, KEEP_DAYS
        )

        assert trace_id == "t"
        assert asdict(await store.traces(ANN).get("t")) == {
            **fields_set.model_dump(),
            "agent_id": "default",
            "session_id": "unwritten",
        }
        assert (await store.owners.list_sessions("ann")).items[0]["session_id"] == "default"

    async def test_trace_without_id_and_time_gets_both(self, store: Store) -> None:
        await add_first_message(store, ANN)

        before = datetime.now(UTC)
        trace_id = await store.traces(ANN).add(new_trace(), KEEP_DAYS)

        trace = await store.traces(ANN).get(trace_id)
        assert trace.session_id is None
        assert before <= trace.created_at <= datetime.now(UTC)

    async def test_add_updates_activity_but_not_the_version(self, store: Store) -> None:
        await add_first_message(store, ANN)
        version = await store.feed("ann").version()

        before = datetime.now(UTC)
        await store.traces(ANN).add(new_trace(), KEEP_DAYS)

        (user,) = (await store.owners.list_users()).items
        assert user["last_active_time"] >= before
        assert await store.feed("ann").version() == version

    async def test_add_refuses_an_unknown_user(self, store: Store) -> None:
        with pytest.raises(NotFound, match="nobody"):
            await store.traces(Scope("nobody", agent_id="new")).add(new_trace(), KEEP_DAYS)

        assert await store.count() == dict.fromkeys(await store.count(), 0)

    async def test_add_refuses_disabled_users_and_agents(self, store: Store) -> None:
        helper = Scope("ann", agent_id="helper")
        await add_first_message(store, helper)

        await store.owners.set_agent_enabled("helper", False)
        with pytest.raises(Disabled, match="helper"):
            await store.traces(helper).add(new_trace(), KEEP_DAYS)
        await store.owners.set_user_enabled("ann", False)
        with pytest.raises(Disabled, match="ann"):
            await store.traces(ANN).add(new_trace(), KEEP_DAYS)

        assert await list_ids(store) == []

    async def test_add_accepts_an_ended_session_and_a_new_agent(self, store: Store) -> None:
        await add_first_message(store, ANN)
        await store.owners.end_session("ann", "default")

        await store.traces(Scope("ann", "new", "default")).add(new_trace("t"), KEEP_DAYS)

        assert (await store.traces(ANN).get("t")).agent_id == "new"
        assert len((await store.owners.list_agents()).items) == 2

    async def test_equal_trace_is_stored_once_and_another_conflicts(self, store: Store) -> None:
        await add_first_message(store, ANN, BEN)
        await store.traces(ANN).add(new_trace("t", body={"n": 1}), KEEP_DAYS)
        before = (await read_tables(store.database))["traces"]

        await store.traces(ANN).add(new_trace("t", body={"n": 1}), KEEP_DAYS)
        for other in (new_trace("t", body={"n": 2}), new_trace("t", "else", body={"n": 1})):
            with pytest.raises(Conflict, match="'t' is already stored"):
                await store.traces(ANN).add(other, KEEP_DAYS)

        assert (await read_tables(store.database))["traces"] == before
        await store.traces(BEN).add(new_trace("t", "else"), KEEP_DAYS)

    @pytest.mark.concurrent
    async def test_add_waits_for_another_writer(self, store: Store, location: str) -> None:
        await add_first_message(store, ANN)

        async with lock_of_another_writer(location):
            adding = asyncio.create_task(store.traces(ANN).add(new_trace("t"), KEEP_DAYS))
            await wait_for_blocked(store, 1)
            assert await list_ids(store) == []

        await adding
        assert await list_ids(store) == ["t"]

    @pytest.mark.concurrent
    async def test_concurrent_traces_and_messages(self, store: Store) -> None:
        await add_first_message(store, ANN)

        await asyncio.gather(
            *(store.traces(ANN).add(new_trace(f"t{n}"), KEEP_DAYS) for n in range(8)),
            *(store.timeline(ANN).add([new_message(f"m{n}")]) for n in range(8)),
        )

        assert sorted(await list_ids(store)) == [f"t{n}" for n in range(8)]
        version = await store.feed("ann").version()
        assert version is not None
        assert version.version == 9


IMPOSSIBLE: list[dict[str, Any]] = [
    {"query": "a\0b"},
    {"query": "a\ud83d"},
    {"trace_id": "x" * 65},
    {"stop_reason": ""},
    {"stop_reason": "x" * 51},
    {"confidence": 1.01},
    {"confidence": float("nan")},
    {"seconds": float("inf")},
    {"seconds": -1},
    {"iterations": -1},
    {"tool_calls": 2**31},
    {"body": {"k": float("nan")}},
    {"body": {"k": "a\0b"}},
    {"body": []},
    {"created_at": "yesterday"},
    {"unknown": 1},
]


class TestInput:
    @pytest.mark.parametrize("filler", ["x", "茶"])
    async def test_body_is_limited_to_one_megabyte(self, store: Store, filler: str) -> None:
        await add_first_message(store, ANN)
        size = measure_body({"k": filler}) - measure_body({"k": ""})
        headroom = BODY_BYTES - measure_body({"k": ""})
        largest = {"k": "y" * (headroom % size) + filler * (headroom // size)}
        assert measure_body(largest) == BODY_BYTES

        await store.traces(ANN).add(new_trace("t", body=largest), KEEP_DAYS)
        with pytest.raises(InvalidArgument, match=str(BODY_BYTES)):
            await store.traces(ANN).add(new_trace(body={"k": largest["k"] + "y"}), KEEP_DAYS)

        assert (await store.traces(ANN).get("t")).body == largest
        assert await list_ids(store) == ["t"]

    async def test_days_out_of_range_are_refused(self, store: Store) -> None:
        await add_first_message(store, ANN)

        async def refuse(days: int) -> None:
            with pytest.raises(InvalidArgument, match=str(days)):
                await store.traces(ANN).add(new_trace(), days)

        await check_each_async([0, -1, 36_501, 10**12], refuse)

    def test_invalid_trace_is_refused(self) -> None:
        def refuse(fields: dict[str, Any]) -> None:
            with pytest.raises(ValidationError, match=next(iter(fields))):
                new_trace(**fields)

        check_each(IMPOSSIBLE, refuse, ascii)


class TestRead:
    async def test_pages_are_latest_first_with_ties_by_id(self, store: Store) -> None:
        await add_first_message(store, ANN)
        yesterday = days_ago(1)
        for number in reversed(range(7)):
            created_at = yesterday.replace(hour=number % 3, microsecond=1)
            await store.traces(ANN).add(new_trace(f"t{number}", created_at=created_at), KEEP_DAYS)

        expected = ["t2", "t5", "t1", "t4", "t0", "t3", "t6"]
        for limit in (1, 2, 3, 6, 7, 8, 200):
            assert await list_ids(store, limit=limit) == expected

    async def test_page_has_no_bodies(self, store: Store) -> None:
        await add_first_message(store, ANN)
        await store.traces(ANN).add(new_trace("t", "tea?"), KEEP_DAYS)

        (summary,) = (await store.traces(ANN).page()).items

        whole = asdict(await store.traces(ANN).get("t"))
        assert {**asdict(summary), "body": {"events": []}} == whole

    async def test_traces_are_invisible_to_other_users(self, store: Store) -> None:
        await add_first_message(store, ANN, BEN)
        for scope in (ANN, BEN):
            for number in range(2):
                await store.traces(scope).add(new_trace(f"{scope.user_id}{number}"), KEEP_DAYS)
        counts = [(await store.count(user))["traces"] for user in (None, "ann", "cay")]
        assert counts == [4, 2, 0]

        assert sorted(await list_ids(store, BEN)) == ["ben0", "ben1"]
        with pytest.raises(NotFound) as other_error:
            await store.traces(ANN).get("ben0")
        with pytest.raises(NotFound) as unknown_error:
            await store.traces(ANN).get("cay0")
        # The error is the same for another user's id and for one that does not exist.
        assert str(other_error.value).replace("ben0", "cay0") == str(unknown_error.value)
        assert await list_ids(store, Scope("nobody")) == []

    async def test_bound_agent_filters_and_bound_session_does_not(self, store: Store) -> None:
        first, two = Scope("ann", agent_id="a1", session_id="s1"), Scope("ann", agent_id="a2")
        await add_first_message(store, ANN)
        for scope in (first, two):
            await store.traces(scope).add(new_trace(str(scope.agent_id)), KEEP_DAYS)

        assert await list_ids(store, first) == ["a1"]
        assert await list_ids(store, two) == ["a2"]
        assert sorted(await list_ids(store, Scope("ann", session_id="s1"))) == ["a1", "a2"]
        with pytest.raises(NotFound):
            await store.traces(first).get("a2")

    async def test_cursor_of_another_list_is_refused(self, store: Store) -> None:
        await add_first_message(store, ANN, BEN)
        for number in range(2):
            await store.traces(ANN).add(new_trace(f"t{number}"), KEEP_DAYS)
        await store.timeline(ANN).add([new_message("n")])
        cursor = (await store.traces(ANN).page(1)).next_cursor
        message_cursor = (await store.timeline(ANN).page(page_size=1)).next_cursor

        attempts = [
            (BEN, cursor),
            (Scope("ann", agent_id="default"), cursor),
            (ANN, message_cursor),
            (ANN, "forged"),
        ]
        for scope, other_cursor in attempts:
            with pytest.raises(InvalidArgument, match="cursor"):
                await store.traces(scope).page(1, other_cursor)


class TestRetention:
    async def test_add_drops_expired_traces_of_the_user(self, store: Store) -> None:
        await add_first_message(store, ANN, BEN)
        for scope in (ANN, BEN):
            for age in (1, 6.9, 7.1, 40):
                old = new_trace(f"{age}", created_at=days_ago(age))
                await store.traces(scope).add(old, 365)

        await store.traces(ANN).add(new_trace("new"), 7)

        assert await list_ids(store) == ["new", "1", "6.9"]
        assert await list_ids(store, BEN) == ["1", "6.9", "7.1", "40"]

    async def test_new_trace_of_an_old_recall_stays(self, store: Store) -> None:
        await add_first_message(store, ANN)

        await store.traces(ANN).add(new_trace("old", created_at=days_ago(9)), 7)

        assert await list_ids(store) == ["old"]

    async def test_refused_trace_drops_nothing(self, store: Store) -> None:
        await add_first_message(store, ANN)
        await store.traces(ANN).add(new_trace("old", created_at=days_ago(9)), KEEP_DAYS)
        await store.traces(ANN).add(new_trace("t"), KEEP_DAYS)

        with pytest.raises(Conflict):
            await store.traces(ANN).add(new_trace("t", "else"), 7)

        assert await list_ids(store) == ["t", "old"]


class TestPurge:
    async def test_purge_removes_old_traces_of_all_users(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(owners_module, "LIST_SIZE", 2)
        monkeypatch.setattr(owners_module, "PURGE_SIZE", 2)
        scopes = [Scope(f"u{n}") for n in range(5)]
        await add_first_message(store, *scopes)
        for scope in scopes[:3]:
            for age in range(1, 8):
                old = new_trace(f"{age}", created_at=days_ago(age))
                await store.traces(scope).add(old, KEEP_DAYS)
        await store.owners.set_user_enabled("u1", False)
        versions = [await store.feed(scope.user_id).version() for scope in scopes]

        assert await store.owners.purge_traces(days_ago(2.5)) == 15

        for scope in scopes[:3]:
            assert await list_ids(store, scope) == ["1", "2"]
        assert [await store.feed(scope.user_id).version() for scope in scopes] == versions
        assert await store.owners.purge_traces(days_ago(2.5)) == 0


async def test_find_mentions_returns_recalls_that_name_a_key(store: Store) -> None:
    await add_first_message(store, ANN, BEN)
    traces = store.traces(ANN)
    mentioned = {"keys": ["m_1", '记忆"%_']}
    for number, body in enumerate([mentioned, {"keys": ["m_10"]}, mentioned]):
        trace = new_trace(f"t{number}", body=body, created_at=days_ago(3 - number))
        await traces.add(trace, KEEP_DAYS)
    await store.traces(BEN).add(new_trace("bens", body=mentioned), KEEP_DAYS)

    async def find(key: str, **options: int) -> list[str]:
        return [trace.trace_id for trace in await traces.find_mentions(key, **options)]

    assert await find("m_1") == ["t2", "t0"]
    assert await find('记忆"%_') == ["t2", "t0"]
    assert await find("m_%") == []
    assert await find("m_1", among=1) == ["t2"]
