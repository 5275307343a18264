"""dump_component and load_component of the AutoGen classes."""

import json
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent
from autogen_agentchat.messages import StructuredMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ModelInfo
from autogen_core.tools import BaseTool
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import ValidationError

from memrecall.agent import (
    MemoryContext,
    MemRecallAgent,
    RecallMemory,
    RecallOptions,
    RecallTool,
    bind_components,
    memory_tools,
)
from memrecall.budget import Limits
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.model.servers import ServerClient
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient

from .clients import recalled_blocks, user_message
from .recall_helpers import ANN, REQUEST, hand_off, search

OPTIONS = RecallOptions(limits=Limits(iterations=2, model_calls=7), language="zh")
SECRET = Scope("zquser", "zqagent", "zqsession")


def dump(component: Any) -> dict[str, Any]:
    """Return a component as JSON data."""
    data: dict[str, Any] = json.loads(component.dump_component().model_dump_json())
    return data


def recall_client() -> ScriptedClient:
    return ScriptedClient([search(), hand_off("a1")])


def make_components(library: Library, scope: Scope) -> list[tuple[Any, Any]]:
    """Return a component of each class with all of its settings, and the class that loads it."""
    reader: dict[str, Any] = {"options": OPTIONS, "user_sources": ["ann"], "block_characters": 900}
    context = MemoryContext(
        library,
        scope,
        initial_messages=[user_message("hi")],
        when="always",
        **reader,
    )
    agent = MemRecallAgent("recall", library, scope, description="d", **reader)
    tool = RecallTool(library, scope, options=OPTIONS, name="look", description="d", language="zh")
    return [
        (context, ChatCompletionContext),
        (agent, ChatAgent),
        (tool, BaseTool),
        (RecallMemory(library, scope, when="always", **reader), Memory),
        *((tool, BaseTool) for tool in memory_tools(library, scope, language="zh")),
    ]


def test_components_round_trip_without_user_or_database(library: Library) -> None:
    for component, interface in make_components(library, SECRET):
        data = dump(component)
        text = json.dumps(data)
        assert not [word for word in ("zq", str(library.settings.db)) if word in text]
        with bind_components(library, ANN):
            loaded = interface.load_component(data)
        assert type(loaded) is type(component)
        assert dump(loaded) == data


async def test_loaded_components_recall_for_the_bound_user(library: Library) -> None:
    context_data = dump(MemoryContext(library, SECRET))
    agent_data = dump(MemRecallAgent("recall", library, SECRET))
    tool_data = dump(RecallTool(library, SECRET))
    memory_data = dump(RecallMemory(library, SECRET))

    with bind_components(library, ANN, model_client=recall_client()):
        context = MemoryContext.load_component(context_data)
    await context.add_message(user_message())
    (block,) = recalled_blocks(await context.get_messages())
    assert "port 5433, pool of 20" in block

    with bind_components(library, ANN, model_client=recall_client()):
        agent = MemRecallAgent.load_component(agent_data)
    answer = (await agent.run(task=REQUEST)).messages[-1]
    assert isinstance(answer, StructuredMessage)
    assert answer.content.relevant_memory_keys == ["a1"]

    with bind_components(library, ANN, model_client=recall_client(), name="other"):
        tool = RecallTool.load_component(
            {**tool_data, "config": {**tool_data["config"], "binding": "other"}}
        )
    assert (await tool.run_json({"query": REQUEST}, CancellationToken())).found
    assert dump(tool)["config"]["binding"] == "other"

    with bind_components(library, ANN, model_client=recall_client()):
        memory = RecallMemory.load_component(memory_data)
    assert len((await memory.query(REQUEST)).results) == 1


def test_team_with_every_class_round_trips(library: Library) -> None:
    info = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=True,
        family="unknown",
        structured_output=False,
    )
    tools: list[Any] = [*memory_tools(library, ANN), AgentTool(MemRecallAgent("r", library, ANN))]
    parent = AssistantAgent(
        "parent",
        ReplayChatCompletionClient(["x"], info),
        model_context=MemoryContext(library, ANN),
        memory=[RecallMemory(library, ANN)],
        tools=tools,
    )
    team = RoundRobinGroupChat([MemRecallAgent("recall", library, ANN), parent], max_turns=1)
    data = dump(team)
    with bind_components(library, ANN):
        assert dump(RoundRobinGroupChat.load_component(data)) == data


def test_component_needs_a_binding(library: Library) -> None:
    for component, interface in make_components(library, ANN):
        with pytest.raises(InvalidArgument, match="no binding 'default'"):
            interface.load_component(dump(component))
    with pytest.raises(InvalidArgument, match="cannot be bound to user_id"):
        bind_components(library, ANN, user_id="ben").__enter__()


def test_configuration_cannot_name_a_user(library: Library) -> None:
    data = dump(MemoryContext(library, ANN))
    data["config"]["scope"] = {"user_id": "ben"}
    with bind_components(library, ANN), pytest.raises(ValidationError, match="scope"):
        MemoryContext.load_component(data)


def test_client_of_an_agent_is_dumped_without_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://127.0.0.1:1/v1"
    client = ServerClient(
        "tiny", base_url=url, api_key="zqkey", timeout=7, options={"temperature": 0}
    )
    data = dump(AssistantAgent("boss", client))
    assert "zqkey" not in json.dumps(data)
    settings = {"model": "tiny", "base_url": url, "timeout": 7.0, "options": {"temperature": 0}}
    assert data["config"]["model_client"]["config"] == settings

    monkeypatch.setenv("MEMRECALL_API_KEY", "zqkey")
    for address, key in ((url, "zqkey"), ("http://127.0.0.1:2/v1", "")):
        monkeypatch.setenv("MEMRECALL_BASE_URL", address)
        loaded = ServerClient.load_component(client.dump_component())
        assert dump(loaded) == dump(client)
        assert loaded._key == key  # it goes to the server of the settings alone
