"""The facts of an `add` in the background come, although its process was killed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memrecall.memory import AsyncMemory
from memrecall.scope import Permission, Scope
from memrecall.types import PROCEDURAL

from ..extractors import SentenceExtractor
from ..store.children import Child
from ..waiting import wait_until
from . import killed_add
from .conftest import make_settings

pytestmark = pytest.mark.concurrent


def kill_an_add(
    location: str, *, late: bool = False, space: str | None = None, **options: Any
) -> None:
    """Start an addition, and kill its process while a job derives the facts."""
    with Child(killed_add.add, location, options, late, space) as child:
        child.start()
        child.receive()


def open_memory(location: str, extractor: SentenceExtractor | None = None) -> AsyncMemory:
    return AsyncMemory(
        user_id="ann",
        settings=make_settings(location),
        extractor=extractor or SentenceExtractor(),
        permissions=Permission,
    )


async def resume(memory: AsyncMemory, of: Any = None) -> dict[str, Any]:
    """Let a process take up what is left; return the addition's job when it has ended."""
    await memory.resume()

    async def find() -> dict[str, Any]:
        jobs = await (of or memory).jobs()
        return next(job for job in jobs if job["kind"] == "add")

    async def has_ended() -> bool:
        return (await find())["state"] in ("done", "failed")

    await wait_until(has_ended)
    return await find()


@pytest.mark.parametrize("late", [False, True])
async def test_next_process_derives_what_the_killed_one_was_asked_for(
    location: str, late: bool
) -> None:
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    options: dict[str, Any] = {"agent_id": "cook", "session_id": "s", "metadata": {"shelf": 3}}
    kill_an_add(location, late=late, sensitive=True, expires_at=expires_at, **options)
    async with open_memory(location) as memory:
        (left,) = await memory.jobs()
        assert (left["state"], left["kind"]) == ("running", "add")
        assert "work" not in left
        assert (await memory.get_all())["results"] == []
        job = await resume(memory)
        assert (job["job_id"], job["state"]) == (left["job_id"], "done")
        assert [item["event"] for item in job["result"]["results"]] == ["ADD", "ADD"]
        assert job["result"]["stored"] == 2
        assert job["result"]["problems"] == []
        store = (await memory._open()).library.store
        scope = Scope("ann", permissions=frozenset(Permission))
        keys = [item["id"] for item in (await memory.get_all())["results"]]
        records = await store.memories(scope).get_many(keys)
        assert {record.content for record in records} == {"User lives in Rome.", "User likes tea."}
        for record in records:
            assert (record.agent_id, record.session_id) == ("cook", "s")
            assert (record.sensitive, record.metadata["shelf"]) == (True, 3)
            assert record.expires_at == expires_at
        await memory.resume()  # of a job that has ended
        assert len((await memory.get_all())["results"]) == 2


async def test_what_was_deleted_or_read_meanwhile_gives_nothing(location: str) -> None:
    kill_an_add(location)
    async with open_memory(location) as memory:
        rome = (await memory.search("Rome", kinds="messages"))["results"][0]
        await memory.delete_message(rome["id"])
        await memory.extract_stored()
        assert (await resume(memory))["result"]["results"] == []
        facts = [item["memory"] for item in (await memory.get_all())["results"]]
        assert facts == ["User likes tea."]


async def test_failure_of_the_next_process_is_told(location: str) -> None:
    kill_an_add(location, memory_type=PROCEDURAL)
    async with open_memory(location, FailingExtractor()) as memory:
        job = await resume(memory)
        assert job["result"]["problems"] == ["memories: RuntimeError: the model is not there"]


class FailingExtractor(SentenceExtractor):
    """A model that is not there."""

    async def summarise(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the model is not there")


async def test_addition_to_a_space_fails_at_once(location: str) -> None:
    kill_an_add(location, space="team")
    async with open_memory(location) as memory:
        job = await resume(memory, memory.space("team"))
        assert job["state"] == "failed"
        assert "its process ended" in job["error"]
