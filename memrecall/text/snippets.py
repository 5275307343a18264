"""Passages of a text around search words, with the words marked.

Three steps: find the highlights, choose the passages with the most different terms, cut them at
word boundaries.
"""

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from memrecall.errors import InvalidArgument
from memrecall.text.highlights import (
    Highlighter,
    HighlightSpan,
    Span,
    best_cut,
    find_highlights,
    is_glued,
)
from memrecall.text_length import ELLIPSIS

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
