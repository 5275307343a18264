"""Times as people's applications write them: 12/31/23, 9:41 PM or 2023年12月31日 下午9:41."""

import re
from collections.abc import Iterable
from datetime import datetime, tzinfo
from itertools import islice, pairwise
from typing import NamedTuple

from memrecall.errors import InvalidArgument
from memrecall.importers.records import DateOrder, Note, from_iso, from_unix, in_zone

_MORNING = ("am", "上午", "早上", "凌晨", "清晨", "오전", "午前")
_AFTERNOON = ("pm", "下午", "晚上", "傍晚", "中午", "오후", "午後")
_PERIOD = "|".join((*_MORNING[1:], *_AFTERNOON[1:]))
DATE = r"(\d{1,4})(?:[./-] ?|年)(\d{1,2})(?:[./-] ?|月)(\d{1,4})(?:\.|日)?"
TIME = rf"({_PERIOD})? ?(\d{{1,2}})[:.](\d{{2}})(?:[:.](\d{{2}}))?(?: ?([ap])\.? ?m\b\.?)?"
_NUMERIC = re.compile(rf"{DATE}(?:,? {{0,2}}{TIME})?$", re.IGNORECASE)
_NAMED = (
    *("%b %d, %Y %I:%M:%S %p", "%b %d, %Y, %I:%M %p", "%d %b %Y %H:%M:%S", "%d %b %Y %H:%M"),
    *("%B %d, %Y", "%b %d, %Y", "%d %B %Y", "%d %b %Y"),
)
_DAY_IN_NAME = re.compile(r"(?<!\d)((?:19|20)\d\d)[-._年]?(\d{1,2})[-._月]?(\d{2})(?!\d)")
_SPACES = str.maketrans("\u00a0\u202f\u2009", "   ")


_MAX_DATES = 100_000  # that decide the order: memory must not grow with the file
_ORDERS: dict[DateOrder, str] = {"dmy": "day/month", "mdy": "month/day", "ymd": "year/month/day"}


class WrittenDate(NamedTuple):
    """The three numbers of a date, and whether its time has half a day (AM, 下午)."""

    numbers: tuple[str, str, str]
    has_half_day: bool


def find_order(dates: Iterable[WrittenDate]) -> tuple[DateOrder | None, list[Note]]:
    """Return the order of day, month and year in a file, and a note if nothing speaks for it."""
    dates = list(islice(dates, _MAX_DATES))
    if not dates:
        return None, []
    if any(len(date.numbers[0]) > 2 for date in dates):
        return "ymd", []
    triples = [(int(one), int(two), int(three)) for (one, two, three), _ in dates]
    if max(one for one, _, _ in triples) > 12:
        return "dmy", []
    if max(two for _, two, _ in triples) > 12:
        return "mdy", []
    # Messages stand in the order of their times: the wrong order of a date goes back more often.
    falls_day_first = _count_falls([(three, two, one) for one, two, three in triples])
    falls_month_first = _count_falls([(three, one, two) for one, two, three in triples])
    if falls_day_first != falls_month_first:
        return ("dmy" if falls_day_first < falls_month_first else "mdy"), []
    # Half days and month before day go together in the United States and nearly nowhere else.
    order: DateOrder = "mdy" if any(date.has_half_day for date in dates) else "dmy"
    text = (
        f"dates such as {'/'.join(dates[-1].numbers)} can be read as day/month or month/day:"
        f" read as {_ORDERS[order]}; --date-order changes it"
    )
    return order, [Note(text)]


def _count_falls(dates: list[tuple[int, int, int]]) -> int:
    """Return how many dates are before the one above them."""
    return sum(after < before for before, after in pairwise(dates))


def split_date(text: str) -> WrittenDate | None:
    """Return the numbers of a written date; None if a text is not one."""
    match = _NUMERIC.match(normalize_spaces(text).strip())
    if match is None:
        return None
    return WrittenDate((match[1], match[2], match[3]), bool(match[4] or match[8]))


def find_day(name: str) -> datetime | None:
    """Return the date in a name such as `2026-03-18 Notes`, without a zone; None without one."""
    match = _DAY_IN_NAME.search(name)
    day = from_iso(f"{match[1]}-{match[2]:0>2}-{match[3]}") if match else None
    return day and day.replace(tzinfo=None)


def normalize_spaces(text: str) -> str:
    """Return a text with plain spaces for the narrow ones that phones write into times."""
    return text.translate(_SPACES)


def combine_date(
    date: tuple[str, str, str], clock: tuple[str | None, ...], order: DateOrder, zone: tzinfo
) -> datetime:
    """Return the time of the groups of `DATE` and `TIME`.

    Raise ValueError for an impossible date.
    """
    order = "ymd" if len(date[0]) == 4 else order  # whatever the others are
    parts = dict(zip(order, map(int, date), strict=True))
    year = parts["y"] + (2000 if parts["y"] < 100 else 0)
    period, hour_text, minute, second, half = clock
    hour = int(hour_text or 0)
    name = (period or f"{half}m" if half or period else "").lower()
    if name in _AFTERNOON and hour < 12 and not (name == "中午" and hour >= 11):
        hour += 12
    elif name in _MORNING and hour == 12:
        hour = 0
    moment = datetime(year, parts["m"], parts["d"], hour, int(minute or 0), int(second or 0))  # noqa: DTZ001
    return in_zone(moment, zone)


def parse_written_time(text: str, order: DateOrder | None, zone: tzinfo) -> datetime:
    """Return the time of a table's cell: a Unix time, ISO 8601, numbers or an English month."""
    value = normalize_spaces(text).strip()
    moment = from_unix(value) if value.replace(".", "", 1).isdigit() and len(value) > 8 else None
    moment = moment or from_iso(value, zone) or _parse_numbers(value, order, zone)
    for pattern in () if moment else _NAMED:
        try:
            moment = in_zone(datetime.strptime(value, pattern), zone)  # noqa: DTZ007
            break
        except ValueError:
            continue
    if moment is None:
        raise InvalidArgument(
            f"{text!r} is not a time", hint="Write it like 2026-01-26 10:47:00, or as Unix time"
        )
    return moment


def _parse_numbers(value: str, order: DateOrder | None, zone: tzinfo) -> datetime | None:
    match = _NUMERIC.match(value)
    if match is None:
        return None
    groups = match.groups()
    date = (groups[0], groups[1], groups[2])
    orders: tuple[DateOrder, ...] = (order,) if order else ("ymd", "dmy", "mdy")
    for candidate in orders:
        try:
            return combine_date(date, groups[3:], candidate, zone)
        except (ValueError, OverflowError):
            continue
    return None
