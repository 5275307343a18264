"""Passages of a text around search words, with the words marked.

Three steps: find the highlights, choose the passages with the most different terms, cut them at
word boundaries. Only the surroundings of possible matches are examined character by character, so
that a match at the end of a megabyte costs little more than one at its start.
"""

import re
import unicodedata
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, filterfalse, groupby, islice, pairwise
from typing import Any, NamedTuple, TypeAlias

from memrecall.errors import InvalidArgument
from memrecall.text.language import STOP_CHARS, STOP_TERMS
from memrecall.text.tokens import (
    BREAK,
    CJK,
    EMOJI,
    WORD,
    analyze,
    fold_word,
    is_cjk,
    last_word,
    normalize_with_offsets,
    stem,
)
from memrecall.text_length import ELLIPSIS

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
        phrases = dict.fromkeys(phrase for word in words for phrase in _read_word(word))
        # Without stop words, unless there are no others.
        content = [phrase for phrase in phrases if len(phrase) > 1 or phrase[0] not in _STOPS]
        self._phrases = content or list(phrases)
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
        # What finds a word: its stem, the parts of an identifier, its prefixes.
        finding = [stem(word)]
        if not word.isalpha() or not (len(word) == 1 or word[1:].islower()):
            finding += analyze(word).extras
        folded = fold_word(word).replace("'", "")
        finding += [f"{folded[:length]}*" for length in self._prefix_lengths]
        self[word] = terms = self.terms.intersection(finding)
        return terms

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


_VISIBLE = re.compile(r"\S")
_PASSAGE = 400  # characters that a longer excerpt is centred on


class Highlighted(NamedTuple):
    """Passages of a content, and where the words that they mark are in it."""

    snippets: tuple[str, ...]
    offsets: tuple[Span, ...] = ()  # start and end, in code points, in order


def snippets(
    content: str,
    words: Sequence[str],
    *,
    length: int = 120,
    limit: int = 3,
    before: str = "<em>",
    after: str = "</em>",
) -> list[str]:
    """Return up to `limit` passages, the one with the most different terms first.

    A word that ends in a star matches as a prefix. Without a match, the only passage is the start
    of the content. A passage has at most `length` characters, marks and ellipses apart.
    """
    marks = {"before": before, "after": after}
    return list(
        mark_passages(content, Highlighter(words), length=length, limit=limit, **marks).snippets
    )


def mark_passages(
    content: str,
    highlighter: Highlighter,
    *,
    length: int = 120,
    limit: int = 3,
    before: str = "<em>",
    after: str = "</em>",
) -> Highlighted:
    """Return the passages that `snippets` returns, and the offsets of the words in them."""
    if min(length, limit) < 1:
        raise InvalidArgument(f"length {length} and limit {limit} must be 1 or more")
    highlights = highlighter.find(content)
    if not highlights:
        return Highlighted((truncate_at_word(content, length),) if content.strip() else ())
    spans = _merge(highlights)
    passages = _choose_passages(content, highlights, length, limit)
    visible = {span for passage in passages for span in _spans_in(spans, passage)}
    texts = (_render(content, passage, spans, before, after) for passage in passages)
    return Highlighted(tuple(texts), tuple(sorted(visible)))


def find_center(content: str, words: Sequence[str]) -> int:
    """Return the middle of the passage with the most different terms; 0 if none occurs."""
    highlights = find_highlights(content, words)
    if not highlights:
        return 0
    ((start, end),) = _choose_passages(content, highlights, _PASSAGE, 1)
    return (start + end) // 2


def truncate_at_word(content: str, length: int = 200) -> str:
    """Return the start of the content, cut between words, with an ellipsis if cut."""
    if length < 1:
        raise InvalidArgument(f"length {length} must be 1 or more")
    start = len(content) - len(content.lstrip())
    ideal = start + length
    if not content[ideal:].strip():
        return content.strip()
    end = best_cut(content, range(ideal, start, -1), start)
    if end == start:  # one very long word, which must be cut anyway
        end = _cut_match(content, start, length)
    return content[start:end].rstrip() + ELLIPSIS


def _choose_passages(
    content: str, highlights: list[HighlightSpan], length: int, limit: int
) -> list[Span]:
    if len(content) <= length:
        return [_strip(content, 0, len(content))]
    passages: list[Span] = []
    in_order: list[Span] = []
    window_length = length - length // 4  # the rest is for words around the highlights
    for terms, left in sorted(_rate_windows(highlights, window_length)):
        start = highlights[left].start
        at = bisect(in_order, start, key=lambda passage: passage[0])
        low = in_order[at - 1][1] if at else 0
        high = in_order[at][0] if at < len(in_order) else len(content)
        end = _end_window(highlights, left, -terms)
        if end - start > length:
            end = _cut_match(content, start, length)
        if start >= low and end <= high:
            passage = _widen(content, (start, end), (low, high), length)
            in_order.insert(at, passage)
            passages.append(passage)
        if len(passages) == limit:
            break
    return passages


def _rate_windows(highlights: list[HighlightSpan], length: int) -> Iterator[Span]:
    """Yield, for each highlight, the negated number of terms in the window from it on."""
    counts: defaultdict[str, int] = defaultdict(int)
    right = 0
    for left, highlight in enumerate(highlights):
        while right < len(highlights) and (
            right <= left or highlights[right].end <= highlight.start + length
        ):
            for term in highlights[right].terms:
                counts[term] += 1
            right += 1
        yield -len(counts), left
        for term in highlight.terms:
            counts[term] -= 1
            if not counts[term]:
                del counts[term]


def _end_window(highlights: list[HighlightSpan], left: int, terms: int) -> int:
    """Return where the window has that many terms: repetitions only cost context."""
    seen: set[str] = set()
    end = 0
    while len(seen) < terms:
        seen.update(highlights[left].terms)
        end = max(end, highlights[left].end)
        left += 1
    return end


def _cut_match(content: str, start: int, length: int) -> int:
    """Return where to cut a match that is longer than a passage."""
    end = start + length
    while end > start + 1 and is_glued(content[end - 1], content[end]):
        end -= 1
    return end


def _widen(content: str, window: Span, bounds: Span, length: int) -> Span:
    """Return the window with as much context as the length and the bounds allow."""
    (start, end), (low, high) = window, bounds
    spare = max(length - (end - start), 0)
    right = min(spare - min(spare // 2, start - low), high - end)
    left = min(spare - right, start - low)
    first = low if start - left == low else best_cut(content, range(start - left, start), start)
    last = high if end + right == high else best_cut(content, range(end + right, end, -1), end)
    return _strip(content, first, last)


def _strip(content: str, first: int, last: int) -> Span:
    passage = content[first:last]
    return last - len(passage.lstrip()), first + len(passage.rstrip())


def _merge(highlights: list[HighlightSpan]) -> list[Span]:
    """Return the highlights as spans that neither overlap nor touch."""
    spans: list[Span] = []
    for start, end, _ in highlights:
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return spans


def _spans_in(spans: list[Span], passage: Span) -> Iterator[Span]:
    """Yield the spans of which a passage shows a part."""
    first, last = passage
    for span in islice(spans, bisect(spans, first, key=lambda span: span[1]), None):
        if span[0] >= last:
            break
        yield span


def _render(content: str, passage: Span, spans: list[Span], before: str, after: str) -> str:
    first, last = passage
    pieces = [ELLIPSIS] if _has_text(content, 0, first) else []
    at = first
    for start, end in _spans_in(spans, passage):
        start, end = max(start, first), min(end, last)
        pieces += content[at:start], before, content[start:end], after
        at = end
    pieces += content[at:last], ELLIPSIS if _has_text(content, last, len(content)) else ""
    return "".join(pieces)


def _has_text(content: str, start: int, end: int) -> bool:
    return _VISIBLE.search(content, start, end) is not None
