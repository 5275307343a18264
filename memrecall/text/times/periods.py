"""Calendar periods relative to a moment, and periods that recur, such as months and holidays.

All moments are aware datetimes in the user's zone, so that adding days is wall-clock arithmetic:
a day ends at the next midnight even where the clock changes in between. Dates outside the years 1
to 9999 raise ValueError or OverflowError.
"""

from calendar import monthrange
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

# "part" is a part of a day, such as a morning, which decides whether 3 o'clock is a.m. or p.m.
Grain = Literal["minute", "hour", "part", "day", "week", "month", "season", "year", "range"]
Unit = Literal["minute", "hour", "day", "week", "month", "year"]

_CLOCK_UNITS: dict[Unit, timedelta] = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
# "Two weeks ago" rarely means that very day: it covers half a week to both sides.
_WEEK_SLACK = 3
# Half a unit in smaller units, and by how many of them "half a unit ago" may be off.
_HALVES: dict[Unit, tuple[int, int, Unit]] = {
    "hour": (30, 5, "minute"),
    "day": (12, 2, "hour"),
    "month": (15, 3, "day"),
    "year": (6, 1, "month"),
}


class Count(NamedTuple):
    """A number of units, exact if both ends are equal, otherwise vague as in "a few"."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Range:
    """A period of time, `end` excluded."""

    start: datetime
    end: datetime
    grain: Grain


def floor(moment: datetime, unit: Unit) -> datetime:
    """Return the first instant of the unit around `moment`; weeks begin on Monday."""
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
    """Return `moment` moved by `count` units, on a month's last day if it is shorter."""
    if unit in _CLOCK_UNITS:
        # Hours keep their length when the clocks change, so they are counted in UTC.
        moved = moment.astimezone(UTC) + count * _CLOCK_UNITS[unit]
        return moved.astimezone(moment.tzinfo)
    if unit in ("day", "week"):
        return moment + timedelta(days=count * (7 if unit == "week" else 1))
    months = moment.year * 12 + moment.month - 1 + count * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    day = min(moment.day, monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)


def calendar_unit(moment: datetime, unit: Unit, offset: int = 0) -> Range:
    """Return the calendar unit `offset` units after the one around `moment`."""
    if unit in _CLOCK_UNITS:
        start = floor(shift(moment, unit, offset), unit)
        return Range(start, shift(start, unit, 1), unit)
    start = floor(moment, unit)
    return Range(shift(start, unit, offset), shift(start, unit, offset + 1), unit)


def day_range(start: datetime, count: int, grain: Grain = "range") -> Range:
    """Return `count` days from a midnight."""
    return Range(start, shift(start, "day", count), grain)


def ago(now: datetime, count: Count, unit: Unit) -> Range:
    """Return what "`count` units ago" means; a vague count covers its whole range."""
    low, high = count
    if low != high:
        return Range(
            calendar_unit(now, unit, -high).start, calendar_unit(now, unit, -low).end, "range"
        )
    if unit == "week":
        middle = shift(floor(now, "day"), "week", -low)
        return day_range(shift(middle, "day", -_WEEK_SLACK), 2 * _WEEK_SLACK + 1, "week")
    return calendar_unit(now, unit, -low)


def half_ago(now: datetime, unit: Unit) -> Range:
    """Return what "half a unit ago" means, with some tolerance."""
    count, slack, smaller = _HALVES[unit]
    return ago(now, Count(count - slack, count + slack), smaller)


def half_rolling(now: datetime, unit: Unit) -> Range:
    """Return the last half of a unit up to now."""
    count, _, smaller = _HALVES[unit]
    return rolling(now, Count(count, count), smaller)


def from_now(now: datetime, count: Count, unit: Unit) -> Range:
    """Return what "`count` units from now" means."""
    return ago(now, Count(-count.high, -count.low), unit)


def rolling(now: datetime, count: Count, unit: Unit) -> Range:
    """Return the last `count` units up to now, not rounded to the calendar."""
    return Range(shift(now, unit, -count.high), now, "range")


def before_current(now: datetime, unit: Unit, farthest: int) -> Range:
    """Return the `farthest` units before the current one, which is excluded."""
    return Range(calendar_unit(now, unit, -farthest).start, floor(now, unit), "range")


# 29 February can be eight years away; nothing that recurs is rarer.
_MAX_DISTANCE = 9
_NO_OCCURRENCE = f"no occurrence within {_MAX_DISTANCE} years"
# First and last month of a year, first and last day of a month; None is the month's own last day.
# The start of a year is its January; "early in the year" is wider.
_CALENDAR_PARTS = {
    "start": ((1, 1), (1, 10)),
    "early": ((1, 3), (1, 10)),
    "mid": ((5, 8), (11, 20)),
    "middle": ((6, 7), (11, 20)),
    "late": ((10, 12), (21, None)),
    "end": ((12, 12), (21, None)),
}
# First and last hour; hours past 24 are in the next day.
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
class Recurrence:
    """A period that recurs once in each `within`, such as a weekday or a month.

    `at` returns the occurrence in a period, or raises ValueError if there is none.
    """

    grain: Grain
    within: tuple[Grain, ...]
    at: Callable[[Range], Range]


def nest(outer: Recurrence, inner: Recurrence) -> Recurrence:
    """Return the recurrence of one in another: the 15th of May recurs once a year."""
    return Recurrence(inner.grain, outer.within, lambda around: inner.at(outer.at(around)))


def latest_occurrence(recurrence: Recurrence, now: datetime) -> Range:
    """Return the last occurrence that begins today or earlier."""
    tomorrow = calendar_unit(now, "day").end
    return _first(o for o in _occurrences(recurrence, now, -1) if o.start < tomorrow)


def nearest_occurrence(recurrence: Recurrence, now: datetime) -> Range:
    """Return the occurrence that begins closest to now, past or future."""
    occurrences: list[Range] = []
    with suppress(ValueError):
        occurrences.append(latest_occurrence(recurrence, now))
    with suppress(ValueError):
        occurrences.append(next_occurrence(recurrence, calendar_unit(now, "day").end))
    if not occurrences:
        raise ValueError(_NO_OCCURRENCE)
    return min(occurrences, key=lambda occurrence: abs(occurrence.start - now))


def last_completed(recurrence: Recurrence, now: datetime) -> Range:
    """Return the last occurrence that ended before today."""
    today = floor(now, "day")
    return _first(o for o in _occurrences(recurrence, now, -1) if o.end <= today)


def next_occurrence(recurrence: Recurrence, moment: datetime) -> Range:
    """Return the first occurrence that begins at or after `moment`."""
    return _first(o for o in _occurrences(recurrence, moment, 1) if o.start >= moment)


def current_occurrence(recurrence: Recurrence, now: datetime) -> Range:
    """Return the current occurrence, or else the one in the current week, month or year."""
    current = latest_occurrence(recurrence, now)
    return current if now < current.end else recurrence.at(calendar_unit(now, _unit(recurrence)))


def _occurrences(recurrence: Recurrence, moment: datetime, step: int) -> Iterator[Range]:
    for distance in range(_MAX_DISTANCE):
        around = calendar_unit(moment, _unit(recurrence), step * distance)
        try:
            yield recurrence.at(around)
        except ValueError:
            continue


def _first(occurrences: Iterator[Range]) -> Range:
    occurrence = next(occurrences, None)
    if occurrence is None:
        raise ValueError(_NO_OCCURRENCE)
    return occurrence


def _unit(recurrence: Recurrence) -> Unit:
    unit = recurrence.within[0]
    if unit == "year" or unit == "month" or unit == "week" or unit == "day":
        return unit
    raise ValueError(f"no recurrence has the period {unit!r}; use year, month, week or day")


def month(number: int) -> Recurrence:
    """Return a month of the year."""
    return Recurrence(
        "month", ("year",), lambda year: calendar_unit(year.start.replace(month=number), "month")
    )


def months(first: int, final: int, grain: Grain = "range") -> Recurrence:
    """Return the months `first` to `final` of the year, into the next one above 12."""

    def at(year: Range) -> Range:
        start = year.start.replace(month=first)
        return Range(start, shift(start, "month", final - first + 1), grain)

    return Recurrence(grain, ("year",), at)


def season(name: str) -> Recurrence:
    """Return a northern season; winter belongs to the year of its December."""
    first = 3 + 3 * SEASONS.index(name)
    return months(first, first + 2, "season")


def quarter(number: int) -> Recurrence:
    """Return a quarter of the year, counted from 1."""
    return months(3 * number - 2, 3 * number)


def month_day(number: int, day: int, count: int = 1) -> Recurrence:
    """Return a date of the year, or `count` days from it."""
    grain: Grain = "day" if count == 1 else "range"
    return Recurrence(
        grain,
        ("year",),
        lambda year: day_range(year.start.replace(month=number, day=day), count, grain),
    )


def day_of_month(day: int) -> Recurrence:
    """Return a day of the month."""
    return Recurrence(
        "day", ("month",), lambda around: calendar_unit(around.start.replace(day=day), "day")
    )


def day_span(number: int, first: int, final: int) -> Recurrence:
    """Return the days `first` to `final` of a month of the year, both included."""

    def at(year: Range) -> Range:
        around = month(number).at(year)
        start, end = (day_of_month(day).at(around) for day in (first, final))
        return Range(start.start, end.end, "range")

    return Recurrence("range", ("year",), at)


def weekday(number: int) -> Recurrence:
    """Return a day of the week, Monday being 0, in any seven days."""

    def at(week: Range) -> Range:
        return calendar_unit(shift(week.start, "day", (number - week.start.weekday()) % 7), "day")

    return Recurrence("day", ("week",), at)


def weekend() -> Recurrence:
    """Return Saturday and Sunday."""
    return Recurrence("range", ("week",), lambda week: day_range(weekday(5).at(week).start, 2))


def calendar_part(name: str, unit: Unit) -> Recurrence:
    """Return the start, middle or end of a year or month."""
    (first, final), (first_day, final_day) = _CALENDAR_PARTS[name]
    if unit == "year":
        return months(first, final, "month" if first == final else "range")

    def at(around: Range) -> Range:
        start = around.start.replace(day=first_day)
        end = shift(start, "day", final_day - first_day + 1) if final_day else around.end
        return Range(start, end, "range")

    return Recurrence("range", ("month",), at)


def any_part(name: str) -> Recurrence:
    """Return the start, middle or end of a year or month, whichever it is placed in."""

    def at(around: Range) -> Range:
        return calendar_part(name, "year" if around.grain == "year" else "month").at(around)

    return Recurrence("range", ("year", "month"), at)


def day_part(name: str) -> Recurrence:
    """Return a part of the day; a night ends at six the next morning."""
    first, final = (timedelta(hours=hour) for hour in _DAY_PARTS[name])
    return Recurrence(
        "part", ("day",), lambda day: Range(day.start + first, day.start + final, "part")
    )


def clock(hour: int, minute: int | None = None, *, exact: bool = False) -> Recurrence:
    """Return a time of day; unless `exact`, the part of the day decides a.m. or p.m."""

    def at(around: Range) -> Range:
        midnight = floor(around.start, "day")
        unit: Unit = "hour" if minute is None else "minute"
        # Added to midnight as wall-clock time: hours from 24 are in the second half of a night.
        start = midnight + timedelta(hours=_hour_in(around, hour, exact), minutes=minute or 0)
        return Range(start, shift(start, unit, 1), unit)

    if not 0 <= hour <= 24 or not 0 <= (minute or 0) < 60:
        raise ValueError(f"{hour}:{minute} is not a time of day")
    return Recurrence("hour" if minute is None else "minute", ("day", "part"), at)


def _hour_in(around: Range, hour: int, exact: bool) -> int:
    if exact or hour > 12:
        return hour
    if around.grain != "part":
        # "At three" without a part of the day means waking hours.
        return hour + 12 if 1 <= hour <= 6 else hour
    first = around.start.hour
    hours = (around.end.replace(tzinfo=None) - around.start.replace(tzinfo=None)).seconds // 3600
    candidates = range(hour % 12, 36, 12)
    # One hour of tolerance: five o'clock belongs to an evening that begins at six.
    return next((h for h in candidates if first - 1 <= h < first + hours), hour)


# The lunar dates were checked against computed new moons at Beijing time. Outside the years of the
# table a lunar holiday is unknown rather than guessed.
_FIRST_YEAR = 2015
# Month and day of each year from 2015 to 2035.
_SPRING_FESTIVAL = (
    "0219 0208 0128 0216 0205 0125 0212 0201 0122 0210 0129 0217 0206 0126 0213 0203 0123 0211 "
    "0131 0219 0208"
)
_DRAGON_BOAT = (
    "0620 0609 0530 0618 0607 0625 0614 0603 0622 0610 0531 0619 0609 0528 0616 0605 0624 0612 "
    "0601 0620 0610"
)
_MID_AUTUMN = (
    "0927 0915 1004 0924 0913 1001 0921 0910 0929 0917 1006 0925 0915 1003 0922 0912 1001 0919 "
    "0908 0927 0916"
)


def _lunar(table: str, offset: int = 0, count: int = 1) -> Recurrence:
    grain: Grain = "day" if count == 1 else "range"
    dates = table.split()

    def at(year: Range) -> Range:
        index = year.start.year - _FIRST_YEAR
        if not 0 <= index < len(dates):
            raise ValueError(f"the lunar dates of {year.start.year} are unknown")
        month, day = int(dates[index][:2]), int(dates[index][2:])
        start = year.start.replace(month=month, day=day) + timedelta(days=offset)
        return day_range(start, count, grain)

    return Recurrence(grain, ("year",), at)


def _qingming(year: Range) -> Range:
    """Return the day when the sun reaches 15 degrees, by a formula valid for 2000 to 2099."""
    century, rest = divmod(year.start.year, 100)
    if century != 20:
        raise ValueError(f"the date of Qingming in {year.start.year} is unknown")
    day = int(0.2422 * rest + 4.81) - rest // 4
    return day_range(year.start.replace(month=4, day=day), 1, "day")


NATIONAL_DAY = month_day(10, 1, count=7)
# Names that begin like another one come before it.
_HOLIDAYS: tuple[tuple[Recurrence, str, str], ...] = (
    (month_day(1, 1), "元旦", "new year's day"),
    (month_day(2, 14), "情人节", "valentine's day"),
    (month_day(5, 1), "五一,劳动节", ""),
    (month_day(6, 1), "六一,儿童节", ""),
    (NATIONAL_DAY, "国庆", ""),
    (month_day(10, 31), "万圣节", "halloween"),
    (month_day(11, 11), "双十一,双11", ""),
    (month_day(12, 24), "平安夜", "christmas eve"),
    (month_day(12, 25), "圣诞", "christmas day,christmas,xmas"),
    (month_day(12, 31), "", "new year's eve"),
    # The holiday lasts a week; the fifteenth day of the first month is the lantern festival.
    (_lunar(_SPRING_FESTIVAL, count=7), "春节", "chinese new year,lunar new year,spring festival"),
    (_lunar(_SPRING_FESTIVAL, offset=-1), "除夕,大年三十", ""),
    (_lunar(_SPRING_FESTIVAL, offset=14), "元宵节", ""),
    (_lunar(_DRAGON_BOAT), "端午", "dragon boat festival"),
    (_lunar(_MID_AUTUMN), "中秋", "mid-autumn festival"),
    (Recurrence("day", ("year",), _qingming), "清明", ""),
)
CHINESE_HOLIDAYS = {name: day for day, names, _ in _HOLIDAYS for name in names.split(",") if name}
ENGLISH_HOLIDAYS = {name: day for day, _, names in _HOLIDAYS for name in names.split(",") if name}
