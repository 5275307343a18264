"""Relative dates as dates: "next Friday" becomes "on 2026-03-13", 上周三 becomes 2026年3月4日."""

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Literal

from memrecall.extraction.rules.date_words import (
    has_year,
    in_chinese,
    in_english,
    is_weekday,
    joined,
)
from memrecall.extraction.rules.frames import Tense
from memrecall.model.prompts import Language
from memrecall.text.times import TimeSpan, find_times

# What to write out: every time, all but weekdays (which come back), only those that depend on when
# they were said, or none.
Dates = Literal["all", "steady", "relative", "none"]

_VAGUE = re.compile(
    r"\b(?:recent|late|just now|now|lately|these days|nowadays|so far|in the past|one day"
    r"|ago\b.*few"
    r"|few|couple|several)|最近|近来|近期|刚|目前|现在|这几|前几|前阵|这阵|这段|那段|几天|几个|几年"
    r"|多年|^以前$|^之前$|后来",
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
_DAY_ALONE = re.compile(
    r"(?:on |by |until |before |after )?(?:the )?\d{1,2}(?:st|nd|rd|th)|[0-9一二三十]{1,3}[号日]",
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


def is_ahead(text: str, moment: Moment, tense: Tense = "future") -> bool:
    """Whether a text names a time to come; a bare weekday is the next one in the future tense."""
    if _AHEAD.search(text):
        return True
    return any(_is_to_come(span, moment.now) for span in times_in(text, moment, tense))


def _is_to_come(span: TimeSpan, now: datetime) -> bool:
    """Whether a time is not over; the year that goes on is no time to come."""
    if span.end is None or span.end <= now:
        return span.start is not None and span.start > now
    return span.grain not in ("year", "season") or span.start is None or span.start > now


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
        wanted = _wanted(span, dates) and not _is_adjective(text, span, at, language)
        written = _write(span, moment, language, tense) if wanted else None
        before = "".join(parts)
        parts.append(words if written is None else joined(before, written, text[at:], language))
    parts.append(text[at:])
    since = next((span.start for span in spans if span.start), None)
    dated = re.sub(r"\bthe (?=\d{4}-\d\d-\d\d)", "", "".join(parts))
    return Dated(_write_ahead(dated, moment) if tense != "past" else dated, since)


_PLURAL_PART = re.compile(r" (?:mornings|afternoons|evenings|nights)\b", re.IGNORECASE)
_NO_NOUN = re.compile(
    r"\s+(?:and|or|but|at|in|on|with|to|for|from|by|because|so|as|about|after|before"
    r"|until|when|while|if|of"
    r"|we|i|he|she|they|my|our|the|a|an|again|too|already|instead|together|onwards?"
    r"|through|between|via)\b",
    re.IGNORECASE,
)


def _is_adjective(text: str, span: TimeSpan, end: int, language: Language) -> bool:
    """Whether a time only tells which thing is meant: "the Christmas party", "our Sunday lunch"."""
    if language == "zh" or _RELATIVE.search(span.text):
        return False
    if _PLURAL_PART.match(text, end):
        return True
    before = re.search(
        r"\b(?:the|a|an|my|our|their|his|her|\w+'s) (?:\w+ )?$", text[: span.position]
    )
    led = re.match(r"(?:\w+ )?(?:the|my|our|a) ", span.text, re.IGNORECASE)
    follows = re.match(r"\s+[a-z]", text[end:]) and not _NO_NOUN.match(text, end)
    return bool((before or led) and follows)


def _wanted(span: TimeSpan, dates: Dates) -> bool:
    # A bare season is rather a kind of thing: 秋季新品.
    all_times = dates in ("all", "steady") and span.grain != "season"
    if dates == "steady" and is_weekday(span.text) and not _RELATIVE.search(span.text):
        return False
    return all_times or _RELATIVE.search(span.text) is not None


def _write(span: TimeSpan, moment: Moment, language: Language, tense: Tense) -> str | None:
    """The written form with its preposition, or None to leave it as it is."""
    if span.start is not None and span.end is not None:
        led = _LEAD.match(span.text) if language == "en" else None
        lead, words = (led.group(), span.text[led.end() :]) if led else ("", span.text)
        return _write_core(span, words, lead, moment, language)
    for lead, core, tail in _openings(span.text, language):
        found = times_in(core, moment, tense)
        closed = [one for one in found if one.start and one.end and one.text == core]
        if closed:
            until = tail in ("之前", "以前", "前")
            written = _write_core(closed[0], core, lead, moment, language, until=until)
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
    span: TimeSpan,
    words: str,
    lead: str,
    moment: Moment,
    language: Language,
    *,
    until: bool = False,
) -> str | None:
    start, end = (
        edge.astimezone(moment.zone) for edge in (span.start, span.end) if edge is not None
    )
    if language == "zh":
        written = in_chinese(start, end, span.grain, words, until=until)
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
    elif _DAY_ALONE.fullmatch(span.text):
        start = _next_month(start, moment.zone)
        end = start + (span.end - span.start)
    else:
        start, end = (_next_year(edge, moment.zone) for edge in (start, end))
    return TimeSpan(start, end, span.text, span.position, span.grain)


def _next_month(edge: datetime, zone: tzinfo) -> datetime:
    """The same day of the next month that has it: "the 31st" of April is that of May."""
    local = edge.astimezone(zone)
    months = (local.year * 12 + local.month - 1 + ahead for ahead in (1, 2))
    for year, month in ((count // 12, count % 12 + 1) for count in months):
        if local.day <= monthrange(year, month)[1]:
            return local.replace(year=year, month=month)
    return local


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
