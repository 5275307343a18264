"""Vectors in pgvector: searches agree with those in memory, and erasure removes the vectors."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest, SemanticQuery
from memrecall.search.index import external
from memrecall.search.index.vectors import ExternalUserVectors
from memrecall.settings import Settings
from memrecall.store.pgvector import far_marks, far_vectors
from memrecall.types import NewMemory, NewMessage, Origin, Role

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


@pytest.fixture
def engine() -> str:
    """PostgreSQL, the only engine with pgvector."""
    return "postgresql"


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
async def pgvector_library(location: str, tmp_path: Path) -> AsyncIterator[Library]:
    """A library on the same database, with the vectors of all but small users in pgvector."""
    settings = make_settings(location, tmp_path / "in_pgvector", vector_db="pgvector")
    async with await Library.open(settings) as library:
        yield library


async def assert_same(memory_library: Library, pgvector_library: Library) -> None:
    """Assert that both libraries return the same results for every query."""
    for query in QUERIES:
        for mode in ("hybrid", "semantic", "keyword"):
            request = SearchRequest(query, mode=mode, limit=20)
            results = [
                await library.search(ANN, request) for library in (memory_library, pgvector_library)
            ]
            hits = [[(hit.key, hit.score) for hit in page.results] for page in results]
            assert hits[0] == hits[1], (query, mode)
        closest = SemanticQuery(query, top_k=10)
        pages = [
            await library.nearest_messages(ANN, closest)
            for library in (memory_library, pgvector_library)
        ]
        scores = [{item.message.message_id: item.score for item in page.items} for page in pages]
        assert scores[0] == pytest.approx(scores[1], abs=2e-3)


async def count_rows(library: Library, table: Any) -> int:
    result = await library.store.database.fetch(select(func.count().label("n")).select_from(table))
    return int(result[0].n)


async def test_search_agrees_with_search_in_memory(
    memory_library: Library, pgvector_library: Library
) -> None:
    await memory_library.add_messages(ANN, make_messages(60))
    memories = [
        NewMemory(content="Ann likes jazz", memory_key="jazz"),
        NewMemory(content="散步很好"),
    ]
    await memory_library.add_memories(ANN, memories, origin=Origin.USER, actor="test")
    await memory_library.vectors.settle()
    await assert_same(memory_library, pgvector_library)
    feed = pgvector_library.store.feed("ann")
    version = await feed.version()
    assert version is not None
    async with pgvector_library.cache.open(feed, version) as columns:
        assert columns is not None
        assert isinstance(columns.vectors, ExternalUserVectors)
    assert await count_rows(pgvector_library, far_vectors) == 62

    await pgvector_library.add_messages(ANN, make_messages(20, 60))
    await memory_library.store.changes(ANN).delete(["jazz"], actor="test")
    await pgvector_library.vectors.settle()
    await assert_same(memory_library, pgvector_library)
    await memory_library.store.changes(ANN).undo("jazz", actor="test")
    await memory_library.store.changes(ANN).update("jazz", {"content": "咖啡"}, actor="test")
    memory_library.vectors.expect({"ann": 1})
    await memory_library.vectors.settle()
    await assert_same(memory_library, pgvector_library)


async def test_growing_user_is_copied_and_another_process_continues(
    memory_library: Library, pgvector_library: Library, location: str, tmp_path: Path
) -> None:
    await pgvector_library.add_messages(ANN, make_messages(4))
    await pgvector_library.vectors.settle()
    await assert_same(memory_library, pgvector_library)
    assert await count_rows(pgvector_library, far_vectors) == 0  # too few rows to copy
    await pgvector_library.add_messages(ANN, make_messages(600, 4))
    await pgvector_library.vectors.settle()
    await assert_same(memory_library, pgvector_library)
    assert await count_rows(pgvector_library, far_vectors) == 604

    settings = make_settings(location, tmp_path / "in_pgvector", vector_db="pgvector")
    async with await Library.open(settings) as later:  # uses the snapshot of the first library
        await assert_same(memory_library, later)
    settings = make_settings(location, tmp_path / "in_pgvector")
    async with await Library.open(settings) as plain:  # ignores that snapshot
        await assert_same(memory_library, plain)


async def test_erased_session_replaces_the_copied_vectors(
    memory_library: Library, pgvector_library: Library
) -> None:
    await memory_library.add_messages(Scope("ann", session_id="s1"), make_messages(10))
    await memory_library.add_messages(Scope("ann", session_id="s2"), make_messages(10, 10))
    await memory_library.vectors.settle()
    await assert_same(memory_library, pgvector_library)
    await memory_library.erase_session("ann", "s1")  # by a process without pgvector
    memory_library.cache.forget("ann")
    await assert_same(memory_library, pgvector_library)
    assert await count_rows(pgvector_library, far_vectors) == 10


async def test_erase_user_removes_their_vectors(pgvector_library: Library) -> None:
    for scope in (ANN, Scope("ben")):
        await pgvector_library.add_messages(scope, make_messages(10))
    await pgvector_library.vectors.settle()
    for scope in (ANN, Scope("ben")):
        await pgvector_library.search(scope, SearchRequest("tea"))
    assert (
        await count_rows(pgvector_library, far_vectors),
        await count_rows(pgvector_library, far_marks),
    ) == (20, 2)
    await pgvector_library.erase_user("ann")
    assert (
        await count_rows(pgvector_library, far_vectors),
        await count_rows(pgvector_library, far_marks),
    ) == (10, 1)


async def test_purge_removes_the_vector(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "MAX_ROWS_IN_MEMORY", 1)
    settings = make_settings(location, tmp_path, vector_db="pgvector")
    async with AsyncMemory(settings=settings, user_id="ann") as memory:
        results = [await memory.add(f"thing {n}", infer=False) for n in range(4)]
        await memory.search("thing")
        library = (await memory._open()).library
        assert await count_rows(library, far_vectors) == 8
        await memory.purge(results[0]["results"][0]["id"])
        assert await count_rows(library, far_vectors) == 7  # the others are not copied again
        assert len((await memory.search("thing", kinds="memory"))["results"]) == 3


async def test_query_vector_of_other_dimensions_is_refused(pgvector_library: Library) -> None:
    await pgvector_library.add_messages(ANN, make_messages(10))
    await pgvector_library.vectors.settle()
    with pytest.raises(InvalidArgument, match="numbers"):
        await pgvector_library.nearest_messages(ANN, SemanticQuery(None, [1.0, 2.0], top_k=3))


async def test_invalid_vector_db_setting_is_refused(tmp_path: Path) -> None:
    settings = make_settings(str(tmp_path / "a.db"), tmp_path, vector_db="pgvector")
    with pytest.raises(InvalidArgument, match="PostgreSQL"):
        await Library.open(settings)
    unknown = make_settings(str(tmp_path / "a.db"), tmp_path, vector_db="nowhere")
    with pytest.raises(InvalidArgument, match="nowhere"):
        await Library.open(unknown)
