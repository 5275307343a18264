"""Counted and vague distances in English: three days ago, the past two weeks, lately."""

from datetime import datetime

from memrecall.text.times.ranges import (
    Count,
    Range,
    Unit,
    ago,
    before_current,
    half_ago,
    later,
    rolling,
)
from memrecall.text.times.rules import Rule, any_of

_WORDS = "one two three four five six seven eight nine ten eleven twelve"
_COUNTS = {word: Count(number, number) for number, word in enumerate(_WORDS.split(), 1)} | {
    "a": Count(1, 1),
    "an": Count(1, 1),
    "twenty": Count(20, 20),
    "thirty": Count(30, 30),
    "couple": Count(2, 3),
    "few": Count(2, 5),
    "several": Count(3, 7),
}
_COUNT = rf"(?:a )?(\d{{1,4}}|{'|'.join(sorted(_COUNTS, key=len, reverse=True))})(?: of)?"
_UNITS: dict[str, Unit] = {
    "minute": "minute",
    "min": "minute",
    "hour": "hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "year",
}
_UNIT = f"({'|'.join(_UNITS)})s?"


def _count(word: str) -> Count:
    return _COUNTS[word] if word in _COUNTS else Count(int(word), int(word))


def _ago(now: datetime, count: str, unit: str) -> Range:
    return ago(now, _count(count), _UNITS[unit])


def _later(now: datetime, count: str, unit: str) -> Range:
    return later(now, _count(count), _UNITS[unit])


def _rolling(now: datetime, count: str, unit: str) -> Range:
    return rolling(now, _count(count), _UNITS[unit])


RULES = (
    Rule(f"(?:last|past|previous) {_COUNT} {_UNIT}", _rolling),
    Rule(
        "past (hour|day|week|month|year)|last (hour)",
        lambda now, unit, hour: _rolling(now, "one", unit or hour),
    ),
    Rule(f"{_COUNT} {_UNIT} ago", _ago),
    Rule(f"{_COUNT} {_UNIT} from now", _later),
    Rule("half an? (hour|day|month|year) ago", lambda now, unit: half_ago(now, _UNITS[unit])),
    Rule("other day", lambda now: before_current(now, "day", 7)),
    Rule("recently|lately", lambda now: rolling(now, Count(7, 7), "day")),
    Rule("just now|a moment ago|moments ago", lambda now: rolling(now, Count(2, 2), "day")),
)

STARTS = any_of(
    (
        f"{_COUNT} {any_of(_UNITS)}",
        "half an? ",
        "other day",
        "recently",
        "lately",
        "just now",
        "moments",
    )
)
