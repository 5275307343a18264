"""Passages of a text around the words that were searched for, with those words marked.

Three steps: find the marks, choose the passages that show the most different terms, cut them
where a reader would. Only the marks' neighbourhoods are looked at character by character, so
that a match at the end of a megabyte costs little more than one at its beginning.
"""

import re
import unicodedata
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from memrecall.errors import InvalidArgument
from memrecall.text.normalize import normalize_with_offsets, strip_accents
from memrecall.text.stopwords import STOP_CHARS, STOP_TERMS
from memrecall.text.tokens import _CJK, _WORD, BREAK, analyze, is_cjk, last_word, stem

ELLIPSIS = "…"
# A longer run of words is looked for by its parts: they join up wherever the whole stands.
_LONGEST_PIECE = 32
# Beyond this, a megabyte of nothing but matches would take seconds and show nothing new.
_MOST_HITS = 50_000
# How far from its ideal place a cut may be and still count as near.
_NEIGHBOURHOOD = 80
_STOPS = STOP_TERMS | STOP_CHARS

Piece: TypeAlias = tuple[str, ...]  # terms that must stand next to each other
Span: TypeAlias = tuple[int, int]


class _Hit(NamedTuple):
    """A wanted term's place in the normalised text."""

    names: frozenset[str]
    start: int
    end: int
    joined: bool  # no other term stands between it and the hit before


class _Mark(NamedTuple):
    """A match's place in the original text."""

    start: int
    end: int
    terms: Piece


def snippets(
    content: str,
    words: Sequence[str],
    *,
    length: int = 120,
    limit: int = 3,
    before: str = "<em>",
    after: str = "</em>",
) -> list[str]:
    """Up to `limit` passages around the words, the one with the most different terms first.

    A word that ends in a star marks every word it begins. Without a match, the one passage is
    the beginning of the content. A passage is longer than `length` only if its match is.
    """
    _check_positive("length", length)
    _check_positive("limit", limit)
    marks = _find_marks(content, words)
    if not marks:
        return [preview(content, length)] if content.strip() else []
    spans = _merge(marks)
    passages = _choose_passages(content, marks, length, limit)
    return [_render(content, passage, spans, before, after) for passage in passages]


def preview(content: str, length: int = 200) -> str:
    """The beginning of the content, cut between words, with an ellipsis if it was cut."""
    _check_positive("length", length)
    start = len(content) - len(content.lstrip())
    ideal = start + length
    if not content[ideal:].strip():
        return content.strip()
    end = _best_cut(content, range(ideal, start, -1), start)
    if end == start:  # one endless word, which must be cut somewhere
        end = ideal
        while end > start + 1 and _is_glued(content[end - 1], content[end]):
            end -= 1
    return content[start:end].rstrip() + ELLIPSIS


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise InvalidArgument(f"{name} {value} is less than 1")


# Marks: where the words stand


def _find_marks(content: str, words: Sequence[str]) -> list[_Mark]:
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
        _Mark(*_to_original(content, offsets, span), piece)
        for piece, places in found.items()
        for span in places
    )


def _read_pieces(words: Sequence[str]) -> list[Piece]:
    """The words as terms, without those that stand in every text unless there are no others."""
    pieces = dict.fromkeys(piece for word in words for piece in _read_word(word))
    telling = [piece for piece in pieces if len(piece) > 1 or piece[0] not in _STOPS]
    return telling or list(pieces)


def _read_word(word: str) -> Iterator[Piece]:
    atoms = analyze(word).atoms
    if atoms and word.endswith(("*", "＊")) and not is_cjk(atoms[-1]):
        # A prefix is not stemmed: `configura*` must find `configuration`.
        atoms[-1] = last_word(word).replace("'", "") + "*"
    for is_break, terms in groupby(atoms, BREAK.__eq__):
        if not is_break:
            yield tuple(terms)


def _fold(word: str) -> str:
    return strip_accents(word.casefold()).replace("'", "")


def _split_piece(piece: Piece) -> Iterator[Piece]:
    """What to mark where the whole piece does not stand: telling words, pairs of characters."""
    for chinese, group in groupby(piece, is_cjk):
        terms = list(group)
        if chinese:
            yield from (pair for pair in pairwise(terms) if not STOP_CHARS.issuperset(pair))
        else:
            yield from ((term,) for term in terms if term not in STOP_TERMS)


def _find_hits(plain: str, pieces: list[Piece]) -> list[_Hit]:
    wanted = frozenset(term for piece in pieces for term in piece)
    names = _Names(wanted)
    hits: list[_Hit] = []
    for match in _hit_pattern(pieces, wanted).finditer(plain):
        found = names[match.group()]
        if found:
            joined = bool(hits) and _is_joined(plain, hits[-1], match)
            hits.append(_Hit(found, match.start(), match.end(), joined))
            if len(hits) == _MOST_HITS:
                break
    return hits


def _hit_pattern(pieces: list[Piece], wanted: frozenset[str]) -> re.Pattern[str]:
    """Matches at least every place where a wanted term can be part of a match."""
    patterns = []
    chinese = "".join(sorted(filter(is_cjk, wanted)))
    if chinese:
        # Single characters of a long question stand everywhere: those with a neighbour are rarer.
        patterns += [rf"[{chinese}](?=[\s_]*[{chinese}])", rf"(?<=[{chinese}\s_])[{chinese}]"]
    runs = [tuple(run) for piece in pieces for cjk, run in groupby(piece, is_cjk) if cjk]
    patterns += sorted({run[0] for run in runs if len(run) == 1})
    if len(chinese) < len(wanted):
        patterns += [rf"[A-Za-z](?:\+\+|#)(?![^\W{_CJK}])", _WORD]  # C++ before C
    return re.compile("|".join(patterns))


class _Names(dict[str, frozenset[str]]):
    """The wanted terms that a word of the text answers to: its stem, its parts, its prefixes."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self._prefixes = [term[:-1] for term in wanted if term.endswith("*")]
        # Stemming is slow and changes no word's first letters (but those of die, lie and tie).
        beginnings = {term[:2] if len(term) > 3 else term[0] for term in wanted}
        self._may_match = re.compile("|".join(map(re.escape, beginnings))).search

    def __missing__(self, word: str) -> frozenset[str]:
        folded = _fold(word)
        names = self._name(word, folded) if self._may_match(folded) else ()
        self[word] = self._wanted.intersection(names)
        return self[word]

    def _name(self, word: str, folded: str) -> Iterator[str]:
        yield stem(word)
        if not (word.isalpha() and word[1:].islower()):
            yield from analyze(word).extras
        yield from (f"{prefix}*" for prefix in self._prefixes if folded.startswith(prefix))


_LETTER = re.compile(r"[^\W_]")
_LETTER_OR_STOP = re.compile(r"[^\s_]")


def _is_joined(plain: str, before: _Hit, match: re.Match[str]) -> bool:
    if before.end == match.start():
        return True
    # Punctuation separates Chinese characters (see BREAK), but not words.
    chinese = is_cjk(plain[before.end - 1]) and is_cjk(match.group())
    obstacle = _LETTER_OR_STOP if chinese else _LETTER
    return obstacle.search(plain, before.end, match.start()) is None


def _match_pieces(hits: list[_Hit], pieces: Iterable[Piece]) -> dict[Piece, list[Span]]:
    """Where each piece stands in the normalised text; pieces that stand nowhere are left out."""
    by_first: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_first[piece[0]].append(piece)
    found: defaultdict[Piece, list[Span]] = defaultdict(list)
    for at, hit in enumerate(hits):
        for name in hit.names:
            for piece in by_first.get(name, ()):
                if _stands_at(hits, at, piece):
                    found[piece].append((hit.start, hits[at + len(piece) - 1].end))
    return dict(found)


def _stands_at(hits: list[_Hit], at: int, piece: Piece) -> bool:
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
    while end < len(content) and _is_extension(content[end]):
        end += 1
    return start, end


# Passages: which parts of the content to show


def _choose_passages(content: str, marks: list[_Mark], length: int, limit: int) -> list[Span]:
    """The best passages that do not overlap, best first."""
    chosen: list[Span] = []
    in_order: list[Span] = []
    room = length - length // 4  # the rest is for words around the marks
    for terms, left in sorted(_rate_windows(marks, room)):
        start = marks[left].start
        at = bisect(in_order, start, key=lambda passage: passage[0])
        low = in_order[at - 1][1] if at else 0
        high = in_order[at][0] if at < len(in_order) else len(content)
        if start >= low and (end := _end_window(marks, left, -terms)) <= high:
            passage = _widen(content, (start, end), (low, high), length)
            in_order.insert(at, passage)
            chosen.append(passage)
        if len(chosen) == limit:
            break
    return chosen


def _rate_windows(marks: list[_Mark], length: int) -> Iterator[Span]:
    """For each mark, minus the number of different terms in the window that begins with it."""
    counts: defaultdict[str, int] = defaultdict(int)
    right = 0
    for left, mark in enumerate(marks):
        while right < len(marks) and (right <= left or marks[right].end <= mark.start + length):
            for term in marks[right].terms:
                counts[term] += 1
            right += 1
        yield -len(counts), left
        for term in mark.terms:
            counts[term] -= 1
            if not counts[term]:
                del counts[term]


def _end_window(marks: list[_Mark], left: int, terms: int) -> int:
    """Where the window has shown that many terms: repetitions only take away from its context."""
    seen: set[str] = set()
    end = 0
    while len(seen) < terms:
        seen.update(marks[left].terms)
        end = max(end, marks[left].end)
        left += 1
    return end


def _widen(content: str, window: Span, bounds: Span, length: int) -> Span:
    """The window with as much of its surroundings as the length and the bounds allow."""
    (start, end), (low, high) = window, bounds
    spare = max(length - (end - start), 0)
    right = min(spare - min(spare // 2, start - low), high - end)
    left = min(spare - right, start - low)
    first = low if start - left == low else _best_cut(content, range(start - left, start), start)
    last = high if end + right == high else _best_cut(content, range(end + right, end, -1), end)
    while content[first].isspace():
        first += 1
    while content[last - 1].isspace():
        last -= 1
    return first, last


def _merge(marks: list[_Mark]) -> list[Span]:
    """The marks as spans that neither overlap nor touch."""
    spans: list[Span] = []
    for start, end, _ in marks:
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return spans


def _render(content: str, passage: Span, spans: list[Span], before: str, after: str) -> str:
    first, last = passage
    pieces = [ELLIPSIS] if content[:first].strip() else []
    at = first
    for start, end in spans[bisect(spans, first, key=lambda span: span[1]) :]:
        start, end = max(start, first), min(end, last)
        if start >= end:
            break
        pieces += content[at:start], before, content[start:end], after
        at = end
    pieces += content[at:last], ELLIPSIS if content[last:].strip() else ""
    return "".join(pieces)


# Cuts: where a passage may begin and end

_ENDS = frozenset("。！？；：，、…\n")
_LATIN_ENDS = frozenset(".!?;:,")
_OPENING = frozenset("（「『《〈【〔“‘([{<")
_CLOSING = frozenset("）」』》〉】〕”。！？；：，、…)]}>.!?;:,%")
_AFTER_WHICH_PATHS_BREAK = frozenset("/\\&?=_@|;")
_IN_LATIN_WORDS = frozenset("’‐‑")
_JOINER = "\u200d"
_FLAG_LETTERS = "\U0001f1e6\U0001f1ff"
_SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"


def _best_cut(content: str, places: range, otherwise: int) -> int:
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
    if _is_glued(before, after) or before in _OPENING or after in _CLOSING:
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
    return (char.isalnum() and not is_cjk(char)) or _is_extension(char)


def _is_glued(before: str, after: str) -> bool:
    """Whether two characters are drawn as one: accents, emoji sequences, flags."""
    flag = _FLAG_LETTERS[0] <= min(before, after) and max(before, after) <= _FLAG_LETTERS[1]
    return flag or _is_extension(after) or before == _JOINER


def _is_extension(char: str) -> bool:
    return char == _JOINER or char in _SKIN_TONES or unicodedata.category(char).startswith("M")
