"""The offline recall policy: the order of its steps and its handoffs."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from memrecall.agent.tools.models import GetMemoryDetailOutput, NearbyMessage
from memrecall.budget import Limit
from tests.agent.offline.simulation import (
    ask,
    assistant,
    expansion,
    failure,
    hit,
    recall_window,
    scripted_tools,
    search_result,
    search_run,
    simulate,
    situation,
    user,
)

NOTHING = search_result()
TEN = search_result(
    *(hit(f"k{n}", f"the kitchen tiles, sample {n}", 0.9 - n / 20) for n in range(10))
)


def read_detail(key: str, content: str, reply: str, speaker: str) -> GetMemoryDetailOutput:
    """Return a message with the reply after it, whose key is "r"."""
    after = NearbyMessage(
        memory_key="r", speaker=speaker, created_at="2026-04-01T10:01:00+00:00", content=reply
    )
    return GetMemoryDetailOutput(success=True, memory_key=key, content=content, after=[after])


def test_search_is_the_whole_request_without_filters() -> None:
    text = "please tell me what tiles I chose for the kitchen"
    recall = ask(text, TEN)
    assert recall.searches == [
        {"query": text, "search_mode": "hybrid", "limit": 10, "min_relevance_score": 0.0}
    ]
    assert recall.keys[0] == "k0"


@pytest.mark.parametrize(
    "text",
    [
        "what did I say last Wednesday about tiles",
        "上周三你给我的清单",
        "the trip in May",
        "五月去旅行的照片",
    ],
)
def test_request_with_content_words_is_searched_without_filters(text: str) -> None:
    (search,) = ask(text, TEN).searches
    assert search["query"] == text
    assert not {"since", "until", "role"} & search.keys()


def test_search_without_hits_leads_to_a_follow_up_question() -> None:
    recall = ask("what did I say last Wednesday about zebras", NOTHING)
    assert recall.calls == ["search_memories", "handoff"]
    assert recall.keys == []
    assert recall.handoff["confidence"] == 0
    assert recall.handoff["needs_more_info"] is True
    assert "zebras" in recall.handoff["follow_up_question"]


def test_searches_of_earlier_iterations_are_not_repeated() -> None:
    message = user("the zebras again")
    first = simulate(situation(message), scripted_tools(NOTHING)).searches[0]
    runs = (search_run(first, NOTHING),)
    later = replace(situation(message, iteration=2), runs=runs, earlier_runs=1)
    assert first not in simulate(later, scripted_tools(NOTHING)).searches


def test_hits_of_earlier_iterations_are_candidates() -> None:
    found = search_result(hit("old", "the zebra enclosure is at the north gate"))
    runs = (search_run({"query": "zebra"}, found),)
    later = situation(user("where was the zebra enclosure?"), iteration=2)
    recall = simulate(replace(later, runs=runs, earlier_runs=1), scripted_tools(NOTHING))
    assert recall.keys == ["old"]


@pytest.mark.parametrize("text", ["那个东西", "do it like last time", "之前那个呢"])
def test_bare_reference_expands_the_window(text: str) -> None:
    recall = recall_window([user(text)], NOTHING, older=True)
    assert recall.expansion == {
        "reason": recall.thoughts[0],
        "current_size": 1,
        "requested_size": 2,
    }


def test_window_is_not_expanded_without_older_messages() -> None:
    recall = ask("那个东西", NOTHING)
    assert recall.expansion is None
    assert "那个" in recall.handoff["follow_up_question"]


def test_refused_expansion_is_not_repeated() -> None:
    def refuse(name: str, arguments: dict[str, Any]) -> BaseModel:
        return expansion(approved=False) if name == "expand_context_window" else NOTHING

    recall = simulate(situation(user("那个东西"), older=True), refuse)
    assert recall.calls.count("expand_context_window") == 1


def test_reference_to_the_window_needs_no_keys() -> None:
    window = [user("Write a poem about a lighthouse"), assistant("The lamp turns…"), user("go on")]
    recall = recall_window(window, TEN)
    assert recall.keys == []
    assert recall.handoff["needs_more_info"] is False
    assert "The lamp turns" in recall.handoff["search_summary"]


def test_greetings_and_thanks_are_handed_off_at_once() -> None:
    thanks = [user("帮我写一首关于灯塔的诗"), assistant("灯塔……"), user("谢谢")]
    for window in ([user("你好")], thanks):
        assert recall_window(window, TEN).calls == ["handoff"]
    for text in ("你好吗？", "How are you?"):
        assert not ask(text, search_result(hit("k", "hi", 0.9))).searches


def test_bare_reference_is_searched_by_earlier_words() -> None:
    window = [user("我们聊聊厨房瓷砖"), assistant("好的"), user("就按之前那个来")]
    assert "厨房瓷砖" in recall_window(window, NOTHING).searches[0]["query"]


def test_complete_question_is_searched_alone() -> None:
    rain = [user("今天下雨了"), assistant("记得带伞"), user("我的护照号是多少")]
    allergy = [user("我对什么过敏？"), assistant("花生。"), user("Where will the offsite be?")]
    for window in (rain, allergy):
        assert recall_window(window, TEN).searches[0]["query"] == window[-1].text


def test_expired_memory_ranks_below_a_valid_one() -> None:
    expired = hit("old", "the bicycle is in the shed", 0.92, valid_to="2026-04-02T00:00:00+00:00")
    valid = hit("new", "the bicycle is in the cellar", 0.9)
    assert ask("where is my bicycle?", search_result(expired, valid)).keys[0] == "new"


def test_clear_request_takes_three_calls() -> None:
    hits = [hit(f"k{n}", f"pottery {n}", 0.9 - n / 10, speaker="Ada") for n in range(3)]
    recall = ask("What did Ada make in Ada's pottery class?", search_result(*hits))
    assert recall.calls == ["search_memories", "get_memory_detail", "handoff"]


def test_only_irrelevant_hits_are_not_handed_off() -> None:
    hits = [hit(f"k{n}", f"nice weather {n}", 0.1 - n / 50) for n in range(4)]
    recall = ask("Where is my bicycle?", search_result(*hits))
    assert recall.keys == []
    assert recall.handoff["needs_more_info"] is True
    assert "nice weather 0" in recall.handoff["search_summary"]  # the closest
    with_outlier = [hit("a", "I left it by the church", 0.85), *hits]
    assert ask("Where is my bicycle?", search_result(*with_outlier)).keys[0] == "a"


def test_unsure_hit_is_handed_off_with_its_low_confidence() -> None:
    result = search_result(hit("k", "my sister moved to Porto", 0.6, probability=0.16))
    recall = ask("What is my sister's phone number?", result)
    assert recall.keys == ["k"]
    assert recall.handoff["confidence"] == 0.16
    assert recall.handoff["needs_more_info"] is False


def test_confidence_is_the_probability_of_the_best_hit() -> None:
    bicycle = "I left the bicycle by the church"
    for size in (10, 100_000):
        found = search_result(hit("k", bicycle, 0.6, probability=0.5), searched=size)
        assert ask("Where is my bicycle?", found).handoff["confidence"] == 0.5
    by_words = search_result(hit("k", bicycle, 0.6))  # has no probability
    assert ask("Where is my bicycle?", by_words).handoff["confidence"] == 0.3


def test_confidence_is_that_of_the_first_three_hits() -> None:
    outdated = hit("old", "the shed", probability=0.6, valid_to="2026-04-02T00:00:00+00:00")
    valid = [hit(f"k{n}", f"the cellar {n}", probability=0.2) for n in range(3)]
    for count, confidence in ((2, 0.6), (3, 0.2)):
        recall = ask("where is my bicycle?", search_result(outdated, *valid[:count]))
        assert recall.keys[-1] == "old"
        assert recall.handoff["confidence"] == confidence


def test_later_search_does_not_raise_a_score() -> None:
    runs = (search_run({"query": "zebra"}, search_result(hit("k", "the zebra house", 0.4))),)
    later = situation(user("what did I say about zebras"), iteration=2)
    higher = search_result(hit("k", "the zebra house", 0.99))
    recall = simulate(replace(later, runs=runs, earlier_runs=1), scripted_tools(higher))
    assert len(recall.searches) == 1
    assert recall.keys == ["k"]
    assert recall.handoff["confidence"] == 0.2


def test_speaker_is_quoted_and_does_not_change_the_order() -> None:
    hits = [
        hit("a", "I won the chess tournament in Oslo", 0.9, speaker="Ben", role="assistant"),
        *(hit(f"k{n}", f"nice weather {n}", 0.6, speaker="Ada") for n in range(5)),
    ]
    recall = ask("Which chess tournament did Ada win?", search_result(*hits))
    assert recall.keys == ["a", "k0", "k1", "k2"]
    assert "Ben: “I won the chess" in recall.handoff["search_summary"]


def test_reply_to_the_same_question_is_handed_off_instead_of_it() -> None:
    question = "How do I keep basil alive on the balcony?"
    reply = "Water it from below and pinch the tips."
    detail = read_detail("q", question, reply, "assistant")
    result = search_result(hit("q", question, probability=0.6))
    recall = ask("how can I keep the basil on the balcony alive?", result, detail=detail)
    assert recall.keys == ["r"]
    assert recall.handoff["confidence"] == 0.3
    other = ask("what did you suggest for the basil on the balcony?", result, detail=detail)
    assert other.keys == ["q"]


@pytest.mark.parametrize(
    ("probability", "keys"), [(0.2, ["r", "near", "q"]), (0.3, ["near", "r", "q"])]
)
def test_reply_has_half_the_probability_of_its_question(
    probability: float, keys: list[str]
) -> None:
    question = "New flat, very cheap. What's the catch?"
    result = search_result(
        hit("q", question, probability=0.5),
        hit("near", "catch a flight, catch a bus", probability=probability, speaker="Ann"),
    )
    detail = read_detail("q", question, "It sits above a night club.", "Bo")
    assert ask("what was the catch again?", result, detail=detail).keys == keys


def test_order_of_the_search_is_kept() -> None:
    hits = [
        hit("old", "备份每天凌晨三点跑", 0.8, created_at="2026-03-01T10:00:00+00:00"),
        hit("new", "备份改到凌晨五点跑", 0.78, created_at="2026-03-09T10:00:00+00:00"),
    ]
    recall = ask("备份是几点跑来着", search_result(*hits))
    assert recall.keys == ["old", "new"]
    assert "2026-03-09" in recall.handoff["search_summary"].splitlines()[-1]


@pytest.mark.parametrize(
    ("of_message", "of_memory", "likelier"), [(0.4, 0.3, "m"), (0.3, 0.4, "k")]
)
def test_memory_and_the_message_that_states_it_are_one(
    of_message: float, of_memory: float, likelier: str
) -> None:
    message = hit("m", "my bicycle is in the shed now", probability=of_message)
    memory = hit("k", "It is in the shed", probability=of_memory, kind="memory", stated_by=["m"])
    other = hit("o", "the car is in the street", probability=0.5)
    recall = ask("where is my bicycle?", search_result(message, other, memory))
    assert recall.keys == [likelier, "o"]
    assert recall.handoff["confidence"] == 0.7


@pytest.mark.parametrize("code", ["storage", "timeout", "internal", "no_permission"])
def test_search_failure_is_reported_as_a_failure(code: str) -> None:
    recall = ask("where is my bicycle?", failure(code))
    assert code in recall.handoff["search_summary"]
    assert recall.handoff["needs_more_info"] is False
    assert len(recall.searches) <= 2


def test_forced_handoff_before_any_search_reports_the_limit() -> None:
    for text, words in (("我的自行车在哪里", "未能搜索"), ("my bicycle?", "allowed no search")):
        recall = simulate(situation(user(text)), scripted_tools(TEN), last=Limit.SECONDS)
        assert recall.calls == ["handoff"]
        assert words in recall.handoff["search_summary"]


def test_embedder_failure_falls_back_to_keyword_search() -> None:
    recall = ask("where is my bicycle?", failure("embedder"), TEN)
    assert recall.searches[1]["search_mode"] == "keyword"
    assert "embedder" in recall.handoff["search_summary"]


def test_handoff_counts_withheld_memories() -> None:
    bicycle = hit("k", "the bicycle is in the shed")
    result = search_result(bicycle, message="The query was shortened.", withheld=2)
    summary = ask("where is my bicycle?", result).handoff["search_summary"]
    assert "sensitive memories that match (2)" in summary
    assert "The query was shortened." not in summary


def test_summaries_quote_with_speaker_and_date_in_the_users_language() -> None:
    recall = ask("我的自行车放在哪里", search_result(hit("k", "自行车放在车棚里")))
    assert "2026-04-01，用户：“自行车放在车棚里”" in recall.handoff["search_summary"]
    assert all("\u4e00" <= thought[0] <= "\u9fff" for thought in recall.thoughts)


def test_request_is_searched_once() -> None:
    text = "what did I say about the bicycle chain?"
    for result in (search_result(hit("k", "nice weather", 0.2)), NOTHING):
        for iteration in (1, 2):
            recall = recall_window([user(text)], result, iteration=iteration)
            assert [search["query"] for search in recall.searches] == [text]


def test_request_by_time_alone_is_searched_within_it() -> None:
    for text, day in (("What did I say last Tuesday?", 14), ("上周三我说了什么", 15)):
        recall = ask(text, NOTHING)
        (search,) = recall.searches
        assert search["since"] == f"2026-04-{day}T00:00:00+00:00"
        assert search["until"] == f"2026-04-{day + 1}T00:00:00+00:00"
        assert recall.keys == []


def test_question_of_unknown_words_is_searched() -> None:
    assert ask(
        "打八八折是每个月的哪天？", search_result(hit("k", "每月八号打八八折", 0.9))
    ).keys == ["k"]
    assert ask("我不能吃什么？", search_result(hit("k", "我对花生过敏", 0.9))).searches


def test_elliptic_question_is_searched_with_the_conversation() -> None:
    cases = (
        ("What did the oil change cost?", "$389.", "and the tyres?"),
        ("给孙女打的书桌用的什么料？", "樱桃木。", "漆呢？"),
        ("Who looked at the quad?", "Ifan.", "what did he charge?"),
    )
    for lines in cases:
        window = [user(lines[0]), assistant(lines[1]), user(lines[2])]
        (search,) = recall_window(window, TEN).searches
        assert search["query"] == "\n".join(lines)


def test_outdated_statement_is_named() -> None:
    ended = "2026-04-20T10:00:00+00:00"
    old = hit("joyce", "Joyce has the spare key", 0.9, probability=0.4, valid_to=ended)
    new = hit(
        "omar",
        "Omar keeps my spare key now",
        0.9,
        probability=0.4,
        created_at="2026-04-20T10:00:00+00:00",
    )
    for text, words in (
        ("Who has my spare key?", "Outdated since 2026-04-20: 2026-04-01"),
        ("我的备用钥匙在谁那儿？", "自 2026-04-20 起已过时：2026-04-01"),
    ):
        recall = ask(text, search_result(old, new))
        assert recall.keys[0] == "omar"
        assert words in recall.handoff["search_summary"]


def test_number_of_items() -> None:
    def count_items(text: str, *chances: float) -> int:
        hits = [hit(f"k{n}", f"Wade paid {n}", probability=p) for n, p in enumerate(chances)]
        return len(ask(text, search_result(*hits)).keys)

    one, every = "what did Wade pay?", "how much has Wade paid so far?"
    assert count_items(one, 0.5, 0.01, 0.01, 0.01) == count_items(every, 0.5, 0.01, 0.01, 0.01) == 3
    assert count_items(one, *[0.1] * 10) == 4
    assert count_items(every, *[0.1] * 10) == 8
    assert count_items(every, *[0.1] * 6, *[0.02] * 4) == 6
