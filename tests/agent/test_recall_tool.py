"""RecallTool: recall as a tool of a parent agent."""

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    TextMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
)
from autogen_core import CancellationToken
from autogen_core.tools import StaticStreamWorkbench, StaticWorkbench
from pydantic import ValidationError

from memrecall.agent import Recaller, RecallOptions, RecallResult, RecallTool
from memrecall.agent.blocks import write_block
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.memories import RecallAnswer, RecallToolArguments, recall
from memrecall.agent.tools.table import TOOLS
from memrecall.budget import Limits
from memrecall.chat.turn import memory_events
from memrecall.errors import StorageUnreachable
from memrecall.memory import Library
from memrecall.model.client import Request
from memrecall.scope import Permission, Scope
from memrecall.store import Store
from memrecall.testing import ScriptedClient, call, call_raw, calls, say, wait
from memrecall.types import NewMemory, Origin

from ..cases import check_each_async
from .clients import BlockingClient, fail_if_blocked
from .recall_helpers import (
    ANN,
    LIN,
    NOW,
    REQUEST,
    REQUEST_ZH,
    detail,
    hand_off,
    on_both_engines,
    run_tool,
    search,
)


def make_tool(library: Library, *steps: Any) -> RecallTool:
    return RecallTool(library, ANN, model_client=ScriptedClient(steps))


# Schema and answer


async def test_schema_has_no_user_argument(library: Library) -> None:
    schema = make_tool(library).schema
    parameters = schema.get("parameters")
    assert parameters is not None
    assert schema["name"] == "recall"
    assert list(parameters["properties"]) == ["query", "context", "time"]
    assert parameters.get("required") == ["query"]
    assert all("description" in each for each in parameters["properties"].values())
    for word in ("user_id", "agent_id", "session_id", "scope"):
        assert word not in json.dumps(schema)


@on_both_engines
async def test_recall_tool_returns_evidence(library: Library) -> None:
    answer = await run_tool(make_tool(library, search(), hand_off("a1")), query=REQUEST)
    assert answer == {
        "found": True,
        "confidence": 0.9,
        "certainty": "sure",
        "summary": "port 5433",
        "memories": [
            {
                "memory_key": "a1",
                "said_at": "2026-01-29T12:00:00Z",
                "by": "user",
                "certainty": "sure",
                "content": ("My database config: PostgreSQL on port 5433, pool of 20 connections"),
            }
        ],
        "stop_reason": "handoff",
        "judged": True,
    }


async def test_answer_with_many_memories_is_bounded(library: Library) -> None:
    memories = [NewMemory(memory_key=f"k{n}", content=f"tea {n} " * 500) for n in range(60)]
    await library.add_memories(ANN, memories, origin=Origin.USER, actor="test")
    keys = [memory.memory_key or "" for memory in memories]
    read = [calls(*map(detail, keys[start : start + 20])) for start in (0, 20, 40)]
    client = ScriptedClient([*read, hand_off(*keys)])
    options = RecallOptions(limits=Limits(tool_calls=100, tokens=10_000_000))
    tool = RecallTool(library, ANN, model_client=client, options=options)
    answer = await tool.run_json({"query": "Which tea did I say I like?"}, CancellationToken())
    assert len(answer.memories) == 60
    assert len(tool.return_value_as_string(answer)) < 15_000


async def test_no_result_returns_a_question(library: Library) -> None:
    handoff = hand_off(confidence=0.0, needs_more_info=True, follow_up_question="Which one?")
    answer = await run_tool(make_tool(library, search(), handoff), query=REQUEST)
    assert not answer["found"]
    assert answer["memories"] == []
    assert answer["follow_up_question"] == "Which one?"


async def test_answer_does_not_escape_chinese(library: Library) -> None:
    client = ScriptedClient([search("数据库配置"), hand_off("l1")])
    tool = RecallTool(library, LIN, model_client=client)
    value = await tool.run_json({"query": REQUEST_ZH}, CancellationToken())
    text = tool.return_value_as_string(value)
    assert "数据库配置：PostgreSQL，端口 5433，连接池 20" in text
    assert "\\u" not in text


async def test_context_argument_reaches_the_recall_agent(library: Library) -> None:
    client = ScriptedClient([search(), hand_off("a1")])
    tool = RecallTool(library, ANN, model_client=client)
    await run_tool(tool, query=REQUEST, context="We talked about the new server")
    lines = str(client.requests[0].messages[1].content).split("\n")
    before, request = (json.loads(line) for line in lines[-2:])
    assert (before["role"], before["text"]) == ("other", "We talked about the new server")
    assert (request["role"], request["text"]) == ("user", REQUEST)


# Refused arguments


@pytest.mark.parametrize("workbench", [StaticWorkbench, StaticStreamWorkbench])
async def test_user_argument_is_refused(library: Library, workbench: type[StaticWorkbench]) -> None:
    tool = make_tool(library)

    async def check(argument: str) -> None:
        arguments = {"query": REQUEST, argument: "ben"}
        with pytest.raises(ValidationError, match=argument):
            await tool.run_json(arguments, CancellationToken())
        result = await workbench([tool]).call_tool("recall", arguments)
        assert result.is_error
        assert argument in result.to_text()

    await check_each_async(["user_id", "session_id", "agent_id", "scope"], check)


async def test_parent_continues_after_a_refused_user_argument(library: Library) -> None:
    steps = [
        call("recall", query=REQUEST, user_id="ben"),
        call_raw("recall", "{broken"),
        call("recall"),
        say("I cannot."),
    ]
    agent = AssistantAgent(
        "parent", ScriptedClient(steps), tools=[make_tool(library)], max_tool_iterations=5
    )
    result = await agent.run(task=REQUEST)
    executed = [e for e in result.messages if isinstance(e, ToolCallExecutionEvent)]
    assert [event.content[0].is_error for event in executed] == [True, True, True]
    assert result.messages[-1].to_text() == "I cannot."


# Errors


async def test_disabled_user_returns_an_answer(library: Library) -> None:
    await library.store.owners.set_user_enabled("ann", False)
    answer = await run_tool(make_tool(library), query=REQUEST)
    assert not answer["found"]
    assert answer["stop_reason"] == "permission_denied"
    assert "could not be searched" in answer["summary"]
    (streamed,) = await collect_stream(make_tool(library))
    assert streamed.model_dump(exclude_none=True) == answer


async def collect_stream(tool: RecallTool) -> list[Any]:
    """Return the items of a streamed call."""
    return [item async for item in tool.run_json_stream({"query": REQUEST}, CancellationToken())]


async def test_permission_of_the_table_is_checked(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected = replace(TOOLS["recall"], permission=Permission.OPERATOR)
    monkeypatch.setitem(TOOLS, "recall", protected)
    answer = await run_tool(make_tool(library), query=REQUEST)
    assert answer["stop_reason"] == "permission_denied"
    assert "permission `operator`" in answer["summary"]
    (streamed,) = await collect_stream(make_tool(library))
    assert streamed.model_dump(exclude_none=True) == answer
    operator = replace(ANN, permissions=frozenset({Permission.OPERATOR}))
    tool = RecallTool(library, operator, model_client=ScriptedClient([search(), hand_off("a1")]))
    assert (await run_tool(tool, query=REQUEST))["found"]


async def test_handler_of_the_table_is_run(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[str] = []

    async def record(context: ToolContext, arguments: RecallToolArguments) -> RecallResult:
        handled.append(arguments.query)
        return await recall(context, arguments)

    monkeypatch.setitem(TOOLS, "recall", replace(TOOLS["recall"], handler=record))
    assert (await run_tool(make_tool(library, search(), hand_off("a1")), query=REQUEST))["found"]
    *events, answer = await collect_stream(make_tool(library, search(), hand_off("a1")))
    assert handled == [REQUEST, REQUEST]
    assert answer.found
    assert [type(event) for event in events] == [ToolCallRequestEvent, ToolCallExecutionEvent] * 2


async def test_wrong_arguments_return_an_answer(library: Library) -> None:
    for wrong in ({"query": " "}, {"query": REQUEST, "time": "whenever"}):
        assert (await run_tool(make_tool(library), **wrong))["stop_reason"] == "invalid_argument"


async def test_storage_failure_returns_an_answer(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Store, scope: Scope) -> None:
        raise StorageUnreachable("the database is gone")

    monkeypatch.setattr(Store, "read_version", broken)
    answer = await run_tool(make_tool(library), query=REQUEST)
    assert answer["stop_reason"] == "storage_failed"
    assert "does not mean that nothing is stored" in answer["summary"]


# Parent agents


async def test_parent_stream_contains_recall_events(library: Library) -> None:
    parent = ScriptedClient([call("recall", query=REQUEST), say("Port 5433.")])
    tool = make_tool(library, search(), hand_off("a1"))
    agent = AssistantAgent("parent", parent, tools=[tool], max_tool_iterations=2)
    result = await agent.run(task=REQUEST)
    events = [(type(each).__name__, each.source) for each in result.messages]
    assert events == [
        ("TextMessage", "user"),
        ("ToolCallRequestEvent", "parent"),
        *(("ToolCallRequestEvent", "recall"), ("ToolCallExecutionEvent", "recall")) * 2,
        ("ToolCallExecutionEvent", "parent"),
        ("TextMessage", "parent"),
    ]
    assert "PostgreSQL on port 5433" in str(parent.requests[1].messages[-1].content)


def answer_by_question(request: Request) -> Any:
    """Answer in either of two recalls, slowly enough that they interleave."""
    briefing, has_searched = str(request.messages[1].content), len(request.messages) > 3
    key, words = ("a3", "dinner") if "dinner" in briefing else ("a4", "garden")
    step = hand_off(key, search_summary=words) if has_searched else search(words)
    return wait(0.02, then=step)


@pytest.mark.concurrent
@on_both_engines
async def test_parallel_calls_do_not_mix(library: Library) -> None:
    parallel_calls = calls(
        call("recall", query="Where did we have dinner?"),
        call("recall", query="What was the plan for the garden?"),
    )
    recall = ScriptedClient([[answer_by_question] * 4])
    agent = AssistantAgent(
        "parent",
        ScriptedClient([parallel_calls, say("Done.")]),
        tools=[RecallTool(library, ANN, model_client=recall)],
        max_tool_iterations=2,
    )
    result = await agent.run(task="Plan the evening")
    (executed,) = (
        event.content
        for event in result.messages
        if isinstance(event, ToolCallExecutionEvent) and event.source == "parent"
    )
    answers = [json.loads(each.content) for each in executed]
    assert [each.call_id for each in executed] == ["call_1", "call_2"]
    assert [answer["summary"] for answer in answers] == ["dinner", "garden"]
    assert [answer["memories"][0]["memory_key"] for answer in answers] == ["a3", "a4"]


@pytest.mark.concurrent
@pytest.mark.parametrize("iterations", [1, 3])
async def test_cancelled_parent_stops_immediately(library: Library, iterations: int) -> None:
    recall = BlockingClient(search(), hand_off("a1"), free=1)
    parent = ScriptedClient([call("recall", query=REQUEST), say("unused")])
    agent = AssistantAgent(
        "parent",
        parent,
        tools=[RecallTool(library, ANN, model_client=recall)],
        max_tool_iterations=iterations,
    )
    token = CancellationToken()
    running = asyncio.ensure_future(collect_messages(agent, token))
    async with fail_if_blocked():
        await recall.called.wait()
        token.cancel()
        items = await running
    if iterations == 1:  # AssistantAgent ends with a summary of its tool results
        assert isinstance(items[-1], ToolCallSummaryMessage)
        assert '"stop_reason":"cancelled"' in items[-1].content
    else:  # it calls its model, which sees the cancelled token
        assert isinstance(items[-1], ToolCallExecutionEvent)
    assert '"stop_reason":"cancelled"' in tool_outputs(items)


async def collect_messages(agent: AssistantAgent, token: CancellationToken) -> list[Any]:
    """Return the messages of a run until its end or cancellation."""
    items: list[Any] = []
    messages = [TextMessage(content=REQUEST, source="user")]
    stream = agent.on_messages_stream(messages, token)
    with contextlib.suppress(asyncio.CancelledError):
        while item := await anext(stream, None):
            items.append(item.chat_message if isinstance(item, Response) else item)
    return items


def tool_outputs(items: list[Any]) -> str:
    events = [each for each in items if isinstance(each, ToolCallExecutionEvent)]
    return str(events[-1].content[0].content)


@pytest.mark.concurrent
async def test_events_are_streamed_during_the_recall(library: Library) -> None:
    recall = BlockingClient(search(), hand_off("a1"), free=1)
    tool = RecallTool(library, ANN, model_client=recall)
    stream = tool.run_json_stream({"query": REQUEST}, CancellationToken())
    async with fail_if_blocked():
        assert isinstance(await anext(stream), ToolCallRequestEvent)
        assert isinstance(await anext(stream), ToolCallExecutionEvent)
        await stream.aclose()


async def test_memory_is_by_its_speaker(library: Library) -> None:
    fields: dict[str, Any] = {"memory_type": "user_preference"}
    memories = [
        NewMemory(content="The database port is 1", speaker="Nora", memory_key="spoken", **fields),
        NewMemory(content="The database port is 2", source_message_ids=("a1",), **fields),
        NewMemory(content="The database port is 3", memory_key="unknown", **fields),
    ]
    added = await library.add_memories(ANN, memories, origin=Origin.USER, actor="test")
    client = ScriptedClient([search("database port"), hand_off(*added.ids)])
    result = await Recaller(library, ANN, client, clock=lambda: NOW).recall(REQUEST)
    speakers = {"spoken": "Nora", added.ids[1]: "user", "unknown": ""}
    assert {memory.memory_key: memory.by for memory in result.memories} == speakers
    answer = RecallAnswer.from_result(result)
    assert [memory.get("by", "") for memory in answer.memories] == list(speakers.values())
    assert '"by":"user_preference"' not in write_block(result)
    events = memory_events(result.memories, REQUEST, "en")
    assert [event.get("speaker", "") for event in events] == list(speakers.values())
