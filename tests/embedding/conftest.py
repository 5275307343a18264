import asyncio
from collections.abc import Iterator

import pytest

from memrecall.embedding.embedders import LocalEmbedder

from .embedding_server import EmbeddingServer, serve


@pytest.fixture
def loaded_model() -> None:
    """Let these tests load the weights themselves."""


@pytest.fixture(scope="session")
def local_embedder() -> Iterator[LocalEmbedder]:
    """A local embedder shared by all tests, because loading takes seconds."""
    embedder = LocalEmbedder()
    yield embedder
    asyncio.run(embedder.close())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve() as running:
        yield running
