"""A library on each database, with a little of what two users said."""

from collections.abc import AsyncIterator

import pytest

from memrecall.memory import Library
from memrecall.settings import Settings

from .stage import fill


@pytest.fixture
async def library(location: str) -> AsyncIterator[Library]:
    """A filled library: `ann` speaks English, `lin` Chinese."""
    settings = Settings(db=location, embedder="hash", snapshots=False)
    async with await Library.open(settings) as opened:
        await fill(opened)
        yield opened
