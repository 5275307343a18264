"""How dates are written in facts, in English and Chinese."""

import re
from datetime import datetime, timedelta

from memrecall.model.prompts import Language
from memrecall.text.times import TimeGrain

_LONGEST_RANGE = timedelta(days=100)
_YEAR = re.compile(r"(?:19|20)\d\d")
_WEEKDAY = re.compile(
    r"\b(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\b|weekend"
    r"|周|星期|礼拜",
    re.IGNORECASE,
)
_PART = re.compile(r"\b(morning|afternoon|evening|night|noon|midnight)\b", re.IGNORECASE)
_PART_ZH = re.compile(
    "凌晨|清晨|早晨|早上|一早|上午|中午|下午|午后|傍晚|晚上|晚间|夜里|半夜|深夜|[早晚夜]"
)
_SEASON = re.compile(r"\b(spring|summer|autumn|fall|winter)\b|([春夏秋冬])", re.IGNORECASE)
_WHOLE_HOUR = timedelta(hours=1)
_PREPOSITIONS = {"week": "in ", "month": "in ", "season": "in ", "year": "in "}
_UP_TO = ("by", "before", "until", "till")
_PLAIN_LEADS = ("on", "in", "at", "during", "over", "of", "within", "throughout")
# Behind these an English date needs no preposition of its own.
_BEFORE_DATE = re.compile(
    r"(?:^|\b(?:to|until|till|by|before|after|from|for|since|of|on|at|in|around|about|between|and"
    r"|the|than)) $|[(\-–/]$",
    re.IGNORECASE,
)


def has_year(words: str) -> bool:
    """Whether the words name their year."""
    return _YEAR.search(words) is not None


def is_weekday(words: str) -> bool:
    """Whether the words name a day of the week."""
    return _WEEKDAY.search(words) is not None


def joined(before: str, written: str, after: str, language: Language) -> str:
    """A written date without its "on" where what stands around it takes its place."""
    if language == "en" and (_BEFORE_DATE.search(before) or after.startswith("'s")):
        return re.sub("^(?:on|in) ", "", written)
    return written


def in_english(
    start: datetime, end: datetime, grain: TimeGrain, words: str, lead: str
) -> str | None:
    """The time as English words with a preposition: "on 2026-03-13 at 15:00"."""
    core = _english_core(start, end, grain, words)
    if core is None:
        return None
    word = lead.split()[0].lower() if lead else ""
    if grain == "range" and word in _UP_TO:
        core = _last(end)
    if word and word not in _PLAIN_LEADS:
        return lead.replace(" the ", " ") + core
    return _PREPOSITIONS.get(grain, "on ") + core


def _english_core(start: datetime, end: datetime, grain: TimeGrain, words: str) -> str | None:
    day = f"{start:%Y-%m-%d}"
    match grain:
        case "day":
            return day
        case "hour" | "minute":
            if end - start <= _WHOLE_HOUR:
                return f"{day} at {start:%H:%M}"
            part = _PART.search(words)
            name = part[1].lower() if part else "night"
            return f"{day} {'at' if name in ('night', 'noon', 'midnight') else 'in the'} {name}"
        case "week":
            return f"the week of {day}"
        case "month":
            return f"{start:%B %Y}"
        case "season":
            season = _SEASON.search(words)
            return f"{season[1].lower()} {start:%Y}" if season and season[1] else None
        case "year":
            return f"{start:%Y}"
    if end - start > _LONGEST_RANGE:
        return None
    return f"{day} to {_last(end)}"


def _last(end: datetime) -> str:
    return f"{end - timedelta(days=1):%Y-%m-%d}"


def in_chinese(
    start: datetime, end: datetime, grain: TimeGrain, words: str, *, until: bool = False
) -> str | None:
    """The time as Chinese words: 2026年3月13日15:00; of a range only its end, if `until`."""
    day = f"{start.year}年{start.month}月{start.day}日"
    match grain:
        case "day":
            return day
        case "hour" | "minute":
            if end - start <= _WHOLE_HOUR:
                return f"{day}{start:%H:%M}"
            part = _PART_ZH.search(words)
            name = part.group() if part else ""
            return day + {"早": "早上", "晚": "晚上", "夜": "夜里"}.get(name, name)
        case "week":
            return f"{day}那一周"
        case "month":
            return f"{start.year}年{start.month}月"
        case "season":
            season = _SEASON.search(words)
            return f"{start.year}年{season[2]}天" if season and season[2] else None
        case "year":
            return f"{start.year}年"
    return _chinese_range(start, end, day, until=until) if end - start <= _LONGEST_RANGE else None


def _chinese_range(start: datetime, end: datetime, day: str, *, until: bool) -> str:
    last = end - timedelta(days=1)
    if until:
        return f"{last.year}年{last.month}月{last.day}日"
    if (start.year, start.month) == (last.year, last.month):
        return f"{day}至{last.day}日"
    return f"{day}至{last.year}年{last.month}月{last.day}日"
