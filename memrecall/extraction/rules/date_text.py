"""Dates as they are written in facts, in English and Chinese."""

import re
from datetime import datetime, timedelta

from memrecall.extraction.rules.tables import load_table
from memrecall.model.prompts import Language
from memrecall.text.times import TimeGrain

_SHARED = load_table("shared")
_MAX_RANGE = timedelta(days=100)
_HOUR = timedelta(hours=1)
_PREPOSITIONS = {"week": "in ", "month": "in ", "season": "in ", "year": "in "}
_LIMITS = ("by", "before", "until", "till")
_PLAIN_LEADS = ("on", "in", "at", "during", "over", "of", "within", "throughout")
_CHINESE_PARTS = {"早": "早上", "晚": "晚上", "夜": "夜里"}


def fit_date(before: str, date: str, after: str, language: Language) -> str:
    """Return a written date without its "on" where the text around it takes its place."""
    if language == "en" and (_SHARED.search("before_date", before) or after.startswith("'s")):
        return re.sub("^(?:on|in) ", "", date)
    return date


def english_date(
    start: datetime, end: datetime, grain: TimeGrain, words: str, lead: str
) -> str | None:
    """Return a time with a preposition ("on 2026-03-13 at 15:00"), or None if it is too vague."""
    date = _english_core(start, end, grain, words)
    if date is None:
        return None
    word = lead.split()[0].lower() if lead else ""
    if grain == "range" and word in _LIMITS:
        date = f"{_last_day(end):%Y-%m-%d}"
    if word and word not in _PLAIN_LEADS:
        return lead.replace(" the ", " ") + date
    return _PREPOSITIONS.get(grain, "on ") + date


def _english_core(start: datetime, end: datetime, grain: TimeGrain, words: str) -> str | None:
    day = f"{start:%Y-%m-%d}"
    match grain:
        case "day":
            return day
        case "hour" | "minute":
            return _english_hour(start, end, day, words)
        case "week":
            return f"the week of {day}"
        case "month":
            return f"{start:%B %Y}"
        case "season":
            season = _SHARED.search("season", words)
            return f"{season['en'].lower()} {start:%Y}" if season and season["en"] else None
        case "year":
            return f"{start:%Y}"
    return f"{day} to {_last_day(end):%Y-%m-%d}" if end - start <= _MAX_RANGE else None


def _english_hour(start: datetime, end: datetime, day: str, words: str) -> str:
    if end - start <= _HOUR:
        return f"{day} at {start:%H:%M}"
    part = _SHARED.search("part_of_day", words)
    name = part.group().lower() if part else "night"
    return f"{day} {'at' if name in ('night', 'noon', 'midnight') else 'in the'} {name}"


def _last_day(end: datetime) -> datetime:
    return end - timedelta(days=1)


def chinese_date(
    start: datetime, end: datetime, grain: TimeGrain, words: str, *, until: bool = False
) -> str | None:
    """Return a time as in 2026年3月13日15:00; of a range only its end if `until`."""
    day = _chinese_day(start)
    match grain:
        case "day":
            return day
        case "hour" | "minute":
            if end - start <= _HOUR:
                return f"{day}{start:%H:%M}"
            part = _SHARED.search("part_of_day_zh", words)
            name = part.group() if part else ""
            return day + _CHINESE_PARTS.get(name, name)
        case "week":
            return f"{day}那一周"
        case "month":
            return f"{start.year}年{start.month}月"
        case "season":
            season = _SHARED.search("season", words)
            return f"{start.year}年{season['zh']}天" if season and season["zh"] else None
        case "year":
            return f"{start.year}年"
    return _chinese_range(start, end, until=until) if end - start <= _MAX_RANGE else None


def _chinese_day(day: datetime) -> str:
    return f"{day.year}年{day.month}月{day.day}日"


def _chinese_range(start: datetime, end: datetime, *, until: bool) -> str:
    last = _last_day(end)
    if until:
        return _chinese_day(last)
    is_same_month = (start.year, start.month) == (last.year, last.month)
    return f"{_chinese_day(start)}至{f'{last.day}日' if is_same_month else _chinese_day(last)}"
