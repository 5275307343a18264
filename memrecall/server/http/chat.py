"""`POST /v1/users/{user_id}/chat`: one turn, as one response or a stream of events."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, cast

from fastapi import Request, Response
from pydantic import ConfigDict, Field, StringConstraints, WrapValidator, model_validator
from pydantic_core import to_json

from memrecall.chat import (
    ChatEvent,
    ChatOptions,
    Failed,
    Final,
    GroupChat,
    Member,
    SingleChat,
    ToolCall,
    ToolResult,
)
from memrecall.chat.base import with_status
from memrecall.chat.mentions import MOST_MEMBERS
from memrecall.messages import join_content_parts
from memrecall.scope import Scope
from memrecall.server.http.context import Context, RequestContext
from memrecall.server.http.models import (
    ID_BOUNDS,
    ContentParts,
    MessageId,
    PathId,
    RequestModel,
    SessionId,
)
from memrecall.server.http.openapi import CONTRIBUTOR, OperationRouter
from memrecall.server.http.responses import (
    EVENT_STREAM,
    EventStream,
    JsonResponse,
    ServerEvent,
    accepts,
    run_while_connected,
)
from memrecall.server.limits import GRACE_SECONDS
from memrecall.timing import allow_seconds
from memrecall.types import CleanText, Id, Language

router = OperationRouter("chat")

MAX_MESSAGE_CHARS = 100_000
MAX_INSTRUCTIONS_CHARS = 20_000

_MessageText = Annotated[
    CleanText, StringConstraints(min_length=1, max_length=MAX_MESSAGE_CHARS, pattern=r"\S")
]
_MemberId = Annotated[Id, Field(description="A member of the group.", json_schema_extra=ID_BOUNDS)]
_Instructions = Annotated[
    CleanText,
    Field(max_length=MAX_INSTRUCTIONS_CHARS, description="The system prompt of the assistant."),
]


def _check_content(value: Any, check_text: Callable[[Any], Any]) -> Any:
    """Check a text, or content parts such as texts and pictures, which are kept as they are."""
    if not isinstance(value, list | dict):
        return check_text(value)
    check_text(join_content_parts({"content": value})["content"])
    return value


_Content = Annotated[
    _MessageText, WrapValidator(_check_content, json_schema_input_type=_MessageText | ContentParts)
]


class GroupTurn(RequestModel):
    """A turn in a group chat; the `user_id` of the path is then the group's id."""

    members: Annotated[list[Member], Field(min_length=1, max_length=MOST_MEMBERS)]
    answers: _MemberId
    speaker: Annotated[
        _MemberId | None,
        Field(description="The member who sends the message; omit it without a message."),
    ] = None
    mentions: Annotated[
        list[_MemberId] | None,
        Field(
            max_length=MOST_MEMBERS,
            description="The mentioned members; default: those in the text.",
        ),
    ] = None

    @model_validator(mode="after")
    def _check_members(self) -> "GroupTurn":
        ids = [member.member_id for member in self.members]
        if len(set(ids)) < len(ids):
            raise ValueError("two members have the same id")
        for member_id in (self.answers, self.speaker, *(self.mentions or ())):
            if member_id is not None and member_id not in ids:
                raise ValueError(f"the group has no member {member_id!r}")
        if self.answers == self.speaker:
            raise ValueError("the speaker cannot answer the message; name another in answers")
        if not any(member.ai for member in self.members if member.member_id == self.answers):
            raise ValueError(f"{self.answers!r} is a person; answers must name a member with ai")
        return self


class ChatRequest(RequestModel):
    """A turn: the user's `message`, or in a `group` a member's message and who answers it."""

    message: _Content | None = None
    message_id: MessageId | None = None
    session_id: SessionId | None = None
    language: Language | None = None
    instructions: _Instructions = ""
    group: GroupTurn | None = None

    @model_validator(mode="after")
    def _check_message(self) -> "ChatRequest":
        if self.group is None:
            if self.message is None:
                raise ValueError("message is required")
        elif (self.message is None) != (self.group.speaker is None):
            raise ValueError("in a group, pass both message and speaker, or neither")
        elif self.instructions:
            raise ValueError("in a group, put instructions into members")
        return self


@dataclass(frozen=True, slots=True)
class CalledTool(ToolResult):
    """A tool call of a turn and its result; `forged` calls were made by the turn itself."""

    arguments: str


@dataclass(frozen=True, slots=True)
class ChatAnswer(Final):
    """The end of a turn; `finish_reason` `length` or `content_filter`: the text is cut off."""

    __pydantic_config__: ClassVar = ConfigDict(json_schema_serialization_defaults_required=True)

    tools: list[CalledTool] = field(default_factory=list)


@router.operation("POST", "/users/{user_id}/chat", ChatAnswer, CONTRIBUTOR, also=(EVENT_STREAM,))
async def answer_message(
    user_id: PathId, body: ChatRequest, request: Request, context: Context
) -> Response:
    """Answer a message: recall, call the model with its tools, store the messages. With
    `Accept: text/event-stream`, `tool_call`, `tool_result` and `text_delta` events are sent as they
    happen, followed by `final` or `error`. The `text` of `text_retracted` replaces all text so far.
    """
    context.principal.require_write()
    scope = await context.scope(user_id, body.session_id)
    context.log_fields["query_chars"] = len(body.message or "")
    handler = ChatHandler(context, scope, body)
    closing = context.service.closing
    if accepts(request.headers.get("accept", ""), EVENT_STREAM):
        return EventStream(handler.server_events, closing, handler.deadline)
    allow_seconds(handler.deadline + GRACE_SECONDS)
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
        return options.seconds + (options.own_recalls + 1) * options.recall_seconds

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
            async for event in self.context.while_valid(events):
                yield ServerEvent(
                    event.kind, to_json(_fields(event)), is_last=isinstance(event, Final)
                )

    async def events(self) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events as they happen, up to `Final`; raise the error of a failed turn."""
        service = self.context.service
        async with AsyncExitStack() as stack:
            chat = self._make_chat()
            await stack.enter_async_context(service.recall_slot(self.context.principal))
            outcome = "failed"
            start = time.monotonic()
            try:
                async with aclosing(await self._start_turn(chat)) as events:
                    async for event in events:
                        await self.context.require_member(self.scope)
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

    def _make_chat(self) -> SingleChat | GroupChat:
        service = self.context.service
        if self.body.group is None:
            return SingleChat(
                service.library,
                self.scope,
                service.model_client,
                instructions=self.body.instructions,
                options=self._options,
                on_leak=service.metrics.count_leak,
            )
        return GroupChat(
            service.library,
            self.scope,
            self.body.group.members,
            service.model_client,
            options=self._options,
            on_leak=service.metrics.count_leak,
        )

    async def _start_turn(self, chat: SingleChat | GroupChat) -> AsyncGenerator[ChatEvent, None]:
        body = self.body
        if isinstance(chat, SingleChat):
            return chat.stream(body.message or "", message_id=body.message_id)
        turn = cast("GroupTurn", body.group)
        if turn.speaker is None:
            return chat.stream(turn.answers, mentions=turn.mentions)
        posted = await chat.post(
            turn.speaker, body.message or "", mentions=turn.mentions, message_id=body.message_id
        )
        events = chat.stream(turn.answers, mentions=turn.mentions, answers=posted.message_id)
        return with_status(events, posted.status)

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
