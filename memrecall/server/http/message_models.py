"""What the endpoints give, as the OpenAPI document describes it."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from memrecall.budget import Limits
from memrecall.errors import InvalidArgument
from memrecall.messages import parse_message, parse_role
from memrecall.search.request import LARGEST_PAGE, LARGEST_TOP_K, PAGE_SIZE, TOP_K
from memrecall.store import MessageFilter
from memrecall.text.query import MAX_QUERY_LENGTH
from memrecall.types import (
    ID_LENGTH,
    Content,
    Id,
    Moment,
    Name,
    NewMessage,
    Role,
    TimeZone,
)

LARGEST_BATCH = 1_000
LONGEST_CONVERSATION = 200
LONGEST_CURSOR = 200_000  # one of a query of ten thousand different words
LONGEST_PLACE = 1_000  # one of a range read: a time and an id
MOST_DIMENSIONS = 16_384
MOST_NEIGHBORS = 200
LARGEST = Limits(iterations=10, model_calls=60, tool_calls=120, tokens=500_000, seconds=300.0)

ReturnField = Literal[
    "message_id",
    "ts",
    "user_id",
    "role",
    "content",
    "speaker",
    "session_id",
    "agent_id",
    "content_type",
    "parent_message_id",
    "metadata",
]

_bounds = {"minLength": 1, "maxLength": ID_LENGTH}
UserId = Annotated[Id, Field(description="Whose data.", json_schema_extra=_bounds)]
MessageId = Annotated[
    Id, Field(description="Unique among the user's messages.", json_schema_extra=_bounds)
]
SessionId = Annotated[Id, Field(description="The conversation.", json_schema_extra=_bounds)]
# An encoded slash reaches us as a NUL: see `guard.keep_slashes`.
PathId = Annotated[
    Id,
    BeforeValidator(lambda value: value.replace("\0", "/") if isinstance(value, str) else value),
]
PageSize = Annotated[int, Field(ge=1, le=LARGEST_PAGE, description="Items on a page, at most.")]
Cursor = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_CURSOR, description="`next_cursor` of the page before."),
]
Since = Annotated[Moment, Field(description="From this time on (included).")]
Until = Annotated[Moment, Field(description="Before this time (not included).")]
Whole = Field(strict=True)  # JSON says 5, not "5" and not 5.0
QueryText = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_LENGTH, pattern=r"\S")]


def _exactly_one(**types: str) -> dict[str, Any]:
    """How a schema says that one of these is given, and only one."""
    choices = [
        {"required": [name], "properties": {name: {"type": kind}}} for name, kind in types.items()
    ]
    return {"oneOf": choices}


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_PlaceCursor = Annotated[Cursor, Field(max_length=LONGEST_PLACE)]


class RangeQuery(_Request):
    """The query parameters of a range read."""

    since: Since | None = None
    until: Until | None = None
    role: Role | None = None
    page_size: PageSize = PAGE_SIZE
    cursor: _PlaceCursor | None = None

    def filter(self) -> MessageFilter:
        """The filter they mean."""
        return MessageFilter(self.since, self.until, self.role)


class NeighborsQuery(_Request):
    """The query parameters of a look around a message."""

    before: Annotated[int, Field(ge=0, le=MOST_NEIGHBORS)] = 20
    after: Annotated[int, Field(ge=0, le=MOST_NEIGHBORS)] = 0


class TimeRange(_Request):
    """When it was said."""

    since: Since | None = None
    until: Until | None = None


class Filter(_Request):
    """Which messages are looked at."""

    time_range: TimeRange | None = None
    role: Role | None = None

    def filter(self) -> MessageFilter:
        """The filter it means."""
        times = self.time_range or TimeRange()
        return MessageFilter(times.since, times.until, self.role)


class _SearchRequest(_Request):
    user_id: UserId
    filter: Filter | None = None
    return_fields: Annotated[
        list[ReturnField] | None,
        Field(max_length=20, description="Only these fields; `message_id` always comes too."),
    ] = None

    def wanted(self) -> MessageFilter:
        """The filter it means."""
        return (self.filter or Filter()).filter()


class LexicalSearchRequest(_SearchRequest):
    """A search by words."""

    query_text: Annotated[
        QueryText, Field(description='Words, "phrases", AND, OR, NOT, (parentheses), prefix*.')
    ]
    page_size: Annotated[PageSize, Whole] = PAGE_SIZE
    cursor: Cursor | None = None


class SemanticSearchRequest(_SearchRequest):
    """A search by meaning: exactly one of `query_text` and `query_embedding`."""

    model_config = ConfigDict(
        json_schema_extra=_exactly_one(query_text="string", query_embedding="array")
    )

    query_text: QueryText | None = None
    query_embedding: Annotated[
        list[Annotated[float, Field(strict=True, allow_inf_nan=False)]] | None,
        Field(min_length=1, max_length=MOST_DIMENSIONS),
    ] = None
    top_k: Annotated[int, Field(strict=True, ge=1, le=LARGEST_TOP_K)] = TOP_K
    min_score: Annotated[
        float | None, Field(strict=True, ge=-1.0, le=1.0, description="A cosine, at least.")
    ] = None

    @model_validator(mode="after")
    def _one_query(self) -> "SemanticSearchRequest":
        if (self.query_text is None) == (self.query_embedding is None):
            raise ValueError("give exactly one of query_text and query_embedding")
        return self


class IncomingMessage(NewMessage):
    """A message to store. Without `ts` it was said now; without `message_id` it gets one."""

    speaker: Annotated[
        Name | None, BeforeValidator(lambda value: None if value == "" else value)
    ] = None
    session_id: SessionId | None = None
    user_id: Annotated[Id | None, Field(description="If given, the path's.")] = None
    agent_id: Annotated[Id | None, Field(description="If given, the key's.")] = None


class WriteRequest(_Request):
    """Messages to store, all or none of them."""

    messages: Annotated[list[IncomingMessage], Field(min_length=1, max_length=LARGEST_BATCH)]


def _normalize_message(value: Any) -> Any:
    """Resolve role aliases and join content parts, as `Memory.add` and `recall` do."""
    if isinstance(value, str):
        return {"content": value}
    if not isinstance(value, dict):
        return value
    try:
        role = {"role": parse_role(value["role"])} if "role" in value else {}
        is_list = isinstance(value.get("content"), list)
        content = {"content": parse_message(value).text} if is_list else {}
    except InvalidArgument as error:
        raise ValueError(error.message) from None
    return {**value, **role, **content}


class SaidMessage(_Request):
    """A message of the conversation that a recall is about."""

    role: Role = Role.USER
    content: Content
    speaker: Name | None = None
    ts: Moment | None = None
    message_id: Id | None = None

    _normalize = model_validator(mode="before")(_normalize_message)


def _asks(message: SaidMessage) -> bool:
    return message.role is Role.USER and bool(message.content.strip())


class RecallLimits(_Request):
    """Ceilings of one recall, below those of the server."""

    iterations: Annotated[int | None, Field(strict=True, ge=1, le=LARGEST.iterations)] = None
    model_calls: Annotated[int | None, Field(strict=True, ge=0, le=LARGEST.model_calls)] = None
    tool_calls: Annotated[int | None, Field(strict=True, ge=0, le=LARGEST.tool_calls)] = None
    tokens: Annotated[int | None, Field(strict=True, ge=0, le=LARGEST.tokens)] = None
    seconds: Annotated[float | None, Field(strict=True, gt=0, le=LARGEST.seconds)] = None

    def limits(self) -> Limits:
        """These where they are given, else what usually holds."""
        return Limits(**self.model_dump(exclude_none=True))


class RecallRequest(_Request):
    """What to recall for: exactly one of `query` and `messages`."""

    model_config = ConfigDict(json_schema_extra=_exactly_one(query="string", messages="array"))

    query: QueryText | None = None
    messages: Annotated[
        list[SaidMessage] | None, Field(min_length=1, max_length=LONGEST_CONVERSATION)
    ] = None
    session_id: SessionId | None = None
    as_of: Annotated[
        Moment | None, Field(description='"Now" is then, and nothing said later is seen.')
    ] = None
    time_zone: Annotated[
        TimeZone | None,
        Field(description='Where "yesterday" is one, like Asia/Shanghai; else the user\'s own.'),
    ] = None
    language: Literal["en", "zh"] | None = None
    limits: RecallLimits | None = None

    @model_validator(mode="after")
    def _one_question(self) -> "RecallRequest":
        if (self.query is None) == (self.messages is None):
            raise ValueError("give exactly one of query and messages")
        if self.messages is not None and not any(map(_asks, self.messages)):
            raise ValueError("messages: none is of the role user and says something")
        return self

    def conversation(self) -> list[dict[str, Any]]:
        """What was said, the question last."""
        if self.messages is None:
            return [{"role": "user", "content": self.query}]
        return [message.model_dump() for message in self.messages]

    def characters(self) -> int:
        """How much was said."""
        return sum(len(message["content"]) for message in self.conversation())


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
