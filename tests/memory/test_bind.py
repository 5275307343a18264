"""Memories bound to a scope, and further bindings that can only narrow it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from memrecall import Memory
from memrecall.errors import CallerError, InvalidArgument, NotFound
from memrecall.memory import AsyncMemory
from memrecall.scope import Permission

from ..cases import check_each_async
from .conftest import make_settings
from .word_extractor import WordExtractor


@pytest.fixture
async def unbound_memory(location: str) -> AsyncIterator[AsyncMemory]:
    """A memory for all users, with every permission."""
    async with AsyncMemory(
        settings=make_settings(location), extractor=WordExtractor(), permissions=Permission
    ) as memory:
        yield memory


async def list_memories(memory: AsyncMemory, user: str | None = None) -> list[str]:
    return [item["memory"] for item in (await memory.get_all(user))["results"]]


class TestBind:
    async def test_bind_narrows_scope_and_shares_resources(
        self, unbound_memory: AsyncMemory
    ) -> None:
        ann = unbound_memory.bind(user_id="ann", actor="the kitchen")
        result = await ann.add("likes tea", infer=False)
        await ann.delete(result["results"][0]["id"])
        await ann.undo(result["results"][0]["id"])
        await ann.close()  # closing a binding does not close the shared resources

        assert await list_memories(unbound_memory, "ann") == ["likes tea"]
        history = await unbound_memory.history(result["results"][0]["id"])
        assert {step["actor_id"] for step in history[1:]} == {"the kitchen"}
        with pytest.raises(InvalidArgument, match="bound"):
            await ann.get_all("ben")
        with pytest.raises(InvalidArgument, match="bound"):
            ann.bind(user_id="ben")
        assert ann.bind(agent_id="a1", session_id="s1").agent_id == "a1"

    async def test_bind_cannot_add_permissions(self, unbound_memory: AsyncMemory) -> None:
        ann = unbound_memory.bind(user_id="ann", permissions=())
        await ann.add("a secret", infer=False, sensitive=True)
        assert await list_memories(ann) == []
        assert await list_memories(unbound_memory, "ann") == ["a secret"]
        with pytest.raises(InvalidArgument, match="permission"):
            ann.bind(permissions=[Permission.SENSITIVE])

    async def test_job_is_visible_only_to_its_user(self, unbound_memory: AsyncMemory) -> None:
        ann, ben = unbound_memory.bind(user_id="ann"), unbound_memory.bind(user_id="ben")
        job = (await ann.add("home: Paris.", background=True))["job_id"]
        assert (await ann.job(job, wait=True))["state"] == "done"
        assert (await unbound_memory.job(job))["state"] == "done"
        with pytest.raises(NotFound):
            await ben.job(job)
        with pytest.raises(NotFound):
            await ben.job(job, wait=True)
        await unbound_memory.erase("ann")
        with pytest.raises(NotFound):
            await ann.job(job)

    async def test_job_can_be_read_in_another_process_until_its_memory_is_purged(
        self, unbound_memory: AsyncMemory, location: str
    ) -> None:
        ann = unbound_memory.bind(user_id="ann")
        job = (await ann.add("home: Paris.", background=True))["job_id"]
        done = await ann.job(job, wait=True)
        async with AsyncMemory(settings=make_settings(location)) as other:
            assert await other.bind(user_id="ann").job(job) == done
            with pytest.raises(NotFound):
                await other.bind(user_id="ben").job(job)
            await ann.purge(done["result"]["results"][0]["id"])
            with pytest.raises(NotFound):
                await other.bind(user_id="ann").job(job)

    async def test_agent_binding_cannot_export_or_erase_user(
        self, unbound_memory: AsyncMemory
    ) -> None:
        await unbound_memory.add("of another agent", "ann", "a2", infer=False)
        bound = unbound_memory.bind(user_id="ann", agent_id="a1")
        with pytest.raises(InvalidArgument, match="agent"):
            await bound.erase()
        with pytest.raises(InvalidArgument, match="agent"):
            await bound.import_([])
        with pytest.raises(InvalidArgument, match="agent"):
            [line async for line in bound.export()]
        assert await list_memories(unbound_memory, "ann") == ["of another agent"]


class TestDeleteAllByAgent:
    async def test_delete_all_without_user_covers_all_users(
        self, unbound_memory: AsyncMemory
    ) -> None:
        for user in ("ann", "ben", "cy"):
            await unbound_memory.add(f"{user} of a1", user, "a1", "s1", infer=False)
            await unbound_memory.add(f"{user} of a2", user, "a2", infer=False)
        library = (await unbound_memory._open()).library
        await library.store.owners.set_user_enabled("cy", False)

        dry_run = await unbound_memory.delete_all(agent_id="a1", dry_run=True)
        assert (dry_run["memories"], dry_run["messages"], dry_run["users"]) == (2, 2, 2)
        assert dry_run["deleted"] == 0
        result = await unbound_memory.delete_all(agent_id="a1")

        assert (result["memories"], result["messages"], result["users"]) == (2, 2, 2)
        assert await list_memories(unbound_memory, "ann") == ["ann of a2"]
        assert await list_memories(unbound_memory, "ben") == ["ben of a2"]
        assert (
            len(await list_memories(unbound_memory, "cy")) == 2
        )  # a disabled user's memories are unchanged

    async def test_delete_all_by_session(self, unbound_memory: AsyncMemory) -> None:
        for user in ("ann", "ben"):
            await unbound_memory.add("in s1", user, session_id="s1", infer=False)
            await unbound_memory.add("in s2", user, session_id="s2", infer=False)
        deleted = await unbound_memory.delete_all(session_id="s1")
        assert (deleted["memories"], deleted["messages"]) == (2, 2)
        assert await list_memories(unbound_memory, "ann") == ["in s2"]

    async def test_delete_all_respects_bound_user(self, unbound_memory: AsyncMemory) -> None:
        for user in ("ann", "ben"):
            await unbound_memory.add("of a1", user, "a1", infer=False)
        of_ann = await unbound_memory.bind(user_id="ann").delete_all(agent_id="a1")
        assert (of_ann["memories"], of_ann["messages"], of_ann["users"]) == (1, 1, 1)
        assert (await unbound_memory.delete_all("ben", "a1"))["deleted"] == 2


def test_sync_memory_can_bind(tmp_path: object) -> None:
    with Memory(settings=make_settings(f"{tmp_path}/m.db")) as memory:
        ann = memory.bind(user_id="ann")
        ann.add("likes tea", infer=False)
        ann.close()
        assert memory.get_all("ann")["results"][0]["memory"] == "likes tea"
        assert (ann.user_id, memory.user_id) == ("ann", None)


async def test_ids_that_are_not_strings_are_rejected(memory: AsyncMemory, location: str) -> None:
    """An integer raised TypeError, and `Memory(user_id="")` was bound to the default user."""

    async def check(value: Any) -> None:
        with pytest.raises(InvalidArgument, match="user_id"):
            AsyncMemory(settings=make_settings(location), user_id=value)
        with pytest.raises(InvalidArgument, match="user_id"):
            memory.bind(user_id=value)
        with pytest.raises(InvalidArgument, match="user_id"):
            await memory.add("likes tea", user_id=value)
        with pytest.raises(InvalidArgument, match="session_id"):
            await memory.add("likes tea", user_id="ann", run_id=value)

    await check_each_async([7, 0, 1.5, True, b"ann", ["ann"], {"a": 1}, ""], check)


async def test_caller_mistakes_are_value_errors(memory: AsyncMemory) -> None:
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: memory.search("tea"),
        lambda: memory.search(" ", user_id="ann"),
        lambda: memory.update("missing", "tea", user_id="ann"),
        lambda: memory.delete("missing", user_id="ann"),
        lambda: memory.get_all(user_id="ann", filters={"year": {"near": 1}}),
        lambda: memory.get_all(user_id="ann", limit="5"),  # type: ignore[arg-type]
        lambda: memory.search("tea", user_id="ann", limit=2.5),  # type: ignore[arg-type]
        lambda: memory.search("tea", user_id="ann", threshold="0.5"),  # type: ignore[arg-type]
        lambda: memory.state("500", user_id="ann"),  # type: ignore[arg-type]
    ]

    async def check(call: Callable[[], Awaitable[Any]]) -> None:
        with pytest.raises(ValueError, match=r".") as caught:
            await call()
        assert isinstance(caught.value, CallerError)

    await check_each_async(calls, check)
