"""Traces: what each recall did, of one user, for a while, and beside everything searched."""

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
from .contention import wait_for_blocked, writer_at_work
from .samples import ANN, BEN, dump, recalled, said

KEPT = 30


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def meet(store: Store, *scopes: Scope) -> None:
    """Users are known from their first message on."""
    for scope in scopes:
        await store.timeline(scope).add([said("m")])


async def names(store: Store, scope: Scope = ANN, limit: int = 50) -> list[str]:
    """The ids of all traces of a scope, page by page."""
    found: list[str] = []
    cursor = None
    while True:
        page = await store.traces(scope).page(limit, cursor)
        assert len(page.items) <= limit
        found += [trace.trace_id for trace in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


class TestAdd:
    async def test_a_trace_comes_back_as_it_was_given(self, store: Store) -> None:
        await meet(store, ANN)
        body = {"events": [{"kind": "搜索", "score": 1e23, "n": 2**63, "none": None}], "ok": True}
        given = recalled("t", "我喝什么 ☕？", body=body, confidence=1, created_at=days_ago(1))

        told = await store.traces(Scope("ann", session_id="unwritten")).add(given, KEPT)

        assert told == "t"
        assert asdict(await store.traces(ANN).get("t")) == {
            **given.model_dump(),
            "agent_id": "default",
            "session_id": "unwritten",
        }
        assert (await store.owners.list_sessions("ann")).items[0]["session_id"] == "default"

    async def test_without_id_and_time_it_gets_both(self, store: Store) -> None:
        await meet(store, ANN)

        before = datetime.now(UTC)
        told = await store.traces(ANN).add(recalled(), KEPT)

        trace = await store.traces(ANN).get(told)
        assert trace.session_id is None
        assert before <= trace.created_at <= datetime.now(UTC)

    async def test_the_user_is_active_and_nothing_searched_has_changed(self, store: Store) -> None:
        await meet(store, ANN)
        mark = await store.feed("ann").version()

        before = datetime.now(UTC)
        await store.traces(ANN).add(recalled(), KEPT)

        (user,) = (await store.owners.list_users()).items
        assert user["last_active_time"] >= before
        assert await store.feed("ann").version() == mark

    async def test_an_agent_is_made_on_first_use(self, store: Store) -> None:
        await meet(store, ANN)

        await store.traces(Scope("ann", agent_id="helper")).add(recalled("t"), KEPT)

        assert (await store.traces(ANN).get("t")).agent_id == "helper"
        agents = (await store.owners.list_agents()).items
        assert [agent["agent_id"] for agent in agents] == ["default", "helper"]

    async def test_an_unknown_user_is_not_found_and_not_made(self, store: Store) -> None:
        with pytest.raises(NotFound, match="nobody"):
            await store.traces(Scope("nobody", agent_id="new")).add(recalled(), KEPT)

        assert await store.count() == dict.fromkeys(await store.count(), 0)

    async def test_the_disabled_are_refused(self, store: Store) -> None:
        helper = Scope("ann", agent_id="helper")
        await meet(store, helper)

        await store.owners.set_agent_enabled("helper", False)
        with pytest.raises(Disabled, match="helper"):
            await store.traces(helper).add(recalled(), KEPT)
        await store.owners.set_user_enabled("ann", False)
        with pytest.raises(Disabled, match="ann"):
            await store.traces(ANN).add(recalled(), KEPT)

        assert await names(store) == []

    async def test_an_ended_session_can_still_be_asked_in(self, store: Store) -> None:
        await meet(store, ANN)
        await store.owners.end_session("ann", "default")

        await store.traces(Scope("ann", session_id="default")).add(recalled("t"), KEPT)

        assert await names(store) == ["t"]

    async def test_the_same_again_is_no_new_row_and_another_is_refused(self, store: Store) -> None:
        await meet(store, ANN, BEN)
        await store.traces(ANN).add(recalled("t", body={"n": 1}), KEPT)
        before = (await dump(store.database))["traces"]

        await store.traces(ANN).add(recalled("t", body={"n": 1}), KEPT)
        for other in (recalled("t", body={"n": 2}), recalled("t", "else", body={"n": 1})):
            with pytest.raises(Conflict, match="'t' is already stored"):
                await store.traces(ANN).add(other, KEPT)

        assert (await dump(store.database))["traces"] == before
        await store.traces(BEN).add(recalled("t", "else"), KEPT)

    @pytest.mark.concurrent
    async def test_it_waits_for_another_writer(self, store: Store, location: str) -> None:
        await meet(store, ANN)

        async with writer_at_work(location):
            adding = asyncio.create_task(store.traces(ANN).add(recalled("t"), KEPT))
            await wait_for_blocked(store, 1)
            assert await names(store) == []

        await adding
        assert await names(store) == ["t"]

    @pytest.mark.concurrent
    async def test_many_at_once_beside_messages(self, store: Store) -> None:
        await meet(store, ANN)

        await asyncio.gather(
            *(store.traces(ANN).add(recalled(f"t{n}"), KEPT) for n in range(8)),
            *(store.timeline(ANN).add([said(f"m{n}")]) for n in range(8)),
        )

        assert sorted(await names(store)) == [f"t{n}" for n in range(8)]
        mark = await store.feed("ann").version()
        assert mark is not None
        assert mark.version == 9


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
    async def test_a_body_of_one_megabyte_is_kept_and_no_more(
        self, store: Store, filler: str
    ) -> None:
        await meet(store, ANN)
        size = measure_body({"k": filler}) - measure_body({"k": ""})
        room = BODY_BYTES - measure_body({"k": ""})
        largest = {"k": "y" * (room % size) + filler * (room // size)}
        assert measure_body(largest) == BODY_BYTES

        await store.traces(ANN).add(recalled("t", body=largest), KEPT)
        with pytest.raises(InvalidArgument, match=str(BODY_BYTES)):
            await store.traces(ANN).add(recalled(body={"k": largest["k"] + "y"}), KEPT)

        assert (await store.traces(ANN).get("t")).body == largest
        assert await names(store) == ["t"]

    async def test_days_out_of_range_are_refused(self, store: Store) -> None:
        await meet(store, ANN)

        async def refuse(days: int) -> None:
            with pytest.raises(InvalidArgument, match=str(days)):
                await store.traces(ANN).add(recalled(), days)

        await check_each_async([0, -1, 36_501, 10**12], refuse)

    def test_a_trace_that_no_engine_could_keep_cannot_be_made(self) -> None:
        def refuse(fields: dict[str, Any]) -> None:
            with pytest.raises(ValidationError, match=next(iter(fields))):
                recalled(**fields)

        check_each(IMPOSSIBLE, refuse, ascii)


class TestRead:
    async def test_latest_first_and_ties_by_id_whatever_the_page(self, store: Store) -> None:
        await meet(store, ANN)
        yesterday = days_ago(1)
        for number in reversed(range(7)):
            made = yesterday.replace(hour=number % 3, microsecond=1)
            await store.traces(ANN).add(recalled(f"t{number}", created_at=made), KEPT)

        expected = ["t2", "t5", "t1", "t4", "t0", "t3", "t6"]
        for limit in (1, 2, 3, 6, 7, 8, 200):
            assert await names(store, limit=limit) == expected

    async def test_a_page_has_no_bodies(self, store: Store) -> None:
        await meet(store, ANN)
        await store.traces(ANN).add(recalled("t", "tea?"), KEPT)

        (summary,) = (await store.traces(ANN).page()).items

        whole = asdict(await store.traces(ANN).get("t"))
        assert {**asdict(summary), "body": {"events": []}} == whole

    async def test_nobody_sees_anothers(self, store: Store) -> None:
        await meet(store, ANN, BEN)
        for scope in (ANN, BEN):
            for number in range(2):
                await store.traces(scope).add(recalled(f"{scope.user_id}{number}"), KEPT)

        assert sorted(await names(store, BEN)) == ["ben0", "ben1"]
        with pytest.raises(NotFound) as foreign:
            await store.traces(ANN).get("ben0")
        with pytest.raises(NotFound) as unknown:
            await store.traces(ANN).get("cay0")
        # Nothing tells a foreign id from one that does not exist.
        assert str(foreign.value).replace("ben0", "cay0") == str(unknown.value)
        assert await names(store, Scope("nobody")) == []

    async def test_a_bound_agent_filters_and_a_session_does_not(self, store: Store) -> None:
        one, two = Scope("ann", agent_id="a1", session_id="s1"), Scope("ann", agent_id="a2")
        await meet(store, ANN)
        for scope in (one, two):
            await store.traces(scope).add(recalled(str(scope.agent_id)), KEPT)

        assert await names(store, one) == ["a1"]
        assert await names(store, two) == ["a2"]
        assert sorted(await names(store, Scope("ann", session_id="s1"))) == ["a1", "a2"]
        with pytest.raises(NotFound):
            await store.traces(one).get("a2")

    async def test_a_cursor_of_another_list_is_refused(self, store: Store) -> None:
        await meet(store, ANN, BEN)
        for number in range(2):
            await store.traces(ANN).add(recalled(f"t{number}"), KEPT)
        await store.timeline(ANN).add([said("n")])
        cursor = (await store.traces(ANN).page(1)).next_cursor
        of_messages = (await store.timeline(ANN).page(page_size=1)).next_cursor

        attempts = [
            (BEN, cursor),
            (Scope("ann", agent_id="default"), cursor),
            (ANN, of_messages),
            (ANN, "forged"),
        ]
        for scope, foreign in attempts:
            with pytest.raises(InvalidArgument, match="cursor"):
                await store.traces(scope).page(1, foreign)

    async def test_a_limit_out_of_range_is_refused(self, store: Store) -> None:
        async def refuse(limit: int) -> None:
            with pytest.raises(InvalidArgument, match=str(limit)):
                await store.traces(ANN).page(limit)

        await check_each_async([0, -1, 201], refuse)


class TestRetention:
    async def test_a_new_trace_drops_the_users_old_ones(self, store: Store) -> None:
        await meet(store, ANN, BEN)
        for scope in (ANN, BEN):
            for age in (1, 6.9, 7.1, 40):
                old = recalled(f"{age}", created_at=days_ago(age))
                await store.traces(scope).add(old, 365)

        await store.traces(ANN).add(recalled("new"), 7)

        assert await names(store) == ["new", "1", "6.9"]
        assert await names(store, BEN) == ["1", "6.9", "7.1", "40"]

    async def test_a_new_trace_of_an_old_recall_stays(self, store: Store) -> None:
        await meet(store, ANN)

        await store.traces(ANN).add(recalled("old", created_at=days_ago(9)), 7)

        assert await names(store) == ["old"]

    async def test_a_refused_trace_drops_nothing(self, store: Store) -> None:
        await meet(store, ANN)
        await store.traces(ANN).add(recalled("old", created_at=days_ago(9)), KEPT)
        await store.traces(ANN).add(recalled("t"), KEPT)

        with pytest.raises(Conflict):
            await store.traces(ANN).add(recalled("t", "else"), 7)

        assert await names(store) == ["t", "old"]


class TestPurge:
    async def test_the_old_ones_of_all_go_and_the_rest_stays(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(owners_module, "LIST_SIZE", 2)
        monkeypatch.setattr(owners_module, "PURGE_SIZE", 2)
        scopes = [Scope(f"u{n}") for n in range(5)]
        await meet(store, *scopes)
        for scope in scopes[:3]:
            for age in range(1, 8):
                old = recalled(f"{age}", created_at=days_ago(age))
                await store.traces(scope).add(old, KEPT)
        await store.owners.set_user_enabled("u1", False)
        marks = [await store.feed(scope.user_id).version() for scope in scopes]

        assert await store.owners.purge_traces(days_ago(2.5)) == 15

        for scope in scopes[:3]:
            assert await names(store, scope) == ["1", "2"]
        assert [await store.feed(scope.user_id).version() for scope in scopes] == marks
        assert await store.owners.purge_traces(days_ago(2.5)) == 0

    async def test_an_empty_database(self, store: Store) -> None:
        assert await store.owners.purge_traces(datetime.now(UTC)) == 0


async def test_traces_are_counted(store: Store) -> None:
    await meet(store, ANN, BEN)
    await store.traces(ANN).add(recalled(), KEPT)

    assert [(await store.count(user))["traces"] for user in (None, "ann", "ben")] == [1, 1, 0]


async def test_recalls_that_speak_of_a_key(store: Store) -> None:
    await meet(store, ANN, BEN)
    kept = store.traces(ANN)
    spoken = {"keys": ["m_1", '记忆"%_']}
    for number, body in enumerate([spoken, {"keys": ["m_10"]}, spoken]):
        trace = recalled(f"t{number}", body=body, created_at=days_ago(3 - number))
        await kept.add(trace, KEPT)
    await store.traces(BEN).add(recalled("bens", body=spoken), KEPT)

    async def found(key: str, **more: int) -> list[str]:
        return [trace.trace_id for trace in await kept.find_mentions(key, **more)]

    assert await found("m_1") == ["t2", "t0"]
    assert await found('记忆"%_') == ["t2", "t0"]
    assert await found("m_%") == []
    assert await found("m_1", among=1) == ["t2"]
