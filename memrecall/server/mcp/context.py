"""The context of an MCP request: what the caller may use, and the progress of its recalls."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from mcp.server.context import ServerRequestContext

from memrecall.agent import Recaller, RecallOptions, RecallResult, StopReason
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.trace import stream_events
from memrecall.agent.trace_events import CallEvent
from memrecall.errors import StorageError
from memrecall.extraction.claims import review_plan
from memrecall.memory import Library
from memrecall.memory.base import make_extractor
from memrecall.memory.ingest import Ingestor
from memrecall.memory.jobs import Processes
from memrecall.scope import Scope
from memrecall.types import Origin

McpRequest = ServerRequestContext[Any, Any]
ContextOf = Callable[[McpRequest], Awaitable[ToolContext]]
Limiter = Callable[[], AbstractAsyncContextManager[None]]

ACTOR = "mcp"


def make_context(
    library: Library,
    scope: Scope,
    model_client: Any = None,
    *,
    request: McpRequest | None = None,
    ingestor: Ingestor | None = None,
    has_user: bool = True,
    can_write: bool = True,
    is_trusted: bool = False,
    limiter: Limiter = nullcontext,
) -> ToolContext:
    """Return the context of one caller; `limiter` limits its recalls.

    Recalls report their progress to the caller of `request`. Callers whose contexts share an
    `ingestor` write a user's memories one after the other.
    """
    ingestor = ingestor or make_ingestor(library, model_client)
    options = RecallOptions(keep_traces_days=library.settings.trace_days)
    recaller = Recaller(library, scope, model_client, options)

    async def recall(messages: object) -> RecallResult:
        async with limiter():
            result = await _recall(recaller, messages, request)
        if result.stop_reason is StopReason.STORAGE_FAILED:
            raise StorageError(result.problem or "the database failed")
        return result

    return ToolContext(
        library=library,
        scope=scope,
        has_user=has_user,
        can_write=can_write,
        is_trusted=is_trusted,
        actor=ACTOR,
        recall=recall,
        remember=partial(ingestor.remember, scope, origin=Origin.ASSISTANT, actor=ACTOR),
    )


def make_ingestor(library: Library, model_client: Any) -> Ingestor:
    """Return what `remember` writes with: the model decides what is replaced, or rules do."""
    library.review_plan = review_plan
    extractor = make_extractor(replace(library.settings, model=""), model_client, library.embedder)
    return Ingestor(library, extractor, Processes())


async def _recall(recaller: Recaller, messages: object, request: McpRequest | None) -> RecallResult:
    """Recall; a caller that sent a progress token is told of each tool call."""
    if request is None or (request.meta or {}).get("progress_token") is None:
        return await recaller.recall(messages)
    steps = 0
    run = partial(recaller.recall, messages)
    async with aclosing(stream_events(lambda observer: run(observer=observer))) as items:
        async for item in items:
            if isinstance(item, RecallResult):
                return item
            if isinstance(item, CallEvent):
                steps += 1
                await request.session.report_progress(steps, message=item.tool)
    raise AssertionError("a recall always ends in a result")
