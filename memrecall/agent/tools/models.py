"""Arguments and results of the five recall tools, and the base classes of all tools.

Names, types, defaults and bounds follow the specification; fields marked as additions are
optional. `prompts/tools.*.md` describes the arguments to models in their language.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from memrecall.search.request import Kind, Mode
from memrecall.types import Doubt

Days = Annotated[int, Field(ge=1, le=365)]
MAX_KEYWORDS = 10
LARGEST_KEYWORD = 100  # characters


_EXCERPT = 600  # characters of one content in a result
_EXCERPTS = 6_000  # of all of them, unless there are very many
_SHORTEST_EXCERPT = 100


def excerpt_length(count: int) -> int:
    """Return how many characters of each of `count` contents a result shows."""
    return min(max(_EXCERPTS // max(count, 1), _SHORTEST_EXCERPT), _EXCERPT)


class ToolErrorCode(StrEnum):
    """Why a tool call failed or was refused."""

    TIMEOUT = "timeout"
    NO_PERMISSION = "no_permission"
    UNKNOWN_TOOL = "unknown_tool"
    NOT_FOUND = "not_found"
    INVALID_ARGUMENTS = "invalid_arguments"
    EMBEDDER = "embedder"
    REFUSED = "refused"
    STORAGE = "storage"
    INTERNAL = "internal"  # a bug of memrecall
    TOO_MANY_SEARCHES = "too_many_searches"  # in a row
    REPEATED = "repeated"  # the same search again
    NOT_RUN = "not_run"  # an earlier call has ended the turn
    UNREADABLE = "unreadable"  # the answer was truncated or lost
    UNKNOWN = "unknown"  # the answer has no code


class ToolInput(BaseModel):
    """Arguments of a tool. Unknown arguments are refused, above all the id of a user."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StrictInput(ToolInput):
    """Arguments without type conversion, for clients that send JSON."""

    model_config = ConfigDict(strict=True)


class ToolOutput(BaseModel):
    """The result of a tool."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def from_result(cls, result: Any) -> Self:
        """Return the fields of a handler's result that this interface shows."""
        return cls.model_validate(result, from_attributes=True)

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object; exceptions are named only if there are any."""
        names = ("left_out", "redacted", "space", "nearest")
        empty = {name for name in names if not getattr(self, name, True)}
        return self.model_dump(mode="json", exclude=empty)

    def as_text(self) -> str | None:
        """Return the text that a model reads instead of the JSON, if there is one."""
        return None


class ToolFailure(ToolOutput):
    """A failed call: an error code, and a message that says what to do next."""

    success: Literal[False] = False
    error: ToolErrorCode
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
    since: str | None = None  # additions: dates or times, and the speaker
    until: str | None = None
    role: Literal["user", "assistant"] | None = None


class MemorySearchResultItem(ToolOutput):
    """One memory or message of the search results."""

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
    below_threshold: bool = False  # shown because there was room
    # That it is evidence, of hybrid searches: for code. A reader gets one number.
    probability: float | None = Field(default=None, exclude=True)
    made_from: list[str] = []  # keys that an assistant's answer is based on
    claimed_by: str | None = None  # the origin of an unconfirmed claim
    conflicts_with: list[str] = []  # keys of what the user said, and the claim contradicts
    doubts: list[Doubt] = []  # what of a model's fact its messages do not confirm
    space: str | None = None  # where it is from, if it is shared
    session_id: str | None = None  # for traces; models do not see these three
    why: dict[str, float] | None = None
    stated_by: list[str] = []  # messages that state a memory


class SearchMemoriesOutput(ToolOutput):
    """Result of `search_memories`."""

    # The probability that there is an answer at all, if the first rows were compared: for code.
    answered: float | None = Field(default=None, exclude=True)

    success: bool
    total_found: int
    results: list[MemorySearchResultItem] = []
    search_query_expanded: str | None = None
    message: str | None = None
    error: ToolErrorCode | None = None  # additions from here on
    withheld: int = 0
    relaxed: list[str] = []
    searched: int = 0  # memories and messages that passed the filters
    below_threshold: int = 0  # matches below `min_relevance_score`, those shown included
    since: str | None = None  # the searched time range, for traces
    until: str | None = None


class GetMemoryDetailInput(ToolInput):
    """Arguments of `get_memory_detail`."""

    memory_key: str


class NearbyMessage(ToolOutput):
    """A message just before or after another one, or a source of a memory."""

    memory_key: str
    speaker: str
    created_at: str
    content: str


class GetMemoryDetailOutput(ToolOutput):
    """Result of `get_memory_detail`."""

    success: bool
    memory_key: str | None = None
    summary: str | None = None
    content: str | None = None
    memory_type: str | None = None
    created_at: str | None = None
    metadata: dict[str, Any] | None = None
    message: str | None = None
    error: ToolErrorCode | None = None  # additions from here on
    kind: Kind | None = None
    speaker: str | None = None
    role: str | None = None
    valid_to: str | None = None
    before: list[NearbyMessage] = []
    after: list[NearbyMessage] = []
    sources: list[NearbyMessage] = []
    claimed_by: str | None = None
    conflicts_with: list[str] = []
    space: str | None = None
    start: int = 0  # of the part of a long content that a model is shown


class ExtractKeywordsInput(ToolInput):
    """Arguments of `extract_search_keywords`."""

    query: str
    context: str | None = None
    max_keywords: int = Field(default=5, ge=1, le=MAX_KEYWORDS)


def _bound_weight(weight: float) -> float:
    return min(max(weight, 0.0), 1.0) if weight == weight else 0.0  # NaN differs from itself


class KeywordExtractionItem(ToolOutput):
    """A keyword, its weight from 0 to 1, and its type: entity, action, concept or time."""

    keyword: Annotated[str, AfterValidator(lambda text: text.strip()[:LARGEST_KEYWORD])]
    weight: Annotated[float, AfterValidator(_bound_weight)]
    type: str


class ExtractKeywordsOutput(ToolOutput):
    """Result of `extract_search_keywords`."""

    success: bool
    keywords: list[KeywordExtractionItem] = []
    expanded_query: str | None = None
    message: str | None = None
    error: ToolErrorCode | None = None  # addition


class ExpandContextWindowInput(ToolInput):
    """Arguments of `expand_context_window`."""

    reason: str
    current_size: int
    requested_size: int


class ExpandContextWindowOutput(ToolOutput):
    """Result of `expand_context_window`."""

    approved: bool
    new_size: int
    iteration: int
    max_iterations: int
    message: str


class HandoffInput(ToolInput):
    """Arguments of `handoff`. The tool sets the last two fields itself."""

    reason: str
    search_summary: str
    # An addition, the "relevance" section of the message. Models write the fields in this order,
    # and should think before they judge.
    reasoning: str | None = None
    relevant_memory_keys: list[str] = []
    confidence: float = Field(ge=0.0, le=1.0)
    needs_more_info: bool = False
    follow_up_question: str | None = None
    iteration_used: int = 1
    context_window_used: int = 5


class HandoffOutput(ToolOutput):
    """Result of `handoff`."""

    success: bool
    message: str
    task_completed: bool = True
