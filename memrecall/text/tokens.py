"""Search terms of a text: Chinese characters, stems of Latin words, identifiers, emoji.

A text is normalised first: width, compatibility forms, traditional and invisible characters. The
tokenizer folds case: it needs the case to split `getUserName`.

`analyze` returns *atoms*, which have a position in the text and form phrases, and *extras*, which
are alternative terms: `db_config_001` has the atoms db, config, 001 and itself as an extra. The
index forms bigrams of adjacent Chinese characters. A change of any rule here must increase
`TEXT_VERSION`, so that stored rows are analysed again.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
def _one_to_one() -> dict[int, int]:
    """Return a map of single characters: search needs no conversion of phrases."""
    from opencc import OpenCC  # loading the tables takes a moment

    codes = [code for block in _HAN_BLOCKS for code in block]
    # One character per line, so that the converter sees no phrases.
    converted = OpenCC("t2s").convert("\n".join(map(chr, codes))).split("\n")
    pairs = zip(codes, converted, strict=True)
    table = {code: ord(out) for code, out in pairs if len(out) == 1 and ord(out) != code}
    simplified = {code: table.get(out, out) for code, out in table.items()}
    return _FULL_WIDTH | _LIGHT_PUNCTUATION | simplified


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
    # NFKC of one cluster at a time, a character and its marks, so that the offsets are known.
    pieces: list[str] = []
    offsets: list[int] = []
    for low, high in _blocks(plain):
        block = plain[low:high]
        if _is_normalized(block):
            pieces.append(block)
            offsets.extend(range(low, high))
            continue
        clusters = _clusters(block)
        composed = {cluster: _compose(cluster) for cluster in set(clusters)}
        for cluster in clusters:
            piece = composed[cluster]
            pieces.append(piece)
            offsets.extend([low] * len(piece))
            low += len(cluster)
    return "".join(pieces), offsets


def _is_normalized(text: str) -> bool:
    return text.isascii() or (
        unicodedata.is_normalized("NFKC", text) and _INVISIBLE.search(text) is None
    )


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


TEXT_VERSION = 2
BREAK = "|"  # a pseudo-atom between Chinese characters that punctuation separates
MAX_EXTRA_LENGTH = 128

# Scripts written without spaces: Han with its extensions and marks, kana, Hangul.
CJK = (
    "\u3005-\u3007\u3040-\u30fa\u30fc-\u30ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# Pictures: symbols, dingbats and emoji, flags as pairs of letters. Arrows and bullets are signs.
EMOJI = "[\U0001f1e6-\U0001f1ff]{2}|[\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
WORD = rf"(?:[^\W_{CJK}]+(?:'[^\W_{CJK}]+)*)"
SCAN = re.compile(
    rf"(?P<cjk>[{CJK}]+)"
    rf"|(?P<lang>[A-Za-z](?:\+\+|\#)(?![^\W{CJK}]))"  # C++, C#, F#
    rf"|(?P<chunk>{WORD}(?:[._\-/\\@:~+=&%]+{WORD})*)"
    rf"|(?P<emoji>{EMOJI})"
    r"|(?P<stop>[^\w\s])"
)
_WORDS = re.compile(WORD)
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VERSION = re.compile(r"(?<![^\W_])[vV]((\d+)(?:\.\d+)+)")
_IS_CJK = re.compile(rf"[{CJK}]")
_IS_EMOJI = re.compile(EMOJI)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The searchable form of a text."""

    atoms: list[str]
    extras: list[str]

    def to_search_text(self) -> str:
        """Return the line that is stored: atoms, a tab, extras."""
        return " ".join(self.atoms) + "\t" + " ".join(self.extras)


def is_cjk(term: str) -> bool:
    """Return True if a term is a single character of a script without spaces."""
    return len(term) == 1 and _IS_CJK.match(term) is not None


def is_emoji(term: str) -> bool:
    """Return True if a term is an emoji."""
    return _IS_EMOJI.fullmatch(term) is not None


def analyze(text: str) -> Analysis:
    """Return the atoms and extras of a text, in order."""
    atoms: list[str] = []
    extras: list[str] = []
    after_stop = False
    for match in SCAN.finditer(normalize(text)):
        kind = match.lastgroup
        if kind == "stop":
            after_stop = True
            continue
        if kind == "cjk":
            if after_stop and atoms and is_cjk(atoms[-1]):
                atoms.append(BREAK)
            atoms.extend(match.group())
        elif kind in ("lang", "emoji"):
            atoms.append(match.group().casefold())
        else:
            terms, more = _read_chunk(match.group())
            atoms.extend(terms)
            extras.extend(more)
        after_stop = False
    return Analysis(atoms, extras)


@cache_short_texts(50_000, MAX_EXTRA_LENGTH)
def _read_chunk(chunk: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the stems of a chunk's words, and as extras the whole and the words' parts."""
    words = _WORDS.findall(_VERSION.sub(r"\1", chunk))  # 1.2.3 is a phrase of v1.2.3-rc.1.
    extras: list[str] = []
    if len(words) > 1 and len(chunk) <= MAX_EXTRA_LENGTH:
        extras.append(fold_word(chunk))
        extras.extend(x for v in _VERSION.finditer(chunk) for x in (v[1], f"v{v[2]}"))
    for word in words:
        # Splitting is for ASCII only: Müller is not M and ller.
        parts = _CAMEL.findall(word) if word.isascii() and "'" not in word else []
        if len(parts) > 1:
            extras.extend(stem(part) for part in parts)
    return tuple(map(stem, words)), tuple(extras)


def last_word(text: str) -> str:
    """Return the last word of a text, folded but not stemmed, for prefix search."""
    words = _WORDS.findall(normalize(text))
    return fold_word(words[-1]) if words else ""


def fold_word(word: str) -> str:
    """Return a word without differences of case and accents."""
    return word.lower() if word.isascii() else strip_accents(word.casefold())


@cache
def _stemmer() -> object:
    from Stemmer import Stemmer

    return Stemmer("english")


@cache_short_texts(50_000, MAX_EXTRA_LENGTH)
def stem(word: str) -> str:
    """Return a word's search term: folded, without accents, an English stem if Latin."""
    folded = fold_word(word)
    if folded.isascii() and folded.replace("'", "").isalpha():
        folded = _stemmer().stemWord(folded)  # type: ignore[attr-defined]
    return folded.replace("'", "")
