"""Positions of search words in a text, and good positions to cut it.

Only the surroundings of possible matches are examined character by character, so that a match at
the end of a megabyte costs little more than one at its start.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, filterfalse, groupby, islice, pairwise
from typing import NamedTuple, TypeAlias

from memrecall.text.language import STOP_CHARS, STOP_TERMS
from memrecall.text.normalize import normalize_with_offsets
from memrecall.text.tokens import BREAK, CJK, WORD, analyze, fold_word, is_cjk, last_word, stem

# How far a cut may be from its ideal position.
_NEIGHBOURHOOD = 80

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
    word_starts = _find_word_starts(content, positions[:_NEIGHBOURHOOD])
    near = min(len(positions), _NEIGHBOURHOOD) // 2
    best, best_grade = default, 0
    for distance, at in enumerate(positions):
        if best_grade == 3 or (best_grade == 2 and distance > near):
            break  # farther punctuation would cost more text than it is worth
        if (grade := _grade_cut(content, at, word_starts)) > best_grade:
            best, best_grade = at, grade
    return best


def _find_word_starts(content: str, positions: range) -> frozenset[int]:
    low, high = max(min(positions, default=0) - 16, 0), max(positions, default=0) + 16
    text = content[low:high]
    if not positions or not any(map(is_cjk, text)):
        return frozenset()
    plain, offsets = normalize_with_offsets(text)
    from rjieba import tokenize  # loading its dictionary takes a moment

    return frozenset(low + start for _, start, _ in tokenize(plain if offsets is None else text))


def _grade_cut(content: str, at: int, word_starts: frozenset[int]) -> int:
    """Grade a cut: 0 unacceptable, 1 in a path, 2 between words, 3 after punctuation."""
    before, after = content[at - 1], content[at]
    if is_glued(before, after) or before in _OPENING or after in _CLOSING:
        return 0
    if before in _CJK_ENDS or (before in _LATIN_ENDS and after.isspace()):
        return 3
    if is_cjk(before) and is_cjk(after):
        return 2 if at in word_starts else 0
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
# A megabyte with more matches would take seconds and show nothing new.
_MAX_HITS = 30_000
_STOPS = STOP_TERMS | STOP_CHARS

_Phrase: TypeAlias = tuple[str, ...]  # adjacent terms
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


def find_highlights(content: str, words: Sequence[str]) -> list[HighlightSpan]:
    """Return the positions of the words in the content, in order."""
    phrases = _read_phrases(words)
    if not phrases:
        return []
    plain, offsets = normalize_with_offsets(content)
    hits = _find_hits(plain, phrases)
    matches = _match_phrases(hits, [p for p in phrases if len(p) <= _MAX_PHRASE_TERMS])
    absent = [phrase for phrase in phrases if len(phrase) > 1 and phrase not in matches]
    parts = {part for phrase in absent for part in _split_phrase(phrase)}
    matches |= _match_phrases(hits, parts - matches.keys())
    return sorted(
        HighlightSpan(*_to_original(content, offsets, span), phrase)
        for phrase, spans in matches.items()
        for span in spans
    )


def _read_phrases(words: Sequence[str]) -> list[_Phrase]:
    """Return the words as phrases, without stop words unless there are no others."""
    phrases = dict.fromkeys(phrase for word in words for phrase in _read_word(word))
    content = [phrase for phrase in phrases if len(phrase) > 1 or phrase[0] not in _STOPS]
    return content or list(phrases)


def _read_word(word: str) -> Iterator[_Phrase]:
    atoms = analyze(word).atoms
    if atoms and word.endswith(("*", "＊")) and not is_cjk(atoms[-1]):
        # A prefix is not stemmed: `configura*` must find `configuration`.
        atoms[-1] = last_word(word).replace("'", "") + "*"
    for is_break, terms in groupby(atoms, BREAK.__eq__):
        if not is_break:
            yield tuple(terms)


def _without_apostrophes(word: str) -> str:
    return fold_word(word).replace("'", "")


def _split_phrase(phrase: _Phrase) -> Iterator[_Phrase]:
    """Yield the parts to mark if the phrase does not occur: content words, bigrams."""
    for is_chinese, group in groupby(phrase, is_cjk):
        terms = list(group)
        if is_chinese:
            yield from (pair for pair in pairwise(terms) if not STOP_CHARS.issuperset(pair))
        else:
            yield from ((term,) for term in terms if term not in STOP_TERMS)


def _find_hits(plain: str, phrases: list[_Phrase]) -> list[_Hit]:
    characters = islice(_find_characters(plain, phrases), _MAX_HITS)
    words = islice(_find_words(plain, phrases), _MAX_HITS)
    hits: list[_Hit] = []
    for start, end, terms in sorted([*characters, *words]):
        is_adjacent = bool(hits) and _is_adjacent(plain, hits[-1], start)
        hits.append(_Hit(start, end, terms, is_adjacent))
    return hits


def _find_characters(plain: str, phrases: list[_Phrase]) -> Iterator[_TermMatch]:
    """Yield the Chinese characters of the phrases that can be part of a match.

    Single characters of a long question occur everywhere: only those next to another count.
    """
    runs = [tuple(run) for phrase in phrases for cjk, run in groupby(phrase, is_cjk) if cjk]
    if not runs:
        return
    characters = "".join(sorted(set(chain.from_iterable(runs))))
    lone = "".join(sorted({run[0] for run in runs if len(run) == 1}))
    pattern = rf"[{characters}](?:(?=[\s_]*[{characters}])|(?<=[{characters}\s_][{characters}]))"
    for match in re.finditer(f"[{lone}]|{pattern}" if lone else pattern, plain):
        yield match.start(), match.end(), frozenset(match.group())


_LATIN = rf"[^\W_{CJK}]"
_ANY_WORD = re.compile(rf"[A-Za-z](?:\+\+|#)(?!{_LATIN})|{WORD}")  # C++ before C
_BEFORE_WORD = re.compile(rf"(?<!{_LATIN})(?<!{_LATIN}')")
_AFTER_WORD = re.compile(rf"(?!'?{_LATIN})")


def _find_words(plain: str, phrases: list[_Phrase]) -> Iterator[_TermMatch]:
    terms = frozenset(filterfalse(is_cjk, chain.from_iterable(phrases)))
    terms_by_word = _match_words(plain, terms) if terms else {}
    pattern = _ANY_WORD
    if len(terms_by_word) <= 50:  # searching for a few spellings is faster than reading every word
        longest_first = sorted(terms_by_word, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest_first)))
    for match in pattern.finditer(plain) if terms_by_word else ():
        start, end = match.span()
        matched = terms_by_word.get(match.group())
        if matched and _BEFORE_WORD.match(plain, start) and _AFTER_WORD.match(plain, end):
            yield start, end, matched


def _match_words(plain: str, terms: frozenset[str]) -> dict[str, frozenset[str]]:
    # Stemming is slow, and only changes the first letters of die, lie and tie.
    beginnings = {term[:2] if len(term) > 3 else term[0] for term in terms}
    may_match = re.compile("|".join(map(re.escape, beginnings))).search
    prefixes = [term[:-1] for term in terms if term.endswith("*")]
    words = {word for token in set(plain.split()) for word in _ANY_WORD.findall(token)}
    candidates = [word for word in words if may_match(_without_apostrophes(word))]
    matches = {word: terms.intersection(_word_terms(word, prefixes)) for word in candidates}
    return {word: matched for word, matched in matches.items() if matched}


def _word_terms(word: str, prefixes: list[str]) -> Iterator[str]:
    """Yield the terms that find a word: its stem, the parts of an identifier, its prefixes."""
    yield stem(word)
    if not (word.isalpha() and word[1:].islower()):
        yield from analyze(word).extras
    yield from (
        f"{prefix}*" for prefix in prefixes if _without_apostrophes(word).startswith(prefix)
    )


_LETTER = re.compile(r"[^\W_]")
_LETTER_OR_STOP = re.compile(r"[^\s_]")


def _is_adjacent(plain: str, before: _Hit, start: int) -> bool:
    # Punctuation separates Chinese characters (see BREAK), but not words.
    is_chinese = is_cjk(plain[before.end - 1]) and is_cjk(plain[start])
    obstacle = _LETTER_OR_STOP if is_chinese else _LETTER
    return before.end == start or obstacle.search(plain, before.end, start) is None


def _match_phrases(hits: list[_Hit], phrases: Iterable[_Phrase]) -> dict[_Phrase, list[Span]]:
    """Return where the phrases occur in the normalised text, without absent ones."""
    by_first: defaultdict[str, list[_Phrase]] = defaultdict(list)
    for phrase in phrases:
        by_first[phrase[0]].append(phrase)
    matches: defaultdict[_Phrase, list[Span]] = defaultdict(list)
    for index, hit in enumerate(hits):
        for term in hit.terms:
            for phrase in by_first.get(term, ()):
                if _matches_at(hits, index, phrase):
                    matches[phrase].append((hit.start, hits[index + len(phrase) - 1].end))
    return dict(matches)


def _matches_at(hits: list[_Hit], index: int, phrase: _Phrase) -> bool:
    following = hits[index + 1 : index + len(phrase)]
    return len(following) == len(phrase) - 1 and all(
        hit.is_adjacent and term in hit.terms
        for hit, term in zip(following, phrase[1:], strict=True)
    )


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
