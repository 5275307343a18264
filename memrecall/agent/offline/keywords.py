"""Keywords without a model: the telling words of a query, its times, and other forms of numbers."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from memrecall.text.keywords import extract_keywords
from memrecall.text.times import find_times

KeywordType = Literal["entity", "action", "concept", "time"]


@dataclass(frozen=True, slots=True)
class TypedKeyword:
    """A keyword with its weight and its kind."""

    word: str
    weight: float
    type: KeywordType


def extract_typed_keywords(
    query: str, context: str | None, limit: int, now: datetime, zone: ZoneInfo
) -> list[TypedKeyword]:
    """The telling words of a query, most telling first; the context adds what has room left."""
    spans = find_times(query, now, zone)
    words = [TypedKeyword(span.text, 0.6, "time") for span in spans]
    for text, share in ((query, 1.0), (context or "", 0.5)):
        found = extract_keywords(_without(text, [span.text for span in spans]), limit)
        words += [TypedKeyword(w.word, round(w.weight * share, 2), _type(w.word)) for w in found]
    unique = {word.word.casefold(): word for word in reversed(words)}
    ranked = sorted(unique.values(), key=lambda word: (-word.weight, word.word))
    return ranked[:limit]


def _without(text: str, parts: list[str]) -> str:
    for part in parts:
        text = text.replace(part, " ")
    return text


_NAME = re.compile(r"[A-Z0-9]|[./_@\\-]")


_NAMES = ("nr", "ns", "nt", "nz")  # people, places, bodies and other proper nouns


def _type(word: str) -> KeywordType:
    """By its looks: what has capitals, digits or the marks of a path names something.

    Chinese words are told by the segmenter, which knows names and verbs.
    """
    if word.isascii():
        return "entity" if _NAME.search(word) else "concept"
    from rjieba import tag  # loading its dictionary takes a moment

    tags = [kind for _, kind in tag(word)]
    if tags and all(kind.startswith(_NAMES) for kind in tags):
        return "entity"
    return "action" if tags == ["v"] else "concept"


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-./]+")
_COMPOUND = re.compile(r"[A-Za-z][a-z]*(?:-[a-z]+)+")
_SMALL_NUMBERS = (
    ("0", "zero", "零"),
    ("1", "one", "一"),
    ("2", "two", "二", "两"),
    ("3", "three", "三"),
    ("4", "four", "四"),
    ("5", "five", "五"),
    ("6", "six", "六"),
    ("7", "seven", "七"),
    ("8", "eight", "八"),
    ("9", "nine", "九"),
    ("10", "ten", "十"),
)
_COUNTED = re.compile(
    r"\b(\d{1,2}|zero|one|two|three|four|five|six|seven|eight|nine|ten)\b"
    r"|([零一二两三四五六七八九十])(?=[个次天周月年岁本位点号件只条])",
    re.IGNORECASE,
)


def expand_terms(query: str) -> tuple[str, ...]:
    """Other forms of the words of a query: parts of identifiers, numbers as digits and words."""
    more: dict[str, None] = {}
    for word in re.findall(r"[A-Za-z0-9_\-./]{4,}", query):
        if _COMPOUND.fullmatch(word):  # "hand-drip" is searched by its parts already
            continue
        parts = [part for part in _CAMEL.split(word) if len(part) > 2]
        more.update(dict.fromkeys(parts if len(parts) > 1 else ()))
    chinese = any("\u4e00" <= character <= "\u9fff" for character in query)
    for match in _COUNTED.finditer(query):
        said = match.group().lower()
        for forms in _SMALL_NUMBERS:
            if said in forms:
                wanted = (forms[0], *forms[2:]) if chinese else forms[:2]
                more.update(dict.fromkeys(form for form in wanted if form != said))
    return tuple(more)
