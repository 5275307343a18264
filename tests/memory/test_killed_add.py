"""The facts of an `add` in the background come, although its process was killed."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memrecall.extraction.protocol import Extracted, Utterance
from memrecall.memory import AsyncMemory
from memrecall.memory.results import AddedItems
from memrecall.scope import Permission, Scope
from memrecall.types import PROCEDURAL

from ..extractors import SentenceExtractor
from ..store.children import Child
from ..waiting import wait_until
from . import killed_add
from .conftest import make_settings

pytestmark = pytest.mark.concurrent
LEASE = "memrecall.memory.jobs.LEASE"


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


async def find_add(memory: Any) -> dict[str, Any]:
    return next(job for job in await memory.jobs() if job.get("kind") == "add")


async def resume(memory: AsyncMemory, of: Any = None) -> dict[str, Any]:
    """Let a process take up what is left; return the addition's job when it has ended."""
    await memory.resume()

    async def has_ended() -> bool:
        return (await find_add(of or memory))["state"] in ("done", "failed")

    await wait_until(has_ended)
    return await find_add(of or memory)


@pytest.mark.parametrize("late", [False, True])
async def test_next_process_derives_what_the_killed_one_was_asked_for(
    location: str, late: bool
) -> None:
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    options: dict[str, Any] = {"agent_id": "cook", "session_id": "s", "metadata": {"shelf": 3}}
    kill_an_add(location, late=late, sensitive=True, expires_at=expires_at, **options)
    async with open_memory(location) as memory:
        (left,) = await memory.jobs()
        assert (left["state"], left["kind"]) == ("failed", "add")  # nothing resumes here yet
        assert left["error"].startswith("its process ended")
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


class GatedExtractor(SentenceExtractor):
    """A model that answers when the test lets it."""

    def __init__(self) -> None:
        self.calls = 0
        self.gate = asyncio.Event()

    async def extract(self, utterances: Sequence[Utterance], **options: Any) -> Extracted:
        self.calls += 1
        await self.gate.wait()
        return await super().extract(utterances, **options)


async def start_add(memory: AsyncMemory, extractor: GatedExtractor) -> AddedItems:
    """Start an addition in the background; return once its model is asked."""
    started = await memory.add(killed_add.TEXTS, background=True)
    await wait_until(lambda: extractor.calls)
    return started


async def test_killed_process_on_another_machine_is_noticed_by_its_silence(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_an_add(location)
    monkeypatch.setattr("memrecall.memory.jobs._find_machine", lambda: ["another"])
    async with open_memory(location) as memory:
        assert (await find_add(memory))["state"] == "running"
        monkeypatch.setattr(LEASE, timedelta(0))
        assert (await resume(memory))["state"] == "done"


async def test_job_of_a_living_process_is_left_to_it(location: str) -> None:
    extractor, other = GatedExtractor(), GatedExtractor()
    other.gate.set()
    async with open_memory(location, extractor) as memory, open_memory(location, other) as second:
        started = await start_add(memory, extractor)
        extractions = (await second._open()).extractions
        assert await extractions._look()  # another process runs one
        assert other.calls == 0
        assert (await find_add(second))["state"] == "running"
        extractor.gate.set()
        job = await memory.job(started["job_id"], wait=True)
        assert [item["event"] for item in job["result"]["results"]] == ["ADD", "ADD"]
        assert not await extractions._look()
        (stored,) = await second.jobs()
        assert stored["result"] == job["result"]
        assert other.calls == 0


async def test_running_job_renews_its_claim(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrecall.memory.jobs._RENEWAL_SECONDS", 0.0)
    extractor = GatedExtractor()
    async with open_memory(location, extractor) as memory:
        await start_add(memory, extractor)
        store = (await memory._open()).library.store
        state = store.session_state(Scope("ann"))
        ((_, first),) = await state.jobs()

        async def is_renewed() -> bool:
            ((_, latest),) = await state.jobs()
            return latest.created_at > first.created_at and latest.number == first.number

        await wait_until(is_renewed)
        extractor.gate.set()


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
async def test_process_that_was_frozen_gives_its_job_up(
    location: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """The job belongs to the process that has taken it up, before the next renewal or after it."""
    monkeypatch.setattr("memrecall.memory.jobs._RENEWAL_SECONDS", seconds)
    extractor, other = GatedExtractor(), GatedExtractor()
    async with open_memory(location, extractor) as memory, open_memory(location, other) as second:
        started = await start_add(memory, extractor)
        with monkeypatch.context() as patch:
            patch.setattr(LEASE, timedelta(0))
            await second.resume()
            await wait_until(lambda: other.calls)
        other.gate.set()
        job = await resume(second)
        assert [item["event"] for item in job["result"]["results"]] == ["ADD", "ADD"]
        extractor.gate.set()
        await wait_until(lambda: not memory.running_jobs())
        assert await memory.job(started["job_id"]) == job  # not the result of its own
        assert len((await memory.get_all())["results"]) == 2


async def test_job_that_has_ended_is_not_taken_up(location: str) -> None:
    """Two services may find the same job; when the second one comes, the first is done."""
    extractor = GatedExtractor()
    extractor.gate.set()
    async with open_memory(location, extractor) as memory:
        started = await memory.add(killed_add.TEXTS, background=True)
        job = await memory.job(started["job_id"], wait=True)
        left = {"job_id": started["job_id"], "work": {"addition": {}, "receipt": {}}}
        await (await memory._open()).extractions._continue_addition("ann", left)
        (stored,) = await memory.jobs()
        assert (stored["state"], stored["result"]) == ("done", job["result"])
        assert extractor.calls == 1


async def test_without_a_model_a_left_job_has_failed(location: str) -> None:
    kill_an_add(location)
    async with AsyncMemory(user_id="ann", settings=make_settings(location)) as memory:
        await memory.resume()
        job = await find_add(memory)
        assert job["state"] == (await memory.job(job["job_id"]))["state"] == "failed"
        assert job["error"].startswith("its process ended")
