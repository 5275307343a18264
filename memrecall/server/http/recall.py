"""`POST /v1/users/{user_id}/recall`: one result, or a stream of events."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field, model_validator
from pydantic_core import to_json

from memrecall.agent import Recaller, RecallOptions, RecallResult
from memrecall.agent.blocks import BLOCK_CHARACTERS, write_relevant_block
from memrecall.agent.conversation import LARGEST_WINDOW, Conversation, RecallWhen, needs_recall
from memrecall.agent.driver import stream_recall
from memrecall.agent.loop import leaked_families
from memrecall.agent.result import StopReason
from memrecall.agent.trace import CallEvent, StopEvent, TraceEvent
from memrecall.budget import Limits
from memrecall.errors import StorageError
from memrecall.messages import ConversationMessage, strip_markers
from memrecall.scope import Scope
from memrecall.server.http.context import Context, RequestContext
from memrecall.server.http.models import (
    PathId,
    Period,
    ProjectName,
    QueryText,
    RecallMessages,
    RequestModel,
    SessionId,
    accept_messages,
)
from memrecall.server.http.openapi import READER, OperationRouter
from memrecall.server.http.responses import (
    EVENT_STREAM,
    MEDIA_TYPE,
    PLAIN_TEXT,
    EventStream,
    ServerEvent,
    accepts,
    run_while_connected,
)
from memrecall.server.limits import GRACE_SECONDS
from memrecall.timing import allow_seconds
from memrecall.types import Language, Moment, Role, TimeZone

MAX_CONVERSATION = 200
MAX_LIMITS = Limits(iterations=10, model_calls=60, tool_calls=120, tokens=500_000, seconds=300.0)

router = OperationRouter("recall")


_Conversation = Annotated[
    RecallMessages, Field(max_length=MAX_CONVERSATION), accept_messages(MAX_CONVERSATION)
]


class RecallLimits(RequestModel):
    """Limits of one recall, at most the limits of the server."""

    iterations: Annotated[int | None, Field(strict=True, ge=1, le=MAX_LIMITS.iterations)] = None
    model_calls: Annotated[int | None, Field(strict=True, ge=0, le=MAX_LIMITS.model_calls)] = None
    tool_calls: Annotated[int | None, Field(strict=True, ge=0, le=MAX_LIMITS.tool_calls)] = None
    tokens: Annotated[int | None, Field(strict=True, ge=0, le=MAX_LIMITS.tokens)] = None
    seconds: Annotated[float | None, Field(strict=True, gt=0, le=MAX_LIMITS.seconds)] = None

    def limits(self) -> Limits:
        """Return the limits, with defaults for those that are not set."""
        return Limits(**self.model_dump(exclude_none=True))


class BlockOptions(RequestModel):
    """What a response of `text/plain` contains: the recalled block for a model's prompt."""

    characters: Annotated[int, Field(strict=True, ge=500, le=50_000)] = BLOCK_CHARACTERS
    min_confidence: Annotated[
        float, Field(ge=0, le=1, description="Below it, the response is empty.")
    ] = 0.0
    only_sure: Annotated[
        bool, Field(strict=True, description="Whether items that are only possible are left out.")
    ] = False
    if_needed: Annotated[
        bool,
        Field(
            strict=True,
            description="Whether the response is empty for greetings, thanks and acknowledgements,"
            " and leaves out the session.",
        ),
    ] = False
    when: Annotated[
        RecallWhen, Field(description="With `if_needed`: `always` answers every request.")
    ] = "auto"


class RecallRequest(RequestModel):
    """A recall for exactly one of `query` and `messages`."""

    query: QueryText | None = None
    messages: _Conversation | None = None
    session_id: SessionId | None = None
    project: ProjectName | None = None
    as_of: Annotated[
        Moment | None, Field(description="Recall as of this time; later messages are not seen.")
    ] = None
    time_zone: Annotated[
        TimeZone | None,
        Field(
            description='The time zone of "yesterday", like Asia/Shanghai; default: the user\'s.'
        ),
    ] = None
    time: Period = None
    language: Language | None = None
    limits: RecallLimits | None = None
    block: Annotated[
        BlockOptions | None, Field(description="For `Accept: text/plain`: size and thresholds.")
    ] = None

    @model_validator(mode="after")
    def _check_query(self) -> "RecallRequest":
        if (self.query is None) == (self.messages is None):
            raise ValueError("exactly one of query and messages is required")
        return self

    def conversation(self) -> tuple[ConversationMessage, ...]:
        """Return the messages, or the query as the only one."""
        return self.messages or (ConversationMessage(Role.USER, self.query or ""),)


@router.operation(
    "POST", "/users/{user_id}/recall", RecallResult, READER, also=(EVENT_STREAM, PLAIN_TEXT)
)
async def recall_memories(
    user_id: PathId, body: RecallRequest, request: Request, context: Context
) -> Response:
    """Find what the last user message refers to. With `Accept: text/event-stream`, the trace events
    are sent as they happen, followed by `done` with the result, or by `error`. With
    `Accept: text/plain`, the response is the block for a model's prompt, empty if there is none.
    """
    scope = await context.scope(user_id, body.session_id, body.project)
    context.log_fields["query_chars"] = sum(len(message.text) for message in body.conversation())
    closing = context.service.closing
    accept = request.headers.get("accept", "")
    if accepts(accept, PLAIN_TEXT) and body.block and body.block.if_needed:
        body = await with_session(context, scope, body, body.block.when)
        if not body.messages:
            return PlainTextResponse("")
    handler = RecallHandler(context, scope, body)
    if accepts(accept, EVENT_STREAM):
        return EventStream(handler.server_events, closing, handler.deadline)
    allow_seconds(handler.deadline + GRACE_SECONDS)
    result = await run_while_connected(handler.result(), request.receive, closing)
    if accepts(accept, PLAIN_TEXT):
        block = body.block or BlockOptions()
        text = write_relevant_block(
            result, block.characters, block.min_confidence, only_sure=block.only_sure
        )
        return PlainTextResponse(text)
    return Response(result.model_dump_json(), media_type=MEDIA_TYPE)


async def with_session(
    context: RequestContext, scope: Scope, body: RecallRequest, when: RecallWhen = "auto"
) -> RecallRequest:
    """Return the request with the messages of its session; with none if it needs no recall.

    Given to a recall, the session is no evidence: the client's model sees it anyway.
    """
    messages = body.conversation()
    if needs_recall(strip_markers(messages[-1].text), when):
        conversation = Conversation(messages, context.library.store, scope)
        messages = tuple(await conversation.window(LARGEST_WINDOW))
    else:
        messages = ()
    return body.model_copy(update={"query": None, "messages": messages})


@dataclass(frozen=True, slots=True)
class RecallHandler:
    """Runs one recall with limits, metrics and log fields."""

    context: RequestContext
    scope: Scope
    body: RecallRequest
    uses_model: bool = True  # if the service has one

    @property
    def deadline(self) -> float:
        """The maximum duration in seconds."""
        return self._limits.seconds

    @property
    def _limits(self) -> Limits:
        return (self.body.limits or RecallLimits()).limits()

    async def result(self) -> RecallResult:
        """Return the result of the recall."""
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, RecallResult):
                    return event
        raise AssertionError("a recall always ends with a result")

    async def server_events(self) -> AsyncGenerator[ServerEvent, None]:
        """Yield the events in the form in which they are sent."""
        async with aclosing(self.events()) as events:
            async for event in self.context.while_valid(events):
                if isinstance(event, RecallResult):
                    yield ServerEvent("done", event.model_dump_json().encode(), is_last=True)
                else:
                    yield ServerEvent(event.kind.value, to_json(event.as_dict()))

    async def events(self) -> AsyncGenerator[TraceEvent | RecallResult, None]:
        """Yield the events as they happen, then the result."""
        service = self.context.service
        slot = service.recall_slot(self.context.principal)
        async with slot, aclosing(self._recall_events()) as events:
            has_result = False
            try:
                async for event in events:
                    await self.context.require_member(self.scope)
                    has_result = isinstance(event, RecallResult)
                    yield self._finish(event) if isinstance(event, RecallResult) else event
            except (asyncio.CancelledError, GeneratorExit):
                if not has_result:  # a consumer may stop once it has the result
                    service.metrics.count_recall(StopReason.CANCELLED.value)
                raise

    async def _recall_events(self) -> AsyncGenerator[TraceEvent | RecallResult, None]:
        service = self.context.service
        options = RecallOptions(
            limits=self._limits,
            language=self.body.language,
            keep_traces_days=service.library.settings.trace_days,
        )
        model_client = service.model_client if self.uses_model else None
        recaller = Recaller(service.library, self.scope, model_client, options)
        stream = stream_recall(
            recaller,
            self.body.conversation(),
            as_of=self.body.as_of,
            time_zone=self.body.time_zone,
            time=self.body.time,
        )
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, TraceEvent):
                    for family in leaked_families(event):
                        service.metrics.count_leak(family)
                if isinstance(event, StopEvent) and event.reason == StopReason.STORAGE_FAILED:
                    event = replace(event, problem="")  # It may name the database.
                yield event

    def _finish(self, result: RecallResult) -> RecallResult:
        """Count a result; raise StorageError if the recall could not read the database."""
        self.context.service.metrics.count_recall(result.stop_reason.value, result)
        self.context.log_fields.update(
            stop_reason=result.stop_reason.value,
            iterations=result.iterations,
            tools=[event.tool for event in result.trace.events if isinstance(event, CallEvent)],
        )
        if result.stop_reason is StopReason.STORAGE_FAILED:
            raise StorageError(result.problem or "the database failed")
        return result
