"""`POST /v1/users/{user_id}/chat`: one turn, at the end or as it happens."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

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
from memrecall.server.http.chat_models import ChatAnswer, ChatRequest
from memrecall.server.http.message_models import PathId
from memrecall.server.http.openapi import documented
from memrecall.server.http.service import Asked, Asking
from memrecall.server.http.streaming import (
    EVENT_STREAM,
    EventStream,
    ServerEvent,
    wants_events,
    while_listened,
)
from memrecall.server.http.wire import Json, StrictRoute

router = APIRouter(prefix="/v1", tags=["chat"], route_class=StrictRoute)

_SPARE_SECONDS = 30.0  # for whoever reads the events slowly


@router.post(
    "/users/{user_id}/chat",
    **documented("chat", ChatAnswer, 400, 404, 409, 413, 415, 429, 507, also=EVENT_STREAM),
)
async def chat(user_id: PathId, body: ChatRequest, request: Request, asked: Asked) -> Response:
    """Answer a message: recall, ask the model with its tools, store what was said. With
    `Accept: text/event-stream` come `tool_call`, `tool_result` and `text_delta` as they happen, and
    at the end `final`, or `error`.
    """
    asked.principal.require_writing()
    scope = asked.principal.scope(user_id, body.session_id)
    asked.notes["query_chars"] = len(body.message or "")
    run = ChatRun(asked, scope, body)
    closing = asked.service.closing
    if wants_events(request.headers.get("accept", "")):
        return EventStream(run.told, closing, run.deadline)
    return Json(await while_listened(run.answer(), request.receive, closing))


@dataclass(frozen=True, slots=True)
class ChatRun:
    """One turn, counted, limited and told to the log."""

    asked: Asking
    scope: Scope
    body: ChatRequest

    @property
    def deadline(self) -> float:
        """Seconds after which whoever listens is too slow."""
        options = self._options
        recalls = (options.own_recalls + 1) * options.recall_seconds
        return options.seconds + recalls + _SPARE_SECONDS

    @property
    def _options(self) -> ChatOptions:
        return ChatOptions.of(self.asked.library.settings, self.body.language)

    async def answer(self) -> dict[str, Any]:
        """The end of the turn, with the calls that were made."""
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
        raise AssertionError("a turn always ends in an end")

    async def told(self) -> AsyncGenerator[ServerEvent, None]:
        """The events as they are sent."""
        async with aclosing(self.events()) as events:
            async for event in events:
                yield ServerEvent(
                    event.kind, to_json(_fields(event)), is_last=isinstance(event, Final)
                )

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """The events as they happen, up to `Final`; what fails is raised."""
        service = self.asked.service
        async with service.gate.enter(self.asked.principal.key_id):
            outcome, started = "failed", time.monotonic()
            try:
                async with aclosing(await self._play()) as events:
                    async for event in events:
                        if isinstance(event, Final):
                            outcome = self._finish(event)
                        yield _unless_failed(event)
            except (asyncio.CancelledError, GeneratorExit):
                if outcome == "failed":  # else whoever has the end need not listen any longer
                    outcome = "cancelled"
                raise
            finally:
                service.metrics.count_turn(outcome, time.monotonic() - started)

    async def _play(self) -> AsyncGenerator[ChatEvent, None]:
        service, body = self.asked.service, self.body
        by_model = service.library.settings.chat_recall_with_model
        given: dict[str, Any] = {
            "recall_client": service.model_client if by_model else None,
            "options": self._options,
            "caches": service.caches,
            "on_leak": service.metrics.count_leak,
        }
        library, client = service.library, service.model_client
        if body.group is None:
            single = SingleChat(
                library, self.scope, client, instructions=body.instructions, **given
            )
            return single.stream(str(body.message), message_id=body.message_id)
        turn = body.group
        members = [member.member() for member in turn.members]
        group = GroupChat(library, self.scope, members, client, **given)
        posted = None
        if turn.speaker is not None:
            posted = await group.post(
                turn.speaker, str(body.message), mentions=turn.mentions, message_id=body.message_id
            )
        return group.stream(
            turn.answers, mentions=turn.mentions, answers=posted.message_id if posted else None
        )

    def _finish(self, end: Final) -> str:
        """Note an end for the log; how it ended."""
        notes = self.asked.notes
        notes.update(recalls=end.recalls, leaks=[leak.family for leak in end.leaks])
        outcome = "silent" if end.silent else "degraded" if end.degraded else "answered"
        notes["outcome"] = outcome
        return outcome


def _unless_failed(event: ChatEvent) -> ChatEvent:
    """What failed is raised: the service tells its errors in one way."""
    if isinstance(event, Failed):
        raise event.error
    return event


def _fields(event: ChatEvent) -> dict[str, Any]:
    """An event as JSON; its kind is told beside it."""
    fields = event.as_dict()
    del fields["type"]
    return fields
