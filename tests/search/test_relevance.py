"""The two numbers of a hit: a score of 0.5 keeps answers, the probability doubts the rest."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import Hit, SearchPage, SearchRequest
from memrecall.types import NewMessage, Role

from ..cases import check_each_async
from ..libraries import open_library

pytestmark = pytest.mark.texts

USER = Scope("user")
START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)

FEW_MESSAGES = ["周末我想去徒步", "我的车在修", "我对花生过敏，海鲜也不能吃"]
MEMORIES = [
    *("User plays the oboe.", "User is allergic to peanuts.", "User's sister lives in Oslo."),
    *("User works as a nurse at night.", "User has a cat called Miso.", "User studies Portuguese."),
    *("User cycles to work every day.", "User's wedding anniversary is on 12 June."),
    *("User is building a greenhouse.", "User prefers window seats on trains."),
]
UNRELATED = [
    *("kubernetes ingress timeout", "How do I sort a list in Rust?"),
    *("What is the boiling point of mercury?", "Who won the 1998 football final?"),
    *("TLS certificate renewal failed", "量子力学的基本公式是什么？", "怎么重启路由器？"),
    "火星离太阳有多远？",
]
RELATED = [
    ("Which instrument does the user play?", "oboe"),
    ("What food is the user allergic to?", "peanuts"),
    ("Where does the user's sister live?", "Oslo"),
    ("What is the cat called?", "Miso"),
    ("When is the wedding anniversary?", "12 June"),
    ("Which language is the user learning?", "Portuguese"),
    ("用户对什么过敏？", "peanuts"),
    ("用户的猫叫什么名字？", "Miso"),
]


async def find(library: Library, query: str) -> SearchPage:
    return await library.search(USER, SearchRequest(query))


def likely(page: SearchPage) -> list[Hit]:
    """Return the hits that are at least as likely as not to answer."""
    return [hit for hit in page.results if (hit.probability or 0) >= 0.5]


def diary(rows: int) -> list[NewMessage]:
    """Return that many different messages, one an hour."""
    people = ("Ann", "My brother", "The neighbour", "Our teacher", "Her cousin", "The baker")
    events = (
        *("bought a red bicycle", "planted tomatoes", "moved to Lisbon", "reads crime novels"),
        *("collects stamps", "learned to swim", "baked rye bread", "missed the train"),
        *("paints the fence", "sings in a choir"),
    )
    details = ("last week", "in spring", "before lunch", "with a friend", "on Sunday")
    texts = [f"{who} {what} {when}." for who, what, when in product(people, events, details)]
    # Neighbours in the list are alike: a step over them gives even three rows different subjects.
    return [
        NewMessage(role=Role.USER, content=texts[at * 77 % 300], ts=START + timedelta(hours=at))
        for at in range(rows)
    ]


@pytest.mark.parametrize("query", ["我有什么忌口来着？", "我不能吃什么？"])
async def test_chinese_paraphrase_finds_the_allergy(query: str) -> None:
    async with open_library(messages=FEW_MESSAGES, embedder="local", snapshots=False) as library:
        first = (await find(library, query)).results[0]
    assert first.content == FEW_MESSAGES[2]
    assert first.score > 0.5


async def test_nothing_is_likely_for_unrelated_queries() -> None:
    async with open_library(memories=MEMORIES, embedder="local", snapshots=False) as library:

        async def check(query: str) -> None:
            page = await find(library, query)
            assert likely(page) == []

        await check_each_async(UNRELATED, check)


async def test_scores_of_related_queries_are_above_one_half() -> None:
    async with open_library(memories=MEMORIES, embedder="local", snapshots=False) as library:

        async def check(case: tuple[str, str]) -> None:
            query, answer = case
            first = (await find(library, query)).results[0]
            assert answer in first.content
            assert first.score > 0.5

        await check_each_async(RELATED, check)


async def test_unrelated_queries_stay_unlikely_in_a_growing_store() -> None:
    rows = diary(300)
    async with open_library(messages=rows[:3], embedder="local", snapshots=False) as library:

        async def check(case: tuple[int, str]) -> None:
            size, query = case
            page = await find(library, query)
            assert (page.searched, page.unembedded) == (size, 0)
            assert likely(page) == []

        await check_each_async([(3, query) for query in UNRELATED], check)
        await library.add_messages(USER, rows[3:30])
        await library.vectors.settle()
        await check_each_async([(30, query) for query in UNRELATED], check)
        await library.add_messages(USER, rows[30:])
        await library.vectors.settle()
        await check_each_async([(300, query) for query in UNRELATED], check)


async def test_answer_is_found_among_hundreds_of_rows() -> None:
    oboe = NewMessage(role=Role.USER, content="I play the oboe in an orchestra.", ts=START)
    async with open_library(
        messages=[oboe, *diary(300)], embedder="local", snapshots=False
    ) as library:
        for query in ("Which instrument do I play?", "Do I play in an orchestra?"):
            first = (await find(library, query)).results[0]
            assert (first.content, first.score > 0.5) == (oboe.content, True), query
