"""Reading a request: what its last user message refers to, and by which words to look for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from memrecall.agent.rules.content import LONGEST_READ, content_words, exact_words, undress
from memrecall.agent.rules.coverage import covered
from memrecall.agent.rules.personal import OWN
from memrecall.agent.rules.references import Reference, find_references
from memrecall.agent.rules.timing import Timing, read_timing
from memrecall.agent.rules.whose import Whose, whose_words
from memrecall.agent.rules.words import (
    ASKING,
    COUNT,
    LEANINGS,
    PREFERENCE,
    WANTING,
    WHEN,
)
from memrecall.model.prompts import Language
from memrecall.search.request import Mode
from memrecall.text.languages import language_of
from memrecall.text.times import find_times

Asks = Literal["fact", "count", "when", "preference"]
_FAR = frozenset({"past", "said", "alike"})


@dataclass(frozen=True, slots=True)
class Line:
    """A message of the window."""

    role: str
    text: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A request as the rules understand it."""

    language: Language
    text: str  # the asked message
    question: str  # the same without politeness
    references: tuple[Reference, ...]
    words: tuple[str, ...]  # content words of the asked message, most telling first
    exact: tuple[str, ...]  # quotations, paths, identifiers, numbers
    timing: Timing
    whose: Whose | None
    personal: bool  # asks for a fact about the user, whatever was talked about before
    asks: Asks
    mode: Mode
    leaning: str | None  # the type of memory that is rather meant
    earlier: tuple[Line, ...]  # the messages before it, latest first

    @property
    def bare(self) -> bool:
        """Whether it points at something and names nothing."""
        return bool(self.references) and not self.words and not self.exact

    @property
    def empty(self) -> bool:
        """Whether it neither points nor names: a greeting, a nod."""
        return not (self.references or self.words or self.exact or self.timing.spans)

    @property
    def points_back(self) -> bool:
        """Whether it points at an earlier conversation, not only at this one."""
        return any(reference.to in _FAR for reference in self.references)

    @property
    def topical(self) -> bool:
        """Whether it is the conversation that is to be searched by, not one question."""
        alone = (self.points_back or self.personal) and not self.replies
        return bool(self.earlier) and (self.bare or not alone)

    @property
    def replies(self) -> bool:
        """Whether it answers a question and asks nothing: "last time I …" only tells something."""
        if not self.earlier or self.earlier[0].role == "user":
            return False
        if any(pattern.search(self.text) for pattern in (*ASKING, *WANTING)):
            return False
        return any(mark in self.earlier[0].text for mark in "?？")

    @property
    def context_words(self) -> tuple[str, ...]:
        """Content words of the earlier messages, the latest message first."""
        return tuple(dict.fromkeys(word for line in self.earlier for word in line.words))


def read_request(messages: Sequence[Mapping[str, Any]], now: datetime, zone: ZoneInfo) -> Reading:
    """Read the window's messages; the last one of the user is what is asked."""
    place = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
    asked = str(messages[place].get("text", "")) if messages else ""
    text = asked[:LONGEST_READ]
    spans = find_times(text, now, zone)
    words, exact = content_words(text, spans), exact_words(text, spans)
    references = find_references(text)
    asking = bool(references) or any(pattern.search(text) for pattern in ASKING)
    return Reading(
        language=language_of(asked),
        text=text,
        question=undress(text),
        references=references,
        words=words,
        exact=exact,
        timing=read_timing(text, spans),
        # Who tells that he likes something asks for nobody's words.
        whose=whose_words(text) if asking else None,
        personal=any(pattern.search(text) for pattern in OWN),
        asks=_asks(text),
        # A question around an exact word is found better by both sides together.
        mode="keyword" if exact and covered(words, " ".join(exact)) >= 1 else "hybrid",
        leaning=_leaning(text),
        earlier=_earlier(messages[:place] if place >= 0 else messages[:-1]),
    )


def _earlier(messages: Sequence[Mapping[str, Any]]) -> tuple[Line, ...]:
    kept = [m for m in reversed(messages) if m.get("role") in ("user", "assistant", "other")]
    return tuple(
        Line(str(m["role"]), text, content_words(text))
        for m in kept
        if (text := str(m.get("text", ""))[:LONGEST_READ])
    )


def _asks(text: str) -> Asks:
    tables: tuple[tuple[Asks, Any], ...] = (
        ("count", COUNT),
        ("when", WHEN),
        ("preference", PREFERENCE),
    )
    for name, pair in tables:
        if any(pattern.search(text) for pattern in pair):
            return name
    return "fact"


def _leaning(text: str) -> str | None:
    for name, pair in LEANINGS.items():
        if any(pattern.search(text) for pattern in pair):
            return name
    return None
