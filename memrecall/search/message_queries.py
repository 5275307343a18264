"""What is asked of the message query API, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from memrecall.errors import InvalidArgument
from memrecall.store import MessageFilter
from memrecall.text.query import LONGEST_QUERY
from memrecall.types import Message, check_text

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
    if len(text) > LONGEST_QUERY:
        raise InvalidArgument(
            f"query_text has {len(text)} characters", hint=f"Use at most {LONGEST_QUERY}"
        )


def _check_number(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidArgument(f"{name} {value} is out of range", hint=f"Use 1 to {most}")
