"""Summaries follow: an `add` does not wait for what a session has gathered before."""

import asyncio
from datetime import UTC, datetime, timedelta
from unittest.mock import AsyncMock

import pytest

from memrecall.extraction.protocol import Summary
from memrecall.library.library import Library
from memrecall.memory import AsyncMemory
from memrecall.memory.summaries import MESSAGES_PER_SUMMARY, SUMMARIES_PER_CHUNK, SessionSummaries
from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.types import NewMessage, Role

from .conftest import make_settings
from .word_extractor import WordExtractor

ANN = Scope("ann", session_id="s")
PIECE = MESSAGES_PER_SUMMARY * SUMMARIES_PER_CHUNK
LIMIT = 60.0  # seconds, for a machine that is busy


class GatedExtractor(WordExtractor):
    """Summarises while its gate is open, which it closes after some summaries."""

    def __init__(self, close_after: int = 0, failures: int = 0) -> None:
        super().__init__()
        self.gate, self.asked = asyncio.Event(), asyncio.Event()
        self.summaries, self.close_after, self.failures = 0, close_after, failures

    async def summarise(
        self, lines: object, limit_characters: int, language: object = None
    ) -> Summary:
        self.asked.set()
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no summary")
        await self.gate.wait()
        self.summaries += 1
        if self.summaries == self.close_after:
            self.gate.clear()
        return Summary(f"summary {self.summaries}")


async def import_chat(memory: AsyncMemory, count: int, text: str = "line") -> None:
    library: Library = (await memory._open()).library
    start = datetime(2026, 1, 1, tzinfo=UTC)
    await library.add_messages(
        ANN,
        [
            NewMessage(content=f"{text} {n}", role=Role.USER, ts=start + timedelta(minutes=n))
            for n in range(count)
        ],
    )


async def wait_for_job(memory: AsyncMemory, state: str) -> dict[str, object]:
    async with asyncio.timeout(LIMIT):
        while True:
            jobs = await memory.jobs("ann")
            if jobs and jobs[0]["state"] == state:
                return jobs[0]
            await asyncio.sleep(0.01)


def open_memory(location: str, extractor: WordExtractor) -> AsyncMemory:
    return AsyncMemory(user_id="ann", settings=make_settings(location), extractor=extractor)


async def test_add_returns_before_an_imported_session_is_summarised(location: str) -> None:
    extractor = GatedExtractor()
    async with open_memory(location, extractor) as memory:
        await import_chat(memory, 3 * PIECE)
        async with asyncio.timeout(LIMIT):  # An `add` that waited for the gate would never end.
            report = await memory.add("the last line", "ann", session_id="s")
            await extractor.asked.wait()
        assert (report["stored"], report["problems"]) == (1, [])
        assert await memory.jobs("ann") == []  # The first piece is no job.

        extractor.gate.set()
        job = await wait_for_job(memory, "done")
        assert (job["kind"], job["session_id"]) == ("summaries", "s")
        assert (await memory.job(str(job["job_id"])))["state"] == "done"
        summaries = (await memory.summarize("ann", session_id="s", whole=False))["results"]
        levels = [summary["level"] for summary in summaries]
        counts = {level: levels.count(level) for level in ("turns", "chunk", "session")}
        assert counts == {"turns": 3 * SUMMARIES_PER_CHUNK, "chunk": 3, "session": 3}


@pytest.mark.parametrize("is_killed", [False, True])
async def test_work_that_was_stopped_goes_on_in_a_later_process(
    location: str, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    extractor = GatedExtractor(close_after=SUMMARIES_PER_CHUNK + 2)  # with a chunk and the session
    extractor.gate.set()
    with monkeypatch.context() as patch:
        async with open_memory(location, extractor) as memory:
            await import_chat(memory, 3 * PIECE)
            await memory.add("the last line", "ann", session_id="s")
            await wait_for_job(memory, "running")
            if is_killed:
                patch.setattr("memrecall.memory.jobs._Claim.save_end", AsyncMock())
    async with await Store.open(location) as store:
        turns = [s for s in await store.session_state(ANN).summaries() if s.level == 0]
        assert len(turns) == SUMMARIES_PER_CHUNK  # what the first piece made
        message = NewMessage(role=Role.USER, content="hello")
        for number in range(101):  # were active later
            await store.timeline(Scope(f"user {number}")).add([message])

    if is_killed:  # after it ran for long
        monkeypatch.setattr("memrecall.memory.jobs.LEASE", timedelta(0))
    extractor.gate.set()
    async with open_memory(location, extractor) as memory:
        (job,) = await memory.jobs("ann")
        assert job["state"] == "waiting"
        await memory.resume()
        assert (await wait_for_job(memory, "done"))["job_id"] == job["job_id"]
        assert (await memory.summarize("ann", session_id="s", whole=False))["new"] == 0


async def test_piece_ends_after_some_characters(location: str) -> None:
    """What a piece takes depends on its characters: thirty long messages took seconds."""
    async with open_memory(location, extractor := WordExtractor()) as memory:
        await import_chat(memory, PIECE, "line " * 100)
        summaries = SessionSummaries((await memory._open()).library.store, ANN, extractor)
        pieces = [len(await summaries.update_piece()) for _ in range(SUMMARIES_PER_CHUNK)]
        assert pieces == [1, 1, 1, 1, 3]  # with the chunk and the session
        assert not summaries.has_more


async def test_failing_extractor_is_tried_again_with_the_next_message(location: str) -> None:
    extractor = GatedExtractor(failures=1)
    extractor.gate.set()
    async with open_memory(location, extractor) as memory:
        await import_chat(memory, MESSAGES_PER_SUMMARY)
        assert (await memory.add("one more", "ann", session_id="s"))["problems"] == []
        async with asyncio.timeout(LIMIT):
            await extractor.asked.wait()
        await memory.add("and another", "ann", session_id="s")
        summaries = await memory.summarize("ann", session_id="s", whole=False)
        assert (summaries["new"], len(summaries["results"])) == (0, 1)
