"""Words and patterns that the rules share; none of them belongs to a subject area.

The lists of words are in `vocabulary.json`.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

_TABLE: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("vocabulary.json").read_text("utf-8")
)


def listed(name: str) -> str:
    """Return a list of `vocabulary.json`, with a comma or a line break between its phrases."""
    return "\n".join(_TABLE[name])


def alternation(phrases: str) -> str:
    """Return a regex alternation of comma- or line-separated phrases, longest first."""
    parts = [phrase.strip() for phrase in re.split(r"[,\n]", phrases) if phrase.strip()]
    return "|".join(sorted(parts, key=len, reverse=True))


def chinese_pattern(phrases: str) -> re.Pattern[str]:
    """Compile Chinese phrases, which match anywhere in a text."""
    return re.compile(alternation(phrases))


def english_pattern(phrases: str) -> re.Pattern[str]:
    """Compile English phrases, which match as whole words in any case."""
    return re.compile(rf"\b(?:{alternation(phrases)})\b", re.IGNORECASE)


def pattern_ignoring_case(*alternatives: str) -> re.Pattern[str]:
    """Compile regular expressions into one case-insensitive pattern."""
    return re.compile("|".join(alternatives), re.IGNORECASE)


def matches_any(text: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    """Return True if at least one of the patterns occurs in the text."""
    return any(pattern.search(text) for pattern in patterns)


# A time next to a verb of speech is the time of a message, not of an event.
SPEECH_VERBS_ZH = listed("speech_verbs_zh")
BASE_SPEECH_VERBS_EN = listed("base_speech_verbs_en")
PAST_SPEECH_VERBS_EN = listed("past_speech_verbs_en")
SPEECH_VERBS_EN = (
    f"{BASE_SPEECH_VERBS_EN},{PAST_SPEECH_VERBS_EN},saying,telling,mentioning,discussing,talking"
)
# What an assistant does for a user.
ASSISTANCE_VERBS_ZH = listed("assistance_verbs_zh")


# Phrases around a request that do not describe its subject.
POLITE_PHRASES = (chinese_pattern(listed("polite_zh")), english_pattern(listed("polite_en")))

# Words that do not identify a subject: verbs of asking and doing, generic nouns.
GENERIC_WORDS_ZH = frozenset(listed("generic_words_zh").split())
GENERIC_WORDS_EN = frozenset(listed("generic_words_en").split())

# Questions for a count, or for all of something.
QUESTIONS_FOR_ALL = (chinese_pattern(listed("for_all_zh")), english_pattern(listed("for_all_en")))
QUESTION_MARKERS = (
    chinese_pattern(listed("question_zh")),
    pattern_ignoring_case(
        r"\?",
        r"^\W*(?:what|when|where|who|whom|whose|which|why|how|did|do|does|is|are|was|were|have|has"
        r"|can|could|would|will|should)\b",
    ),
)
# Marks of a request for what somebody asked. 请问 is polite, 问题 mostly a problem.
ASKING = (re.compile("(?<!请)问(?!题)"), english_pattern("ask,asks,asked,asking,questions?"))
# Markers of a request that is not phrased as a question.
REQUEST_MARKERS = (chinese_pattern(listed("request_zh")), english_pattern(listed("request_en")))
