"""Search terms of a text: Chinese characters, stems of Latin words, identifiers, emoji.

`analyze` returns *atoms*, which have a position in the text and form phrases, and *extras*, which
are alternative terms: `db_config_001` has the atoms db, config, 001 and itself as an extra. The
index forms bigrams of adjacent Chinese characters. A change of any rule here must increase
`TEXT_VERSION`, so that stored rows are analysed again.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from memrecall.text.normalize import normalize, strip_accents
from memrecall.text_length import cache_short_texts

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


@dataclass(frozen=True, slots=True)
class MatchableText:
    """A text or word prepared for word matching."""

    plain: str
    terms: frozenset[str]

    @classmethod
    def from_text(cls, text: str) -> "MatchableText":
        """Normalise and analyse a text once, to match many words against it."""
        analysis = analyze(text)
        terms = frozenset(analysis.atoms) | frozenset(analysis.extras)
        return cls(normalize(text).casefold(), terms)

    def match(self, word: "MatchableText") -> float:
        """Return how much of a word the text contains, from 0 to 1.

        Only long Chinese words can match in part. Latin words match by stem, so that "art" is not
        found in "party".
        """
        is_latin_word = word.plain.isalpha() and word.plain.isascii()
        if not is_latin_word and word.plain in self.plain:
            return 1.0
        if word.plain.isascii():
            return float(bool(word.terms) and self.terms >= word.terms)
        bigrams = [a + b for a, b in pairwise(word.plain)]
        if len(bigrams) <= 1:
            return 0.0
        return sum(bigram in self.plain for bigram in bigrams) / len(bigrams)


def word_coverage(words: Iterable[str], text: str) -> float:
    """Return the share of the words that a text contains, 0 if there are no words."""
    matchable = MatchableText.from_text(text)
    matches = [matchable.match(MatchableText.from_text(word)) for word in words]
    return sum(matches) / len(matches) if matches else 0.0
