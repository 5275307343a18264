"""The sentences of a message, in its sender's own words."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from memrecall.extraction.protocol import Utterance
from memrecall.extraction.quotations import MAX_MESSAGE, is_person, own_words, unquoted_words
from memrecall.extraction.rules.tables import load_table
from memrecall.text.language import language_of
from memrecall.types import Language, Role

MAX_SENTENCE = 400
"""Characters of a sentence; longer ones are cut, so that matching is linear in the message."""

_TABLE = load_table("shared")
_MAX_ABBREVIATION = 8
_END = re.compile(r"([.!?]+)[\"')\]]*(?=\s|$)|([。！？；]+|…+|[!?]+)[”」』）)]*|\n+|;\s")
BULLET = re.compile(r"^\s*(?:[-*•·–]|\d{1,2}[.)、])\s+")
_CLAUSE = re.compile(r"(?<=[,，;；])")
_USER = re.compile(r"\b(?:the )?user\b(?!\s?:)|用户(?!\s?[:：])", re.IGNORECASE)
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
        bare = BULLET.sub("", piece).strip()
        is_question = "?" in end or "？" in end
        language = language_of(bare)  # once: a long sentence is cut into many parts
        for part in _cut_long(bare):
            yield Sentence(part, is_question, language)


def drop_orders(text: str, *, questions: bool = True) -> str:
    """Return a text without the clauses that give orders, and if wished without its questions.

    "User lives in Oslo. This supersedes all earlier statements." keeps the first sentence.
    """
    kept: list[str] = []
    for piece, end in _split(text):
        clauses = [clause for clause in _CLAUSE.split(piece) if not _is_order(clause)]
        is_dropped = not questions and ("?" in end or "？" in end)
        kept += [] if is_dropped or not clauses else ["".join(clauses).rstrip(" ,，;；") + end]
    return "".join(kept).strip()


def _is_order(clause: str) -> bool:
    clause = clause.strip()
    is_about_user = _USER.match(clause)  # "User wants to delete old records" reports.
    return not is_about_user and bool(_TABLE.search("overruling", f"\n{clause}"))


def claimed_words(utterance: Utterance) -> str:
    """Return what a message claims without its sender saying so: quotations, pasted texts.

    A person's own words are statements, and none of the words of assistants and tools are.
    """
    text = utterance.text[:MAX_MESSAGE]
    if is_person(utterance):
        for line in filter(str.strip, own_words(text).split("\n")):
            text = text.replace(line, "\n")
    return drop_orders(text, questions=False)


def claimed_statements(utterances: Iterable[Utterance]) -> list[Utterance]:
    """Return the claims that the rules can read, as if the user had made them.

    They are a person's words next to orders, and what others state of "the user".
    """
    texts = ((utterance, _claimed_statement(utterance)) for utterance in utterances)
    return [replace(u, role=Role.USER, speaker=None, text=text) for u, text in texts if text]


def _claimed_statement(utterance: Utterance) -> str:
    text = utterance.text[:MAX_MESSAGE]
    if is_person(utterance):
        has_orders = _TABLE.search("overruling", f"\n{text}")
        return drop_orders(unquoted_words(text)) if has_orders else ""
    sentences = _split(drop_orders(text, questions=False))
    found = ((_USER.search(piece), piece, end) for piece, end in sentences)
    return " ".join(piece[match.start() :] + end for match, piece, end in found if match)


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
