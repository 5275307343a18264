"""A vector database outside: searches agree with those in memory, and erasure reaches it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest, SemanticQuery
from memrecall.search.index import external
from memrecall.search.index.vectors import ExternalUserVectors
from memrecall.settings import Settings
from memrecall.types import NewMemory, NewMessage, Origin, Role

from .sample_plugin import SampleVectors

ANN = Scope("ann")
TOPICS = ("green tea", "jazz", "山里散步", "拿铁咖啡", "chess", "sourdough bread", "旧书店")
QUERIES = ("What does she drink?", "music", "散步", "where is the bread", "周末做什么")


def make_messages(count: int, start: int = 0) -> list[NewMessage]:
    return [
        NewMessage(
            message_id=f"m{n}",
            role=Role.USER if n % 2 else Role.ASSISTANT,
            content=f"number {n}: {TOPICS[n % len(TOPICS)]} on day {n % 31}",
        )
        for n in range(start, start + count)
    ]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that the users of these tests exceed."""
    monkeypatch.setattr(external, "MAX_ROWS_IN_MEMORY", 5)


def make_settings(location: str, folder: Path, **values: Any) -> Settings:
    defaults = {"embedder": "hash", "cache_dir": str(folder)}
    return Settings(db=location, **{**defaults, **values})


@pytest.fixture
async def memory_library(location: str, tmp_path: Path) -> AsyncIterator[Library]:
    """A library with vectors in memory, the default."""
    async with await Library.open(make_settings(location, tmp_path / "in_memory")) as library:
        yield library


@pytest.fixture
def vectors() -> SampleVectors:
    return SampleVectors()


@pytest.fixture
async def outside_library(
    location: str, tmp_path: Path, vectors: SampleVectors
) -> AsyncIterator[Library]:
    """A library on the same database, with the vectors of all but small users outside."""
    settings = make_settings(location, tmp_path / "outside")
    async with await Library.open(settings, vector_db=vectors) as library:
        yield library


async def assert_same(memory_library: Library, outside_library: Library) -> None:
    """Assert that both libraries return the same results for every query."""
    for query in QUERIES:
        for mode in ("hybrid", "semantic", "keyword"):
            request = SearchRequest(query, mode=mode, limit=20)
            results = [
                await library.search(ANN, request) for library in (memory_library, outside_library)
            ]
            hits = [[(hit.key, hit.score) for hit in page.results] for page in results]
            assert hits[0] == hits[1], (query, mode)
        closest = SemanticQuery(query, top_k=10)
        pages = [
            await library.nearest_messages(ANN, closest)
            for library in (memory_library, outside_library)
        ]
        scores = [{item.message.message_id: item.score for item in page.items} for page in pages]
        assert scores[0] == pytest.approx(scores[1], abs=2e-3)


async def test_search_agrees_with_search_in_memory(
    memory_library: Library, outside_library: Library, vectors: SampleVectors
) -> None:
    await memory_library.add_messages(ANN, make_messages(60))
    memories = [
        NewMemory(content="Ann likes jazz", memory_key="jazz"),
        NewMemory(content="散步很好"),
    ]
    await memory_library.add_memories(ANN, memories, origin=Origin.USER, actor="test")
    await memory_library.vectors.settle()
    await assert_same(memory_library, outside_library)
    feed = outside_library.store.feed("ann")
    version = await feed.version()
    assert version is not None
    async with outside_library.cache.open(feed, version) as columns:
        assert columns is not None
        assert isinstance(columns.vectors, ExternalUserVectors)
    assert vectors.count() == 62

    await outside_library.add_messages(ANN, make_messages(20, 60))
    await memory_library.store.changes(ANN).delete(["jazz"], actor="test")
    await outside_library.vectors.settle()
    await assert_same(memory_library, outside_library)
    await memory_library.store.changes(ANN).undo("jazz", actor="test")
    await memory_library.store.changes(ANN).update("jazz", {"content": "咖啡"}, actor="test")
    memory_library.vectors.expect({"ann": 1})
    await memory_library.vectors.settle()
    await assert_same(memory_library, outside_library)


async def test_growing_user_is_copied_and_another_process_continues(
    memory_library: Library,
    outside_library: Library,
    vectors: SampleVectors,
    location: str,
    tmp_path: Path,
) -> None:
    await outside_library.add_messages(ANN, make_messages(4))
    await outside_library.vectors.settle()
    await assert_same(memory_library, outside_library)
    assert vectors.count() == 0  # too few rows to copy
    await outside_library.add_messages(ANN, make_messages(600, 4))
    await outside_library.vectors.settle()
    await assert_same(memory_library, outside_library)
    assert vectors.count() == 604

    settings = make_settings(location, tmp_path / "outside")
    async with await Library.open(
        settings, vector_db=vectors
    ) as later:  # uses the snapshot of the first library
        await assert_same(memory_library, later)
    async with await Library.open(settings) as plain:  # ignores that snapshot
        await assert_same(memory_library, plain)


async def test_erased_session_replaces_the_copied_vectors(
    memory_library: Library, outside_library: Library, vectors: SampleVectors
) -> None:
    await memory_library.add_messages(Scope("ann", session_id="s1"), make_messages(10))
    await memory_library.add_messages(Scope("ann", session_id="s2"), make_messages(10, 10))
    await memory_library.vectors.settle()
    await assert_same(memory_library, outside_library)
    await memory_library.erase_session("ann", "s1")  # by a process without it
    memory_library.cache.forget("ann")
    await assert_same(memory_library, outside_library)
    assert vectors.count() == 10


async def test_erase_user_removes_their_vectors(
    outside_library: Library, vectors: SampleVectors
) -> None:
    for scope in (ANN, Scope("ben")):
        await outside_library.add_messages(scope, make_messages(10))
    await outside_library.vectors.settle()
    for scope in (ANN, Scope("ben")):
        await outside_library.search(scope, SearchRequest("tea"))
    assert vectors.count() == 20
    await outside_library.erase_user("ann")
    assert vectors.count() == 10


async def test_purge_removes_the_vector(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "MAX_ROWS_IN_MEMORY", 1)
    settings, vectors = make_settings(location, tmp_path), SampleVectors()
    async with AsyncMemory(settings=settings, user_id="ann", vector_db=vectors) as memory:
        results = [await memory.add(f"thing {n}", infer=False) for n in range(4)]
        await memory.search("thing")
        assert vectors.count() == 8
        await memory.purge(results[0]["results"][0]["id"])
        assert vectors.count() == 6  # without its message; the others are not copied again
        await memory.purge(results[1]["results"][0]["id"], sources=False)
        assert vectors.count() == 5
        assert len((await memory.search("thing", kinds="memory"))["results"]) == 2


async def test_query_vector_of_other_dimensions_is_refused(outside_library: Library) -> None:
    await outside_library.add_messages(ANN, make_messages(10))
    await outside_library.vectors.settle()
    with pytest.raises(InvalidArgument, match="numbers"):
        await outside_library.nearest_messages(ANN, SemanticQuery(None, [1.0, 2.0], top_k=3))


async def test_invalid_vector_db_setting_is_refused(tmp_path: Path) -> None:
    for value, message in {"pgvector": "was removed", "nowhere": "nowhere"}.items():
        with pytest.raises(InvalidArgument, match=message):
            await Library.open(make_settings(str(tmp_path / "a.db"), tmp_path, vector_db=value))
        assert not (tmp_path / "a.db").exists()
