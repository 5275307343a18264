"""Several writers that change one user's memories at once leave what one writer would leave."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from memrecall.extraction.protocol import Extracted, KnownMemory
from memrecall.memory import AsyncMemory
from tests.databases import Databases
from tests.extractors import SentenceExtractor
from tests.store.children import run_together
from tests.store.process import Report

from .conftest import make_settings
from .word_extractor import WordExtractor

PLACES = ("Porto", "Oslo", "Faro", "Bern", "Rome", "Lima", "Cairo", "Quito")
SENTENCES = ("I live in {}.", "我住在{}。")
DAY = "2026-10-01T09:00:00Z"


def open_memory(location: str) -> AsyncMemory:
    return AsyncMemory(settings=make_settings(location), extractor=SentenceExtractor())


async def add_home(report: Report, location: str, text: str, options: dict[str, Any]) -> None:
    """Open a memory and add one message to it."""
    async with open_memory(location) as memory:
        report((await memory.add(text, "ann", **options))["problems"])


async def read_homes(memory: AsyncMemory) -> tuple[list[str], list[str]]:
    """Return the homes that the memories say are current, and those of the graph."""
    items = (await memory.get_all("ann"))["results"]
    relations = (await memory.graph("user", "ann"))["relations"]
    known = [place for item in items for place in PLACES if place in item["memory"]]
    assert len(known) == len(items)
    return known, [item["destination"] for item in relations]


async def check_one_home(memory: AsyncMemory) -> None:
    """Check that one home is current, and that the others are its history."""
    known, related = await read_homes(memory)
    assert len(known) == 1
    assert related == known
    items = (await memory.get_all("ann", superseded=True))["results"]
    assert len(items) == len(PLACES)
    assert sum(item["superseded_by"] is None for item in items) == 1


async def write_in_processes(location: str, sentence: str, **options: Any) -> None:
    homes = [(location, sentence.format(place), options) for place in PLACES]
    assert await asyncio.to_thread(run_together, add_home, homes) == [[[]]] * len(PLACES)
    async with open_memory(location) as memory:
        await check_one_home(memory)


@pytest.mark.concurrent
@pytest.mark.service
async def test_eight_processes_leave_one_home(location: str) -> None:
    await write_in_processes(location, SENTENCES[0])


@pytest.mark.long
async def test_eight_processes_leave_one_home_every_time(databases: Databases) -> None:
    for number in range(10):
        options = {"timestamp": DAY} if number % 4 > 1 else {}
        await write_in_processes(databases.fresh(), SENTENCES[number % 2], **options)


@pytest.mark.parametrize("options", [{}, {"timestamp": DAY}], ids=["now", "same time"])
@pytest.mark.parametrize("sentence", SENTENCES, ids=["en", "zh"])
async def test_eight_memories_leave_one_home(
    location: str, sentence: str, options: dict[str, Any]
) -> None:
    async with AsyncExitStack() as stack:
        memories = [await stack.enter_async_context(open_memory(location)) for _ in PLACES]
        texts = [sentence.format(place) for place in PLACES]
        results = await asyncio.gather(
            *(m.add(text, "ann", **options) for m, text in zip(memories, texts, strict=True))
        )
        assert [result["problems"] for result in results] == [[]] * len(PLACES)
        await check_one_home(memories[0])


class InterruptedExtractor(WordExtractor):
    """An extractor while whose first answers another writer stores a home."""

    def __init__(self, other: AsyncMemory, places: list[str]) -> None:
        super().__init__()
        self._other = other
        self._places = iter(places)
        self.seen: list[list[str]] = []

    async def extract(
        self, *arguments: Any, known: Sequence[KnownMemory] = (), **options: Any
    ) -> Extracted:
        self.seen.append([memory.text for memory in known])
        if place := next(self._places, None):
            await self._other.add(f"home: {place}.", "ann")
        return await super().extract(*arguments, known=known, **options)


@pytest.mark.parametrize("interruptions", [0, 1, 3])
async def test_decision_is_made_again_when_memories_have_changed(
    memory: AsyncMemory, location: str, interruptions: int
) -> None:
    extractor = InterruptedExtractor(memory, list(PLACES[:interruptions]))
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as slow:
        assert not (await slow.add("home: Paris.", "ann"))["problems"]
    assert extractor.seen == [
        [],
        *([f"user's home is {place}"] for place in PLACES[:interruptions]),
    ]
    assert [item["memory"] for item in (await memory.get_all("ann"))["results"]] == [
        "user's home is Paris"
    ]


async def test_decision_is_given_up_while_others_write_all_the_time(
    memory: AsyncMemory, location: str
) -> None:
    extractor = InterruptedExtractor(memory, [f"place {number}" for number in range(100)])
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as slow:
        result = await slow.add("home: Paris.", "ann")
    (problem,) = result["problems"]
    assert problem.startswith("memories: OutdatedPlan: other writers change the memories")
    assert result["stored"] == 1
    assert len(extractor.seen) == 20
