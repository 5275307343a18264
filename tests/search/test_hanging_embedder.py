"""A request behind an embedder that hangs answers by words, within its deadline."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memrecall.embedding import base
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.settings import Settings
from memrecall.store import Store
from memrecall.timing import deadline
from memrecall.types import NewMessage, Role

from ..server.test_deadlines import Clock

SECONDS = 100.0
ANN = Scope("ann")
TEXTS = ["My sister lives in Lisbon", "I like green tea", "It rained all day", "See you"]


class HangingEmbedder:
    """An embedder that answers nobody, whose callers learn of it when they have waited."""

    model = "hash-64"
    dimensions = 64

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.waits = 0

    async def embed(self, texts: Sequence[str]) -> Any:
        self.waits += 1
        self.clock.advance(SECONDS / 2)
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        pass


@pytest.fixture
async def library(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Library]:
    # A shorter wait says little about the embedder: other requests still ask it.
    monkeypatch.setattr(base, "_HANGING_SECONDS", 10 * SECONDS)
    embedder = HangingEmbedder(Clock(monkeypatch))
    settings = Settings(db=location, cache_dir=str(tmp_path))
    async with Library(await Store.open(location), embedder, settings) as library:
        library.engine._seconds = SECONDS
        said = [NewMessage(role=Role.USER, content=text) for text in TEXTS]
        await library.store.timeline(ANN).add(said)
        yield library
        await library.vectors.close(0.0)


async def test_request_waits_once(library: Library) -> None:
    embedder: Any = library.embedder
    for waits in (1, 2):
        with deadline(SECONDS):
            for query in ("my sister", "green tea", "rain"):
                page = await library.search(ANN, SearchRequest(f"{query} {waits}"))
                assert page.results
                assert page.embedder_failure
        assert embedder.waits == waits
