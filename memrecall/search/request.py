"""Search requests, checked when they are made."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Literal

from memrecall.errors import InvalidArgument
from memrecall.store import MessageFilter
from memrecall.store.database.cursors import LARGEST_PAGE, PAGE_SIZE, require_limit
from memrecall.text.query import MAX_QUERY_LENGTH
from memrecall.text.times import TimeSpan, parse_period
from memrecall.types import Role, check_moment, check_range, check_text, check_time_zone

Mode = Literal["keyword", "semantic", "hybrid"]
Syntax = Literal["plain", "query"]
Kind = Literal["message", "memory", "knowledge"]

MODES: tuple[Mode, ...] = ("keyword", "semantic", "hybrid")
SYNTAXES: tuple[Syntax, ...] = ("plain", "query")
KINDS: tuple[Kind, ...] = ("message", "memory", "knowledge")
LARGEST_LIMIT = LARGEST_PAGE
LONGEST_REQUEST = 10_000
TOP_K = 20
LARGEST_TOP_K = 200
SMALL_PART = 10
"""A period or session with at most this many rows is shown whole, whether they match or not."""


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
    time: str | None = None  # a period in words, such as "last week"
    role: Role | None = None
    kind: Kind | None = None  # knowledge belongs to the agent and is searched only if requested
    memory_types: tuple[str, ...] = ()
    session_id: str | None = None
    keywords: tuple[str, ...] = ()  # at least one must match
    expansions: tuple[str, ...] = ()  # raise the score, but need not match
    now: datetime | None = None  # the reference for "yesterday"; None: the clock
    valid_at: datetime | None = None  # when memories must be valid; None: `now`
    time_zone: str | None = None  # the zone for "yesterday"; None: the user's
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_query_text(self.query, "the query", LONGEST_REQUEST)
        for name, value, choices in (
            ("mode", self.mode, MODES),
            ("syntax", self.syntax, SYNTAXES),
            ("kind", self.kind, (*KINDS, None)),
        ):
            if value not in choices:
                names = ", ".join(filter(None, choices))
                raise InvalidArgument(f"{name} {value!r} is not known", hint=f"Use {names}")
        require_limit("limit", self.limit, LARGEST_LIMIT)
        is_number = isinstance(self.threshold, int | float)
        if not is_number or not 0.0 <= self.threshold <= 1.0:
            raise InvalidArgument(
                f"threshold {self.threshold!r} is out of range", hint="Use a number from 0.0 to 1.0"
            )
        check_range(self.since, self.until)
        check_moment("now", self.now)
        check_moment("valid_at", self.valid_at)
        parse_period(self.time)
        if self.time_zone is not None:
            check_time_zone(self.time_zone)
        for word in (*self.keywords, *self.expansions):
            check_text("a keyword", word)


@dataclass(frozen=True, slots=True)
class EngineRequest(SearchRequest):
    """A search as the engine runs it, with what only memrecall's own code asks for."""

    period: TimeSpan | None = None  # what `time` means; None: the search finds out
    exclude: frozenset[str] = frozenset()  # keys to be treated as if they were not stored
    only: frozenset[str] | None = None  # memories or entries that passed the caller's filters
    only_messages: frozenset[str] | None = None  # messages that passed them
    with_sources: bool = False  # read the messages of memories; hide those of withheld ones
    with_expired: bool = False  # `only` has been checked, and includes expired memories
    share: int = 1  # number of owners searched together; expensive steps are divided by it

    @classmethod
    def of(cls, request: SearchRequest) -> "EngineRequest":
        """Return a caller's request as the engine's."""
        if isinstance(request, cls):
            return request
        return cls(**{item.name: getattr(request, item.name) for item in fields(request)})

    @property
    def is_of_part(self) -> bool:
        """Whether a period or a session is searched, not all that is stored."""
        return bool(self.period or self.since or self.session_id is not None)

    def binding(self) -> list[object]:
        """Return what a cursor of this search is bound to: everything but the page itself."""
        filters = (self.since, self.until, self.role, self.kind, self.session_id, self.time_zone)
        words = (self.memory_types, self.keywords, self.expansions, sorted(self.exclude))
        query = (self.query, self.mode, self.syntax, self.threshold)
        only = [keys if keys is None else sorted(keys) for keys in (self.only, self.only_messages)]
        time = [self.time] if self.time else []
        return ["search", *query, *map(str, filters), *map(list, words), only, *time]


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """A query in the query language, and which page of its results."""

    text: str
    filter: MessageFilter = field(default_factory=MessageFilter)
    page_size: int = PAGE_SIZE
    cursor: str | None = None
    time: str | None = None  # see `SearchRequest`

    def __post_init__(self) -> None:
        check_query_text(self.text)
        parse_period(self.time)
        require_limit("page_size", self.page_size, LARGEST_PAGE)


@dataclass(frozen=True, slots=True)
class SemanticQuery:
    """A text or a vector, and how many of the closest messages to return."""

    text: str | None = None
    embedding: Sequence[float] | None = None
    filter: MessageFilter = field(default_factory=MessageFilter)
    top_k: int = TOP_K
    min_score: float | None = None
    time: str | None = None  # see `SearchRequest`

    def __post_init__(self) -> None:
        if (self.text is None) == (self.embedding is None):
            raise InvalidArgument("exactly one of query_text and query_embedding is required")
        if self.text is not None:
            check_query_text(self.text)
        require_limit("top_k", self.top_k, LARGEST_TOP_K)
        parse_period(self.time)
        if self.min_score is not None and not -1.0 <= self.min_score <= 1.0:
            raise InvalidArgument(
                f"min_score {self.min_score} is out of range", hint="Use a cosine from -1 to 1"
            )


def check_query_text(text: str, name: str = "query_text", longest: int = MAX_QUERY_LENGTH) -> None:
    """Reject a query that is blank or too long."""
    check_text(name, text)
    if not text.strip():
        raise InvalidArgument(f"{name} is empty", hint="Say what to look for")
    if len(text) > longest:
        raise InvalidArgument(f"{name} has {len(text)} characters", hint=f"Use at most {longest}")
