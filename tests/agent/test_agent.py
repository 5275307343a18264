"""MemRecallAgent: single runs, cancellation, and AutoGen teams."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.conditions import (
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
)
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    StructuredMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import CancellationToken

from memrecall.agent import MemRecallAgent, Recaller, RecallHandoff, StopReason
from memrecall.agent.autogen import RecallHandoffMessage
from memrecall.agent.driver import stream_recall
from memrecall.memory import Library
from memrecall.model.client import Request
from memrecall.testing import ScriptedClient, call, calls, say, think, wait

from ..waiting import wait_until
from .clients import BlockingClient, fail_if_blocked
from .recall_helpers import ANN, LIN, REQUEST, REQUEST_ZH, detail, hand_off, on_both_engines, search

AnyMessage = BaseAgentEvent | BaseChatMessage


def make_agent(library: Library, *steps: Any, name: str = "recall") -> MemRecallAgent:
    return MemRecallAgent(name, library, ANN, model_client=ScriptedClient(steps))


def get_handoff(result: TaskResult | Sequence[AnyMessage]) -> RecallHandoff:
    """Return the handoff of a run."""
    messages = result.messages if isinstance(result, TaskResult) else result
    last = messages[-1]
    assert isinstance(last, StructuredMessage)
    assert isinstance(last.content, RecallHandoff)
    return last.content


# Single runs


async def test_stream_yields_events_in_order_and_ends_with_the_handoff(library: Library) -> None:
    agent = make_agent(
        library, think("look for it", search()), calls(detail("a1"), detail("a2")), hand_off("a1")
    )
    items = [item async for item in agent.run_stream(task=REQUEST)]
    task, *events, answer, result = items

    assert isinstance(task, TextMessage)
    assert [type(event).__name__ for event in events] == [
        "ThoughtEvent",
        *("ToolCallRequestEvent", "ToolCallExecutionEvent") * 4,
    ]
    assert all(isinstance(event, BaseAgentEvent) and event.source == "recall" for event in events)
    assert isinstance(events[0], ThoughtEvent)
    assert events[0].content == "look for it"
    for request, execution in zip(events[1::2], events[2::2], strict=True):
        assert isinstance(request, ToolCallRequestEvent)
        assert isinstance(execution, ToolCallExecutionEvent)
        assert request.content[0].id == execution.content[0].call_id
        assert not execution.content[0].is_error
    assert isinstance(answer, StructuredMessage)
    assert answer.metadata["stop_reason"] == "handoff"
    assert answer.metadata["trace_id"].startswith("tr_")
    assert isinstance(result, TaskResult)
    assert result.messages == items[:-1]
    assert get_handoff(result).relevant_memory_keys == ["a1"]


async def test_failed_call_is_streamed_as_an_error(library: Library) -> None:
    agent = make_agent(library, call("no_such_tool"), search(), hand_off("a1"))
    result = await agent.run(task=REQUEST)
    executed = [e for e in result.messages if isinstance(e, ToolCallExecutionEvent)]
    assert [event.content[0].is_error for event in executed] == [True, False, False]


@on_both_engines
async def test_agent_works_without_a_model(library: Library) -> None:
    result = await MemRecallAgent("recall", library, LIN).run(task=REQUEST_ZH)
    assert result.messages[-1].metadata["stop_reason"] == "handoff"
    assert get_handoff(result).success
    executed = [e for e in result.messages if isinstance(e, ToolCallExecutionEvent)]
    assert "端口 5433" in str(executed)


async def test_response_contains_its_events(library: Library) -> None:
    agent = make_agent(library, search(), hand_off("a1"))
    messages = [TextMessage(content=REQUEST, source="user")]
    response = await agent.on_messages(messages, CancellationToken())
    assert isinstance(response, Response)
    assert response.inner_messages is not None
    assert len(response.inner_messages) == 4
    assert get_handoff([response.chat_message]).confidence == 0.9


async def test_handoff_round_trips_through_json(library: Library) -> None:
    result = await make_agent(library, search(), hand_off("a1")).run(task=REQUEST)
    payload = json.loads(json.dumps(result.messages[-1].dump()))
    assert RecallHandoffMessage.model_validate(payload) == result.messages[-1]
    assert StructuredMessage[RecallHandoff].model_validate(payload).content == get_handoff(result)


# State between runs


async def test_runs_continue_the_conversation(library: Library) -> None:
    client = ScriptedClient([search(), hand_off("a1"), search("dinner"), hand_off("a3")])
    agent = MemRecallAgent("recall", library, ANN, model_client=client)
    await agent.run(task=REQUEST)
    second = get_handoff(await agent.run(task="Where did we have dinner last time?"))
    assert second.relevant_memory_keys == ["a3"]
    assert REQUEST in str(client.requests[2].messages)
    assert len(client.requests[2].messages) == len(client.requests[0].messages)


@pytest.mark.concurrent
@on_both_engines
async def test_concurrent_recalls_on_one_instance_do_not_mix(library: Library) -> None:
    keys_by_request = {
        REQUEST: "a1",
        "Where did we have dinner last time?": "a3",
        "And the garden plan?": "a4",
    }

    def answer_by_question(request: Request) -> Any:
        """Answer for the question that the conversation is about."""
        texts = str(request.messages)
        (question,) = (text for text in keys_by_request if text in texts)
        has_searched = "FunctionExecutionResultMessage" in texts
        step = (
            hand_off(keys_by_request[question], search_summary=question)
            if has_searched
            else search(question)
        )
        return wait(0.01, then=step)

    client = ScriptedClient([[answer_by_question] * 2 * len(keys_by_request) * 3])
    agent = MemRecallAgent("recall", library, ANN, model_client=client)
    questions = [*keys_by_request] * 3
    results = await asyncio.gather(*(agent.run(task=question) for question in questions))
    for question, result in zip(questions, results, strict=True):
        handoff = get_handoff(result)
        assert handoff.relevant_memory_keys == [keys_by_request[question]]
        assert handoff.search_summary == question
        assert len([e for e in result.messages if isinstance(e, ToolCallRequestEvent)]) == 2


# Cancellation


@pytest.mark.concurrent
async def test_closing_the_stream_stops_the_recall(library: Library) -> None:
    client = BlockingClient(search(), hand_off("a1"), free=1)
    agent = MemRecallAgent("recall", library, ANN, model_client=client)
    before = asyncio.all_tasks()
    async with fail_if_blocked(), aclosing(agent.run_stream(task=REQUEST)) as stream:
        async for item in stream:
            if isinstance(item, ToolCallExecutionEvent):
                break
    # AutoGen leaves the closing of the inner stream to the event loop.
    await wait_until(lambda: not asyncio.all_tasks() - before)


@pytest.mark.concurrent
async def test_cancelled_stream_cancels_the_model_call(library: Library) -> None:
    slow = BlockingClient(hand_off())
    stream = stream_recall(Recaller(library, ANN, slow), REQUEST)
    async with fail_if_blocked():
        await anext(stream)
        await slow.called.wait()
        await stream.aclose()
    assert slow.stopped


@pytest.mark.concurrent
async def test_error_after_closing_the_stream_is_retrieved(library: Library) -> None:
    before = asyncio.all_tasks()
    client = ScriptedClient([])  # every model call raises
    stream = stream_recall(Recaller(library, ANN, client), REQUEST)
    await anext(stream)
    await wait_until(lambda: not asyncio.all_tasks() - before)
    assert client.requests
    await stream.aclose()


@pytest.mark.concurrent
async def test_cancelled_token_returns_a_cancelled_handoff(library: Library) -> None:
    slow = BlockingClient(hand_off("a1"))
    agent = MemRecallAgent("recall", library, ANN, model_client=slow)
    token = CancellationToken()
    running = asyncio.ensure_future(agent.run(task=REQUEST, cancellation_token=token))
    await slow.called.wait()
    async with fail_if_blocked():
        token.cancel()
        result = await running
    assert result.messages[-1].metadata["stop_reason"] == StopReason.CANCELLED
    assert get_handoff(result).relevant_memory_keys == []
    assert slow.stopped


@pytest.mark.concurrent
async def test_cancelled_recall_hands_off_earlier_results(library: Library) -> None:
    client = BlockingClient(search(min_relevance_score=0.5), hand_off("a1"), free=1)
    agent = MemRecallAgent("recall", library, ANN, model_client=client)
    token = CancellationToken()
    async with fail_if_blocked():
        items = []
        async for item in agent.run_stream(task=REQUEST, cancellation_token=token):
            items.append(item)
            if isinstance(item, ToolCallExecutionEvent):
                token.cancel()
    result = items[-1]
    assert isinstance(result, TaskResult)
    handoff = get_handoff(result)
    assert handoff.relevant_memory_keys[0] in ("a1", "a2")
    assert handoff.confidence < 0.6


@pytest.mark.concurrent
@on_both_engines
async def test_cancelled_task_raises(library: Library) -> None:
    slow = BlockingClient(hand_off("a1"))
    agent = MemRecallAgent("recall", library, ANN, model_client=slow)
    before = asyncio.all_tasks()
    running = asyncio.ensure_future(agent.run(task=REQUEST, cancellation_token=CancellationToken()))
    await slow.called.wait()
    async with fail_if_blocked():
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert slow.stopped
    await wait_until(lambda: not asyncio.all_tasks() - before)
    next_agent = make_agent(library, search(), hand_off("a1"))  # the library still works
    assert get_handoff(await next_agent.run(task=REQUEST)).relevant_memory_keys == ["a1"]


# Teams


def make_parent(*steps: Any, **options: Any) -> AssistantAgent:
    return AssistantAgent("parent", ScriptedClient(steps), **options)


async def test_round_robin(library: Library) -> None:
    recall = make_agent(library, search(), hand_off("a1"))
    parent = make_parent(say("Port 5433, then."))
    team = RoundRobinGroupChat([recall, parent], max_turns=2)
    result = await team.run(task=REQUEST)
    assert [type(message).__name__ for message in result.messages] == [
        "TextMessage",
        *("ToolCallRequestEvent", "ToolCallExecutionEvent") * 2,
        "RecallHandoffMessage",
        "TextMessage",
    ]
    client = parent._model_client
    assert isinstance(client, ScriptedClient)
    assert "1 found:\n- a1" in str(client.requests[0].messages[-1].content)


async def test_selector_picks_the_recall_agent(library: Library) -> None:
    recall = make_agent(library, search(), hand_off("a1"))
    parent = make_parent(say("Port 5433, then."))
    selector = ScriptedClient([say("recall"), say("parent")])
    team = SelectorGroupChat(
        [parent, recall],
        selector,
        termination_condition=SourceMatchTermination(["parent"]) | MaxMessageTermination(20),
    )
    result = await team.run(task=REQUEST)
    chats = [message for message in result.messages if isinstance(message, BaseChatMessage)]
    assert [message.source for message in chats] == ["user", "recall", "parent"]
    assert recall.description in str(selector.requests[0].messages)


def make_swarm(library: Library, parent: AssistantAgent, *steps: Any) -> Swarm:
    return Swarm(
        [parent, make_agent(library, *steps)],
        termination_condition=SourceMatchTermination(["done"]) | MaxMessageTermination(30),
        max_turns=3,
    )


async def test_swarm_handoff_returns_with_the_payload(library: Library) -> None:
    parent = make_parent(call("transfer_to_recall"), say("Port 5433."), handoffs=["recall"])
    team = make_swarm(library, parent, search(), hand_off("a1"))
    result = await team.run(task=REQUEST)

    handoffs = [message for message in result.messages if isinstance(message, HandoffMessage)]
    request, reply = handoffs
    assert (request.source, request.target) == ("parent", "recall")
    assert (reply.source, reply.target) == ("recall", "parent")
    payload = RecallHandoff.model_validate_json(reply.metadata["handoff"])
    assert payload.relevant_memory_keys == ["a1"]
    assert payload.message == reply.content
    assert reply.metadata["stop_reason"] == "handoff"
    trace = await library.store.traces(ANN).get(reply.metadata["trace_id"])
    assert trace.query == REQUEST  # the user's message, not the transfer
    assert result.messages[-1].to_text() == "Port 5433."
    client = parent._model_client
    assert isinstance(client, ScriptedClient)
    assert "## Memory search finished" in str(client.requests[1].messages[-1].content)


async def test_handoff_to_another_agent_gets_structured_answer(library: Library) -> None:
    agent = make_agent(library, search(), hand_off("a1"))
    messages = [
        TextMessage(content=REQUEST, source="user"),
        HandoffMessage(content="over to you", source="parent", target="planner"),
    ]
    response = await agent.on_messages(messages, CancellationToken())
    assert isinstance(response.chat_message, StructuredMessage)


@on_both_engines
async def test_team_state_round_trips_through_json(library: Library) -> None:
    parent = make_parent(call("transfer_to_recall"), say("unused"), handoffs=["recall"])
    team = Swarm(
        [parent, make_agent(library, search(), hand_off("a1"))],
        termination_condition=HandoffTermination("parent"),
    )
    assert isinstance((await team.run(task=REQUEST)).messages[-1], HandoffMessage)
    state = json.loads(json.dumps(await team.save_state()))

    resumed = make_parent(say("Port 5433."), handoffs=["recall"])
    other = Swarm([resumed, make_agent(library)], max_turns=1)
    await other.load_state(state)
    assert (await other.run()).messages[-1].to_text() == "Port 5433."
    client = resumed._model_client
    assert isinstance(client, ScriptedClient)
    assert "## Memory search finished" in str(client.requests[0].messages)


@pytest.mark.concurrent
async def test_cancelled_team_ends_immediately(library: Library) -> None:
    slow = BlockingClient(hand_off("a1"))
    agent = MemRecallAgent("recall", library, ANN, model_client=slow)
    team = RoundRobinGroupChat([agent], max_turns=1)
    token = CancellationToken()
    running = asyncio.ensure_future(team.run(task=REQUEST, cancellation_token=token))
    await slow.called.wait()
    async with fail_if_blocked():
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
