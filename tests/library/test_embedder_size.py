"""An embedder that returns vectors of another size under the same name changes no search."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memrecall.errors import EmbedderFailed, EmbeddingModelMismatch
from memrecall.library.knowledge import KnowledgeBase
from memrecall.memory import Library, Reindexer
from memrecall.scope import Permission, Scope
from memrecall.search import SearchRequest
from memrecall.server.http.context import Readiness, _library_checks
from memrecall.settings import Settings
from memrecall.store import NewKnowledge, Store
from memrecall.types import NewMessage, Role

ANN, COOK = Scope("ann"), Scope("ann", "cook", permissions=frozenset(Permission))
MODEL = "served"


class SizedEmbedder:
    """A remote model: its size is known after the first answer, and may change."""

    model = MODEL

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls = 0
        self._known: int | None = None

    @property
    def dimensions(self) -> int:
        if self._known is None:
            raise EmbedderFailed("not known yet")
        return self._known

    async def embed(self, texts: Sequence[str]) -> Any:
        self._known = self.size
        self.calls += bool(texts)
        rows = np.ones((len(texts), self.size), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[len(text) % self.size] += 2
        return rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))

    async def close(self) -> None:
        pass


async def open_library(location: str, size: int, folder: Path) -> Library:
    settings = Settings(db=location, cache_dir=str(folder))
    return Library(await Store.open(location), SizedEmbedder(size), settings)


def said(*texts: str) -> list[NewMessage]:
    return [NewMessage(role=Role.USER, content=text) for text in texts]


async def find(library: Library, query: str, mode: Any = "hybrid") -> tuple[list[str], str]:
    """Return what a search finds, and why it had no vectors."""
    page = await library.search(ANN, SearchRequest(query, mode=mode))
    return [hit.content for hit in page.results], page.embedder_failure


async def write(location: str, size: int, folder: Path, *texts: str) -> None:
    async with await open_library(location, size, folder) as library:
        await library.add_messages(ANN, said(*texts))
        await library.vectors.settle()
        assert library.vectors.failure == ""


async def test_words_are_found_and_vectors_refused_after_a_restart(
    location: str, tmp_path: Path
) -> None:
    await write(location, 8, tmp_path, "I like green tea")
    async with await open_library(location, 16, tmp_path) as library:
        await library.add_messages(ANN, said("I bought a red bicycle"))
        await library.vectors.settle()
        assert "vectors of 8 numbers, and 'served' now returns 16" in library.vectors.failure
        for query, answer in (("tea", "I like green tea"), ("bicycle", "I bought a red bicycle")):
            for mode in ("hybrid", "keyword"):
                found, failure = await find(library, query, mode)
                assert found[0] == answer
                assert ("now returns 16" in failure) is (mode == "hybrid")
        with pytest.raises(EmbeddingModelMismatch):
            await find(library, "tea", "semantic")
        assert await library.store.vectors(MODEL).count_pending() == 1

        # It is not asked again for rows that could not be stored: a remote one costs money.
        calls = library.embedder.calls  # type: ignore[union-attr]
        await library.add_messages(ANN, said("I moved to Porto"))
        await library.vectors.settle()
        assert library.embedder.calls == calls  # type: ignore[union-attr]
    async with await open_library(location, 8, tmp_path) as library:
        assert (await find(library, "bicycle"))[0][0] == "I bought a red bicycle"
        await library.vectors.settle()
        assert await library.store.vectors(MODEL).count_pending() == 0
        assert (await find(library, "bicycle", "semantic"))[1] == ""


async def test_embedder_that_changes_while_it_is_used_is_refused(
    location: str, tmp_path: Path
) -> None:
    async with await open_library(location, 8, tmp_path) as library:
        await library.add_messages(ANN, said("I like green tea"))
        await library.vectors.settle()
        assert await find(library, "tea") == (["I like green tea"], "")
        library.embedder.size = 16  # type: ignore[union-attr]
        await library.add_messages(ANN, said("I bought a red bicycle"))
        await library.vectors.settle()
        found, failure = await find(library, "a red bicycle")
        assert found[0] == "I bought a red bicycle"
        assert "now returns 16" in failure
        assert "now returns 16" in library.vectors.failure


async def test_reindex_replaces_vectors_of_another_size(location: str, tmp_path: Path) -> None:
    await write(location, 8, tmp_path, "I like green tea", "I bought a red bicycle")
    async with await open_library(location, 8, tmp_path) as other:
        assert (await find(other, "tea"))[1] == ""  # Its index has the old vectors.
        async with await open_library(location, 16, tmp_path) as library:
            knowledge = KnowledgeBase(library, COOK)
            await knowledge.add(NewKnowledge("Green tea is brewed at 80 degrees"))
            await library.vectors.settle()
            assert (await find(library, "tea"))[1]
            report = await Reindexer(library).run()
            assert report["embedded"] == 3
            assert await find(library, "I like green tea", "semantic") != ([], "")
            assert (await find(library, "tea"))[1] == ""
            assert await knowledge.find("green tea")
        assert (await find(other, "tea"))[0][0] == "I like green tea"
        await other.add_messages(ANN, said("I moved to Porto"))
        await other.vectors.settle()
        assert "vectors of 16 numbers, and 'served' now returns 8" in other.vectors.failure


async def test_knowledge_is_found_by_words(location: str, tmp_path: Path) -> None:
    async with await open_library(location, 8, tmp_path) as library:
        await KnowledgeBase(library, COOK).add(NewKnowledge("Green tea is brewed at 80 degrees"))
        await library.vectors.settle()
    async with await open_library(location, 16, tmp_path) as library:
        knowledge = KnowledgeBase(library, COOK)
        await knowledge.add(NewKnowledge("Black tea is brewed at 95 degrees"))
        await library.vectors.settle()
        assert "now returns 16" in library.vectors.failure
        assert len(await knowledge.find("tea degrees brewed")) == 2


async def test_service_refuses_it_at_start_and_says_so_later(location: str, tmp_path: Path) -> None:
    await write(location, 8, tmp_path, "I like green tea")
    async with await open_library(location, 16, tmp_path) as library:
        with pytest.raises(EmbeddingModelMismatch, match="now returns 16"):
            await library.vectors.require_same_embedder()
    async with await open_library(location, 8, tmp_path) as library:
        await library.vectors.require_same_embedder()
        readiness = Readiness({"embedder": _library_checks(library)["embedder"]})
        library.embedder.size = 16  # type: ignore[union-attr]
        assert await readiness.outcomes() == {"embedder": False}
