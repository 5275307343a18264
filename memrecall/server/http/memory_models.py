"""Requests and responses of the memory endpoints, as OpenAPI documents them."""

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from memrecall.memory.graph import DEEPEST
from memrecall.memory.graph import LARGEST_LIMIT as LARGEST_GRAPH
from memrecall.memory.records import LARGEST_LIMIT as LARGEST_LIST
from memrecall.memory.search import LARGEST_LIMIT as LARGEST_SEARCH
from memrecall.memory.search import Kinds
from memrecall.server.http.input_messages import InputMessages, accept_messages
from memrecall.server.http.message_models import (
    ID_BOUNDS,
    MAX_BATCH,
    MAX_CURSOR,
    QueryText,
    RequestModel,
    SessionId,
    UserId,
)
from memrecall.types import LABEL_LENGTH, NAME_LENGTH, CleanText, Id, Moment

MAX_PROMPT_CHARS = 20_000
MAX_FILTERS_CHARS = 20_000
MAX_STATE_TOKENS = 100_000
STATE_TOKENS = 1_000

AgentId = Annotated[
    Id,
    Field(
        description="If the key is bound to an agent, this must be that agent.",
        json_schema_extra=ID_BOUNDS,
    ),
]
MemoryType = Annotated[CleanText, Field(min_length=1, max_length=LABEL_LENGTH)]
EntityName = Annotated[CleanText, Field(min_length=1, max_length=NAME_LENGTH)]
Flag = Annotated[bool, Field(strict=True)]
OptionalUser = Annotated[
    UserId | None, Field(description="The owner of the data; optional for a key of one user.")
]
OptionalSession = Annotated[SessionId | None, Field(description="Only memories of this session.")]
AsOf = Annotated[Moment | None, Field(description="The state as of this time.")]
Filters = Annotated[
    dict[str, Any],
    Field(description='Filters on fields and metadata: {"topic": "tea", "year": {"gte": 2024}}.'),
]
FiltersText = Annotated[
    str,
    Field(
        min_length=2,
        max_length=MAX_FILTERS_CHARS,
        description='Filters as JSON: {"topic": "tea"}.',
    ),
]
_Cursor = Annotated[str, Field(min_length=1, max_length=MAX_CURSOR)]


class OwnerQuery(RequestModel):
    """The owner of a memory."""

    user_id: OptionalUser = None


class _AgentRequest(OwnerQuery):
    agent_id: AgentId | None = None


class AddRequest(_AgentRequest):
    """Something to remember: a text, a message or a list of messages."""

    messages: Annotated[InputMessages, Field(max_length=MAX_BATCH), accept_messages(MAX_BATCH)]
    session_id: SessionId | None = None
    metadata: dict[str, Any] | None = None
    infer: Annotated[
        bool, Field(strict=True, description="False: store every message as a memory, verbatim.")
    ] = True
    memory_type: Annotated[
        MemoryType | None, Field(description="`short` and `long` set the layer.")
    ] = None
    prompt: Annotated[
        CleanText | None,
        Field(max_length=MAX_PROMPT_CHARS, description="Instructions for the extracting model."),
    ] = None
    sensitive: Flag = False
    expires_at: Moment | None = None
    background: Annotated[
        bool, Field(strict=True, description="Respond as soon as the messages are stored.")
    ] = False


class MemorySearchRequest(_AgentRequest):
    """A search of memories."""

    query: QueryText
    session_id: OptionalSession = None
    limit: Annotated[int, Field(strict=True, ge=1, le=LARGEST_SEARCH)] = 100
    filters: Filters | None = None
    threshold: Annotated[float | None, Field(strict=True, ge=0.0, le=1.0)] = None
    rerank: Annotated[
        bool, Field(strict=True, description="False: rank by word and meaning scores only.")
    ] = True
    as_of: AsOf = None
    kinds: Annotated[Kinds, Field(description="Search memories, messages or both.")] = "memory"


class UpdateRequest(RequestModel):
    """The fields of a memory to change; null removes an optional value."""

    memory: Annotated[CleanText, Field(min_length=1, pattern=r"\S")] | None = None
    summary: CleanText | None = None
    memory_type: MemoryType | None = None
    layer: Literal["short", "long"] | None = None
    metadata: dict[str, Any] | None = None
    sensitive: Flag | None = None
    pinned: Flag | None = None
    subject: EntityName | None = None
    speaker: EntityName | None = None
    field: MemoryType | None = None
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    expires_at: Moment | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> "UpdateRequest":
        if not self.model_fields_set:
            raise ValueError("the update has no fields: pass at least one")
        return self


class _ScopeQuery(_AgentRequest):
    session_id: OptionalSession = None


class MemoryListQuery(_ScopeQuery):
    """The query parameters of a list of memories."""

    filters: FiltersText | None = None
    limit: Annotated[int, Field(ge=1, le=LARGEST_LIST)] = 100
    cursor: _Cursor | None = None
    as_of: AsOf = None
    superseded: Annotated[bool, Field(description="Include superseded memories.")] = False
    deleted: Annotated[bool, Field(description="Return only deleted memories.")] = False


class DeleteAllQuery(_ScopeQuery):
    """The query parameters of a deletion; at least one of user, agent and session is required."""

    filters: FiltersText | None = None
    dry_run: Annotated[bool, Field(description="Count the memories without deleting.")] = False

    @model_validator(mode="after")
    def _check_scope(self) -> "DeleteAllQuery":
        if self.user_id is None and self.agent_id is None and self.session_id is None:
            raise ValueError("at least one of user_id, agent_id and session_id is required")
        return self


class GraphQuery(_AgentRequest):
    """The query parameters of a graph read."""

    entity: Annotated[
        EntityName | None, Field(description="Return its relations; without it, the entities.")
    ] = None
    to: Annotated[
        EntityName | None, Field(description="Return the shortest paths from `entity` to it.")
    ] = None
    depth: Annotated[int | None, Field(ge=1, le=DEEPEST)] = None
    as_of: AsOf = None
    limit: Annotated[int, Field(ge=1, le=LARGEST_GRAPH)] = 100
    cursor: Annotated[
        _Cursor | None, Field(description="`next_cursor` of the previous page of entities.")
    ] = None

    @model_validator(mode="after")
    def _check_entity(self) -> "GraphQuery":
        if self.to is not None and self.entity is None:
            raise ValueError("to: a path needs an entity to start from")
        return self


class StateQuery(_AgentRequest):
    """The query parameters of a session's state."""

    session_id: SessionId | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_STATE_TOKENS)] = STATE_TOKENS


class _Item(BaseModel):
    id: str
    memory: str
    user_id: str
    session_id: str | None
    run_id: str | None
    metadata: dict[str, Any]
    memory_type: str
    speaker: str | None
    created_at: datetime


class MemoryItem(_Item):
    """A memory; `run_id` is its `session_id` under mem0's name."""

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
    origin: Literal["user", "assistant", "tool", "import"]
    actor: str
    source_message_ids: list[str]
    valid_from: datetime | None
    valid_to: datetime | None
    expires_at: datetime | None
    supersedes: str | None
    superseded_by: str | None
    superseded_reason: str | None
    updated_at: datetime


class FoundMemory(_Item):
    """A search result; a message has fewer fields, and its `role`."""

    kind: Literal["memory", "message"]
    agent_id: str | None = None
    score: float
    probability: float | None


class MemoryPage(BaseModel):
    """A page of memories; `next_cursor` is null on the last page."""

    results: list[MemoryItem]
    next_cursor: str | None


class FoundMemories(BaseModel):
    """The best results first; `message` explains an empty or incomplete list."""

    results: list[FoundMemory]
    total_found: int
    message: str


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


class ToldRelation(BaseModel):
    """A relation found in messages; `ended` if it no longer holds."""

    source: str
    relationship: str
    destination: str
    ended: bool


class JobState(BaseModel):
    """A background job."""

    job_id: str
    state: Literal["running", "done", "failed"]


class Added(BaseModel):
    """The result of an add. The messages are stored; `problems` lists the stages that failed."""

    results: list[MemoryEvent]
    messages: list[str]
    stored: int
    relations: list[ToldRelation]
    problems: list[str]
    job: JobState | None


class Job(JobState):
    """The state of a background job, and its result when it is done."""

    result: Added | None


class Changed(BaseModel):
    """The change of a memory."""

    id: str
    event: Literal["DELETE", "UNDO"]
    message: str


class UpdatedMemory(MemoryItem):
    """The memory after the update."""

    event: Literal["UPDATE"]
    message: str


class DeletedMemories(BaseModel):
    """The number of memories that matched, and of those that were hidden."""

    found: int
    deleted: int
    users: int
    dry_run: bool
    message: str


class QuotedMessage(BaseModel):
    """A message that a change of a memory comes from."""

    id: str
    role: str
    speaker: str | None
    text: str
    created_at: datetime


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


class GraphEntity(BaseModel):
    """An entity and its names."""

    name: str
    type: str
    aliases: list[str]


class GraphRelation(BaseModel):
    """A relation between two entities, and its source messages."""

    id: str
    source: str
    relationship: str
    destination: str
    valid_from: datetime | None
    valid_to: datetime | None
    source_message_ids: list[str]


class GraphAnswer(BaseModel):
    """The requested entities, relations of an entity, or paths between two entities."""

    entities: list[GraphEntity] | None = None
    relations: list[GraphRelation] | None = None
    paths: list[list[GraphRelation]] | None = None
    next_cursor: str | None = None


class SessionStateAnswer(BaseModel):
    """A session within a token budget: its summaries, then its last messages."""

    text: str
    tokens: int
    messages: int
    summaries: int
