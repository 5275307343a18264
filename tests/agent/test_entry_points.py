"""What everything that recalls accepts: times, an observer, a cancellation token, a cassette."""

import asyncio
from functools import partial
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.model_context import UnboundedChatCompletionContext

from memrecall import AsyncMemory, Memory
from memrecall.agent import MemoryContext, MemRecallAgent, RecallMemory, RecallTool, memory_tools
from memrecall.chat import GroupChat, Member, SingleChat
from memrecall.errors import CassetteMismatch
from memrecall.integrations.agent_memory import AgentMemory, bind_tools
from memrecall.memory import Library, recall
from memrecall.model.client import BaseClient, Request
from memrecall.testing import ScriptedClient, say

from ..cases import check_each_async
from .clients import BlockingClient, fail_if_blocked, recalled_blocks, user_message
from .recall_helpers import (
    ANN,
    REQUEST,
    Start,
    check_clock_and_observer,
    check_date,
    hand_off,
    search,
)


async def run_agent(library: Library, **arguments: Any) -> None:
    await MemRecallAgent("recall", library, ANN, **arguments).run(task=REQUEST)


async def run_context(library: Library, **arguments: Any) -> None:
    context = MemoryContext(library, ANN, **arguments)
    await context.add_message(user_message())
    await context.get_messages()


async def run_context_recall(library: Library, **arguments: Any) -> None:
    await MemoryContext(library, ANN, **arguments).recall(REQUEST)


async def run_memory(library: Library, **arguments: Any) -> None:
    context = UnboundedChatCompletionContext([user_message()])
    await RecallMemory(library, ANN, **arguments).update_context(context)


async def run_memory_query(library: Library, **arguments: Any) -> None:
    await RecallMemory(library, ANN, **arguments).query(REQUEST)


async def run_tool(library: Library, **arguments: Any) -> None:
    await RecallTool(library, ANN, **arguments).run_json({"query": REQUEST}, CancellationToken())


async def run_tool_stream(library: Library, **arguments: Any) -> None:
    tool = RecallTool(library, ANN, **arguments)
    async for _ in tool.run_json_stream({"query": REQUEST}, CancellationToken()):
        pass


async def run_memory_tools(library: Library, **arguments: Any) -> None:
    (tool,) = [t for t in memory_tools(library, ANN, **arguments) if t.name == "recall"]
    await tool.run_json({"query": REQUEST}, CancellationToken())


async def run_function(library: Library, **arguments: Any) -> None:
    await recall(REQUEST, user_id="ann", library=library, **arguments)


def bind_memory(library: Library, model_client: Any) -> AsyncMemory:
    return AsyncMemory(library=library, user_id="ann", model_client=model_client)


async def run_async_memory(library: Library, model_client: Any, **arguments: Any) -> None:
    await bind_memory(library, model_client).recall(REQUEST, **arguments)


async def run_async_memory_tools(library: Library, model_client: Any, **arguments: Any) -> None:
    tools = await bind_memory(library, model_client).tools(**arguments)
    (tool,) = [tool for tool in tools if tool.name == "recall"]
    await tool.run_json({"query": REQUEST}, CancellationToken())


async def run_sync_memory(library: Library, model_client: Any, **arguments: Any) -> None:
    settings = library.settings

    def recall_sync() -> None:
        with Memory(settings=settings, user_id="ann", model_client=model_client) as memory:
            memory.recall(REQUEST, **arguments)

    await asyncio.to_thread(recall_sync)


async def run_agent_memory(library: Library, model_client: Any, **arguments: Any) -> None:
    owner = AgentMemory(bind_memory(library, model_client), **arguments)
    await owner.recall(REQUEST)


async def run_agent_memory_block(library: Library, model_client: Any, **arguments: Any) -> None:
    owner = AgentMemory(bind_memory(library, model_client), **arguments)
    await owner.recall_block([user_message()])


async def run_agent_memory_tool(library: Library, model_client: Any, **arguments: Any) -> None:
    tools = bind_tools(bind_memory(library, model_client), **arguments)
    (tool,) = [tool for tool in tools if tool.name == "recall"]
    await tool.call({"query": REQUEST})


async def run_single_chat(library: Library, model_client: Any, **arguments: Any) -> None:
    chat = SingleChat(library, ANN.with_session("chat"), recall_client=model_client, **arguments)
    await chat.answer(REQUEST)


async def run_group_chat(library: Library, model_client: Any, **arguments: Any) -> None:
    members = [Member(member_id="ann", name="Ann"), Member(member_id="bot", name="Bot", ai=True)]
    chat = GroupChat(
        library, ANN.with_session("group"), members, recall_client=model_client, **arguments
    )
    await chat.post("ann", f"@Bot {REQUEST}")
    await chat.answer("bot")


ENTRY_POINTS: dict[str, Start] = {
    start.__name__: start
    for start in (
        *(run_agent, run_context, run_context_recall, run_memory, run_memory_query, run_tool),
        *(run_tool_stream, run_memory_tools, run_function, run_async_memory),
        *(run_async_memory_tools, run_sync_memory, run_agent_memory, run_agent_memory_block),
        *(run_agent_memory_tool, run_single_chat, run_group_chat),
    )
}


async def test_every_entry_point_takes_clock_and_observer(library: Library) -> None:
    await check_each_async(
        ENTRY_POINTS, lambda name: check_clock_and_observer(partial(ENTRY_POINTS[name], library))
    )


async def test_every_entry_point_takes_a_date(library: Library) -> None:
    await check_each_async(
        ENTRY_POINTS, lambda name: check_date(partial(ENTRY_POINTS[name], library))
    )


class MismatchedClient(BaseClient):
    """A replayed client whose request differs from the recording."""

    def __init__(self) -> None:
        super().__init__("replayed", ScriptedClient([]).model_info)

    async def _answer(self, request: Request) -> Any:
        raise CassetteMismatch("call 1 differs")


async def test_cassette_mismatch_is_never_swallowed(library: Library) -> None:
    async def check(name: str) -> None:
        with pytest.raises(CassetteMismatch):
            await ENTRY_POINTS[name](library, model_client=MismatchedClient())

    await check_each_async(ENTRY_POINTS, check)


@pytest.mark.concurrent
async def test_cancelled_parent_ends_the_recall_of_its_context(library: Library) -> None:
    slow = BlockingClient(search(), hand_off("a1"))
    context = MemoryContext(library, ANN, model_client=slow)
    parent = AssistantAgent("parent", ScriptedClient([say("unused")]), model_context=context)
    token = context.cancellation_token = CancellationToken()
    running = asyncio.ensure_future(parent.run(task=REQUEST, cancellation_token=token))
    async with fail_if_blocked():
        await slow.called.wait()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert slow.stopped
    context.cancellation_token = CancellationToken()
    slow.released.set()
    assert len(recalled_blocks(await context.get_messages())) == 1
    assert context.last_result is not None
    assert context.last_result.stop_reason == "handoff"  # the next run recalls again


@pytest.mark.concurrent
@pytest.mark.parametrize("is_query", [False, True])
async def test_cancelled_parent_ends_the_recall_of_its_memory(
    library: Library, is_query: bool
) -> None:
    slow = BlockingClient(hand_off("a1"))
    memory = RecallMemory(library, ANN, model_client=slow)
    token = CancellationToken()
    if is_query:
        running: asyncio.Future[Any] = asyncio.ensure_future(memory.query(REQUEST, token))
    else:
        memory.cancellation_token = token
        context = UnboundedChatCompletionContext([user_message()])
        running = asyncio.ensure_future(memory.update_context(context))
    async with fail_if_blocked():
        await slow.called.wait()
        token.cancel()
        await running
    assert slow.stopped
