"""Patterns of references to the past and of questions about the user."""

import re
from dataclasses import dataclass
from typing import Literal

from memrecall.agent.offline.vocabulary import (
    BASE_SPEECH_VERBS_EN,
    PAST_SPEECH_VERBS_EN,
    SPEECH_VERBS_ZH,
    alternation,
    chinese_pattern,
    english_pattern,
    listed,
    pattern_ignoring_case,
)

# near: this conversation; past: an earlier one; said: someone's words; alike: done as before;
# thing: a definite thing that may be anywhere.
ReferenceKind = Literal["near", "past", "said", "alike", "thing"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A phrase that points at something, and where that is to be found."""

    text: str
    kind: ReferenceKind


# What the patterns of `vocabulary.json` name in angle brackets.
_PARTS = {
    "clause": "[^，。？！,.?!]",
    "auxiliaries": "(?:'ve|'d| have| had| already| once| just| also| ever| both)*",
    "past_verbs": alternation(
        PAST_SPEECH_VERBS_EN + ",suggested,recommended,gave,sent,decided,planned,settled,chose"
    ),
    "base_verbs": alternation(BASE_SPEECH_VERBS_EN + ",suggest,recommend,decide"),
    "speech_verbs_zh": alternation(SPEECH_VERBS_ZH),
    # "that" is a pointer after these words; after a noun it only joins two clauses.
    "before_pointer": alternation(listed("before_pointer_en")),
}


def _patterns_of(kind: ReferenceKind) -> tuple[re.Pattern[str], ...]:
    patterns = listed(f"{kind}_patterns").split("\n")
    filled = [re.sub(r"<(\w+)>", lambda part: _PARTS[part[1]], pattern) for pattern in patterns]
    phrases = chinese_pattern(listed(f"{kind}_zh")), english_pattern(listed(f"{kind}_en"))
    return *map(pattern_ignoring_case, filled), *phrases


# In this order: of two kinds that match the same words, the first counts.
_KINDS: tuple[ReferenceKind, ...] = ("past", "alike", "said", "near", "thing")
_REFERENCES = {kind: _patterns_of(kind) for kind in _KINDS}


def find_references(text: str) -> tuple[Reference, ...]:
    """Return all references in a text, in order of position."""
    matches = [
        (match.span(), kind, match.group())
        for kind, patterns in _REFERENCES.items()
        for pattern in patterns
        for match in pattern.finditer(text)
    ]
    matches.sort(key=lambda match: match[0])
    return tuple(Reference(words, kind) for _, kind, words in matches)


# Questions about the user, or about what user and assistant did together.
QUESTIONS_ABOUT_USER = tuple(
    pattern_ignoring_case(*listed(f"patterns_about_user_{language}").split("\n"))
    for language in ("en", "zh")
)
