"""Requests and responses of the recall and chat endpoints, as OpenAPI documents them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from memrecall.agent.prompt_view import BLOCK_CHARACTERS
from memrecall.budget import Limits
from memrecall.chat import Member
from memrecall.chat.mentions import MOST_MEMBERS
from memrecall.messages import ConversationMessage
from memrecall.server.http.message_models import (
    ID_BOUNDS,
    InputMessages,
    MessageId,
    QueryText,
    RequestModel,
    SessionId,
    accept_messages,
    require_exactly_one,
)
from memrecall.types import (
    NAME_LENGTH,
    CleanText,
    Id,
    Language,
    Moment,
    Name,
    Role,
    TimeZone,
)

MAX_MESSAGE_CHARS = 100_000
MAX_INSTRUCTIONS_CHARS = 20_000
MAX_CONVERSATION = 200
MAX_LIMITS = Limits(iterations=10, model_calls=60, tool_calls=120, tokens=500_000, seconds=300.0)

_MessageText = Annotated[
    CleanText, StringConstraints(min_length=1, max_length=MAX_MESSAGE_CHARS, pattern=r"\S")
]
_MemberId = Annotated[Id, Field(description="A member of the group.", json_schema_extra=ID_BOUNDS)]
_MemberName = Annotated[Name, Field(min_length=1, max_length=NAME_LENGTH)]
_Instructions = Annotated[
    CleanText,
    Field(max_length=MAX_INSTRUCTIONS_CHARS, description="The system prompt of the assistant."),
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
    if_needed: Annotated[
        bool,
        Field(
            strict=True,
            description="Whether the response is empty if the request refers to nothing outside"
            " its session.",
        ),
    ] = False


class RecallRequest(RequestModel):
    """A recall for exactly one of `query` and `messages`."""

    model_config = ConfigDict(
        json_schema_extra=require_exactly_one(
            query=["string"], messages=["array", "object", "string"]
        )
    )

    query: QueryText | None = None
    messages: (
        Annotated[
            InputMessages, Field(max_length=MAX_CONVERSATION), accept_messages(MAX_CONVERSATION)
        ]
        | None
    ) = None
    session_id: SessionId | None = None
    as_of: Annotated[
        Moment | None, Field(description="Recall as of this time; later messages are not seen.")
    ] = None
    time_zone: Annotated[
        TimeZone | None,
        Field(
            description='The time zone of "yesterday", like Asia/Shanghai; default: the user\'s.'
        ),
    ] = None
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

    def characters(self) -> int:
        """Return the length of the conversation."""
        return sum(len(message.text) for message in self.conversation())


class GroupMember(Member):
    """A member of a group: a person, or with `ai` an assistant that a model speaks for."""

    member_id: _MemberId
    name: _MemberName
    nicknames: tuple[_MemberName, ...] = Field(default=(), max_length=20)
    ai: Annotated[bool, Field(strict=True)] = False
    instructions: _Instructions = ""


class GroupTurn(RequestModel):
    """A turn in a group chat; the `user_id` of the path is then the group's id."""

    members: Annotated[list[GroupMember], Field(min_length=1, max_length=MOST_MEMBERS)]
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

    message: _MessageText | None = None
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


class CalledTool(BaseModel):
    """A tool call of a turn and its result; `forged` calls were made by the turn itself."""

    id: str
    name: str
    arguments: str
    content: str
    is_error: bool
    forged: bool


class LeakedCall(BaseModel):
    """A tool call that the model wrote as text; it was removed and not executed."""

    family: str
    name: str | None


class ChatAnswer(BaseModel):
    """The end of a turn."""

    text: str
    message_id: str | None
    parent_message_id: str | None
    degraded: bool
    silent: bool
    finish_reason: Annotated[
        str, Field(description="Of the model; `length` and `content_filter`: the text is cut off.")
    ]
    language: str
    model: str
    model_calls: int
    recalls: int
    leaks: list[LeakedCall]
    usage: dict[str, Any]
    tools: list[CalledTool]
