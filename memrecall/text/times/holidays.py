"""Holidays with fixed dates, and Chinese ones of the lunar calendar.

The lunar dates were checked against computed new moons at Beijing time; outside the years of the
table a lunar holiday is unknown rather than guessed.
"""

from datetime import timedelta

from memrecall.text.times.periods import Grain, Range, Recurrence, day_range, month_day

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
CHINESE = {name: day for day, names, _ in _HOLIDAYS for name in names.split(",") if name}
ENGLISH = {name: day for day, _, names in _HOLIDAYS for name in names.split(",") if name}
