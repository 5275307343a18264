"""Recall in AutoGen teams: who the user is, turns, evidence and usage."""

import json
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import TokenUsageTermination
from autogen_agentchat.messages import (
    HandoffMessage,
    MemoryQueryEvent,
    MultiModalMessage,
    StructuredMessage,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, Image
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import FunctionExecutionResultMessage
from PIL import Image as Picture

from memrecall.agent import MemoryContext, MemRecallAgent, Recaller, RecallMemory, RecallTool
from memrecall.agent.tools.memories import RecallReply
from memrecall.chat.turn import ChatOptions, TurnRecalls
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.messages import ConversationMessage
from memrecall.testing import ScriptedClient, call, say
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..cases import check_each_async
from ..libraries import open_library
from .clients import recalled_blocks, user_message
from .recall_helpers import ANN, LIN, REQUEST, hand_off, search

DINNER = "Where did we have dinner last time?"


def recall_client(*keys: str) -> ScriptedClient:
    """Return a client that searches once and hands off keys."""
    return ScriptedClient([search(), hand_off(*keys)])


def make_assistant(name: str, *steps: Any, **options: Any) -> AssistantAgent:
    return AssistantAgent(name, ScriptedClient(steps), **options)


def make_user_proxy(name: str, text: str) -> UserProxyAgent:
    return UserProxyAgent(name, input_func=lambda _: text)


def last_text(agent: AssistantAgent, request: int = -1) -> str:
    """Return the last message that the model of an agent was sent."""
    client = agent._model_client
    assert isinstance(client, ScriptedClient)
    return str(client.requests[request].messages[-1].content)


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


# Turns


async def test_turn_without_a_message_ends_politely(library: Library) -> None:
    agent = MemRecallAgent("recall", library, ANN, model_client=ScriptedClient([]))
    for task in (None, " ", [TextMessage(content="\n", source="user")]):
        result = await agent.run(task=task)
        answer = result.messages[-1]
        assert isinstance(answer, StructuredMessage)
        assert answer.content.success
        assert answer.content.relevant_memory_keys == []
        assert answer.content.reason == "no_request"
        assert "Nothing new was said" in answer.content.message


async def test_second_round_repeats_no_recall(library: Library) -> None:
    client = recall_client("a1")
    recall = MemRecallAgent("recall", library, ANN, model_client=client)
    parent = make_assistant("parent", say("Port 5433."), say("Anything else?"))
    team = RoundRobinGroupChat([recall, parent], max_turns=4)
    result = await team.run(task=REQUEST)
    answers = [m for m in result.messages if isinstance(m, StructuredMessage)]
    assert [answer.content.reason for answer in answers] == ["done", "no_request"]
    assert client.remaining == 0
    texts = [message.text for message in recall._conversation]
    assert texts[-1] == "Port 5433."  # what was said since is not lost


@pytest.mark.parametrize("by_name", [True, False])
async def test_swarm_that_starts_with_the_recall_agent_goes_on(
    library: Library, by_name: bool
) -> None:
    steps = call("transfer_to_recall"), say("Port 5433.")
    parent = make_assistant("parent", *steps, handoffs=["recall"])
    client = ScriptedClient([search(), hand_off("a1")] * 2)
    recall = MemRecallAgent(
        "recall", library, ANN, model_client=client, handoff_to="parent" if by_name else parent
    )
    team = Swarm([recall, parent], max_turns=4)
    result = await team.run(task=REQUEST)
    targets = [m.target for m in result.messages if isinstance(m, HandoffMessage)]
    assert targets == ["parent", "recall", "parent"]
    assert "a1" in result.messages[-2].to_text()
    assert result.messages[-1].to_text() == "Port 5433."


async def test_memory_and_context_of_one_user_add_one_block(library: Library) -> None:
    client = recall_client("a1")
    context = MemoryContext(library, ANN, model_client=client)
    own, other = (RecallMemory(library, scope) for scope in (ANN, LIN))
    parent = make_assistant("parent", say("Port 5433."), memory=[own], model_context=context)
    result = await parent.run(task=REQUEST)
    model = parent._model_client
    assert isinstance(model, ScriptedClient)
    assert len(recalled_blocks(model.requests[0].messages)) == 1
    (event,) = [m for m in result.messages if isinstance(m, MemoryQueryEvent)]
    assert [(content.metadata or {})["memory_key"] for content in event.content] == ["a1"]
    assert client.remaining == 0
    context = MemoryContext(library, ANN, initial_messages=[user_message()])
    await other.update_context(context)  # of another user
    assert len(recalled_blocks(await context.get_messages())) == 2


async def test_text_with_pictures_is_recalled_for(library: Library) -> None:
    client = recall_client("a1")
    context = MemoryContext(library, ANN, model_client=client)
    pictures = [Image(Picture.new("RGB", (1, 1)))] * 2
    seeing = ScriptedClient([say("Port 5433."), say("Nice.")])
    seeing.model_info["vision"] = True
    parent = AssistantAgent("parent", seeing, model_context=context)
    for content in ([REQUEST, *pictures], pictures):
        await parent.run(task=MultiModalMessage(content=content, source="user"))
    assert [len(recalled_blocks(request.messages)) for request in seeing.requests] == [1, 0]
    assert client.remaining == 0
    saved = await context.save_state()
    await context.load_state(saved)
    assert len(await context.get_messages()) == 4


async def test_team_of_the_recall_agent_runs_without_a_task(library: Library) -> None:
    recall = MemRecallAgent("recall", library, ANN, model_client=ScriptedClient([]))
    result = await RoundRobinGroupChat([recall], max_turns=2).run()
    assert [m.metadata["stop_reason"] for m in result.messages] == ["handoff"] * 2


FOLLOW_UP = "And who is the user on it?"


async def test_follow_up_of_round_two_has_its_referent(library: Library) -> None:
    client = ScriptedClient([search(), hand_off("a1"), search("user"), hand_off("a1")])
    recall = MemRecallAgent("recall", library, ANN, model_client=client)
    parent = make_assistant("parent", say("Port 5433."), say("It is postgres."))
    team = RoundRobinGroupChat([recall, parent], max_turns=2)
    await team.run(task=REQUEST)
    await team.run(task=FOLLOW_UP)
    briefing = str(client.requests[2].messages[1].content).split("\n")
    lines = [json.loads(line) for line in briefing if line.startswith('{"n"')]
    assert [(line["role"], line["text"]) for line in lines] == [
        ("user", REQUEST),
        ("other", "recall: port 5433"),
        ("other", "Port 5433."),
        ("user", FOLLOW_UP),
    ]


async def test_conversation_survives_in_the_state_of_a_team(library: Library) -> None:
    def make_team(*steps: Any) -> tuple[RoundRobinGroupChat, ScriptedClient]:
        client = ScriptedClient(steps)
        recall = MemRecallAgent("recall", library, ANN, model_client=client)
        return RoundRobinGroupChat([recall], max_turns=1), client

    first, _ = make_team(search(), hand_off("a1"))
    await first.run(task=REQUEST)
    state = json.loads(json.dumps(await first.save_state()))
    second, client = make_team(search("user"), hand_off("a1"))
    await second.load_state(state)
    await second.run(task=FOLLOW_UP)
    assert REQUEST in str(client.requests[0].messages[1].content)
    await second.reset()
    await second.load_state(await make_team()[0].save_state())
    await second.run()  # the state of a new team is that of an agent without a conversation


async def test_follow_up_behind_a_tool_has_its_referent(library: Library) -> None:
    client = ScriptedClient([search(), hand_off("a1"), search("user"), hand_off("a1")])
    tool = AgentTool(MemRecallAgent("recall", library, ANN, model_client=client))
    parent = make_assistant(
        "parent",
        call("recall", task=REQUEST),
        call("recall", task=FOLLOW_UP),
        say("Postgres."),
        tools=[tool],
        max_tool_iterations=3,
    )
    await parent.run(task="Set up the database")
    assert REQUEST in str(client.requests[2].messages[1].content)


@pytest.mark.parametrize(
    ("question", "follow_up", "key"),
    [
        ("Which port does my database config have?", FOLLOW_UP, "config"),
        ("我的数据库配置是什么端口？", "那用户是谁呢？", "config_zh"),
    ],
)
async def test_rules_read_a_follow_up_with_the_question_before_it(
    question: str, follow_up: str, key: str
) -> None:
    texts = {
        "config": "My database config: PostgreSQL on port 5433, the user on it is deploy_bot",
        "wiki": "The user of the wiki is alice",
        "config_zh": "数据库配置：端口 5433，用户是 deploy",
        "wiki_zh": "维基的用户是小王",
    }
    messages = [
        NewMessage(message_id=message_id, role=Role.USER, content=text)
        for message_id, text in texts.items()
    ]
    async with open_library(scope=ANN, messages=messages) as library:
        recall = MemRecallAgent("recall", library, ANN)
        team = RoundRobinGroupChat([recall], max_turns=1)
        for text in (question, follow_up):
            answer = (await team.run(task=text)).messages[-1]
        assert isinstance(answer, StructuredMessage)
    assert answer.content.relevant_memory_keys[0] == key


# Evidence, usage, withheld memories


CONFIG = "My database config: PostgreSQL on port 5433, pool of 20 connections"


def check_evidence(text: str) -> None:
    """Check that a text contains the content, the speaker and the time of the evidence."""
    plain = text.replace('\\"', '"')
    assert CONFIG in plain
    assert '"said_at":"2026-01-29T12:00:00Z","by":"user"' in plain
    assert "Recalled for the request: data" in plain


async def test_swarm_parent_gets_the_evidence(library: Library) -> None:
    recall = MemRecallAgent("recall", library, ANN, model_client=recall_client("a1"))
    parent = make_assistant(
        "parent", call("transfer_to_recall"), say("Port 5433."), handoffs=["recall"]
    )
    await Swarm([parent, recall], max_turns=3).run(task=REQUEST)
    check_evidence(last_text(parent))


async def test_selector_parent_gets_the_evidence(library: Library) -> None:
    recall = MemRecallAgent("recall", library, ANN, model_client=recall_client("a1"))
    parent = make_assistant("parent", say("Port 5433."))
    selector = ScriptedClient([say("recall"), say("parent")])
    await SelectorGroupChat([recall, parent], selector, max_turns=2).run(task=REQUEST)
    check_evidence(last_text(parent))


@pytest.mark.parametrize("last_message_only", [True, False])
async def test_parent_of_an_agent_tool_gets_the_evidence(
    library: Library, last_message_only: bool
) -> None:
    recall = MemRecallAgent("recall", library, ANN, model_client=recall_client("a1"))
    tool = AgentTool(recall, return_value_as_last_message=last_message_only)
    parent = make_assistant(
        "parent",
        call("recall", task=REQUEST),
        say("Port 5433."),
        tools=[tool],
        reflect_on_tool_use=True,
    )
    await parent.run(task="Set up the database")
    client = parent._model_client
    assert isinstance(client, ScriptedClient)
    message = client.requests[-1].messages[-1]
    assert isinstance(message, FunctionExecutionResultMessage)
    check_evidence(message.content[0].content)


async def test_message_to_the_parent_stays_within_its_size(library: Library) -> None:
    memories = [NewMemory(memory_key=f"k{n}", content="tea " * 2_000) for n in range(3)]
    await library.add_memories(ANN, memories, origin=Origin.USER, actor="test")
    long: dict[str, Any] = {
        "search_summary": "summary " * 2_000,
        "reasoning": "because " * 2_000,
        "needs_more_info": True,
        "follow_up_question": "green or black? " * 500,
    }

    async def check(characters: int) -> None:
        insists = [hand_off("k0", "k1", "k2", *map(str, range(50)), **long)] * 2
        steps = [search("tea", limit=10), *insists]
        recall = MemRecallAgent(
            "recall", library, ANN, model_client=ScriptedClient(steps), block_characters=characters
        )
        parent = make_assistant("parent", say("Green tea."))
        team = RoundRobinGroupChat([recall, parent], max_turns=2)
        await team.run(task="Which tea did I say I like?")
        text = last_text(parent)
        assert characters * 0.8 < len(text) <= characters
        assert text.startswith("## Memory search finished")
        if characters >= 2_000:
            assert text.count('"memory_key"') == 3
            assert "and 40 more" in text
            assert "green or black?" in text
            assert text.endswith("</recalled_memories>")

    await check_each_async([300, 700, 2_000, 4_000], check)


@pytest.mark.parametrize("keys", [["a1"], []])
async def test_parent_reads_the_summary_once(library: Library, keys: list[str]) -> None:
    summary = "The port is 5433" if keys else "No stored memory that was found fits"
    done = hand_off(*keys, search_summary="The port is 5433", confidence=0.4)
    client = ScriptedClient([search(limit=1), done])
    recall = MemRecallAgent("recall", library, ANN, model_client=client)
    parent = make_assistant("parent", say("Port 5433."))
    await RoundRobinGroupChat([recall, parent], max_turns=2).run(task=REQUEST)
    assert last_text(parent).count(summary) == 1


async def test_token_usage_ends_a_team(library: Library) -> None:
    client = ScriptedClient([search(), hand_off("a1")], tokens=(100, 10))
    recall = MemRecallAgent("recall", library, ANN, model_client=client)
    parent = make_assistant("parent")
    team = RoundRobinGroupChat(
        [recall, parent], termination_condition=TokenUsageTermination(max_total_token=200)
    )
    result = await team.run(task=REQUEST)
    assert "Token usage limit reached" in str(result.stop_reason)
    usage = result.messages[-1].models_usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (200, 20)


async def test_usage_of_a_swarm_handoff(library: Library) -> None:
    client = ScriptedClient([search(), hand_off("a1")], tokens=(100, 10))
    recall = MemRecallAgent("recall", library, ANN, model_client=client)
    handoff = HandoffMessage(content=REQUEST, source="parent", target="recall")
    answer = (await recall.run(task=handoff)).messages[-1]
    assert answer.models_usage is not None
    assert answer.models_usage.prompt_tokens == 200


async def test_withheld_memories_are_reported_by_every_class(library: Library) -> None:
    question = "What was the database password again?"

    def client() -> ScriptedClient:
        return ScriptedClient([search("database password"), hand_off(confidence=0.0)])

    recall = MemRecallAgent("recall", library, ANN, model_client=client())
    answer = (await recall.run(task=question)).messages[-1]
    assert isinstance(answer, StructuredMessage)
    context = MemoryContext(library, ANN, model_client=client())
    await context.add_message(user_message(question))
    tool = RecallTool(library, ANN, model_client=client())
    arguments = {"query": question}
    assert (await tool.run_json(arguments, CancellationToken())).withheld == 1
    result = await Recaller(library, ANN, client()).recall(question)
    reply = RecallReply.from_result(result)  # over MCP
    assert reply.withheld == 1
    request = [ConversationMessage(Role.USER, question)]
    chat = TurnRecalls(Recaller(library, ANN, client()), request, ChatOptions(), "zh")
    assert "无权显示" in (await chat.force()).content
    blocks = recalled_blocks(await context.get_messages())
    assert len(blocks) == 1
    for text in (answer.content.message, reply.as_text(), *blocks):
        assert "sensitive memories that match (1)" in text
        assert "Nothing relevant" not in text
