"""The offline recall policy: the order of its steps, its searches and its handoffs."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from memrecall.budget import Limit
from memrecall.messages import ConversationMessage
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
# Each window ends with a request without a word of its own.
FOLLOW_UPS = [
    ("What did the oil change cost?", "$389.", "and what about that?"),
    ("给孙女打的书桌用的什么料？", "樱桃木。", "那个呢？"),
    ("我们聊聊厨房瓷砖", "好的", "就按之前那个来"),
    ("Write a poem about a lighthouse", "The lamp turns…", "and then?"),
]


def window(*texts: str) -> list[ConversationMessage]:
    """Return messages of the user and the assistant in turn; the user's is the last."""
    return [
        (user if (len(texts) - number) % 2 else assistant)(text)
        for number, text in enumerate(texts)
    ]


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
        "What did I say last Tuesday?",
        "上周三我说了什么",
        "the trip in May",
        "五月去旅行的照片",
    ],
)
def test_times_and_speakers_are_left_to_the_search(text: str) -> None:
    """Its ranking knows them; a filter would hide what was said at another time."""
    (search,) = ask(text, TEN).searches
    assert search["query"] == text
    assert not {"since", "until", "role", "time_range_days"} & search.keys()


@pytest.mark.parametrize("result", [TEN, NOTHING], ids=["found", "nothing"])
def test_recall_takes_one_search(result: BaseModel) -> None:
    text = "what did I say about the bicycle chain?"
    for iteration in (1, 2):
        recall = recall_window([user(text)], result, iteration=iteration)
        assert recall.calls == ["search_memories", "handoff"]
        assert [search["query"] for search in recall.searches] == [text]


def test_search_without_hits_leads_to_a_follow_up_question() -> None:
    recall = ask("what did I say last Wednesday about zebras", NOTHING)
    assert recall.keys == []
    assert recall.handoff["confidence"] == 0
    assert recall.handoff["needs_more_info"] is True
    assert "zebras" in recall.handoff["follow_up_question"]


def test_question_without_a_word_to_name_asks_about_this() -> None:
    for text, words in (("那个东西", "这件事"), ("and that?", "about this.")):
        assert words in ask(text, NOTHING).handoff["follow_up_question"]


def test_searches_of_earlier_iterations_are_not_repeated() -> None:
    message = user("the zebras again")
    first = simulate(situation(message), scripted_tools(NOTHING)).searches[0]
    runs = (search_run(first, NOTHING),)
    later = replace(situation(message, iteration=2), runs=runs, earlier_runs=1)
    assert simulate(later, scripted_tools(NOTHING)).calls == ["handoff"]


def test_hits_of_earlier_iterations_are_handed_off() -> None:
    found = search_result(hit("old", "the zebra enclosure is at the north gate"))
    runs = (search_run({"query": "zebra"}, found),)
    later = situation(user("where was the zebra enclosure?"), iteration=2)
    recall = simulate(replace(later, runs=runs, earlier_runs=1), scripted_tools(NOTHING))
    assert recall.keys == ["old"]


@pytest.mark.parametrize("texts", FOLLOW_UPS, ids=lambda texts: texts[-1])
def test_follow_up_requests_a_larger_window_once(texts: tuple[str, ...]) -> None:
    recall = recall_window(window(*texts), TEN, older=True)
    assert recall.calls == ["expand_context_window"]
    assert recall.expansion == {
        "reason": recall.thoughts[0],
        "current_size": 3,
        "requested_size": 6,
    }
    later = recall_window(window(*texts), TEN, older=True, iteration=2)
    assert later.calls == ["search_memories", "handoff"]


@pytest.mark.parametrize("texts", FOLLOW_UPS, ids=lambda texts: texts[-1])
def test_follow_up_is_searched_with_the_lines_before_it(texts: tuple[str, ...]) -> None:
    recall = recall_window(window(*texts), TEN)
    assert recall.calls == ["search_memories", "handoff"]
    assert recall.searches[0]["query"] == "\n".join(texts)


@pytest.mark.parametrize(
    "texts",
    [
        ("今天下雨了", "记得带伞", "我的护照号码是多少"),
        ("我对什么过敏？", "花生。", "Where will the team offsite be?"),
        ("The boiler is leaking again.", "I will note it.", "Which plumber did we call?"),
        ("我们聊聊厨房瓷砖", "好的", "车库的停车费每月多少钱"),
    ],
    ids=lambda texts: texts[-1],
)
def test_request_with_words_of_its_own_is_searched_alone(texts: tuple[str, ...]) -> None:
    likely = search_result(hit("k", "something", probability=0.6))
    recall = recall_window(window(*texts), likely, older=True)
    assert recall.calls == ["search_memories", "handoff"]
    assert recall.searches[0]["query"] == texts[-1]


@pytest.mark.parametrize(
    "texts",
    [
        ("What did the oil change cost?", "$389.", "and the tyres?"),
        ("Who lives next door?", "Mrs Baker.", "What car does she drive?"),
        ("隔壁住的是谁？", "陈阿姨。", "她的电话号码是多少？"),
    ],
    ids=lambda texts: texts[-1],
)
def test_request_is_searched_with_the_lines_before_it_if_nothing_is_likely(
    texts: tuple[str, ...],
) -> None:
    likely, unlikely = (
        search_result(hit("k", "something", probability=chance)) for chance in (0.6, 0.4)
    )
    assert [s["query"] for s in recall_window(window(*texts), likely).searches] == [texts[-1]]
    searches = recall_window(window(*texts), unlikely, likely).searches
    assert [search["query"] for search in searches] == [texts[-1], "\n".join(texts)]


def test_request_without_lines_before_it_is_searched_as_it_is() -> None:
    for text in ("那个东西", "and the tyres?"):
        recall = ask(text, TEN)
        assert recall.expansion is None
        assert recall.searches[0]["query"] == text


def test_refused_window_is_not_requested_again() -> None:
    def refuse(name: str, arguments: dict[str, Any]) -> BaseModel:
        return expansion(approved=False) if name == "expand_context_window" else NOTHING

    texts = FOLLOW_UPS[0]
    recall = simulate(situation(*window(*texts), older=True), refuse)
    assert recall.calls == ["expand_context_window", "search_memories", "handoff"]
    assert recall.searches[0]["query"] == "\n".join(texts)


def test_long_conversation_is_searched_by_its_latest_words() -> None:
    lines = window("the lighthouse " * 100, "noted " * 100, "and then?")
    query = recall_window(lines, TEN).searches[0]["query"]
    assert len(query) == 980
    assert query.endswith("noted\nand then?")


def test_each_message_is_one_line_of_the_query() -> None:
    """The search treats several lines as a conversation."""
    lines = [user("The oil\n\nchange "), assistant(""), user(" and\nthen?")]
    assert recall_window(lines, TEN).searches[0]["query"] == "The oil change\nand then?"


def test_greetings_and_thanks_are_handed_off_at_once() -> None:
    thanks = [user("帮我写一首关于灯塔的诗"), assistant("灯塔……"), user("谢谢")]
    for window in ([user("你好")], thanks):
        assert recall_window(window, TEN).calls == ["handoff"]
    for text in ("最近怎么样？", "How are you?"):
        assert ask(text, TEN).calls == ["handoff"]


def test_question_of_unknown_words_is_searched() -> None:
    assert ask(
        "打八八折是每个月的哪天？", search_result(hit("k", "每月八号打八八折", 0.9))
    ).keys == ["k"]
    assert ask("我不能吃什么？", search_result(hit("k", "我对花生过敏", 0.9))).searches


def test_order_of_the_search_is_kept() -> None:
    hits = [
        hit("old", "备份每天凌晨三点跑", 0.8, created_at="2026-03-01T10:00:00+00:00"),
        hit("new", "备份改到凌晨五点跑", 0.78, created_at="2026-03-09T10:00:00+00:00"),
    ]
    recall = ask("备份是几点跑来着", search_result(*hits))
    assert recall.keys == ["old", "new"]
    assert "2026-03-09" in recall.handoff["search_summary"].splitlines()[-1]


def test_superseded_statement_comes_after_a_valid_one() -> None:
    old = hit("old", "the bicycle is in the shed", 0.92, valid_to="2026-04-02T00:00:00+00:00")
    new = hit("new", "the bicycle is in the cellar", 0.9)
    assert ask("where is my bicycle?", search_result(old, new)).keys == ["new", "old"]


def test_unlikely_hits_are_quoted_instead_of_handed_off() -> None:
    hits = [hit(f"k{n}", f"nice weather {n}", probability=0.09 - n / 50) for n in range(4)]
    recall = ask("Where is my bicycle?", search_result(*hits))
    assert recall.keys == []
    assert recall.handoff["confidence"] == 0.09
    assert recall.handoff["needs_more_info"] is True
    assert "bicycle" in recall.handoff["follow_up_question"]
    _, *quotes = recall.handoff["search_summary"].splitlines()
    assert [quote.endswith(f"“nice weather {n}”") for n, quote in enumerate(quotes)] == [True] * 3


def test_hits_are_quoted_if_an_answer_is_unlikely() -> None:
    """A hit may be the best of the store and still answer nothing."""
    for best, answered, keys in (
        (0.25, 0.69, []),
        (0.25, 0.71, ["k0", "k1", "k2"]),
        (0.35, 0.69, ["k0", "k1", "k2", "k3"]),  # not unlikely itself
        (0.25, None, ["k0", "k1", "k2"]),
    ):
        hits = [hit(f"k{n}", f"nice weather {n}", probability=best - n / 10) for n in range(4)]
        recall = ask("Where is my bicycle?", search_result(*hits, answered=answered))
        assert recall.keys == keys
        assert recall.handoff["needs_more_info"] is not bool(keys)
        assert "nice weather 0" in recall.handoff["search_summary"]


def test_hits_are_handed_off_beside_a_likelier_one_unless_they_are_very_unlikely() -> None:
    weather = [
        hit(f"k{n}", f"nice weather {n}", probability=p)
        for n, p in enumerate((0.06, 0.05, 0.02, 0.01))
    ]
    found = search_result(*weather, hit("a", "I left it by the church", probability=0.3))
    assert ask("Where is my bicycle?", found).keys == ["a", "k0", "k1"]


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


def test_confidence_is_about_the_first_item() -> None:
    """A superseded statement makes nothing else sure, however likely it is itself."""
    outdated = hit("old", "the shed", probability=0.9, valid_to="2026-04-02T00:00:00+00:00")
    valid = [hit(f"k{n}", f"the cellar {n}", probability=0.2) for n in range(4)]
    for count, keys in ((0, ["old"]), (2, ["k0", "k1", "old"]), (4, ["k0", "k1", "k2", "k3"])):
        recall = ask("where is my bicycle?", search_result(outdated, *valid[:count]))
        assert recall.keys == keys
        assert recall.handoff["confidence"] == (0.2 if count else 0.9)


def test_hit_of_two_searches_counts_with_the_higher_probability() -> None:
    runs = (search_run({"query": "zebra"}, search_result(hit("k", "the zebra house", 0.4))),)
    later = situation(user("what did I say about zebras"), iteration=2)
    higher = search_result(hit("k", "the zebra house", 0.8))
    recall = simulate(replace(later, runs=runs, earlier_runs=1), scripted_tools(higher))
    assert recall.keys == ["k"]
    assert recall.handoff["confidence"] == 0.4


def test_answer_is_left_out_if_its_sources_were_found() -> None:
    answer = hit("a", "You said: the shed.", probability=0.8, role="assistant", made_from=["k"])
    source = hit("k", "the bicycle is in the shed", probability=0.5)
    assert ask("where is my bicycle?", search_result(answer, source)).keys == ["k"]
    assert ask("where is my bicycle?", search_result(answer)).keys == ["a"]


@pytest.mark.parametrize(
    ("chances", "count"),
    [
        ([0.9], 1),
        ([0.9, 0.01, 0.01, 0.01], 1),
        ([0.9, *[0.2] * 9], 4),
        ([0.5, 0.04, 0.02, 0.01], 2),
        ([0.5, 0.2, 0.1, 0.05], 4),
        ([0.15] * 10, 4),
    ],
)
def test_number_of_items(chances: list[float], count: int) -> None:
    hits = [hit(f"k{n}", f"Wade paid {n}", probability=p) for n, p in enumerate(chances)]
    recall = ask("what did Wade pay?", search_result(*hits))
    assert recall.keys == [f"k{n}" for n in range(count)]


def test_speaker_is_quoted_and_does_not_change_the_order() -> None:
    hits = [
        hit("a", "I won the chess tournament in Oslo", 0.9, speaker="Ben", role="assistant"),
        *(hit(f"k{n}", f"nice weather {n}", 0.6, speaker="Ada") for n in range(5)),
    ]
    recall = ask("Which chess tournament did Ada win?", search_result(*hits))
    assert recall.keys == ["a", "k0", "k1", "k2"]
    assert "Ben: “I won the chess" in recall.handoff["search_summary"]


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


@pytest.mark.parametrize(
    ("code", "searches"),
    [("storage", 2), ("embedder", 2), ("timeout", 1), ("internal", 1), ("no_permission", 1)],
)
def test_search_failure_is_reported_as_a_failure(code: str, searches: int) -> None:
    recall = ask("where is my bicycle?", failure(code))
    assert code in recall.handoff["search_summary"]
    assert recall.keys == []
    assert recall.handoff["needs_more_info"] is False
    assert len(recall.searches) == searches


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


def test_question_after_withheld_matches_does_not_ask_for_their_words() -> None:
    for text, words in (("where is my bicycle?", "may not be shown"), ("我的自行车呢", "无权显示")):
        handoff = ask(text, search_result(withheld=1)).handoff
        assert handoff["relevant_memory_keys"] == []
        assert words in handoff["follow_up_question"]


def test_summaries_quote_with_speaker_and_date_in_the_users_language() -> None:
    recall = ask("我的自行车放在哪里", search_result(hit("k", "自行车放在车棚里")))
    assert "2026-04-01，用户：“自行车放在车棚里”" in recall.handoff["search_summary"]
    assert all("\u4e00" <= thought[0] <= "\u9fff" for thought in recall.thoughts)
