"""Parser of time expressions: finds the words, combines their meanings, applies before and after.

An expression is a chain of pieces, each placed in the one before it (去年 五月 三日) or, in
English, in the one after it (May of last year). Two chains joined by "to" are a range. Every step
moves forward and looks at a bounded piece of the text, so parsing takes linear time. Only
`parse_period` may read the clock.
"""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from memrecall.errors import InvalidArgument
from memrecall.text.times import chinese, english
from memrecall.text.times.grammar import (
    NUMERIC_RULES,
    NUMERIC_STARTS,
    Boundary,
    Matcher,
    NoTime,
    Piece,
    Requirement,
    Rule,
    RuleMatch,
    any_of,
    compile_pattern,
)
from memrecall.text.times.periods import (
    Grain,
    Range,
    Recurrence,
    calendar_unit,
    latest_occurrence,
    nearest_occurrence,
    nest,
    next_occurrence,
    shift,
)
from memrecall.text.tokens import replace_characters
from memrecall.text_length import truncate_text

TimeGrain = Literal["minute", "hour", "day", "week", "month", "season", "year", "range"]

# Each character is replaced by one character, which keeps positions.
_LOWER_CASE = {ord(upper): ord(upper) + 32 for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_LOOKALIKES = {ord(old): ord(new) for old, new in zip("–—〜○\xa0", "--~〇 ", strict=True)}
_FOLDING = _LOWER_CASE | _LOOKALIKES
_LONGEST_PERIOD = 100  # characters
_PERIODS = 'Write it like "last week", "March 2026", 2026-03-18, 上周 or 去年三月'


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time expression: its text, its position and the time that it means.

    `start` is inclusive and `end` exclusive, both in UTC; None is an open end. `grain` is the unit
    of the expression, "range" if it has no single one.
    """

    start: datetime | None
    end: datetime | None
    text: str
    position: int
    grain: TimeGrain

    def covers(self, moment: datetime) -> bool:
        """Return True if a moment is in the span."""
        has_begun = self.start is None or self.start <= moment
        return has_begun and (self.end is None or moment < self.end)


def parse_period(
    text: str | None, now: datetime | None = None, time_zone: str = "UTC"
) -> TimeSpan | None:
    """Return the period that a text names, None without one; InvalidArgument if it says else."""
    if text is None:
        return None
    words = str(text).strip()  # a date is its ISO form
    # "May" and "2025" are ambiguous in a sentence, but not here.
    candidates = (words, f"in {words}") if len(words) <= _LONGEST_PERIOD else ()
    for candidate in candidates:
        for span in find_times(candidate, now or datetime.now(UTC), ZoneInfo(time_zone)):
            if span.text == candidate:
                return replace(span, text=words)
    raise InvalidArgument(f"time {truncate_text(words, 80)!r} is not a period", hint=_PERIODS)


def find_times(
    text: str, now: datetime, zone: tzinfo = UTC, *, past: bool = True
) -> list[TimeSpan]:
    """Return the time expressions of a text, in order, relative to `now` in the user's zone.

    The most specific reading wins and spans never overlap. A `now` without a zone is UTC. Times
    outside the years 1 to 9999 are omitted. A bare "Wednesday" or "in May" is the last one, which
    is what questions mean; with `past` False it is the nearest, as in statements.
    """
    try:
        local = (now.replace(tzinfo=UTC) if now.utcoffset() is None else now).astimezone(zone)
    except OverflowError:
        return []
    folded = replace_characters(text).translate(_FOLDING)
    parser, start = _Parser(folded, local, past), _start_pattern()
    spans: list[TimeSpan] = []
    position = 0
    while match := start.search(folded, position):
        position, expression = parser.read(match.start())
        if expression is not None and (span := _to_span(text, expression)) is not None:
            spans.append(span)
    return spans


def _to_span(text: str, expression: "_TimeExpression") -> TimeSpan | None:
    try:
        start = expression.start and expression.start.astimezone(UTC)
        end = expression.end and expression.end.astimezone(UTC)
    except OverflowError:
        return None
    if start and end and start >= end:
        # The zone skipped this day when it moved across the date line.
        return None
    words = text[expression.position : expression.stop]
    grain = "hour" if expression.grain == "part" else expression.grain
    return TimeSpan(start, end, words, expression.position, grain)


_NUMERIC = Matcher(NUMERIC_RULES)
_CHINESE = Matcher(chinese.RULES)
_ENGLISH = Matcher(english.RULES)
_PREFIXES = Matcher((*chinese.PREFIXES, *english.PREFIXES))
_SUFFIXES = Matcher((*chinese.SUFFIXES, *english.SUFFIXES))
# What may separate two pieces, and two items of a list of recurring ones.
_SEPARATOR = compile_pattern(
    r"(?:'s|的|,|[(])?\s{0,2}(?:(?:at|on|in|of|around|about)(?: the)? |-)?"
)
# 三月起 said in November has begun: who means the next March says 明年三月起.
_MAX_AHEAD = timedelta(days=60)
_LIST_SEPARATOR = compile_pattern(r"\s?(?:[、,和与及/&到至的~-]|(?:and|or|to|through|on|in)\b)?\s?")


class _Conjunction(NamedTuple):
    """Words that join two times to a range, and what must follow the second."""

    opening: re.Pattern[str]
    closing: re.Pattern[str]


_TO = _Conjunction(
    compile_pattern(r"\s?(?:到(?!底)|[至~]|--?|(?:to|through|thru|until|till)\b(?: the\b)?)\s?"),
    compile_pattern(""),
)
_AND_BETWEEN = _Conjunction(compile_pattern(r"\s?[和与跟]\s?"), compile_pattern("之?间"))
# Only after "between": otherwise "and" lists two times.
_AND = _Conjunction(compile_pattern(r"\s?and\b(?: the\b)?\s?"), compile_pattern(""))


class _TimeExpression(NamedTuple):
    position: int
    stop: int
    start: datetime | None
    end: datetime | None
    grain: Grain


class _PieceMatch(NamedTuple):
    piece: Piece
    requirement: Requirement
    position: int
    stop: int


@dataclass(slots=True)
class _Chain:
    """Pieces that belong together, with the combined meaning after each of them."""

    position: int
    stop: int
    meanings: list[Piece]

    @property
    def meaning(self) -> Piece:
        return self.meanings[-1]


@cache
def _start_pattern() -> re.Pattern[str]:
    return compile_pattern(any_of((chinese.STARTS, NUMERIC_STARTS, english.STARTS)))


@dataclass(frozen=True, slots=True)
class _Parser:
    text: str
    now: datetime
    past: bool  # whether a bare "in May" is the last one, not the nearest

    def read(self, position: int) -> tuple[int, _TimeExpression | None]:
        """Return where to continue, and the expression at a position if there is one."""
        if prefix := _PREFIXES.match(self.text, position):
            boundary = prefix.entry.boundary
            chain = self._read_chain(prefix.stop, is_confirmed=prefix.entry.confirms)
        else:
            boundary, chain = Boundary.WITHIN, self._read_chain(position)
        if chain is None:
            return position + 1, None
        try:
            expression = self._read_range(position, chain, boundary)
            expression = expression or self._apply_boundary(position, chain, boundary)
        except (ValueError, OverflowError):
            # It never occurs, or only outside the years that a datetime supports.
            expression = None
        return (chain.stop if expression is None else expression.stop), expression

    def _read_chain(
        self, position: int, *, is_confirmed: bool = False, left: _Chain | None = None
    ) -> _Chain | None:
        first = self._read_piece(position)
        if first is None or (
            first.requirement is Requirement.MARKER_OR_PREDECESSOR and not is_confirmed
        ):
            return None
        meaning = self._with_left_context(left, first) if left else first.piece
        chain = _Chain(position, first.stop, [meaning])
        while self._extend(chain):
            pass
        has_neighbor = len(chain.meanings) > 1 or meaning is not first.piece
        is_clear = first.requirement is Requirement.NONE or (
            is_confirmed and first.requirement is not Requirement.NEIGHBOR
        )
        return chain if is_clear or has_neighbor else None

    def _read_piece(self, position: int) -> _PieceMatch | None:
        match = _match_rule(self.text, position)
        if match is None:
            return None
        try:
            piece = match.entry.make(self.now, *match.groups)
        except (ValueError, OverflowError):
            piece = NoTime.IMPOSSIBLE
        return _PieceMatch(piece, match.entry.requirement, position, match.stop)

    def _extend(self, chain: _Chain) -> bool:
        separator = _LIST_SEPARATOR if chain.meaning is NoTime.RECURRING else _SEPARATOR
        between = separator.match(self.text, chain.stop)
        match = self._read_piece(between.end() if between else chain.stop)
        if match is None:
            return False
        # Only English puts the larger unit last; 周三,下周 are two times.
        is_english = self.text[match.position].isascii()
        meaning = _combine(chain.meaning, match.piece, is_english=is_english)
        if meaning is None:
            return False
        chain.meanings.append(meaning)
        is_bracketed = between is not None and "(" in between[0]
        is_closed = is_bracketed and self.text.startswith(")", match.stop)
        chain.stop = match.stop + 1 if is_closed else match.stop
        return True

    def _with_left_context(self, left: _Chain, first: _PieceMatch) -> Piece:
        """Return the right side placed in the left one's context: 五点 of 下午三点到五点."""
        if first.requirement is not Requirement.NEIGHBOR:
            return first.piece
        for around in reversed(left.meanings):
            meaning = _combine(around, first.piece, is_english=False)
            if isinstance(meaning, Range | Recurrence):
                return meaning
        return first.piece

    def _read_range(
        self, position: int, left: _Chain, boundary: Boundary
    ) -> _TimeExpression | None:
        last = (_AND,) if boundary is Boundary.BETWEEN else ()
        for conjunction in (_TO, _AND_BETWEEN, *last):
            between = conjunction.opening.match(self.text, left.stop)
            right = between and self._read_chain(between.end(), is_confirmed=True, left=left)
            closing = right and conjunction.closing.match(self.text, right.stop)
            if right and closing and (ends := self._resolve_ends(left.meaning, right.meaning)):
                return _TimeExpression(position, closing.end(), *ends, "range")
        return None

    def _resolve_ends(self, left: Piece, right: Piece) -> tuple[datetime, datetime] | None:
        """Return the ends of a range; its right side follows the left one."""
        if isinstance(left, NoTime) or isinstance(right, NoTime):
            return None
        if isinstance(right, Range):
            first = left if isinstance(left, Range) else latest_occurrence(left, right.start)
            return (first.start, right.end) if first.start < right.end else None
        first = self._resolve(left)
        final = next_occurrence(right, first.start)
        is_future = final.start >= calendar_unit(self.now, "day").end
        if self.past and isinstance(left, Recurrence) and is_future:
            # 三月到五月 said in April means last year's: all of it is past.
            first = latest_occurrence(left, shift(first.start, "day", -1))
            final = next_occurrence(right, first.start)
        return first.start, final.end

    def _apply_boundary(
        self, position: int, chain: _Chain, boundary: Boundary
    ) -> _TimeExpression | None:
        if isinstance(chain.meaning, NoTime):
            return None
        period, stop = self._resolve(chain.meaning), chain.stop
        # A period that ends now has no suffix: 刚刚开始 is not "since just now".
        may_have_suffix = boundary in (Boundary.WITHIN, Boundary.BETWEEN) and period.end != self.now
        if may_have_suffix and (suffix := _SUFFIXES.match(self.text, stop)):
            boundary, stop = suffix.entry.boundary, suffix.stop
        if isinstance(chain.meaning, Recurrence) and self._has_begun(period.start, boundary):
            period = latest_occurrence(chain.meaning, self.now)
        start: datetime | None = period.start
        end: datetime | None = period.end
        match boundary:
            case Boundary.BEFORE:
                start, end = None, period.start
            case Boundary.UNTIL:
                start = None
            case Boundary.AFTER:
                start, end = period.end, None
            case Boundary.SINCE | Boundary.FROM:
                end = None
        is_closed = start is not None and end is not None
        return _TimeExpression(position, stop, start, end, period.grain if is_closed else "range")

    def _has_begun(self, start: datetime, boundary: Boundary) -> bool:
        """Return True if a time opens a period that has begun, whatever occurrence is nearest."""
        is_far = start > self.now + _MAX_AHEAD
        return boundary is Boundary.SINCE or (boundary is Boundary.FROM and is_far)

    def _resolve(self, meaning: Range | Recurrence) -> Range:
        find = latest_occurrence if self.past else nearest_occurrence
        return meaning if isinstance(meaning, Range) else find(meaning, self.now)


def _match_rule(text: str, position: int) -> RuleMatch[Rule] | None:
    first = text[position : position + 1]
    if not first.isascii():
        return _CHINESE.match(text, position)
    if first.isdecimal():
        tables = (_NUMERIC, _CHINESE, _ENGLISH)
        return next(filter(None, (table.match(text, position) for table in tables)), None)
    return _ENGLISH.match(text, position)


def _combine(first: Piece, second: Piece, *, is_english: bool) -> Piece | None:
    """Return the combined meaning of two pieces, None if they are two separate times."""
    if isinstance(first, NoTime):
        return first if isinstance(second, Recurrence) else None
    if isinstance(second, NoTime):
        return None
    if isinstance(second, Recurrence) and first.grain in second.within:
        return _place(first, second)
    if is_english and isinstance(first, Recurrence) and second.grain in first.within:
        return _place(second, first)
    if first.grain == second.grain == "day" and _is_weekday(first) != _is_weekday(second):
        # In "Monday, May 3" the date is enough.
        return second if _is_weekday(first) else first
    return None


def _place(around: Range | Recurrence, recurrence: Recurrence) -> Piece:
    if isinstance(around, Recurrence):
        return nest(around, recurrence)
    try:
        return recurrence.at(around)
    except (ValueError, OverflowError):
        return NoTime.IMPOSSIBLE


def _is_weekday(piece: Range | Recurrence) -> bool:
    return isinstance(piece, Recurrence) and piece.within == ("week",)
