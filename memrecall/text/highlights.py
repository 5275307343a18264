"""Positions of search words in a text, and good positions to cut it.

Only the surroundings of possible matches are examined character by character, so that a match at
the end of a megabyte costs little more than one at its start.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, filterfalse, groupby, islice, pairwise
from typing import Any, NamedTuple, TypeAlias

from memrecall.text.language import STOP_CHARS, STOP_TERMS
from memrecall.text.normalize import normalize_with_offsets
from memrecall.text.tokens import (
    BREAK,
    CJK,
    EMOJI,
    WORD,
    analyze,
    fold_word,
    is_cjk,
    last_word,
    stem,
)

# How far a cut may be from its ideal position.
_NEIGHBOURHOOD = 80

_CJK_CHARACTER = re.compile(rf"[{CJK}]")
_CJK_ENDS = frozenset("。！？；：，、…\n")
_LATIN_ENDS = frozenset(".!?;:,")
_OPENING = frozenset("（「『《〈【〔“‘([{<")
_CLOSING = frozenset("）」』》〉】〕”。！？；：，、…)]}>.!?;:,%")
_PATH_BREAKS = frozenset("/\\&?=_@|;")
_IN_LATIN_WORDS = frozenset("’‐‑")
_JOINER = "\u200d"  # joins several emoji to one
_FLAG_LETTERS = "\U0001f1e6\U0001f1ff"
_SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"


def best_cut(content: str, positions: range, default: int) -> int:
    """Return the first of the best positions to cut, `default` if none is acceptable."""
    near = min(len(positions), _NEIGHBOURHOOD) // 2
    for at in positions[: near + 1]:  # Punctuation needs no segmenter, and is usual.
        if _grade_pair(content[at - 1], content[at]) == 3:
            return at
    word_starts = _find_word_starts(content, positions[:_NEIGHBOURHOOD])
    best, best_grade = default, 0
    for distance, at in enumerate(positions):
        if best_grade == 3 or (best_grade == 2 and distance > near):
            break  # farther punctuation would cost more text than it is worth
        grade = _grade_pair(content[at - 1], content[at])
        if grade < 0:
            grade = 2 if at in word_starts else 0
        if grade > best_grade:
            best, best_grade = at, grade
    return best


def _find_word_starts(content: str, positions: range) -> frozenset[int]:
    low, high = max(min(positions, default=0) - 16, 0), max(positions, default=0) + 16
    text = content[low:high]
    if not positions or not _CJK_CHARACTER.search(text):
        return frozenset()
    plain, offsets = normalize_with_offsets(text)
    from rjieba import tokenize  # loading its dictionary takes a moment

    return frozenset(low + start for _, start, _ in tokenize(plain if offsets is None else text))


@lru_cache(maxsize=50_000)
def _grade_pair(before: str, after: str) -> int:
    """Grade a cut: 0 unacceptable, 1 in a path, 2 between words, 3 after punctuation.

    Between Chinese characters it is -1: acceptable only where a word starts.
    """
    if is_glued(before, after) or before in _OPENING or after in _CLOSING:
        return 0
    if before in _CJK_ENDS or (before in _LATIN_ENDS and after.isspace()):
        return 3
    if is_cjk(before) and is_cjk(after):
        return -1
    if _is_latin(before) and _is_latin(after):
        return 1 if before in _PATH_BREAKS else 0
    return 2


def _is_latin(char: str) -> bool:
    """Return True if a character belongs to space-separated text."""
    if char.isascii() or char in _IN_LATIN_WORDS:
        return not char.isspace()
    return (char.isalnum() and not is_cjk(char)) or is_extension(char)


def is_glued(before: str, after: str) -> bool:
    """Return True if two characters form one: accents, emoji sequences, flags."""
    flag = _FLAG_LETTERS[0] <= min(before, after) and max(before, after) <= _FLAG_LETTERS[1]
    return flag or is_extension(after) or before == _JOINER


def is_extension(char: str) -> bool:
    """Return True if a character modifies the one before it."""
    return char == _JOINER or char in _SKIN_TONES or unicodedata.category(char).startswith("M")


# Longer phrases hardly ever occur as a whole: their parts are searched for directly.
_MAX_PHRASE_TERMS = 32
# A megabyte with more matches would take long and show nothing new.
_MAX_HITS = 1_000
_STOPS = STOP_TERMS | STOP_CHARS
_PHRASE = ""  # the key of a whole phrase in a tree of terms

_Phrase: TypeAlias = tuple[str, ...]  # adjacent terms
_Tree: TypeAlias = dict[str, Any]  # subtrees by term, and phrases by `_PHRASE`
Span: TypeAlias = tuple[int, int]
_TermMatch: TypeAlias = tuple[int, int, frozenset[str]]  # start, end, the terms it matches


class _Hit(NamedTuple):
    """The position of a search term in the normalised text."""

    start: int
    end: int
    terms: frozenset[str]
    is_adjacent: bool  # no other term is between it and the previous hit


class HighlightSpan(NamedTuple):
    """The position of a match in the original text."""

    start: int
    end: int
    terms: _Phrase


class Highlighter:
    """Finds the words of one query in any number of texts."""

    def __init__(self, words: Sequence[str]) -> None:
        self._phrases = _read_phrases(words)
        self._tree = _make_tree(p for p in self._phrases if len(p) <= _MAX_PHRASE_TERMS)
        self._characters = _character_pattern(self._phrases)
        self._words = _TermsByWord(
            frozenset(filterfalse(is_cjk, chain.from_iterable(self._phrases)))
        )

    def find(self, content: str) -> list[HighlightSpan]:
        """Return the positions of the words in a text, in order."""
        if not self._phrases:
            return []
        plain, offsets = normalize_with_offsets(content)
        hits = self._find_hits(plain)
        if not hits:
            return []
        matches = _match_phrases(hits, self._tree)
        absent = [phrase for phrase in self._phrases if len(phrase) > 1 and phrase not in matches]
        if absent:
            parts = {part for phrase in absent for part in _split_phrase(phrase)}
            matches |= _match_phrases(hits, _make_tree(parts - matches.keys()))
        return sorted(
            HighlightSpan(*_to_original(content, offsets, span), phrase)
            for phrase, spans in matches.items()
            for span in spans
        )

    def _find_hits(self, plain: str) -> list[_Hit]:
        found: list[_TermMatch] = []
        if self._characters:
            characters = islice(self._characters.finditer(plain), _MAX_HITS)
            found += [(m.start(), m.end(), frozenset(m.group())) for m in characters]
        if self._words.terms:
            found += islice(self._words.find(plain), _MAX_HITS)
        hits: list[_Hit] = []
        for start, end, terms in sorted(found):
            is_adjacent = bool(hits) and _is_adjacent(plain, hits[-1], start)
            hits.append(_Hit(start, end, terms, is_adjacent))
        return hits


def find_highlights(content: str, words: Sequence[str]) -> list[HighlightSpan]:
    """Return the positions of the words in the content, in order."""
    return Highlighter(words).find(content)


def _read_phrases(words: Sequence[str]) -> list[_Phrase]:
    """Return the words as phrases, without stop words unless there are no others."""
    phrases = dict.fromkeys(phrase for word in words for phrase in _read_word(word))
    content = [phrase for phrase in phrases if len(phrase) > 1 or phrase[0] not in _STOPS]
    return content or list(phrases)


def _read_word(word: str) -> Iterator[_Phrase]:
    atoms = analyze(word).atoms
    if atoms and word.endswith(("*", "＊")) and not is_cjk(atoms[-1]):
        # A prefix is not stemmed: `configura*` must find `configuration`.
        atoms[-1] = (last_word(word).replace("'", "") or atoms[-1]) + "*"
    for is_break, terms in groupby(atoms, BREAK.__eq__):
        if not is_break:
            yield tuple(terms)


def _split_phrase(phrase: _Phrase) -> Iterator[_Phrase]:
    """Yield the parts to mark if the phrase does not occur: content words, bigrams."""
    for is_chinese, group in groupby(phrase, is_cjk):
        terms = list(group)
        if is_chinese:
            yield from (pair for pair in pairwise(terms) if not STOP_CHARS.issuperset(pair))
        else:
            yield from ((term,) for term in terms if term not in STOP_TERMS)


def _character_pattern(phrases: list[_Phrase]) -> re.Pattern[str] | None:
    """Return the pattern of the Chinese characters of the phrases that can be part of a match.

    Single characters of a long question occur everywhere: only those next to another count.
    """
    runs = [tuple(run) for phrase in phrases for cjk, run in groupby(phrase, is_cjk) if cjk]
    if not runs:
        return None
    characters = "".join(sorted(set(chain.from_iterable(runs))))
    lone = "".join(sorted({run[0] for run in runs if len(run) == 1}))
    pattern = rf"[{characters}](?:(?=[\s_]*[{characters}])|(?<=[{characters}\s_][{characters}]))"
    return re.compile(f"[{lone}]|{pattern}" if lone else pattern)


_LATIN = rf"[^\W_{CJK}]"
_ANY_WORD = re.compile(rf"[A-Za-z](?:\+\+|#)(?!{_LATIN})|{WORD}|{EMOJI}")  # C++ before C
_BEFORE_WORD = re.compile(rf"(?<!{_LATIN})(?<!{_LATIN}')")
_AFTER_WORD = re.compile(rf"(?!'?{_LATIN})")


class _TermsByWord(dict[str, frozenset[str]]):
    """The search terms that each word of the texts matches, looked up once per word.

    A pattern of a query's own words would take longer to compile than all lookups together.
    """

    def __init__(self, terms: frozenset[str]) -> None:
        super().__init__()
        self.terms = terms
        prefixes = [term[:-1] for term in terms if term.endswith("*")]
        self._prefix_lengths = sorted({len(prefix) for prefix in prefixes})

    def __missing__(self, word: str) -> frozenset[str]:
        self[word] = terms = self.terms.intersection(self._terms_of(word))
        return terms

    def _terms_of(self, word: str) -> Iterator[str]:
        """Yield the terms that find a word: its stem, the parts of an identifier, its prefixes."""
        yield stem(word)
        if not word.isalpha() or not (len(word) == 1 or word[1:].islower()):
            yield from analyze(word).extras
        folded = fold_word(word).replace("'", "")
        yield from (f"{folded[:length]}*" for length in self._prefix_lengths)

    def find(self, plain: str) -> Iterator[_TermMatch]:
        """Yield the words of a text that match."""
        for match in _ANY_WORD.finditer(plain):
            if terms := self[match[0]]:  # Few words of a text match: the others must cost little.
                start, end = match.span()
                if _is_whole_word(plain, start, end):
                    yield start, end, terms


def _is_whole_word(plain: str, start: int, end: int) -> bool:
    if not plain[start].isalnum():
        return True  # an emoji
    return bool(_BEFORE_WORD.match(plain, start) and _AFTER_WORD.match(plain, end))


_LETTER = re.compile(r"[^\W_]")
_LETTER_OR_STOP = re.compile(r"[^\s_]")


def _is_adjacent(plain: str, before: _Hit, start: int) -> bool:
    # Punctuation separates Chinese characters (see BREAK), but not words.
    is_chinese = is_cjk(plain[before.end - 1]) and is_cjk(plain[start])
    obstacle = _LETTER_OR_STOP if is_chinese else _LETTER
    return before.end == start or obstacle.search(plain, before.end, start) is None


def _make_tree(phrases: Iterable[_Phrase]) -> _Tree:
    tree: _Tree = {}
    for phrase in phrases:
        node = tree
        for term in phrase:
            node = node.setdefault(term, {})
        node[_PHRASE] = phrase
    return tree


def _match_phrases(hits: list[_Hit], tree: _Tree) -> dict[_Phrase, list[Span]]:
    """Return where the phrases occur in the normalised text, without absent ones."""
    matches: defaultdict[_Phrase, list[Span]] = defaultdict(list)
    for index, hit in enumerate(hits):
        nodes, at = [tree], index
        while nodes and at < len(hits) and (at == index or hits[at].is_adjacent):
            terms = hits[at].terms
            nodes = [node[term] for node in nodes for term in terms if term in node]
            for node in nodes:
                if _PHRASE in node:
                    matches[node[_PHRASE]].append((hit.start, hits[at].end))
            at += 1
    return dict(matches)


def _to_original(content: str, offsets: list[int] | None, span: Span) -> Span:
    start, end = span
    if offsets is not None:
        # Several characters may come from one of the original: include all of them.
        while end < len(offsets) and offsets[end] == offsets[end - 1]:
            end += 1
        start, end = offsets[start], offsets[end] if end < len(offsets) else len(content)
    while end < len(content) and is_extension(content[end]):
        end += 1
    return start, end
