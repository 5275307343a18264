"""Tool calls as JSON objects, for servers without tool calls."""

import json
from typing import Any

import pytest
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool

from memrecall.model import Request
from memrecall.model.json_calls import JsonCallClient
from memrecall.testing import ScriptedClient, say

Tools = tuple[FunctionTool, FunctionTool]
MESSAGES: list[LLMMessage] = [
    SystemMessage(content="Recall."),
    UserMessage(content="茶", source="u"),
]


def schema(request: Request) -> Any:
    return (request.options or {})["response_format"]["json_schema"]["schema"]


def make_clients(*texts: str) -> tuple[JsonCallClient, ScriptedClient]:
    inner = ScriptedClient([say(text) for text in texts], function_calling=False)
    return JsonCallClient(inner), inner


async def test_json_object_becomes_a_call(tools: Tools) -> None:
    client, inner = make_clients('{"tool": "search", "arguments": {"query": "茶"}}')
    assert client.model_info["function_calling"]
    result = await client.create(MESSAGES, tools=tools, tool_choice="required")
    assert result.content == [FunctionCall("call_1", '{"query": "茶"}', "search")]
    assert result.finish_reason == "function_calls"
    (request,) = inner.requests
    assert request.tools == ()
    system = str(request.messages[0].content)
    assert system.startswith("Recall.\n\n")
    assert all(f'"name": "{tool.name}"' in system for tool in tools)
    names = [kind["properties"]["tool"]["const"] for kind in schema(request)["anyOf"]]
    assert names == ["search", "handoff"]


async def test_forced_tool_is_the_only_alternative(tools: Tools) -> None:
    client, inner = make_clients('{"tool": "handoff", "arguments": {"summary": "x"}}', "{}")
    await client.create(MESSAGES, tools=tools, tool_choice=tools[1])
    await client.create(MESSAGES, tools=tools, tool_choice="required")
    assert schema(inner.requests[0])["properties"]["tool"] == {"const": "handoff"}
    # The prompt prefix is the same in every turn, so that a server can cache it.
    assert inner.requests[0].messages == inner.requests[1].messages


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"answer": "不知道"}', "不知道"),
        ("just words", "just words"),
        ("[1]", "[1]"),
        ("{}", "{}"),
    ],
)
async def test_text_answer_is_allowed_with_tool_choice_auto(
    tools: Tools, text: str, content: str
) -> None:
    client, inner = make_clients(text)
    assert (await client.create(MESSAGES, tools=tools)).content == content
    assert schema(inner.requests[0])["anyOf"][-1]["required"] == ["answer"]


async def test_tool_choice_none_sends_a_plain_request(tools: Tools) -> None:
    client, inner = make_clients("plain words", "streamed words")
    assert (await client.create(MESSAGES, tools=tools, tool_choice="none")).content == "plain words"
    parts = [part async for part in client.create_stream(MESSAGES)]
    assert parts[:-1] == ["streamed", " words"]
    assert [request.options for request in inner.requests] == [None, None]


async def test_stream_returns_no_json_fragments(tools: Tools) -> None:
    client, _ = make_clients('{"tool": "search", "arguments": "query: x"}')
    (result,) = [part async for part in client.create_stream(MESSAGES, tools=tools)]
    assert not isinstance(result, str)
    assert result.content == [FunctionCall("call_1", "query: x", "search")]


async def test_history_becomes_text(tools: Tools) -> None:
    client, inner = make_clients('{"tool": "handoff", "arguments": {}}')
    history: list[LLMMessage] = [
        MESSAGES[1],
        AssistantMessage(
            content=[
                FunctionCall("call_1", '{"query": "茶"}', "search"),
                FunctionCall("call_2", "{broken", "search"),
            ],
            source="a",
        ),
        FunctionExecutionResultMessage(
            content=[
                FunctionExecutionResult(content="绿茶", name="search", call_id="call_1"),
                FunctionExecutionResult(
                    content="bad", name="search", call_id="call_2", is_error=True
                ),
            ]
        ),
    ]
    result = await client.create(history, tools=tools)
    assert isinstance(result.content, list)
    assert result.content[0].id == "call_3"
    system, user, calls_message, results_message = inner.requests[0].messages
    assert isinstance(system, SystemMessage)
    assert user == MESSAGES[1]
    lines = [json.loads(line) for line in str(calls_message.content).splitlines()]
    assert lines[0] == {"tool": "search", "arguments": {"query": "茶"}}
    assert lines[1]["arguments"] == "{broken"
    assert results_message.content == "search (call_1) gave:\n绿茶\n\nsearch (call_2) failed:\nbad"
    await client.close()
