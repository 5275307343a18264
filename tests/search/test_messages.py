"""Searches of messages only: exact BM25 and cosine scores, whatever else is stored."""

import math
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.errors import Disabled, InvalidArgument, NotFound
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import LexicalQuery, SemanticQuery, unit_vector
from memrecall.search.index.postings import QueryCost
from memrecall.search.ranking.lexical import K1, B, TermWeights, _QueryMatcher, match_words
from memrecall.settings import Settings
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..cases import check_each
from ..libraries import open_library

ANN = Scope("user")
WORDS = ["tea", "cup", "茶", "火锅", "吃火锅", "a", "火 锅", "火，锅", "锅火"]


def new_message(number: int, content: str) -> NewMessage:
    return NewMessage(message_id=f"m{number:03}", content=content, role=Role.USER)


async def find_ids(library: Library, text: str, **fields: Any) -> list[str]:
    page = await library.find_messages(ANN, LexicalQuery(text, **fields))
    return [item.message.message_id for item in page.items]


async def test_lexical_scores_are_bm25_over_messages_of_user() -> None:
    texts = ["tea tea cup", "tea", "cup of water and a spoon", "nothing here"]
    async with open_library(
        messages=[new_message(n, text) for n, text in enumerate(texts)]
    ) as library:
        noise = [NewMemory(content="tea tea tea tea") for _ in range(5)]
        await library.add_memories(ANN, noise, origin=Origin.USER, actor="test")
        page = await library.find_messages(ANN, LexicalQuery("tea OR cup"))

    scores = {item.message.message_id: item.score for item in page.items}
    lengths = [3, 1, 6, 2]
    average = sum(lengths) / len(lengths)

    def part(frequency: int, length: int, documents: int) -> float:
        weight = math.log(1 + (4 - documents + 0.5) / (documents + 0.5))
        norm = K1 * (1 - B + B * length / average)
        return weight * frequency * (K1 + 1) / (frequency + norm)

    expected = {"m000": part(2, 3, 2) + part(1, 3, 2), "m001": part(1, 1, 2), "m002": part(1, 6, 2)}
    assert scores == pytest.approx(expected, abs=2e-4)


async def test_unknown_or_disabled_user_is_rejected() -> None:
    async with open_library(messages=["tea"]) as library:
        with pytest.raises(NotFound):
            await library.find_messages(Scope("nobody"), LexicalQuery("tea"))
        with pytest.raises(NotFound):
            await library.nearest_messages(Scope("nobody"), SemanticQuery("tea"))
        with pytest.raises(NotFound):
            await library.require_user(Scope("nobody"))
        await library.store.owners.set_user_enabled("user", False)
        for search in (
            library.find_messages(ANN, LexicalQuery("tea")),
            library.nearest_messages(ANN, SemanticQuery("tea")),
            library.require_user(ANN),
        ):
            with pytest.raises(Disabled):
                await search


IMPOSSIBLE: list[Callable[[], object]] = [
    lambda: LexicalQuery(" "),
    lambda: LexicalQuery("x" * 10_001),
    lambda: LexicalQuery("tea", page_size=0),
    lambda: LexicalQuery("tea", page_size=201),
    SemanticQuery,
    lambda: SemanticQuery("tea", [1.0]),
    lambda: SemanticQuery("tea", top_k=0),
    lambda: SemanticQuery("tea", min_score=1.1),
    lambda: unit_vector([]),
    lambda: unit_vector([0.0, 0.0]),
    lambda: unit_vector([math.nan]),
    lambda: unit_vector([math.inf]),
]


def test_invalid_queries_are_rejected() -> None:
    def refuse(number: int) -> None:
        with pytest.raises(InvalidArgument):
            IMPOSSIBLE[number]()

    check_each(range(len(IMPOSSIBLE)), refuse)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=8).filter(lambda v: any(v)))
def test_unit_vector_has_unit_length(numbers: list[float]) -> None:
    assert float(np.linalg.norm(unit_vector(numbers).astype(np.float64))) == pytest.approx(1.0)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20), st.floats(0.1, 1e6))
def test_term_weights_round_trip_through_cursor(weights: list[float], average: float) -> None:
    term_weights = TermWeights(average, tuple(weights))
    assert TermWeights.unpack(term_weights.pack()) == term_weights


async def test_two_characters_match_as_phrase() -> None:
    """The lookup of indexed bigrams returns the same rows as a scan of the text."""
    texts = ["吃火锅", "火 锅", "火，锅", "锅火", "火锅火锅", "火", "锅", "hot火锅pot", "火\n锅"]
    async with open_library(
        messages=[new_message(n, text) for n, text in enumerate(texts)]
    ) as library:
        feed = library.store.feed("user")
        version = await feed.version()
        assert version is not None
        async with library.cache.open(feed, version) as columns:
            assert columns is not None
            numbers = [columns.vocabulary[word] for word in "火锅"]
            matcher = _QueryMatcher(columns, QueryCost())
            slow = matcher._rows_with_phrase([[number] for number in numbers])
            fast = match_words(columns, "火锅")
        assert fast.tolist() == slow.tolist()
        assert fast.sum() >= 3


async def test_equal_texts_have_equal_cosines(tmp_path: Path) -> None:
    texts = [f"tea number {n % 40}" for n in range(2_000)]
    settings_ = Settings(db=str(tmp_path / "a.db"), embedder="hash", cache_dir=str(tmp_path))
    async with await Library.open(settings_) as library:
        await library.add_messages(ANN, [new_message(n, text) for n, text in enumerate(texts)])
        await library.vectors.settle()
        assert library.embedder is not None
        query, *vectors = await library.embedder.embed(["tea number 7", *texts[:40]])
        page = await library.nearest_messages(ANN, SemanticQuery("tea number 7", top_k=200))
    assert len(page.items) == 200
    level: dict[str, float] = {}
    for item in page.items:
        text = item.message.content
        true = float(query @ vectors[texts.index(text)])
        assert item.score == pytest.approx(true, abs=2e-3)
        assert level.setdefault(text, item.score) == item.score
    assert page.items[0].score == 1.0
    assert {item.message.content for item in page.items[:50]} == {"tea number 7"}


MESSAGES = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), max_size=15)
examples = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = count()


@pytest.fixture
async def library_with_messages() -> AsyncIterator[Library]:
    """A library shared by all examples of a test, each with its own user."""
    async with open_library(messages=[new_message(0, "tea")], snapshots=False) as library:
        yield library


@examples
@given(first=MESSAGES, later=MESSAGES, size=st.integers(1, 4), text=st.sampled_from(WORDS[:5]))
async def test_later_pages_use_version_and_scores_of_first(
    library_with_messages: Library,
    first: list[list[str]],
    later: list[list[str]],
    size: int,
    text: str,
) -> None:
    """Later pages are equal in a process that did not see the version of the first."""
    scope = Scope(f"user {next(NUMBERS)}")
    messages = [
        new_message(0, "tea"),
        *(new_message(n, " ".join(w)) for n, w in enumerate(first, 1)),
    ]
    await library_with_messages.add_messages(scope, messages)
    full_page = await library_with_messages.find_messages(scope, LexicalQuery(text, page_size=200))
    whole = [(item.message.message_id, item.score) for item in full_page.items]
    pages: list[tuple[str, float]] = []
    cursor = None
    for part in range(len(whole) + 1):
        query = LexicalQuery(text, page_size=size, cursor=cursor)
        page = await library_with_messages.find_messages(scope, query)
        pages += [(item.message.message_id, item.score) for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
        new = [new_message(100 * (part + 1) + n, " ".join(w)) for n, w in enumerate(later)]
        await library_with_messages.add_messages(scope, new)
        if part % 2:
            library_with_messages.cache.forget(scope.user_id)
    assert pages == whole


async def test_agent_scope_limits_results_and_statistics() -> None:
    async with open_library(messages=["tea"]) as library:
        helper = Scope("user", agent_id="helper")
        await library.add_messages(helper, [new_message(1, "tea tea"), new_message(2, "cup")])
        expected = await library.find_messages(helper, LexicalQuery("tea"))
        await library.add_messages(ANN, [new_message(n, "tea") for n in range(10, 40)])
        await library.vectors.settle()
        later = await library.find_messages(helper, LexicalQuery("tea"))
        assert [item.message.message_id for item in later.items] == ["m001"]
        assert later.items[0].score == expected.items[0].score
        nearest = await library.nearest_messages(helper, SemanticQuery("tea", top_k=200))
        assert {item.message.message_id for item in nearest.items} == {"m001", "m002"}
