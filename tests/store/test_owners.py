"""Agents, users and sessions: lists, status changes and erasure."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from memrecall.errors import Conflict, Disabled, InvalidArgument, NotFound
from memrecall.scope import Permission, Scope
from memrecall.store import NewKnowledge, Store, StoredSession
from memrecall.store.database.cursors import KeyedPage
from memrecall.types import Role

from ..cases import check_each_async
from .samples import ANN, BEN, add_memory, at, ids, new_message, new_trace

NAMES = ["B", "a", "é", "甲", "😀"]


async def collect(
    key: str, list_page: Callable[..., Awaitable[KeyedPage[Any]]], limit: int
) -> list[str]:
    """Return all keys of a list, read page by page."""
    keys: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await list_page(after=after, limit=limit)
        assert len(page.items) <= limit
        keys.extend(item[key] for item in page.items)
        assert len(set(keys)) == len(keys), "a page repeats"
        after = page.next_after
    return keys


class TestLists:
    async def test_lists_are_sorted_by_id_and_paged(self, store: Store) -> None:
        for name in reversed(NAMES):
            await store.timeline(Scope(name, agent_id=name)).add([new_message("m")])
            await store.timeline(Scope("ann", agent_id="B", session_id=name)).add(
                [new_message(name)]
            )
        owners = store.owners

        for limit in (1, 2, 5, 100):
            assert await collect("agent_id", owners.list_agents, limit) == NAMES
            users = await collect("user_id", owners.list_users, limit)
            assert users == sorted([*NAMES, "ann"], key=str.encode)
            sessions = await collect("session_id", partial(owners.list_sessions, "ann"), limit)
            assert sessions == NAMES

    async def test_sessions_are_sorted_by_their_last_message(self, store: Store) -> None:
        for number, (name, minutes) in enumerate({"b": (5, 1), "a": (1, 9), "c": (5,)}.items()):
            timeline = store.timeline(Scope("ann", f"agent{number % 2}", name))
            await timeline.add(
                [
                    new_message(f"{name}{minute}", f"{name} at {minute}", ts=at(minute))
                    for minute in minutes
                ]
            )
        answer = new_message("b0", "Good morning!", role=Role.ASSISTANT, ts=at(0))
        await store.timeline(Scope("ann", "agent0", "b")).add([answer])
        await store.timeline(Scope("ben", session_id="d")).add([new_message("d1")])

        listed: list[StoredSession] = []
        cursor = None
        for _ in range(3):
            page = await store.session_list(ANN).page(1, cursor)
            listed += page.items
            cursor = page.next_cursor
        assert cursor is None
        assert [(item.session_id, item.last_time, item.messages) for item in listed] == [
            ("a", at(9), 2),
            ("b", at(5), 3),
            ("c", at(5), 1),
        ]
        assert [item.opening for item in listed] == ["a at 1", "b at 1", "c at 5"]

        of_agent = await store.session_list(Scope("ann", "agent1")).page(9)
        assert [item.session_id for item in of_agent.items] == ["a"]
        with pytest.raises(InvalidArgument, match="cursor"):
            await store.session_list(BEN).page(1, page.next_cursor or "forged")

    async def test_hidden_messages_do_not_describe_their_session(self, store: Store) -> None:
        timeline = store.timeline(Scope("ann", session_id="s"))
        await timeline.add([new_message("m1", "a secret"), new_message("m2", "tea", ts=at(3))])
        await add_memory(store, "k", scope=ANN, source_message_ids=("m1",))
        await store.changes(ANN).delete(["k"], actor="test", sources=True)

        (item,) = (await store.session_list(ANN).page(5)).items

        assert (item.messages, item.opening, item.last_time) == (1, "tea", at(3))

    async def test_lists_are_of_one_agent_and_hide_internal_columns(self, store: Store) -> None:
        await store.timeline(Scope("ann", "a1", "s1")).add([new_message("m"), new_message("n")])
        await store.timeline(Scope("ben", "a2")).add([new_message("m")])

        (user,) = (await store.owners.list_users("a2")).items
        (session,) = (await store.owners.list_sessions("ann")).items

        assert (user["user_id"], {"epoch", "version"} & set(user)) == ("ben", set())
        assert (session["session_id"], session["last_sequence_no"]) == ("s1", 2)
        assert "last_create_time" not in session
        assert (await store.owners.list_users("nobody")).items == ()
        assert (await store.owners.list_sessions("cay")).items == ()


class TestStatus:
    async def test_disabling_changes_status_and_update_time_only(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        await store.timeline(BEN).add([new_message("m")])
        ann, ben = (await store.owners.list_users()).items

        before = datetime.now(UTC)
        await store.owners.set_user_enabled("ann", False)

        changed, other_user = (await store.owners.list_users()).items
        assert other_user == ben
        assert changed == {**ann, "status": 0, "update_time": changed["update_time"]}
        assert before <= changed["update_time"] <= datetime.now(UTC)

    async def test_disabled_user_or_agent_is_refused_until_enabled(self, store: Store) -> None:
        scope = Scope("ann", agent_id="helper")
        await store.timeline(scope).add([new_message("m")])

        await store.owners.set_agent_enabled("helper", False)
        with pytest.raises(Disabled, match="memrecall agents enable helper"):
            await store.read_version(scope)
        for other in (ANN, Scope("ann", agent_id="unknown")):
            assert await store.read_version(other) is not None
        await store.owners.set_agent_enabled("helper", True)
        await store.owners.set_user_enabled("ann", False)
        with pytest.raises(Disabled, match="memrecall users enable ann"):
            await store.read_version(scope)
        await store.owners.set_user_enabled("ann", True)

        assert await store.read_version(scope) is not None

    async def test_ended_session_has_an_end_time_and_keeps_messages(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])

        before = datetime.now(UTC)
        await store.owners.end_session("ann", "default")

        (session,) = (await store.owners.list_sessions("ann")).items
        assert session["status"] == 0
        assert before <= session["end_time"] <= datetime.now(UTC)
        assert await ids(store.timeline(ANN)) == ["m"]

    async def test_set_time_zone_changes_the_version(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])

        await store.owners.set_time_zone("ann", "Asia/Shanghai")
        for unknown in ("Mars/Base", "../etc/passwd", "", "A" * 300, "a\0b"):
            with pytest.raises(InvalidArgument):
                await store.owners.set_time_zone("ann", unknown)

        version = await store.feed("ann").version()
        assert version is not None
        assert version.time_zone == "Asia/Shanghai"


async def test_unknown_owner_is_not_found_and_not_created(store: Store) -> None:
    await store.timeline(BEN).add([new_message("m")])
    owners = store.owners
    attempts: list[Awaitable[Any]] = [
        owners.set_agent_enabled("nobody", True),
        owners.set_user_enabled("nobody", True),
        owners.set_time_zone("nobody", "UTC"),
        owners.end_session("nobody", "default"),
        owners.end_session("ben", "nothing"),
        owners.erase_agent("nobody"),
        owners.erase_user("nobody"),
        owners.erase_session("nobody", "default"),
        owners.erase_session("ben", "nothing"),
    ]

    for attempt in attempts:
        with pytest.raises(NotFound, match="memrecall"):
            await attempt

    counts = await store.count()
    assert (counts["agents"], counts["users"], counts["sessions"]) == (1, 1, 1)


HELPER = Scope("ann", agent_id="helper", session_id="s")
OF_HELPER: dict[str, Callable[[Store], Awaitable[object]]] = {
    "users": lambda store: store.timeline(HELPER).add([new_message("m")]),
    "sessions": lambda store: store.timeline(HELPER).add([new_message("n")]),
    "traces": lambda store: store.traces(HELPER).add(new_trace(), keep_days=30),
}


async def test_agent_is_erased_once_nothing_belongs_to_it(store: Store) -> None:
    async def refuse(kind: str) -> None:
        if kind != "users":  # of another agent
            await store.timeline(ANN).add([new_message("m")])
        await OF_HELPER[kind](store)
        with pytest.raises(Conflict, match=f"'helper' still has {kind}"):
            await store.owners.erase_agent("helper")
        await store.owners.erase_user("ann")

    await check_each_async(OF_HELPER, refuse)
    await store.owners.erase_agent("helper")
    assert "helper" not in [a["agent_id"] for a in (await store.owners.list_agents()).items]


async def test_find_users_matches_a_prefix(store: Store) -> None:
    for user in ("ann", "anna", "An", "ben", "安娜", "100%", "100_"):
        await store.timeline(Scope(user)).add([new_message("m")])

    assert await store.owners.find_users("ann") == ["ann", "anna"]
    assert await store.owners.find_users("安") == ["安娜"]
    assert await store.owners.find_users("100%") == ["100%"]
    assert await store.owners.find_users("", limit=3) == ["100%", "100_", "An"]
    assert await store.owners.find_users("zoe") == []


async def test_get_session(store: Store) -> None:
    await store.timeline(Scope("ann", "helper", "s1")).add([new_message("m")])
    record = await store.owners.get_session("ann", "s1")
    assert (record["session_id"], record["last_sequence_no"]) == ("s1", 1)
    assert await store.owners.get_session("ann", "s1", agent_id="helper") == record
    for user, session, agent in (("ann", "s2", None), ("ben", "s1", None), ("ann", "s1", "other")):
        with pytest.raises(NotFound):
            await store.owners.get_session(user, session, agent_id=agent)


async def test_estimate_counts_of_small_tables_is_exact(store: Store) -> None:
    await store.timeline(ANN).add([new_message("a"), new_message("b")])
    allowed = replace(ANN, permissions=frozenset({Permission.KNOWLEDGE}))
    await store.knowledge(allowed).add(NewKnowledge("twice a day"))
    counts = {"users": 1, "messages": 2, "memories": 0, "knowledge": 1}
    assert await store.estimate_counts() == counts
