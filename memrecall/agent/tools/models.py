"""What goes into the five tools and what comes out of them.

Names, types, defaults and bounds are those of the specification; fields marked as additions are
optional. What the fields mean is told to models in their language by `prompts/tools.*.md`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from memrecall.search.request import Kind, Mode

Days = Annotated[int, Field(ge=1, le=365)]


class ToolInput(BaseModel):
    """Arguments of a tool. An argument that a tool does not have is refused, a user id first."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolOutput(BaseModel):
    """What a tool answers."""

    model_config = ConfigDict(frozen=True)


class ToolFailure(ToolOutput):
    """A call that could not be done: a code, and words that say what to do next."""

    success: Literal[False] = False
    error: str
    message: str


class SearchMemoriesInput(ToolInput):
    """Arguments of `search_memories`."""

    query: str
    search_mode: Mode = "hybrid"
    keywords: list[str] | None = None
    memory_types: list[str] | None = None
    time_range_days: Days | None = None
    limit: int = Field(default=5, ge=1, le=10)
    min_relevance_score: float = Field(default=0.5, ge=0.0, le=1.0)
    since: str | None = None  # additions: a date or time, and who said it
    until: str | None = None
    role: Literal["user", "assistant"] | None = None


class MemorySearchResultItem(ToolOutput):
    """One memory or message that was found."""

    memory_key: str
    summary: str
    content_preview: str
    memory_type: str | None = None
    relevance_score: float
    created_at: str
    keywords: list[str] = []
    kind: Kind = "memory"  # additions from here on
    speaker: str | None = None
    role: str | None = None
    passage: str | None = None
    valid_to: str | None = None
    made_from: list[str] = []  # keys of what an assistant's answer repeats
    session_id: str | None = None  # for traces: a model is not shown these two
    why: dict[str, float] | None = None


class SearchMemoriesOutput(ToolOutput):
    """What `search_memories` answers."""

    success: bool
    total_found: int
    results: list[MemorySearchResultItem] = []
    search_query_expanded: str | None = None
    message: str | None = None
    error: str | None = None  # additions from here on
    withheld: int = 0
    relaxed: list[str] = []
    searched: int = 0  # memories and messages that passed the filters
    told_of: dict[str, float] = {}  # how much of the query the results tell of whom
    since: str | None = None  # the time that was searched, for traces
    until: str | None = None


class GetMemoryDetailInput(ToolInput):
    """Arguments of `get_memory_detail`."""

    memory_key: str


class NearbyMessage(ToolOutput):
    """What was said just before or after."""

    memory_key: str
    speaker: str
    created_at: str
    content: str


class GetMemoryDetailOutput(ToolOutput):
    """What `get_memory_detail` answers."""

    success: bool
    memory_key: str | None = None
    summary: str | None = None
    content: str | None = None
    memory_type: str | None = None
    created_at: str | None = None
    metadata: dict[str, Any] | None = None
    message: str | None = None
    error: str | None = None  # additions from here on
    kind: Kind | None = None
    speaker: str | None = None
    role: str | None = None
    valid_to: str | None = None
    before: list[NearbyMessage] = []
    after: list[NearbyMessage] = []
    sources: list[NearbyMessage] = []


class ExtractKeywordsInput(ToolInput):
    """Arguments of `extract_search_keywords`."""

    query: str
    context: str | None = None
    max_keywords: int = Field(default=5, ge=1, le=10)


class KeywordExtractionItem(ToolOutput):
    """A keyword, how much it matters, and its kind: entity, action, concept or time."""

    keyword: str
    weight: float
    type: str


class ExtractKeywordsOutput(ToolOutput):
    """What `extract_search_keywords` answers."""

    success: bool
    keywords: list[KeywordExtractionItem] = []
    expanded_query: str | None = None
    message: str | None = None
    error: str | None = None  # addition


class ExpandContextWindowInput(ToolInput):
    """Arguments of `expand_context_window`."""

    reason: str
    current_size: int
    requested_size: int


class ExpandContextWindowOutput(ToolOutput):
    """What `expand_context_window` answers."""

    approved: bool
    new_size: int
    iteration: int
    max_iterations: int
    message: str


class HandoffInput(ToolInput):
    """Arguments of `handoff`. The driver writes the last two fields itself."""

    reason: str
    search_summary: str
    relevant_memory_keys: list[str] = []
    confidence: float = Field(ge=0.0, le=1.0)
    needs_more_info: bool = False
    follow_up_question: str | None = None
    reasoning: str | None = None  # addition: the section "relevance" of the message is made of it
    iteration_used: int = 1
    context_window_used: int = 5


class HandoffOutput(ToolOutput):
    """What `handoff` answers."""

    success: bool
    message: str
    task_completed: bool = True
