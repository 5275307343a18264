"""What the chat endpoint takes and gives, as the OpenAPI document describes it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from memrecall.chat import Member
from memrecall.chat.mentions import MOST_MEMBERS
from memrecall.server.http.message_models import MessageId, SessionId
from memrecall.types import ID_LENGTH, NAME_LENGTH, CleanText, Id, Name

LONGEST_MESSAGE = 100_000
LONGEST_INSTRUCTIONS = 20_000

_Words = Annotated[
    CleanText, StringConstraints(min_length=1, max_length=LONGEST_MESSAGE, pattern=r"\S")
]
_MemberId = Annotated[
    Id,
    Field(
        description="A member of the group.",
        json_schema_extra={"minLength": 1, "maxLength": ID_LENGTH},
    ),
]
_MemberName = Annotated[Name, Field(min_length=1, max_length=NAME_LENGTH)]
_Instructions = Annotated[
    CleanText,
    Field(max_length=LONGEST_INSTRUCTIONS, description="Who the assistant is, for its model."),
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GroupMember(_Request):
    """A member of a group: a person, or (`ai`) one whose turns a model plays."""

    member_id: _MemberId
    name: _MemberName
    nicknames: Annotated[list[_MemberName], Field(max_length=20)] = []
    ai: Annotated[bool, Field(strict=True)] = False
    instructions: _Instructions = ""

    def member(self) -> Member:
        """The same for the chat."""
        return Member(**self.model_dump())


class GroupTurn(_Request):
    """Whose turn it is in a group; the `user_id` of the path is then the group's id."""

    members: Annotated[list[GroupMember], Field(min_length=1, max_length=MOST_MEMBERS)]
    answers: _MemberId
    speaker: Annotated[
        _MemberId | None, Field(description="Who says the message; none if nothing new is said.")
    ] = None
    mentions: Annotated[
        list[_MemberId] | None,
        Field(max_length=MOST_MEMBERS, description="Who is mentioned, if not by the text."),
    ] = None

    @model_validator(mode="after")
    def _members_only(self) -> "GroupTurn":
        known = [member.member_id for member in self.members]
        if len(set(known)) < len(known):
            raise ValueError("two members have the same id")
        for named in (self.answers, self.speaker, *(self.mentions or ())):
            if named is not None and named not in known:
                raise ValueError(f"the group has no member {named!r}")
        if self.answers == self.speaker:
            raise ValueError("who says the message cannot answer it; name another in answers")
        return self


class ChatRequest(_Request):
    """A turn: the user's `message`, or in a `group` a member's, and who answers it."""

    message: _Words | None = None
    message_id: MessageId | None = None
    session_id: SessionId | None = None
    language: Literal["en", "zh"] | None = None
    instructions: _Instructions = ""
    group: GroupTurn | None = None

    @model_validator(mode="after")
    def _somebody_speaks(self) -> "ChatRequest":
        if self.group is None:
            if self.message is None:
                raise ValueError("give a message")
        elif (self.message is None) != (self.group.speaker is None):
            raise ValueError("in a group, give a message and its speaker, or neither")
        elif self.instructions:
            raise ValueError("in a group, instructions belong to the members that they are for")
        return self


class CalledTool(BaseModel):
    """A tool call of a turn and its result; `forged` ones the turn made itself."""

    id: str
    name: str
    arguments: str
    content: str
    is_error: bool
    forged: bool


class LeakedCall(BaseModel):
    """A tool call that the model wrote as text; it was hidden and not run."""

    family: str
    name: str | None


class ChatAnswer(BaseModel):
    """The end of a turn."""

    text: str
    message_id: str | None
    degraded: bool
    silent: bool
    language: str
    model: str
    model_calls: int
    recalls: int
    leaks: list[LeakedCall]
    usage: dict[str, Any]
    tools: list[CalledTool]
