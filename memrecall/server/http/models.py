"""Requests and responses of messages and memories, and the types that all endpoints share."""

import re
from collections.abc import Callable
from datetime import date, datetime
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

from memrecall.json_objects import parse_json
from memrecall.memory.results import Kinds
from memrecall.messages import (
    ROLE_NAMES,
    ConversationMessage,
    join_content_parts,
    parse_message,
    parse_messages,
    parse_role,
)
from memrecall.scope import named_session
from memrecall.search.request import LARGEST_LIMIT, LARGEST_TOP_K, TOP_K
from memrecall.server.errors import invalid_field
from memrecall.store import WriteStatus, check_filter_size
from memrecall.store.database.cursors import LARGEST_LIST, LARGEST_PAGE, PAGE_SIZE
from memrecall.store.timeline import Order
from memrecall.text.query import MAX_QUERY_LENGTH
from memrecall.types import (
    ID_LENGTH,
    LABEL_LENGTH,
    NAME_LENGTH,
    CleanText,
    Content,
    Id,
    Moment,
    Name,
    NewMessage,
    Origin,
    ProjectLabel,
    Role,
)

MAX_BATCH = 1_000
MAX_SEARCH_CURSOR = 200_000  # the cursor of a query of ten thousand different words
MAX_CURSOR = 1_000  # a time and an id
MAX_DIMENSIONS = 16_384
MAX_NEIGHBORS = 200
MAX_PROMPT_CHARS = MAX_FILTERS_CHARS = 20_000

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
_AgentId = Annotated[
    Id, Field(description="Must be the agent of the key, if any.", json_schema_extra=ID_BOUNDS)
]
_TypeName = Annotated[CleanText, Field(min_length=1, max_length=LABEL_LENGTH)]
MemoryText = Annotated[CleanText, Field(min_length=1, pattern=r"\S")]
EntityName = Annotated[CleanText, Field(min_length=1, max_length=NAME_LENGTH)]
Flag = Annotated[bool, Field(strict=True)]
OptionalUser = Annotated[
    OwnerId | None, Field(description="The owner of the data; optional for a key of one user.")
]
RunId = Annotated[SessionId | None, Field(description="`session_id` under mem0's name.")]
TopK = Annotated[int | None, Field(ge=1, description="`limit` under mem0's name.")]
ShowExpired = Annotated[bool, Field(description="Include expired memories.")]
KindsText = Annotated[
    Kinds, Field(description="Memories, messages or both; the singular is the same.")
]
AsOf = Annotated[Moment | None, Field(description="The state as of this time.")]
Filters = Annotated[
    dict[str, Any],
    BeforeValidator(check_filter_size),
    Field(description='Filters on fields and metadata: {"topic": "tea", "year": {"gte": 2024}}.'),
]
_FILTERS_EXAMPLE = 'Filters as JSON: {"topic": "tea"}.'
FiltersText = Annotated[
    str, Field(min_length=2, max_length=MAX_FILTERS_CHARS, description=_FILTERS_EXAMPLE)
]
UnchangedSince = Annotated[
    Moment | None,
    Field(description="409 if the memory was changed after this time: its `updated_at` when read."),
]
ListLimit = Annotated[int, Field(ge=1, le=LARGEST_LIST), Digits]
ListCursor = Annotated[str, Field(min_length=1, max_length=MAX_CURSOR)]


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


class OwnerQuery(RequestModel):
    """The owner of a memory."""

    user_id: OptionalUser = None
    project: ProjectName | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the `AsyncMemory` method, whose names the fields have.

        The memory is bound to the user, the agent and the project of the request already.
        """
        bound = ("user_id", "agent_id", "project", "run_id")
        arguments = {name: value for name, value in self if name not in bound}
        if isinstance(filters := arguments.get("filters"), str):
            try:
                arguments["filters"] = parse_json(filters.encode())
            except ValueError as error:
                raise invalid_field("filters", f"not JSON: {error}") from None
            if not isinstance(arguments["filters"], dict):
                raise invalid_field("filters", "must be a JSON object")
        return arguments


class ItemQuery(OwnerQuery):
    """The owner of a memory or message, and which of both the id may name."""

    kinds: KindsText = "all"


class RemovalQuery(OwnerQuery):
    """The owner of a memory, and whether its sources are removed too."""

    sources: Annotated[
        bool, Field(description="Remove the messages that the memory comes from too.")
    ] = True


class DeletionQuery(RemovalQuery, ItemQuery):
    """The owner of a memory or message, what the id may name, and whether sources go too."""


class AgentRequest(OwnerQuery):
    """A request for the data of a user, or of one agent of theirs."""

    agent_id: _AgentId | None = None


class SessionRequest(AgentRequest):
    """A request that may name a session."""

    session_id: SessionId | None = None
    run_id: RunId = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the `AsyncMemory` method, with one name for the session."""
        return {**super().arguments(), "session_id": named_session(self.session_id, self.run_id)}


class AddRequest(SessionRequest):
    """Something to remember: a text, a message or a list of messages."""

    messages: Annotated[InputMessages, Field(max_length=MAX_BATCH), accept_messages(MAX_BATCH)]
    metadata: dict[str, Any] | None = None
    infer: Annotated[Flag, Field(description="False: store each message as a memory, as is.")] = (
        True
    )
    memory_type: Annotated[
        _TypeName | None, Field(description="`short` and `long` set the layer.")
    ] = None
    prompt: Annotated[
        CleanText | None,
        Field(max_length=MAX_PROMPT_CHARS, description="Instructions for the extracting model."),
    ] = None
    sensitive: Flag = False
    expires_at: Moment | None = None
    expiration_date: Annotated[date | None, Field(description="The last day of the memories.")] = (
        None
    )
    timestamp: Annotated[
        Moment | None, Field(description="When messages without a time were said.")
    ] = None
    background: Annotated[Flag, Field(description="Respond when the messages are stored.")] = False


class ExtractStoredRequest(SessionRequest):
    """Which of the stored messages that no model has read are to be read."""

    since: Annotated[Moment | None, Field(description="Only those said from then on.")] = None
    dry_run: Annotated[Flag, Field(description="Count without reading.")] = False


class MemorySearchRequest(SessionRequest):
    """A search of memories and messages, of one session if it is named."""

    query: QueryText
    limit: Annotated[int, Field(strict=True, ge=1, le=LARGEST_LIMIT)] = 100
    top_k: Annotated[TopK, Field(strict=True, le=LARGEST_LIMIT)] = None
    filters: Filters | None = None
    threshold: Annotated[float | None, Field(strict=True, ge=0.0, le=1.0)] = None
    rerank: Annotated[Flag, Field(description="False: rank by words and meaning only.")] = True
    as_of: AsOf = None
    kinds: KindsText = "all"
    explain: Annotated[Flag, Field(description="Add the parts of each score.")] = False
    reference_date: Annotated[
        Moment | None, Field(description='Today, for words such as "yesterday".')
    ] = None
    show_expired: Annotated[ShowExpired, Field(strict=True)] = False
    time: Period = None


class UpdateRequest(RequestModel):
    """The fields of a memory to change; null removes an optional value."""

    unchanged_since: UnchangedSince = None

    memory: MemoryText | None = None
    data: Annotated[MemoryText | None, Field(description="`memory` under mem0's name.")] = None
    text: Annotated[MemoryText | None, Field(description="`memory` under mem0's name.")] = None
    summary: CleanText | None = None
    memory_type: _TypeName | None = None
    layer: Literal["short", "long"] | None = None
    metadata: dict[str, Any] | None = None
    sensitive: Flag | None = None
    pinned: Flag | None = None
    subject: EntityName | None = None
    speaker: EntityName | None = None
    field: _TypeName | None = None
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    expires_at: Moment | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> "UpdateRequest":
        if not self.model_fields_set - {"unchanged_since"}:
            raise ValueError("the update has no fields: pass at least one")
        if len(self.model_fields_set & {"memory", "data", "text"}) > 1:
            raise ValueError("memory, data and text mean the same: pass one of them")
        return self


class MemoryListQuery(SessionRequest):
    """The query parameters of a list of memories, of one session if it is named."""

    filters: FiltersText | None = None
    limit: ListLimit = 100
    top_k: Annotated[TopK, Field(le=LARGEST_LIST), Digits] = None
    cursor: ListCursor | None = None
    as_of: AsOf = None
    superseded: Annotated[bool, Field(description="Include superseded memories.")] = False
    deleted: Annotated[bool, Field(description="Return only what is deleted.")] = False
    show_expired: ShowExpired = False
    kinds: KindsText = "memories"


class DeleteAllQuery(SessionRequest):
    """The query parameters of a deletion; at least one of user, agent and session is required."""

    filters: FiltersText | None = None
    kinds: KindsText = "all"
    sources: Annotated[
        bool, Field(description="Hide the messages that the memories come from too.")
    ] = True
    dry_run: Annotated[bool, Field(description="Count without deleting.")] = False

    @model_validator(mode="after")
    def _check_scope(self) -> "DeleteAllQuery":
        if {self.user_id, self.agent_id, self.session_id, self.run_id} == {None}:
            raise ValueError("at least one of user_id, agent_id and session_id is required")
        return self


class _Item(BaseModel):
    id: str
    memory: str
    user_id: str
    session_id: str | None
    run_id: str | None
    project: str | None
    metadata: dict[str, Any]
    memory_type: str
    speaker: str | None
    created_at: datetime
    space: Annotated[str | None, Field(description="The space that it belongs to, if any.")] = None
    author: Annotated[str | None, Field(description="The member who wrote it there.")] = None


class MemoryItem(_Item):
    """A memory; `run_id` is `session_id`; `truncated`: only the first 100 KB are stored."""

    kind: Literal["memory"]
    hash: str
    role: str | None
    actor_id: str | None
    expiration_date: date | None
    agent_id: str
    layer: Literal["short", "long"]
    summary: str
    keywords: list[str]
    subject: str | None
    field: str | None
    sensitive: bool
    pinned: bool
    origin: Origin
    actor: str
    conflicts_with: list[dict[str, str | None]]
    source_message_ids: list[str]
    valid_from: datetime | None
    valid_to: datetime | None
    expires_at: datetime | None
    supersedes: str | None
    superseded_by: str | None
    superseded_reason: str | None
    truncated: bool
    updated_at: datetime


class MessageItem(_Item):
    """A message, in the shape of a memory."""

    kind: Literal["message"]
    role: str
    agent_id: str
    sequence_no: int
    updated_at: datetime


class QuotedMessage(BaseModel):
    """A message that a memory or a change of one comes from."""

    id: str
    role: str
    speaker: str | None
    text: str
    created_at: datetime


class FoundMemory(_Item):
    """A search result; `source` is the message that a memory comes from, null for a message."""

    kind: Literal["memory", "message"]
    agent_id: str | None = None
    sequence_no: int | None = None
    origin: Origin | None = None
    conflicts_with: list[dict[str, str | None]] = []
    truncated: bool = False
    source: QuotedMessage | None
    score: float
    probability: float | None
    below_threshold: bool = Field(default=False, description="Shown because there was room.")
    score_details: dict[str, float] | None = None


class MemoryPage(BaseModel):
    """A page of memories or messages; `next_cursor` is null on the last page.

    If there are no memories, `kept_messages` is the number of messages, and `message` says how to
    list them.
    """

    results: list[MemoryItem | MessageItem]
    next_cursor: str | None
    kept_messages: int = 0
    message: str = ""


class FoundMemories(BaseModel):
    """The best results first; `message` explains an empty or incomplete list."""

    results: list[FoundMemory]
    total_found: int
    below_threshold: int = Field(
        default=0, description="Matches below the threshold, those shown included."
    )
    message: str
    nearest: Nearest = None


class MemoryEvent(BaseModel):
    """The change of one memory by an add; UPDATE names the memory that it replaced."""

    id: str | None
    memory: str
    event: Literal["ADD", "UPDATE", "DELETE"]
    actor_id: str | None = None
    role: str | None = None
    previous_id: str | None = None
    previous_memory: str | None = None
    reason: str | None = None
    conflicts_with: list[dict[str, str | None]] = []
    truncated: bool = False


class ToldRelation(BaseModel):
    """A relation found in messages; `ended` if it no longer holds."""

    source: str
    relationship: str
    destination: str
    ended: bool


class StartedJob(BaseModel):
    """A background job, and its state when the response was sent."""

    job_id: str
    state: Literal["running", "waiting", "done", "failed"]


class Added(BaseModel):
    """The result of an add. The messages are stored, except for those whose status is `erased`,
    from which nothing is derived; `problems` lists the stages that failed, `redacted` the kinds of
    data that are not stored of each message, if there are any. Without a model, `message` says so.
    """

    results: list[MemoryEvent]
    messages: list[str]
    stored: int
    message: str = ""
    statuses: list[WriteStatus]
    redacted: list[list[str]] = []
    relations: list[ToldRelation]
    problems: list[str]
    job: StartedJob | None


class Extraction(BaseModel):
    """What a model is to read: messages of people, in calls that send about so many tokens. `run`
    undoes it, and is the id of the job; null if there is nothing to read, and for a `dry_run`.
    """

    run: str | None
    dry_run: bool
    messages: int
    calls: int
    tokens: int
    job: StartedJob | None


class ExtractionReport(BaseModel):
    """What a model has read, and the memories added, replaced by others and ended because of it;
    `unread` messages are left, because of the `problems`.
    """

    run: str
    messages: int
    calls: int
    tokens: int
    read: int
    unread: int
    added: int
    updated: int
    ended: int
    problems: list[str]


class ExtractionRun(BaseModel):
    """An extraction of stored messages that was not undone."""

    run: str
    messages: int


class UndoneExtraction(BaseModel):
    """The number of memories that an undo has changed, and of messages that are unread again."""

    run: str
    memories: int
    messages: int


class Changed(BaseModel):
    """The change of a memory or message, and the ids of what was hidden with it."""

    id: str
    event: Literal["DELETE", "UNDO"]
    message: str
    memories: list[str] = []
    messages: list[str] = []


class UpdatedMemory(MemoryItem):
    """The memory after the update."""

    event: Literal["UPDATE"]
    message: str


class HistoryStep(BaseModel):
    """One change of a memory, or of one that it took the place of."""

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: Literal["ADD", "UPDATE", "DELETE", "UNDO"]
    created_at: datetime
    updated_at: datetime
    actor_id: str
    reason: str
    other_id: str | None
    undone: bool
    is_deleted: bool
    said: list[QuotedMessage]


class MemoryHistory(BaseModel):
    """The change history of a memory, the oldest change first."""

    results: list[HistoryStep]
