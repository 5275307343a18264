"""Stretches of the calendar, counted from a given moment.

All moments are aware datetimes in the user's zone, so that adding days is wall-clock arithmetic:
a day ends at the next midnight even where the clock changes in between.
Whatever would leave the years 1 to 9999 raises ValueError or OverflowError.
"""

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

# "part" is a part of a day (a morning): inside, a clock time finds its half of the day by it.
Grain = Literal["minute", "hour", "part", "day", "week", "month", "season", "year", "range"]
Unit = Literal["minute", "hour", "day", "week", "month", "year"]

_CLOCK_UNITS: dict[Unit, timedelta] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
}
# Two weeks ago rarely means that very day; half a week to both sides is one week in all.
_WEEK_SLACK = 3
# Half a unit as so many smaller ones, and how many of them "half a unit ago" may be off.
_HALVES: dict[Unit, tuple[int, int, Unit]] = {
    "hour": (30, 5, "minute"),
    "day": (12, 2, "hour"),
    "month": (15, 3, "day"),
    "year": (6, 1, "month"),
}


class Count(NamedTuple):
    """A number of units as people give it: exact if both ends are equal, else a vague "a few"."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Range:
    """A stretch of time from `start` up to but without `end`."""

    start: datetime
    end: datetime
    grain: Grain


def floor(moment: datetime, unit: Unit) -> datetime:
    """Return the first instant of the unit that `moment` lies in; weeks begin on Monday."""
    if unit in _CLOCK_UNITS:
        minute = 0 if unit == "hour" else moment.minute
        return moment.replace(minute=minute, second=0, microsecond=0)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if unit == "week":
        return midnight - timedelta(days=midnight.weekday())
    if unit == "month":
        return midnight.replace(day=1)
    return midnight.replace(month=1, day=1) if unit == "year" else midnight


def shift(moment: datetime, unit: Unit, count: int) -> datetime:
    """Return `moment` moved by so many units; a day that the month lacks becomes its last day."""
    if unit in _CLOCK_UNITS:
        # Hours pass at the same pace when the clocks change, so they are counted in UTC.
        moved = moment.astimezone(UTC) + count * _CLOCK_UNITS[unit]
        return moved.astimezone(moment.tzinfo)
    if unit in ("day", "week"):
        return moment + timedelta(days=count * (7 if unit == "week" else 1))
    months = moment.year * 12 + moment.month - 1 + count * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    day = min(moment.day, monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)


def whole(moment: datetime, unit: Unit, offset: int = 0) -> Range:
    """Return the calendar unit that lies `offset` units after the one around `moment`."""
    if unit in _CLOCK_UNITS:
        start = floor(shift(moment, unit, offset), unit)
        return Range(start, shift(start, unit, 1), unit)
    start = floor(moment, unit)
    return Range(shift(start, unit, offset), shift(start, unit, offset + 1), unit)


def days(start: datetime, count: int, grain: Grain = "range") -> Range:
    """Return `count` days from a midnight on."""
    return Range(start, shift(start, "day", count), grain)


def ago(now: datetime, count: Count, unit: Unit) -> Range:
    """Return what "so many units ago" means; vague counts span from their high to their low end."""
    low, high = count
    if low != high:
        return Range(whole(now, unit, -high).start, whole(now, unit, -low).end, "range")
    if unit == "week":
        middle = shift(floor(now, "day"), "week", -low)
        return days(shift(middle, "day", -_WEEK_SLACK), 2 * _WEEK_SLACK + 1, "week")
    return whole(now, unit, -low)


def half_ago(now: datetime, unit: Unit) -> Range:
    """Return what "half a unit ago" means, give or take a little."""
    count, slack, smaller = _HALVES[unit]
    return ago(now, Count(count - slack, count + slack), smaller)


def half_rolling(now: datetime, unit: Unit) -> Range:
    """Return the last half of a unit up to now."""
    count, _, smaller = _HALVES[unit]
    return rolling(now, Count(count, count), smaller)


def later(now: datetime, count: Count, unit: Unit) -> Range:
    """Return what "so many units from now" means."""
    return ago(now, Count(-count.high, -count.low), unit)


def rolling(now: datetime, count: Count, unit: Unit) -> Range:
    """Return the last so many units up to now, not rounded to the calendar."""
    return Range(shift(now, unit, -count.high), now, "range")


def before_current(now: datetime, unit: Unit, farthest: int) -> Range:
    """Return the `farthest` units before the current one, which is left out."""
    return Range(whole(now, unit, -farthest).start, floor(now, unit), "range")
