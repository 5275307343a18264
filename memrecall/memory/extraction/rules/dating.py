"""Relative dates as dates: "next Friday" becomes "on 2026-03-13", 上周三 becomes 2026年3月4日."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Literal

from memrecall.memory.extraction.rules.date_words import (
    has_year,
    in_chinese,
    in_english,
    is_weekday,
    joined,
)
from memrecall.memory.extraction.rules.frames import Tense
from memrecall.model.prompts import Language
from memrecall.text.times import TimeSpan, find_times

# What to write out: every time, only those that depend on when they were said, or none.
Dates = Literal["all", "relative", "none"]

_VAGUE = re.compile(
    r"\b(?:recent|late|just now|now|lately|these days|nowadays|so far|in the past|one day|ago\b.*few"
    r"|few|couple|several)|最近|近来|近期|刚|目前|现在|这几|前几|前阵|这阵|这段|那段|几天|几个|几年"
    r"|多年|以前$|之前$|后来",
    re.IGNORECASE,
)
_RELATIVE = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight|next|last|this|ago|coming|from now)\b"
    r"|[昨今明]|前天|后天|上个?|下个?|去年|这[周个]|[前后]$",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:on|at|in|by|before|prior to|after|(?:ever )?since|starting(?: in| on| from)?|until|till"
    r"|up to|up until|from|between|during|throughout|within|of|over)(?: the)? ",
    re.IGNORECASE,
)
_LEAD_ZH = re.compile("自从|直到|截至|从|自|到|于|在")
_TAIL_ZH = re.compile("(?:开始|起|以来|以后|之后|之前|以前|前|后|为止)$")
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_AHEAD = re.compile(
    rf"\bin (?P<count>\d{{1,2}}|{'|'.join(_COUNTS)}) (?P<unit>day|week|month|year)s?\b(?!')",
    re.IGNORECASE,
)
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was said, and in which zone."""

    now: datetime
    zone: tzinfo


@dataclass(frozen=True, slots=True)
class Dated:
    """A text with its dates written out, and when the first of them begins."""

    text: str
    since: datetime | None = None


def times_in(text: str, moment: Moment, tense: Tense = "present") -> list[TimeSpan]:
    """The times of a statement: past ones in the past tense, coming ones in the future."""
    spans = find_times(text, moment.now, moment.zone, past=tense == "past")
    spans = [span for span in spans if not _VAGUE.search(span.text)]
    return [_ahead(span, moment) for span in spans] if tense == "future" else spans


def has_time(text: str, moment: Moment) -> bool:
    """Whether a text says when."""
    return bool(_AHEAD.search(text) or times_in(text, moment))


def is_ahead(text: str, moment: Moment) -> bool:
    """Whether a text names a time to come."""
    spans = times_in(text, moment, "future")
    return bool(_AHEAD.search(text)) or any(span.end and span.end > moment.now for span in spans)


def write_dates(
    text: str, moment: Moment, language: Language, tense: Tense, dates: Dates = "all"
) -> Dated:
    """The text with its times as dates; what repeats or is vague stays as it was said."""
    if dates == "none":
        return Dated(text)
    spans = times_in(text, moment, tense)
    parts: list[str] = []
    at = 0
    for span in spans:
        parts.append(text[at : span.position])
        words = span.text.removesuffix(".") if language == "en" else span.text
        at = span.position + len(words)
        written = _write(span, moment, language, tense) if _wanted(span, dates) else None
        parts.append(words if written is None else joined("".join(parts), written, language))
    parts.append(text[at:])
    since = next((span.start for span in spans if span.start), None)
    dated = "".join(parts)
    return Dated(_write_ahead(dated, moment) if tense != "past" else dated, since)


def _wanted(span: TimeSpan, dates: Dates) -> bool:
    return dates == "all" or _RELATIVE.search(span.text) is not None


def _write(span: TimeSpan, moment: Moment, language: Language, tense: Tense) -> str | None:
    """The written form with its preposition, or None to leave it as it is."""
    if span.start is not None and span.end is not None:
        lead = _LEAD.match(span.text) if language == "en" else None
        words = span.text[lead.end() :] if lead else span.text
        return _write_core(span, words, lead.group() if lead else "", moment, language)
    for lead, core, tail in _openings(span.text, language):
        found = times_in(core, moment, tense)
        closed = [one for one in found if one.start and one.end and one.text == core]
        if closed:
            written = _write_core(closed[0], core, lead, moment, language)
            return None if written is None else written + tail
    return None


def _openings(words: str, language: Language) -> Iterator[tuple[str, str, str]]:
    """How an open time may be cut into what opens it and the time itself."""
    if language == "en":
        if lead := _LEAD.match(words):
            yield lead.group(), words[lead.end() :], ""
        return
    lead_zh, tail = _LEAD_ZH.match(words), _TAIL_ZH.search(words)
    start, end = lead_zh.end() if lead_zh else 0, tail.start() if tail else len(words)
    yield words[:start], words[start:end], words[end:]


def _write_core(
    span: TimeSpan, words: str, lead: str, moment: Moment, language: Language
) -> str | None:
    start, end = (
        edge.astimezone(moment.zone) for edge in (span.start, span.end) if edge is not None
    )
    if language == "zh":
        written = in_chinese(start, end, span.grain, words)
        return written and lead + written
    return in_english(start, end, span.grain, words, lead)


def _ahead(span: TimeSpan, moment: Moment) -> TimeSpan:
    """A bare "Friday" or "in May" of a plan is the next one."""
    if span.start is None or span.end is None or span.end > moment.now or has_year(span.text):
        return span
    if _RELATIVE.search(span.text):
        return span
    start, end = span.start, span.end
    if is_weekday(span.text):
        weeks = (moment.now - end) // timedelta(days=7) + 1
        start, end = start + timedelta(days=7 * weeks), end + timedelta(days=7 * weeks)
    else:
        start, end = (_next_year(edge, moment.zone) for edge in (start, end))
    return TimeSpan(start, end, span.text, span.position, span.grain)


def _next_year(edge: datetime, zone: tzinfo) -> datetime:
    local = edge.astimezone(zone)
    try:
        return local.replace(year=local.year + 1)
    except ValueError:  # 29 February
        return local.replace(year=local.year + 1, day=28)


def _write_ahead(text: str, moment: Moment) -> str:
    """ "in two weeks" as about when that is."""

    def write(match: re.Match[str]) -> str:
        said = match["count"].lower()
        count = _COUNTS[said] if said in _COUNTS else int(said)
        days = count * _UNIT_DAYS[match["unit"].lower()]
        try:
            day = moment.now.astimezone(moment.zone) + timedelta(days=days)
        except OverflowError:
            return match.group()
        if match["unit"].lower() == "day":
            return f"on {day:%Y-%m-%d}"
        return f"around {day:%Y-%m-%d}" if match["unit"].lower() == "week" else f"in {day:%B %Y}"

    return _AHEAD.sub(write, text)
