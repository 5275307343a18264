"""A memory is bound to a scope, and what is bound from it never reaches further."""

from collections.abc import AsyncIterator

import pytest

from memrecall import Memory
from memrecall.errors import InvalidArgument, NotFound
from memrecall.memory import AsyncMemory
from memrecall.scope import Permission

from .conftest import settings_for
from .word_extractor import WordExtractor


@pytest.fixture
async def everybody(location: str) -> AsyncIterator[AsyncMemory]:
    """A memory for all users, with every permission."""
    async with AsyncMemory(
        settings=settings_for(location), extractor=WordExtractor(), permissions=Permission
    ) as opened:
        yield opened


async def listed(memory: AsyncMemory, user: str | None = None) -> list[str]:
    return [item["memory"] for item in (await memory.get_all(user))["results"]]


class TestBind:
    async def test_bind_narrows_scope_and_shares_resources(self, everybody: AsyncMemory) -> None:
        ann = everybody.bind(user_id="ann", actor="the kitchen")
        added = await ann.add("likes tea", infer=False)
        await ann.delete(added["results"][0]["id"])
        await ann.undo(added["results"][0]["id"])
        await ann.close()  # not its own to close

        assert await listed(everybody, "ann") == ["likes tea"]
        history = await everybody.history(added["results"][0]["id"])
        assert {step["actor_id"] for step in history[1:]} == {"the kitchen"}
        with pytest.raises(InvalidArgument, match="bound"):
            await ann.get_all("ben")
        with pytest.raises(InvalidArgument, match="bound"):
            ann.bind(user_id="ben")
        assert ann.bind(agent_id="a1", session_id="s1").agent_id == "a1"

    async def test_bind_cannot_add_permissions(self, everybody: AsyncMemory) -> None:
        ann = everybody.bind(user_id="ann", permissions=())
        await ann.add("a secret", infer=False, sensitive=True)
        assert await listed(ann) == []
        assert await listed(everybody, "ann") == ["a secret"]
        with pytest.raises(InvalidArgument, match="permission"):
            ann.bind(permissions=[Permission.SENSITIVE])

    async def test_job_is_visible_only_to_its_user(self, everybody: AsyncMemory) -> None:
        ann, ben = everybody.bind(user_id="ann"), everybody.bind(user_id="ben")
        job = (await ann.add("home: Paris.", background=True))["job_id"]
        assert (await ann.job(job, wait=True))["state"] == "done"
        assert (await everybody.job(job))["state"] == "done"
        with pytest.raises(NotFound):
            await ben.job(job)
        with pytest.raises(NotFound):
            await ben.job(job, wait=True)
        await everybody.erase("ann")
        with pytest.raises(NotFound):
            await ann.job(job)

    async def test_agent_binding_cannot_export_or_erase_user(self, everybody: AsyncMemory) -> None:
        await everybody.add("of another agent", "ann", "a2", infer=False)
        bound = everybody.bind(user_id="ann", agent_id="a1")
        with pytest.raises(InvalidArgument, match="agent"):
            await bound.erase()
        with pytest.raises(InvalidArgument, match="agent"):
            await bound.import_([])
        with pytest.raises(InvalidArgument, match="agent"):
            [line async for line in bound.export()]
        assert await listed(everybody, "ann") == ["of another agent"]


class TestDeleteAllByAgent:
    async def test_delete_all_without_user_covers_all_users(self, everybody: AsyncMemory) -> None:
        for user in ("ann", "ben", "cy"):
            await everybody.add(f"{user} of a1", user, "a1", "s1", infer=False)
            await everybody.add(f"{user} of a2", user, "a2", infer=False)
        library = (await everybody._open()).library
        await library.store.owners.set_user_enabled("cy", False)

        counted = await everybody.delete_all(agent_id="a1", dry_run=True)
        assert (counted["found"], counted["users"], counted["deleted"]) == (2, 2, 0)
        done = await everybody.delete_all(agent_id="a1")

        assert (done["deleted"], done["users"]) == (2, 2)
        assert await listed(everybody, "ann") == ["ann of a2"]
        assert await listed(everybody, "ben") == ["ben of a2"]
        assert len(await listed(everybody, "cy")) == 2  # nothing of a disabled user is changed

    async def test_delete_all_by_session(self, everybody: AsyncMemory) -> None:
        for user in ("ann", "ben"):
            await everybody.add("in s1", user, session_id="s1", infer=False)
            await everybody.add("in s2", user, session_id="s2", infer=False)
        assert (await everybody.delete_all(session_id="s1"))["deleted"] == 2
        assert await listed(everybody, "ann") == ["in s2"]

    async def test_delete_all_respects_bound_user(self, everybody: AsyncMemory) -> None:
        for user in ("ann", "ben"):
            await everybody.add("of a1", user, "a1", infer=False)
        assert (await everybody.bind(user_id="ann").delete_all(agent_id="a1"))["deleted"] == 1
        assert (await everybody.delete_all("ben", "a1"))["deleted"] == 1


def test_sync_memory_can_bind(tmp_path: object) -> None:
    with Memory(settings=settings_for(f"{tmp_path}/m.db")) as memory:
        ann = memory.bind(user_id="ann")
        ann.add("likes tea", infer=False)
        ann.close()
        assert memory.get_all("ann")["results"][0]["memory"] == "likes tea"
        assert (ann.user_id, memory.user_id) == ("ann", None)
