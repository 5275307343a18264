"""Where the words that were searched for stand in a text.

Only the neighbourhoods of possible matches are looked at character by character, so that a match
at the end of a megabyte costs little more than one at its beginning.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, filterfalse, groupby, islice, pairwise
from typing import NamedTuple, TypeAlias

from memrecall.text.language import STOP_CHARS, STOP_TERMS
from memrecall.text.normalize import normalize_with_offsets, strip_accents
from memrecall.text.tokens import BREAK, CJK, WORD, analyze, is_cjk, last_word, stem

# How far from its ideal place a cut may be and still count as near.
_NEIGHBOURHOOD = 80

_ENDS = frozenset("。！？；：，、…\n")
_LATIN_ENDS = frozenset(".!?;:,")
_OPENING = frozenset("（「『《〈【〔“‘([{<")
_CLOSING = frozenset("）」』》〉】〕”。！？；：，、…)]}>.!?;:,%")
_AFTER_WHICH_PATHS_BREAK = frozenset("/\\&?=_@|;")
_IN_LATIN_WORDS = frozenset("’‐‑")
_JOINER = "\u200d"  # makes one emoji of several
_FLAG_LETTERS = "\U0001f1e6\U0001f1ff"
_SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"


def best_cut(content: str, places: range, otherwise: int) -> int:
    """The place with the best grade, of equals the first; `otherwise` if none is good."""
    edges = _word_edges(content, places[:_NEIGHBOURHOOD])
    near = min(len(places), _NEIGHBOURHOOD) // 2
    best, best_grade = otherwise, 0
    for distance, at in enumerate(places):
        if best_grade == 3 or (best_grade == 2 and distance > near):
            break  # farther punctuation would cost more text than it is worth
        if (grade := _grade_cut(content, at, edges)) > best_grade:
            best, best_grade = at, grade
    return best


def _word_edges(content: str, places: range) -> frozenset[int]:
    """Where Chinese words begin around the places."""
    low, high = max(min(places, default=0) - 16, 0), max(places, default=0) + 16
    text = content[low:high]
    if not places or not any(map(is_cjk, text)):
        return frozenset()
    plain, offsets = normalize_with_offsets(text)
    from rjieba import tokenize  # loading its dictionary takes a moment

    return frozenset(low + start for _, start, _ in tokenize(plain if offsets is None else text))


def _grade_cut(content: str, at: int, edges: frozenset[int]) -> int:
    """How good it is to cut here: 0 never, 1 in a path, 2 between words, 3 after punctuation."""
    before, after = content[at - 1], content[at]
    if is_glued(before, after) or before in _OPENING or after in _CLOSING:
        return 0
    if before in _ENDS or (before in _LATIN_ENDS and after.isspace()):
        return 3
    if is_cjk(before) and is_cjk(after):
        return 2 if at in edges else 0
    if _is_latin(before) and _is_latin(after):
        return 1 if before in _AFTER_WHICH_PATHS_BREAK else 0
    return 2


def _is_latin(char: str) -> bool:
    """Whether the character is part of what spaces separate: words, numbers, their signs."""
    if char.isascii() or char in _IN_LATIN_WORDS:
        return not char.isspace()
    return (char.isalnum() and not is_cjk(char)) or is_extension(char)


def is_glued(before: str, after: str) -> bool:
    """Whether two characters are drawn as one: accents, emoji sequences, flags."""
    flag = _FLAG_LETTERS[0] <= min(before, after) and max(before, after) <= _FLAG_LETTERS[1]
    return flag or is_extension(after) or before == _JOINER


def is_extension(char: str) -> bool:
    """Whether the character is drawn on the one before it."""
    return char == _JOINER or char in _SKIN_TONES or unicodedata.category(char).startswith("M")


# Longer pieces hardly ever stand whole in a text: their parts are looked for at once.
_LONGEST_PIECE = 32
# Beyond this, a megabyte of nothing but matches would take seconds and show nothing new.
_MOST_HITS = 30_000
_STOPS = STOP_TERMS | STOP_CHARS

_Piece: TypeAlias = tuple[str, ...]  # terms that must stand next to each other
Span: TypeAlias = tuple[int, int]
_Found: TypeAlias = tuple[int, int, frozenset[str]]  # start, end, the terms it answers to


class _Hit(NamedTuple):
    """A wanted term's place in the normalised text."""

    start: int
    end: int
    names: frozenset[str]
    joined: bool  # no other term stands between it and the hit before


class Highlight(NamedTuple):
    """A match's place in the original text."""

    start: int
    end: int
    terms: _Piece


def find_marks(content: str, words: Sequence[str]) -> list[Highlight]:
    """Where the words stand in the content, in order."""
    pieces = _read_pieces(words)
    if not pieces:
        return []
    plain, offsets = normalize_with_offsets(content)
    hits = _find_hits(plain, pieces)
    found = _match_pieces(hits, [piece for piece in pieces if len(piece) <= _LONGEST_PIECE])
    absent = [piece for piece in pieces if len(piece) > 1 and piece not in found]
    parts = {part for piece in absent for part in _split_piece(piece)}
    found |= _match_pieces(hits, parts - found.keys())
    return sorted(
        Highlight(*_to_original(content, offsets, span), piece)
        for piece, places in found.items()
        for span in places
    )


def _read_pieces(words: Sequence[str]) -> list[_Piece]:
    """The words as terms, without those that stand in every text unless there are no others."""
    pieces = dict.fromkeys(piece for word in words for piece in _read_word(word))
    telling = [piece for piece in pieces if len(piece) > 1 or piece[0] not in _STOPS]
    return telling or list(pieces)


def _read_word(word: str) -> Iterator[_Piece]:
    atoms = analyze(word).atoms
    if atoms and word.endswith(("*", "＊")) and not is_cjk(atoms[-1]):
        # A prefix is not stemmed: `configura*` must find `configuration`.
        atoms[-1] = last_word(word).replace("'", "") + "*"
    for is_break, terms in groupby(atoms, BREAK.__eq__):
        if not is_break:
            yield tuple(terms)


def _fold(word: str) -> str:
    return strip_accents(word.casefold()).replace("'", "")


def _split_piece(piece: _Piece) -> Iterator[_Piece]:
    """What to mark where the whole piece does not stand: telling words, pairs of characters."""
    for chinese, group in groupby(piece, is_cjk):
        terms = list(group)
        if chinese:
            yield from (pair for pair in pairwise(terms) if not STOP_CHARS.issuperset(pair))
        else:
            yield from ((term,) for term in terms if term not in STOP_TERMS)


def _find_hits(plain: str, pieces: list[_Piece]) -> list[_Hit]:
    characters = islice(_find_characters(plain, pieces), _MOST_HITS)
    words = islice(_find_words(plain, pieces), _MOST_HITS)
    hits: list[_Hit] = []
    for start, end, names in sorted([*characters, *words]):
        joined = bool(hits) and _is_joined(plain, hits[-1], start)
        hits.append(_Hit(start, end, names, joined))
    return hits


def _find_characters(plain: str, pieces: list[_Piece]) -> Iterator[_Found]:
    """The wanted Chinese characters that can be part of a match.

    Single characters of a long question stand everywhere: only those next to another count.
    """
    runs = [tuple(run) for piece in pieces for cjk, run in groupby(piece, is_cjk) if cjk]
    if not runs:
        return
    wanted = "".join(sorted(set(chain.from_iterable(runs))))
    lone = "".join(sorted({run[0] for run in runs if len(run) == 1}))
    pattern = rf"[{wanted}](?:(?=[\s_]*[{wanted}])|(?<=[{wanted}\s_][{wanted}]))"
    for match in re.finditer(f"[{lone}]|{pattern}" if lone else pattern, plain):
        yield match.start(), match.end(), frozenset(match.group())


_LATIN = rf"[^\W_{CJK}]"
_ANY_WORD = re.compile(rf"[A-Za-z](?:\+\+|#)(?!{_LATIN})|{WORD}")  # C++ before C
_BEFORE_WORD = re.compile(rf"(?<!{_LATIN})(?<!{_LATIN}')")
_AFTER_WORD = re.compile(rf"(?!'?{_LATIN})")


def _find_words(plain: str, pieces: list[_Piece]) -> Iterator[_Found]:
    wanted = frozenset(filterfalse(is_cjk, chain.from_iterable(pieces)))
    names = _name_words(plain, wanted) if wanted else {}
    longest_first = sorted(names, key=len, reverse=True)
    # To look for a few spellings is faster than to read every word.
    few = re.compile("|".join(map(re.escape, longest_first))) if len(names) <= 50 else _ANY_WORD
    for match in few.finditer(plain) if names else ():
        start, end = match.span()
        found = names.get(match.group())
        if found and _BEFORE_WORD.match(plain, start) and _AFTER_WORD.match(plain, end):
            yield start, end, found


def _name_words(plain: str, wanted: frozenset[str]) -> dict[str, frozenset[str]]:
    """Those words of the text that answer to a wanted term, with the terms."""
    # Stemming is slow and changes no word's first letters (but those of die, lie and tie).
    beginnings = {term[:2] if len(term) > 3 else term[0] for term in wanted}
    may_answer = re.compile("|".join(map(re.escape, beginnings))).search
    prefixes = [term[:-1] for term in wanted if term.endswith("*")]
    words = {word for token in set(plain.split()) for word in _ANY_WORD.findall(token)}
    likely = [word for word in words if may_answer(_fold(word))]
    named = {word: wanted.intersection(_name_word(word, prefixes)) for word in likely}
    return {word: names for word, names in named.items() if names}


def _name_word(word: str, prefixes: list[str]) -> Iterator[str]:
    """What a word may be asked for as: its stem, the parts of an identifier, its prefixes."""
    yield stem(word)
    if not (word.isalpha() and word[1:].islower()):
        yield from analyze(word).extras
    yield from (f"{prefix}*" for prefix in prefixes if _fold(word).startswith(prefix))


_LETTER = re.compile(r"[^\W_]")
_LETTER_OR_STOP = re.compile(r"[^\s_]")


def _is_joined(plain: str, before: _Hit, start: int) -> bool:
    # Punctuation separates Chinese characters (see BREAK), but not words.
    chinese = is_cjk(plain[before.end - 1]) and is_cjk(plain[start])
    obstacle = _LETTER_OR_STOP if chinese else _LETTER
    return before.end == start or obstacle.search(plain, before.end, start) is None


def _match_pieces(hits: list[_Hit], pieces: Iterable[_Piece]) -> dict[_Piece, list[Span]]:
    """Where each piece stands in the normalised text; pieces that stand nowhere are left out."""
    by_first: defaultdict[str, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        by_first[piece[0]].append(piece)
    found: defaultdict[_Piece, list[Span]] = defaultdict(list)
    for at, hit in enumerate(hits):
        for name in hit.names:
            for piece in by_first.get(name, ()):
                if _stands_at(hits, at, piece):
                    found[piece].append((hit.start, hits[at + len(piece) - 1].end))
    return dict(found)


def _stands_at(hits: list[_Hit], at: int, piece: _Piece) -> bool:
    following = hits[at + 1 : at + len(piece)]
    return len(following) == len(piece) - 1 and all(
        hit.joined and term in hit.names for hit, term in zip(following, piece[1:], strict=True)
    )


def _to_original(content: str, offsets: list[int] | None, span: Span) -> Span:
    start, end = span
    if offsets is not None:
        # One character of the original may have become several: leave none of them out.
        while end < len(offsets) and offsets[end] == offsets[end - 1]:
            end += 1
        start, end = offsets[start], offsets[end] if end < len(offsets) else len(content)
    while end < len(content) and is_extension(content[end]):
        end += 1
    return start, end
