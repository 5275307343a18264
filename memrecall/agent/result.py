"""What a recall returns."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, field_serializer

from memrecall.agent.outcome import StopReason
from memrecall.agent.trace import Trace
from memrecall.lazy import lazy_method
from memrecall.search.request import Kind


class RecallHandoff(BaseModel):
    """The handoff: what the agent said (`HandoffInput`) and what was made of it."""

    model_config = ConfigDict(frozen=True)

    reason: str
    search_summary: str
    relevant_memory_keys: list[str]
    confidence: float
    needs_more_info: bool
    follow_up_question: str | None
    reasoning: str | None
    iteration_used: int
    context_window_used: int
    success: bool
    message: str
    task_completed: bool = True


class Nearby(BaseModel):
    """A message said just before or after, or one that a memory came from."""

    model_config = ConfigDict(frozen=True)

    memory_key: str
    speaker: str
    ts: datetime
    content: str


class ResolvedTime(BaseModel):
    """A time that a content speaks of, counted from when it was said: never relative."""

    model_config = ConfigDict(frozen=True)

    words: str
    start: datetime | None
    end: datetime | None


class RecalledMemory(BaseModel):
    """A memory or message that was handed off, with what it takes to judge it."""

    model_config = ConfigDict(frozen=True)

    memory_key: str
    kind: Kind
    memory_type: str
    summary: str
    content: str
    speaker: str | None
    role: str | None
    ts: datetime
    session_id: str | None
    relevance_score: float | None  # None: shown beside a hit, not found by a search
    why: dict[str, float] | None = None
    valid_to: datetime | None = None
    times: list[ResolvedTime] = []
    before: list[Nearby] = []
    after: list[Nearby] = []
    sources: list[Nearby] = []
    made_from: list[str] = []  # keys: an assistant's answer that was itself recalled


class QueryTried(BaseModel):
    """A search of the recall, and what it brought."""

    model_config = ConfigDict(frozen=True)

    arguments: dict[str, Any]
    total_found: int
    returned: int
    new_keys: int
    keys: list[str]


class RecallResult(BaseModel):
    """One recall: the handoff, the evidence for it, and how it came about."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    handoff: RecallHandoff
    memories: list[RecalledMemory]
    confidence: float
    abstained: bool
    judged: bool  # False: a limit or failure ended the run before the keys were judged
    stop_reason: StopReason
    problem: str | None = None
    iterations: int
    windows: list[int]
    usage: dict[str, int | float]
    model: str
    language: str
    now: datetime
    times: list[ResolvedTime] = []
    queries: list[QueryTried] = []
    missing: list[str] = []  # words of the request that nothing handed off speaks of
    keys_seen: list[str] = []
    keys_dropped: list[str] = []
    withheld: int = 0
    degraded: list[str] = []
    fallback: str | None = None
    trace: Trace

    @field_serializer("trace")
    def _serialize_trace(self, trace: Trace) -> dict[str, Any]:
        return trace.as_dict()

    _repr_html_ = lazy_method("memrecall.agent.display", "result_html")
