"""Embedding of questions: together, with a deadline, and never one for another."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from memrecall.embedding.embedders import HashEmbedder
from memrecall.errors import EmbedderFailed
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.search.engine import SearchEngine
from memrecall.search.index.cache import IndexCache
from memrecall.types import NewMessage, Role

ANN = Scope("ann")


class RecordingEmbedder(HashEmbedder):
    """Records its batches; fails if one holds a forbidden text, and never answers another."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.busy = asyncio.Event()
        self.release = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> Any:
        self.batches.append(list(texts))
        if "broken" in texts:
            raise EmbedderFailed("cannot embed this")
        if "endless" in texts:
            await asyncio.Event().wait()
        if "slow" in texts:
            self.busy.set()
            await self.release.wait()
        return await super().embed(texts)


async def make_engine(library: Library, seconds: float = 60.0) -> tuple[SearchEngine, Any]:
    await library.add_messages(ANN, [NewMessage(role=Role.USER, content="I drink green tea")])
    await library.vectors.settle()
    embedder = RecordingEmbedder()
    cache = IndexCache(embedder.model, None, 10**9)
    return SearchEngine(library.store, embedder, cache, embedder_seconds=seconds), embedder


async def test_questions_that_wait_are_embedded_together(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.search.engine._REQUESTS_AT_ONCE", 1)
    engine, embedder = await make_engine(library)
    questions = [f"question {number}" for number in range(8)]
    first = asyncio.create_task(engine.embed_query("slow"))
    await embedder.busy.wait()
    waiting = [asyncio.create_task(engine.embed_query(question)) for question in questions]
    await asyncio.sleep(0)
    embedder.release.set()
    vectors = await asyncio.gather(*waiting)

    assert embedder.batches == [["slow"], questions]
    expected = await HashEmbedder().embed(["slow", *questions])
    np.testing.assert_array_equal(np.stack([await first, *vectors]), expected)


async def test_slow_question_makes_no_other_wait(library: Library) -> None:
    engine, embedder = await make_engine(library)
    slow = asyncio.create_task(engine.embed_query("slow"))
    await embedder.busy.wait()

    await asyncio.gather(*(engine.embed_query(f"question {number}") for number in range(30)))

    assert not slow.done()
    embedder.release.set()
    await slow


async def test_question_that_fails_leaves_the_others_their_vectors(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.search.engine._REQUESTS_AT_ONCE", 1)
    engine, embedder = await make_engine(library)

    first = asyncio.create_task(engine.embed_query("slow"))
    await embedder.busy.wait()
    both = asyncio.gather(
        engine.embed_query("tea"), engine.embed_query("broken"), return_exceptions=True
    )
    await asyncio.sleep(0)
    embedder.release.set()
    good, bad = await both
    await first

    assert embedder.batches == [["slow"], ["tea", "broken"], ["tea"], ["broken"]]
    assert isinstance(bad, EmbedderFailed)
    np.testing.assert_array_equal(np.asarray(good), (await HashEmbedder().embed(["tea"]))[0])


async def test_slow_embedder_leaves_a_search_by_words(library: Library) -> None:
    engine, _ = await make_engine(library, seconds=0.01)

    page = await engine.search(ANN, SearchRequest("endless"))
    assert page.embedder_failure.startswith("the embedder took longer than 0.01 s")
    with pytest.raises(EmbedderFailed, match="took longer than"):
        await engine.search(ANN, SearchRequest("endless", mode="semantic"))
