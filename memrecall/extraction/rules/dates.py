"""Relative times as dates: "next Friday" becomes "on 2026-03-13", 上周三 becomes 2026年3月4日."""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache

from memrecall.extraction.rules.statements import DateStyle, ReferenceTime, Statement, Tense
from memrecall.extraction.rules.tables import load_table
from memrecall.text.times import TimeGrain, TimeSpan, find_times
from memrecall.text.times.periods import shift
from memrecall.types import Language

_SHARED = load_table("shared")
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
_MAX_RANGE = timedelta(days=100)
_JUST_OVER = timedelta(days=60)
_HOUR = timedelta(hours=1)
_PREPOSITIONS = {"week": "in ", "month": "in ", "season": "in ", "year": "in "}
_LIMITS = ("by", "before", "until", "till", "之前", "以前", "前")
_PLAIN_LEADS = ("on", "in", "at", "during", "over", "of", "within", "throughout")
_DATE_FORMATS: dict[Language, dict[str, str]] = {
    "en": {
        "day": "{:%Y-%m-%d}",
        "week": "the week of {:%Y-%m-%d}",
        "month": "{:%B %Y}",
        "year": "{:%Y}",
    },
    "zh": {
        "day": "{0.year}年{0.month}月{0.day}日",
        "week": "{0.year}年{0.month}月{0.day}日那一周",
        "month": "{0.year}年{0.month}月",
        "year": "{0.year}年",
    },
}
_CHINESE_PARTS = {"早": "早上", "晚": "晚上", "夜": "夜里"}


@dataclass(frozen=True, slots=True)
class DatedText:
    """A text with its times written out, and when the first of them begins."""

    text: str
    since: datetime | None = None


@lru_cache(maxsize=256)
def find_statement_times(
    text: str, time: ReferenceTime, tense: Tense = "present"
) -> tuple[TimeSpan, ...]:
    """Return the definite times of a statement, resolved by its tense."""
    spans = find_times(text, time.now, time.zone, past=tense == "past")
    spans = [span for span in spans if not _SHARED.search("vague_time", span.text)]
    return tuple(_move_ahead(span, time) if tense == "future" else span for span in spans)


def has_time(text: str, time: ReferenceTime) -> bool:
    """Return True if a text says when."""
    return bool(_SHARED.search("time_ahead", text) or find_statement_times(text, time))


def is_ahead(text: str, time: ReferenceTime) -> bool:
    """Return True if a text names a time to come."""
    if _SHARED.search("time_ahead", text):
        return True
    return any(_is_to_come(span, time.now) for span in find_statement_times(text, time, "future"))


def _is_to_come(span: TimeSpan, now: datetime) -> bool:
    if span.end is None or span.end <= now:
        return span.start is not None and span.start > now
    # The current year or season is not a time to come.
    return span.grain not in ("year", "season") or span.start is None or span.start > now


def date_statement(statement: Statement, time: ReferenceTime) -> DatedText:
    """Return a statement's text with its times as dates; recurring and vague times stay."""
    text, language, tense = statement.text, statement.language, statement.tense
    if statement.dates == "none":
        return DatedText(text)
    spans = find_statement_times(text, time, tense)
    dated = ""
    end = 0
    for span in spans:
        dated += text[end : span.position]
        words = span.text.removesuffix(".") if language == "en" else span.text
        end = span.position + len(words)
        is_date = _is_dated(span, statement.dates) and not _is_adjective(text, span, end, language)
        date = _write_span(span, time, language, tense) if is_date else None
        dated += words if date is None else _fit_date(dated, date, text[end:], language)
    since = next((span.start for span in spans if span.start), None)
    dated = re.sub(r"\bthe (?=\d{4}-\d\d-\d\d)", "", dated + text[end:])
    return DatedText(dated if tense == "past" else _write_counted(dated, time), since)


def _is_adjective(text: str, span: TimeSpan, end: int, language: Language) -> bool:
    """Return True if a time only says which thing is meant: "the Christmas party"."""
    if language == "zh" or _SHARED.search("relative_time", span.text):
        return False
    if _SHARED.pattern("plural_part_of_day").match(text, end):
        return True
    before = _SHARED.search("determiner_before", text[max(0, span.position - 60) : span.position])
    inside = re.match(r"(?:\w+ )?(?:the|my|our|a) ", span.text, re.IGNORECASE)
    follows = re.match(r"\s+[a-z]", text[end:])
    is_noun = follows and not _SHARED.pattern("not_a_noun").match(text, end)
    return bool((before or inside) and is_noun)


def _is_dated(span: TimeSpan, style: DateStyle) -> bool:
    is_relative = _SHARED.search("relative_time", span.text) is not None
    # A bare season is rather a kind of thing: 秋季新品.
    return is_relative or (style == "all" and span.grain != "season")


def _write_span(
    span: TimeSpan, time: ReferenceTime, language: Language, tense: Tense
) -> str | None:
    """Return the date with its preposition, or None to leave the time as it is."""
    if span.start is not None and span.end is not None:
        lead = _SHARED.match("time_lead", span.text) if language == "en" else None
        words = span.text[lead.end() :] if lead else span.text
        return _write_closed(span, (lead.group() if lead else "", words, ""), time, language)
    parts = _split_open(span.text, language)
    has_begun = span.start is not None and span.start <= time.now
    tense = "past" if has_begun else tense
    for closed in find_statement_times(parts[1], time, tense):
        if closed.start and closed.end and closed.text == parts[1]:
            return _write_closed(closed, parts, time, language)
    return None


def _split_open(words: str, language: Language) -> tuple[str, str, str]:
    """Split an open time into what opens it, the time itself and what closes it."""
    lead = _SHARED.match("time_lead" if language == "en" else "time_lead_zh", words)
    tail = _SHARED.search("time_tail_zh", words)
    start, end = lead.end() if lead else 0, tail.start() if tail else len(words)
    return words[:start], words[start:end], words[end:]


def _write_closed(
    span: TimeSpan, parts: tuple[str, str, str], time: ReferenceTime, language: Language
) -> str | None:
    """Return a time with its preposition ("on 2026-03-13 at 15:00"); None if it is too vague."""
    lead, words, tail = parts
    edges = (edge for edge in (span.start, span.end) if edge is not None)
    start, end = (edge.astimezone(time.zone) for edge in edges)
    opening = (lead.split() or [""])[0].lower()
    if span.grain == "range":
        is_limit = opening in _LIMITS or tail in _LIMITS
        date = _write_range(start, end, language, is_limit=is_limit)
    else:
        date = _write_date(start, end, span.grain, words, language)
    if date is None:
        return None
    if language == "zh":
        return lead + date + tail
    if opening and opening not in _PLAIN_LEADS:
        return lead.replace(" the ", " ") + date
    return _PREPOSITIONS.get(span.grain, "on ") + date


def _move_ahead(span: TimeSpan, time: ReferenceTime) -> TimeSpan:
    """Return the next "Friday" or "in May" for a plan."""
    if span.start is None or (span.end is None and _SHARED.search("has_begun", span.text)):
        return span
    edge = span.end or span.start
    if edge > time.now:
        return span
    if _SHARED.search("year", span.text) or _SHARED.search("relative_time", span.text):
        return span
    start, end = span.start, span.end
    if _SHARED.search("weekday", span.text):
        weeks = timedelta(days=7 * ((time.now - edge) // timedelta(days=7) + 1))
        start, end = start + weeks, end and end + weeks
    elif _SHARED.fullmatch("day_of_month", span.text):
        start = _next_month(start, time.zone)
        end = span.end and start + (span.end - span.start)
    elif time.now - edge > _JUST_OVER:  # 五一 said in May is not next year's
        start = shift(start.astimezone(time.zone), "year", 1)
        end = end and shift(end.astimezone(time.zone), "year", 1)
    return TimeSpan(start, end, span.text, span.position, span.grain)


def _next_month(edge: datetime, zone: tzinfo) -> datetime:
    """Return the same day of the next month that has it: "the 31st" of April is in May."""
    local = edge.astimezone(zone)
    months = (local.year * 12 + local.month - 1 + ahead for ahead in (1, 2))
    for year, month in ((count // 12, count % 12 + 1) for count in months):
        if local.day <= monthrange(year, month)[1]:
            return local.replace(year=year, month=month)
    return local


def _write_counted(text: str, time: ReferenceTime) -> str:
    """Replace "in two weeks" by about when that is."""

    def write(match: re.Match[str]) -> str:
        count, unit = match["count"].lower(), match["unit"].lower()
        days = (_COUNTS.get(count) or int(count)) * _UNIT_DAYS[unit]
        try:
            day = time.now.astimezone(time.zone) + timedelta(days=days)
        except OverflowError:
            return match.group()
        if unit in ("day", "week"):
            return f"{'on' if unit == 'day' else 'around'} {day:%Y-%m-%d}"
        return f"in {day:%B %Y}"

    return _SHARED.pattern("time_ahead").sub(write, text)


def _fit_date(before: str, date: str, after: str, language: Language) -> str:
    """Return a written date without its "on" where the text around it takes its place."""
    if language == "en" and (_SHARED.search("before_date", before) or after.startswith("'s")):
        return re.sub("^(?:on|in) ", "", date)
    return date


def _write_date(
    start: datetime, end: datetime, grain: TimeGrain, words: str, language: Language
) -> str | None:
    if grain == "season":
        season = _SHARED.search("season", words)
        if season is None or not season[language]:
            return None
        name = season[language].lower()
        return f"{name} {start:%Y}" if language == "en" else f"{start.year}年{name}天"
    if grain not in ("hour", "minute"):
        return _DATE_FORMATS[language][grain].format(start)
    day = _DATE_FORMATS[language]["day"].format(start)
    if end - start <= _HOUR:
        return f"{day} at {start:%H:%M}" if language == "en" else f"{day}{start:%H:%M}"
    part = _SHARED.search("part_of_day" if language == "en" else "part_of_day_zh", words)
    if language == "zh":
        name = part.group() if part else ""
        return day + _CHINESE_PARTS.get(name, name)
    name = part.group().lower() if part else "night"
    return f"{day} {'at' if name in ('night', 'noon', 'midnight') else 'in the'} {name}"


def _write_range(
    start: datetime, end: datetime, language: Language, *, is_limit: bool
) -> str | None:
    """Return the days of a range, or only the last one of a limit ("by the end of May")."""
    if end - start > _MAX_RANGE:
        return None
    last = end - timedelta(days=1)
    first_day, last_day = (_DATE_FORMATS[language]["day"].format(day) for day in (start, last))
    if is_limit:
        return last_day
    if language == "en":
        return f"{first_day} to {last_day}"
    is_same_month = (start.year, start.month) == (last.year, last.month)
    return f"{first_day}至{f'{last.day}日' if is_same_month else last_day}"
