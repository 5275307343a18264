"""Tables of dates and times in digits, the same in every language."""

from datetime import datetime

from memrecall.text.times.grammar import Requirement, Rule
from memrecall.text.times.periods import Range, Recurrence, calendar_unit, clock

# A date is not part of something longer: a version, an address, a telephone number.
_START = r"(?<![\w./])"
_END = r"(?![\w/]|[.]\d)"
_NO_DASH_BEFORE, _NO_DASH_AFTER = r"(?<!-)", r"(?!-)"
_YEAR = r"(?:19|20|21)\d\d"


def _day(now: datetime, year: str, month: str, day: str) -> Range:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return calendar_unit(midnight.replace(year=int(year), month=int(month), day=int(day)), "day")


def _day_year_last(now: datetime, first: str, second: str, year: str) -> Range:
    """Return the day of 1/15/2025 in American order, and of 15/1/2025 in the other."""
    month, day = (second, first) if int(first) > 12 else (first, second)
    return _day(now, year, month, day)


def _month(now: datetime, year: str, month: str) -> Range:
    start = now.replace(year=int(year), month=int(month), day=1)
    return calendar_unit(start, "month")


def _instant(now: datetime, day: str, time: str, zone: str | None) -> Range:
    moment = datetime.fromisoformat(f"{day}T{time}{(zone or '').upper()}")
    aware = moment.replace(tzinfo=now.tzinfo) if moment.tzinfo is None else moment
    return calendar_unit(aware.astimezone(now.tzinfo), "minute")


def _clock(_now: datetime, hour: str, minute: str) -> Recurrence:
    return clock(int(hour), int(minute), exact=int(hour) > 12 or hour[0] == "0")


RULES = (
    Rule(
        rf"{_START}{_NO_DASH_BEFORE}({_YEAR}-\d\d-\d\d)(?:t| )(\d\d:\d\d)"
        r"(?::\d\d(?:[.]\d{1,9})?)?(z|[+-]\d\d:?\d\d)?(?![\w:]| ?[ap][.]?m)",
        _instant,
    ),
    Rule(rf"{_START}{_NO_DASH_BEFORE}({_YEAR})-(\d\d?)-(\d\d?){_END}{_NO_DASH_AFTER}", _day),
    Rule(rf"{_START}({_YEAR})/(\d\d?)/(\d\d?){_END}", _day),
    Rule(rf"{_START}({_YEAR})[.](\d\d?)[.](\d\d?){_END}", _day),
    Rule(rf"{_START}(\d\d?)/(\d\d?)/({_YEAR}){_END}", _day_year_last),
    Rule(
        rf"{_START}{_NO_DASH_BEFORE}({_YEAR})-(0[1-9]|1[0-2]){_END}{_NO_DASH_AFTER}",
        _month,
    ),
    Rule(
        r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?(?![\d:]| ?[ap][.]?m)",
        _clock,
        Requirement.NEIGHBOR,
    ),
)

# How times in digits begin; see `chinese.STARTS`.
STARTS = rf"\b(?:{_YEAR}[-/.]\d|\d\d?/\d\d?/\d{{4}}|\d\d?:\d\d(?! ?\d))"
