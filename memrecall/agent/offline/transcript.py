"""The tool calls of a recall so far, and the candidates that they returned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from memrecall.agent.offline.request import asks_something
from memrecall.agent.tools import DETAIL, EXPANSION, SEARCH
from memrecall.agent.tools.models import ToolErrorCode
from memrecall.budget import Limit
from memrecall.json_objects import load_json_object
from memrecall.model import protocol

if TYPE_CHECKING:
    from memrecall.agent.prompt_view import Briefing

# Failures that say nothing about what is stored; other codes only refuse one call.
_FAILURE_CODES = frozenset(
    {
        ToolErrorCode.STORAGE,
        ToolErrorCode.TIMEOUT,
        ToolErrorCode.EMBEDDER,
        ToolErrorCode.NO_PERMISSION,
        ToolErrorCode.INTERNAL,
        ToolErrorCode.UNREADABLE,
    }
)


@dataclass(frozen=True, slots=True)
class ToolStep:
    """A tool call and its answer, which is empty if it was truncated or lost."""

    tool: str
    arguments: dict[str, Any]
    answer: dict[str, Any]

    @property
    def error(self) -> str | None:
        """The error code of the answer, None on success."""
        if not self.answer:
            return ToolErrorCode.UNREADABLE
        failed = self.answer.get("success") is False or "error" in self.answer
        return str(self.answer.get("error", ToolErrorCode.UNKNOWN)) if failed else None

    @property
    def results(self) -> list[dict[str, Any]]:
        """The hits of a search."""
        return _rows(self.answer.get("results"))

    @property
    def keys(self) -> set[str]:
        """The keys of the hits, or of the messages around a memory."""
        names = ("results", "before", "after", "sources")
        return {str(row["memory_key"]) for name in names for row in _rows(self.answer.get(name))}


@dataclass(frozen=True, slots=True)
class Transcript:
    """The briefing of an iteration and the tool calls since."""

    briefing: Briefing
    steps: tuple[ToolStep, ...] = ()
    exhausted_limit: Limit | None = None  # the limit after which only a handoff is allowed

    @property
    def searches(self) -> list[ToolStep]:
        """The searches of this iteration, failed ones included."""
        return [step for step in self.steps if step.tool == SEARCH]

    @property
    def details(self) -> list[ToolStep]:
        """The reads of single memories."""
        return [step for step in self.steps if step.tool == DETAIL]

    @property
    def consecutive_searches(self) -> int:
        """The number of searches since the last other call."""
        return sum(1 for _ in takewhile(lambda step: step.tool == SEARCH, reversed(self.steps)))

    @property
    def refused_searches(self) -> int:
        """The number of searches refused because too many came in a row."""
        return sum(step.error == ToolErrorCode.TOO_MANY_SEARCHES for step in self.searches)

    @property
    def fruitless_searches(self) -> int:
        """The number of latest successful searches that returned no new key."""
        known_keys = {str(line["memory_key"]) for line in self.briefing.found}
        count = 0
        for step in self.steps:
            if step.tool == SEARCH and step.error is None:
                count = 0 if step.keys - known_keys else count + 1
            known_keys |= step.keys
        return count

    @property
    def has_refused_expansion(self) -> bool:
        """Whether a larger window was requested; a granted one starts a new iteration."""
        return any(step.tool == EXPANSION for step in self.steps)


def read_transcript(messages: Sequence[protocol.LLMMessage]) -> Transcript:
    """Read the briefing and the tool calls from the messages of an iteration."""
    # A late import: the briefing depends on the tools, one of which uses these rules.
    from memrecall.agent.prompt_view import read_briefing, read_last_call

    first, last = messages[0].content, messages[-1].content
    return Transcript(
        read_briefing(first if isinstance(first, str) else ""),
        tuple(_read_steps(messages)),
        read_last_call(last) if isinstance(last, str) else None,
    )


def _read_steps(messages: Sequence[protocol.LLMMessage]) -> Iterator[ToolStep]:
    answers = {
        result.call_id: result.content
        for message in messages
        if isinstance(message, protocol.FunctionExecutionResultMessage)
        for result in message.content
    }
    for message in messages:
        if isinstance(message, protocol.AssistantMessage) and not isinstance(message.content, str):
            for call in message.content:
                arguments = load_json_object(call.arguments) or {}
                answer = load_json_object(answers.get(call.id, "")) or {}
                yield ToolStep(call.name, arguments, answer)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory or message that may be what the user refers to."""

    key: str
    text: str
    score: float  # the relevance in the first search that returned it; 0 for a neighbor
    probability: float | None = None  # that it is evidence, in that search
    rank: int = 0  # the rank in that search, from 0
    is_hit: bool = False  # False if it was only seen next to a memory
    speaker: str = ""
    role: str = ""
    created_at: str = ""
    kind: str = "message"
    memory_type: str = ""
    valid_to: str = ""
    replaces: frozenset[str] = frozenset()  # earlier statements that it changes
    source_keys: frozenset[str] = frozenset()  # what an assistant's answer was made from

    @property
    def is_question(self) -> bool:
        """Whether it asks something, so that the next message may be the answer."""
        return asks_something(self.text)

    @property
    def day(self) -> str:
        """The date of the message, as YYYY-MM-DD."""
        return self.created_at[:10]


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a recall knows at a turn."""

    candidates: Mapping[str, Candidate]
    next_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # messages after a key
    failures: tuple[str, ...] = ()  # error codes, in order
    withheld: int = 0  # the number of memories that may not be shown
    successful_searches: int = 0
    stored_count: int = 0  # the number of rows that the searches compared
    # The share of the request that was said about each person.
    coverage_by_person: Mapping[str, float] = field(default_factory=dict)

    @property
    def hits(self) -> list[Candidate]:
        """The candidates that a search returned, best first."""
        hits = (candidate for candidate in self.candidates.values() if candidate.is_hit)
        return sorted(hits, key=lambda hit: (-hit.score, hit.rank, hit.key))


def collect_findings(transcript: Transcript) -> Findings:
    """Merge the results of this iteration and of those before it."""
    searches = transcript.searches
    candidates: dict[str, Candidate] = {}
    for rows in (transcript.briefing.found, *(step.results for step in searches)):
        for rank, row in enumerate(rows):
            _add_hit(candidates, _hit_from_row(row, rank))
    # Drop an answer whose sources were found: it would outrank its own evidence.
    candidates = {k: c for k, c in candidates.items() if not c.source_keys & candidates.keys()}
    next_keys: dict[str, tuple[str, ...]] = {}
    for step in transcript.details:
        if step.error is None:
            key = str(step.answer.get("memory_key", ""))
            if key in candidates:
                text = _joined_text(step.answer, "summary", "content") or candidates[key].text
                candidates[key] = replace(candidates[key], text=text)
            next_keys[key] = _add_neighbors(candidates, step.answer.get("after"))
            _add_neighbors(candidates, step.answer.get("before"))
    return Findings(
        candidates=candidates,
        next_keys=next_keys,
        failures=tuple(s.error for s in transcript.steps if s.error and s.error in _FAILURE_CODES),
        withheld=_count(searches, "withheld"),
        successful_searches=sum(step.error is None for step in searches),
        stored_count=_count(searches, "searched"),
        coverage_by_person=next(filter(None, map(_coverage_by_person, searches)), {}),
    )


def _coverage_by_person(step: ToolStep) -> dict[str, float]:
    shares = step.answer.get("told_of")
    items = shares.items() if isinstance(shares, dict) else ()
    return {str(person): _share(share) for person, share in items}


def _hit_from_row(row: Mapping[str, Any], rank: int) -> Candidate:
    sources, replaced = row.get("made_from"), row.get("replaces")
    return Candidate(
        key=str(row["memory_key"]),
        text=_joined_text(row, "summary", "content_preview"),
        score=_share(row.get("relevance_score")),
        probability=_share(row["probability"]) if row.get("probability") else None,
        rank=rank,
        is_hit=True,
        speaker=_text(row, "speaker"),
        role=_text(row, "role"),
        created_at=_text(row, "created_at"),
        kind=_text(row, "kind") or "message",
        memory_type=_text(row, "memory_type"),
        valid_to=_text(row, "valid_to"),
        replaces=frozenset(map(str, replaced) if isinstance(replaced, list) else ()),
        source_keys=frozenset(map(str, sources) if isinstance(sources, list) else ()),
    )


def _text(row: Mapping[str, Any], name: str) -> str:
    return str(row.get(name) or "")


def _joined_text(row: Mapping[str, Any], *names: str) -> str:
    return "\n".join(filter(None, (_text(row, name) for name in names)))


def _share(value: object) -> float:
    return min(max(float(value), 0.0), 1.0) if isinstance(value, int | float) else 0.0


def _count(searches: Sequence[ToolStep], name: str) -> int:
    counts = (step.answer.get(name) for step in searches)
    return max((count for count in counts if isinstance(count, int)), default=0)


def _rows(value: object) -> list[dict[str, Any]]:
    entries = value if isinstance(value, list) else []
    return [e for e in entries if isinstance(e, dict) and isinstance(e.get("memory_key"), str)]


def _add_hit(candidates: dict[str, Candidate], hit: Candidate) -> None:
    """Add a hit, or to one with the same key the longer text; its first score is kept.

    The first search asks what the request asks; narrower ones score the same row higher.
    """
    first = candidates.get(hit.key, hit)
    candidates[hit.key] = replace(
        first,
        text=max(first.text, hit.text, key=len),
        speaker=first.speaker or hit.speaker,
        role=first.role or hit.role,
    )


def _add_neighbors(candidates: dict[str, Candidate], rows: object) -> tuple[str, ...]:
    neighbors = [
        Candidate(
            key=row["memory_key"],
            text=_text(row, "content"),
            score=0.0,
            speaker=_text(row, "speaker"),
            created_at=_text(row, "created_at"),
        )
        for row in _rows(rows)
        if row["memory_key"]
    ]
    for neighbor in neighbors:
        candidates.setdefault(neighbor.key, neighbor)
    return tuple(neighbor.key for neighbor in neighbors)
