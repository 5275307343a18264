"""What the searches and readings of a recall brought: one candidate a key, and what went wrong."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from memrecall.agent.offline.transcript import ToolStep, Transcript
from memrecall.text.normalize import normalize
from memrecall.text.tokens import analyze


@dataclass(frozen=True, slots=True)
class Said:
    """A text made ready to be asked for words."""

    plain: str
    stems: frozenset[str]

    @classmethod
    def of(cls, text: str) -> "Said":
        """Normalise and analyse a text once for many words."""
        analysis = analyze(text)
        stems = frozenset(analysis.atoms) | frozenset(analysis.extras)
        return cls(normalize(text).casefold(), stems)

    def has(self, word: "Said") -> float:
        """Whether a word was said, from 0 to 1: a long Chinese word may have been said in part."""
        if word.plain.isalpha() and word.plain.isascii():  # "art" is not in "party"
            return float(bool(word.stems) and self.stems >= word.stems)
        if word.plain in self.plain:
            return 1.0
        if word.plain.isascii():
            return float(bool(word.stems) and self.stems >= word.stems)
        pairs = [a + b for a, b in pairwise(word.plain)]
        return sum(pair in self.plain for pair in pairs) / len(pairs) if len(pairs) > 1 else 0.0


def covered(words: Iterable[str], text: str) -> float:
    """The share of the words that a text has, from 0 to 1; 0 without words."""
    said = Said.of(text)
    shares = [said.has(Said.of(word)) for word in words]
    return sum(shares) / len(shares) if shares else 0.0


# Failures that say nothing about what is stored. The others are refusals of one call.
BROKEN = frozenset({"storage", "timeout", "embedder", "no_permission", "internal", "unreadable"})
_QUESTION_ENDS = ("?", "？", "吗", "呢", "吗。", "呢。")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory or message that was seen."""

    key: str
    text: str
    score: float  # the relevance that the first search gave it; 0 if only seen beside another
    rank: int = 0  # in that search, from 0
    times_found: int = 0
    speaker: str = ""
    role: str = ""
    created_at: str = ""
    kind: str = "message"
    memory_type: str = ""
    valid_to: str = ""
    made_from: frozenset[str] = frozenset()  # what an assistant's answer only repeats
    beside: str = ""  # the key that it was shown beside, if no search found it

    @property
    def asks(self) -> bool:
        """Whether it is a question: then what was said next may be the answer."""
        return self.text.rstrip(' \n"”)）」').endswith(_QUESTION_ENDS)

    @property
    def day(self) -> str:
        """The date on which it was said."""
        return self.created_at[:10]


@dataclass(frozen=True, slots=True)
class Findings:
    """All that a recall knows at a turn."""

    candidates: Mapping[str, Candidate]
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what was said next
    broken: tuple[str, ...] = ()  # codes of failures, in order
    withheld: str = ""  # what a search said of memories that may not be shown
    searched: int = 0  # searches that worked
    stored: int = 0  # how much a search looked through, at most
    told_of: Mapping[str, float] = field(default_factory=dict)  # how much of the request of whom

    @property
    def hits(self) -> list[Candidate]:
        """What searches found, best first."""
        found = [c for c in self.candidates.values() if c.times_found]
        return sorted(found, key=lambda c: (-c.score, c.rank, c.key))


def gather(transcript: Transcript) -> Findings:
    """Put together what the steps of an iteration, and those before it, brought."""
    seen: dict[str, Candidate] = {}
    for rank, line in enumerate(transcript.briefing.found):
        _take(seen, _candidate(line, rank))
    for step in transcript.searches:
        for rank, line in enumerate(step.results):
            _take(seen, _candidate(line, rank))
    # An answer yields to what it was made from: asked again, it would outdo its own evidence.
    seen = {key: each for key, each in seen.items() if not each.made_from & seen.keys()}
    after: dict[str, tuple[str, ...]] = {}
    for step in transcript.details:
        if step.error is None:
            _read(seen, step.answer)
            key = str(step.answer.get("memory_key", ""))
            after[key] = _beside(seen, key, step.answer.get("after"))
            _beside(seen, key, step.answer.get("before"))
    return Findings(
        candidates=seen,
        after=after,
        broken=tuple(s.error for s in transcript.steps if s.error in BROKEN and s.error),
        withheld=_withheld(transcript.searches),
        searched=sum(step.error is None for step in transcript.searches),
        stored=max(
            (_count(step.answer.get("searched")) for step in transcript.searches), default=0
        ),
        told_of=next(filter(None, map(_told_of, transcript.searches)), {}),
    )


def _told_of(step: ToolStep) -> dict[str, float]:
    told = step.answer.get("told_of")
    return (
        {str(who): _number(share) for who, share in told.items()} if isinstance(told, dict) else {}
    )


def _candidate(line: Mapping[str, Any], rank: int) -> Candidate:
    parts = (line.get("summary"), line.get("content_preview"))
    return Candidate(
        key=str(line["memory_key"]),
        text="\n".join(str(part) for part in parts if part),
        score=_number(line.get("relevance_score")),
        rank=rank,
        times_found=1,
        speaker=str(line.get("speaker") or ""),
        role=str(line.get("role") or ""),
        created_at=str(line.get("created_at") or ""),
        kind=str(line.get("kind") or "message"),
        memory_type=str(line.get("memory_type") or ""),
        valid_to=str(line.get("valid_to") or ""),
        made_from=_keys(line.get("made_from")),
    )


def _keys(value: object) -> frozenset[str]:
    return frozenset(map(str, value)) if isinstance(value, list) else frozenset()


def _number(value: object) -> float:
    return min(max(float(value), 0.0), 1.0) if isinstance(value, int | float) else 0.0


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _take(seen: dict[str, Candidate], found: Candidate) -> None:
    """Keep the first score and the longer text of two sightings.

    The first search asks what the request asks. Narrower ones give the same row a higher score.
    """
    known = seen.get(found.key)
    if known is None:
        seen[found.key] = found
        return
    seen[found.key] = replace(
        known,
        text=max(known.text, found.text, key=len),
        speaker=known.speaker or found.speaker,
        role=known.role or found.role,
        times_found=known.times_found + 1,
    )


def _read(seen: dict[str, Candidate], answer: Mapping[str, Any]) -> None:
    key = str(answer.get("memory_key", ""))
    known = seen.get(key)
    if known is not None:
        content = "\n".join(str(answer[n]) for n in ("summary", "content") if answer.get(n))
        seen[key] = replace(known, text=content or known.text)


def _beside(seen: dict[str, Candidate], anchor: str, lines: object) -> tuple[str, ...]:
    """The keys shown beside an anchor, in the order of the conversation."""
    keys: list[str] = []
    for line in _dicts(lines):
        key = str(line.get("memory_key") or "")
        if not key:
            continue
        keys.append(key)
        if key not in seen:
            seen[key] = Candidate(
                key=key,
                text=str(line.get("content") or ""),
                score=0.0,
                speaker=str(line.get("speaker") or ""),
                created_at=str(line.get("created_at") or ""),
                beside=anchor,
            )
    return tuple(keys)


def _dicts(lines: object) -> Iterable[Mapping[str, Any]]:
    return [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []


def _withheld(searches: Iterable[ToolStep]) -> str:
    for step in searches:
        message = str(step.answer.get("message") or "")
        if any(sign in message for sign in ("withheld", "敏感")):
            return message
    return ""
