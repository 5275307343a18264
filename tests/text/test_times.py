"""Time expressions: their meaning on a given day, and words that are not times."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.text.times import TimeSpan, find_times
from tests.cases import check_each
from tests.counting import count_calls

WEDNESDAY = datetime(2026, 3, 18, 10, 30, tzinfo=UTC)
MONDAY = datetime(2026, 3, 16, 10, 30, tzinfo=UTC)
SUNDAY = datetime(2026, 3, 22, 10, 30, tzinfo=UTC)
SHANGHAI = ZoneInfo("Asia/Shanghai")
NEW_YORK = ZoneInfo("America/New_York")
NEWFOUNDLAND = timezone(timedelta(hours=-3, minutes=-30))
EVENING = datetime(2026, 3, 18, 17, tzinfo=UTC)
JANUARY = datetime(2026, 1, 3, tzinfo=UTC)
# Half an hour after the start of daylight saving time in New York.
CHANGE = datetime(2026, 3, 8, 7, 30, tzinfo=UTC)


def format_bound(moment: datetime | None) -> str:
    """Return a bound in its shortest form: 2026-03-18, 2026-03-18T10:30 or empty."""
    if moment is None:
        return ""
    assert moment.utcoffset() == timedelta(0)
    return moment.isoformat()[:16].removesuffix("T00:00")


def bounds(span: TimeSpan) -> str:
    return f"{format_bound(span.start)}/{format_bound(span.end)}"


def parse_bounds(text: str, now: datetime = WEDNESDAY, zone: tzinfo = UTC) -> str:
    """Return the bounds of a text that is one time expression."""
    (span,) = find_times(text, now, zone)
    assert (span.text, span.position) == (text, 0)
    return bounds(span)


# The start and the end of a time on a Wednesday, and the expressions that mean it.
TIMES = """
    1980-01-01/1990-01-01 | 1980年代
    1996-01-01/2007-01-01 | 二三十年前
    1998-12-01/1999-01-01 | 98年12月
    2006-01-01/2007-01-01 | twenty years ago
    /2019-01-01 | 2019年前
    2019-01-01/2020-01-01 | 2019年
    2019-01-01/2022-01-01 | from 2019 to 2021
    2021-01-01/ | since 2021
    2022-01-01/2023-01-01 | in 2022
    2023-05-01/2023-05-11 | early May 2023
    2023-05-01/2023-06-01 | May 2023
    2023-05-03/2023-05-08 | May 3 to May 7, 2023
    2023-06-01/2023-09-01 | summer of 2023
    2023-09-01/2023-12-01 | 2023年秋
    2023-12-25/2023-12-26 | Christmas 2023
    2024-01-01/2024-02-01 | 2024年初
    2024-01-01/2024-02-02 | 2024/1/1-2024/2/1
    2024-01-01/2024-04-01 | early 2024 | January to March 2024
    2024-01-01/2025-01-01 | 两年前 | 前年
    2024-02-21/2024-03-01 | 2024年2月底
    2024-02-29/2024-03-01 | 2月29日
    2024-07-01/2024-10-01 | 2024年第三季度 | Q3 2024
    2024-12-25/2024-12-26 | 2024年圣诞节
    2025-01-01/ | 从去年开始
    2025-01-01/2025-02-01 | 2025年1月
    2025-01-01/2026-01-01 | 去年 | last year
    2025-01-15/2025-01-16 | 2025年1月15日 | 25年1月15号 | 2025 年 1 月 15 日 | 2025-01-15
    2025-01-15/2025-01-16 | 2025/1/15 | 2025.1.15 | 15 January 2025 | January 15th, 2025
    2025-01-15/2025-01-16 | Jan. 15, 2025 | 2025 Jan 15 | 1/15/2025 | 15/1/2025
    2025-01-15T02:30/2025-01-15T02:31 | 2025-01-15T10:30:59.123+08:00
    2025-01-15T10:30/2025-01-15T10:31 | 2025-01-15T10:30:00Z | 2025-01-15 10:30
    2025-01-29/2025-02-05 | 去年春节
    2025-03-01/2025-04-01 | last March
    2025-03-01/2025-06-01 | 从三月到五月 | 去年3月到5月 | 3月和5月之间 | from March to May
    2025-03-18/2025-03-19 | 去年今天
    2025-03-21/2025-04-01 | 三月下旬
    2025-03-25/2025-03-26 | 3月25号
    2025-04-03/2025-04-08 | from the 3rd to the 7th of April
    2025-04-04/2025-04-05 | 清明节
    2025-05-01/ | 去年五月至今
    2025-05-01/2025-05-02 | 五一 | 劳动节
    2025-05-01/2025-06-01 | 五月 | 5月份 | 去年五月 | in May | last May | May of last year
    2025-05-01/2025-06-01 | last year in May
    /2025-05-03 | 5月3日前
    2025-05-03/2025-05-04 | 5月3日（周六） | 二〇二五年五月三日 | 5月3日周六 | May 3
    2025-05-03/2025-05-08 | between May 3 and May 7 | May 3-7 | 3-7 May | 3 to 7 May
    2025-05-03/2025-05-08 | from 3 to 7 May | from 3 May to 7 May
    2025-05-03T05:00/2025-05-03T12:00 | morning of May 3
    2025-05-03T15:00/2025-05-03T16:00 | Saturday, May 3, 2025 at 3pm
    2025-05-04/ | after May 3
    2025-05-11/2025-05-21 | 五月中旬
    2025-05-21/2025-06-01 | late May
    2025-05-31/2025-06-01 | 去年端午节
    2025-06-01/2025-06-02 | 儿童节
    2025-06-01/2025-07-01 | June
    2025-06-01/2025-08-01 | 去年年中
    2025-06-01/2025-09-01 | 去年夏天 | last summer
    2025-06-13/2025-06-18 | between 13 and 17 June
    2025-07-01/2026-01-01 | 去年下半年
    2025-08-01/2025-11-01 | 半年前
    2025-09-18T10:30/2026-03-18T10:30 | 最近半年
    2025-10-01/2025-10-08 | 国庆 | 去年国庆节 | 去年十一
    2025-10-01/2026-02-01 | 几个月前
    2025-10-06/2025-10-07 | 去年中秋
    2025-10-08/ | 国庆以后
    2025-10-31/2025-11-01 | last year's Halloween
    2025-12-01/2026-01-01 | 三个月前 | 十二月 | 年底 | 去年底 | three months ago | end of last year
    2025-12-01/2026-03-01 | 冬天 | 十二月到二月 | in winter
    2025-12-25/2025-12-26 | 十二月二十五日 | Christmas | last Christmas
    2025-12-31/2026-01-01 | New Year's Eve
    2026-01-01/2026-01-02 | 元旦 | New Year’s Day
    2026-01-01/2026-02-01 | 上上个月 | 年初
    2026-01-01/2026-03-01 | 一月到二月 | from January to February
    2026-01-01/2027-01-01 | 今年
    2026-01-11/2026-01-21 | mid-January
    2026-01-15/2026-01-16 | 1月15日 | January 15 | 15th of January | Jan 15
    2026-01-30/2026-01-31 | 三十号
    2026-02-01/2026-03-01 | 上个月 | last month
    2026-02-14/2026-02-15 | 情人节 | Valentine's Day
    2026-02-15/2026-02-16 | 上个月15号
    2026-02-16/2026-02-17 | 除夕
    2026-02-16T10:30/2026-03-18T10:30 | 近30日
    2026-02-17/2026-02-24 | 春节 | Chinese New Year
    2026-02-18T10:30/2026-03-18T10:30 | past month
    2026-02-20/2026-02-21 | 20日
    2026-02-21/2026-03-01 | 上月下旬 | 上个月底 | 月底
    2026-02-22/2026-03-01 | 三个星期前
    2026-02-28/2026-03-07 | 半个月前
    2026-03-01/ | since March
    2026-03-01/2026-03-06 | 3月1日到3月5日 | 3月1日至5日 | 3月1-5日 | 1号到5号
    2026-03-01/2026-03-08 | 两周前 | two weeks ago
    2026-03-01/2026-03-11 | 月初 | early March | beginning of the month
    2026-03-01/2026-04-01 | 这个月 | 三月 | this month | in march
    2026-03-01/2026-06-01 | 今年春天 | 春天
    2026-03-02/2026-03-09 | 上上周 | week before last
    2026-03-03/2026-03-04 | 元宵节
    2026-03-04T10:30/2026-03-18T10:30 | 过去两周 | in the past two weeks
    2026-03-06/2026-03-07 | 上上周五 | 十二天之前
    2026-03-09/ | last week onwards
    2026-03-09/2026-03-10 | Monday last week
    2026-03-09/2026-03-14 | 上周一到周五 | 周一到周五 | from Monday to Friday
    2026-03-09/2026-03-16 | 上周 | 上个星期 | last week
    2026-03-11/ | 从上周三起
    /2026-03-11 | 上周三之前 | 上周三以前
    2026-03-11/2026-03-12 | 上周三 | last Wednesday | Wednesday of last week
    2026-03-11/2026-03-16 | several days ago
    2026-03-11T05:00/2026-03-11T12:00 | 上周三早上
    2026-03-11T10:30/2026-03-18T10:30 | 最近 | recently | lately
    2026-03-12/ | 上周三之后
    2026-03-12/2026-03-13 | 星期四 | on Thursday
    2026-03-13/2026-03-14 | on Fri
    2026-03-13/2026-03-17 | 几天前 | 好几天前 | a few days ago
    2026-03-13/2026-03-18 | 前几天
    2026-03-13T10:30/2026-03-18T10:30 | last few days
    2026-03-14/2026-03-16 | 周末 | 上周末 | 上个周末 | weekend | last weekend
    2026-03-15/2026-03-16 | 大前天 | 上个星期天 | 周日 | 三天前 | 3天以前 | 15号 | three days ago
    2026-03-15/2026-03-16 | 3 days ago | on the 15th
    2026-03-15/2026-03-17 | 两三天前 | a couple of days ago
    2026-03-15/2026-03-18 | 前两天
    2026-03-15T10:30/2026-03-18T10:30 | 最近三天 | last 3 days
    2026-03-16/2026-03-17 | 前天 | day before yesterday
    2026-03-16/2026-03-18 | from last Monday until yesterday
    2026-03-16/2026-03-19 | 这两天
    2026-03-16/2026-03-23 | 本周 | 这个礼拜 | this week
    2026-03-16T05:00/2026-03-16T12:00 | on Monday morning
    2026-03-16T10:30/2026-03-18T10:30 | 刚才 | 刚刚 | just now
    2026-03-16T12:00/2026-03-16T18:00 | 周一下午
    2026-03-16T18:00/2026-03-17T06:00 | night before last
    /2026-03-17 | before last Tuesday
    2026-03-17/2026-03-17T01:00 | yesterday at 12am
    2026-03-17/2026-03-18 | 昨天 | 昨日 | 礼拜二 | Yesterday | last Tuesday | last Tue | a day ago
    2026-03-17T10:00/2026-03-17T16:00 | 昨天上午十点到下午三点
    2026-03-17T10:30/2026-03-18T10:30 | 过去的24小时
    2026-03-17T12:00/2026-03-17T18:00 | 昨天下午 | yesterday afternoon
    2026-03-17T13:15/2026-03-17T13:16 | 昨天中午一点一刻
    2026-03-17T15:00/2026-03-17T16:00 | 昨天下午三点 | 昨天三点 | yesterday at 3pm | 3 pm yesterday
    2026-03-17T15:00/2026-03-17T18:00 | 昨天下午三点到五点
    2026-03-17T15:15/2026-03-17T15:16 | yesterday at 3:15 p.m.
    2026-03-17T15:20/2026-03-17T15:21 | 昨天15点20分
    2026-03-17T18:00/2026-03-18T06:00 | 昨晚 | 昨天晚上 | last night
    2026-03-17T20:00/2026-03-17T23:00 | 昨晚8点到10点
    2026-03-17T20:30/2026-03-17T20:31 | 昨天晚上8点半
    2026-03-17T22:15/2026-03-17T22:16 | 昨天 22:15
    /2026-03-18 | 截至昨天 | until yesterday
    2026-03-18/2026-03-18T01:00 | 昨晚十二点
    2026-03-18/2026-03-19 | 今天 | 这周三 | 周三 | today | Wednesday
    2026-03-18T02:00/2026-03-18T03:00 | 昨晚两点
    2026-03-18T04:00/2026-03-18T05:00 | 今天凌晨四点
    2026-03-18T05:00/2026-03-18T12:00 | 今早 | 今天上午 | this morning
    2026-03-18T08:00/2026-03-18T09:00 | 两小时前
    2026-03-18T09:00/2026-03-18T10:00 | 一个小时前 | an hour ago
    2026-03-18T09:55/2026-03-18T10:06 | 半小时前 | half an hour ago
    2026-03-18T10:20/2026-03-18T10:21 | 十分钟前
    2026-03-18T18:00/2026-03-19T06:00 | 今晚 | tonight
    2026-03-19/2026-03-20 | 明天 | tomorrow
    2026-03-20/2026-03-21 | 后天 | 本周五 | this Friday
    2026-03-21/2026-03-22 | 大后天 | 三天后
    2026-03-21/2026-03-23 | 这周末 | this weekend
    2026-03-23/2026-03-24 | 下周一 | next Monday
    2026-03-23/2026-03-30 | 下周
    2026-03-28/2026-03-30 | next weekend
    2026-04-01/ | 三月后
    2026-04-01/2026-05-01 | 下个月 | next month
    2026-05-01/2026-06-01 | this May
    2026-12-01/2027-03-01 | this winter
    2027-01-01/2028-01-01 | 明年
"""


def phrases(table: str) -> list[str]:
    return [phrase.strip() for line in table.strip().splitlines() for phrase in line.split("|")]


MEANINGS = [
    (text, meaning)
    for meaning, *texts in map(phrases, TIMES.strip().splitlines())
    for text in (*texts, *(["last  New\nYear's Eve"] if "New Year's Eve" in texts else []))
]


def test_chinese_and_english_expressions() -> None:
    def check(case: tuple[str, str]) -> None:
        text, expected = case
        assert parse_bounds(text) == expected

    check_each(MEANINGS, check)


RELATIVE_TIMES: list[tuple[datetime, str, str]] = [
    (MONDAY, "周三", "2026-03-11/2026-03-12"),
    (MONDAY, "周一", "2026-03-16/2026-03-17"),
    (MONDAY, "上周一", "2026-03-09/2026-03-10"),
    (MONDAY, "周末", "2026-03-14/2026-03-16"),
    (MONDAY, "last weekend", "2026-03-14/2026-03-16"),
    (MONDAY, "last Monday", "2026-03-09/2026-03-10"),
    (MONDAY, "next Monday", "2026-03-23/2026-03-24"),
    (SUNDAY, "上周三", "2026-03-11/2026-03-12"),
    (SUNDAY, "周三", "2026-03-18/2026-03-19"),
    (SUNDAY, "周末", "2026-03-21/2026-03-23"),
    (SUNDAY, "上周末", "2026-03-14/2026-03-16"),
    (SUNDAY, "last weekend", "2026-03-14/2026-03-16"),
    (SUNDAY, "this weekend", "2026-03-21/2026-03-23"),
    (SUNDAY, "last Tuesday", "2026-03-17/2026-03-18"),
    (SUNDAY, "上周一到周五", "2026-03-09/2026-03-14"),
    (SUNDAY, "下周一", "2026-03-23/2026-03-24"),
    (JANUARY, "冬天", "2025-12-01/2026-03-01"),
    (JANUARY, "last winter", "2024-12-01/2025-03-01"),
    (JANUARY, "this winter", "2025-12-01/2026-03-01"),
    (JANUARY, "上个月", "2025-12-01/2026-01-01"),
    (datetime(2026, 3, 31, tzinfo=UTC), "最近一个月", "2026-02-28/2026-03-31"),
]


def test_relative_times_depend_on_the_current_day() -> None:
    def check(case: tuple[datetime, str, str]) -> None:
        now, text, expected = case
        assert parse_bounds(text, now) == expected

    check_each(RELATIVE_TIMES, check)


STATEMENTS: list[tuple[datetime, str, str, str]] = [
    (datetime(2026, 2, 11, tzinfo=UTC), "三月八号", "2025-03-08", "2026-03-08"),
    (datetime(2026, 3, 5, tzinfo=UTC), "from 15 June", "2025-06-15", "2026-06-15"),
    (datetime(2026, 3, 10, tzinfo=UTC), "周四", "2026-03-05", "2026-03-12"),
    (datetime(2026, 3, 10, tzinfo=UTC), "in February", "2026-02-01", "2026-02-01"),
    (datetime(2026, 3, 10, tzinfo=UTC), "last May", "2025-05-01", "2025-05-01"),
    (datetime(2026, 3, 10, tzinfo=UTC), "四月到五月", "2025-04-01", "2026-04-01"),
    (datetime(2026, 3, 10, tzinfo=UTC), "昨天", "2026-03-09", "2026-03-09"),
    # What has begun lies behind, and a start without a year is at most two months ahead.
    (datetime(2026, 11, 16, tzinfo=UTC), "三月起", "2026-03-01", "2026-03-01"),
    (datetime(2026, 11, 16, tzinfo=UTC), "starting in March", "2026-03-01", "2026-03-01"),
    (datetime(2026, 11, 16, tzinfo=UTC), "十二月起", "2025-12-01", "2026-12-01"),
    (datetime(2026, 11, 16, tzinfo=UTC), "十二月以来", "2025-12-01", "2025-12-01"),
    (datetime(2026, 11, 16, tzinfo=UTC), "since December", "2025-12-01", "2025-12-01"),
    (datetime(2026, 3, 10, tzinfo=UTC), "on 29 February", "2024-02-29", "2028-02-29"),
]


def test_statements_use_the_nearest_occurrence() -> None:
    def check(case: tuple[datetime, str, str, str]) -> None:
        now, text, past, nearest = case
        for prefer_past, expected in ((True, past), (False, nearest)):
            (span,) = find_times(text, now, past=prefer_past)
            assert span.start is not None
            assert str(span.start.date()) == expected

    check_each(STATEMENTS, check)


GRAINS = {
    "minute": "十分钟前 | yesterday at 10:15",
    "hour": "两小时前 | 昨天下午",
    "day": "周三 | Christmas",
    "week": "两周前 | last week",
    "month": "in May | 年底",
    "season": "last summer",
    "year": "去年",
    "range": "最近三天 | 刚才 | 周末 | 五月中旬 | 2024年第三季度 | since 2021 | 三月到五月",
}


def test_grain() -> None:
    def check(case: tuple[str, str]) -> None:
        grain, text = case
        assert [span.grain for span in find_times(text, WEDNESDAY)] == [grain]

    check_each([(grain, text) for grain, row in GRAINS.items() for text in phrases(row)], check)


RECURRING = """
    每周三开会 | 每周三下午三点 | 每周二、周四上课 | 每天早上跑步 | 每个月15号发工资 | 每年五月体检
    每周一到周五上班 | 每月的15号和30号 | 天天向上
    every Wednesday | every Monday and Thursday at 3pm | each May
    on Mondays | Mondays and weekends
"""
IMPOSSIBLE = """
    十万年前 | 九千年前 | 2月30日 | 2025年2月30日 | 13月5日 | 1990年春节 | February 30 | 2025-13-01
"""
NUMBERS = """
    port 2022 | 2022 items | in 2000 words | 版本 3.11.7 | 1.2.3 | v2025.1.15 | 4.2 Dec
    2025.1.15.3 | 192.168.1.1 | 138-2025-0115 | 13812345678 | $2022.50 | 5/6 | 24/7 | 3:2
    in the 1970's | 五号楼 | 房间号 | 地铁3号线 | 南京路15号 | 嫦娥四号 | 旅行者1号 | 三点建议 | 3pm
"""
OTHER_WORDS = """
    I may go | this may be wrong | we march on | may in fact | version 3 may break | wait a second
    the sun sat low | he sat down | march 3 miles | fall down | spring boot | mon ami | upper case
    on the 5th floor | in the morning | 上午 | 在日本的日常 | 有一点累 | 目前天气很好
    以前年轻的时候 | 过去年轻人 | 说明天气变化 | 然后天黑了 | 这周围没有人 | 晚上月亮很圆
    马上周转不开 | 一周三次 | 一周一次 | 十几天前后 | 几十年后 | 圣诞老人 | 清明上河图
    五月天的歌 | 有朝一日 | 最近的地铁站 | 附近三天 | 少年中国 | 大年初一
    变革的前夜 | 有的地方才有 | 一个半小时前 | 以前 | 之后 | 从前 | 到
"""


def test_words_that_are_not_times() -> None:
    def check(text: str) -> None:
        assert find_times(text, WEDNESDAY) == []

    check_each(phrases(RECURRING + IMPOSSIBLE + NUMBERS + OTHER_WORDS), check)


SENTENCES: list[tuple[str, list[str]]] = [
    ("我上周三和昨天都去了", ["上周三", "昨天"]),
    ("周三周四都下雨", ["周三", "周四"]),
    ("周三，下周再说", ["周三", "下周"]),
    ("1996年到底发生了什么", ["1996年"]),
    ("才刚刚开始", ["刚刚"]),
    ("近十年前", ["十年前"]),
    ("上周一直下雨", ["上周"]),
    ("上周三个会", ["上周"]),
    ("上周天气很好", ["上周"]),
    ("今年中国经济", ["今年"]),
    ("今天一点都不累", ["今天"]),
    ("昨天起床晚了", ["昨天"]),
    ("昨天后来呢", ["昨天"]),
    ("国庆前后", ["国庆"]),
    ("去年每周三都去", ["去年"]),
    ("2月30日和3月1日", ["3月1日"]),
    ("他昨天到公司", ["昨天"]),
    ("every day last week", ["last week"]),
    ("What happened on Monday, and what last week?", ["on Monday", "last week"]),
    ("late last night", ["last night"]),
    ("it moved to the 15th", ["15th"]),
    ("the show is on the 15th at the Albany", ["on the 15th"]),
    ("a trip to the 19th century", []),
    ("I may in 2022 go", ["in 2022"]),
    ("在last week的会议", ["last week"]),
]


def test_times_within_sentences() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        text, words = case
        assert [span.text for span in find_times(text, WEDNESDAY)] == words

    check_each(SENTENCES, check)


SPELLINGS: list[tuple[str, str]] = [
    ("ＹＥＳＴＥＲＤＡＹ", "yesterday"),
    ("２０２５年１月１５日", "2025年1月15日"),
    ("上週三", "上周三"),
    ("這個禮拜", "这个礼拜"),
    ("兩個月前", "两个月前"),
    ("昨天下午三點", "昨天下午三点"),
    ("從三月到五月", "从三月到五月"),
    ("上週三之後", "上周三之后"),
    ("３　days　ago", "3 days ago"),
    ("國慶長假", "国庆长假"),
    ("今天淩晨", "今天凌晨"),
]


def test_full_width_and_traditional_characters() -> None:
    def check(case: tuple[str, str]) -> None:
        text, plain = case
        assert parse_bounds(text) == parse_bounds(plain)

    check_each(SPELLINGS, check)


def test_positions_refer_to_the_input() -> None:
    text = "İstanbul，上週三　Ｌａｓｔ Ｗｅｅｋ"
    assert [(span.position, span.text) for span in find_times(text, WEDNESDAY)] == [
        (9, "上週三"),
        (13, "Ｌａｓｔ Ｗｅｅｋ"),
    ]


IN_ZONES: list[tuple[tzinfo, datetime, str, str]] = [
    (SHANGHAI, WEDNESDAY, "今天", "2026-03-17T16:00/2026-03-18T16:00"),
    (SHANGHAI, WEDNESDAY, "昨天下午三点", "2026-03-17T07:00/2026-03-17T08:00"),
    # It is Thursday in Shanghai while it is still Wednesday in Greenwich.
    (SHANGHAI, EVENING, "今天", "2026-03-18T16:00/2026-03-19T16:00"),
    (SHANGHAI, EVENING, "星期四", "2026-03-18T16:00/2026-03-19T16:00"),
    (SHANGHAI, WEDNESDAY, "最近三天", "2026-03-15T10:30/2026-03-18T10:30"),
    (SHANGHAI, WEDNESDAY, "2025-01-15 10:30", "2025-01-15T02:30/2025-01-15T02:31"),
    (SHANGHAI, WEDNESDAY, "2025-01-15T10:30Z", "2025-01-15T10:30/2025-01-15T10:31"),
    # The clocks go back: half past one occurs twice, and the second is meant.
    (NEW_YORK, WEDNESDAY, "2025-11-02T06:30Z", "2025-11-02T06:30/2025-11-02T06:31"),
    # Summer time began in New York on 8 March 2026: that day has 23 hours.
    (NEW_YORK, WEDNESDAY, "March 8", "2026-03-08T05:00/2026-03-09T04:00"),
    (NEW_YORK, WEDNESDAY, "March 9", "2026-03-09T04:00/2026-03-10T04:00"),
    (NEW_YORK, CHANGE, "an hour ago", "2026-03-08T06:00/2026-03-08T07:00"),
    (NEWFOUNDLAND, WEDNESDAY, "today", "2026-03-18T03:30/2026-03-19T03:30"),
]


def test_days_follow_the_time_zone() -> None:
    def check(case: tuple[tzinfo, datetime, str, str]) -> None:
        zone, now, text, expected = case
        assert parse_bounds(text, now, zone) == expected

    check_each(IN_ZONES, check)


def test_day_skipped_by_a_country_is_not_a_time() -> None:
    assert find_times("2011-12-30", WEDNESDAY, ZoneInfo("Pacific/Apia")) == []


def test_now_without_a_zone_is_utc() -> None:
    assert find_times("昨天", WEDNESDAY.replace(tzinfo=None), SHANGHAI) == find_times(
        "昨天", WEDNESDAY, SHANGHAI
    )


# Fragments that form and break expressions, and years at the ends of the calendar.
FRAGMENTS = """
    每 | 每周 | 的 | 到 | 和 | 之间 | 从 | 前 | 后 | 2月 | 30日 | 12点
    between | and | to | at | ( | ) | -
    9999年 | 1年 | 9999年前 | 千年后 | 2199年 | 9999-12-31
    in 1999 | 5000 years from now | may | 2022
"""
WORDS = st.sampled_from([*(text for text, _ in MEANINGS), *phrases(FRAGMENTS), " "])
TEXTS = st.one_of(st.text(), st.lists(st.one_of(WORDS, st.text(max_size=3))).map("".join))
ZONES = st.one_of(st.sampled_from([UTC, SHANGHAI, NEW_YORK]), st.timezones())
NOWS = st.datetimes(timezones=st.one_of(st.none(), ZONES), allow_imaginary=True)


@given(text=TEXTS, now=NOWS, zone=ZONES)
def test_spans_of_any_text_at_any_time(text: str, now: datetime, zone: tzinfo) -> None:
    last = 0
    for span in find_times(text, now, zone):
        assert span.text == text[span.position : span.position + len(span.text)] != ""
        assert span.position >= last
        last = span.position + len(span.text)
        assert span.start or span.end
        assert span.start is None or span.end is None or span.start < span.end
        assert all(bound is None or bound.tzinfo is UTC for bound in (span.start, span.end))


@given(text=TEXTS, before=st.sampled_from(["", "好的。", "Well, ", "，，"]))
def test_surrounding_text_does_not_change_times(text: str, before: str) -> None:
    expected = find_times("\n" + text, WEDNESDAY)
    shifted = find_times(before + "\n" + text, WEDNESDAY)
    assert [(span.position + len(before), bounds(span)) for span in expected] == [
        (span.position, bounds(span)) for span in shifted
    ]


TIMELESS = [
    *("我对花生过敏，吃了之后脸会肿。", "I like the dark mode of it. ", "1.2.3 ", "in ", "上"),
    *("三", "1", " "),
]


def repeat(part: str, size: int) -> str:
    return (part * size)[:size]


def test_long_texts_without_times_take_few_calls() -> None:
    def check(part: str) -> None:
        text = repeat(part, 100_000)  # a quadratic parser would not finish
        spans: list[TimeSpan] = []
        assert count_calls(lambda: spans.extend(find_times(text, WEDNESDAY))) < 50
        assert spans == []

    find_times("", WEDNESDAY)  # compiles the patterns
    check_each(TIMELESS, check)


def test_long_texts_full_of_times_take_linear_work() -> None:
    def check(part: str) -> None:
        short_text, long_text = part * 20, part * 80
        assert len(find_times(long_text, WEDNESDAY)) == 80
        calls = count_calls(lambda: find_times(short_text, WEDNESDAY))
        assert count_calls(lambda: find_times(long_text, WEDNESDAY)) < 4.4 * calls

    check_each(
        ["昨天，", "上周三下午三点。", "three days ago. ", "in May. ", "2025-01-15; "], check
    )


@pytest.mark.long
def test_long_texts_take_linear_time() -> None:
    def seconds(text: str) -> float:
        started = process_time()
        find_times(text, WEDNESDAY)
        return process_time() - started

    def check(part: str) -> None:
        small, large = repeat(part, 50_000), repeat(part, 400_000)
        # Quadratic time would be 64 times as much.
        assert min(seconds(large) for _ in range(3)) < 24 * min(seconds(small) for _ in range(3))

    check_each(TIMELESS, check)
