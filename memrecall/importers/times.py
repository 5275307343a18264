"""Times as people's applications write them: 12/31/23, 9:41 PM or 2023年12月31日 下午9:41."""

import re
from dataclasses import dataclass
from datetime import datetime, tzinfo

from memrecall.errors import InvalidArgument
from memrecall.importers.records import DateOrder, from_iso, from_unix, in_zone

_MORNING = ("am", "上午", "早上", "凌晨", "清晨", "오전", "午前")
_AFTERNOON = ("pm", "下午", "晚上", "傍晚", "中午", "오후", "午後")
_PERIOD = "|".join((*_MORNING[1:], *_AFTERNOON[1:]))
DATE = r"(\d{1,4})(?:[./-] ?|年)(\d{1,2})(?:[./-] ?|月)(\d{1,4})(?:\.|日)?"
TIME = rf"({_PERIOD})? ?(\d{{1,2}})[:.](\d{{2}})(?:[:.](\d{{2}}))?(?: ?([ap])\.? ?m\b\.?)?"
_NUMERIC = re.compile(rf"{DATE}(?:,? {{0,2}}{TIME})?$", re.IGNORECASE)
_NAMED = ("%b %d, %Y %I:%M:%S %p", "%b %d, %Y, %I:%M %p", "%d %b %Y %H:%M:%S", "%d %b %Y %H:%M")
_SPACES = str.maketrans("\u00a0\u202f\u2009", "   ")


@dataclass(slots=True)
class DateOrderGuess:
    """The order of day, month and year in a file, decided by all of its dates."""

    largest_first: int = 0
    largest_second: int = 0
    has_year_first: bool = False
    has_half_days: bool = False
    falls_day_first: int = 0  # dates before the one above them, read as day, month, year
    falls_month_first: int = 0
    _previous: tuple[int, int, int] | None = None

    def observe(self, first: str, second: str, third: str, *, has_half_day: bool) -> None:
        """Take a date into account."""
        one, two, three = int(first), int(second), int(third)
        self.has_year_first |= len(first) > 2
        self.has_half_days |= has_half_day
        self.largest_first = max(self.largest_first, one)
        self.largest_second = max(self.largest_second, two)
        if self._previous is not None:
            before_one, before_two, before_three = self._previous
            self.falls_day_first += (three, two, one) < (before_three, before_two, before_one)
            self.falls_month_first += (three, one, two) < (before_three, before_one, before_two)
        self._previous = (one, two, three)

    def decide(self) -> tuple[DateOrder, bool]:
        """Return the order, and whether nothing in the file speaks for it."""
        if self.has_year_first:
            return "ymd", False
        if self.largest_first > 12 or self.largest_second > 12:
            return ("dmy" if self.largest_first > 12 else "mdy"), False
        if self.falls_day_first != self.falls_month_first:
            is_day_first = self.falls_day_first < self.falls_month_first
            return ("dmy" if is_day_first else "mdy"), False
        # Half days and month before day go together in the United States and nearly nowhere else.
        return ("mdy" if self.has_half_days else "dmy"), True


AMBIGUOUS = (
    "dates such as {date} can be read as day/month or month/day: read as {order}; "
    "--date-order changes it"
)


def split_date(text: str) -> tuple[str, str, str, bool] | None:
    """Return the three numbers of a written date, and whether it has half a day; None if none."""
    match = _NUMERIC.match(normalize_spaces(text).strip())
    return (match[1], match[2], match[3], bool(match[4] or match[8])) if match else None


def normalize_spaces(text: str) -> str:
    """Return a text with plain spaces for the narrow ones that phones write into times."""
    return text.translate(_SPACES)


def combine(
    date: tuple[str, str, str], clock: tuple[str | None, ...], order: DateOrder, zone: tzinfo
) -> datetime:
    """Return the time of the groups of `DATE` and `TIME`; ValueError if there is none such."""
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
            return combine(date, groups[3:], candidate, zone)
        except (ValueError, OverflowError):
            continue
    return None
