"""Requests and results of search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from memrecall.errors import InvalidArgument
from memrecall.store import MessageFilter
from memrecall.text.query import MAX_QUERY_LENGTH
from memrecall.types import MemoryRecord, Message, Role, check_range, check_text, check_time_zone

Mode = Literal["keyword", "semantic", "hybrid"]
Syntax = Literal["plain", "query"]
Kind = Literal["message", "memory", "knowledge"]

MODES: tuple[Mode, ...] = ("keyword", "semantic", "hybrid")
SYNTAXES: tuple[Syntax, ...] = ("plain", "query")
KINDS: tuple[Kind, ...] = ("message", "memory", "knowledge")
LARGEST_LIMIT = 200
LONGEST_REQUEST = 10_000
PAGE_SIZE = 50
LARGEST_PAGE = 200
TOP_K = 20
LARGEST_TOP_K = 200


class DegradeReason(StrEnum):
    """Why a search was less thorough than requested."""

    KEYWORDS_ONLY = "keywords_only"  # the query could not be embedded
    PARTLY_EMBEDDED = "partly_embedded"  # some rows have no vector yet
    NOT_RERANKED = "not_reranked"  # the reranker failed


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search. `since` is inclusive, `until` exclusive; empty filters match everything."""

    query: str
    mode: Mode = "hybrid"
    syntax: Syntax = "plain"
    limit: int = 10
    threshold: float = 0.0
    since: datetime | None = None
    until: datetime | None = None
    role: Role | None = None
    kind: Kind | None = None  # knowledge belongs to the agent and is searched only if requested
    memory_types: tuple[str, ...] = ()
    session_id: str | None = None
    keywords: tuple[str, ...] = ()  # at least one must match
    expansions: tuple[str, ...] = ()  # raise the score, but need not match
    exclude: frozenset[str] = frozenset()  # keys to be treated as if they were not stored
    only: frozenset[str] | None = None  # memories that passed the caller's own filters
    now: datetime | None = None  # the reference for "yesterday"; None: the clock
    time_zone: str | None = None  # the zone for "yesterday"; None: the user's
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_query_text(self.query, "the query", LONGEST_REQUEST)
        _check_choice("mode", self.mode, MODES)
        _check_choice("syntax", self.syntax, SYNTAXES)
        if self.kind is not None:
            _check_choice("kind", self.kind, KINDS)
        _check_number("limit", self.limit, LARGEST_LIMIT)
        if not 0.0 <= self.threshold <= 1.0:
            raise InvalidArgument(
                f"threshold {self.threshold} is out of range", hint="Use 0.0 to 1.0"
            )
        check_range(self.since, self.until)
        if self.time_zone is not None:
            check_time_zone(self.time_zone)
        for word in (*self.keywords, *self.expansions):
            check_text("a keyword", word)

    def binding(self) -> list[object]:
        """Return what a cursor of this search is bound to: everything but the page itself."""
        filters = (self.since, self.until, self.role, self.kind, self.session_id, self.time_zone)
        words = (self.memory_types, self.keywords, self.expansions, sorted(self.exclude))
        query = (self.query, self.mode, self.syntax, self.threshold)
        only = None if self.only is None else sorted(self.only)
        return ["search", *query, *map(str, filters), *map(list, words), only]


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """The parts of a hit's score, then its coverage and cosine."""

    lexical: float
    semantic: float
    neighbours: float
    time: float
    speaker: float
    nature: float  # what kind of row it is: a question counts less, a note more
    coverage: float
    cosine: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result."""

    key: str
    kind: Kind
    score: float
    ts: datetime
    role: str | None
    speaker: str | None
    content: str
    session_id: str | None
    memory_type: str
    why: ScoreParts
    summary: str = ""
    keywords: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    valid_to: datetime | None = None  # when a superseded memory ceased to hold
    probability: float | None = None  # calibrated; hybrid searches only

    def _repr_html_(self) -> str:
        from memrecall.search.display import hit_html

        return hit_html(self)


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of search results, with counts and what the caller should know."""

    results: tuple[Hit, ...] = ()
    total_found: int = 0
    explanation: str = ""  # why there are no results
    embedder_failure: str = ""  # why a hybrid search went on without the query's vector
    reranker_failure: str = ""  # why the results are in the engine's order
    withheld: int = 0  # matches hidden for lack of permission
    unembedded: int = 0  # rows that could be found by their words only
    next_cursor: str | None = None
    searched: int = 0  # rows that passed the filters
    # The memories among the results as they are stored.
    records: Mapping[str, MemoryRecord] = field(default_factory=dict, repr=False, compare=False)
    # For each speaker, how much of the query the results say about them, 0 to 1.
    told_of: Mapping[str, float] = field(default_factory=dict)

    @property
    def degraded(self) -> DegradeReason | None:
        """Why the search was less thorough than requested, if it was."""
        if self.embedder_failure:
            return DegradeReason.KEYWORDS_ONLY
        if self.unembedded:
            return DegradeReason.PARTLY_EMBEDDED
        return DegradeReason.NOT_RERANKED if self.reranker_failure else None

    @property
    def message(self) -> str:
        """Why there are no results and what is missing from them, in words."""
        return self.describe()

    def describe(self, *, withheld: bool = True) -> str:
        """Return the message, without the withheld matches if the caller reports them itself."""
        notes = [self.explanation]
        if self.embedder_failure:
            notes.append(f"searched by keywords only: {self.embedder_failure}")
        if self.withheld and withheld:
            notes.append(f"{self.withheld} sensitive memories withheld: no permission")
        if self.unembedded:
            notes.append(f"{self.unembedded} rows are not embedded yet: `memrecall reindex`")
        if self.reranker_failure:
            notes.append(f"not reranked: {self.reranker_failure}")
        return "; ".join(filter(None, notes))

    def _repr_html_(self) -> str:
        from memrecall.search.display import page_html

        return page_html(self)


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """A query in the query language, and which page of its results."""

    text: str
    filter: MessageFilter = field(default_factory=MessageFilter)
    page_size: int = PAGE_SIZE
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_query_text(self.text)
        _check_number("page_size", self.page_size, LARGEST_PAGE)


@dataclass(frozen=True, slots=True)
class SemanticQuery:
    """A text or a vector, and how many of the closest messages to return."""

    text: str | None = None
    embedding: Sequence[float] | None = None
    filter: MessageFilter = field(default_factory=MessageFilter)
    top_k: int = TOP_K
    min_score: float | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.embedding is None):
            raise InvalidArgument("give exactly one of query_text and query_embedding")
        if self.text is not None:
            check_query_text(self.text)
        _check_number("top_k", self.top_k, LARGEST_TOP_K)
        if self.min_score is not None and not -1.0 <= self.min_score <= 1.0:
            raise InvalidArgument(
                f"min_score {self.min_score} is out of range", hint="Use a cosine from -1 to 1"
            )


@dataclass(frozen=True, slots=True)
class ScoredMessage:
    """A message with its score and the passages that match."""

    message: Message
    score: float
    snippets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredPage:
    """Messages, best first, and the cursor of the next page."""

    items: tuple[ScoredMessage, ...] = ()
    next_cursor: str | None = None
    unembedded: int = 0  # messages that a semantic search could not find

    @property
    def degraded(self) -> DegradeReason | None:
        """Why the search was less thorough than requested, if it was."""
        return DegradeReason.PARTLY_EMBEDDED if self.unembedded else None


def check_query_text(text: str, name: str = "query_text", longest: int = MAX_QUERY_LENGTH) -> None:
    """Reject a query that is blank or too long."""
    check_text(name, text)
    if not text.strip():
        raise InvalidArgument(f"{name} is empty", hint="Say what to look for")
    if len(text) > longest:
        raise InvalidArgument(f"{name} has {len(text)} characters", hint=f"Use at most {longest}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidArgument(f"{name} {value!r} is not known", hint=f"Use {', '.join(choices)}")


def _check_number(name: str, value: int, largest: int) -> None:
    if not 1 <= value <= largest:
        raise InvalidArgument(f"{name} {value} is out of range", hint=f"Use 1 to {largest}")
