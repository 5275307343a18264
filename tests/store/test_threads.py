"""Threads: the messages that lead to a place in a session, along its branch."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.store.database.statements import new_id
from memrecall.types import NewMessage, Role

from ..cases import check_each_async, read_rows
from ..counting import recorded_parameters
from .samples import ANN, BEN, at, new_message
from .test_query_plans import explain

TEA = Scope("ann", session_id="tea")


async def thread(
    store: Store, before: str | None = None, *, limit: int = 1000, scope: Scope = TEA
) -> list[str]:
    """Return the ids of a thread of the session `tea`."""
    messages = await store.timeline(scope).thread(before, session_id="tea", limit=limit)
    return [message.message_id for message in messages]


def chain(*links: str) -> list[NewMessage]:
    """Return messages a minute apart, from texts like "child<parent" or "child"."""
    pairs = [link.partition("<") for link in links]
    return [
        new_message(name, ts=at(minute), parent_message_id=parent or None)
        for minute, (name, _, parent) in enumerate(pairs)
    ]


def with_answers(messages: list[NewMessage]) -> list[NewMessage]:
    """Return the messages; those whose ids begin with "bot" are the assistant's."""
    answer = {"role": Role.ASSISTANT}
    return [
        message.model_copy(update=answer) if str(message.message_id).startswith("bot") else message
        for message in messages
    ]


CASES = {name: (links, threads) for name, links, threads in read_rows("sessions", "threads")}


@pytest.mark.parametrize("name", CASES)
async def test_thread_follows_the_branch(store: Store, name: str) -> None:
    links, threads = CASES[name]
    await store.timeline(ANN.with_session("work")).add([new_message("else", ts=at(3))])
    await store.timeline(BEN.with_session("tea")).add([new_message("foreign")])
    await store.timeline(TEA).add(with_answers(chain(*links.split())))
    for before, expected in threads:
        assert await thread(store, before) == expected.split()
        assert await thread(store, before, limit=2) == expected.split()[-2:]


class TestSession:
    async def test_thread_is_sorted_by_time_then_sequence(self, store: Store) -> None:
        timeline = store.timeline(TEA)
        await timeline.add(
            [new_message("late", ts=at(9)), new_message("z"), new_message("b"), new_message("a")]
        )
        await timeline.add([new_message("early", ts=at(-9))])

        assert await thread(store) == ["early", "z", "b", "a", "late"]
        assert await thread(store, "b") == ["early", "z"]

    async def test_thread_returns_whole_messages(self, store: Store) -> None:
        await store.timeline(TEA).add(
            [new_message("m", "我不喝咖啡", speaker="Ann", metadata={"k": 1})]
        )

        (message,) = await store.timeline(ANN).thread(session_id="tea", limit=1)

        assert message == await store.timeline(ANN).get("m")


class TestScope:
    async def test_thread_excludes_other_users(self, store: Store) -> None:
        await store.timeline(TEA).add(chain("a", "b<shared"))
        await store.timeline(BEN.with_session("tea")).add(chain("shared", "c"))

        assert await thread(store) == ["a", "b"]
        assert await thread(store, scope=BEN) == ["shared", "c"]
        assert await thread(store, scope=Scope("nobody")) == []

    async def test_bound_agent_filters(self, store: Store) -> None:
        first_agent = Scope("ann", agent_id="a1", session_id="tea")
        second_agent = Scope("ann", agent_id="a2", session_id="tea")
        await store.timeline(first_agent).add(chain("a", "b", "c<b"))
        await store.timeline(second_agent).add(
            [new_message("x", ts=at(5)), new_message("y<", parent_message_id="c")]
        )
        await store.timeline(first_agent).add([new_message("d", ts=at(6), parent_message_id="x")])

        assert await thread(store, scope=first_agent) == ["a", "b", "c", "d"]
        assert await thread(store, scope=second_agent) == ["y<", "x"]
        assert await thread(store, scope=ANN) == ["a", "y<", "b", "c", "x", "d"]


MessageExample = tuple[int, int | None]  # when, and which message is the parent (some do not exist)
CONVERSATIONS = st.lists(
    st.tuples(st.integers(0, 6), st.none() | st.integers(0, 12)), min_size=1, max_size=11
)


def expected_thread(
    conversation: list[MessageExample], before: int | None, limit: int
) -> list[int]:
    """Compute a thread in the simplest way, one message back at a time."""
    order = sorted(range(len(conversation)), key=lambda number: (conversation[number][0], number))
    exists = before is not None and before < len(conversation)
    current, passed, messages = before if exists else None, {before}, list[int]()
    while len(messages) < limit:
        parent = None if current is None else conversation[current][1]
        if parent is None or parent in passed or parent >= len(conversation):
            earlier = order if current is None else order[: order.index(current)]
            candidates = [number for number in earlier if number not in passed]
            if not candidates:
                break
            parent = candidates[-1]
        current = parent
        passed.add(current)
        messages.append(current)
    return messages[::-1]


thread_examples = given(
    CONVERSATIONS, st.none() | st.integers(0, 12), st.integers(1, 12), st.sampled_from([1, 2, 3, 9])
)
few = settings(
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@thread_examples
@few
async def test_thread_agrees_with_a_simple_walk(
    store: Store, conversation: list[MessageExample], before: int | None, limit: int, page: int
) -> None:
    await compare_with_simple_walk(store, conversation, before, limit, page)


@pytest.mark.long
@thread_examples
@settings(few, max_examples=1_000, derandomize=False)
async def test_thread_agrees_with_a_simple_walk_on_many_examples(
    store: Store, conversation: list[MessageExample], before: int | None, limit: int, page: int
) -> None:
    await compare_with_simple_walk(store, conversation, before, limit, page)


async def compare_with_simple_walk(
    store: Store, conversation: list[MessageExample], before: int | None, limit: int, page: int
) -> None:
    scope = Scope(new_id("user"), session_id="tea")
    batch = [
        new_message(
            f"{n}", ts=at(minute), parent_message_id=None if parent is None else f"{parent}"
        )
        for n, (minute, parent) in enumerate(conversation)
    ]
    await store.timeline(scope).add(batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memrecall.store.timeline.NODES_PER_READ", page)
        messages = await thread(
            store, None if before is None else f"{before}", limit=limit, scope=scope
        )

    assert messages == [f"{number}" for number in expected_thread(conversation, before, limit)]


async def test_cost_does_not_grow_with_the_session(store: Store) -> None:
    async def check(case: tuple[int, bool]) -> None:
        length, linked = case
        scope = Scope(f"user {length} {linked}", session_id="tea")
        links = [f"{n}<{n - 1}" if linked and n else f"{n}" for n in range(length)]
        await store.timeline(scope).add(chain(*links))

        with recorded_parameters() as statements:
            messages = await thread(store, f"{length - 1}", limit=500, scope=scope)

        assert messages == [f"{n}" for n in range(length - 501, length - 1)]
        key_statements = [sql for sql, _ in statements if "messages.content" not in sql]
        # One statement for the message, three pages of keys, and one for all contents.
        assert len(key_statements) == 1 + 3
        assert len(statements) == len(key_statements) + 1

    await check_each_async(product([600, 1800], [False, True]), check)


async def test_sqlite_seeks_in_the_session_by_index(tmp_path: Path) -> None:
    async with await Store.open(str(tmp_path / "chat.db")) as store:
        await store.timeline(TEA).add(chain("a", "b", "x<a", "c<b"))
        with recorded_parameters() as statements:
            await thread(store, "c", limit=2)
        plans = [await explain(store, statement) for statement in statements]

    assert len(plans) > 2
    assert all(plan.startswith("SEARCH messages USING INDEX") for plan in plans), plans
    assert not any("B-TREE" in plan for plan in plans[1:]), plans
    index_use = "ix_messages_session_ts (user_id=? AND session_id=? AND (ts,sequence_no)<(?,?))"
    assert any(index_use in plan for plan in plans), plans
