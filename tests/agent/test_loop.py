"""The recall loop: turns, limits, windows, and models that misbehave."""

import asyncio
from functools import partial

import pytest
from autogen_core import CancellationToken
from autogen_core.models import FunctionExecutionResultMessage

from memrecall.agent import Recaller, RecallOptions, StopReason, driver
from memrecall.agent.trace_events import IterationEvent, ModelEvent, TraceEvent
from memrecall.budget import Budget, Limits
from memrecall.errors import Disabled
from memrecall.memory import Library
from memrecall.model.client import Request
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
    wait,
)

from ..cases import check_each_async
from .clients import HeldClient, without_waiting
from .recall_helpers import (
    ANN,
    NOW,
    REQUEST,
    detail,
    hand_off,
    kinds,
    on_both_engines,
    play,
    results,
    search,
    talk,
    widen,
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
    recalled = await play(
        library, think("look for it", search()), detail("a1"), hand_off("a1", "a2")
    )

    assert recalled.stop_reason is StopReason.HANDOFF
    assert recalled.handoff.relevant_memory_keys == ["a1", "a2"]
    assert recalled.confidence == recalled.handoff.confidence == 0.9
    assert (recalled.iterations, recalled.windows) == (1, [5])
    assert (recalled.handoff.iteration_used, recalled.handoff.context_window_used) == (1, 5)
    assert recalled.judged
    assert not recalled.abstained
    first, second = recalled.memories
    assert (first.memory_key, first.role, first.kind) == ("a1", "user", "message")
    assert [near.memory_key for near in first.after] == ["a2"]
    assert [near.memory_key for near in second.before] == ["a1"]
    assert kinds(recalled) == [
        *("start", "iteration"),
        *("model", "thought", "call", "result"),
        *("model", "call", "result"),
        *("model", "call", "result"),
        "handoff",
    ]
    assert recalled.usage["model_calls"] == recalled.usage["tool_calls"] == 3


async def test_prompt_prefix_is_stable_between_turns(library: Library) -> None:
    client = ScriptedClient([search(), detail("a1"), widen(9), search("dinner"), hand_off("a1")])
    await play(library, client=client, messages=talk(12))

    prompts = [request.messages for request in client.requests]
    assert len({str(messages[0]) for messages in prompts}) == 1
    assert len({str(request.tools) for request in client.requests}) == 1
    for earlier, later in (
        (prompts[0], prompts[1]),
        (prompts[1], prompts[2]),
        (prompts[3], prompts[4]),
    ):
        assert later[: len(earlier) - 1] == earlier[:-1]  # the hint alone is not kept
    assert all(request.tool_choice == "required" for request in client.requests)


async def test_several_calls_in_one_turn_run_in_order(library: Library) -> None:
    client = ScriptedClient([calls(search(), detail("a1"), search("dinner")), hand_off("a1")])
    recalled = await play(library, client=client)

    assert [result["id"] for result in results(recalled)] == [
        "call_1",
        "call_2",
        "call_3",
        "call_4",
    ]
    answers = client.requests[1].messages[-2]
    assert isinstance(answers, FunctionExecutionResultMessage)
    assert [answer.call_id for answer in answers.content] == ["call_1", "call_2", "call_3"]


async def test_calls_after_a_handoff_are_not_run(library: Library) -> None:
    recalled = await play(library, calls(search(), hand_off("a1"), search("dinner")))
    assert recalled.handoff.relevant_memory_keys == ["a1"]
    assert [result["error"] for result in results(recalled)] == [None, None, "not_run"]
    assert len(recalled.queries) == 1


class TestLimits:
    async def test_last_call_forces_a_handoff(self, library: Library) -> None:
        client = ScriptedClient([search(), search("dinner"), hand_off("a1")])
        recalled = await play(library, client=client, limits=Limits(model_calls=3))
        assert [request.tool_choice for request in client.requests] == [
            *("required", "required", "handoff")
        ]
        assert recalled.stop_reason is StopReason.MODEL_CALLS
        assert recalled.judged
        assert recalled.handoff.relevant_memory_keys == ["a1"]

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
        recalled = await play(library, client=client, limits=limits)
        assert recalled.stop_reason is reason
        assert not recalled.judged
        assert recalled.handoff.relevant_memory_keys[:1] == ["a1"]
        assert recalled.memories[0].content.startswith("My database config")
        assert 0 < recalled.confidence < 0.6
        assert reason.value in recalled.handoff.reason

    @pytest.mark.concurrent
    async def test_timeout_during_a_model_call(self, library: Library, clock: Clock) -> None:
        def search_for_long(_: Request) -> Step:
            clock.seconds = 599.0
            return search("database config port pool")

        client = HeldClient(search_for_long, hand_off("a1"), free=1)
        async with without_waiting():
            recalled = await play(library, client=client, limits=Limits(seconds=600))
        assert client.stopped
        assert recalled.stop_reason is StopReason.SECONDS
        assert recalled.handoff.relevant_memory_keys[:1] == ["a1"]

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
        recalled = await play(library, limits=limits)
        assert recalled.stop_reason is reason
        assert recalled.usage["model_calls"] == 0
        assert not recalled.abstained  # nothing was searched: that is no answer
        assert not recalled.handoff.success
        assert "before anything was searched" in recalled.handoff.search_summary


class TestWindows:
    async def test_larger_window_starts_a_new_iteration(self, library: Library) -> None:
        client = ScriptedClient([search(), widen(10), hand_off("a1")])
        recalled = await play(library, client=client, messages=talk(12))
        assert (recalled.iterations, recalled.windows) == (2, [5, 10])
        assert recalled.handoff.context_window_used == 10
        second = str(client.requests[2].messages[1].content)
        assert '"iteration":2' in second
        assert '"window":10' in second
        assert "small talk 3" in second
        assert "small talk 2" not in second
        assert '"memory_key":"a1"' in second  # what the first iteration found
        assert '"total_found":' in second

    async def test_second_refused_expansion_ends_the_recall(self, library: Library) -> None:
        recalled = await play(
            library, widen(6), widen(7), widen(8), search(), widen(9), messages=talk(20)
        )
        assert recalled.windows == [5, 6, 7]
        assert recalled.stop_reason is StopReason.ITERATIONS
        approvals = [result["output"]["approved"] for result in results(recalled)[:3]]
        assert approvals == [True, True, False]

    async def test_expansion_is_refused_without_older_messages(self, library: Library) -> None:
        recalled = await play(library, widen(10), widen(10), messages=talk(3))
        assert recalled.stop_reason is StopReason.NO_OLDER_MESSAGES

    async def test_expansion_is_clamped_to_existing_messages(self, library: Library) -> None:
        recalled = await play(library, widen(100), search(), hand_off("a1"), messages=talk(8))
        assert recalled.windows == [5, 8]

    async def test_expansion_must_exceed_the_window(self, library: Library) -> None:
        recalled = await play(library, widen(5), search(), hand_off("a1"), messages=talk(8))
        assert results(recalled)[0]["error"] == "invalid_arguments"
        assert "must exceed" in results(recalled)[0]["text"]
        assert recalled.windows == [5]

    @on_both_engines
    async def test_older_messages_are_read_from_the_session(self, library: Library) -> None:
        client = ScriptedClient([widen(9), hand_off()])
        scope = Scope("ann", session_id="talk")
        await play(library, client=client, scope=scope)
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
    @pytest.mark.parametrize(
        ("step", "reason", "words"),
        [
            (say("It is port 5433."), StopReason.TEXT_ANSWER, "only by a tool call"),
            (
                say('<tool_call>{"name": "search_memories"}</tool_call>'),
                StopReason.LEAKED_CALL,
                "not run",
            ),
            (silence(), StopReason.SILENCE, "empty"),
        ],
    )
    async def test_model_is_steered_once_then_stopped(
        self, library: Library, step: Step, reason: StopReason, words: str
    ) -> None:
        client = ScriptedClient([search("database config port pool"), step, step])
        recalled = await play(library, client=client)
        assert recalled.stop_reason is reason
        assert words in str(client.requests[2].messages[-2].content)
        assert recalled.handoff.relevant_memory_keys[:1] == ["a1"]
        assert kinds(recalled).count("steer") == 1

    async def test_steered_model_can_continue(self, library: Library) -> None:
        recalled = await play(library, say("Hm."), search(), silence(), hand_off("a1"))
        assert recalled.stop_reason is StopReason.HANDOFF

    async def test_repeated_search_is_refused(self, library: Library) -> None:
        client = ScriptedClient([search(), search(), search()])
        recalled = await play(library, client=client)
        assert recalled.stop_reason is StopReason.REPEATED_SEARCH
        assert len(recalled.queries) == 1
        output = results(recalled)[1]
        assert output["error"] == "repeated"
        assert f"found {recalled.queries[0].total_found}" in output["text"]

    async def test_leaked_call_is_not_run(self, library: Library) -> None:
        leak = say('search_memories(query="database password")')
        recalled = await play(library, search("dinner"), leak, hand_off())
        assert [query.arguments["query"] for query in recalled.queries] == ["dinner"]

    async def test_bad_call_returns_an_error_and_continues(self, library: Library) -> None:
        async def check(case: tuple[Step, str, str]) -> None:
            step, error, words = case
            recalled = await play(library, step, search(), hand_off("a1"))
            assert results(recalled)[0]["error"] == error
            assert words in results(recalled)[0]["text"]
            assert recalled.stop_reason is StopReason.HANDOFF

        await check_each_async(BAD_CALLS, check)

    async def test_repeated_bad_calls_end_the_recall(self, library: Library) -> None:
        recalled = await play(library, repeat(call("nonsense"), 4))
        assert recalled.stop_reason is StopReason.BAD_CALLS
        assert not recalled.handoff.success


class TestModelFailures:
    async def test_one_model_failure_is_retried(self, library: Library) -> None:
        recalled = await play(library, search(), fail("timeout"), hand_off("a1"))
        assert recalled.stop_reason is StopReason.HANDOFF
        assert recalled.usage["model_calls"] == 3

    async def test_two_model_failures_fall_back_to_rules(self, library: Library) -> None:
        recalled = await play(library, fail("timeout"), fail("unreachable", "gone"))
        assert recalled.stop_reason is StopReason.MODEL_FAILED
        assert recalled.fallback == "model_failed"
        assert recalled.problem == "gone"
        assert "fallback" in kinds(recalled)
        assert recalled.queries  # the rules did search

    @pytest.mark.concurrent
    async def test_time_is_reserved_for_the_fallback(self, library: Library, clock: Clock) -> None:
        def let_time_pass(event: TraceEvent) -> None:
            if isinstance(event, IterationEvent):
                clock.seconds = 595.0  # what is left is the rules'

        client = HeldClient(hand_off())
        options = RecallOptions(limits=Limits(seconds=600))
        recaller = Recaller(library, ANN, client, options, clock=lambda: NOW)
        async with without_waiting():
            recalled = await recaller.recall(REQUEST, observer=let_time_pass)
        assert client.stopped
        assert recalled.stop_reason is StopReason.MODEL_FAILED
        assert recalled.fallback
        assert recalled.queries

    async def test_authentication_failure_is_not_retried(self, library: Library) -> None:
        client = ScriptedClient([fail("authentication", "wrong key")])
        recalled = await play(library, client=client)
        assert recalled.stop_reason is StopReason.MODEL_FAILED
        assert len(client.requests) == 1

    @pytest.mark.parametrize(
        "steps",
        [
            [fail("no_tools", "tools are not supported")],
            [say("Hi."), say("Well.")],
            [silence(), silence()],
        ],
    )
    async def test_no_tool_support_falls_back_to_rules(
        self, library: Library, steps: list[Step]
    ) -> None:
        client = ScriptedClient(steps, model="tiny-1b")
        recalled = await play(library, client=client)
        assert recalled.stop_reason is StopReason.NO_TOOL_SUPPORT
        assert recalled.problem is not None
        assert "tiny-1b" in recalled.problem
        assert recalled.queries

    async def test_leaking_model_falls_back_to_rules(self, library: Library) -> None:
        steps = [say("functions.handoff {}"), say("<tool_call>{}</tool_call>")]
        recalled = await play(library, client=ScriptedClient(steps, model="tiny-1b"))
        assert recalled.stop_reason is StopReason.LEAKED_CALL
        assert recalled.fallback == "leaked_call"
        assert recalled.problem == "tiny-1b never called a tool (leaked_call)"
        assert recalled.queries

    async def test_overflow_shrinks_the_prompt(self, library: Library) -> None:
        client = ScriptedClient(
            [search(limit=10), search("dinner", limit=10), fail("overflow"), hand_off("a1")]
        )
        recalled = await play(library, client=client)
        assert recalled.stop_reason is StopReason.HANDOFF
        sizes = [len(str(request.messages)) for request in client.requests]
        assert sizes[3] < sizes[2]

    async def test_prompt_size_is_limited(self, library: Library) -> None:
        client = ScriptedClient(
            [search(limit=10), search("dinner", limit=10), detail("a1"), hand_off("a1")]
        )
        recalled = await play(library, client=client, largest_prompt=7_500)
        sent = [e.characters for e in recalled.trace.events if isinstance(e, ModelEvent)]
        assert max(sent) < 8_000
        assert recalled.handoff.relevant_memory_keys == ["a1"]

    async def test_errors_of_third_party_clients_are_converted(self, library: Library) -> None:
        def explode(_: object) -> object:
            raise RuntimeError("boom")

        recalled = await play(library, explode, explode)
        assert recalled.stop_reason is StopReason.MODEL_FAILED


class TestCancellation:
    @pytest.mark.concurrent
    async def test_cancelled_token_returns_a_result(self, library: Library) -> None:
        token = CancellationToken()
        client = HeldClient(search("database config port pool"), hand_off("a1"), free=1)
        recaller = Recaller(library, ANN, client, RecallOptions(), clock=lambda: NOW)
        recalling = asyncio.ensure_future(recaller.recall(REQUEST, cancellation_token=token))
        async with without_waiting():
            await client.called.wait()
            token.cancel()
            recalled = await recalling
        assert recalled.stop_reason is StopReason.CANCELLED
        assert recalled.handoff.relevant_memory_keys[:1] == ["a1"]

    async def test_token_cancelled_before_the_start_calls_no_model(self, library: Library) -> None:
        token = CancellationToken()
        token.cancel()
        recaller = Recaller(library, ANN, ScriptedClient([]))
        recalled = await recaller.recall(REQUEST, cancellation_token=token)
        assert recalled.stop_reason is StopReason.CANCELLED

    @pytest.mark.concurrent
    @on_both_engines
    async def test_cancelled_task_raises(self, library: Library) -> None:
        client = HeldClient(hand_off())
        recaller = Recaller(library, ANN, client)
        task = asyncio.create_task(recaller.recall(REQUEST, cancellation_token=CancellationToken()))
        async with without_waiting():
            await client.called.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert client.stopped


@pytest.mark.concurrent
async def test_concurrent_recalls_are_independent(library: Library) -> None:
    def slow(key: str) -> ScriptedClient:
        return ScriptedClient([wait(0.02, search()), wait(0.02, detail(key)), hand_off(key)])

    recalls = await asyncio.gather(*(play(library, client=slow(key)) for key in ("a1", "a3", "a4")))
    assert [result.handoff.relevant_memory_keys for result in recalls] == [["a1"], ["a3"], ["a4"]]


@on_both_engines
async def test_nothing_stored_ends_immediately(library: Library) -> None:
    recalled = await play(library, scope=Scope("nobody"))
    assert recalled.stop_reason is StopReason.NOTHING_STORED
    assert recalled.usage["model_calls"] == 0
    assert recalled.abstained
    assert recalled.handoff.follow_up_question


@on_both_engines
async def test_disabled_user_raises(library: Library) -> None:
    await library.store.owners.set_user_enabled("ann", enabled=False)
    with pytest.raises(Disabled):
        await play(library)


async def test_unseen_keys_lower_the_confidence(
    library: Library,
) -> None:
    recalled = await play(
        library, search("dinner", limit=1), hand_off("a3", "pref", confidence=0.8)
    )
    assert recalled.handoff.relevant_memory_keys == ["a3"]
    assert recalled.keys_dropped == ["pref"]  # it exists, but nothing showed it
    assert recalled.confidence == 0.4
    assert "pref" in recalled.handoff.message


@on_both_engines
async def test_trace_is_stored(library: Library) -> None:
    recalled = await play(library, search(), hand_off("a1"))
    stored = await library.store.traces(ANN).get(recalled.trace.trace_id)
    assert stored.body["handoff"]["relevant_memory_keys"] == ["a1"]
    assert stored.query == REQUEST
    await play(library, search(), hand_off("a1"), keep_traces_days=0)
    assert len((await library.store.traces(ANN).page()).items) == 1
