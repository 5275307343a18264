"""A library on each database, with a little of what two users said."""

from collections.abc import AsyncIterator

import pytest

from memrecall.memory import Library
from memrecall.settings import Settings

from .stage import fill_memories, fill_messages


@pytest.fixture
async def said(location: str) -> AsyncIterator[Library]:
    """A library with messages alone: `ann` speaks English, `lin` Chinese."""
    settings = Settings(db=location, embedder="hash", snapshots=False)
    async with await Library.open(settings) as opened:
        await fill_messages(opened)
        yield opened


@pytest.fixture
async def library(said: Library) -> Library:
    """The same with memories of ann's."""
    await fill_memories(said)
    return said
