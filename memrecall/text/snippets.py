"""Passages of a text around the words that were searched for, with those words marked.

Three steps: find the marks, choose the passages that show the most different terms, cut them
where a reader would.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence

from memrecall.errors import InvalidArgument
from memrecall.text.highlights import Highlight, Span, best_cut, find_marks, is_glued
from memrecall.text_length import ELLIPSIS


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
    if min(length, limit) < 1:
        raise InvalidArgument(f"length {length} and limit {limit} must be 1 or more")
    marks = find_marks(content, words)
    if not marks:
        return [preview(content, length)] if content.strip() else []
    spans = _merge(marks)
    passages = _choose_passages(content, marks, length, limit)
    return [_render(content, passage, spans, before, after) for passage in passages]


def preview(content: str, length: int = 200) -> str:
    """The beginning of the content, cut between words, with an ellipsis if it was cut."""
    if length < 1:
        raise InvalidArgument(f"length {length} must be 1 or more")
    start = len(content) - len(content.lstrip())
    ideal = start + length
    if not content[ideal:].strip():
        return content.strip()
    end = best_cut(content, range(ideal, start, -1), start)
    if end == start:  # one endless word, which must be cut somewhere
        end = ideal
        while end > start + 1 and is_glued(content[end - 1], content[end]):
            end -= 1
    return content[start:end].rstrip() + ELLIPSIS


def _choose_passages(content: str, marks: list[Highlight], length: int, limit: int) -> list[Span]:
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


def _rate_windows(marks: list[Highlight], length: int) -> Iterator[Span]:
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


def _end_window(marks: list[Highlight], left: int, terms: int) -> int:
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
    first = low if start - left == low else best_cut(content, range(start - left, start), start)
    last = high if end + right == high else best_cut(content, range(end + right, end, -1), end)
    shown = content[first:last]
    return last - len(shown.lstrip()), first + len(shown.rstrip())


def _merge(marks: list[Highlight]) -> list[Span]:
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
