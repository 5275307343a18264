"""What the rules know of a recall, and the candidates that its tool calls returned."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from memrecall.agent.offline.request import asks_something
from memrecall.agent.prompt_view import DETAIL_CHARACTERS
from memrecall.agent.state import ToolRun, Window
from memrecall.agent.tools import SEARCH
from memrecall.agent.tools.models import (
    GetMemoryDetailOutput,
    MemorySearchResultItem,
    NearbyMessage,
    SearchMemoriesOutput,
    ToolErrorCode,
)
from memrecall.budget import Limit
from memrecall.messages import ConversationMessage
from memrecall.types import Language

# Failures that say nothing about what is stored; other codes only refuse one call.
_FAILURE_CODES = frozenset(
    {
        ToolErrorCode.STORAGE,
        ToolErrorCode.TIMEOUT,
        ToolErrorCode.EMBEDDER,
        ToolErrorCode.NO_PERMISSION,
        ToolErrorCode.INTERNAL,
    }
)


@dataclass(frozen=True, slots=True)
class Situation:
    """The part of a recall's state that the rules read; it can be sent to another process."""

    language: Language
    request: str
    earlier: tuple[ConversationMessage, ...]  # messages of the window before the request
    now: datetime
    zone: ZoneInfo
    window: Window
    runs: tuple[ToolRun, ...] = ()
    earlier_runs: int = 0  # how many of them belong to earlier iterations
    last: Limit | None = None  # the limit after which only a handoff is allowed

    @property
    def current_runs(self) -> tuple[ToolRun, ...]:
        """The tool calls of this iteration."""
        return self.runs[self.earlier_runs :]

    @property
    def searches(self) -> list[ToolRun]:
        """The searches of all iterations, failed ones included."""
        return [run for run in self.runs if run.tool == SEARCH]

    @property
    def current_searches(self) -> list[ToolRun]:
        """The searches of this iteration, failed ones included."""
        return [run for run in self.current_runs if run.tool == SEARCH]


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
    valid_to: str = ""
    source_keys: frozenset[str] = frozenset()  # what an assistant's answer was made from
    stated_by: frozenset[str] = frozenset()  # the messages that state a memory

    @property
    def is_question(self) -> bool:
        """Whether it asks something, so that the next message may be the answer."""
        return asks_something(self.text)

    @property
    def is_outdated(self) -> bool:
        """Whether it is a message whose memory a model or the user has superseded."""
        return self.kind == "message" and bool(self.valid_to)

    @property
    def day(self) -> str:
        """The date of the message, as YYYY-MM-DD."""
        return self.created_at[:10]


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a recall has found so far."""

    candidates: Mapping[str, Candidate]
    next_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # messages after a key
    failures: tuple[str, ...] = ()  # error codes, in order
    withheld: int = 0  # the number of memories that may not be shown
    successful_searches: int = 0

    @property
    def hits(self) -> list[Candidate]:
        """The candidates that a search returned, best first."""
        hits = (candidate for candidate in self.candidates.values() if candidate.is_hit)
        return sorted(hits, key=lambda hit: (-hit.score, hit.rank, hit.key))


def collect_findings(runs: Iterable[ToolRun]) -> Findings:
    """Merge the results of the tool calls of all iterations."""
    runs = list(runs)
    outputs = [run.output for run in runs if run.error is None]
    searches = [output for output in outputs if isinstance(output, SearchMemoriesOutput)]
    candidates: dict[str, Candidate] = {}
    for search in searches:
        for rank, item in enumerate(search.results):
            _add_hit(candidates, _candidate(item, rank))
    # Drop an answer whose sources were found: it would outrank its own evidence.
    candidates = {k: c for k, c in candidates.items() if not c.source_keys & candidates.keys()}
    candidates = _join_messages(candidates)
    next_keys: dict[str, tuple[str, ...]] = {}
    for detail in outputs:
        if isinstance(detail, GetMemoryDetailOutput):
            key = detail.memory_key or ""
            if key in candidates:
                text = _detail_text(detail) or candidates[key].text
                candidates[key] = replace(candidates[key], text=text)
            next_keys[key] = _add_neighbors(candidates, detail.after)
            _add_neighbors(candidates, detail.before)
    return Findings(
        candidates=candidates,
        next_keys=next_keys,
        failures=tuple(run.error for run in runs if run.error in _FAILURE_CODES),
        withheld=max((search.withheld for search in searches), default=0),
        successful_searches=len(searches),
    )


def _join_messages(candidates: Mapping[str, Candidate]) -> dict[str, Candidate]:
    """Return candidates with a memory and the message that states it as one: the likelier of both.

    A message may state several things, of which the memory is another than the one asked for.
    """
    joined = dict(candidates)
    for memory in candidates.values():
        for key in sorted(memory.stated_by & joined.keys()):
            if memory.key not in joined:
                continue
            pair = sorted((joined[memory.key], joined.pop(key)), key=_likelihood)
            chances = [each.probability for each in pair if each.probability is not None]
            del joined[memory.key]
            chance = min(sum(chances), 1.0) if chances else None
            joined[pair[1].key] = replace(pair[1], probability=chance)
    return joined


def _likelihood(candidate: Candidate) -> tuple[float, float, int]:
    return candidate.probability or 0, candidate.score, -candidate.rank


def _candidate(item: MemorySearchResultItem, rank: int) -> Candidate:
    preview = item.passage or item.content_preview
    summary = "" if preview.startswith(item.summary) else item.summary
    return Candidate(
        key=item.memory_key,
        text="\n".join(filter(None, (summary, preview))),
        score=item.relevance_score,
        probability=item.probability,
        rank=rank,
        is_hit=True,
        speaker=item.space.rpartition(", ")[0] if item.space else item.speaker or "",
        role=item.role or "",
        created_at=item.created_at,
        kind=item.kind,
        valid_to=item.valid_to or "",
        source_keys=frozenset(item.made_from),
        stated_by=frozenset(item.stated_by),
    )


def _detail_text(detail: GetMemoryDetailOutput) -> str:
    content = (detail.content or "")[detail.start : detail.start + DETAIL_CHARACTERS]
    return "\n".join(filter(None, (detail.summary, content)))


def _add_hit(candidates: dict[str, Candidate], hit: Candidate) -> None:
    """Add a hit, or to one with the same key the longer text; its first score is kept.

    The first search asks what the request asks; narrower ones score the same row higher.
    """
    first = candidates.get(hit.key, hit)
    candidates[hit.key] = replace(first, text=max(first.text, hit.text, key=len))


def _add_neighbors(
    candidates: dict[str, Candidate], messages: Sequence[NearbyMessage]
) -> tuple[str, ...]:
    for message in messages:
        neighbor = Candidate(
            key=message.memory_key,
            text=message.content,
            score=0.0,
            speaker=message.speaker,
            created_at=message.created_at,
        )
        candidates.setdefault(neighbor.key, neighbor)
    return tuple(message.memory_key for message in messages)
