"""The recall loop: turns, limits, windows, and models that misbehave."""

import json
from functools import partial
from typing import Any

import pytest
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage

from memrecall.agent import Recaller, RecallOptions, StopReason, driver
from memrecall.agent.trace import IterationEvent, ModelEvent, ResultEvent, SteerEvent, TraceEvent
from memrecall.budget import Budget, Limits
from memrecall.errors import Disabled, InvalidArgument
from memrecall.memory import Library
from memrecall.model.client import Request
from memrecall.model.openai_client import write_request
from memrecall.scope import Scope
from memrecall.testing import (
    ScriptedClient,
    Step,
    call,
    call_raw,
    calls,
    fail,
    repeat,
    say,
    silence,
    think,
)

from ..cases import check_each, check_each_async
from .clients import BlockingClient, fail_if_blocked
from .recall_helpers import (
    ANN,
    LANGUAGES,
    LIN,
    NOW,
    REQUEST,
    REQUEST_ZH,
    detail,
    event_kinds,
    expand_window,
    hand_off,
    in_both_languages,
    on_both_engines,
    run_recall,
    search,
    tool_results,
    user_messages,
)


class Clock:
    """A clock for budgets that only tests advance."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(driver, "Budget", partial(Budget, clock=fake_clock))
    return fake_clock


@on_both_engines
async def test_recall_from_start_to_handoff(library: Library) -> None:
    recall = await run_recall(
        library, think("look for it", search()), detail("a1"), hand_off("a1", "a2")
    )

    assert recall.stop_reason is StopReason.HANDOFF
    assert recall.handoff.relevant_memory_keys == ["a1", "a2"]
    assert recall.confidence == recall.handoff.confidence == 0.9
    assert (recall.iterations, recall.windows) == (1, [5])
    assert (recall.handoff.iteration_used, recall.handoff.context_window_used) == (1, 5)
    assert recall.judged
    assert not recall.abstained
    first, second = recall.memories
    assert (first.memory_key, first.role, first.kind) == ("a1", "user", "message")
    assert [neighbor.memory_key for neighbor in first.after] == ["a2"]
    assert [neighbor.memory_key for neighbor in second.before] == ["a1"]
    assert event_kinds(recall) == [
        *("start", "iteration"),
        *("model", "thought", "call", "result"),
        *("model", "call", "result"),
        *("model", "call", "result"),
        "handoff",
    ]
    assert recall.usage["model_calls"] == recall.usage["tool_calls"] == 3


async def test_several_calls_in_one_turn_run_in_order(library: Library) -> None:
    client = ScriptedClient([calls(search(), detail("a1"), search("dinner")), hand_off("a1")])
    recall = await run_recall(library, client=client)

    assert [result["id"] for result in tool_results(recall)] == [
        "call_1",
        "call_2",
        "call_3",
        "call_4",
    ]
    answers = client.requests[1].messages[-2]
    assert isinstance(answers, FunctionExecutionResultMessage)
    assert [answer.call_id for answer in answers.content] == ["call_1", "call_2", "call_3"]


async def test_calls_after_a_handoff_are_not_run(library: Library) -> None:
    recall = await run_recall(library, calls(search(), hand_off("a1"), search("dinner")))
    assert recall.handoff.relevant_memory_keys == ["a1"]
    assert [result["error"] for result in tool_results(recall)] == [None, None, "not_run"]
    assert len(recall.queries) == 1


class TestLimits:
    @pytest.mark.parametrize(
        ("limits", "reason"),
        [
            (Limits(model_calls=2), StopReason.MODEL_CALLS),
            (Limits(tool_calls=2), StopReason.TOOL_CALLS),
            (Limits(tokens=240), StopReason.TOKENS),
        ],
    )
    async def test_disobedient_model_ends_with_the_best_hits(
        self, library: Library, limits: Limits, reason: StopReason
    ) -> None:
        client = ScriptedClient(
            [search("database config port pool", min_relevance_score=0.0), search("dinner")],
            tokens=(100, 20),
        )
        recall = await run_recall(library, client=client, limits=limits)
        assert recall.stop_reason is reason
        assert not recall.judged
        assert recall.handoff.relevant_memory_keys[:1] == ["a1"]
        assert recall.memories[0].content.startswith("My database config")
        assert 0 < recall.confidence < 0.6
        assert reason.value in recall.handoff.reason
        assert "before the results were judged" in recall.handoff.search_summary

    @pytest.mark.concurrent
    async def test_timeout_during_a_model_call(self, library: Library, clock: Clock) -> None:
        def search_for_long(_: Request) -> Step:
            clock.seconds = 599.0
            return search("database config port pool")

        client = BlockingClient(search_for_long, hand_off("a1"), free=1)
        async with fail_if_blocked():
            recall = await run_recall(library, client=client, limits=Limits(seconds=600))
        assert client.stopped
        assert recall.stop_reason is StopReason.SECONDS
        assert recall.handoff.relevant_memory_keys[:1] == ["a1"]

    @pytest.mark.parametrize(
        ("limits", "reason"),
        [
            (Limits(model_calls=0), StopReason.MODEL_CALLS),
            (Limits(tool_calls=0), StopReason.TOOL_CALLS),
            (Limits(tokens=0), StopReason.TOKENS),
            (Limits(seconds=0), StopReason.SECONDS),
        ],
    )
    async def test_limit_of_zero_is_enforced(
        self, library: Library, limits: Limits, reason: StopReason
    ) -> None:
        recall = await run_recall(library, limits=limits)
        assert recall.stop_reason is reason
        assert recall.usage["model_calls"] == 0
        assert not recall.abstained  # without a search there is no verdict
        assert not recall.handoff.success
        assert "before anything was searched" in recall.handoff.search_summary

    async def test_tool_limit_is_enforced_within_a_turn(self, library: Library) -> None:
        searches = [search(f"database config {number}") for number in range(20)]
        client = ScriptedClient([calls(*searches), hand_off("a1")])
        recall = await run_recall(library, client=client, limits=Limits(tool_calls=3))
        assert recall.usage["tool_calls"] == 3
        assert [event["error"] for event in tool_results(recall)] == [
            *(None, None),
            *(["not_run"] * 18),
            None,
        ]
        assert "the limit on tool_calls" in tool_results(recall)[2]["text"]
        answers = client.requests[1].messages[-2]
        assert isinstance(answers, FunctionExecutionResultMessage)
        assert len(answers.content) == 20  # every call has its result

    async def test_time_limit_is_enforced_within_a_turn(
        self, library: Library, clock: Clock
    ) -> None:
        def let_time_pass(event: TraceEvent) -> None:
            if isinstance(event, ResultEvent) and event.error is None:
                clock.seconds += 1.0

        details = calls(*repeat(detail("a1"), 200))  # type: ignore[arg-type]
        client = ScriptedClient([calls(search(), details)])
        options = RecallOptions(limits=Limits(seconds=5, tool_calls=1_000))
        recaller = Recaller(library, ANN, client, options, clock=lambda: NOW)
        recall = await recaller.recall(REQUEST, observer=let_time_pass)
        assert recall.stop_reason is StopReason.SECONDS
        assert recall.usage["tool_calls"] == 5
        assert recall.keys_seen

    async def test_largest_prompt_bounds_the_whole_prompt(self, library: Library) -> None:
        words = "words " * 600
        steps = repeat(think(words, detail("a1")), 10)
        client = ScriptedClient([search(words), *steps, hand_off("a1")])
        limits = Limits(model_calls=20, tokens=1_000_000)
        recall = await run_recall(library, client=client, largest_prompt=16_000, limits=limits)
        assert recall.stop_reason is StopReason.HANDOFF
        events = [event for event in recall.trace.events if isinstance(event, ModelEvent)]
        assert max(event.characters for event in events) <= 16_000
        # The latest result is still complete, and no result has lost its call.
        *_, request = client.requests
        latest = request.messages[-2]
        assert isinstance(latest, FunctionExecutionResultMessage)
        assert "pool of 20 connections" in latest.content[0].content
        assert isinstance(request.messages[2], AssistantMessage)

    async def test_one_large_turn_fits_the_largest_prompt(self, library: Library) -> None:
        many = calls(*(call_raw("n" * 64, '{"q": "%s"}' % ("x" * 180)) for _ in range(256)))
        client = ScriptedClient([many, say("x" * 4_000), search(), hand_off("a1")])
        limits = Limits(tool_calls=600, tokens=1_000_000)
        recall = await run_recall(library, client=client, largest_prompt=10_000, limits=limits)
        assert recall.handoff.relevant_memory_keys == ["a1"]
        bodies = [write_request(request, send_reasoning=False) for request in client.requests]
        sizes = [len(json.dumps(body, ensure_ascii=False)) for body in bodies]
        assert max(sizes) < 13_000  # the wire format adds the names of fields
        _, _, answer, results, *_ = client.requests[1].messages
        assert isinstance(results, FunctionExecutionResultMessage)
        ids = [result.call_id for result in results.content]
        assert [one.id for one in answer.content] == ids  # type: ignore[union-attr]
        assert 1 <= len(ids) < 256

    async def test_largest_prompt_below_the_fixed_part_is_refused(self, library: Library) -> None:
        with pytest.raises(InvalidArgument, match="largest_prompt is 3000, and this window needs"):
            await run_recall(library, search(), largest_prompt=3_000)

    async def test_larger_window_that_does_not_fit_is_left_to_the_rules(
        self, library: Library
    ) -> None:
        messages = [
            *({"role": "user", "content": f"{n} " + "small talk " * 100} for n in range(30)),
            {"role": "user", "content": REQUEST},
        ]
        recall = await run_recall(
            library, search(), expand_window(30), messages=messages, largest_prompt=14_000
        )
        assert recall.fallback == "iterations"
        assert "largest_prompt is 14000" in str(recall.problem)
        assert recall.handoff.relevant_memory_keys

    def test_options_refuse_numbers_that_mean_nothing(self) -> None:
        cases: list[dict[str, Any]] = [
            {"largest_prompt": -5},
            {"first_window": 0},
            {"tool_seconds": -1.0},
            {"tool_seconds": float("nan")},
            {"keep_traces_days": -1},
        ]

        def check(options: dict[str, Any]) -> None:
            with pytest.raises(InvalidArgument, match=f"{next(iter(options))} is"):
                RecallOptions(**options)

        check_each(cases, check)


class TestWindows:
    async def test_second_refused_expansion_ends_the_recall(self, library: Library) -> None:
        recall = await run_recall(
            library,
            expand_window(6),
            expand_window(7),
            expand_window(8),
            search(),
            expand_window(9),
            messages=user_messages(20),
        )
        assert recall.windows == [5, 6, 7]
        assert recall.stop_reason is StopReason.ITERATIONS
        approvals = [result["output"]["approved"] for result in tool_results(recall)[:3]]
        assert approvals == [True, True, False]

    async def test_expansion_is_clamped_to_existing_messages(self, library: Library) -> None:
        recall = await run_recall(
            library, expand_window(100), search(), hand_off("a1"), messages=user_messages(8)
        )
        assert recall.windows == [5, 8]

    async def test_expansion_must_exceed_the_window(self, library: Library) -> None:
        recall = await run_recall(
            library, expand_window(5), search(), hand_off("a1"), messages=user_messages(8)
        )
        assert tool_results(recall)[0]["error"] == "invalid_arguments"
        assert "must exceed" in tool_results(recall)[0]["text"]
        assert recall.windows == [5]

    @on_both_engines
    async def test_older_messages_are_read_from_the_session(self, library: Library) -> None:
        client = ScriptedClient([expand_window(9), hand_off()])
        scope = Scope("ann", session_id="talk")
        await run_recall(library, client=client, scope=scope)
        assert "tomatoes along the fence" in str(client.requests[0].messages[1].content)
        assert "Noted: port 5433" in str(client.requests[1].messages[1].content)


BAD_CALLS = (
    (call("delete_everything"), "unknown_tool", "search_memories, get_memory_detail"),
    (call_raw("search_memories", "{not json"), "invalid_arguments", "JSON object"),
    (call_raw("search_memories", "[1]"), "invalid_arguments", "JSON object"),
    (call("search_memories"), "invalid_arguments", "query"),
    (search(limit=11), "invalid_arguments", "limit"),
    (search(user_id="ben"), "invalid_arguments", "the user is fixed"),
    (search(session_id="talk"), "invalid_arguments", "the user is fixed"),
    (search(since="soon"), "invalid_arguments", "2026-01-26"),
    (search(colour="red"), "invalid_arguments", "no argument 'colour'"),
    (detail("zzz"), "not_found", "no memory 'zzz'"),
    (hand_off(confidence=2.0), "invalid_arguments", "confidence"),
)


class TestMisbehaviour:
    async def test_leaked_call_is_not_run(self, library: Library) -> None:
        leak = say('search_memories(query="database password")')
        recall = await run_recall(library, search("dinner"), leak, hand_off())
        assert [query.arguments["query"] for query in recall.queries] == ["dinner"]

    async def test_bad_call_returns_an_error_and_continues(self, library: Library) -> None:
        async def check(case: tuple[Step, str, str]) -> None:
            step, error, words = case
            recall = await run_recall(library, step, search(), hand_off("a1"))
            assert tool_results(recall)[0]["error"] == error
            assert words in tool_results(recall)[0]["text"]
            assert recall.stop_reason is StopReason.HANDOFF

        await check_each_async(BAD_CALLS, check)

    async def test_rules_take_over_after_repeated_bad_calls(self, library: Library) -> None:
        recall = await run_recall(library, repeat(call("nonsense"), 4))
        assert recall.stop_reason is StopReason.OFF_TASK
        assert recall.fallback == "off_task"
        assert recall.problem == "scripted did not do what the tools require (bad_calls)"
        assert recall.queries  # the offline policy searched

    async def test_results_of_the_model_stay_on_record(self, library: Library) -> None:
        steps = [search("PostgreSQL port pool connections"), say("It is 5433."), say("Really.")]
        recall = await run_recall(library, *steps, messages="What was that number again?")
        assert recall.fallback == "off_task"
        assert recall.judged
        # The words of the request would not have found it.
        assert "a1" in recall.keys_seen
        assert len(recall.queries) > 1

    async def test_rules_judge_by_the_request_whatever_the_model_searched(
        self, library: Library
    ) -> None:
        alone = await run_recall(library, fail("no_tools"))
        assert alone.handoff.relevant_memory_keys[0] == "a1"
        defaults = {"min_relevance_score": 0.5}
        searches = (
            search("trout at the lake", **defaults),
            search("the plan for the garden"),
            search("database config", **defaults),
            search(REQUEST, limit=10, min_relevance_score=0.2, search_mode="hybrid"),
        )

        async def check(step: Step) -> None:
            recall = await run_recall(library, step, fail("refused"))
            assert recall.handoff.relevant_memory_keys == alone.handoff.relevant_memory_keys
            assert recall.confidence == alone.confidence
            # What the model did stays on record.
            assert len(recall.queries) == len(alone.queries) + 1
            assert set(recall.queries[0].keys) <= set(recall.keys_seen)

        await check_each_async(searches, check)


class TestModelFailures:
    @pytest.mark.concurrent
    async def test_time_is_reserved_for_the_fallback(self, library: Library, clock: Clock) -> None:
        def let_time_pass(event: TraceEvent) -> None:
            if isinstance(event, IterationEvent):
                clock.seconds = 595.0  # the rest is reserved for the offline policy

        client = BlockingClient(hand_off())
        options = RecallOptions(limits=Limits(seconds=600))
        recaller = Recaller(library, ANN, client, options, clock=lambda: NOW)
        async with fail_if_blocked():
            recall = await recaller.recall(REQUEST, observer=let_time_pass)
        assert client.stopped
        assert recall.stop_reason is StopReason.MODEL_FAILED
        assert recall.fallback
        assert recall.queries

    async def test_authentication_failure_is_not_retried(self, library: Library) -> None:
        client = ScriptedClient([fail("authentication", "wrong key")])
        recall = await run_recall(library, client=client)
        assert recall.stop_reason is StopReason.MODEL_FAILED
        assert len(client.requests) == 1

    @pytest.mark.parametrize(
        ("limits", "reason"),
        [(Limits(tokens=60_000), "tokens"), (Limits(model_calls=1), "model_calls")],
    )
    async def test_text_answers_up_to_a_limit_fall_back_to_rules(
        self, library: Library, limits: Limits, reason: str
    ) -> None:
        client = ScriptedClient(
            [*repeat(say("It is 9999"), 2)], model="tiny-1b", tokens=(31_000, 10)
        )
        recall = await run_recall(library, client=client, limits=limits)
        assert (recall.fallback, recall.stop_reason) == (reason, reason)
        assert recall.problem == "tiny-1b never called a tool"
        assert recall.judged
        assert "a1" in recall.handoff.relevant_memory_keys

    def test_rules_are_granted_few_calls_beyond_the_limits(self) -> None:
        cases = [  # limits, calls used, and the limits of the offline policy
            (Limits(model_calls=12, tool_calls=24), 2, (12, 24)),
            (Limits(model_calls=12, tool_calls=24), 24, (32, 32)),
            (Limits(model_calls=1, tool_calls=1), 1, (9, 2)),
        ]

        def check(case: tuple[Limits, int, tuple[int, int]]) -> None:
            limits, used, expected = case
            budget = Budget(limits)
            for _ in range(used):
                budget.spend_model_call(1, 5_000, 10, 0.1)
                budget.spend_tool_call()
            budget.allow_offline()
            assert (budget.limits.model_calls, budget.limits.tool_calls) == expected
            assert budget.limits.tokens == max(limits.tokens, budget.usage.tokens + 1)
            assert budget.exceeded() is None

        check_each(cases, check)

    async def test_problems_are_in_the_language_of_the_recall(self, library: Library) -> None:
        cases = [
            ([say("It is 9999"), say("It is 9999")], "scripted 从未调用工具（text_answer）"),
            ([silence(), silence()], "scripted 从未调用工具（silence）"),
        ]

        async def check(case: tuple[list[Step], str]) -> None:
            steps, problem = case
            client = ScriptedClient(steps)
            recall = await run_recall(library, client=client, messages=REQUEST_ZH, scope=LIN)
            assert recall.problem == problem

        await check_each_async(cases, check)

    async def test_overflow_shrinks_the_prompt(self, library: Library) -> None:
        client = ScriptedClient(
            [search(limit=10), search("dinner", limit=10), fail("overflow"), hand_off("a1")]
        )
        assert (await run_recall(library, client=client)).stop_reason is StopReason.HANDOFF
        sizes = [len(str(request.messages)) for request in client.requests]
        assert sizes[3] < sizes[2]

    async def test_errors_of_third_party_clients_are_converted(self, library: Library) -> None:
        def explode(_: object) -> object:
            raise RuntimeError("boom")

        recall = await run_recall(library, explode, explode)
        assert recall.stop_reason is StopReason.MODEL_FAILED


class TestCancellation:
    async def test_token_cancelled_before_the_start_calls_no_model(self, library: Library) -> None:
        token = CancellationToken()
        token.cancel()
        recaller = Recaller(library, ANN, ScriptedClient([]))
        recall = await recaller.recall(REQUEST, cancellation_token=token)
        assert recall.stop_reason is StopReason.CANCELLED


@on_both_engines
async def test_nothing_stored_ends_immediately(library: Library) -> None:
    recall = await run_recall(library, scope=Scope("nobody"))
    assert recall.stop_reason is StopReason.NOTHING_STORED
    assert recall.usage["model_calls"] == 0
    assert recall.abstained
    assert recall.handoff.follow_up_question


@on_both_engines
async def test_disabled_user_raises(library: Library) -> None:
    await library.store.owners.set_user_enabled("ann", enabled=False)
    with pytest.raises(Disabled):
        await run_recall(library)


async def test_claims_without_a_key_are_not_passed_on(library: Library) -> None:
    claim = {"search_summary": "Your database is on port 9999", "reasoning": "9999 it is"}
    asks = {"needs_more_info": True, "follow_up_question": "Which one?"}
    nothing, unsearched = "No stored memory that was found fits", "Nothing was searched"
    cases: list[tuple[list[Step], dict[str, Any], str, bool]] = [
        ([search()], {"confidence": 0.4}, nothing, True),
        ([search()], {"confidence": 0.95, **asks}, nothing, True),
        ([search()], {"confidence": 0.9}, "no memory that was found in this recall", False),
        ([], {"confidence": 0.1, **asks}, unsearched, False),
    ]

    async def check(case: tuple[list[Step], dict[str, Any], str, bool]) -> None:
        steps, arguments, summary, success = case
        recall = await run_recall(library, *steps, hand_off(**{**claim, **arguments}))
        assert summary in recall.handoff.search_summary
        assert "9999" not in recall.handoff.model_dump_json()
        assert (recall.handoff.success, recall.confidence) == (success, 0.0)
        assert recall.handoff.follow_up_question == arguments.get("follow_up_question")

    await check_each_async(cases, check)
    steps = [search("港口"), hand_off(confidence=0.4, search_summary="端口是 9999")]
    recall = await run_recall(library, *steps, messages=REQUEST_ZH, scope=LIN)
    assert recall.handoff.search_summary == "没有找到与该请求相符的记忆。"


async def test_withheld_memory_is_not_reported_as_absent(library: Library) -> None:
    recall = await Recaller(library, ANN).recall("what is the database password")
    assert recall.withheld == 1
    assert "sensitive memories that match (1)" in recall.handoff.search_summary
    assert recall.certainty == "possible"


@in_both_languages
async def test_calls_beyond_the_largest_answer_are_refused_in_words(
    library: Library, scope: Scope
) -> None:
    request_text, query, (key, _) = LANGUAGES[scope]
    many = calls(
        search(query), *(call("get_memory_detail", memory_key=f"k{n}") for n in range(299))
    )
    client = ScriptedClient([many, hand_off(key)])
    recall = await run_recall(library, client=client, messages=request_text, scope=scope)
    *_, answer, results, note, _ = client.requests[1].messages
    assert isinstance(results, FunctionExecutionResultMessage)
    called = [each.id for each in answer.content if isinstance(each, FunctionCall)]
    assert [result.call_id for result in results.content] == called
    assert len(called) == 256
    assert ("300 calls; the last 44" if scope is ANN else "最后 44 个") in str(note.content)
    english = "scripted made 300 calls in one answer; 44 were dropped"
    chinese = "scripted 在一次回答中发出 300 个调用，其中 44 个被丢弃"
    assert recall.problem == (english if scope is ANN else chinese)
    (steer,) = [event for event in recall.trace.events if isinstance(event, SteerEvent)]
    assert steer.text == note.content
    assert recall.handoff.relevant_memory_keys == [key]


async def test_many_dropped_keys_are_counted_not_listed(library: Library) -> None:
    invented = [f"k{number}" + "z" * 500 for number in range(3_000)]
    recall = await run_recall(library, search(), hand_off("a1", *invented))
    assert len(recall.keys_dropped) == 10
    assert max(map(len, recall.keys_dropped)) < 150
    assert "and 2990 more" in recall.handoff.message
    assert len(recall.handoff.message) < 3_000
    assert recall.confidence == round(0.9 / 3_001, 4)
    assert len(recall.model_dump_json()) < 200_000  # the trace lists few of them, too


async def test_unseen_keys_lower_the_confidence(library: Library) -> None:
    insists = [hand_off("a3", "pref", confidence=0.8)] * 2
    recall = await run_recall(library, search("dinner", limit=1), *insists)
    assert recall.handoff.relevant_memory_keys == ["a3"]
    assert recall.keys_dropped == ["pref"]  # it exists, but no tool returned it
    assert recall.confidence == 0.4
    assert "pref" in recall.handoff.message


JOINED = ("a1, a2", "a1 a2", "a1\na2", "[`a1`, `a2`]", "a1、A2")
SLIPS = {
    " a1 ", "`a1`", '"a1"', "A1", "memory_key: a1", "key=a1", "[a1]", "(a1)", "a 1", "- a1.",
}  # fmt: skip


async def test_misspelt_and_joined_keys_are_repaired(library: Library) -> None:
    async def check(text: str) -> None:
        recall = await run_recall(library, search(), detail("a2"), hand_off(text))
        assert recall.handoff.relevant_memory_keys == (["a1"] if text in SLIPS else ["a1", "a2"])
        assert (recall.confidence, recall.keys_dropped) == (0.9, [])

    await check_each_async([*SLIPS, *JOINED], check)


@in_both_languages
async def test_unknown_keys_are_corrected_once(library: Library, scope: Scope) -> None:
    request, query, (key, _) = LANGUAGES[scope]
    words = "Use only these keys: " if scope is ANN else "只能使用这些标识："
    asked: dict[str, Any] = {"messages": request, "scope": scope}
    repaired = ScriptedClient([search(query), hand_off(f"x{key}"), hand_off(key)])
    recall = await run_recall(library, client=repaired, **asked)
    assert (recall.handoff.relevant_memory_keys, recall.keys_dropped) == ([key], [])
    (refusal, _) = tool_results(recall, "handoff")
    assert refusal["error"] == "invalid_arguments"
    assert key in refusal["text"].partition(words)[2]

    insists = [hand_off(f"x{key}")] * 2
    recall = await run_recall(library, search(query), *insists, **asked)
    assert (recall.handoff.relevant_memory_keys, recall.keys_dropped) == ([], [f"x{key}"])


async def test_last_handoff_is_not_refused(library: Library) -> None:
    for limits in (Limits(model_calls=2), Limits(tool_calls=2)):
        steps = [search(), hand_off("a1", "zzz")]
        recall = await run_recall(library, *steps, limits=limits)
        assert recall.handoff.relevant_memory_keys == ["a1"]
        assert recall.keys_dropped == ["zzz"]


@in_both_languages
async def test_handoff_before_the_results_are_read_is_refused(
    library: Library, scope: Scope
) -> None:
    request, query, (key, _) = LANGUAGES[scope]
    words = "Read its results above" if scope is ANN else "请先阅读上面的结果"
    asked: dict[str, Any] = {"messages": request, "scope": scope}
    blind = calls(search(query), hand_off(confidence=0.0))
    recall = await run_recall(library, blind, hand_off(key), **asked)
    assert recall.stop_reason is StopReason.HANDOFF
    assert recall.handoff.relevant_memory_keys == [key]
    assert words in tool_results(recall, "handoff")[0]["text"]

    # The model saw the results and says that none fits: that is its judgement.
    recall = await run_recall(library, blind, hand_off(confidence=0.0), **asked)
    assert (recall.stop_reason, recall.memories) == (StopReason.HANDOFF, [])

    recall = await run_recall(library, blind, blind, **asked)
    assert recall.stop_reason is StopReason.OFF_TASK
    assert recall.model == "memrecall-offline"  # the offline policy handed off
    assert key in recall.handoff.relevant_memory_keys


@on_both_engines
async def test_trace_is_stored(library: Library) -> None:
    recall = await run_recall(library, search(), hand_off("a1"))
    trace = await library.store.traces(ANN).get(recall.trace.trace_id)
    assert trace.body["handoff"]["relevant_memory_keys"] == ["a1"]
    assert trace.query == REQUEST
    await run_recall(library, search(), hand_off("a1"), keep_traces_days=0)
    assert len((await library.store.traces(ANN).page()).items) == 1


def test_former_stop_reasons_are_aliases() -> None:
    assert len(StopReason) == 14
    former = {
        StopReason.OFF_TASK: "text_answer silence repeated_search bad_calls no_older_messages",
        StopReason.NO_TOOL_SUPPORT: "leaked_call",
        StopReason.HANDOFF: "no_request",
    }
    for reason, names in former.items():
        for name in names.split():
            assert StopReason(name) is StopReason[name.upper()] is reason
    with pytest.raises(ValueError, match="nonsense"):
        StopReason("nonsense")


async def test_model_is_loaded_before_the_time_of_the_recall(library: Library) -> None:
    order: list[str] = []

    class Loading(ScriptedClient):
        async def load(self) -> None:
            order.append("load")

    client = Loading([search("database port"), hand_off("a1")])
    recaller = Recaller(library, ANN, client, observer=lambda event: order.append(event.kind))
    await recaller.recall(REQUEST)
    assert order[:2] == ["load", "start"]
