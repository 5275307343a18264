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


def test_first_search_is_the_question_without_politeness() -> None:
    recall = ask("please tell me what tiles I chose for the kitchen", TEN)
    first = recall.searches[0]
    assert first["query"] == "what tiles I chose for the kitchen"
    assert (first["search_mode"], first["min_relevance_score"]) == ("hybrid", 0.2)
    assert recall.keys[0] == "k0"


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        (
            "what did I say last Wednesday about tiles",
            {
                "since": "2026-04-15T00:00:00+00:00",
                "until": "2026-04-16T00:00:00+00:00",
                "role": "user",
            },
        ),
        ("上周三你给我的清单", {"since": "2026-04-15T00:00:00+00:00", "role": "assistant"}),
        ("the trip in May", {}),
        ("五月去旅行的照片", {}),
    ],
)
def test_only_times_of_speech_filter_the_search(text: str, filters: dict[str, str]) -> None:
    first = ask(text, TEN).searches[0]
    assert first.items() >= filters.items()
    assert filters or not {"since", "until", "role"} & first.keys()


def test_search_widens_step_by_step_until_a_follow_up_question() -> None:
    recall = ask("what did I say last Wednesday about zebras", NOTHING)
    steps = [
        ("since" in search, search["min_relevance_score"], search.get("role"))
        for search in recall.searches
    ]
    assert steps == [(True, 0.2, "user"), (False, 0.02, "user"), (False, 0.1, None)]
    assert recall.keys == []
    assert recall.handoff["confidence"] <= 0.2
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


def test_unsupported_request_is_not_handed_off() -> None:
    hits = [hit(f"k{n}", f"nice weather {n}", 0.3 - n / 50) for n in range(4)]
    assert ask("Where is my bicycle?", search_result(*hits)).keys == []
    with_outlier = [hit("a", "I left it by the church", 0.85), *hits]
    assert ask("Where is my bicycle?", search_result(*with_outlier)).keys[0] == "a"


def test_unknown_number_is_not_handed_off() -> None:
    result = search_result(hit("k", "my sister moved to Porto", 0.89))
    for text, expected in (("What is my sister's phone number?", []), ("my sister's home?", ["k"])):
        assert ask(text, result).keys == expected


def test_same_hits_are_trusted_more_in_a_larger_store() -> None:
    found = hit("k", "I left the bicycle by the church", 0.6, probability=0.5)
    sizes = (10, 100, 1_000, 10_000, 100_000)
    results = [search_result(found, searched=size) for size in sizes]
    confidences = [ask("Where is my bicycle?", r).handoff["confidence"] for r in results]
    assert confidences == sorted(confidences)
    assert confidences[0] < confidences[-1] < 0.95


def test_later_search_does_not_raise_a_score() -> None:
    low_hits = [hit(f"k{n}", "nice weather", 0.3 - n / 100) for n in range(4)]
    narrow = [hit("k3", "nice weather", 0.99), *low_hits[:3]]
    recall = ask("what did I say about zebras", search_result(*low_hits), search_result(*narrow))
    assert len(recall.searches) > 1
    assert recall.keys == []


def test_statements_of_another_person_are_not_handed_off() -> None:
    hits = [
        hit("a", "I won the chess tournament in Oslo", 0.9, speaker="Ben", role="assistant"),
        *(hit(f"k{n}", f"nice weather {n}", 0.6, speaker="Ada") for n in range(5)),
    ]
    question = "Which chess tournament did Ada win?"
    recall = ask(question, search_result(*hits, told_of={"Ben": 0.9, "Ada": 0.0}))
    assert recall.keys == []
    assert "Ben" in recall.handoff["search_summary"]
    recall = ask(question, search_result(*hits, told_of={"Ben": 0.5, "Ada": 0.9}))
    assert recall.keys[0] == "a"


def test_reply_of_the_assistant_is_handed_off_with_its_question() -> None:
    question = "How do I keep basil alive on the balcony?"
    detail = read_detail("q", question, "Water it from below and pinch the tips.", "assistant")
    recall = ask(
        "what did you suggest for the basil on the balcony?",
        search_result(hit("q", question)),
        detail=detail,
    )
    assert recall.keys == ["q", "r"]


def test_reply_to_a_repeated_question_beats_what_shares_its_words() -> None:
    question = "New flat, very cheap. What's the catch?"
    result = search_result(
        hit("near", "Ann: catch a flight, catch a bus", 0.9, speaker="Ann"),
        hit("q", question, 0.5),
    )
    detail = read_detail("q", question, "It sits above a night club.", "Bo")
    assert ask("what was the catch again?", result, detail=detail).keys[0] == "r"


def test_latest_user_statement_ranks_first() -> None:
    hits = [
        hit("old", "备份每天凌晨三点跑", 0.8, created_at="2026-03-01T10:00:00+00:00"),
        hit("new", "备份改到凌晨五点跑", 0.78, created_at="2026-03-09T10:00:00+00:00"),
    ]
    recall = ask("备份是几点跑来着", search_result(*hits))
    assert recall.keys == ["new", "old"]
    assert "2026-03-09" in recall.handoff["search_summary"].splitlines()[-1]


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


def test_fruitless_searches_are_limited() -> None:
    single_hit = search_result(hit("k", "nice weather", 0.3))
    recall = ask("what did I say about the bicycle chain?", single_hit)
    assert len(recall.searches) == 3  # the first search and two with the same hits
    empty = recall_window([user("where is my bicycle chain?")], NOTHING, iteration=2)
    assert len(empty.searches) == 2


def test_request_by_time_alone_keeps_its_time_filter() -> None:
    for text in ("What did I say last Tuesday?", "上周三我说了什么"):
        recall = ask(text, NOTHING)
        assert len(recall.searches) == 1
        assert recall.keys == []


def test_question_of_unknown_words_is_searched() -> None:
    discount = search_result(hit("k", "每月八号打八八折", 0.9))
    assert ask("打八八折是每个月的哪天？", discount).keys == ["k"]
    assert ask("我不能吃什么？", search_result(hit("k", "我对花生过敏", 0.9))).searches


def test_elliptic_question_is_searched_with_the_question_before_it() -> None:
    cases = (
        ("What did the oil change cost?", "$389.", "and the tyres?"),
        ("给孙女打的书桌用的什么料？", "樱桃木。", "漆呢？"),
        ("Who looked at the quad?", "Ifan.", "what did he charge?"),
    )
    for asked, answer, follow_up in cases:
        window = [user(asked), assistant(answer), user(follow_up)]
        assert recall_window(window, TEN).searches[0]["query"] == f"{asked} {follow_up}"


def test_follow_up_prefers_what_was_not_yet_said() -> None:
    said = hit("oil", "Oil change in Amarillo, $389", 0.9, probability=0.4)
    new = hit("tyre", "blew a steer tyre near Conway, $640", 0.9, probability=0.35)
    window = [
        user("What did the oil change cost?"),
        assistant("$389 for the oil change in Amarillo."),
        user("and the tyre?"),
    ]
    assert recall_window(window, search_result(said, new)).keys[0] == "tyre"


@pytest.mark.parametrize(
    ("question", "without", "with_value"),
    [
        ("吴护士长手机号多少？", "新护士长姓吴，人挺和气", "吴护士长手机 13912345678"),
        ("What's the locker code?", "the locker is number 12 on the left", "locker code 4711"),
        ("早教班一年学费是多少？", "早教班的老师姓柯", "早教班学费一年两万四"),
        ("what's my passport number?", "no flight before nine", "passport number is XK3920117"),
    ],
)
def test_hit_without_the_asked_value_is_no_answer(
    question: str, without: str, with_value: str
) -> None:
    for text, expected in ((without, []), (with_value, ["k"])):
        assert ask(question, search_result(hit("k", text, 0.75))).keys == expected, text


def test_outdated_statement_is_named() -> None:
    old = hit("joyce", "Joyce has the spare key", 0.9, probability=0.4)
    new = hit(
        "omar",
        "Omar keeps my spare key now",
        0.9,
        probability=0.4,
        replaces=["joyce"],
        created_at="2026-04-20T10:00:00+00:00",
    )
    for text, words in (
        ("Who has my spare key?", "Outdated since 2026-04-20: 2026-04-01"),
        ("我的备用钥匙在谁那儿？", "自 2026-04-20 起已过时：2026-04-01"),
    ):
        recall = ask(text, search_result(old, new))
        assert recall.keys[0] == "omar"
        assert words in recall.handoff["search_summary"]


def test_question_for_all_hands_off_more() -> None:
    chances = (0.5, 0.2, 0.15, 0.1)
    hits = [hit(f"k{n}", f"Wade paid {n}", 0.9, probability=p) for n, p in enumerate(chances)]
    questions = ("what did Wade pay?", "how much has Wade paid so far?")
    few, many = (len(ask(text, search_result(*hits)).keys) for text in questions)
    assert few < many
