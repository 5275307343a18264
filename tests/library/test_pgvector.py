"""Vectors in pgvector: a search finds what it finds in memory; an erased user leaves nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest, SemanticQuery
from memrecall.search.index.vectors import ExternalUserVectors
from memrecall.settings import Settings
from memrecall.store.pgvector import far_marks, far_vectors
from memrecall.types import NewMemory, NewMessage, Origin, Role

ANN = Scope("ann")
THINGS = ("green tea", "jazz", "山里散步", "拿铁咖啡", "chess", "sourdough bread", "旧书店")
QUESTIONS = ("What does she drink?", "music", "散步", "where is the bread", "周末做什么")


def said(count: int, start: int = 0) -> list[NewMessage]:
    return [
        NewMessage(
            message_id=f"m{n}",
            role=Role.USER if n % 2 else Role.ASSISTANT,
            content=f"number {n}: {THINGS[n % len(THINGS)]} on day {n % 31}",
        )
        for n in range(start, start + count)
    ]


@pytest.fixture
def engine() -> str:
    """pgvector is PostgreSQL's."""
    return "postgresql"


def settings_of(location: str, folder: Path, **values: Any) -> Settings:
    given = {"embedder": "hash", "cache_dir": str(folder), "vector_db_rows": 5}
    return Settings(db=location, **{**given, **values})


@pytest.fixture
async def near(location: str, tmp_path: Path) -> AsyncIterator[Library]:
    """Vectors in memory, as usual."""
    async with await Library.open(settings_of(location, tmp_path / "near")) as library:
        yield library


@pytest.fixture
async def far(location: str, tmp_path: Path) -> AsyncIterator[Library]:
    """The same database, with all but the smallest users' vectors in pgvector."""
    settings = settings_of(location, tmp_path / "far", vector_db="pgvector")
    async with await Library.open(settings) as library:
        yield library


async def assert_same(near: Library, far: Library) -> None:
    """Every question has the same answer from both."""
    for question in QUESTIONS:
        for mode in ("hybrid", "semantic", "keyword"):
            request = SearchRequest(question, mode=mode, limit=20)
            pages = [await library.search(ANN, request) for library in (near, far)]
            found = [[(hit.key, hit.score) for hit in page.results] for page in pages]
            assert found[0] == found[1], (question, mode)
        closest = SemanticQuery(question, top_k=10)
        told = [await library.nearest_messages(ANN, closest) for library in (near, far)]
        scores = [{item.message.message_id: item.score for item in page.items} for page in told]
        assert scores[0] == pytest.approx(scores[1], abs=2e-3)


async def rows(library: Library, table: Any) -> int:
    found = await library.store.database.fetch(select(func.count().label("n")).select_from(table))
    return int(found[0].n)


async def test_it_finds_what_is_found_in_memory(near: Library, far: Library) -> None:
    await near.add_messages(ANN, said(60))
    kept = [NewMemory(content="Ann likes jazz", memory_key="jazz"), NewMemory(content="散步很好")]
    await near.add_memories(ANN, kept, origin=Origin.USER, actor="test")
    await near.vectors.settle()
    await assert_same(near, far)
    feed = far.store.feed("ann")
    version = await feed.version()
    assert version is not None
    async with far.cache.open(feed, version) as columns:
        assert columns is not None
        assert isinstance(columns.vectors, ExternalUserVectors)
    assert await rows(far, far_vectors) == 62

    await far.add_messages(ANN, said(20, 60))
    await near.store.changes(ANN).delete(["jazz"], actor="test")
    await far.vectors.settle()
    await assert_same(near, far)
    await near.store.changes(ANN).undo("jazz", actor="test")
    await near.store.changes(ANN).update("jazz", {"content": "咖啡"}, actor="test")
    await near.vectors.embed_pending(["ann"])
    await assert_same(near, far)


async def test_a_user_who_grows_is_moved_and_a_new_process_goes_on(
    near: Library, far: Library, location: str, tmp_path: Path
) -> None:
    await far.add_messages(ANN, said(4))
    await far.vectors.settle()
    await assert_same(near, far)
    assert await rows(far, far_vectors) == 0  # few enough to lie in memory
    await far.add_messages(ANN, said(600, 4))
    await far.vectors.settle()
    await assert_same(near, far)
    assert await rows(far, far_vectors) == 604

    settings = settings_of(location, tmp_path / "far", vector_db="pgvector")
    async with await Library.open(settings) as later:  # from the snapshot of the first
        await assert_same(near, later)
    inside = settings_of(location, tmp_path / "far")
    async with await Library.open(inside) as without:  # which is of no use without pgvector
        await assert_same(near, without)


async def test_a_changed_history_begins_anew(near: Library, far: Library) -> None:
    await near.add_messages(Scope("ann", session_id="s1"), said(10))
    await near.add_messages(Scope("ann", session_id="s2"), said(10, 10))
    await near.vectors.settle()
    await assert_same(near, far)
    await near.erase_session("ann", "s1")  # by a process that knows nothing of pgvector
    near.cache.forget("ann")
    await assert_same(near, far)
    assert await rows(far, far_vectors) == 10


async def test_an_erased_user_leaves_nothing(far: Library) -> None:
    for scope in (ANN, Scope("ben")):
        await far.add_messages(scope, said(10))
    await far.vectors.settle()
    for scope in (ANN, Scope("ben")):
        await far.search(scope, SearchRequest("tea"))
    assert (await rows(far, far_vectors), await rows(far, far_marks)) == (20, 2)
    await far.erase_user("ann")
    assert (await rows(far, far_vectors), await rows(far, far_marks)) == (10, 1)


async def test_purging_a_memory_takes_its_vector(location: str, tmp_path: Path) -> None:
    settings = settings_of(location, tmp_path, vector_db="pgvector", vector_db_rows=1)
    async with AsyncMemory(settings=settings, user_id="ann") as memory:
        added = [await memory.add(f"thing {n}", infer=False) for n in range(4)]
        await memory.search("thing")
        library = (await memory._open()).library
        assert await rows(library, far_vectors) == 8
        await memory.purge(added[0]["results"][0]["id"])
        assert await rows(library, far_vectors) == 0  # made anew by the next search
        assert len((await memory.search("thing"))["results"]) == 3


async def test_a_question_of_other_dimensions_is_refused(far: Library) -> None:
    await far.add_messages(ANN, said(10))
    await far.vectors.settle()
    with pytest.raises(InvalidArgument, match="numbers"):
        await far.nearest_messages(ANN, SemanticQuery(None, [1.0, 2.0], top_k=3))


async def test_it_needs_postgresql(tmp_path: Path) -> None:
    settings = settings_of(str(tmp_path / "a.db"), tmp_path, vector_db="pgvector")
    with pytest.raises(InvalidArgument, match="PostgreSQL"):
        await Library.open(settings)
    unknown = settings_of(str(tmp_path / "a.db"), tmp_path, vector_db="nowhere")
    with pytest.raises(InvalidArgument, match="nowhere"):
        await Library.open(unknown)
