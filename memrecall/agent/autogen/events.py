"""A recall as a stream: the events of its trace as they happen, then the result."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime

from autogen_agentchat.messages import (
    BaseAgentEvent,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import FunctionExecutionResult

from memrecall.agent.driver import Recaller
from memrecall.agent.result import RecallResult
from memrecall.agent.trace import EventKind, TraceEvent


async def stream_recall(
    recaller: Recaller,
    messages: object,
    *,
    as_of: datetime | None = None,
    time_zone: str | None = None,
    cancellation_token: CancellationToken | None = None,
) -> AsyncGenerator[TraceEvent | RecallResult, None]:
    """Recall, telling each event at once; the last item is the result."""
    told: asyncio.Queue[TraceEvent | None] = asyncio.Queue()
    work = asyncio.ensure_future(
        recaller.recall(
            messages,
            as_of=as_of,
            time_zone=time_zone,
            observer=told.put_nowait,
            cancellation_token=cancellation_token,
        )
    )
    work.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while (event := await told.get()) is not None:
            yield event
        yield await work
    finally:
        # Whoever listened has gone away, or was cancelled: then so is the recall.
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def to_agent_event(event: TraceEvent, source: str) -> BaseAgentEvent | None:
    """An event of the trace as AutoGen tells it; the others are seen in the trace alone."""
    data = event.data
    if event.kind is EventKind.CALL:
        call = FunctionCall(id=data["id"], arguments=data["arguments"], name=data["tool"])
        return ToolCallRequestEvent(content=[call], source=source)
    if event.kind is EventKind.RESULT:
        result = FunctionExecutionResult(
            content=data["text"],
            name=data["tool"],
            call_id=data["id"],
            is_error=data["error"] is not None,
        )
        return ToolCallExecutionEvent(content=[result], source=source)
    if event.kind is EventKind.THOUGHT:
        return ThoughtEvent(content=data["text"], source=source)
    return None
