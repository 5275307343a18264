"""Reads time expressions: finds the words, puts their pieces together, applies before and after.

An expression is a chain of pieces, each placed in the one before it (去年 五月 三日) or, in
English, in the one behind it (May of last year). Two chains with "to" between them are a stretch.
Every step moves forward and looks at a bounded piece of the text, so reading takes linear time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import NamedTuple

from memrecall.text.times import chinese, english
from memrecall.text.times import numeric as digits
from memrecall.text.times.grammar import (
    Boundary,
    Matcher,
    Nothing,
    Piece,
    Rule,
    RuleMatch,
    Standing,
    any_of,
    compile_pattern,
)
from memrecall.text.times.ranges import Grain, Range, shift, whole
from memrecall.text.times.recurrence import Cycle, inside, latest, nearest, upcoming

_FIGURES = Matcher(digits.RULES)
_CHINESE = Matcher(chinese.RULES)
_ENGLISH = Matcher(english.RULES)
_LEADS = Matcher((*chinese.LEADS, *english.LEADS))
_TAILS = Matcher((*chinese.TAILS, *english.TAILS))
# What may stand between two pieces, and between two of a list of recurring ones.
_GLUE = compile_pattern(r"(?:'s|的|,|[(])?\s{0,2}(?:(?:at|on|in|of|around|about)(?: the)? |-)?")
_LIST_GLUE = compile_pattern(r"\s?(?:[、,和与及/&到至的~-]|(?:and|or|to|through|on|in)\b)?\s?")


class _Joint(NamedTuple):
    """Words that make two times the ends of one stretch, and what must close it."""

    opening: re.Pattern[str]
    closing: re.Pattern[str]


_TO = _Joint(
    compile_pattern(r"\s?(?:到(?!底)|[至~]|--?|(?:to|through|thru|until|till)\b(?: the\b)?)\s?"),
    compile_pattern(""),
)
_BOTH = _Joint(compile_pattern(r"\s?[和与跟]\s?"), compile_pattern("之?间"))
# Only behind "between": otherwise "and" lists two times.
_AND = _Joint(compile_pattern(r"\s?and\b(?: the\b)?\s?"), compile_pattern(""))


class TimeExpression(NamedTuple):
    """A time expression's place in the text and what it means; None is an open end."""

    position: int
    stop: int
    start: datetime | None
    end: datetime | None
    grain: Grain


class _Link(NamedTuple):
    piece: Piece
    standing: Standing
    position: int
    stop: int


@dataclass(slots=True)
class _Chain:
    """Links that belong together; `meanings` holds what was meant after each of them."""

    position: int
    stop: int
    meanings: list[Piece]

    @property
    def meaning(self) -> Piece:
        return self.meanings[-1]


@cache
def _start() -> re.Pattern[str]:
    return compile_pattern(any_of((chinese.STARTS, digits.STARTS, english.STARTS)))


def read_times(text: str, now: datetime, *, past: bool = True) -> Iterator[TimeExpression]:
    """Find the time expressions of a folded text, in order, as of a moment in the user's zone."""
    reader, start = _Reader(text, now, past), _start()
    position = 0
    while begin := start.search(text, position):
        position, found = reader.read(begin.start())
        if found is not None:
            yield found


@dataclass(frozen=True, slots=True)
class _Reader:
    text: str
    now: datetime
    past: bool  # a bare "in May" is the last one; otherwise the nearest

    def read(self, position: int) -> tuple[int, TimeExpression | None]:
        """Read the expression at a position; return where to go on and what was found."""
        if lead := _LEADS.match(self.text, position):
            edge = lead.entry.edge
            chain = self._read_chain(lead.stop, licensed=lead.entry.licenses)
        else:
            edge, chain = Boundary.WITHIN, self._read_chain(position)
        if chain is None:
            return position + 1, None
        try:
            found = self._read_stretch(position, chain, edge) or self._cut(position, chain, edge)
        except (ValueError, OverflowError):
            # It never comes round, or only outside the years that a datetime can hold.
            found = None
        return (chain.stop if found is None else found.stop), found

    def _read_chain(
        self, position: int, *, licensed: bool = False, left: _Chain | None = None
    ) -> _Chain | None:
        first = self._read_link(position)
        if first is None or (first.standing is Standing.SHY and not licensed):
            return None
        meaning = self._borrow(left, first) if left else first.piece
        chain = _Chain(position, first.stop, [meaning])
        while self._extend(chain):
            pass
        joined = len(chain.meanings) > 1 or meaning is not first.piece
        free = first.standing is Standing.FREE
        leans = licensed and first.standing is not Standing.BOUND
        return chain if free or joined or leans else None

    def _read_link(self, position: int) -> _Link | None:
        match = _match_rule(self.text, position)
        if match is None:
            return None
        try:
            piece = match.entry.make(self.now, *match.groups)
        except (ValueError, OverflowError):
            piece = Nothing.NEVER
        return _Link(piece, match.entry.standing, position, match.stop)

    def _extend(self, chain: _Chain) -> bool:
        glue = _LIST_GLUE if chain.meaning is Nothing.EVERY else _GLUE
        between = glue.match(self.text, chain.stop)
        link = self._read_link(between.end() if between else chain.stop)
        if link is None:
            return False
        # Only English names the larger thing last; 周三,下周 are two times.
        backwards = self.text[link.position].isascii()
        meaning = _combine(chain.meaning, link.piece, backwards=backwards)
        if meaning is None:
            return False
        chain.meanings.append(meaning)
        bracketed = between is not None and "(" in between[0]
        closed = bracketed and self.text.startswith(")", link.stop)
        chain.stop = link.stop + 1 if closed else link.stop
        return True

    def _borrow(self, left: _Chain, first: _Link) -> Piece:
        """Place 五点 of 下午三点到五点 in what its left side was placed in."""
        if first.standing is not Standing.BOUND:
            return first.piece
        for around in reversed(left.meanings):
            meaning = _combine(around, first.piece, backwards=False)
            if isinstance(meaning, Range | Cycle):
                return meaning
        return first.piece

    def _read_stretch(self, position: int, left: _Chain, edge: Boundary) -> TimeExpression | None:
        for joint in (_TO, _BOTH, _AND) if edge is Boundary.BETWEEN else (_TO, _BOTH):
            between = joint.opening.match(self.text, left.stop)
            right = between and self._read_chain(between.end(), licensed=True, left=left)
            closing = right and joint.closing.match(self.text, right.stop)
            if right and closing and (ends := self._ends(left.meaning, right.meaning)):
                return TimeExpression(position, closing.end(), *ends, "range")
        return None

    def _ends(self, left: Piece, right: Piece) -> tuple[datetime, datetime] | None:
        """Settle both sides of a stretch: the right one follows the left one."""
        if isinstance(left, Nothing) or isinstance(right, Nothing):
            return None
        if isinstance(right, Range):
            first = left if isinstance(left, Range) else latest(left, right.start)
            return (first.start, right.end) if first.start < right.end else None
        first = self._settle(left)
        final = upcoming(right, first.start)
        too_late = final.start >= whole(self.now, "day").end
        if self.past and isinstance(left, Cycle) and too_late:
            # 三月到五月 said in April is last year's, as the whole of it is past.
            first = latest(left, shift(first.start, "day", -1))
            final = upcoming(right, first.start)
        return first.start, final.end

    def _cut(self, position: int, chain: _Chain, edge: Boundary) -> TimeExpression | None:
        if isinstance(chain.meaning, Nothing):
            return None
        settled, stop = self._settle(chain.meaning), chain.stop
        # A window that ends now has no after: 刚刚开始 is not "since just now".
        plain = edge in (Boundary.WITHIN, Boundary.BETWEEN) and settled.end != self.now
        if plain and (tail := _TAILS.match(self.text, stop)):
            edge, stop = tail.entry.edge, tail.stop
        start, end = _edges(settled, edge)
        closed = start is not None and end is not None
        return TimeExpression(position, stop, start, end, settled.grain if closed else "range")

    def _settle(self, meaning: Range | Cycle) -> Range:
        if isinstance(meaning, Range):
            return meaning
        return latest(meaning, self.now) if self.past else nearest(meaning, self.now)


def _match_rule(text: str, position: int) -> RuleMatch[Rule] | None:
    first = text[position : position + 1]
    if not first.isascii():
        return _CHINESE.match(text, position)
    if first.isdecimal():
        tables = (_FIGURES, _CHINESE, _ENGLISH)
        return next(filter(None, (table.match(text, position) for table in tables)), None)
    return _ENGLISH.match(text, position)


def _combine(first: Piece, second: Piece, *, backwards: bool) -> Piece | None:
    """Return what two neighbours mean together, or None if they are two times."""
    if isinstance(first, Nothing):
        return first if isinstance(second, Cycle) else None
    if isinstance(second, Nothing):
        return None
    if isinstance(second, Cycle) and first.grain in second.within:
        return _place(first, second)
    if backwards and isinstance(first, Cycle) and second.grain in first.within:
        return _place(second, first)
    if first.grain == second.grain == "day" and _is_weekday(first) != _is_weekday(second):
        # Monday, May 3: the date says it all.
        return second if _is_weekday(first) else first
    return None


def _place(around: Range | Cycle, cycle: Cycle) -> Piece:
    if isinstance(around, Cycle):
        return inside(around, cycle)
    try:
        return cycle.at(around)
    except (ValueError, OverflowError):
        return Nothing.NEVER


def _is_weekday(piece: Range | Cycle) -> bool:
    return isinstance(piece, Cycle) and piece.within == ("week",)


def _edges(settled: Range, edge: Boundary) -> tuple[datetime | None, datetime | None]:
    start, end = settled.start, settled.end
    return {
        Boundary.BEFORE: (None, start),
        Boundary.UNTIL: (None, end),
        Boundary.AFTER: (end, None),
        Boundary.SINCE: (start, None),
    }.get(edge, (start, end))
