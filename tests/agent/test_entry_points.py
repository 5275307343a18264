"""What every AutoGen class accepts: a time, an observer, a cancellation token, a cassette."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.model_context import UnboundedChatCompletionContext

from memrecall.agent import (
    MemoryContext,
    MemRecallAgent,
    RecallMemory,
    RecallTool,
    TraceEvent,
    memory_tools,
)
from memrecall.agent.trace_events import EventKind
from memrecall.errors import CassetteMismatch
from memrecall.memory import Library, recall
from memrecall.model.client import BaseClient, Request
from memrecall.testing import ScriptedClient, say

from ..cases import check_each_async
from .clients import BlockingClient, fail_if_blocked, recalled_blocks, user_message
from .recall_helpers import ANN, NOW, REQUEST, hand_off, search

Start = Callable[..., Awaitable[object]]


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


ENTRY_POINTS: dict[str, Start] = {
    start.__name__: start
    for start in (
        run_agent,
        run_context,
        run_context_recall,
        run_memory,
        run_memory_query,
        run_tool,
        run_tool_stream,
        run_memory_tools,
        run_function,
    )
}


async def test_every_entry_point_takes_clock_and_observer(library: Library) -> None:
    async def check(name: str) -> None:
        events: list[TraceEvent] = []
        client = ScriptedClient([search(), hand_off("a1")])
        await ENTRY_POINTS[name](
            library, model_client=client, clock=lambda: NOW, observer=events.append
        )
        assert '"now":"2026-03-10T12:00:00+00:00"' in str(client.requests[0].messages[1].content)
        kinds = [event.kind for event in events]
        assert (kinds[0], kinds[-1]) == (EventKind.START, EventKind.HANDOFF)
        assert kinds.count(EventKind.CALL) == 2

    await check_each_async(ENTRY_POINTS, check)


async def test_every_entry_point_takes_a_date(library: Library) -> None:
    before = NOW.replace(month=1, day=1)  # when nothing had been said

    async def check(name: str) -> None:
        events: list[TraceEvent] = []
        client = ScriptedClient([search(), hand_off()])
        await ENTRY_POINTS[name](library, model_client=client, as_of=before, observer=events.append)
        assert '"total_found":0' in str(client.requests[1].messages)

    await check_each_async(ENTRY_POINTS, check)


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
