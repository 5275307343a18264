"""`time="last week"` and `time="上周"`: one period that filters every search and recall."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory
from memrecall.scope import Scope
from memrecall.search import LexicalQuery, SearchRequest, SemanticQuery
from memrecall.text.times import parse_period
from memrecall.types import NewMemory, NewMessage, Role

from ..libraries import open_library

NOW = datetime(2026, 3, 25, 4, tzinfo=UTC)  # a Wednesday
DAYS = "01-09T12:00 03-17T15:59 03-17T16:30 03-24T12:00"
TIMES = [f"2026-{day}:00Z" for day in DAYS.split()]  # in Shanghai, the third one is of the 18th
PERIODS: dict[Any, str] = {
    "last week": "23", "上周": "23", "2026-03-18": "3", "3月18日": "3", "18 March": "3",
    "2026-03": "234", "March": "234", "三月": "234", "2026": "1234", "last 2 days": "4",
    "最近两天": "4", "since 18 March": "34", "before March": "1", "2026-01-01 to 2026-03-17": "12",
    date(2026, 3, 18): "3",
}  # fmt: skip
NEAREST = {"2026-01-20": 0, "2026年2月28日": 1, "2027": 3, "before 2026": 0}
QUESTIONS = {
    "What did I say about tea?": "Nothing is stored for “2026-02”; the nearest is from 2026-03-17.",
    "我说过什么茶？": "“2026-02”没有任何记录，最近的是 2026-03-17。",
}
ANN = Scope("user")


@pytest.fixture
async def tea() -> AsyncIterator[AsyncMemory]:
    """The memory of a user in Shanghai, who said something on four days."""
    said = {str(n): datetime.fromisoformat(time) for n, time in enumerate(TIMES, 1)}
    new = [NewMessage(message_id=n, ts=said[n], role=Role.USER, content="tea 茶") for n in said]
    secret = NewMemory(content="tea", sensitive=True, valid_from=datetime(2026, 2, 27, tzinfo=UTC))
    async with open_library(messages=new, memories=[secret]) as library:
        await library.store.owners.set_time_zone("user", "Asia/Shanghai")
        yield AsyncMemory(library=library, user_id="user")


async def test_time_filters_search_and_recall(tea: AsyncMemory) -> None:
    library = (await tea.recaller()).library
    for period, keys in PERIODS.items():
        page = await library.search(ANN, SearchRequest("tea", time=period, now=NOW))
        assert sorted(hit.key for hit in page.results) == [*keys], period
        found = await tea.search("tea", time=period, reference_date=NOW, rerank=len(keys) > 1)
        assert sorted(item["id"] for item in found["results"]) == [*keys]
        result = await tea.recall("What did I say about tea?", time=period, clock=lambda: NOW)
        assert {key for query in result.queries for key in query.keys} == {*keys}
        assert {each.memory_key for each in result.memories} <= {*keys}


async def test_nearest_time_is_named_if_nothing_is_in_the_period(tea: AsyncMemory) -> None:
    library = (await tea.recaller()).library
    for period, at in NEAREST.items():
        page = await library.search(ANN, SearchRequest("tea", time=period, now=NOW))
        words = await library.find_messages(ANN, LexicalQuery("tea", time=period))
        near = await library.nearest_messages(ANN, SemanticQuery("tea", time=period))
        assert {page.nearest, words.nearest, near.nearest} == {datetime.fromisoformat(TIMES[at])}
        assert page.explanation == f"nothing for “{period}”; the nearest is from {TIMES[at][:10]}"
        found = await tea.search("tea", time=period, reference_date=NOW, rerank=bool(at))
        assert (page.explanation in found["message"], found["nearest"]) == (True, TIMES[at])
    before = await tea.search("tea", time="2026-02-28", as_of="2026-03-01")
    assert before["nearest"] == TIMES[0]  # not what was said later, nor the sensitive memory


@pytest.mark.parametrize("question", QUESTIONS)
async def test_recall_asks_for_the_nearest_time(tea: AsyncMemory, question: str) -> None:
    result = await tea.recall(question, time="2026-02")
    assert (result.memories, result.abstained) == ([], True)
    assert str(result.handoff.follow_up_question).startswith(QUESTIONS[question])


async def test_period_is_that_of_the_user_in_spaces_too(tea: AsyncMemory) -> None:
    await tea.create_space("team")
    await tea.space("team").add("tea for the team", timestamp=TIMES[2], infer=False)
    library = (await tea.recaller()).library
    for period, count in (("2026-03-18", 2), ("2026-03-17", 1), ("2026-03-16", 0)):
        found = await tea.bind(spaces=["team"]).search("tea", time=period)
        request = SearchRequest("tea", time=period, kind="message")
        page = await library.search(Scope("user", spaces=("team",)), request)
        assert (len(found["results"]), len(page.results)) == (count, count)
        assert ("nearest" in found) == (page.nearest is not None) == (not count)


async def test_pages_of_a_rolling_period_are_of_one_search(tea: AsyncMemory) -> None:
    library = (await tea.recaller()).library
    first = await library.find_messages(ANN, LexicalQuery("tea", page_size=1, time="最近99年"))
    more = LexicalQuery("tea", cursor=first.next_cursor, time="最近99年")
    page = await library.search(ANN, SearchRequest("tea", limit=1, time="last 99 years"))
    rest = SearchRequest("tea", cursor=page.next_cursor, time="last 99 years")
    assert len((await library.find_messages(ANN, more)).items) == 3
    assert len((await library.search(ANN, rest)).results) == 3


@pytest.mark.parametrize(
    "text", [3, "", "tea", "tea last week", "上周的茶", "2026-13", "x" * 9_999]
)
def test_text_that_is_no_period_is_refused_with_examples(text: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"is not a period.*last week.*上周"):
        parse_period(text)
