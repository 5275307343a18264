"""Keywords of a text, for display and search.

A word is scored by how specific, long and frequent it is. Identifiers, paths, e-mail addresses and
versions stay whole; a segmenter splits Chinese into words.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from memrecall.text.language import STOP_CHARS, STOP_TERMS, STOP_WORDS, tag_words
from memrecall.text.tokens import MAX_EXTRA_LENGTH, SCAN, normalize_with_offsets, stem


@dataclass(frozen=True, slots=True)
class WeightedWord:
    """A word and its weight, which is 1 for the best word of a text."""

    word: str
    weight: float


class _Kind(IntEnum):
    """How specific a word is, as a factor of its score."""

    OTHER = 1
    VERB = 2
    NOUN = 3
    PROPER_NOUN = 4
    IDENTIFIER = 5


@dataclass(slots=True)
class _Candidate:
    word: str  # its first spelling
    kind: _Kind
    count: int = 1

    def score(self) -> float:
        # Two Chinese characters weigh about as much as five Latin letters.
        size = len(self.word) / (2.5 if self.word.isascii() else 1)
        return self.kind * (1 + min(size, 4) / 4) * (1 + math.log2(self.count))


def extract_keywords(text: str, limit: int = 10) -> list[WeightedWord]:
    """Return the best keywords of a text, highest weight first, ties in text order."""
    candidates: dict[str, _Candidate] = {}
    plain, offsets = normalize_with_offsets(text)
    for key, kind, start, end in _scan(plain):
        if offsets is not None:
            start, end = offsets[start], offsets[end] if end < len(offsets) else len(text)
        if candidate := candidates.get(key):
            candidate.count += 1
            candidate.kind = max(candidate.kind, kind)
        else:
            candidates[key] = _Candidate(text[start:end], kind)
    ranked = sorted(candidates.values(), key=_Candidate.score, reverse=True)[: max(limit, 0)]
    return [WeightedWord(c.word, round(c.score() / ranked[0].score(), 4)) for c in ranked]


def _scan(plain: str) -> Iterator[tuple[str, _Kind, int, int]]:
    """Yield each candidate: the key that equal words share, its kind, where it starts and ends."""
    for match in SCAN.finditer(plain):
        if match.lastgroup == "cjk":
            yield from _scan_chinese(match.group(), match.start())
        elif match.lastgroup == "lang":
            yield match.group().casefold(), _Kind.IDENTIFIER, match.start(), match.end()
        elif match.lastgroup == "chunk":
            start = _find_path_start(plain, match.start(), match.group())
            end = match.end() - (2 if match.group().endswith(("'s", "'S")) else 0)
            word = plain[start:end]
            if kind := _classify_latin(word, _opens_sentence(plain, start)):
                is_compound = len(_PARTS.findall(word)) > 1 and "'" not in word
                yield word.casefold() if is_compound else stem(word), kind, start, end


_TAGS = {
    _Kind.PROPER_NOUN: "nr ns nt nz",
    _Kind.NOUN: "n vn j",  # j: abbreviations
    _Kind.VERB: "v",
    _Kind.OTHER: "a b i l s t z",  # i: idioms, s: places, t: times
}
_KIND_OF_TAG = {tag: kind for kind, tags in _TAGS.items() for tag in tags.split()}
_NEVER_START = "我你您他她它"
_NEVER_END = "在和与是的了把被对"


def _scan_chinese(run: str, start: int) -> Iterator[tuple[str, _Kind, int, int]]:
    from rjieba import has_word  # loading its dictionary takes a moment

    for token, pos in tag_words(run):
        word = token
        if not has_word(token):  # guessed, and often with characters of others: 张三在, 我养
            word = token.lstrip(_NEVER_START)
            word = word.rstrip(_NEVER_END) if len(word) > 2 else word
        kind = _KIND_OF_TAG.get(pos[:2]) or _KIND_OF_TAG.get(pos[:1])
        if kind and not _is_stop_word_zh(word, kind):
            begin = start + token.index(word)
            yield word, kind, begin, begin + len(word)
        start += len(token)


def _is_stop_word_zh(word: str, kind: _Kind) -> bool:
    is_short = len(word) == 1 and kind < _Kind.NOUN
    return is_short or word in STOP_WORDS or STOP_CHARS.issuperset(word)


_PARTS = re.compile(r"[^\W_]+")
_INNER_CAPITAL = re.compile(r"[^\W\d_A-Z][A-Z]")
_PLAIN_COMPOUND = re.compile(r"[^\W\d_]+(?:['\-/][^\W\d_]+)+")  # well-known, client/server
_SENTENCE_ENDS = (".", "!", "?", "。", "！", "？", "\n")


def _find_path_start(plain: str, start: int, chunk: str) -> int:
    """Return the start of a path with its `/`, `./` or `~/`, which chunks do not include."""
    for root in ("~/", "../", "./"):
        if plain.endswith(root, 0, start):
            return start - len(root)
    return start - 1 if "/" in chunk and plain.endswith("/", 0, start) else start


def _opens_sentence(plain: str, start: int) -> bool:
    before = plain[max(start - 4, 0) : start].rstrip(" \t\"'(")
    return not before or before.endswith(_SENTENCE_ENDS)


def _classify_latin(word: str, opens_sentence: bool) -> _Kind | None:
    """Return the kind of a Latin word, None for a stop word."""
    parts = _PARTS.findall(word)
    if len(word) > MAX_EXTRA_LENGTH or _is_stop_word(word, parts):
        return None
    if word.isdigit():
        return _Kind.OTHER
    if _is_identifier(word, parts):
        return _Kind.IDENTIFIER
    if word.isupper() or (word[0].isupper() and not opens_sentence):
        return _Kind.PROPER_NOUN
    return _Kind.NOUN


def _is_stop_word(word: str, parts: list[str]) -> bool:
    if stem(word) in STOP_TERMS or all(stem(part) in STOP_TERMS for part in parts):
        return True
    return all(len(part) == 1 for part in parts) and (len(parts) == 1 or word.islower())


def _is_identifier(word: str, parts: list[str]) -> bool:
    if len(parts) > 1 and not _PLAIN_COMPOUND.fullmatch(word):
        return True
    return any(char.isdigit() for char in word) or bool(_INNER_CAPITAL.search(word))
