"""Normalisation of width, compatibility forms, traditional and invisible characters.

The tokenizer folds case: it needs the case to split `getUserName`.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from memrecall.text_length import cache_short_texts
from memrecall.types import NAME_LENGTH

_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_LIGHT_PUNCTUATION = {0x2026: 0x2C, 0x2018: 0x27, 0x2019: 0x27, 0x201C: 0x22, 0x201D: 0x22}
# NFKC turns these into combining marks (ｶﾞ is ガ).
_LATE_MARKS = "\u0f73\u0f75\u0f81\uff9e\uff9f"
# Characters without width, variants and skin tones: a word is found with and without them.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]+"
)
# NFKC turns these into 18 and 8 characters: a megabyte of them would take as many.
_LONG_LIGATURES = "\ufdfa\ufdfb"
# Between two parts of a long text other threads run: a megabyte at once takes 200 ms.
_PART = 100_000
_HAN_BLOCKS = (range(0x3400, 0xA000), range(0xF900, 0xFB00), range(0x20000, 0x2FA20))


@cache
def _to_simplified() -> dict[int, int]:
    """Return a map of single characters: search needs no conversion of phrases."""
    from opencc import OpenCC  # loading the tables takes a moment

    codes = [code for block in _HAN_BLOCKS for code in block]
    # One character per line, so that the converter sees no phrases.
    converted = OpenCC("t2s").convert("\n".join(map(chr, codes))).split("\n")
    pairs = zip(codes, converted, strict=True)
    table = {code: ord(out) for code, out in pairs if len(out) == 1 and ord(out) != code}
    return {code: table.get(out, out) for code, out in table.items()}


@cache
def _one_to_one() -> dict[int, int]:
    return _FULL_WIDTH | _LIGHT_PUNCTUATION | _to_simplified()


def replace_characters(text: str) -> str:
    """Return the text in half width and simplified characters, positions unchanged."""
    if text.isascii():
        return text
    table = _one_to_one()
    if len(text) <= _PART:
        return text.translate(table)
    return "".join(text[at : at + _PART].translate(table) for at in range(0, len(text), _PART))


def normalize(text: str) -> str:
    """Return the text in NFKC, half width and simplified characters, case unchanged."""
    return normalize_with_offsets(text)[0]


def normalize_with_offsets(text: str) -> tuple[str, list[int] | None]:
    """Return the normalised text and the original position of each character.

    The positions are None if none has changed.
    """
    plain = replace_characters(text)
    if _is_normalized(plain):
        return plain, None
    return _compose_by_cluster(plain)


def _is_normalized(text: str) -> bool:
    return text.isascii() or (
        unicodedata.is_normalized("NFKC", text) and _INVISIBLE.search(text) is None
    )


def _compose_by_cluster(text: str) -> tuple[str, list[int]]:
    """Apply NFKC to one cluster at a time, a character and its marks, to know the offsets."""
    pieces: list[str] = []
    offsets: list[int] = []
    for low, high in _blocks(text):
        if _is_normalized(text[low:high]):
            pieces.append(text[low:high])
            offsets.extend(range(low, high))
            continue
        clusters = _clusters(text[low:high])
        composed = {cluster: _compose(cluster) for cluster in set(clusters)}
        for cluster in clusters:
            piece = composed[cluster]
            pieces.append(piece)
            offsets.extend([low] * len(piece))
            low += len(cluster)
    return "".join(pieces), offsets


def _clusters(block: str) -> Sequence[str]:
    # Few characters are different ones, and in most texts none is a mark.
    marks = set(filter(_extends, set(block)))
    if not marks:
        return block
    starts = [i for i, char in enumerate(block) if i == 0 or char not in marks]
    return [block[start:end] for start, end in pairwise([*starts, len(block)])]


@cache_short_texts(10_000, characters=7)
def _compose(cluster: str) -> str:
    visible = _INVISIBLE.sub("", cluster)
    if visible[:1] in _LONG_LIGATURES:
        return visible
    return unicodedata.normalize("NFKC", visible).translate(_one_to_one())


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield blocks of whole clusters: one odd character must not slow down a megabyte."""
    low = 0
    while low < len(text):
        high = low + 256
        while high < len(text) and _extends(text[high]):
            high += 1
        yield low, min(high, len(text))
        low = high


def _extends(char: str) -> bool:
    return (
        unicodedata.combining(char) != 0
        or char in _LATE_MARKS
        or (char > "\xac" and _INVISIBLE.match(char) is not None)
    )


def normalize_caseless(text: str) -> str:
    """Return a text as it is compared: without differences of width, script and case."""
    return normalize(text).casefold().strip()


def fold_spaces(text: str) -> str:
    """Return a text without differences of width, case and spacing; the script is kept."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def entity_key(name: str) -> str:
    """Return what identifies an entity by its name; graphs store it.

    Punctuation counts: C, C# and C++ are three entities.
    """
    return fold_spaces(name)[:NAME_LENGTH]


def strip_accents(word: str) -> str:
    """Return `cafe` for `café`, so that either spelling finds the other."""
    if word.isascii():
        return word
    decomposed = unicodedata.normalize("NFD", word)
    bare = "".join(char for char in decomposed if not unicodedata.combining(char))
    return unicodedata.normalize("NFC", bare)
