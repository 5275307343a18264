"""Recall in AutoGen teams: who the user is, turns, evidence and usage."""

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.model_context import UnboundedChatCompletionContext

from memrecall.agent import MemoryContext, MemRecallAgent, RecallMemory
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.testing import ScriptedClient, say

from .clients import recalled_blocks, user_message
from .recall_helpers import ANN, REQUEST, hand_off, search

DINNER = "Where did we have dinner last time?"


def recall_client(*keys: str) -> ScriptedClient:
    """Return a client that searches once and hands off keys."""
    return ScriptedClient([search(), hand_off(*keys)])


def make_assistant(name: str, *steps: Any, **options: Any) -> AssistantAgent:
    return AssistantAgent(name, ScriptedClient(steps), **options)


def make_user_proxy(name: str, text: str) -> UserProxyAgent:
    return UserProxyAgent(name, input_func=lambda _: text)


async def get_trace_query(library: Library, result: TaskResult) -> str:
    """Return the request of the last recall of a run."""
    trace = await library.store.traces(ANN).get(result.messages[-1].metadata["trace_id"])
    return trace.query


# Who the user is


@pytest.mark.concurrent  # a user proxy reads its input in a thread
@pytest.mark.parametrize("name", ["user_proxy", "ann"])
async def test_user_proxy_is_the_user(library: Library, name: str) -> None:
    proxy = make_user_proxy(name, DINNER)
    planner = make_assistant("planner", say("As before, I would set up the database"))
    sources = ("user", "user_proxy") if name == "user_proxy" else ("user", proxy)
    recall = MemRecallAgent(
        "recall", library, ANN, model_client=recall_client("a3"), user_sources=sources
    )
    team = RoundRobinGroupChat([proxy, planner, recall], max_turns=3)
    result = await team.run(task="Let us plan the evening")
    assert await get_trace_query(library, result) == DINNER


async def test_other_agents_are_not_the_user(library: Library) -> None:
    client = recall_client("a1")
    planner = make_assistant("planner", say("Where did we have dinner last time?"))
    recall = MemRecallAgent("recall", library, ANN, model_client=client)
    result = await RoundRobinGroupChat([planner, recall], max_turns=2).run(task=REQUEST)
    assert await get_trace_query(library, result) == REQUEST
    assert '"role":"other","speaker":"planner"' in str(client.requests[0].messages[1].content)


async def test_context_recalls_for_the_user_not_for_agents(library: Library) -> None:
    client = recall_client("a1")
    context = MemoryContext(library, ANN, model_client=client)
    parent = make_assistant("parent", say("Port 5433."), model_context=context)
    planner = make_assistant("planner", say("Do you remember what we had for dinner last time?"))
    await RoundRobinGroupChat([planner, parent], max_turns=2).run(task=REQUEST)
    model = parent._model_client
    assert isinstance(model, ScriptedClient)
    _, block, request, plan = model.requests[0].messages
    assert recalled_blocks([block]) == [block.content]
    assert request.content == REQUEST
    assert "dinner" in str(plan.content)
    assert "dinner" not in str(client.requests[0].messages[1].content)


async def test_agent_that_poses_as_user_role_is_no_user(library: Library) -> None:
    context = MemoryContext(library, ANN, model_client=ScriptedClient([]))
    await context.add_message(user_message(source="planner"))
    assert recalled_blocks(await context.get_messages()) == []
    memory = RecallMemory(library, ANN, model_client=ScriptedClient([]))
    model_context = UnboundedChatCompletionContext([user_message(source="planner")])
    assert (await memory.update_context(model_context)).memories.results == []


async def test_memory_recalls_for_the_user_message_before_other_agents(library: Library) -> None:
    memory = RecallMemory(library, ANN, model_client=recall_client("a1"))
    parent = make_assistant("parent", say("Port 5433."), say("Yes."), memory=[memory])
    planner = make_assistant("planner", say("Let us see."), say("Right?"))
    await RoundRobinGroupChat([planner, parent], max_turns=4).run(task=REQUEST)
    model = parent._model_client
    assert isinstance(model, ScriptedClient)
    blocks = [len(recalled_blocks(request.messages)) for request in model.requests]
    assert blocks == [1, 1]  # the second turn has the block of the first and no new one


async def test_user_sources_are_names_or_agents(library: Library) -> None:
    context = MemoryContext(library, ANN, model_client=recall_client("a1"), user_sources="ann")
    await context.add_message(user_message(source="ann"))
    assert len(recalled_blocks(await context.get_messages())) == 1
    with pytest.raises(InvalidArgument, match="not a message source"):
        MemRecallAgent("recall", library, ANN, user_sources=[5])
    result = await MemRecallAgent(
        "recall", library, ANN, model_client=recall_client("a1"), user_sources=["ann"]
    ).run(task=[TextMessage(content=REQUEST, source="ann"), TextMessage(content="hi", source="b")])
    assert await get_trace_query(library, result) == REQUEST
