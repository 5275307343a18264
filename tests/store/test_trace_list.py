"""The list of recalls over several users: filters, pages, cost and what it hides."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.store import ListedTrace, Store, TraceOutcome, TraceQuery, traces
from tests.cases import check_each_async
from tests.counting import recorded_statements

from .samples import add_memory, new_message, new_trace

NOW = datetime.now(UTC).replace(microsecond=0)
USERS = ("ann", "ben", "李")
QUESTIONS = ("Which tea?", "我对什么过敏？", "100% of_it")
ALL = TraceQuery()


async def fill(store: Store, count: int = 24) -> None:
    """Store recalls of three users, with equal times."""
    for user in USERS:
        await store.timeline(Scope(user)).add([new_message("m")])
    for number in range(count):
        trace = new_trace(
            f"t{number:03}",
            QUESTIONS[number % 3],
            created_at=NOW - timedelta(minutes=number // 4),
            abstained=number % 5 == 0,
            stop_reason="model_failed" if number % 6 == 0 else "handoff",
        )
        scope = Scope(USERS[number % 3], agent_id=("a", "b")[number % 2])
        await store.traces(scope).add(trace, 30)


async def read(
    store: Store, query: TraceQuery = ALL, limit: int = 200, **options: Any
) -> list[ListedTrace]:
    """Return all items of a list, read page by page."""
    items: list[ListedTrace] = []
    cursor = None
    while True:
        page = await store.trace_list.page(query, limit, cursor, **options)
        assert len(page.items) <= limit
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items


def ids(items: Collection[ListedTrace]) -> list[str]:
    return [item.trace_id for item in items]


async def test_order_is_total_and_pages_do_not_change_it(store: Store) -> None:
    await fill(store)
    everything = await read(store)
    assert len(everything) == 24
    newest_first = sorted(
        everything, key=lambda i: (i.created_at, i.user_id, i.trace_id), reverse=True
    )
    for limit in (5, 24):
        assert ids(await read(store, limit=limit)) == ids(newest_first)


FILTERS: list[tuple[dict[str, Any], Any]] = [
    ({"text": "TEA"}, lambda item: "tea" in item.query),
    ({"text": "过敏"}, lambda item: "过敏" in item.query),
    ({"text": "100%"}, lambda item: "100%" in item.query),
    ({"text": "f_i"}, lambda item: "f_i" in item.query),
    ({"stop_reason": "model_failed"}, lambda item: item.stop_reason == "model_failed"),
    ({"abstained": True}, lambda item: item.abstained),
    ({"abstained": False}, lambda item: not item.abstained),
    (
        {"stop_reason": "handoff", "text": "tea"},
        lambda item: item.stop_reason == "handoff" and "tea" in item.query,
    ),
]


async def test_filters_select_and_pages_continue_behind_what_was_scanned(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store)
    everything = await read(store)

    async def check(case: tuple[dict[str, Any], Any]) -> None:
        fields, matches = case
        query = TraceQuery(**fields)
        expected = {item.trace_id for item in everything if matches(item)}
        assert 0 < len(expected) < 24
        in_order = ids(await read(store, query))
        assert set(in_order) == expected
        assert ids(await read(store, query, limit=2)) == in_order

    await check_each_async(FILTERS, check)
    monkeypatch.setattr(traces, "SCANNED_TRACES", 5)
    await check_each_async(FILTERS, check)


async def test_outcomes_are_those_of_the_listed_recalls_of_a_period(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store)
    since = NOW - timedelta(minutes=3)
    cases: list[dict[str, Any]] = [{}, {"users": ["ann", "李"]}, {"agent_id": "b"}, {"users": []}]
    for options in cases:
        listed = [item for item in await read(store, **options) if item.created_at >= since]
        assert await store.trace_list.outcomes(since, **options) == [
            TraceOutcome(item.stop_reason, item.abstained, item.seconds) for item in listed
        ]
    monkeypatch.setattr(traces, "SCANNED_TRACES", 5)
    assert len(await store.trace_list.outcomes(since)) == 5


async def test_page_without_a_match_has_a_next_page(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store)
    monkeypatch.setattr(traces, "SCANNED_TRACES", 8)
    first = await store.trace_list.page(TraceQuery(text="nowhere"), 10)
    assert (first.items, first.next_cursor is None) == ((), False)
    assert await read(store, TraceQuery(text="nowhere")) == []


async def test_list_has_only_the_users_and_the_agent_of_the_key(store: Store) -> None:
    await fill(store)
    everything = await read(store)

    async def check(users: tuple[str, ...]) -> None:
        for agent, limit in product((None, "b", "unknown"), (3, 200)):
            expected = [
                item
                for item in everything
                if item.user_id in users and agent in (None, item.agent_id)
            ]
            assert await read(store, limit=limit, users=users, agent_id=agent) == expected

    await check_each_async([("ann",), ("ann", "李"), ("nobody",), (), USERS], check)


async def test_new_recalls_do_not_move_the_next_page(store: Store) -> None:
    await fill(store)
    expected = await read(store)
    first = await store.trace_list.page(ALL, 10)
    await store.traces(Scope("ann")).add(new_trace("new"), 30)
    second = await store.trace_list.page(ALL, 200, first.next_cursor)
    assert [*first.items, *second.items] == expected


async def test_cursor_of_another_list_is_refused(store: Store) -> None:
    await fill(store)
    cursor = (await store.trace_list.page(ALL, 1)).next_cursor
    others: list[dict[str, Any]] = [
        {"query": TraceQuery(text="tea")},
        {"users": ("ann",)},
        {"agent_id": "a"},
    ]
    for other in others:
        with pytest.raises(InvalidArgument, match="cursor"):
            await store.trace_list.page(**{"query": ALL, "limit": 1, "cursor": cursor, **other})


async def test_question_that_is_a_hidden_message_is_neither_shown_nor_found(store: Store) -> None:
    await fill(store)
    secret = "my secret address is here"
    await store.timeline(Scope("ann")).add([new_message("s", secret)])
    await add_memory(store, "k", source_message_ids=("s",))
    await store.traces(Scope("ann")).add(new_trace("asked", secret), 30)
    await store.traces(Scope("ben")).add(new_trace("bens", secret), 30)
    assert len(await read(store, TraceQuery(text="secret"))) == 2
    await store.changes(Scope("ann")).delete(["k"], sources=True, actor="test")
    assert ids(await read(store, TraceQuery(text="secret"))) == ["bens"]
    assert {item.trace_id: item.query for item in await read(store)}["asked"] == ""


async def test_statements_do_not_grow_with_users_and_read_an_index(tmp_path: Path) -> None:
    async with await Store.open(str(tmp_path / "chat.db")) as store:
        await fill(store)
        for query in (ALL, TraceQuery(text="tea")):
            with recorded_statements() as statements:
                await store.trace_list.page(query, 10)
            assert len(statements) <= 4
        async with store.database.autocommit() as connection:
            for start in (None, (NOW, "ben", "t010")):
                window = traces.select_window(None, start, with_questions=True)
                compiled = traces.select_matches(window, TraceQuery(text="tea"), None, 10).compile(
                    connection.sync_engine, compile_kwargs={"literal_binds": True}
                )
                plan = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}")
                details = " / ".join(row[-1] for row in plan)
                assert "traces USING INDEX ix_traces_latest" in details, details
                assert "TEMP B-TREE" not in details.partition("ix_traces")[0], details
