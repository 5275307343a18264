"""The offline recall policy: the order of its steps and its handoffs."""

import json

import pytest

from memrecall.model.prompts import RuleCall
from tests.agent.offline.simulation import (
    TOOLS,
    Tool,
    assistant,
    briefing,
    failed_search,
    hit,
    search_answer,
    simulate,
    user,
)

DETAIL = json.dumps({"success": True})


def scripted_tools(*searches: str, detail: str = DETAIL) -> Tool:
    """Return a tool that answers searches in order and repeats the last answer."""
    remaining = list(searches)

    def answer(call: RuleCall) -> str:
        if call.name == "search_memories":
            return remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if call.name == "expand_context_window":
            return json.dumps({"approved": True, "new_size": 10})
        return detail

    return answer


TEN = search_answer(
    *(hit(f"k{n}", f"the kitchen tiles, sample {n}", 0.9 - n / 20) for n in range(10))
)


def test_first_search_is_the_question_without_politeness() -> None:
    recall = simulate(
        briefing([user("please tell me what tiles I chose for the kitchen")]), scripted_tools(TEN)
    )
    first = recall.searches[0]
    assert first["query"] == "what tiles I chose for the kitchen"
    assert (first["search_mode"], first["min_relevance_score"]) == ("hybrid", 0.2)
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"][0] == "k0"


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
    first = simulate(briefing([user(text)]), scripted_tools(TEN)).searches[0]
    assert {k: v for k, v in first.items() if k in ("since", "until", "role")}.items() >= (
        filters.items()
    )
    assert filters or not {"since", "until", "role"} & first.keys()


def test_search_widens_step_by_step_until_a_follow_up_question() -> None:
    recall = simulate(
        briefing([user("what did I say last Wednesday about zebras")]),
        scripted_tools(search_answer()),
    )
    steps = [
        ("since" in search, search["min_relevance_score"], search.get("role"))
        for search in recall.searches
    ]
    assert steps == [(True, 0.2, "user"), (False, 0.02, "user"), (False, 0.1, None)]
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"] == []
    assert recall.handoff["confidence"] <= 0.2
    assert recall.handoff["needs_more_info"] is True
    assert "zebras" in recall.handoff["follow_up_question"]


def test_searches_of_earlier_iterations_are_not_repeated() -> None:
    messages = [user("the zebras again")]
    first = simulate(briefing(messages), scripted_tools(search_answer())).searches[0]
    earlier_searches = [{**first, "total_found": 0}]
    second = simulate(
        briefing(messages, iteration=2, extra_lines=earlier_searches),
        scripted_tools(search_answer()),
    ).searches
    assert first not in second


def test_hits_of_earlier_iterations_are_candidates() -> None:
    earlier_hit = hit("old", "the zebra enclosure is at the north gate")
    text = briefing(
        [user("where was the zebra enclosure?")], iteration=2, extra_lines=[earlier_hit]
    )
    recall = simulate(text, scripted_tools(search_answer()))
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"] == ["old"]


@pytest.mark.parametrize("text", ["那个东西", "do it like last time", "之前那个呢"])
def test_bare_reference_expands_the_window(text: str) -> None:
    recall = simulate(briefing([user(text)], older=True), scripted_tools(search_answer()))
    assert recall.expansion == {
        "reason": recall.thoughts[0],
        "current_size": 1,
        "requested_size": 2,
    }


def test_window_is_not_expanded_without_older_messages() -> None:
    recall = simulate(briefing([user("那个东西")]), scripted_tools(search_answer()))
    assert recall.expansion is None
    assert recall.handoff is not None
    assert "那个" in recall.handoff["follow_up_question"]


def test_refused_expansion_is_not_repeated() -> None:
    refusal = json.dumps({"approved": False, "new_size": 1})

    def refuse(call: RuleCall) -> str:
        return refusal if call.name == "expand_context_window" else search_answer()

    recall = simulate(briefing([user("那个东西")], older=True), refuse)
    assert [call.name for call in recall.calls].count("expand_context_window") == 1


def test_reference_to_the_window_needs_no_keys() -> None:
    window = [user("Write a poem about a lighthouse"), assistant("The lamp turns…"), user("go on")]
    recall = simulate(briefing(window), scripted_tools(TEN))
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"] == []
    assert recall.handoff["needs_more_info"] is False
    assert "The lamp turns" in recall.handoff["search_summary"]


def test_greeting_is_handed_off_at_once() -> None:
    recall = simulate(briefing([user("你好")]), scripted_tools(TEN))
    assert [call.name for call in recall.calls] == ["handoff"]


def test_bare_reference_is_searched_by_earlier_words() -> None:
    window = [user("我们聊聊厨房瓷砖"), assistant("好的"), user("就按之前那个来")]
    assert (
        "厨房瓷砖"
        in simulate(briefing(window), scripted_tools(search_answer())).searches[0]["query"]
    )


def test_question_about_the_user_ignores_earlier_small_talk() -> None:
    window = [user("今天下雨了"), assistant("记得带伞"), user("我的护照号是多少")]
    assert (
        simulate(briefing(window), scripted_tools(search_answer())).searches[0]["query"]
        == "我的护照号是多少"
    )


def test_thanks_are_handed_off_at_once() -> None:
    window = [user("帮我写一首关于灯塔的诗"), assistant("灯塔……"), user("谢谢")]
    assert [call.name for call in simulate(briefing(window), scripted_tools(TEN)).calls] == [
        "handoff"
    ]


def test_expired_memory_ranks_below_a_valid_one() -> None:
    expired = hit("old", "the bicycle is in the shed", 0.92, valid_to="2026-04-02T00:00:00+00:00")
    valid = hit("new", "the bicycle is in the cellar", 0.9)
    recall = simulate(
        briefing([user("where is my bicycle?")]), scripted_tools(search_answer(expired, valid))
    )
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"][0] == "new"


def test_clear_request_takes_three_calls() -> None:
    hits = [hit(f"k{n}", f"pottery {n}", 0.9 - n / 10, speaker="Ada") for n in range(3)]
    recall = simulate(
        briefing([user("What did Ada make in Ada's pottery class?")]),
        scripted_tools(search_answer(*hits)),
    )
    names = [call.name for call in recall.calls]
    assert names == ["search_memories", "get_memory_detail", "handoff"]


def test_unsupported_request_is_not_handed_off() -> None:
    hits = [hit(f"k{n}", f"nice weather {n}", 0.3 - n / 50) for n in range(4)]
    recall = simulate(
        briefing([user("Where is my bicycle?")]), scripted_tools(search_answer(*hits))
    )
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"] == []
    with_outlier = [hit("a", "I left it by the church", 0.85), *hits]
    recall = simulate(
        briefing([user("Where is my bicycle?")]), scripted_tools(search_answer(*with_outlier))
    )
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"][0] == "a"


def test_unknown_number_is_not_handed_off() -> None:
    hits = [hit("k", "my sister moved to Porto", 0.89)]
    for text, expected in (("What is my sister's phone number?", []), ("my sister's home?", ["k"])):
        recall = simulate(briefing([user(text)]), scripted_tools(search_answer(*hits)))
        assert recall.handoff is not None
        assert recall.handoff["relevant_memory_keys"] == expected


def test_same_hits_are_trusted_more_in_a_larger_store() -> None:
    hits = [hit("k", "I left the bicycle by the church", 0.6, probability=0.5)]
    confidences = []
    for size in (10, 100, 1_000, 10_000, 100_000):
        answer = search_answer(*hits, searched=size)
        recall = simulate(briefing([user("Where is my bicycle?")]), scripted_tools(answer))
        assert recall.handoff is not None
        confidences.append(recall.handoff["confidence"])
    assert confidences == sorted(confidences)
    assert confidences[0] < confidences[-1] < 0.95


def test_later_search_does_not_raise_a_score() -> None:
    low_hits = [hit(f"k{n}", "nice weather", 0.3 - n / 100) for n in range(4)]
    narrow = [hit("k3", "nice weather", 0.99), *low_hits[:3]]
    recall = simulate(
        briefing([user("what did I say about zebras")]),
        scripted_tools(search_answer(*low_hits), search_answer(*narrow)),
    )
    assert len(recall.searches) > 1
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"] == []


def test_statements_of_another_person_are_not_handed_off() -> None:
    hits = [
        hit("a", "I won the chess tournament in Oslo", 0.9, speaker="Ben", role="assistant"),
        *(hit(f"k{n}", f"nice weather {n}", 0.6, speaker="Ada") for n in range(5)),
    ]
    scores = {"Ben": 0.9, "Ada": 0.0}
    messages = [user("Which chess tournament did Ada win?")]
    recall = simulate(briefing(messages), scripted_tools(search_answer(*hits, told_of=scores)))
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"] == []
    assert "Ben" in recall.handoff["search_summary"]
    recall = simulate(
        briefing(messages), scripted_tools(search_answer(*hits, told_of={"Ben": 0.5, "Ada": 0.9}))
    )
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"][0] == "a"


def test_reply_to_the_users_question_is_handed_off() -> None:
    detail = json.dumps(
        {
            "success": True,
            "memory_key": "q",
            "content": "How do I keep basil alive on the balcony?",
            "after": [
                {
                    "memory_key": "r",
                    "speaker": "assistant",
                    "created_at": "2026-04-01T10:01:00+00:00",
                    "content": "Water it from below and pinch the tips.",
                }
            ],
        }
    )
    answer = search_answer(hit("q", "How do I keep basil alive on the balcony?"))
    recall = simulate(
        briefing([user("what did you suggest for the basil on the balcony?")]),
        scripted_tools(answer, detail=detail),
    )
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"] == ["q", "r"]


def test_reply_to_a_repeated_question_beats_what_shares_its_words() -> None:
    answer = search_answer(
        hit("near", "Ann: catch a flight, catch a bus", 0.9, speaker="Ann"),
        hit("q", "New flat, very cheap. What's the catch?", 0.5),
    )
    detail = {
        "success": True,
        "memory_key": "q",
        "content": "New flat, very cheap. What's the catch?",
        "after": [
            {
                "memory_key": "r",
                "speaker": "Bo",
                "created_at": "2026-04-01T10:01:00+00:00",
                "content": "It sits above a night club.",
            }
        ],
    }
    recall = simulate(
        briefing([user("what was the catch again?")]),
        scripted_tools(answer, detail=json.dumps(detail)),
    )
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"][0] == "r"


def test_latest_user_statement_ranks_first() -> None:
    hits = [
        hit("old", "备份每天凌晨三点跑", 0.8, created_at="2026-03-01T10:00:00+00:00"),
        hit("new", "备份改到凌晨五点跑", 0.78, created_at="2026-03-09T10:00:00+00:00"),
    ]
    recall = simulate(briefing([user("备份是几点跑来着")]), scripted_tools(search_answer(*hits)))
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"] == ["new", "old"]
    assert "2026-03-09" in recall.handoff["search_summary"].splitlines()[-1]


@pytest.mark.parametrize("code", ["storage", "timeout", "internal", "no_permission"])
def test_search_failure_is_reported_as_a_failure(code: str) -> None:
    recall = simulate(briefing([user("where is my bicycle?")]), scripted_tools(failed_search(code)))
    assert recall.handoff is not None
    assert code in recall.handoff["search_summary"]
    assert recall.handoff["needs_more_info"] is False
    assert len(recall.searches) <= 2


def test_refused_search_is_repeated_after_another_call() -> None:
    recall = simulate(
        briefing([user("where is my bicycle?")]),
        scripted_tools(failed_search("too_many_searches"), TEN),
    )
    names = [call.name for call in recall.calls]
    assert names[:3] == ["search_memories", "extract_search_keywords", "search_memories"]
    assert recall.searches[0] == recall.searches[1]


def test_forced_handoff_before_any_search_reports_no_search() -> None:
    recall = simulate(briefing([user("我的自行车在哪里")]), scripted_tools(TEN), tools=("handoff",))
    assert recall.handoff is not None
    assert "未能搜索" in recall.handoff["search_summary"]


def test_embedder_failure_falls_back_to_keyword_search() -> None:
    recall = simulate(
        briefing([user("where is my bicycle?")]), scripted_tools(failed_search("embedder"), TEN)
    )
    assert recall.searches[1]["search_mode"] == "keyword"
    assert recall.handoff is not None
    assert "embedder" in recall.handoff["search_summary"]


def test_handoff_counts_withheld_memories() -> None:
    bicycle = hit("k", "the bicycle is in the shed")
    answer = search_answer(bicycle, message="The query was shortened.", withheld=2)
    recall = simulate(briefing([user("where is my bicycle?")]), scripted_tools(answer))
    assert recall.handoff is not None
    assert "sensitive memories that match (2)" in recall.handoff["search_summary"]
    assert "The query was shortened." not in recall.handoff["search_summary"]


def test_handoff_ignores_search_messages_without_withheld_memories() -> None:
    answer = search_answer(hit("k", "自行车放在车棚里"), message="2 sensitive memories withheld")
    recall = simulate(briefing([user("我的自行车在哪里？")]), scripted_tools(answer))
    assert recall.handoff is not None
    assert "权限" not in recall.handoff["search_summary"]
    assert "withheld" not in recall.handoff["search_summary"]


def test_summaries_quote_with_speaker_and_date_in_the_users_language() -> None:
    answer = search_answer(hit("k", "自行车放在车棚里"))
    recall = simulate(briefing([user("我的自行车放在哪里")]), scripted_tools(answer))
    assert recall.handoff is not None
    assert "2026-04-01，用户：“自行车放在车棚里”" in recall.handoff["search_summary"]
    assert all("\u4e00" <= thought[0] <= "\u9fff" for thought in recall.thoughts)


def test_forced_handoff_is_made() -> None:
    recall = simulate(
        briefing([user("where is my bicycle?")]), scripted_tools(TEN), tools=("handoff",)
    )
    assert [call.name for call in recall.calls] == ["handoff"]


def test_steering_messages_are_ignored() -> None:
    text = briefing([user("where is my bicycle?")])
    assert simulate(text, scripted_tools(TEN), tools=TOOLS[:2] + TOOLS[-1:]).handoff is not None


def test_fruitless_searches_are_limited() -> None:
    single_hit = search_answer(hit("k", "nice weather", 0.3))
    recall = simulate(
        briefing([user("what did I say about the bicycle chain?")]), scripted_tools(single_hit)
    )
    assert len(recall.searches) == 3  # the first search and two with the same hits
    empty = simulate(
        briefing([user("where is my bicycle chain?")], iteration=2), scripted_tools(search_answer())
    )
    assert len(empty.searches) == 2


def test_request_by_time_alone_keeps_its_time_filter() -> None:
    for text in ("What did I say last Tuesday?", "上周三我说了什么"):
        recall = simulate(briefing([user(text)]), scripted_tools(search_answer(message="no match")))
        assert len(recall.searches) == 1
        assert recall.handoff is not None
        assert recall.handoff["relevant_memory_keys"] == []


def test_question_of_unknown_words_is_searched() -> None:
    question = briefing([user("打八八折是每个月的哪天？")])
    recall = simulate(question, scripted_tools(search_answer(hit("k", "每月八号打八八折", 0.9))))
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"] == ["k"]
    allergy = search_answer(hit("k", "我对花生过敏", 0.9))
    assert simulate(briefing([user("我不能吃什么？")]), scripted_tools(allergy)).searches
    for text in ("你好吗？", "How are you?"):
        assert not simulate(
            briefing([user(text)]), scripted_tools(search_answer(hit("k", "hi", 0.9)))
        ).searches


def test_elliptic_question_is_searched_with_the_question_before_it() -> None:
    cases = (
        ("What did the oil change cost?", "$389.", "and the tyres?"),
        ("给孙女打的书桌用的什么料？", "樱桃木。", "漆呢？"),
        ("Who looked at the quad?", "Ifan.", "what did he charge?"),
    )
    for asked, answer, follow_up in cases:
        window = [user(asked), assistant(answer), user(follow_up)]
        first = simulate(briefing(window), scripted_tools(TEN)).searches[0]
        assert first["query"] == f"{asked} {follow_up}"


def test_complete_question_is_searched_alone() -> None:
    window = [user("我对什么过敏？"), assistant("花生。"), user("Where will the offsite be?")]
    first = simulate(briefing(window), scripted_tools(TEN)).searches[0]
    assert first["query"] == "Where will the offsite be?"


def test_follow_up_prefers_what_was_not_yet_said() -> None:
    said = hit("oil", "Oil change in Amarillo, $389", 0.9, probability=0.4)
    new = hit("tyre", "blew a steer tyre near Conway, $640", 0.9, probability=0.35)
    window = [
        user("What did the oil change cost?"),
        assistant("$389 for the oil change in Amarillo."),
        user("and the tyre?"),
    ]
    recall = simulate(briefing(window), scripted_tools(search_answer(said, new)))
    assert recall.handoff is not None
    assert recall.handoff["relevant_memory_keys"][0] == "tyre"


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
        answer = search_answer(hit("k", text, 0.75))
        recall = simulate(briefing([user(question)]), scripted_tools(answer))
        assert recall.handoff is not None
        assert recall.handoff["relevant_memory_keys"] == expected, text


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
        recall = simulate(briefing([user(text)]), scripted_tools(search_answer(old, new)))
        assert recall.handoff is not None
        assert recall.handoff["relevant_memory_keys"][0] == "omar"
        assert words in recall.handoff["search_summary"]


def test_question_for_all_hands_off_more() -> None:
    chances = (0.5, 0.2, 0.15, 0.1)
    hits = [hit(f"k{n}", f"Wade paid {n}", 0.9, probability=p) for n, p in enumerate(chances)]
    sizes = []
    for text in ("what did Wade pay?", "how much has Wade paid so far?"):
        recall = simulate(briefing([user(text)]), scripted_tools(search_answer(*hits)))
        assert recall.handoff is not None
        sizes.append(len(recall.handoff["relevant_memory_keys"]))
    assert sizes[0] < sizes[1]
