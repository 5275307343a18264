"""Requests and responses of the message endpoints, and the types that all endpoints share."""

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from memrecall.messages import (
    ROLE_NAMES,
    ConversationMessage,
    join_content_parts,
    parse_message,
    parse_messages,
    parse_role,
)
from memrecall.search.request import LARGEST_TOP_K, TOP_K
from memrecall.store import MessageFilter, WriteStatus
from memrecall.store.database.cursors import LARGEST_PAGE, PAGE_SIZE
from memrecall.store.timeline import Order
from memrecall.text.query import MAX_QUERY_LENGTH
from memrecall.types import ID_LENGTH, Content, Id, Moment, Name, NewMessage, ProjectLabel, Role

MAX_BATCH = 1_000
MAX_SEARCH_CURSOR = 200_000  # the cursor of a query of ten thousand different words
MAX_CURSOR = 1_000  # a time and an id
MAX_DIMENSIONS = 16_384
MAX_NEIGHBORS = 200

_DIGITS = re.compile(r"-?[0-9]+")

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
    "sequence_no",
    "project",
    "author",
]


def require_digits(value: object) -> object:
    """Refuse what a query may not write for a whole number, though `int` reads it: 1_0, 3.0."""
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise PydanticKnownError("int_parsing")
    return value


ID_BOUNDS = {"minLength": 1, "maxLength": ID_LENGTH}
OwnerId = Annotated[Id, Field(description="The owner of the data.", json_schema_extra=ID_BOUNDS)]
MessageId = Annotated[
    Id, Field(description="Unique among the user's messages.", json_schema_extra=ID_BOUNDS)
]
SessionId = Annotated[Id, Field(description="The conversation.", json_schema_extra=ID_BOUNDS)]
ProjectName = Annotated[
    ProjectLabel, Field(description="Only this project, and what belongs to none; default: all.")
]
# An encoded slash arrives as a NUL: see `preserve_encoded_slashes`.
PathId = Annotated[
    Id, BeforeValidator(lambda value: value.replace("\0", "/") if isinstance(value, str) else value)
]
# Comes last: bounds that follow a validator are not in the schema.
Digits = BeforeValidator(require_digits)
PageSize = Annotated[int, Field(ge=1, le=LARGEST_PAGE, description="Maximum items per page.")]
_Cursor = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_SEARCH_CURSOR,
        description="`next_cursor` of the previous page.",
    ),
]
_Since = Annotated[Moment, Field(description="Start of the time range (inclusive).")]
_Until = Annotated[Moment, Field(description="End of the time range (exclusive).")]
_PERIOD = 'Only this period: "last week", 上周, "2026-03".'
Period = Annotated[str | None, Field(min_length=1, max_length=100, description=_PERIOD)]
Nearest = Annotated[datetime | None, Field(description="The closest time, if `time` has none.")]
Strict = Field(strict=True)  # JSON says 5, not "5" and not 5.0
QueryText = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_LENGTH, pattern=r"\S")]
RoleName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(ROLE_NAMES)})]
ContentParts = dict[str, Any] | list[str | dict[str, Any]]
# No `type`: like in Python, an empty value such as 0 counts as absent.
_AnyTime = Annotated[Any, Field(json_schema_extra={"format": "date-time"})]


# The schema of the objects that `parse_message` accepts; the values are parsed there, not here.
class InputMessage(BaseModel):
    """A message in OpenAI's format; unknown fields are ignored, empty ones count as absent."""

    model_config = ConfigDict(extra="allow")

    role: RoleName = "user"
    content: Annotated[
        str | ContentParts | None,
        Field(description="A text, or content parts; a message without text is skipped."),
    ] = None
    speaker: str | None = None
    name: Annotated[Any, Field(description="Like `speaker`, if that is absent.")] = None
    ts: Annotated[_AnyTime, Field(description="When it was said.")] = None
    timestamp: Annotated[_AnyTime, Field(description="Like `ts`, if that is absent.")] = None
    message_id: str | None = None
    id: Annotated[Any, Field(description="Like `message_id`, if that is absent.")] = None
    parent_message_id: str | None = None
    content_type: str | None = None
    metadata: dict[str, Any] | Literal[""] | None = None
    tool_calls: Annotated[Any, Field(description="Kept in the metadata.")] = None
    tool_call_id: Annotated[Any, Field(description="Kept in the metadata.")] = None


InputRole = Annotated[Role, BeforeValidator(parse_role, json_schema_input_type=RoleName)]
_ANY = str | InputMessage
_read = partial(parse_message, read_pictures=True)
_Message = Annotated[ConversationMessage, PlainValidator(_read, json_schema_input_type=_ANY)]
_Query = Annotated[ConversationMessage, PlainValidator(parse_message, json_schema_input_type=_ANY)]
InputMessages = tuple[_Message, ...]
RecallMessages = tuple[_Query, ...]  # A recall stores no pictures, and never fails on them.


def accept_messages(limit: int) -> WrapValidator:
    """Return the validator of `InputMessages`: a text, a message, or up to `limit` of them."""

    def validate(value: Any, validate_list: Callable[[Any], InputMessages]) -> InputMessages:
        return parse_messages(validate_list(value if isinstance(value, list) else [value]))

    text = Annotated[str, Field(min_length=1)]
    items = Annotated[list[str | InputMessage], Field(min_length=1, max_length=limit)]
    return WrapValidator(validate, json_schema_input_type=text | InputMessage | items)


class RequestModel(BaseModel):
    """Base of request models: immutable, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TimeRange(RequestModel):
    """A range of message times."""

    since: _Since | None = None
    until: _Until | None = None


class RangeQuery(TimeRange):
    """The query parameters of a range read."""

    role: Role | None = None
    session_id: SessionId | None = None
    project: ProjectName | None = None
    order: Annotated[Order, Field(description="`asc`: the earliest first.")] = "desc"
    page_size: Annotated[PageSize, Digits] = PAGE_SIZE
    cursor: Annotated[_Cursor, Field(max_length=MAX_CURSOR)] | None = None

    def filter(self) -> MessageFilter:
        """Return the filter of the store."""
        return MessageFilter(self.since, self.until, self.role, self.session_id)


class NeighborsQuery(RequestModel):
    """The number of messages to return around a message."""

    before: Annotated[int, Field(ge=0, le=MAX_NEIGHBORS), Digits] = 20
    after: Annotated[int, Field(ge=0, le=MAX_NEIGHBORS), Digits] = 0
    project: ProjectName | None = None


class SearchFilter(RequestModel):
    """A filter on messages."""

    time_range: TimeRange | None = None
    role: Role | None = None


class _SearchRequest(RequestModel):
    user_id: OwnerId
    project: ProjectName | None = None
    filter: SearchFilter | None = None
    time: Period = None
    return_fields: Annotated[
        list[ReturnField] | None,
        Field(max_length=20, description="Return only these fields and `message_id`."),
    ] = None

    def message_filter(self) -> MessageFilter:
        """Return the filter of the store."""
        chosen = self.filter or SearchFilter()
        times = chosen.time_range or TimeRange()
        return MessageFilter(times.since, times.until, chosen.role)


class LexicalSearchRequest(_SearchRequest):
    """A search by words."""

    query_text: Annotated[
        QueryText, Field(description='Words, "phrases", AND, OR, NOT, -word, (groups), prefix*.')
    ]
    page_size: Annotated[PageSize, Strict] = PAGE_SIZE
    cursor: _Cursor | None = None


class SemanticSearchRequest(_SearchRequest):
    """A search by meaning with exactly one of `query_text` and `query_embedding`."""

    query_text: QueryText | None = None
    query_embedding: Annotated[
        list[Annotated[float, Field(strict=True, allow_inf_nan=False)]] | None,
        Field(min_length=1, max_length=MAX_DIMENSIONS),
    ] = None
    top_k: Annotated[int, Field(strict=True, ge=1, le=LARGEST_TOP_K)] = TOP_K
    min_score: Annotated[
        float | None, Field(strict=True, ge=-1.0, le=1.0, description="Minimum cosine similarity.")
    ] = None

    @model_validator(mode="after")
    def _check_query(self) -> "SemanticSearchRequest":
        if (self.query_text is None) == (self.query_embedding is None):
            raise ValueError("exactly one of query_text and query_embedding is required")
        return self


class IncomingMessage(NewMessage):
    """A message to store. `ts` defaults to the current time, `message_id` to a new id."""

    content: Annotated[
        Content, BeforeValidator(lambda value: value, json_schema_input_type=Content | ContentParts)
    ]
    role: InputRole
    speaker: Annotated[
        Name | None, BeforeValidator(lambda value: None if value == "" else value)
    ] = None
    session_id: SessionId | None = None
    user_id: Annotated[Id | None, Field(description="Must equal the path's, if present.")] = None
    agent_id: Annotated[Id | None, Field(description="Must equal the key's, if present.")] = None
    sequence_no: Annotated[
        int | None, Field(strict=True, description="Ignored: the service counts.")
    ] = None
    author: Annotated[Name | None, Field(description="Ignored: who sends it is the author.")] = None

    _join_parts = model_validator(mode="before")(join_content_parts)


class WriteRequest(RequestModel):
    """Messages to store, all or none of them."""

    messages: Annotated[list[IncomingMessage], Field(min_length=1, max_length=MAX_BATCH)]


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
    sequence_no: Annotated[int, Field(description="1, 2, 3 … in the order of storing, by session.")]
    project: str | None
    author: Annotated[str | None, Field(description="The member who wrote it to a space.")]


class FoundMessage(ChatMessage):
    """A stored message, or its requested fields."""

    model_config = ConfigDict(json_schema_extra={"required": ["message_id"]})


class NearMessage(ChatMessage):
    """A message, or its requested fields, and its cosine similarity to the query."""

    model_config = ConfigDict(json_schema_extra={"required": ["message_id", "semantic_score"]})

    semantic_score: float


class MessagePage(BaseModel):
    """A page of messages; `next_cursor` is null on the last page."""

    items: list[ChatMessage]
    next_cursor: str | None


class Neighbors(BaseModel):
    """A message and the messages around it, in order."""

    items: list[ChatMessage]


class Offset(BaseModel):
    """Where a marked word is in a content, counted in Unicode code points."""

    start: int
    end: Annotated[int, Field(description="Exclusive.")]


class Highlight(BaseModel):
    """Snippets of a message with the query's words in <em>, which its text may contain as well,
    and the offsets of the same words in its content.
    """

    message_id: str
    snippets: list[str]
    offsets: list[Offset]


class Score(BaseModel):
    """The relevance of a message, comparable within one search."""

    message_id: str
    score: float


class LexicalPage(BaseModel):
    """A page of search results; `next_cursor` is null on the last page."""

    items: list[FoundMessage]
    next_cursor: str | None
    highlights: list[Highlight]
    scores: list[Score]
    nearest: Nearest = None


class NearMessages(BaseModel):
    """The most similar messages, the best first."""

    items: list[NearMessage]
    truncated: Annotated[bool, Field(description="True if more would be too many bytes.")]
    unembedded: Annotated[int, Field(description="Messages without a vector yet: not searched.")]
    nearest: Nearest = None


class WrittenMessage(BaseModel):
    """One message of a batch; `stored` is true if it is new.

    `same` was stored before. `erased` was erased before: it is not stored again, whatever its
    content. `conflict` is stored with another content; it occurs in the details of a 409 only.
    `redacted` lists the kinds of data that are not stored, if there are any.
    """

    message_id: str
    stored: bool
    status: WriteStatus
    redacted: list[str] = []


class WriteReceipt(BaseModel):
    """The result of a batch, sent when it is durably stored."""

    stored: int
    items: list[WrittenMessage]


class DeletedMessage(BaseModel):
    """A hidden message; `deleted` is 0 if it was removed before, `memories` were hidden with it."""

    id: str
    event: Literal["DELETE"]
    deleted: int
    memories: list[str]
