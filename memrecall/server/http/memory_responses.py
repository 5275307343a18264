"""Responses of the memory endpoints, as OpenAPI documents them."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel


class MemoryItem(BaseModel):
    """A memory; `run_id` is its `session_id` under mem0's name."""

    id: str
    memory: str
    kind: Literal["memory"]
    user_id: str
    agent_id: str
    session_id: str | None
    run_id: str | None
    metadata: dict[str, Any]
    memory_type: str
    layer: Literal["short", "long"]
    summary: str
    keywords: list[str]
    subject: str | None
    speaker: str | None
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
    created_at: datetime
    updated_at: datetime


class FoundMemory(BaseModel):
    """A search result; a message has fewer fields, and its `role`."""

    id: str
    memory: str
    kind: Literal["memory", "message"]
    user_id: str
    agent_id: str | None = None
    session_id: str | None
    run_id: str | None
    metadata: dict[str, Any]
    memory_type: str
    speaker: str | None
    created_at: datetime
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


class HistoryStep(BaseModel):
    """One change of a memory."""

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: Literal["ADD", "UPDATE", "DELETE", "UNDO"]
    created_at: datetime
    actor_id: str
    reason: str
    other_id: str | None
    undone: bool
    is_deleted: bool


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
