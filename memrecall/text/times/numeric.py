"""Dates and times of day written in figures, the same in every language."""

from datetime import datetime

from memrecall.text.times.grammar import Rule, Standing
from memrecall.text.times.ranges import Range, whole
from memrecall.text.times.recurrence import Cycle, clock

# A date is not a piece of something longer: a version, an address, a telephone number.
_BEGINS = r"(?<![\w./])"
_ENDS = r"(?![\w/]|[.]\d)"
_NO_DASH_BEFORE, _NO_DASH_AFTER = r"(?<!-)", r"(?!-)"
YEAR = r"(?:19|20|21)\d\d"


def _day(now: datetime, year: str, month: str, day: str) -> Range:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return whole(midnight.replace(year=int(year), month=int(month), day=int(day)), "day")


def _day_year_last(now: datetime, first: str, second: str, year: str) -> Range:
    """Read 1/15/2025 as Americans do, and 15/1/2025 in the only way that is left."""
    month, day = (second, first) if int(first) > 12 else (first, second)
    return _day(now, year, month, day)


def _month(now: datetime, year: str, month: str) -> Range:
    start = now.replace(year=int(year), month=int(month), day=1)
    return whole(start, "month")


def _instant(now: datetime, day: str, time: str, zone: str | None) -> Range:
    moment = datetime.fromisoformat(f"{day}T{time}{(zone or '').upper()}")
    aware = moment.replace(tzinfo=now.tzinfo) if moment.tzinfo is None else moment
    return whole(aware.astimezone(now.tzinfo), "minute")


def _clock(_now: datetime, hour: str, minute: str) -> Cycle:
    return clock(int(hour), int(minute), exact=int(hour) > 12 or hour[0] == "0")


RULES = (
    Rule(
        rf"{_BEGINS}{_NO_DASH_BEFORE}({YEAR}-\d\d-\d\d)(?:t| )(\d\d:\d\d)"
        r"(?::\d\d(?:[.]\d{1,9})?)?(z|[+-]\d\d:?\d\d)?(?![\w:]| ?[ap][.]?m)",
        _instant,
    ),
    Rule(rf"{_BEGINS}{_NO_DASH_BEFORE}({YEAR})-(\d\d?)-(\d\d?){_ENDS}{_NO_DASH_AFTER}", _day),
    Rule(rf"{_BEGINS}({YEAR})/(\d\d?)/(\d\d?){_ENDS}", _day),
    Rule(rf"{_BEGINS}({YEAR})[.](\d\d?)[.](\d\d?){_ENDS}", _day),
    Rule(rf"{_BEGINS}(\d\d?)/(\d\d?)/({YEAR}){_ENDS}", _day_year_last),
    Rule(
        rf"{_BEGINS}{_NO_DASH_BEFORE}({YEAR})-(0[1-9]|1[0-2]){_ENDS}{_NO_DASH_AFTER}",
        _month,
    ),
    Rule(
        r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?(?![\d:]| ?[ap][.]?m)",
        _clock,
        Standing.BOUND,
    ),
)

# How figures begin that can be a time; see `zh.STARTS`.
STARTS = rf"\b(?:{YEAR}[-/.]\d|\d\d?/\d\d?/\d{{4}}|\d\d?:\d\d(?! ?\d))"
