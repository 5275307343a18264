"""Search results, and what is done with a page of them.

A memory and the messages that it comes from become one result, outdated ones come last, a claim
comes after what it conflicts with, and the pages of several owners become one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

from memrecall.scope import DEFAULT_NAME, Scope, qualify_key, space_of
from memrecall.search.request import Kind, SearchRequest
from memrecall.store import KnowledgeEntry, Store
from memrecall.store.database.memberships import qualify_row
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


NO_PARTS = ScoreParts(*[0.0] * len(fields(ScoreParts)))  # of a row that was read without a search


def stated_by(memory: MemoryRecord) -> tuple[str, ...]:
    """Return the messages that state a memory; a digest comes from a whole conversation."""
    return () if memory.memory_type in DIGESTS else memory.source_message_ids


def is_superseded(memory: MemoryRecord) -> bool:
    """Return True if a change took a memory's place or ended it."""
    return memory.superseded_by is not None or memory.superseded_reason is not None


def make_hit(
    row: UserRow | KnowledgeEntry,
    *,
    score: float = 0.0,
    why: ScoreParts = NO_PARTS,
    probability: float | None = None,
    below_threshold: bool = False,
) -> Hit:
    """Return a stored row as a hit; without scores if it was read without a search."""
    shared: dict[str, Any] = {
        "content": row.content,
        "metadata": row.metadata,
        "score": score,
        "why": why,
        "probability": probability,
        "below_threshold": below_threshold,
    }
    if isinstance(row, KnowledgeEntry):
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
    shared |= {"session_id": row.session_id, "space": space_of(row.user_id), "author": row.author}
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


_MOVED = 10  # first hits among which outdated ones are last


async def mark_outdated(store: Store, scope: Scope, page: SearchPage) -> SearchPage:
    """Return a page whose messages of superseded memories are marked, and after others.

    The mark is the time until which a memory held. A message that states another memory among the
    hits, which still holds, is not marked.
    """
    stated = {key for hit in page.results for key in hit.sources}
    messages = {hit.key for hit in page.results if hit.kind == "message"} - stated
    if not page.outdated or not messages:
        return page
    memories = await store.memories(scope).get_states(page.outdated)
    # A model, `update` or `correct` supersedes; a memory that only expired was never changed.
    ended = {
        key: memory.valid_to
        for memory in memories
        if memory.valid_to is not None and is_superseded(memory)
        for key in stated_by(memory)
    }
    marks = {key: ended[key] for key in messages & ended.keys()}
    hits = [replace(hit, valid_to=marks.get(hit.key, hit.valid_to)) for hit in page.results]
    first = sorted(hits[:_MOVED], key=lambda hit: hit.key in marks)
    places = sorted(((hit.score, not hit.below_threshold) for hit in first), reverse=True)
    moved = [
        replace(hit, score=score, below_threshold=not is_found)
        for hit, (score, is_found) in zip(first, places, strict=True)
    ]
    return replace(page, results=(*moved, *hits[_MOVED:]))


def join_sources(page: SearchPage) -> SearchPage:
    """Return a page on which a memory and its message are one hit.

    The best memory of a message takes its place and score if they are better, and both
    probabilities. A claim that conflicts with what the user said does not: it would pass what it
    conflicts with.
    """
    owners: dict[str, Hit] = {}
    for hit in page.results:
        for key in hit.sources:
            owners.setdefault(key, hit)
    folded: dict[str, Hit] = {}
    for hit in page.results:
        owner = owners.get(hit.key, hit)
        if owner is hit:
            folded.setdefault(hit.key, hit)
        elif not owner.conflicts_with:
            taken = folded.get(owner.key, owner)
            folded[owner.key] = _join(taken, hit)
    hits = tuple(folded.values())
    below = sum(hit.below_threshold for hit in page.results)
    still_below = sum(hit.below_threshold for hit in hits)
    found = len(page.results) - below
    return replace(
        page,
        results=hits,
        total_found=page.total_found - found + len(hits) - still_below,
        below_threshold=page.below_threshold - below + still_below,
    )


def _join(memory: Hit, message: Hit) -> Hit:
    """Return a memory with the better score of it and its message, and both probabilities."""
    better = max(memory, message, key=lambda hit: hit.score)
    chances = [hit.probability for hit in (memory, message) if hit.probability is not None]
    chance = min(sum(chances), 1.0) if chances else None
    return replace(
        memory,
        score=better.score,
        why=better.why,
        probability=chance,
        below_threshold=better.below_threshold,
    )


def put_claims_last(hits: Sequence[Hit]) -> list[Hit]:
    """Return hits, however scored, with each claim after and below what it conflicts with."""
    claims = [hit for hit in hits if hit.conflicts_with]
    ordered = list(hits)
    for claim in claims:
        places = [at for at, hit in enumerate(ordered) if hit.key in claim.conflicts_with]
        place = next(at for at, hit in enumerate(ordered) if hit.key == claim.key)
        if places and place < max(places):
            last = min(claim, ordered[max(places)], key=lambda hit: hit.score)
            moved = replace(
                ordered.pop(place), score=last.score, below_threshold=last.below_threshold
            )
            ordered.insert(max(places), moved)
    return ordered


def qualify_page(page: SearchPage, space_id: str) -> SearchPage:
    """Return a page of a space with keys that name the space."""
    qualify = partial(qualify_key, space_id)

    def qualify_hit(hit: Hit) -> Hit:
        return replace(
            hit,
            key=qualify(hit.key),
            conflicts_with=tuple(map(qualify, hit.conflicts_with)),
            sources=tuple(map(qualify, hit.sources)),
        )

    return replace(
        page,
        results=tuple(map(qualify_hit, page.results)),
        records={qualify(key): qualify_row(row, space_id) for key, row in page.records.items()},
        outdated=tuple(map(qualify, page.outdated)),
        withheld_sources=frozenset(map(qualify, page.withheld_sources)),
    )


def merge_pages(pages: Sequence[SearchPage]) -> SearchPage:
    """Return one page: next is the hit with the best chance, in the order of its own page.

    What only fills the page of one owner comes after what the threshold lets pass of another.
    """
    queues = [list(page.results) for page in pages]
    merged: list[Hit] = []
    while queues := [queue for queue in queues if queue]:
        best = max(queues, key=lambda queue: (not queue[0].below_threshold, _chance(queue[0])))
        merged.append(best.pop(0))
    first, any_found = pages[0], any(not hit.below_threshold for hit in merged)
    near = [page for page in pages if page.nearest]
    notes = [page.explanation for page in (*near, *reversed(pages)) if page.explanation]
    failures = [page.embedder_failure for page in pages if page.embedder_failure]
    return replace(
        first,
        results=tuple(merged),
        total_found=sum(page.total_found for page in pages),
        explanation=notes[0] if notes and not any_found else "",
        below_threshold=sum(page.below_threshold for page in pages),
        nearest=near[0].nearest if near and not merged else None,
        embedder_failure=failures[0] if failures else "",
        withheld=sum(page.withheld for page in pages),
        withheld_sources=frozenset().union(*(page.withheld_sources for page in pages)),
        unembedded=sum(page.unembedded for page in pages),
        searched=sum(page.searched for page in pages),
        records={key: row for page in pages for key, row in page.records.items()},
        outdated=tuple(key for page in pages for key in page.outdated),
        next_cursor=None,
    )


def _chance(hit: Hit) -> tuple[float, float]:
    return hit.score if hit.probability is None else hit.probability, hit.score


def origin_fields(item: Any) -> dict[str, str]:
    """Return the field that says where a hit or recalled memory of a space is from."""
    return {"space": describe_origin(item.space, item.author, item.ts)} if item.space else {}


def describe_origin(space_id: str, author: str | None, moment: datetime | str) -> str:
    """Return where a row of a space is from, such as "space: team-x, by Ben, 2026-05-02"."""
    by = f", by {author}" if author else ""
    return f"space: {space_id}{by}, {str(moment)[:10]}"
