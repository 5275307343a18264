"""A search reads the user's version once and returns results as of that version."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from memrecall.embedding.embedders import HashEmbedder
from memrecall.errors import Disabled, EmbedderFailed, NotFound
from memrecall.memory import Library
from memrecall.memory.search import MemorySearch, search_memories
from memrecall.scope import Permission, Scope
from memrecall.search import (
    DegradeReason,
    IndexCache,
    LexicalQuery,
    SearchEngine,
    SearchRequest,
    SemanticQuery,
)
from memrecall.search.ranking.ranker import rank
from memrecall.search.request import MODES
from memrecall.store import NewRelation
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..counting import recorded_statements

ANN = Scope("ann")


def messages(*texts: str) -> list[NewMessage]:
    return [NewMessage(role=Role.USER, content=text, speaker="Ann") for text in texts]


def count_version_reads(statements: Sequence[str]) -> int:
    return sum("users.epoch" in statement for statement in statements)


async def fill(library: Library) -> None:
    await library.add_messages(ANN, messages("I drink green tea", "The bicycle is blue"))
    await library.vectors.settle()
    await library.search(ANN, SearchRequest("tea"))


@pytest.mark.parametrize("mode", MODES)
async def test_search_reads_the_version_once(library: Library, mode: Any) -> None:
    await fill(library)
    with recorded_statements() as statements:
        page = await library.search(ANN, SearchRequest("What does Ann drink? tea", mode=mode))
    assert page.results
    assert count_version_reads(statements) == 1


async def test_first_search_runs_five_statements(library: Library) -> None:
    await fill(library)
    await library.forget_derived("ann")
    with recorded_statements() as statements:
        assert (await library.search(ANN, SearchRequest("tea"))).results
    # The version, messages, memories, vectors, and the contents of the hits.
    assert len(statements) == 5, statements


async def test_search_of_memories_uses_the_names_of_the_graph(library: Library) -> None:
    batch = [NewMemory(content="Bob works at Initech"), NewMemory(content="Ann likes chess")]
    await library.add_memories(ANN, batch, origin=Origin.USER, actor="test")
    await library.graph(ANN).add({}, [NewRelation("Alice", "married to", "Bob", ("m1",))])
    search = MemorySearch("Where does Alice live?", limit=5, explain=True)
    found = await search_memories(library, ANN, search)
    items = found["results"]
    coverage = {item["memory"]: item["score_details"]["coverage"] for item in items}
    assert coverage["Bob works at Initech"] > coverage["Ann likes chess"] == 0


async def test_message_search_sees_what_another_library_has_just_written(library: Library) -> None:
    await fill(library)
    other = Library(library.store, HashEmbedder(), library.settings)
    await other.find_messages(ANN, LexicalQuery("tea"))
    await library.add_messages(ANN, messages("Ann also drinks oolong"))
    with recorded_statements() as statements:
        page = await other.find_messages(ANN, LexicalQuery("oolong"))
    assert [item.message.content for item in page.items] == ["Ann also drinks oolong"]
    assert count_version_reads(statements) == 1


async def test_message_search_of_a_loaded_index_checks_its_owner(library: Library) -> None:
    await fill(library)
    await library.store.owners.set_user_enabled("ann", False)
    with pytest.raises(Disabled):
        await library.find_messages(ANN, LexicalQuery("tea"))
    await library.store.owners.erase_user("ann")
    with pytest.raises(NotFound, match="there is no user 'ann'"):
        await library.find_messages(ANN, LexicalQuery("tea"))
    assert not len(library.cache)


async def test_search_of_a_loaded_index_checks_its_owner(library: Library) -> None:
    await fill(library)
    bound = Scope("ann", agent_id="default")
    assert (await library.search(bound, SearchRequest("tea"))).results
    await library.store.owners.set_agent_enabled("default", False)
    with pytest.raises(Disabled):
        await library.search(bound, SearchRequest("tea"))
    await library.store.owners.set_user_enabled("ann", False)
    with pytest.raises(Disabled):
        await library.search(ANN, SearchRequest("tea"))
    await library.store.owners.erase_user("ann")
    page = await library.search(ANN, SearchRequest("tea"))
    assert page.explanation == "there is no user 'ann': nothing is stored under this id"
    assert not len(library.cache)


@pytest.mark.concurrent
async def test_cancelled_search_lets_its_ranking_end_before_the_next(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(library)
    is_ranking, go_on = threading.Event(), threading.Event()
    is_done = False

    def slow(*work: Any) -> Any:
        nonlocal is_done
        is_ranking.set()
        go_on.wait()
        is_done = True
        return rank(*work)

    monkeypatch.setattr("memrecall.search.engine.rank", slow)
    search = asyncio.create_task(library.search(ANN, SearchRequest("tea", mode="keyword")))
    await asyncio.to_thread(is_ranking.wait)
    search.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await search
    assert is_done


async def test_search_with_a_known_version_does_not_read_it_again(library: Library) -> None:
    await fill(library)
    request = SearchRequest("What does Ann drink?")
    with recorded_statements() as statements:
        user = await library.read_version(ANN, request)
        page = await library.search(ANN, request, user)
    assert page.results
    assert count_version_reads(statements) == 1


async def test_message_search_reads_the_version_once(library: Library) -> None:
    await fill(library)
    with recorded_statements() as statements:
        assert (await library.find_messages(ANN, LexicalQuery("tea"))).items
    assert count_version_reads(statements) == 1
    with recorded_statements() as statements:
        assert (await library.nearest_messages(ANN, SemanticQuery("tea"))).items
    assert count_version_reads(statements) == 1


async def test_read_version_rejects_a_disabled_user(library: Library) -> None:
    await fill(library)
    assert await library.read_version(Scope("nobody"), SearchRequest("tea")) is None
    await library.store.owners.set_user_enabled("ann", False)
    with pytest.raises(Disabled):
        await library.read_version(ANN, SearchRequest("tea"))


class GatedEmbedder(HashEmbedder):
    """An embedder that waits for a gate before it embeds a query."""

    def __init__(self) -> None:
        super().__init__()
        self.is_called = asyncio.Event()
        self.gate = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> Any:
        if texts:
            self.is_called.set()
            await self.gate.wait()
        return await super().embed(texts)


async def start_gated_search(library: Library) -> tuple[GatedEmbedder, "asyncio.Task[Any]"]:
    embedder = GatedEmbedder()
    cache = IndexCache(embedder.model, None, 10**9)
    engine = SearchEngine(library.store, embedder, cache)
    search = asyncio.create_task(engine.search(ANN, SearchRequest("green tea")))
    await embedder.is_called.wait()
    # Another search of the same engine brings the shared index to the latest version.
    await library.add_messages(ANN, messages("green tea, again"))
    await engine.search(ANN, SearchRequest("tea", mode="keyword"))
    return embedder, search


async def test_results_are_as_of_the_version_read_first(library: Library) -> None:
    await fill(library)
    embedder, search = await start_gated_search(library)
    embedder.gate.set()
    page = await search
    assert page.results[0].content == "I drink green tea"
    assert "green tea, again" not in {hit.content for hit in page.results}


async def test_rows_erased_during_a_search_are_not_returned(library: Library) -> None:
    await fill(library)
    embedder, search = await start_gated_search(library)
    await library.erase_user("ann")
    embedder.gate.set()
    page = await search
    assert (page.results, page.total_found) == ((), 0)


async def test_search_without_the_embedder_is_degraded(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(library)

    async def fail(*_: object) -> None:
        raise EmbedderFailed("the model file is missing")

    assert (await library.search(ANN, SearchRequest("tea"))).degraded is None
    monkeypatch.setattr(type(library.embedder), "embed", fail)
    page = await library.search(ANN, SearchRequest("blue bicycle"))
    assert page.degraded is DegradeReason.KEYWORDS_ONLY
    assert page.message == "searched by keywords only: the model file is missing"


async def test_rows_without_a_vector_degrade_a_search(library: Library) -> None:
    await fill(library)
    await library.store.timeline(ANN).add(messages("black coffee"))
    page = await library.search(ANN, SearchRequest("coffee"))
    assert (page.degraded, page.unembedded) == (DegradeReason.PARTLY_EMBEDDED, 1)


async def test_withheld_matches_are_counted_and_can_be_left_out_of_the_message(
    library: Library,
) -> None:
    secret = NewMemory(content="the alarm code is 4711", sensitive=True)
    await library.add_memories(ANN, [secret], origin=Origin.USER, actor="test")
    page = await library.search(ANN, SearchRequest("alarm code", mode="keyword"))
    assert (page.results, page.withheld) == ((), 1)
    assert "1 sensitive memories withheld" in page.message
    assert "withheld" not in page.describe(withheld=False)
    trusted = Scope("ann", permissions=frozenset({Permission.SENSITIVE}))
    seen = await library.search(trusted, SearchRequest("alarm code"))
    assert (seen.results[0].content, seen.withheld) == ("the alarm code is 4711", 0)
