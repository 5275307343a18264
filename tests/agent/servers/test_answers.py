"""Recalls with models that answer in every way that models answer."""

from typing import Any

import pytest

from memrecall.agent import RecallResult, StopReason
from memrecall.agent.phrases import say as phrase
from memrecall.agent.tools.memories import RecallAnswer
from memrecall.budget import Limits
from memrecall.memory import Library
from memrecall.model.openai_client import ServerClient

from ...cases import check_each_async
from ...model.openai_server import ModelServer, Reply, completion, text
from ..recall_helpers import tool_results
from .behaviours import (
    HANDOFF,
    SEARCH,
    Behaviour,
    Check,
    Forever,
    answer,
    call,
    check_outcome,
    hand_off,
    recall,
    search,
)

pytestmark = pytest.mark.concurrent

MEGABYTES = "x" * 5_000_000
LONG = "y" * 200_000
HUNDREDS = [call("search_memories", {**SEARCH, "query": f"pool {n}"}) for n in range(200)]
HALF = "half \ud83d and \0 end"

NOTHING = phrase("en", "handoff_nothing")


def expects(**expected: object) -> Any:
    """Return a check of fields of the result, or of its handoff."""

    def check(result: RecallResult, server: ModelServer) -> None:
        fields = {**result.handoff.model_dump(), **result.model_dump(exclude={"handoff"})}
        assert {name: fields[name] for name in expected} == expected

    return check


is_nine_tenths = expects(confidence=0.9)


def finds_a1(result: RecallResult, server: ModelServer) -> None:
    assert result.handoff.relevant_memory_keys[0] == "a1"
    assert result.handoff.success


def gives_no_summary(result: RecallResult, server: ModelServer) -> None:
    """The claim has no key that was found: the parent and its model get stored texts instead."""
    assert result.confidence == 0
    assert not result.handoff.success
    assert "5433" not in result.handoff.search_summary + result.handoff.message
    reply = RecallAnswer.from_result(result)
    assert not reply.found
    assert "5433" not in reply.summary
    assert reply.closest == [memory.content for memory in result.closest]
    assert result.closest[0].memory_key in ("a1", "a2")


def drops_invented_keys(result: RecallResult, server: ModelServer) -> None:
    gives_no_summary(result, server)
    assert result.keys_dropped == ["zzz", "yyy"]
    assert RecallAnswer.from_result(result).dropped_keys == ["zzz", "yyy"]


def refuses_calls_beyond_the_limit(result: RecallResult, server: ModelServer) -> None:
    errors = [event["error"] for event in tool_results(result)]
    assert errors.count("not_run") == len(HUNDREDS) - 4  # one call is kept for the handoff
    assert result.usage["tool_calls"] == 5
    assert result.handoff.relevant_memory_keys[0] == "a1"


def resends_little(result: RecallResult, server: ModelServer) -> None:
    assert len(server.requests) > 1  # their sizes are checked for every behaviour
    assert len(str(result.trace.as_dict())) < 120_000


def keeps_a1(result: RecallResult, server: ModelServer) -> None:
    assert "a1" in result.handoff.relevant_memory_keys
    assert result.model == "memrecall-offline"


def estimates_tokens(result: RecallResult, server: ModelServer) -> None:
    tokens = result.usage["prompt_tokens"] + result.usage["completion_tokens"]
    assert result.usage["estimated_tokens"] == tokens > 1_000


def refused(result: RecallResult, server: ModelServer) -> None:
    assert result.problem == "tiny refused to answer"
    finds_a1(result, server)


def rules_find_a1(result: RecallResult, server: ModelServer) -> None:
    """The model did not find out whether something fits: the offline policy did."""
    assert result.problem == "tiny made no search that succeeded"
    finds_a1(result, server)


def numbered_keywords(request: dict[str, Any]) -> Reply:
    if "tools" not in request:
        return text('{"keywords": []}')
    return answer(call("extract_search_keywords", {"query": f"w{len(request['messages'])}"}))


def unknown_key_or_handoff(request: dict[str, Any]) -> Reply:
    is_last = isinstance(request["tool_choice"], dict)
    return hand_off() if is_last else answer(call("get_memory_detail", {"memory_key": "m_0"}))


def numbered_search(request: dict[str, Any]) -> Reply:
    number = len(request["messages"])
    return answer(call("search_memories", {"query": f"word{number}", "min_relevance_score": 0.0}))


def expansion(request: dict[str, Any]) -> Reply:
    size = len(request["messages"]) + 10
    arguments = {"reason": "more", "current_size": size, "requested_size": size + 1}
    return answer(call("expand_context_window", arguments))


def hands_off(name: str, *replies: Reply, check: Check = finds_a1) -> Behaviour:
    """Return a behaviour that ends in the model's own handoff."""
    return Behaviour(name, replies, StopReason.HANDOFF, check=check)


def falls_back(
    name: str, reason: str, forever: Forever, *replies: Reply, **options: Any
) -> Behaviour:
    """Return a behaviour after which the offline policy hands off."""
    return Behaviour(name, replies, StopReason(reason), True, forever, **options)


def with_usage(usage: object) -> tuple[Reply, Reply]:
    """Return a search and a handoff with this usage."""
    handoff = call("handoff", {**HANDOFF, "relevant_memory_keys": ["a1"]})
    return answer(call("search_memories", SEARCH), usage=usage), answer(handoff, usage=usage)


TOOL_LIMIT = Limits(tool_calls=5)
BEHAVIOURS = (
    hands_off("normal", search(), hand_off("a1")),
    falls_back("text instead of calls", "no_tool_support", text("It is port 5433.")),
    falls_back(
        "text after a search", "off_task", text("It is port 5433."), search(), check=keeps_a1
    ),
    falls_back(
        "call as JSON in text",
        "no_tool_support",
        text('<tool_call>{"name": "search_memories", "arguments": {"query": "x"}}</tool_call>'),
    ),
    falls_back(
        "unknown tool", "off_task", answer(call("delete_everything", {})), search(), check=keeps_a1
    ),
    falls_back("empty name", "off_task", answer(call("", {}))),
    hands_off(
        "content as a list of parts",
        answer(
            call("search_memories", SEARCH),
            content=[{"type": "thinking", "thinking": []}, {"type": "text", "text": "Let me see."}],
        ),
        hand_off("a1"),
    ),
    hands_off(
        "name with a prefix, name in camel case",
        answer(call("mcp__memrecall__search_memories", SEARCH)),
        answer(call("getMemoryDetail", {"memory_key": "a1"})),
        hand_off("a1"),
    ),
    hands_off(
        "name with markup",
        answer(call("functions.search_memories<|channel|>x", SEARCH)),
        hand_off("a1"),
    ),
    hands_off(
        "very long name", answer(call(LONG, {})), search(), hand_off("a1"), check=resends_little
    ),
    hands_off(
        "arguments that are not JSON",
        answer(call("search_memories", "{query: ")),
        search(),
        hand_off("a1"),
    ),
    falls_back("bad arguments forever", "off_task", search(limit="a lot")),
    Behaviour(
        "200 calls in one answer",
        (answer(*HUNDREDS), hand_off("a1")),
        StopReason.TOOL_CALLS,
        limits=TOOL_LIMIT,
        check=refuses_calls_beyond_the_limit,
    ),
    Behaviour("200 calls forever", (), StopReason.TOOL_CALLS, forever=answer(*HUNDREDS)),
    falls_back(
        "200 unknown calls forever",
        "tool_calls",
        answer(*[call("rm", {})] * 200),
        check=rules_find_a1,
    ),
    falls_back(
        "200 calls without JSON forever",
        "tool_calls",
        answer(*[call("search_memories", "{{")] * 200),
        check=rules_find_a1,
    ),
    falls_back(
        "unknown tool up to the limit",
        "model_calls",
        answer(call("rm", {})),
        limits=Limits(model_calls=3),
        check=rules_find_a1,
    ),
    falls_back("keywords forever", "model_calls", numbered_keywords, check=rules_find_a1),
    falls_back(
        "unknown key forever",
        "model_calls",
        answer(call("get_memory_detail", {"memory_key": "m_0"})),
        check=rules_find_a1,
    ),
    falls_back(
        "unknown key up to a forced handoff",
        "model_calls",
        unknown_key_or_handoff,
        check=rules_find_a1,
    ),
    falls_back("endless expansion", "off_task", expansion),
    falls_back("endless searching", "off_task", numbered_search),
    falls_back("empty answer", "no_tool_support", text("")),
    falls_back("empty answer after a search", "off_task", text(""), search()),
    falls_back(
        "reasoning only",
        "off_task",
        completion({"content": None, "reasoning_content": "hm"}),
        search(),
    ),
    falls_back(
        "refusal", "refusal", completion({"content": None, "refusal": "I cannot help with that."})
    ),
    falls_back(
        "refusal as text", "refusal", text("I'm sorry, but I can't help with that."), check=refused
    ),
    falls_back(
        "refusal as Chinese text",
        "refusal",
        text("很抱歉，我无法回答这个问题。"),
        search(),
        check=refused,
    ),
    hands_off("refusal as text once", text("I cannot assist with that."), search(), hand_off("a1")),
    falls_back(
        "content filter", "refusal", completion({"content": ""}, "content_filter"), search()
    ),
    *(
        falls_back(f"finish {finish}", reason, completion({"content": content}, finish), search())
        for reason, finish, content in (
            *(("refusal", "sensitive", ""), ("refusal", "SAFETY", "")),
            ("refusal", "stop", [{"type": "refusal", "refusal": "I cannot"}]),
            ("truncated_answer", "max_tokens", "Let me"),
            ("truncated_answer", "model_context_window_exceeded", ""),
        )
    ),
    falls_back(
        "truncated answer",
        "truncated_answer",
        completion({"content": "Let me think about"}, "length"),
    ),
    falls_back(
        "truncated call",
        "truncated_answer",
        answer(call("handoff", '{"reason": "fou'), finish="length"),
        search(),
        check=keeps_a1,
    ),
    hands_off("no usage", answer(call("search_memories", SEARCH), usage={}), hand_off("a1")),
    hands_off(
        "usage negative",
        *with_usage({"prompt_tokens": -(10**9), "completion_tokens": -5}),
        check=estimates_tokens,
    ),
    hands_off("usage fractional", *with_usage({"prompt_tokens": 1.5, "completion_tokens": 2.5})),
    hands_off(
        "usage of words",
        *with_usage({"prompt_tokens": "many", "completion_tokens": []}),
        check=estimates_tokens,
    ),
    hands_off("usage null", *with_usage(None), check=estimates_tokens),
    Behaviour(
        "token limit without usage",
        (answer(call("search_memories", SEARCH), usage=None), hand_off("a1")),
        StopReason.TOKENS,
        limits=Limits(tokens=3_000),
    ),
    hands_off(
        "argument of 5 MB",
        search(query=f"database config {MEGABYTES}"),
        search(),
        hand_off("a1"),
        check=resends_little,
    ),
    hands_off(
        "summary of 5 MB", search(), hand_off("a1", search_summary=MEGABYTES, reasoning=LONG)
    ),
    hands_off(
        "very long thought",
        answer(call("search_memories", SEARCH), reasoning_content=LONG),
        answer(call("search_memories", {"query": "pool"}), content=LONG),
        hand_off("a1"),
        check=resends_little,
    ),
    hands_off("very long text", text(LONG), search(), hand_off("a1"), check=resends_little),
    hands_off(
        "very long name of an argument",
        search(**{LONG: 1}),
        search(),
        hand_off("a1"),
        check=resends_little,
    ),
    hands_off(
        "half a surrogate and NUL",
        answer(call("search_memories", {**SEARCH, "query": HALF}), reasoning_content=HALF),
        *[hand_off("a1", HALF, search_summary=HALF, follow_up_question=HALF)] * 2,
        check=expects(search_summary="half ? and \ufffd end"),
    ),
    hands_off(
        "duplicated call ids",
        answer(call("search_memories", SEARCH, "c"), call("get_memory_detail", {}, "c")),
        answer(call("get_memory_detail", {"memory_key": "a1"}, "c")),
        hand_off("a1"),
    ),
    hands_off(
        "handoff and search in one turn",
        search(),
        answer(
            call("handoff", {**HANDOFF, "relevant_memory_keys": ["a1"]}),
            call("search_memories", {"query": "dinner"}),
        ),
    ),
    hands_off(
        "two handoffs",
        search(),
        answer(
            call("handoff", {**HANDOFF, "relevant_memory_keys": ["a1"]}),
            call("handoff", {**HANDOFF, "relevant_memory_keys": ["a3"]}),
        ),
    ),
    hands_off("claim without keys", search(), hand_off(), check=gives_no_summary),
    hands_off(
        "nothing fits",
        search(),
        hand_off(search_summary="none", confidence=0, needs_more_info=True),
        check=expects(success=True, abstained=True, confidence=0.0, search_summary=NOTHING),
    ),
    hands_off(
        "nothing fits, without a search",
        hand_off(search_summary="none", confidence=0, needs_more_info=True),
        check=expects(success=False, confidence=0.0),
    ),
    hands_off(
        "invented keys alone", search(), *[hand_off("zzz", "yyy")] * 2, check=drops_invented_keys
    ),
    hands_off(
        "an invented key beside a real one",
        search(),
        *[hand_off("a1", "zzz")] * 2,
        check=expects(confidence=0.45, keys_dropped=["zzz"], search_summary="port 5433"),
    ),
    hands_off("confidence out of range", search(), hand_off("a1", confidence=950), hand_off("a1")),
    hands_off("confidence as text", search(), hand_off("a1", confidence="0.9")),
    *(
        hands_off(f"{value!r}", search(), hand_off("a1", confidence=value), check=is_nine_tenths)
        for value in ("90%", 90)
    ),
    falls_back(
        "confidence in words forever",
        "off_task",
        hand_off("a1", confidence="high"),
        search(),
        check=keeps_a1,
    ),
)


@pytest.mark.parametrize("streamed", [False, True])
async def test_recall_ends_in_a_true_outcome(
    library: Library, server: ModelServer, streamed: bool
) -> None:
    client = ServerClient("tiny", base_url=server.url)

    async def check(behaviour: Behaviour) -> None:
        result = await recall(library, server, client, behaviour, streamed=streamed)
        check_outcome(behaviour, result, server)

    await check_each_async(BEHAVIOURS, check, label=lambda behaviour: behaviour.name)
    await client.close()
