import asyncio
from collections.abc import Iterator

import pytest

from memrecall.embedding.local import LocalEmbedder

from .server import EmbeddingServer, serve


@pytest.fixture(scope="session")
def local() -> Iterator[LocalEmbedder]:
    """One for all tests, each of which has an event loop of its own: loading takes seconds."""
    embedder = LocalEmbedder()
    yield embedder
    asyncio.run(embedder.close())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve() as running:
        yield running
