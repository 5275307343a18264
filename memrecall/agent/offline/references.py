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


_CLAUSE = "[^，。？！,.?!]"
_AUXILIARIES = "(?:'ve|'d| have| had| already| once| just| also| ever| both)*"
_PAST_VERBS = alternation(
    PAST_SPEECH_VERBS_EN + ",suggested,recommended,gave,sent,decided,planned,settled,chose"
)
_BASE_VERBS = alternation(BASE_SPEECH_VERBS_EN + ",suggest,recommend,decide")
_ACTIVITY_VERBS = "found|made|built|booked|hired|picked|set up|came up with|worked on|used"
# "that" is a pointer after these words; after a noun it only joins two clauses.
_BEFORE_POINTER = listed("before_pointer_en")
_NOT_A_NOUN = "is|was|are|were|i|you|we|he|she|they|the|a|it|can|will|would|much|many"
# In this order: of two kinds that match the same words, the first counts.
_REFERENCES: dict[ReferenceKind, tuple[re.Pattern[str], ...]] = {
    "past": (
        chinese_pattern(listed("past_zh")),
        english_pattern(listed("past_en")),
        pattern_ignoring_case(r"\bbefore(?=\s*(?:[?.!,]|$))"),
    ),
    "alike": (
        chinese_pattern(listed("alike_zh")),
        re.compile(rf"(?:像|跟|和|同|与){_CLAUSE}{{1,12}}?(?:一样|那样|似的)"),
        re.compile(
            rf"(?:按照?|照着?|依照|参照|根据){_CLAUSE}{{1,20}}?(?:来|做|办|弄|写|改|处理|执行)"
        ),
        english_pattern(listed("alike_en")),
    ),
    "said": (
        re.compile(
            rf"(?:{alternation(SPEECH_VERBS_ZH)})(?:过|到过|好的|定的|到的|起的|的(?!是|话|时候))"
        ),
        re.compile(
            "(?:我们|咱们?|我|你|您)[^，。？！]{0,4}?"
            "(?:定|约|选|挑|说好|商定|决定|存|保存|记)(?:的|好的|下的|过的)"
        ),
        re.compile(
            "[你您][^，。？！]{0,6}?(?:给我|推荐|建议|发我|发给我|写给我|教我|列|写|整理|总结|生成|安排|做)"
            "(?:的|过)"
        ),
        chinese_pattern(listed("said_zh")),
        pattern_ignoring_case(
            rf"\b(?:i|you|we|he|she|they|us)\b{_AUXILIARIES}\s+(?:{_PAST_VERBS})\b"
        ),
        pattern_ignoring_case(rf"\bdid (?:i|you|we) (?:\w+ )?(?:{_BASE_VERBS})\b"),
        pattern_ignoring_case(rf"\b(?:i|you|we) (?:{_ACTIVITY_VERBS})\b"),
        english_pattern(listed("said_en")),
    ),
    "near": (
        chinese_pattern(listed("near_zh")),
        re.compile(r"[这此]\s?(?:个|份|次|件|条|篇|本|些|种|里|样)|它们?"),
        english_pattern(listed("near_en")),
    ),
    "thing": (
        re.compile(
            r"那\s?(?:个|份|件|条|篇|本|些|种|家|款|套|张|部|位|首|段|台|只|间|座|场|封|道|批)"
        ),
        english_pattern(listed("thing_en")),
        pattern_ignoring_case(
            rf"(?:^|[,.;:?!]\s*|\b(?:{alternation(_BEFORE_POINTER)})\s+)"
            rf"(?:that|those)\s+(?!(?:{_NOT_A_NOUN})\b)[a-z]+"
        ),
    ),
}


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
