"""Counted and vague distances in Chinese: 三天前, 最近两周, 前几天, 刚才."""

from datetime import datetime

from memrecall.text.times.han_numbers import FEW, NUMERALS, read_count
from memrecall.text.times.ranges import (
    Count,
    Range,
    Unit,
    ago,
    before_current,
    days,
    floor,
    half_ago,
    half_rolling,
    later,
    rolling,
    shift,
)
from memrecall.text.times.rules import Rule

_COUNT = rf"(\d{{1,4}}|[{NUMERALS}]{{1,6}}|好?几|数) ?"
_UNITS: dict[str, Unit] = {
    "分钟": "minute",
    "小时": "hour",
    "钟头": "hour",
    "天": "day",
    "日": "day",
    "周": "week",
    "星期": "week",
    "礼拜": "week",
    "月": "month",
    "年": "year",
}
# 5月前 is "before May" and 5日前 "before the 5th": only 个 makes months of it, and days are 天.
_UNIT = "(分钟|个?小时|个?钟头|天|周|个?星期|个?礼拜|个月|年)"
_LOOSE_UNIT = "(分钟|个?小时|个?钟头|天|日|周|个?星期|个?礼拜|个月|年)"
# 一个半小时 is more than a half.
_HALF = "(?<!个)半个?(小时|天|月|年)"
# 目前两天, 之前几年: the 前 belongs to the word before it.
_NEAR = "(?<![附将接邻靠])近"
NOT_IN_BEFORE = "(?<![以之目从此午提])"


def _unit(word: str) -> Unit:
    return _UNITS[word.lstrip("个")]


def _ago(now: datetime, count: str, unit: str) -> Range:
    return ago(now, read_count(count), _unit(unit))


def _later(now: datetime, count: str, unit: str) -> Range:
    return later(now, read_count(count), _unit(unit))


def _rolling(now: datetime, count: str, unit: str) -> Range:
    return rolling(now, read_count(count), _unit(unit))


def _half_ago(now: datetime, unit: str) -> Range:
    return half_ago(now, _UNITS[unit])


def _half_rolling(now: datetime, unit: str) -> Range:
    return half_rolling(now, _UNITS[unit])


def _before(now: datetime, count: str, unit: str) -> Range:
    """前两天 is as vague as it sounds: one to three days ago."""
    return before_current(now, _unit(unit), 3 if count == "两" else FEW.high)


def _these_days(now: datetime, count: str) -> Range:
    """这两天 is like 前两天, but has today in it."""
    back = 2 if count == "两" else FEW.high
    return days(shift(floor(now, "day"), "day", -back), back + 1)


RULES = (
    Rule(f"(?:最近|过去|{_NEAR}|这)的?{_HALF}", _half_rolling),
    Rule(f"(?:最近|过去|{_NEAR})[的这]? ?{_COUNT}{_LOOSE_UNIT}(?![之以]?[前后])", _rolling),
    Rule(f"{_HALF}[之以]?前", _half_ago),
    Rule(f"{_COUNT}{_UNIT}[之以]?前", _ago),
    Rule(f"{_COUNT}{_UNIT}[之以]?后", _later),
    Rule(f"{NOT_IN_BEFORE}前([两几些]){_LOOSE_UNIT}子?", _before),
    Rule("这([两几些])天", _these_days),
    Rule(
        "最近(?!的(?:地铁|车站|医院|超市|银行|餐厅|路))|近来|近期|近日",
        lambda now: rolling(now, Count(7, 7), "day"),
    ),
    Rule("刚才|刚刚(?!好)|(?<![地对双各远])方才", lambda now: rolling(now, Count(2, 2), "day")),
    Rule("这一?(?:阵子?|段时间)", lambda now: rolling(now, Count(30, 30), "day")),
    Rule(f"{NOT_IN_BEFORE}前一?(?:阵子?|段时间)", lambda now: ago(now, Count(7, 90), "day")),
)
