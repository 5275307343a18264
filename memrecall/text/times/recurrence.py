"""Things that come back in the calendar: a weekday in every week, May in every year.

A cycle is the half-known time of "Wednesday" or "in May": it becomes a range once it is placed in
a week or a year. Said without one, it means the last time it came round.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from memrecall.text.times.ranges import Grain, Range, Unit, days, floor, shift, whole

# 29 February can be eight years away; nothing that comes back at all is rarer.
_FARTHEST = 9
# First and last month. The start of a year is its January; "early in the year" is wider.
_PARTS_OF_YEAR = {
    "start": (1, 1),
    "early": (1, 3),
    "mid": (5, 8),
    "middle": (6, 7),
    "late": (10, 12),
    "end": (12, 12),
}
# First and last day; None is the month's own last day.
_THIRDS = {
    "start": (1, 10),
    "early": (1, 10),
    "mid": (11, 20),
    "middle": (11, 20),
    "late": (21, None),
    "end": (21, None),
}
# First and last hour; what is past 24 lies in the next day.
_DAY_PARTS = {
    "dawn": (0, 6),
    "morning": (5, 12),
    "noon": (11, 14),
    "afternoon": (12, 18),
    "dusk": (17, 20),
    "evening": (17, 24),
    "night": (18, 30),
    "midnight": (22, 30),
}
SEASONS = ("spring", "summer", "autumn", "winter")


@dataclass(frozen=True, slots=True)
class Cycle:
    """What comes back once in every `within`; `at` raises ValueError where it does not occur."""

    grain: Grain
    within: tuple[Grain, ...]
    at: Callable[[Range], Range]


def inside(outer: Cycle, inner: Cycle) -> Cycle:
    """Place one cycle in another: the 15th in May comes back once a year."""
    return Cycle(inner.grain, outer.within, lambda around: inner.at(outer.at(around)))


def latest(cycle: Cycle, now: datetime) -> Range:
    """Return the last occurrence that begins no later than today."""
    tomorrow = whole(now, "day").end
    return _first(one for one in _occurrences(cycle, now, -1) if one.start < tomorrow)


def nearest(cycle: Cycle, now: datetime) -> Range:
    """Return the occurrence that begins closest to now, before or after it."""
    found: list[Range] = []
    for find in (latest, lambda one, moment: upcoming(one, whole(moment, "day").end)):
        with suppress(ValueError):
            found.append(find(cycle, now))
    return min(_some(found), key=lambda one: abs(one.start - now))


def last(cycle: Cycle, now: datetime) -> Range:
    """Return the last occurrence that was over before today."""
    today = floor(now, "day")
    return _first(one for one in _occurrences(cycle, now, -1) if one.end <= today)


def upcoming(cycle: Cycle, moment: datetime) -> Range:
    """Return the first occurrence that begins at `moment` or after it."""
    return _first(one for one in _occurrences(cycle, moment, 1) if one.start >= moment)


def this(cycle: Cycle, now: datetime) -> Range:
    """Return the occurrence under way, or else that of the current week, month or year."""
    current = latest(cycle, now)
    return current if now < current.end else cycle.at(whole(now, _unit(cycle)))


def _occurrences(cycle: Cycle, moment: datetime, step: int) -> Iterator[Range]:
    for distance in range(_FARTHEST):
        around = whole(moment, _unit(cycle), step * distance)
        try:
            yield cycle.at(around)
        except ValueError:
            continue


def _some(ranges: list[Range]) -> list[Range]:
    if not ranges:
        raise ValueError("it never comes round")
    return ranges


def _first(ranges: Iterator[Range]) -> Range:
    for one in ranges:
        return one
    raise ValueError("it never comes round")


def _unit(cycle: Cycle) -> Unit:
    unit = cycle.within[0]
    if unit == "year" or unit == "month" or unit == "week" or unit == "day":
        return unit
    raise ValueError(f"nothing comes back in every {unit}")


def month(number: int) -> Cycle:
    """Return a month of the year."""
    return Cycle("month", ("year",), lambda year: whole(year.start.replace(month=number), "month"))


def months(first: int, final: int, grain: Grain = "range") -> Cycle:
    """Return the months `first` to `final` of the year; `final` above 12 reaches into the next."""

    def at(year: Range) -> Range:
        start = year.start.replace(month=first)
        return Range(start, shift(start, "month", final - first + 1), grain)

    return Cycle(grain, ("year",), at)


def season(name: str) -> Cycle:
    """Return a northern season; winter belongs to the year of its December."""
    first = 3 + 3 * SEASONS.index(name)
    return months(first, first + 2, "season")


def quarter(number: int) -> Cycle:
    """Return a quarter of the year, counted from 1."""
    return months(3 * number - 2, 3 * number)


def month_day(number: int, day: int, count: int = 1) -> Cycle:
    """Return a date of the year, or `count` days from it on."""
    grain: Grain = "day" if count == 1 else "range"
    return Cycle(
        grain, ("year",), lambda year: days(year.start.replace(month=number, day=day), count, grain)
    )


def day_of_month(day: int) -> Cycle:
    """Return a day of the month."""
    return Cycle("day", ("month",), lambda around: whole(around.start.replace(day=day), "day"))


def day_span(number: int, first: int, final: int) -> Cycle:
    """Return the days `first` to `final` of a month of the year, both included."""

    def at(year: Range) -> Range:
        around = month(number).at(year)
        start, end = (day_of_month(day).at(around) for day in (first, final))
        return Range(start.start, end.end, "range")

    return Cycle("range", ("year",), at)


def weekday(number: int) -> Cycle:
    """Return a day of the week, Monday being 0; it finds its place in any seven days."""

    def at(week: Range) -> Range:
        return whole(shift(week.start, "day", (number - week.start.weekday()) % 7), "day")

    return Cycle("day", ("week",), at)


def weekend() -> Cycle:
    """Return Saturday and Sunday."""
    return Cycle("range", ("week",), lambda week: days(weekday(5).at(week).start, 2))


def calendar_part(name: str, unit: Unit) -> Cycle:
    """Return the start, middle or end of a year or month."""
    if unit == "year":
        first, final = _PARTS_OF_YEAR[name]
        return months(first, final, "month" if first == final else "range")
    return Cycle("range", ("month",), lambda around: _third(around, name))


def any_part(name: str) -> Cycle:
    """Return the start, middle or end of whatever stands beside it, year or month."""

    def at(around: Range) -> Range:
        return calendar_part(name, "year" if around.grain == "year" else "month").at(around)

    return Cycle("range", ("year", "month"), at)


def _third(around: Range, name: str) -> Range:
    first, final = _THIRDS[name]
    start = around.start.replace(day=first)
    return Range(start, around.end, "range") if final is None else days(start, final - first + 1)


def day_part(name: str) -> Cycle:
    """Return a part of the day; a night ends at six in the next morning."""
    first, final = (timedelta(hours=hour) for hour in _DAY_PARTS[name])
    return Cycle("part", ("day",), lambda day: Range(day.start + first, day.start + final, "part"))


def clock(hour: int, minute: int | None = None, *, exact: bool = False) -> Cycle:
    """Return a time of day, read by the part of the day it stands in unless it is `exact`."""

    def at(around: Range) -> Range:
        midnight = floor(around.start, "day")
        unit: Unit = "hour" if minute is None else "minute"
        # Added to midnight as wall-clock time: 24 and more lie in the night's second half.
        start = midnight + timedelta(hours=_hour_in(around, hour, exact), minutes=minute or 0)
        return Range(start, shift(start, unit, 1), unit)

    if not 0 <= hour <= 24 or not 0 <= (minute or 0) < 60:
        raise ValueError(f"{hour}:{minute} is no time of day")
    return Cycle("hour" if minute is None else "minute", ("day", "part"), at)


def _hour_in(around: Range, hour: int, exact: bool) -> int:
    if exact or hour > 12:
        return hour
    if around.grain != "part":
        # Whoever says "at three" without more is awake at it.
        return hour + 12 if 1 <= hour <= 6 else hour
    first = around.start.hour
    hours = (around.end.replace(tzinfo=None) - around.start.replace(tzinfo=None)).seconds // 3600
    candidates = range(hour % 12, 36, 12)
    # One hour of slack: five o'clock belongs to an evening that begins at six.
    return next((one for one in candidates if first - 1 <= one < first + hours), hour)
