"""Signatures of facts: their subject, content words and numbers, and what they deny or end.

Memories are compared by signature, because the same fact is rarely worded the same way twice.
Names of people are read and compared here too.
"""

import re
from dataclasses import dataclass

from memrecall.extraction.protocol import USER
from memrecall.extraction.rules.tables import load_table
from memrecall.text.keywords import extract_keywords
from memrecall.text.language import STOP_CHARS, STOP_TERMS
from memrecall.text.normalize import normalize, strip_accents
from memrecall.text.tokens import BREAK, analyze, is_cjk, stem
from memrecall.text.words import word_classes
from memrecall.text_length import cache_short_texts

SPEAKER_NAMES = frozenset({"", "user", "theuser", "用户", "me", "i", "我", "speaker"})
_SHARED, _CHINESE = load_table("shared"), load_table("zh")
_MAX_NAME = 4
_DAYS = {"mon": "1", "tue": "2", "wed": "3", "thu": "4", "fri": "5", "sat": "6", "sun": "7"}
_DAYS |= dict(zip("一二三四五六日天", "12345677", strict=True))
_COUNTS: dict[str, float] = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
}
_COUNTS |= {"nine": 9, "ten": 10, "half": 0.5, "半": 0.5, "一": 1}
_COUNTS |= dict(zip("两二三四五六七八九十", (2, *range(2, 11)), strict=True))
_LIGHT_STEMS = frozenset(map(stem, _SHARED.words("light_words"))) | STOP_TERMS
_LIGHT_CHARACTERS = _SHARED.words("light_characters") | STOP_CHARS
_LABELS = re.compile(r"\bUser(?:'s)?\b|用户")
_KEYWORDS = 6


@dataclass(frozen=True, slots=True)
class FactSignature:
    """The words that distinguish a fact from others of its kind; numbers are kept apart.

    `is_change` says that it was different before, `replaced` are the words of what it was, and
    `days` the weekdays on which it holds.
    """

    terms: frozenset[str]
    numbers: frozenset[str]
    is_negated: bool
    plain: str
    is_change: bool = False
    replaced: frozenset[str] = frozenset()
    days: frozenset[str] = frozenset()


@cache_short_texts(20_000, characters=1_000)
def fact_signature(text: str, subject: str = USER) -> FactSignature:
    """Return the signature of a sentence about a subject."""
    name = normalize(subject).casefold()
    plain = normalize(text).casefold()
    atoms = _atoms(plain.replace(name, " "))
    statement, old = _split_replaced(normalize(text))
    weekday, count = _SHARED.pattern("weekday_name"), _SHARED.pattern("count_word")
    words = _atoms(count.sub(" ", weekday.sub(" ", statement.casefold().replace(name, " "))))
    counts = {str(_COUNTS[match["word"] or match["zh"]]) for match in count.finditer(plain)}
    unambiguous = _SHARED.pattern("not_denying").sub(" ", plain)
    return FactSignature(
        _content(words) or _content(atoms) or frozenset(atoms) - {*filter(str.isdigit, atoms)},
        frozenset(atom for atom in words if atom[0].isdigit()) | counts,
        _SHARED.search("denies", unambiguous) is not None,
        "".join(atoms),
        _SHARED.search("change", unambiguous) is not None,
        _content(_atoms(old.casefold())),
        frozenset(_DAYS[match["day"] or match["zh"]] for match in weekday.finditer(plain)),
    )


def _atoms(text: str) -> list[str]:
    return [atom for atom in analyze(text).atoms if atom != BREAK]


def _content(atoms: list[str]) -> frozenset[str]:
    return frozenset(
        atom
        for atom in atoms
        if not atom[0].isdigit()
        and atom not in (_LIGHT_CHARACTERS if is_cjk(atom) else _LIGHT_STEMS)
    )


def _split_replaced(text: str) -> tuple[str, str]:
    """Split a sentence into what it states and what this replaces."""
    if match := _SHARED.search("replaced", text):
        old = next(group for group in match.groups() if group)
        return text.replace(old, " ", 1), old
    if match := _SHARED.fullmatch("preferred", text):
        if match["less"]:
            return match["preferred"], match["less"]
        return match["zh"] + match["zhpreferred"], match["zhless"]
    return text, ""


def fact_keywords(text: str, subject: str = USER) -> tuple[str, ...]:
    """Return the keywords of a fact without its subject."""
    bare = _LABELS.sub(" ", text.replace(subject, " "))
    return tuple(keyword.word for keyword in extract_keywords(bare, _KEYWORDS))


def overlap(first: FactSignature, second: FactSignature) -> float:
    """Return the share of content words in common, from 0 to 1."""
    union = first.terms | second.terms
    return len(first.terms & second.terms) / len(union) if union else 0.0


def fold_person_name(name: str) -> str:
    """Return a person's name without title, case, width, script, accents and punctuation.

    It compares speakers and subjects. Entities are compared by their `entity_key`, as in a graph.
    """
    bare = _SHARED.remove("title", normalize(name).strip())
    return re.sub(r"[\W_]+", "", strip_accents(bare.casefold()))


def end_name(name: str) -> str:
    """Return the name of an end of a relation; the user has one name in every language."""
    return USER if fold_person_name(name) in SPEAKER_NAMES and name else name


def is_name(text: str) -> bool:
    """Return True if a short text looks like a person's name: 李明, 小王, 张教授."""
    if text.isascii():
        return text[:1].isupper() and text.replace(" ", "").isalpha()
    if (
        text in _CHINESE.words("not_names")
        or len(text) > _MAX_NAME
        or _CHINESE.search("never_in_names", text)
    ):
        return False
    if _CHINESE.fullmatch("titled_name", text):
        return True
    if not (_CHINESE.fullmatch("full_name", text) or _CHINESE.fullmatch("familiar_name", text)):
        return False
    from rjieba import has_word

    # The segmenter knows common words; an unknown word with a surname is a name.
    classes = word_classes(text)
    is_nickname = _CHINESE.fullmatch("nickname", text) and classes[:1] == ["a"]  # 小段, not 小米
    return classes == ["nr"] or bool(is_nickname) or not has_word(text)
