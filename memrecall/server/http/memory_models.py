"""Requests and responses of the memory endpoints, as OpenAPI documents them."""

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from memrecall.json_objects import parse_json
from memrecall.memory.base import named_session
from memrecall.memory.kinds import Kinds
from memrecall.search.request import LARGEST_LIMIT
from memrecall.server.errors import invalid_field
from memrecall.server.http.message_models import (
    ID_BOUNDS,
    MAX_BATCH,
    MAX_CURSOR,
    Digits,
    InputMessages,
    Nearest,
    OwnerId,
    Period,
    ProjectName,
    QueryText,
    RequestModel,
    SessionId,
    accept_messages,
)
from memrecall.store import WriteStatus, check_filter_size
from memrecall.store.database.cursors import LARGEST_LIST
from memrecall.types import LABEL_LENGTH, NAME_LENGTH, CleanText, Id, Moment, Origin

MAX_PROMPT_CHARS = MAX_FILTERS_CHARS = 20_000

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
ListCursor = Annotated[str, Field(min_length=1, max_length=MAX_CURSOR)]


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
            arguments["filters"] = _parse_filters(filters)
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
    limit: Annotated[int, Field(ge=1, le=LARGEST_LIST), Digits] = 100
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


def _parse_filters(text: str) -> dict[str, Any]:
    try:
        filters = parse_json(text.encode())
    except ValueError as error:
        raise invalid_field("filters", f"not JSON: {error}") from None
    if not isinstance(filters, dict):
        raise invalid_field("filters", "must be a JSON object")
    return filters
