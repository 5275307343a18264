"""Libraries with a few messages of a user and of a team."""

from collections.abc import AsyncIterator, Iterator

import pytest

from memrecall.memory import Library
from memrecall.settings import Settings

from ..conftest import Populate
from ..model.openai_server import ModelServer, serve
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


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve() as model_server:
        yield model_server
