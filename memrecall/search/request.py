"""What is asked of the message query API, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
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


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search. `since` is included, `until` is not; empty filters let everything through."""

    query: str
    mode: Mode = "hybrid"
    syntax: Syntax = "plain"
    limit: int = 10
    threshold: float = 0.0
    since: datetime | None = None
    until: datetime | None = None
    role: Role | None = None
    kind: Kind | None = None  # knowledge is the agent's, and searched only by its name
    memory_types: tuple[str, ...] = ()
    session_id: str | None = None
    keywords: tuple[str, ...] = ()  # at least one must match
    expansions: tuple[str, ...] = ()  # help, but need not match
    exclude: frozenset[str] = frozenset()  # keys to be ranked without, as if not stored
    only: frozenset[str] | None = None  # memories that passed the caller's own filters
    now: datetime | None = None  # what "yesterday" is counted from; None: the clock
    time_zone: str | None = None  # where "yesterday" is one; None: the user's own
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_text("the query", self.query)
        if not self.query.strip():
            raise InvalidArgument("the query is empty", hint="Say what to look for")
        if len(self.query) > LONGEST_REQUEST:
            raise InvalidArgument(
                f"the query has {len(self.query)} characters",
                hint=f"Use at most {LONGEST_REQUEST}",
            )
        _require_one_of("mode", self.mode, MODES)
        _require_one_of("syntax", self.syntax, SYNTAXES)
        if self.kind is not None:
            _require_one_of("kind", self.kind, KINDS)
        if not 1 <= self.limit <= LARGEST_LIMIT:
            raise InvalidArgument(
                f"limit {self.limit} is out of range", hint=f"Use 1 to {LARGEST_LIMIT}"
            )
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
        """What a cursor of this search is bound to: everything but the page itself."""
        filters = (self.since, self.until, self.role, self.kind, self.session_id, self.time_zone)
        words = (self.memory_types, self.keywords, self.expansions, sorted(self.exclude))
        what = (self.query, self.mode, self.syntax, self.threshold)
        chosen = None if self.only is None else sorted(self.only)
        return ["search", *what, *map(str, filters), *map(list, words), chosen]


def _require_one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidArgument(f"{name} {value!r} is not known", hint=f"Use {', '.join(choices)}")


@dataclass(frozen=True, slots=True)
class Why:
    """What put a row where it stands: the parts of its score, then the plain measures."""

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
    """A row that was found."""

    key: str
    kind: Kind
    score: float
    ts: datetime
    role: str | None
    speaker: str | None
    content: str
    session_id: str | None
    memory_type: str
    why: Why
    summary: str = ""
    keywords: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    valid_to: datetime | None = None  # a memory that was replaced says since when
    probability: float | None = None  # the calibrated chance of a hybrid search's hit

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from memrecall.search.display import hit_html

        return hit_html(self)


@dataclass(frozen=True, slots=True)
class SearchPage:
    """The answer: some hits, how many there are in all, and in words what else is to be said."""

    results: tuple[Hit, ...] = ()
    total_found: int = 0
    message: str = ""
    withheld: int = 0
    unembedded: int = 0  # rows that only their words could find, this time
    next_cursor: str | None = None
    searched: int = 0  # rows that passed the filters
    # The memories among the results as they are stored.
    records: Mapping[str, MemoryRecord] = field(default_factory=dict, repr=False, compare=False)
    told_of: Mapping[str, float] = field(default_factory=dict)  # how much of it of whom: `about`

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from memrecall.search.display import page_html

        return page_html(self)


PAGE_SIZE = 50
LARGEST_PAGE = 200
TOP_K = 20
LARGEST_TOP_K = 200


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """Words in the query language, and which page of what they find."""

    text: str
    filter: MessageFilter = field(default_factory=MessageFilter)
    page_size: int = PAGE_SIZE
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_query_text(self.text)
        _check_number("page_size", self.page_size, LARGEST_PAGE)


@dataclass(frozen=True, slots=True)
class SemanticQuery:
    """A text or a vector, and how many of the closest messages are wanted."""

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
                f"min_score {self.min_score} is out of range", hint="A cosine is -1 to 1"
            )


@dataclass(frozen=True, slots=True)
class ScoredMessage:
    """A message that was found, how well it fits, and where its words stand."""

    message: Message
    score: float
    snippets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredPage:
    """Some messages, the best first, and the cursor of those that follow."""

    items: tuple[ScoredMessage, ...] = ()
    next_cursor: str | None = None
    unembedded: int = 0  # messages that could not be found by their meaning, this time


def check_query_text(text: str) -> None:
    """Refuse a text that says nothing, or too much."""
    check_text("query_text", text)
    if not text.strip():
        raise InvalidArgument("query_text is empty", hint="Say what to look for")
    if len(text) > MAX_QUERY_LENGTH:
        raise InvalidArgument(
            f"query_text has {len(text)} characters", hint=f"Use at most {MAX_QUERY_LENGTH}"
        )


def _check_number(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidArgument(f"{name} {value} is out of range", hint=f"Use 1 to {most}")
