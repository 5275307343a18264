"""Libraries with a few messages of a user and of a team."""

from collections.abc import AsyncIterator

import pytest

from memrecall.memory import Library
from memrecall.settings import Settings

from ..conftest import Populate
from ..model.conftest import server as server
from .chat_helpers import fill


@pytest.fixture
def populate() -> Populate:
    return fill


@pytest.fixture
async def semantic_library(location: str) -> AsyncIterator[Library]:
    """A library with the local embedder, so that search ranks by meaning."""
    settings = Settings(db=location, embedder="local", snapshots=False)
    async with await Library.open(settings) as library:
        await fill(library)
        await library.vectors.settle()
        yield library
