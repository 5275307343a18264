"""Vectors follow the write: nobody waits for them, and every user gets a fair share."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from memrecall.embedding.embedders import HashEmbedder
from memrecall.errors import EmbedderFailed
from memrecall.library import vectors as writing
from memrecall.library.knowledge import KnowledgeBase
from memrecall.memory import AsyncMemory, Library, Reindexer
from memrecall.scope import Permission, Scope
from memrecall.search import SearchPage, SearchRequest
from memrecall.search.engine import EMBEDDER_SECONDS
from memrecall.server.metrics import Metrics
from memrecall.settings import Settings
from memrecall.store import NewKnowledge, Store
from memrecall.store.transfer import export_user, import_user
from memrecall.store.vectors import KnowledgeVectors, VectorStore
from memrecall.timing import deadline
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..server.test_deadlines import Clock
from ..waiting import LIMIT, wait_until

ANN, BEN, CY = Scope("ann"), Scope("ben"), Scope("cy")
POISON = "毒 poison"


class GatedEmbedder:
    """An embedder that waits for its gate; it records its calls and fails on one text."""

    model = "hash-64"
    dimensions = 64

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = 0
        self.calls: list[list[str]] = []
        self._inner = HashEmbedder()

    async def embed(self, texts: Sequence[str]) -> Any:
        self.calls.append(list(texts))
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        if POISON in texts:
            raise EmbedderFailed("this text is refused")
        return await self._inner.embed(texts)

    async def close(self) -> None:
        await self._inner.close()


@pytest.fixture
def embedder() -> GatedEmbedder:
    return GatedEmbedder()


async def open_library(location: str, embedder: GatedEmbedder, **options: Any) -> Library:
    settings = Settings(db=location, snapshots=False, **options)
    return Library(await Store.open(location), embedder, settings)


@pytest.fixture
async def library(location: str, embedder: GatedEmbedder) -> AsyncIterator[Library]:
    async with await open_library(location, embedder) as library:
        yield library
        embedder.gate.set()


def make_messages(count: int, text: str = "tea 茶") -> list[NewMessage]:
    return [NewMessage(role=Role.USER, content=f"{text} {n}") for n in range(count)]


async def count_missing(library: Library, scope: Scope) -> int:
    return await library.store.vectors(GatedEmbedder.model).count_pending(scope.user_id)


async def search(library: Library, scope: Scope, **options: Any) -> SearchPage:
    with deadline(1.0):
        return await library.search(scope, SearchRequest("tea 茶", **options))


async def test_writes_of_any_size_answer_while_the_embedder_hangs(
    library: Library, embedder: GatedEmbedder
) -> None:
    memory = NewMemory(content="drinks tea", memory_key="k")
    async with asyncio.timeout(LIMIT):
        for _ in range(2):
            await library.add_messages(ANN, make_messages(600))
        await wait_until(lambda: embedder.waiting)
        for count in (1, 64, 65, 500):
            await library.add_messages(BEN, make_messages(count))
        await library.add_memories(BEN, [memory], origin=Origin.USER, actor="test")
        await library.changes(BEN).update("k", {"content": "drinks coffee"}, actor="test")
        await library.erase_user("ann")
        page = await search(library, BEN)
    assert page.results
    assert page.embedder_failure
    assert library.vectors.backlogs[0] >= 630
    embedder.gate.set()
    await library.vectors.settle()
    assert library.vectors.backlogs[0] == 0
    assert await count_missing(library, BEN) == 0


async def test_hanging_embedder_is_skipped_until_it_answers(
    library: Library, embedder: GatedEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, memory = Clock(monkeypatch), AsyncMemory(library=library, user_id="ben")
    await library.add_messages(ANN, make_messages(30))
    await wait_until(lambda: embedder.waiting)
    with deadline(0.02):  # It says little about the embedder.
        assert (await library.search(ANN, SearchRequest("tea"))).embedder_failure
    asking = asyncio.create_task(library.search(ANN, SearchRequest("milk")))
    await wait_until(lambda: ["milk"] in embedder.calls)
    clock.advance(EMBEDDER_SECONDS)
    assert "took longer than" in (await asking).embedder_failure
    calls = len(embedder.calls)
    async with asyncio.timeout(LIMIT):
        await memory.add("I moved to Lisbon. I am allergic to nuts.")
        found = await memory.search("Lisbon")
        recalled = await memory.recall("When did I move to Lisbon?")
    assert found["results"]
    assert "Lisbon" in recalled.handoff.search_summary
    assert len(embedder.calls) == calls
    clock.advance(10.0)
    asking = asyncio.create_task(library.search(ANN, SearchRequest("coffee")))
    await wait_until(lambda: len(embedder.calls) > calls)
    assert (await library.search(ANN, SearchRequest("cocoa"))).embedder_failure
    embedder.gate.set()
    assert not (await asking).embedder_failure
    assert not (await library.search(ANN, SearchRequest("cocoa"))).embedder_failure


async def test_small_job_is_embedded_before_a_large_one(
    library: Library, embedder: GatedEmbedder
) -> None:
    await library.add_messages(ANN, make_messages(600, "x" * 400))
    await wait_until(lambda: embedder.waiting)
    await library.add_messages(BEN, make_messages(3, "ben"))
    await library.add_messages(CY, make_messages(300, "y" * 400))
    await library.add_messages(ANN, make_messages(1, "ann's last"))
    assert library.vectors.backlogs == (904, 601)
    counts = [(await library.stats(user))["not_embedded"] for user in ("ann", "ben", None)]
    assert counts == [601, 3, 904]
    metrics = Metrics(lambda: 0.0, lambda: library.vectors.backlogs)
    metrics.measure("ready")
    assert b"memrecall_rows_to_embed 904.0" in metrics.render()
    assert b"memrecall_rows_to_embed_largest 601.0" in metrics.render()
    embedder.gate.set()
    await library.vectors.settle()
    assert {"ben 0", "ben 1", "ben 2"} < set(embedder.calls[1])
    assert embedder.calls[-1][-1] == "ann's last 0"
    assert max(sum(map(len, texts)) for texts in embedder.calls) <= 18_000


async def test_users_with_large_jobs_take_turns(library: Library, embedder: GatedEmbedder) -> None:
    for scope in (ANN, BEN, CY):
        await library.add_messages(scope, make_messages(200, scope.user_id + "x" * 400))
    embedder.gate.set()
    await library.vectors.settle()
    done: Counter[str] = Counter()
    for texts in embedder.calls[:-2]:
        done.update(text[:2] for text in texts)
        assert max(done.values()) - min(done[name] for name in ("an", "be", "cy")) <= 64


async def test_search_embeds_a_few_missing_rows_itself(
    library: Library, embedder: GatedEmbedder
) -> None:
    embedder.gate.set()
    await library.add_messages(ANN, make_messages(20))
    await library.add_messages(BEN, make_messages(21))
    assert (await search(library, ANN)).unembedded == 0
    assert (await search(library, BEN)).unembedded == 21
    assert len((await search(library, BEN, mode="keyword")).results) == 10
    await library.vectors.settle()
    assert (await search(library, BEN)).unembedded == 0


async def test_refused_text_of_one_user_does_not_keep_up_others(
    library: Library, embedder: GatedEmbedder
) -> None:
    embedder.gate.set()
    await library.add_messages(ANN, [NewMessage(role=Role.USER, content=POISON)])
    for number in range(4):
        await library.add_messages(Scope(f"user {number}"), make_messages(5))
    await library.vectors.settle()
    assert "this text is refused" in library.vectors.failure
    assert await count_missing(library, ANN) == 1
    assert await count_missing(library, Scope("user 3")) == 0


async def test_rows_that_an_embedder_failed_on_follow_later(
    library: Library, embedder: GatedEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_PIECE_SECONDS", 0.01)
    await library.add_messages(ANN, make_messages(30))
    await library.vectors.settle()
    assert "took longer than" in library.vectors.failure
    assert library.vectors.backlogs[0] == 30
    embedder.gate.set()
    await library.add_messages(BEN, make_messages(1))
    await library.vectors.settle()
    assert await count_missing(library, ANN) == await count_missing(library, BEN) == 0


async def test_one_process_embeds_for_all(
    location: str, library: Library, embedder: GatedEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_PAUSE", 0.01)
    monkeypatch.setattr(writing, "_LEASE", 600.0)
    embedder.gate.set()
    await library.add_messages(BEN, make_messages(1))
    await library.vectors.settle()
    other = GatedEmbedder()
    async with await open_library(location, other) as follower:
        follower.vectors._process = "another process"
        await follower.add_messages(ANN, make_messages(30))

        async def is_embedded() -> bool:
            library.vectors._lease_end = 0.0  # It must be extended before the next piece.
            await library.add_messages(BEN, make_messages(1))
            await library.vectors.settle()
            return await count_missing(library, ANN) == 0

        await wait_until(is_embedded)
        await follower.vectors.settle()
    assert other.calls == []


async def test_new_process_embeds_what_another_left(
    location: str, embedder: GatedEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.library.library._CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(writing, "_LOOK_USERS", 64)
    monkeypatch.setattr(writing, "_OVERLAP", timedelta())
    users = [Scope(f"user {number:03}") for number in range(160)]
    async with await Store.open(location) as store:
        for user in users:
            await store.timeline(user).add(make_messages(5))
    async with await open_library(location, embedder) as library:
        library.vectors.resume()
        # Every row is counted while none can be embedded.
        await wait_until(lambda: library.vectors.backlogs == (800, 5))
        assert await library.store.vectors(embedder.model).mark() is None
    looked: list[int] = []
    count_by_user = VectorStore.count_by_user

    async def watched(self: VectorStore, page: Any) -> Any:
        looked.extend([len(page)] if page else [])
        return await count_by_user(self, page)

    monkeypatch.setattr(VectorStore, "count_by_user", watched)
    for expected in ([64, 64, 32], []):  # A second start looks at no user again.
        looked.clear()
        embedder = GatedEmbedder()
        embedder.gate.set()
        async with await open_library(location, embedder) as library:
            library.vectors.resume()
            await library.vectors.settle()
            assert await library.store.vectors(embedder.model).count_pending() == 0
            assert library.vectors.backlogs[0] == 0
        assert looked == expected
    async with await Store.open(location) as store:
        records = [record async for record in export_user(store.database, users[0].user_id)]
        await import_user(store.database, "cy", records)  # They were not active.
        assert await store.vectors(embedder.model).mark() is None


async def test_settle_and_close_end_although_the_embedder_hangs(
    location: str, embedder: GatedEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.library.library._CLOSE_SECONDS", 0.01)
    library = await open_library(location, embedder)
    await library.add_messages(ANN, make_messages(30))
    await wait_until(lambda: embedder.waiting)
    async with asyncio.timeout(LIMIT):
        await library.vectors.settle(0.01)
        await library.close()


async def test_every_new_row_is_read_once(
    library: Library, embedder: GatedEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a write costs does not grow with the rows that have vectors."""
    embedder.gate.set()
    await library.add_messages(ANN, make_messages(100))
    await library.vectors.settle()
    starts: list[int] = []
    pending = type(library.store.vectors("m")).pending

    async def watched(self: Any, user_id: str, limit: int, after: int = 0) -> Any:
        starts.append(after)
        return await pending(self, user_id, limit, after)

    monkeypatch.setattr(type(library.store.vectors("m")), "pending", watched)
    await library.add_messages(ANN, make_messages(1, "new"))
    await library.vectors.settle()
    assert starts == [100]


async def test_vectors_of_knowledge_follow_the_write(
    library: Library, embedder: GatedEmbedder
) -> None:
    knowledge = KnowledgeBase(library, Scope("ann", "cook", permissions=frozenset(Permission)))
    await knowledge.add(NewKnowledge("Green tea is brewed at 80 degrees"))
    await wait_until(lambda: embedder.calls)  # in the background: it hangs, and the write is done
    with deadline(0.2):
        (hit,) = await knowledge.find("green tea")
    assert hit.why.coverage > 0.5
    vectors = KnowledgeVectors(library.store.database, embedder.model)
    assert len(await vectors.pending(10)) == 1
    embedder.gate.set()
    await library.vectors.settle()
    assert await vectors.pending(10) == []


class SlowEmbedder(GatedEmbedder):
    """An embedder that takes the same time for each text, by the clock of the event loop."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds = clock, seconds
        self.texts = 0  # that it was paid for

    async def embed(self, texts: Sequence[str]) -> Any:
        for _ in texts:
            self.texts += 1
            self.clock.advance(self.seconds)
            await asyncio.sleep(0)
        self.gate.set()
        return await super().embed(texts)


@pytest.mark.parametrize(("seconds", "count", "most"), [(0.33, 600, 700), (5.0, 40, 160)])
async def test_slow_embedder_gets_smaller_pieces_and_keeps_what_came_back(
    location: str,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    count: int,
    most: int,
) -> None:
    clock = Clock(monkeypatch)
    slow = SlowEmbedder(clock, seconds)
    knowledge_texts = 12
    async with await open_library(location, slow) as library:
        knowledge = KnowledgeBase(library, Scope("ann", "cook", permissions=frozenset(Permission)))
        for number in range(knowledge_texts):
            await knowledge.add(NewKnowledge(f"Dish {number} is boiled"))
        await library.add_messages(ANN, make_messages(count))
        vectors = KnowledgeVectors(library.store.database, slow.model)

        for _ in range(10):  # it pauses after some failures
            library.vectors.expect({})
            await library.vectors.settle()
        assert await count_missing(library, ANN) == len(await vectors.pending(1)) == 0
        assert library.vectors.failure == "" or "took longer than 60 s" in library.vectors.failure
        assert slow.texts <= most + knowledge_texts
        slow.seconds = 0.0
        slow.calls.clear()
        await library.add_messages(ANN, make_messages(600, "fast"))
        await library.vectors.settle()
        assert max(map(len, slow.calls)) == 64  # as large as before


class SteppedEmbedder(GatedEmbedder):
    """An embedder whose calls are answered one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.gate.set()
        self.steps = asyncio.Semaphore(0)

    def has_calls(self, count: int) -> bool:
        return len(self.calls) == count

    async def embed(self, texts: Sequence[str]) -> Any:
        vectors = await super().embed(texts)
        await self.steps.acquire()
        return vectors


async def test_each_batch_is_stored_when_it_comes_back(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed while it waits for the next one loses none."""
    monkeypatch.setattr("memrecall.library.library._CLOSE_SECONDS", 0.01)
    stepped = SteppedEmbedder()
    async with await Store.open(location) as store:
        await store.timeline(ANN).add(make_messages(256))
    async with await open_library(location, stepped) as library:
        library.vectors.resume()
        vectors = library.store.vectors(stepped.model)
        for stored in (0, 64, 128, 192):
            await wait_until(partial(stepped.has_calls, stored // 64 + 1))
            assert await vectors.count("ann") == stored
            stepped.steps.release()
        await library.vectors.settle()
        assert await vectors.count("ann") == 256


async def test_reindex_with_a_slow_embedder_ends(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowEmbedder(Clock(monkeypatch), 5.0)
    async with await Store.open(location) as store:
        await store.timeline(ANN).add(make_messages(40))
    async with await open_library(location, slow) as library:
        assert int((await Reindexer(library).run())["embedded"]) <= 40
        assert await count_missing(library, ANN) == 0
        slow.seconds = 61.0  # for a single text
        await library.store.timeline(ANN).add(make_messages(1, "more"))
        with pytest.raises(EmbedderFailed, match="took longer than 60 s"):
            await Reindexer(library).run()
