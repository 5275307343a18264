"""Search results."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from memrecall.scope import DEFAULT_NAME, Scope, space_of
from memrecall.search.request import Kind, SearchRequest
from memrecall.store import KnowledgeEntry
from memrecall.types import DIGESTS, Doubt, MemoryRecord, Message, Origin

UserRow = Message | MemoryRecord


class DegradeReason(StrEnum):
    """Why a search was less thorough than requested."""

    KEYWORDS_ONLY = "keywords_only"  # the query could not be embedded
    PARTLY_EMBEDDED = "partly_embedded"  # some rows have no vector yet


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """The parts of a hit's score, then its coverage and cosine."""

    lexical: float
    semantic: float
    thread: float  # words of the lines before it, which name what it speaks of
    neighbours: float
    time: float
    speaker: float
    nature: float  # what kind of row it is: a question counts less, a note more
    coverage: float
    cosine: float

    def as_dict(self) -> dict[str, float]:
        """Return the parts by name."""
        return {name: getattr(self, name) for name in self.__slots__}


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
    # Until when a memory holds; of a message, when the memory that it states was superseded.
    valid_to: datetime | None = None
    probability: float | None = None  # calibrated; hybrid searches only
    below_threshold: bool = False  # shown to fill the page: the request's threshold excludes it
    sequence_no: int | None = None  # of a message in its session
    origin: str | None = None  # of a memory
    conflicts_with: tuple[str, ...] = ()  # of an unconfirmed claim: what the user said instead
    doubts: tuple[Doubt, ...] = ()  # what of a memory its messages do not confirm
    truncated: bool = False  # a memory whose content was too long: only its beginning is stored
    sources: tuple[str, ...] = ()  # messages that state a memory
    space: str | None = None  # that the row belongs to
    author: str | None = None  # the member of the space who wrote it

    @property
    def claimed_by(self) -> str | None:
        """The origin of an unconfirmed claim, which the user did not make."""
        return self.origin if self.conflicts_with and self.origin != Origin.USER else None


# Of a row that was read without a search.
NO_SCORES: dict[str, Any] = {"score": 0.0, "why": ScoreParts(*[0.0] * len(fields(ScoreParts)))}


def stated_by(memory: MemoryRecord) -> tuple[str, ...]:
    """Return the messages that state a memory; a digest comes from a whole conversation."""
    return () if memory.memory_type in DIGESTS else memory.source_message_ids


def is_superseded(memory: MemoryRecord) -> bool:
    """Return True if a change took a memory's place or ended it."""
    return memory.superseded_by is not None or memory.superseded_reason is not None


def make_hit(row: UserRow | KnowledgeEntry, shared: dict[str, Any]) -> Hit:
    """Return a stored row as a hit, with the fields that do not depend on what it is."""
    shared = {**shared, "content": row.content, "metadata": row.metadata}
    if not isinstance(row, KnowledgeEntry):
        shared |= {"session_id": row.session_id, "space": space_of(row.user_id)}
        shared |= {"author": row.author}
    if isinstance(row, Message):
        return Hit(
            key=row.message_id,
            kind="message",
            ts=row.ts,
            role=row.role.value,
            speaker=row.speaker,
            memory_type="message",
            sequence_no=row.sequence_no,
            **shared,
        )
    if isinstance(row, MemoryRecord):
        return Hit(
            key=row.memory_key,
            kind="memory",
            ts=row.since,
            role=None,
            speaker=None,
            memory_type=row.memory_type,
            summary=row.summary,
            keywords=tuple(keyword.keyword for keyword in row.keywords),
            valid_to=row.valid_to,
            origin=row.provenance.origin.value,
            conflicts_with=row.provenance.conflicts_with,
            doubts=row.provenance.doubts,
            truncated=row.truncated,
            sources=stated_by(row),
            **shared,
        )
    return Hit(
        key=row.knowledge_key,
        kind="knowledge",
        ts=row.updated_at,
        role=None,
        speaker=None,
        session_id=None,
        memory_type="knowledge",
        summary=row.summary,
        keywords=tuple(row.tags),
        **shared,
    )


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of search results, with counts and what the caller should know."""

    results: tuple[Hit, ...] = ()
    total_found: int = 0
    below_threshold: int = 0  # matches that the threshold excludes, those shown included
    explanation: str = ""  # why there are no results, or none above the threshold
    embedder_failure: str = ""  # why a hybrid search went on without the query's vector
    withheld: int = 0  # matches hidden for lack of permission
    withheld_sources: frozenset[str] = frozenset()  # messages that withheld memories come from
    unembedded: int = 0  # rows that could be found by their words only
    next_cursor: str | None = None
    searched: int = 0  # rows that passed the filters
    answered: float | None = None  # the probability that there is an answer; None: not compared
    nearest: datetime | None = None  # the time closest to a period in which there is nothing
    # The memories and messages among the results as they are stored, by their keys; if requested,
    # the messages that memories come from too.
    records: Mapping[str, UserRow] = field(default_factory=dict, repr=False, compare=False)
    outdated: tuple[str, ...] = ()  # keys of superseded memories, the newest of many

    @property
    def degraded(self) -> DegradeReason | None:
        """Why the search was less thorough than requested, if it was."""
        if self.embedder_failure:
            return DegradeReason.KEYWORDS_ONLY
        return DegradeReason.PARTLY_EMBEDDED if self.unembedded else None

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
            notes.append(f"{self.unembedded} rows are not embedded yet: not found by meaning")
        return "; ".join(filter(None, notes))


@dataclass(frozen=True, slots=True)
class ScoredMessage:
    """A message with its score, the passages that match and where their words are."""

    message: Message
    score: float
    snippets: tuple[str, ...] = ()
    offsets: tuple[tuple[int, int], ...] = ()  # start and end in the content, in code points


@dataclass(frozen=True, slots=True)
class ScoredPage:
    """Messages, best first, and the cursor of the next page."""

    items: tuple[ScoredMessage, ...] = ()
    next_cursor: str | None = None
    unembedded: int = 0  # messages that a semantic search could not find
    truncated: bool = False  # more were found, but they take too many bytes for one page
    nearest: datetime | None = None  # see `SearchPage`


def describe_threshold(threshold: float, below: int, found: int, best: float) -> str:
    """Return how many matches a threshold excludes, if any, and how near it the best is."""
    if not below:
        return ""
    text = f"{below} below the threshold of {threshold:g}"
    return text if found else f"{text}; the best scores {best:.2f}"


def unknown_owner(scope: Scope, request: SearchRequest) -> SearchPage:
    """Return the page of a user or an agent under whose id nothing is stored."""
    if request.kind == "knowledge":
        agent = scope.agent_id or DEFAULT_NAME
        return SearchPage(explanation=f"agent {agent!r} has no knowledge entries yet")
    user = scope.user_id
    return SearchPage(explanation=f"there is no user {user!r}: nothing is stored under this id")
