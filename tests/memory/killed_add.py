"""A process that is killed while a model reads what it has stored."""

import asyncio
from collections.abc import Sequence
from typing import Any

from memrecall.extraction.protocol import Extracted, Utterance
from memrecall.memory import AsyncMemory
from memrecall.timing import deadline

from ..extractors import SentenceExtractor
from ..store.process import Report
from ..waiting import wait_until
from .conftest import make_settings

TEXTS = ["I live in Rome.", "I like tea."]


class HangingExtractor(SentenceExtractor):
    """A model that never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def extract(self, utterances: Sequence[Utterance], **options: Any) -> Extracted:
        del utterances, options
        extracted: Extracted = await self.wait()
        return extracted

    async def summarise(self, *_: Any, **__: Any) -> Any:
        return await self.wait()

    async def wait(self) -> Any:
        self.asked.set()
        return await asyncio.get_running_loop().create_future()


async def add(
    report: Report, location: str, options: dict[str, Any], late: bool, space: str | None
) -> None:
    """Add messages, report once the model reads them in a job, and wait to be killed."""
    extractor = HangingExtractor()
    memory = AsyncMemory(user_id="ann", settings=make_settings(location), extractor=extractor)
    target: Any = memory
    if space is not None:
        await memory.create_space(space)
        target = memory.space(space)
    with deadline(600.0):
        adding = asyncio.create_task(target.add(TEXTS, background=not late, **options))
        await extractor.asked.wait()
        if late:  # as at the deadline
            adding.cancel()
        await asyncio.wait([adding])
    await wait_until(target.jobs)
    report("the model reads")
    await extractor.wait()
