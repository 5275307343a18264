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


NEW_YEAR = month_day(1, 1)
VALENTINE = month_day(2, 14)
LABOUR_DAY = month_day(5, 1)
CHILDREN = month_day(6, 1)
NATIONAL_DAY = month_day(10, 1, count=7)
HALLOWEEN = month_day(10, 31)
SINGLES_DAY = month_day(11, 11)
CHRISTMAS_EVE = month_day(12, 24)
CHRISTMAS = month_day(12, 25)
NEW_YEARS_EVE = month_day(12, 31)
# The holiday lasts a week; the fifteenth day of the first month is the lantern festival.
SPRING_FESTIVAL = _lunar(_SPRING_FESTIVAL, count=7)
LUNAR_NEW_YEARS_EVE = _lunar(_SPRING_FESTIVAL, offset=-1)
LANTERNS = _lunar(_SPRING_FESTIVAL, offset=14)
DRAGON_BOAT = _lunar(_DRAGON_BOAT)
MID_AUTUMN = _lunar(_MID_AUTUMN)
QINGMING = Recurrence("day", ("year",), _qingming)

CHINESE = {
    "元旦": NEW_YEAR,
    "情人节": VALENTINE,
    "五一": LABOUR_DAY,
    "劳动节": LABOUR_DAY,
    "六一": CHILDREN,
    "儿童节": CHILDREN,
    "国庆": NATIONAL_DAY,
    "万圣节": HALLOWEEN,
    "双十一": SINGLES_DAY,
    "双11": SINGLES_DAY,
    "平安夜": CHRISTMAS_EVE,
    "圣诞": CHRISTMAS,
    "春节": SPRING_FESTIVAL,
    "除夕": LUNAR_NEW_YEARS_EVE,
    "大年三十": LUNAR_NEW_YEARS_EVE,
    "元宵节": LANTERNS,
    "端午": DRAGON_BOAT,
    "中秋": MID_AUTUMN,
    "清明": QINGMING,
}
ENGLISH = {
    "new year's day": NEW_YEAR,
    "new year's eve": NEW_YEARS_EVE,
    "valentine's day": VALENTINE,
    "halloween": HALLOWEEN,
    "christmas eve": CHRISTMAS_EVE,
    "christmas day": CHRISTMAS,
    "christmas": CHRISTMAS,
    "chinese new year": SPRING_FESTIVAL,
    "lunar new year": SPRING_FESTIVAL,
    "spring festival": SPRING_FESTIVAL,
    "dragon boat festival": DRAGON_BOAT,
    "mid-autumn festival": MID_AUTUMN,
}
