"""Recalls through an HTTP server on loopback: our client, AutoGen's client, and JSON calls."""

import json
from typing import Any

import pytest

from memrecall.agent import Recaller, StopReason
from memrecall.agent.tools.table import Interface, function_schemas
from memrecall.agent.trace import ThoughtEvent
from memrecall.memory import Library
from memrecall.model.prompts import load_prompt

from ..model.openai_server import ModelServer, Reply, autogen_client, memrecall_client, tool_call
from .recall_helpers import LIN, NOW, REQUEST_ZH

pytestmark = pytest.mark.concurrent

HANDOFF = {"reason": "找到", "search_summary": "端口 5433", "confidence": 0.9}


def tool_reply(name: str, arguments: dict[str, Any], number: int, **fields: Any) -> Reply:
    return tool_call(name, json.dumps(arguments, ensure_ascii=False), f"srv_{number}", **fields)


@pytest.mark.parametrize("make", [memrecall_client, autogen_client])
async def test_recall_over_http(library: Library, server: ModelServer, make: Any) -> None:
    search = {"query": "数据库配置", "min_relevance_score": 0.0}
    server.play(
        tool_reply("search_memories", search, 1),
        tool_reply("get_memory_detail", {"memory_key": "l1"}, 2),
        tool_reply("handoff", {**HANDOFF, "relevant_memory_keys": ["l1"]}, 3),
    )
    client = make(server)
    recall = await Recaller(library, LIN, client, clock=lambda: NOW).recall(REQUEST_ZH)
    await client.close()

    assert recall.stop_reason is StopReason.HANDOFF
    assert recall.handoff.relevant_memory_keys == ["l1"]
    assert recall.usage["prompt_tokens"] == 21
    first, second, third = server.requests
    assert [message["role"] for message in third["messages"]] == [
        *("system", "user", "assistant", "tool", "assistant", "tool", "user")
    ]
    assert first["messages"][0]["content"] == load_prompt("recall", "zh")
    assert first["tools"] == second["tools"] == third["tools"]
    assert third["messages"][: len(second["messages"]) - 1] == second["messages"][:-1]
    assert first["tool_choice"] == "required"
    schemas = [tool["function"]["parameters"] for tool in first["tools"]]
    assert schemas == [schema["parameters"] for schema in function_schemas(Interface.RECALL, "zh")]
    assert "l1" in third["messages"][3]["content"]
    assert "端口" in third["messages"][5]["content"]


async def test_thoughts_are_returned_to_the_model_and_traced(
    library: Library, server: ModelServer
) -> None:
    search = {"query": "数据库配置", "min_relevance_score": 0.0}
    server.play(
        tool_reply("search_memories", search, 1, reasoning_content="先找配置"),
        tool_reply("handoff", HANDOFF, 2),
    )
    recall = await Recaller(library, LIN, memrecall_client(server), clock=lambda: NOW).recall(
        REQUEST_ZH
    )
    assert server.requests[1]["messages"][2]["reasoning_content"] == "先找配置"
    events = recall.trace.events
    assert [event.text for event in events if isinstance(event, ThoughtEvent)] == ["先找配置"]
