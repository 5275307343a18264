"""A recall as a stream of trace events, and these as events of AutoGen."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import TypeVar

from autogen_agentchat import messages as autogen_messages
from autogen_agentchat.messages import BaseAgentEvent, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import FunctionExecutionResult

from memrecall.agent.driver import Recaller
from memrecall.agent.result import RecallResult
from memrecall.agent.trace import Observer
from memrecall.agent.trace_events import CallEvent, ResultEvent, ThoughtEvent, TraceEvent

Result = TypeVar("Result")


async def stream_recall(
    recaller: Recaller,
    messages: object,
    *,
    as_of: datetime | None = None,
    time_zone: str | None = None,
    cancellation_token: CancellationToken | None = None,
) -> AsyncGenerator[TraceEvent | RecallResult, None]:
    """Recall, and yield each trace event as it happens, then the result."""
    recall = partial(
        recaller.recall,
        messages,
        as_of=as_of,
        time_zone=time_zone,
        cancellation_token=cancellation_token,
    )
    async with aclosing(stream_events(lambda observer: recall(observer=observer))) as items:
        async for item in items:
            yield item


async def stream_events(
    run: Callable[[Observer], Awaitable[Result]],
) -> AsyncGenerator[TraceEvent | Result, None]:
    """Run a function with an observer of trace events; yield the events, then its result."""
    events: asyncio.Queue[TraceEvent | None] = asyncio.Queue()
    task = asyncio.ensure_future(run(events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        yield await task
    finally:
        # The run ends when its consumer stops or is cancelled.
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def to_agent_event(event: TraceEvent, source: str) -> BaseAgentEvent | None:
    """Return a trace event as AutoGen's event; None for kinds that AutoGen does not have."""
    match event:
        case CallEvent():
            call = FunctionCall(id=event.id, arguments=event.arguments, name=event.tool)
            return ToolCallRequestEvent(content=[call], source=source)
        case ResultEvent():
            result = FunctionExecutionResult(
                content=event.text,
                name=event.tool,
                call_id=event.id,
                is_error=event.error is not None,
            )
            return ToolCallExecutionEvent(content=[result], source=source)
        case ThoughtEvent():
            return autogen_messages.ThoughtEvent(content=event.text, source=source)
    return None
