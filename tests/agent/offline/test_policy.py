"""The recall prompt played by rules: which step comes when, and how it ends."""

import json

import pytest

from memrecall.model.offline import RuleCall
from tests.agent.offline.playing import (
    TOOLS,
    Tool,
    assistant,
    briefing,
    failed,
    found,
    hit,
    play,
    user,
)

DETAIL = json.dumps({"success": True})


def tool(*searches: str, detail: str = DETAIL) -> Tool:
    """Searches answer in order, the last one for ever."""
    left = list(searches)

    def answer(call: RuleCall) -> str:
        if call.name == "search_memories":
            return left.pop(0) if len(left) > 1 else left[0]
        if call.name == "expand_context_window":
            return json.dumps({"approved": True, "new_size": 10})
        return detail

    return answer


TEN = found(*(hit(f"k{n}", f"the kitchen tiles, sample {n}", 0.9 - n / 20) for n in range(10)))


def test_first_search_is_the_question_without_politeness() -> None:
    played = play(briefing([user("please tell me what tiles I chose for the kitchen")]), tool(TEN))
    first = played.searches[0]
    assert first["query"] == "what tiles I chose for the kitchen"
    assert (first["search_mode"], first["min_relevance_score"]) == ("hybrid", 0.3)
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"][0] == "k0"


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
def test_a_time_of_saying_filters_and_a_time_of_the_event_does_not(
    text: str, filters: dict[str, str]
) -> None:
    first = play(briefing([user(text)]), tool(TEN)).searches[0]
    assert {k: v for k, v in first.items() if k in ("since", "until", "role")}.items() >= (
        filters.items()
    )
    assert filters or not {"since", "until", "role"} & first.keys()


def test_too_little_widens_step_by_step_and_ends_in_a_question() -> None:
    played = play(briefing([user("what did I say last Wednesday about zebras")]), tool(found()))
    steps = [
        ("since" in search, search["min_relevance_score"], search.get("role"))
        for search in played.searches
    ]
    assert steps == [(True, 0.3, "user"), (False, 0.15, "user"), (False, 0.1, None)]
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"] == []
    assert played.handoff["confidence"] <= 0.2
    assert played.handoff["needs_more_info"] is True
    assert "zebras" in played.handoff["follow_up_question"]


def test_searches_of_earlier_iterations_are_not_repeated() -> None:
    asked = [user("the zebras again")]
    first = play(briefing(asked), tool(found())).searches[0]
    more = [{**first, "total_found": 0}]
    second = play(briefing(asked, iteration=2, more=more), tool(found())).searches
    assert first not in second


def test_what_was_found_in_earlier_iterations_counts() -> None:
    known = hit("old", "the zebra enclosure is at the north gate")
    text = briefing([user("where was the zebra enclosure?")], iteration=2, more=[known])
    played = play(text, tool(found()))
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"] == ["old"]


@pytest.mark.parametrize("text", ["那个东西", "do it like last time", "之前那个呢"])
def test_a_bare_reference_asks_for_more_of_the_conversation(text: str) -> None:
    played = play(briefing([user(text)], older=True), tool(found()))
    assert played.expansion == {
        "reason": played.thoughts[0],
        "current_size": 1,
        "requested_size": 2,
    }


def test_no_larger_window_where_there_is_none() -> None:
    played = play(briefing([user("那个东西")]), tool(found()))
    assert played.expansion is None
    assert played.handoff is not None
    assert "那个" in played.handoff["follow_up_question"]


def test_a_refused_window_is_not_asked_for_again() -> None:
    refused = json.dumps({"approved": False, "new_size": 1})

    def refuse(call: RuleCall) -> str:
        return refused if call.name == "expand_context_window" else found()

    played = play(briefing([user("那个东西")], older=True), refuse)
    assert [call.name for call in played.calls].count("expand_context_window") == 1


def test_what_stands_in_the_window_needs_no_keys() -> None:
    window = [user("Write a poem about a lighthouse"), assistant("The lamp turns…"), user("go on")]
    played = play(briefing(window), tool(TEN))
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"] == []
    assert played.handoff["needs_more_info"] is False
    assert "The lamp turns" in played.handoff["search_summary"]


def test_a_greeting_is_handed_back_at_once() -> None:
    played = play(briefing([user("你好")]), tool(TEN))
    assert [call.name for call in played.calls] == ["handoff"]


def test_a_bare_reference_is_searched_by_the_words_before_it() -> None:
    window = [user("我们聊聊厨房瓷砖"), assistant("好的"), user("就按之前那个来")]
    assert "厨房瓷砖" in play(briefing(window), tool(found())).searches[0]["query"]


def test_a_question_about_the_user_is_not_mixed_with_the_small_talk_before_it() -> None:
    window = [user("今天下雨了"), assistant("记得带伞"), user("我的护照号是多少")]
    assert play(briefing(window), tool(found())).searches[0]["query"] == "我的护照号是多少"


def test_thanks_in_a_conversation_are_handed_back_at_once() -> None:
    window = [user("帮我写一首关于灯塔的诗"), assistant("灯塔……"), user("谢谢")]
    assert [call.name for call in play(briefing(window), tool(TEN)).calls] == ["handoff"]


def test_a_memory_that_has_ended_comes_after_one_that_holds() -> None:
    ended = hit("old", "the bicycle is in the shed", 0.92, valid_to="2026-04-02T00:00:00+00:00")
    holds = hit("new", "the bicycle is in the cellar", 0.9)
    played = play(briefing([user("where is my bicycle?")]), tool(found(ended, holds)))
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"][0] == "new"


def test_a_clear_request_takes_three_calls() -> None:
    hits = [hit(f"k{n}", f"pottery {n}", 0.9 - n / 10, speaker="Ada") for n in range(3)]
    played = play(briefing([user("What did Ada make in Ada's pottery class?")]), tool(found(*hits)))
    names = [call.name for call in played.calls]
    assert names == ["search_memories", "get_memory_detail", "handoff"]


def test_what_nobody_said_is_not_handed_over() -> None:
    hits = [hit(f"k{n}", f"nice weather {n}", 0.7 - n / 50) for n in range(4)]
    played = play(briefing([user("Where is my bicycle?")]), tool(found(*hits)))
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"] == []
    stands_out = [hit("a", "I left it by the church", 0.85), *hits]
    played = play(briefing([user("Where is my bicycle?")]), tool(found(*stands_out)))
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"][0] == "a"


def test_a_number_that_was_never_said_is_not_handed_over() -> None:
    hits = [hit("k", "my sister moved to Porto", 0.89)]
    for text, handed in (("What is my sister's phone number?", []), ("my sister's home?", ["k"])):
        played = play(briefing([user(text)]), tool(found(*hits)))
        assert played.handoff is not None
        assert played.handoff["relevant_memory_keys"] == handed


def test_a_later_search_does_not_raise_a_score() -> None:
    nothing = [hit(f"k{n}", "nice weather", 0.56 - n / 100) for n in range(4)]
    narrow = [hit("k3", "nice weather", 0.99), *nothing[:3]]
    played = play(
        briefing([user("what did I say about zebras")]), tool(found(*nothing), found(*narrow))
    )
    assert len(played.searches) > 1
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"] == []


def test_the_words_of_the_other_partner_are_not_taken_for_the_named_ones() -> None:
    hits = [
        hit("a", "I won the chess tournament in Oslo", 0.9, speaker="Ben", role="assistant"),
        *(hit(f"k{n}", f"nice weather {n}", 0.6, speaker="Ada") for n in range(5)),
    ]
    told = {"Ben": 0.9, "Ada": 0.0}
    asked = [user("Which chess tournament did Ada win?")]
    played = play(briefing(asked), tool(found(*hits, told_of=told)))
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"] == []
    assert "Ben" in played.handoff["search_summary"]
    played = play(briefing(asked), tool(found(*hits, told_of={"Ben": 0.5, "Ada": 0.9})))
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"][0] == "a"


def test_the_reply_beside_the_users_question_is_handed_over() -> None:
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
    searched = found(hit("q", "How do I keep basil alive on the balcony?"))
    played = play(
        briefing([user("what did you suggest for the basil on the balcony?")]),
        tool(searched, detail=detail),
    )
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"] == ["q", "r"]


def test_the_users_later_words_come_first() -> None:
    hits = [
        hit("old", "备份每天凌晨三点跑", 0.8, created_at="2026-03-01T10:00:00+00:00"),
        hit("new", "备份改到凌晨五点跑", 0.78, created_at="2026-03-09T10:00:00+00:00"),
    ]
    played = play(briefing([user("备份是几点跑来着")]), tool(found(*hits)))
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"] == ["new", "old"]
    assert "2026-03-09" in played.handoff["search_summary"].splitlines()[-1]


@pytest.mark.parametrize("code", ["storage", "timeout", "internal", "no_permission"])
def test_a_failure_is_told_as_a_failure(code: str) -> None:
    played = play(briefing([user("where is my bicycle?")]), tool(failed(code)))
    assert played.handoff is not None
    assert code in played.handoff["search_summary"]
    assert played.handoff["needs_more_info"] is False
    assert len(played.searches) <= 2


def test_a_refused_search_is_made_after_a_pause() -> None:
    played = play(briefing([user("where is my bicycle?")]), tool(failed("too_many_searches"), TEN))
    names = [call.name for call in played.calls]
    assert names[:3] == ["search_memories", "extract_search_keywords", "search_memories"]
    assert played.searches[0] == played.searches[1]


def test_a_forced_handoff_before_any_search_is_not_nothing_found() -> None:
    played = play(briefing([user("我的自行车在哪里")]), tool(TEN), tools=("handoff",))
    assert played.handoff is not None
    assert "没有能够搜索" in played.handoff["search_summary"]


def test_without_an_embedder_words_are_searched() -> None:
    played = play(briefing([user("where is my bicycle?")]), tool(failed("embedder"), TEN))
    assert played.searches[1]["search_mode"] == "keyword"
    assert played.handoff is not None
    assert "embedder" in played.handoff["search_summary"]


def test_withheld_memories_are_mentioned() -> None:
    bicycle = hit("k", "the bicycle is in the shed")
    searched = found(bicycle, message="The query was shortened.", withheld=2)
    played = play(briefing([user("where is my bicycle?")]), tool(searched))
    assert played.handoff is not None
    assert "without permission: 2." in played.handoff["search_summary"]
    assert "The query was shortened." not in played.handoff["search_summary"]


def test_handoff_ignores_search_messages_without_withheld_memories() -> None:
    searched = found(hit("k", "自行车放在车棚里"), message="2 sensitive memories withheld")
    played = play(briefing([user("我的自行车在哪里？")]), tool(searched))
    assert played.handoff is not None
    assert "权限" not in played.handoff["search_summary"]
    assert "withheld" not in played.handoff["search_summary"]


def test_summaries_quote_with_speaker_and_date_in_the_users_language() -> None:
    searched = found(hit("k", "自行车放在车棚里"))
    played = play(briefing([user("我的自行车放在哪里")]), tool(searched))
    assert played.handoff is not None
    assert "2026-04-01，用户：“自行车放在车棚里”" in played.handoff["search_summary"]
    assert all("\u4e00" <= thought[0] <= "\u9fff" for thought in played.thoughts)


def test_forced_handoff_hands_off() -> None:
    played = play(briefing([user("where is my bicycle?")]), tool(TEN), tools=("handoff",))
    assert [call.name for call in played.calls] == ["handoff"]


def test_steering_does_not_confuse_it() -> None:
    text = briefing([user("where is my bicycle?")])
    assert play(text, tool(TEN), tools=TOOLS[:2] + TOOLS[-1:]).handoff is not None


def test_searches_that_bring_nothing_new_are_few() -> None:
    one = found(hit("k", "nice weather", 0.6))
    played = play(briefing([user("what did I say about the bicycle chain?")]), tool(one))
    assert len(played.searches) == 3  # the first, and two that found the same
    nothing = play(briefing([user("where is my bicycle chain?")], iteration=2), tool(found()))
    assert len(nothing.searches) == 2


def test_what_was_said_at_a_time_is_not_sought_at_others() -> None:
    for text in ("What did I say last Tuesday?", "上周三我说了什么"):
        played = play(briefing([user(text)]), tool(found(message="no match")))
        assert len(played.searches) == 1
        assert played.handoff is not None
        assert played.handoff["relevant_memory_keys"] == []


def test_a_question_of_unknown_words_is_searched() -> None:
    asked = briefing([user("打八八折是每个月的哪天？")])
    played = play(asked, tool(found(hit("k", "每月八号打八八折", 0.9))))
    assert played.handoff is not None
    assert played.handoff["relevant_memory_keys"] == ["k"]
    for text in ("你好吗？", "How are you?"):
        assert not play(briefing([user(text)]), tool(found(hit("k", "hi", 0.9)))).searches
