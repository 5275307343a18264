"""The sentences of a message, in its sender's own words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from memrecall.extraction.own_words import own_words
from memrecall.extraction.rules.tables import load_table
from memrecall.text.language import language_of
from memrecall.types import Language

MAX_SENTENCE = 400
"""Characters of a sentence; longer ones are cut, so that matching is linear in the message."""

_TABLE = load_table("shared")
_MAX_ABBREVIATION = 8
_END = re.compile(r"([.!?]+)[\"')\]]*(?=\s|$)|([。！？；]+|…+|[!?]+)[”」』）)]*|\n+|;\s")
_BULLET = re.compile(r"^\s*(?:[-*•·–]|\d{1,2}[.)、])\s+")
_CUT = re.compile(r"[，,；;、 ](?=[^，,；;、 ]*$)")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence without its end mark."""

    text: str
    is_question: bool
    language: Language


def split_sentences(text: str, *, whole: bool = False) -> Iterator[Sentence]:
    """Yield the sentences of a sender in order: their own words, or the whole text."""
    for piece, end in _split(text if whole else own_words(text)):
        bare = _BULLET.sub("", piece).strip()
        is_question = "?" in end or "？" in end
        language = language_of(bare)  # once: a long sentence is cut into many parts
        for part in _cut_long(bare):
            yield Sentence(part, is_question, language)


def is_balanced(text: str) -> bool:
    """Return True if every opening bracket is closed: half of a remark is no statement."""
    pairs = (("(", ")"), ("（", "）"), ("[", "]"), ("【", "】"))
    return all(text.count(opening) == text.count(closing) for opening, closing in pairs)


def _split(text: str) -> Iterator[tuple[str, str]]:
    start = 0
    for match in _END.finditer(text):
        if match.group(1) == ".":
            before = text[max(start, match.end(1) - _MAX_ABBREVIATION) : match.end(1)]
            if _TABLE.search("abbreviation", before):
                continue
        yield text[start : match.start()], match.group()
        start = match.end()
    yield text[start:], ""


def _cut_long(text: str) -> Iterator[str]:
    while len(text) > MAX_SENTENCE:
        comma = _CUT.search(text[:MAX_SENTENCE])
        end = comma.end() if comma else MAX_SENTENCE
        yield text[:end].strip(" ，,；;、")
        text = text[end:]
    if text.strip():
        yield text.strip()
