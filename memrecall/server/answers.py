"""What the endpoints give, as the OpenAPI document describes it."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from memrecall.types import Role


class ChatMessage(BaseModel):
    """A stored message."""

    message_id: str
    ts: datetime
    user_id: str
    role: Role
    content: str
    speaker: str | None
    session_id: str
    agent_id: str
    content_type: str
    parent_message_id: str | None
    metadata: dict[str, Any]


class FoundMessage(BaseModel):
    """A stored message, or those of its fields that were asked for."""

    message_id: str
    ts: datetime | None = None
    user_id: str | None = None
    role: Role | None = None
    content: str | None = None
    speaker: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    content_type: str | None = None
    parent_message_id: str | None = None
    metadata: dict[str, Any] | None = None


class NearMessage(FoundMessage):
    """A message and how close in meaning it is: the plain cosine."""

    semantic_score: float


class MessagePage(BaseModel):
    """A page of messages; `next_cursor` is null on the last one."""

    items: list[ChatMessage]
    next_cursor: str | None


class Neighbors(BaseModel):
    """A message in its place among those around it."""

    items: list[ChatMessage]


class Highlight(BaseModel):
    """Passages of a message with the words that were searched for in <em>."""

    message_id: str
    snippets: list[str]


class Score(BaseModel):
    """How well a message fits: comparable within one search."""

    message_id: str
    score: float


class LexicalPage(BaseModel):
    """A page of what words found; `next_cursor` is null on the last one."""

    items: list[FoundMessage]
    next_cursor: str | None
    highlights: list[Highlight]
    scores: list[Score]


class NearMessages(BaseModel):
    """The closest messages."""

    items: list[NearMessage]


class WrittenMessage(BaseModel):
    """One message of a batch; `stored` is false if it was there already."""

    message_id: str
    stored: bool


class WriteReceipt(BaseModel):
    """What a batch did; sent when it is safely stored."""

    stored: int
    items: list[WrittenMessage]


class Health(BaseModel):
    """The service answers."""

    status: Literal["ok"]
    version: str


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: Literal[
        "INVALID_ARGUMENT",
        "UNAUTHENTICATED",
        "PERMISSION_DENIED",
        "NOT_FOUND",
        "CONFLICT",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
        "INTERNAL",
    ]
    message: str
    details: dict[str, Any]


class ErrorBody(BaseModel):
    """Every error looks like this."""

    error: ErrorDetail
