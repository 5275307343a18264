"""What the memory endpoints give, as the OpenAPI document describes it."""

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
    """Something that a search found; a message has fewer fields, and its `role`."""

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
    """A page of memories; `next_cursor` is null on the last one."""

    results: list[MemoryItem]
    next_cursor: str | None


class FoundMemories(BaseModel):
    """The best memories first; `message` says why there is nothing, or what else is to be said."""

    results: list[FoundMemory]
    total_found: int
    message: str


class MemoryEvent(BaseModel):
    """What an add did with one memory; UPDATE names the one whose place it took."""

    id: str | None
    memory: str
    event: Literal["ADD", "UPDATE", "DELETE"]
    previous_id: str | None = None
    previous_memory: str | None = None
    reason: str | None = None


class ToldRelation(BaseModel):
    """A relation that messages tell of; `ended`: that it holds no longer."""

    source: str
    relationship: str
    destination: str
    ended: bool


class JobState(BaseModel):
    """Work that goes on after its answer."""

    job_id: str
    state: Literal["running", "done", "failed"]


class Added(BaseModel):
    """What an add did. The messages are stored; `problems` says what could not be made of them."""

    results: list[MemoryEvent]
    messages: list[str]
    stored: int
    relations: list[ToldRelation]
    problems: list[str]
    job: JobState | None


class Job(JobState):
    """The state of background work, and at its end what it did."""

    result: Added | None


class Changed(BaseModel):
    """A memory was changed."""

    id: str
    event: Literal["DELETE", "UNDO"]
    message: str


class UpdatedMemory(MemoryItem):
    """The memory as it is now."""

    event: Literal["UPDATE"]
    message: str


class DeletedMemories(BaseModel):
    """How many memories were found, and how many of them are hidden now."""

    found: int
    deleted: int
    users: int
    dry_run: bool
    message: str


class HistoryStep(BaseModel):
    """One step in the life of a memory."""

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
    """What became of a memory, from its adding on."""

    results: list[HistoryStep]


class GraphEntity(BaseModel):
    """Somebody or something, with all its names."""

    name: str
    type: str
    aliases: list[str]


class GraphRelation(BaseModel):
    """A relation of two entities, and the messages that told of it."""

    id: str
    source: str
    relationship: str
    destination: str
    valid_from: datetime | None
    valid_to: datetime | None
    source_message_ids: list[str]


class GraphAnswer(BaseModel):
    """Entities, the relations of one, or the ways between two: whichever was asked for."""

    entities: list[GraphEntity] | None = None
    relations: list[GraphRelation] | None = None
    paths: list[list[GraphRelation]] | None = None
    next_cursor: str | None = None


class SessionStateAnswer(BaseModel):
    """A session within a number of tokens: its summaries, then its last words."""

    text: str
    tokens: int
    messages: int
    summaries: int
