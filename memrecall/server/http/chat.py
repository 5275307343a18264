"""`POST /v1/users/{user_id}/chat`: one turn, as one response or a stream of events."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, cast

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from memrecall.agent.trace import Observer
from memrecall.chat import (
    ChatEvent,
    ChatOptions,
    Failed,
    Final,
    GroupChat,
    SingleChat,
    ToolCall,
    ToolResult,
)
from memrecall.scope import Scope
from memrecall.server.http.chat_models import ChatAnswer, ChatRequest, GroupTurn
from memrecall.server.http.context import Context, RequestContext
from memrecall.server.http.message_models import PathId
from memrecall.server.http.openapi import route_options
from memrecall.server.http.payloads import JsonResponse, JsonRoute
from memrecall.server.http.streaming import (
    EVENT_STREAM,
    EventStream,
    ServerEvent,
    prefers,
    run_while_connected,
)

router = APIRouter(prefix="/v1", tags=["chat"], route_class=JsonRoute)


@router.post(
    "/users/{user_id}/chat",
    **route_options("chat", ChatAnswer, 400, 404, 409, 413, 415, 429, 507, also=(EVENT_STREAM,)),
)
async def chat(user_id: PathId, body: ChatRequest, request: Request, context: Context) -> Response:
    """Answer a message: recall, call the model with its tools, store the messages. With
    `Accept: text/event-stream`, `tool_call`, `tool_result` and `text_delta` events are sent as they
    happen, followed by `final` or `error`. The `text` of `text_retracted` replaces all text so far.
    """
    context.principal.require_write()
    scope = context.principal.scope(user_id, body.session_id)
    context.log_fields["query_chars"] = len(body.message or "")
    handler = ChatHandler(context, scope, body)
    closing = context.service.closing
    if prefers(request.headers.get("accept", ""), EVENT_STREAM):
        return EventStream(handler.server_events, closing, handler.deadline)
    return JsonResponse(await run_while_connected(handler.answer(), request.receive, closing))


@dataclass(frozen=True, slots=True)
class ChatHandler:
    """Runs one turn with limits, metrics and log fields."""

    context: RequestContext
    scope: Scope
    body: ChatRequest

    @property
    def deadline(self) -> float:
        """The maximum duration in seconds."""
        options = self._options
        recalls = (options.own_recalls + 1) * options.recall_seconds
        return options.seconds + recalls

    @property
    def _options(self) -> ChatOptions:
        return ChatOptions.of(self.context.library.settings, self.body.language)

    async def answer(self) -> dict[str, Any]:
        """Return the end of the turn with its tool calls."""
        calls: list[ToolCall] = []
        results: list[ToolResult] = []
        async with aclosing(self.events()) as events:
            async for event in events:
                match event:
                    case ToolCall():
                        calls.append(event)
                    case ToolResult():
                        results.append(event)
                    case Final():
                        pairs = zip(calls, results, strict=True)
                        tools = [{**asdict(call), **asdict(result)} for call, result in pairs]
                        return {**_fields(event), "tools": tools}
        raise AssertionError("a turn always ends with a Final event")

    async def server_events(self) -> AsyncGenerator[ServerEvent, None]:
        """Yield the events in the form in which they are sent."""
        async with aclosing(self.events()) as events:
            async for event in events:
                yield ServerEvent(
                    event.kind, to_json(_fields(event)), is_last=isinstance(event, Final)
                )

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events as they happen, up to `Final`; raise the error of a failed turn."""
        service = self.context.service
        async with AsyncExitStack() as stack:
            chat = self._make_chat(stack.enter_context(service.live.observe(self.scope)))
            await stack.enter_async_context(self._slot(chat))
            outcome, start = "failed", time.monotonic()
            try:
                async with aclosing(await self._start_turn(chat)) as events:
                    async for event in events:
                        if isinstance(event, Failed):
                            raise event.error
                        if isinstance(event, Final):
                            outcome = self._finish(event)
                        yield event
            except (asyncio.CancelledError, GeneratorExit):
                if outcome == "failed":  # a consumer may stop once it has the end
                    outcome = "cancelled"
                raise
            finally:
                service.metrics.count_turn(outcome, time.monotonic() - start)

    def _slot(self, chat: SingleChat | GroupChat) -> AbstractAsyncContextManager[None]:
        """Return a slot of the key; a caller that joins a running turn needs none."""
        message_id, group = self.body.message_id, self.body.group
        if message_id is not None and chat.is_answering(message_id, group.answers if group else ""):
            return nullcontext()
        return self.context.service.recall_slot(self.context.principal)

    def _make_chat(self, observer: Observer) -> SingleChat | GroupChat:
        service, body = self.context.service, self.body
        library, client = service.library, service.model_client
        options: dict[str, Any] = {
            "options": self._options,
            "observer": observer,
            "on_leak": service.metrics.count_leak,
        }
        if body.group is None:
            return SingleChat(
                library, self.scope, client, instructions=body.instructions, **options
            )
        return GroupChat(library, self.scope, body.group.members, client, **options)

    async def _start_turn(self, chat: SingleChat | GroupChat) -> AsyncGenerator[ChatEvent, None]:
        body = self.body
        if isinstance(chat, SingleChat):
            return chat.stream(str(body.message), message_id=body.message_id)
        turn = cast("GroupTurn", body.group)
        message = None
        if turn.speaker is not None:
            message = await chat.post(
                turn.speaker, str(body.message), mentions=turn.mentions, message_id=body.message_id
            )
        return chat.stream(
            turn.answers, mentions=turn.mentions, answers=message.message_id if message else None
        )

    def _finish(self, end: Final) -> str:
        """Add the end of the turn to the log fields; return its outcome."""
        outcome = "silent" if end.silent else "degraded" if end.degraded else "answered"
        self.context.log_fields.update(
            recalls=end.recalls, leaks=[leak.family for leak in end.leaks], outcome=outcome
        )
        return outcome


def _fields(event: ChatEvent) -> dict[str, Any]:
    """Return an event as JSON without its type, which is the name of the server event."""
    fields = event.as_dict()
    del fields["type"]
    return fields
