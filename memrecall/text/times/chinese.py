"""Tables of Chinese time words, for text in simplified characters."""

import re
from collections.abc import Callable
from datetime import datetime

from memrecall.text.times.grammar import (
    Boundary,
    MakeCounted,
    Marker,
    Requirement,
    Rule,
    any_of,
    ignore_recurring,
)
from memrecall.text.times.periods import (
    CHINESE_HOLIDAYS,
    NATIONAL_DAY,
    SEASONS,
    Count,
    Range,
    Recurrence,
    Unit,
    ago,
    any_part,
    before_current,
    calendar_part,
    calendar_unit,
    clock,
    day_of_month,
    day_part,
    day_range,
    day_span,
    floor,
    from_now,
    half_ago,
    half_rolling,
    month,
    months,
    quarter,
    rolling,
    season,
    shift,
    weekday,
    weekend,
)

DIGITS = "零一二三四五六七八九"
# The characters of a number; 两 and 〇 are variants of 二 and 零.
NUMERALS = DIGITS + "〇两十百千"
_PLACES = {"十": 10, "百": 100, "千": 1000}
_VARIANTS = str.maketrans("〇两", "零二")
_PAIR = re.compile(f"([{DIGITS[1:]}])([{DIGITS[1:]}])([十百千]?)")
FEW = Count(2, 5)


def read_number(text: str) -> int:
    """Return the value of 15, 十五, 三百二十 or, digit by digit, 二〇二五."""
    if text.isdecimal():
        return int(text)
    plain = text.translate(_VARIANTS)
    if all(sign in DIGITS for sign in plain):
        return int("".join(str(DIGITS.index(sign)) for sign in plain))
    total, digit = 0, None
    for sign in plain:
        if sign in _PLACES:
            total += (1 if digit is None else digit) * _PLACES[sign]
            digit = None
        else:
            digit = DIGITS.index(sign)
    return total + (digit or 0)


def read_count(text: str) -> Count:
    """Return a count: 三 is exact, 几 is two to five, 两三 two or three, 二三十 20 to 30."""
    if text[-1] in "几数":
        return FEW
    if pair := _PAIR.fullmatch(text.translate(_VARIANTS)):
        low, high = DIGITS.index(pair[1]), DIGITS.index(pair[2])
        if low < high:
            place = _PLACES.get(pair[3], 1)
            return Count(low * place, high * place)
    number = read_number(text)
    return Count(number, number)


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
# 5月前 is "before May" and 5日前 "before the 5th"; counts are written 个月 and 天.
_UNIT = "(分钟|个?小时|个?钟头|天|周|个?星期|个?礼拜|个月|年)"
_LOOSE_UNIT = "(分钟|个?小时|个?钟头|天|日|周|个?星期|个?礼拜|个月|年)"
# Excludes 一个半小时, which is one and a half hours.
_HALF = "(?<!个)半个?(小时|天|月|年)"
# In 目前两天 and 之前几年 the 前 belongs to the previous word.
_COUNTED_NEAR = "(?<![附将接邻靠])近"
_NOT_IN_BEFORE = "(?<![以之目从此午提])"


def _unit(word: str) -> Unit:
    return _UNITS[word.lstrip("个")]


def _counted(make: MakeCounted) -> Callable[[datetime, str, str], Range]:
    return lambda now, count, unit: make(now, read_count(count), _unit(unit))


def _before(now: datetime, count: str, unit: str) -> Range:
    """Return one to three days ago for 前两天, one to five for 前几天."""
    return before_current(now, _unit(unit), 3 if count == "两" else FEW.high)


def _these_days(now: datetime, count: str) -> Range:
    """Return the days of 前两天, today included, for 这两天."""
    back = 2 if count == "两" else FEW.high
    return day_range(shift(floor(now, "day"), "day", -back), back + 1)


_COUNTED = (
    Rule(
        f"(?:最近|过去|{_COUNTED_NEAR}|这)的?{_HALF}",
        lambda now, unit: half_rolling(now, _UNITS[unit]),
    ),
    Rule(
        f"(?:最近|过去|{_COUNTED_NEAR})[的这]? ?{_COUNT}{_LOOSE_UNIT}(?![之以]?[前后])",
        _counted(rolling),
    ),
    Rule(f"{_HALF}[之以]?前", lambda now, unit: half_ago(now, _UNITS[unit])),
    Rule(f"{_COUNT}{_UNIT}[之以]?前", _counted(ago)),
    Rule(f"{_COUNT}{_UNIT}[之以]?后", _counted(from_now)),
    Rule(f"{_NOT_IN_BEFORE}前([两几些]){_LOOSE_UNIT}子?", _before),
    Rule("这([两几些])天", _these_days),
    Rule(
        "最近(?!的(?:地铁|车站|医院|超市|银行|餐厅|路))|近来|近期|近日",
        lambda now: rolling(now, Count(7, 7), "day"),
    ),
    Rule("刚才|刚刚(?!好)|(?<![地对双各远])方才", lambda now: rolling(now, Count(2, 2), "day")),
    Rule("这一?(?:阵子?|段时间)", lambda now: rolling(now, Count(30, 30), "day")),
    Rule(f"{_NOT_IN_BEFORE}前一?(?:阵子?|段时间)", lambda now: ago(now, Count(7, 90), "day")),
)


_NUMBER = rf"(\d{{1,2}}|[{NUMERALS}]{{1,3}}) ?"
_OFFSETS = {"大前": -3, "前": -2, "去": -1, "昨": -1, "今": 0, "本": 0, "明": 1, "后": 2, "大后": 3}
_WEEKDAYS = {"一": 0, "二": 1, "三": 2, "四": 3, "五": 4, "六": 5, "日": 6, "天": 6}
_PARTS = {"上": "start", "中": "middle", "下": "end", "初": "start", "底": "end", "末": "end"}
_DAY_PART_WORDS = {
    "dawn": "凌晨",
    "morning": "清晨 早晨 早上 一早 上午",
    "noon": "中午",
    "afternoon": "下午 午后",
    "dusk": "傍晚",
    "night": "晚上 晚间 夜里 夜晚",
    "midnight": "半夜 深夜",
}
_DAY_PARTS = {word: part for part, words in _DAY_PART_WORDS.items() for word in words.split()}
_SHORT_DAY_PARTS = {"早": "morning", "晨": "morning", "晚": "night", "夜": "night"}
_SEASONS = dict(zip("春夏秋冬", SEASONS, strict=True))

# Chinese words are not separated by blanks. Each guard lists neighbours of another word:
# 上周围, 五月天, 去年轻, 五号楼, 星期日常.
_HAN = "[\u4e00-\u9fff]"
_NOT_IN_AFTER = "(?<![以之然今最此午])"
_NOT_IN_ABOVE = "(?<![马早晚一以楼线网如私手])"
_NOT_YEAR = "(?![轻代华龄货岁限纪味级迈老])"
_NOT_WEEK = "(?![围边期年折转密刊])"
_NOT_MONTH = "(?![亮光球饼薪嫂子台]|天(?!气))"
# A number up to twelve after a noun belongs to a name or an address, not to a date.
_NOT_NUMBER = (
    rf"(?:(?<!{_HAN})(?<!#)|(?<=[我你他她们是在于到从和与及至就的了约那这将定改说去来才又还也都或月])"
    rf"|(?<![路街道弄巷第])(?=1[3-9]|2\d|3[01]|十[三四五六七八九]|[二三]十))"
)
_NOT_NUMBERED = "(?![楼线房院店桌机门馆车球码位选员家厅口文桩柱坑库仓舱])"
_NOT_DAY = "(?![本常元报志程记语均内游夜子照系用历期光])"
_NOT_CLOCK = "(?![间候期段常代尚长差评赞击心餐燃名头])"
# In 今天一点都不累 it is "a bit", unless a part of the day or 钟, 半, 整 is next to it.
_NOT_A_BIT = f"(?!一点[都也儿点不没])(?!(?<![午上晨晚早里夜])一点(?={_HAN})(?![钟半整]))"
_PART = (
    "(初(?![一二三四五六七八九十中级步恋心始期夏春秋冬])|底(?![部下层薪线价])|末(?![尾日])"
    "|中(?![国央华文心学间级午]))"
)
_WEEK = "(?:周|星期|礼拜)"
_DAY_NAME = (
    "((?:一(?![共直起般样切定些旦])|[二三四五六])(?![次个片位名件条只种]|天(?!气))"
    "|日(?![常本报志程均])|天(?!气)|末)"
)
_NEAR = f"{_NOT_IN_ABOVE}(上{{1,3}}|下{{1,3}}|[这本])(?:一?个)?"
_MINUTE = rf"(\d\d(?!\d)|[二三四五]?十[一二三四五六七八九]?|[{NUMERALS}]{{1,3}}(?=分))"


def _near(word: str) -> int:
    """Return -1 for 上, -2 for 上上, 1 for 下, 0 for 这 and 本."""
    return {"上": -1, "下": 1}.get(word[0], 0) * len(word)


def _nearby(unit: Unit) -> Callable[[datetime, str], Range]:
    return lambda now, word: calendar_unit(now, unit, _OFFSETS[word])


def _nearby_night(now: datetime, word: str, part: str) -> Range:
    return day_part(_SHORT_DAY_PARTS[part]).at(calendar_unit(now, "day", _OFFSETS[word]))


def _day_name(_now: datetime, name: str) -> Recurrence:
    return weekend() if name == "末" else weekday(_WEEKDAYS[name])


def _year(now: datetime, digits: str) -> Range:
    year = read_number(digits)
    if year < 100:
        # Two digits mean a year of the hundred that end ten years from now.
        year += now.year - now.year % 100
        year -= 100 if year > now.year + 10 else 0
    return calendar_unit(floor(now, "year").replace(year=year), "year")


def _decade(now: datetime, digits: str) -> Range:
    first = _year(now, digits)
    return Range(first.start, shift(first.start, "year", 10), "range")


def _days(_now: datetime, number: str, first: str, final: str) -> Recurrence:
    return day_span(*map(read_number, (number, first, final)))


def _clock(
    _now: datetime, hour: str, half: str | None, quarters: str | None, minute: str | None
) -> Recurrence:
    quarter_minutes = 15 * read_number(quarters) if quarters else None
    minutes = 30 if half else read_number(minute) if minute else quarter_minutes
    return clock(read_number(hour), minutes)


_RECURRING = (
    Rule(
        f"[每逢][个逢当到隔]?(?:[天日早晚月年]|季度?|{_WEEK}(?![一二三四五六日天末]))?|往年|历年",
        ignore_recurring,
    ),
)
_YEARS = (
    Rule(
        "([去前])年的?今[天日]",
        lambda now, word: calendar_unit(shift(now, "year", _OFFSETS[word]), "day"),
    ),
    Rule(r"(1[5-9]\d\d|2[01]\d\d|[一二][〇零一二三四五六七八九]{3}) ?年(?![级来代]|历史)", _year),
    Rule(r"(\d\d) ?年(?= ?\d{1,2} ?月|[初底末春夏秋冬])", _year),
    Rule(r"((?:1[5-9]|20|21)?\d0) ?年代", _decade),
    Rule(f"(?<![过失回])(大前|去|今|本|明)年{_NOT_YEAR}", _nearby("year")),
    Rule(f"({_NOT_IN_BEFORE}前|{_NOT_IN_AFTER}后)年{_NOT_YEAR}", _nearby("year")),
    Rule("上一年", lambda now: calendar_unit(now, "year", -1)),
)
_NEARBY = (
    Rule(
        f"{_NEAR}{_WEEK}{_DAY_NAME}",
        lambda now, near, name: _day_name(now, name).at(calendar_unit(now, "week", _near(near))),
    ),
    Rule(f"{_NEAR}{_WEEK}{_NOT_WEEK}", lambda now, near: calendar_unit(now, "week", _near(near))),
    Rule(f"{_NEAR}月{_NOT_MONTH}", lambda now, near: calendar_unit(now, "month", _near(near))),
    Rule("(大前|昨|今|(?<![说证声光透])明)[天日儿](?!头条|方舟)", _nearby("day")),
    Rule(f"({_NOT_IN_BEFORE}前|大后|{_NOT_IN_AFTER}后)天(?![性天])", _nearby("day")),
    Rule(f"([昨今明]|{_NOT_IN_BEFORE}前(?=晚))([早晨晚夜])上?(?![餐饭安])", _nearby_night),
)
_CALENDAR = (
    Rule(rf"{_NUMBER}月份?{_NUMBER}[日号]? ?[-~到至] ?{_NUMBER}[日号]", _days),
    Rule(f"(?!两){_NUMBER}月份?{_NOT_MONTH}", lambda _now, number: month(read_number(number))),
    Rule(
        rf"(?:{_NOT_NUMBER}{_NUMBER}号{_NOT_NUMBERED}|(\d\d?) ?日{_NOT_DAY})",
        lambda _now, first, second: day_of_month(read_number(first or second)),
    ),
    # 三日 alone usually means three days, and 四号 is usually part of a name: 嫦娥四号.
    Rule(
        f"{_NUMBER}[日号]", lambda _now, day: day_of_month(read_number(day)), Requirement.NEIGHBOR
    ),
    Rule(f"{_WEEK}{_DAY_NAME}", _day_name),
    Rule("([上中下])旬", lambda _now, part: calendar_part(_PARTS[part], "month")),
    Rule(
        rf"(?<![\d{NUMERALS}个每岁多几])月{_PART}",
        lambda _now, part: calendar_part(_PARTS[part], "month"),
    ),
    Rule(
        rf"(?<![\d{NUMERALS}每往近多几半少青学])年{_PART}",
        lambda _now, part: calendar_part(_PARTS[part], "year"),
    ),
    Rule(f"(?!中){_PART}", lambda _now, part: any_part(_PARTS[part]), Requirement.NEIGHBOR),
    Rule("([上下])半年", lambda _now, half: months(1, 6) if half == "上" else months(7, 12)),
    Rule("第?([一二三四1-4])个?季度", lambda _now, number: quarter(read_number(number))),
    Rule("([春夏秋冬])[天季]", lambda _now, name: season(_SEASONS[name])),
    Rule(
        f"([春夏秋冬])(?!{_HAN})", lambda _now, name: season(_SEASONS[name]), Requirement.NEIGHBOR
    ),
    Rule("十一(?:假期|长假)", lambda _now: NATIONAL_DAY),
    Rule(f"十一(?=期间|的时候|(?!{_HAN}))", lambda _now: NATIONAL_DAY, Requirement.NEIGHBOR),
    Rule(
        f"({'|'.join(CHINESE_HOLIDAYS)})(?:国际)?(?:劳动|儿童)?(?:节|假期|长假)?(?![老树礼卡歌路广]|上河)",
        lambda _now, name: CHINESE_HOLIDAYS[name],
    ),
)
_TIMES_OF_DAY = (
    Rule(
        f"({'|'.join(_DAY_PARTS)})",
        lambda _now, name: day_part(_DAY_PARTS[name]),
        Requirement.NEIGHBOR,
    ),
    Rule(
        rf"{_NOT_A_BIT}([{NUMERALS}]{{1,3}}(?=点)|\d\d?(?= ?[点时])) ?[点时]{_NOT_CLOCK}[钟整]?"
        rf"(?:(半)|([一三])刻|{_MINUTE}分?)?",
        _clock,
        Requirement.NEIGHBOR,
    ),
)
RULES = (*_RECURRING, *_YEARS, *_COUNTED, *_NEARBY, *_CALENDAR, *_TIMES_OF_DAY)

PREFIXES = (
    Marker("从|自从|(?<![来各独亲])自", Boundary.BETWEEN, confirms=True),
    Marker("截至|截止到?|直到", Boundary.UNTIL),
)
SUFFIXES = (
    Marker(rf"[之以]前|前(?![后面端任台往提途景几两些年天\d{NUMERALS}])", Boundary.BEFORE),
    Marker("[之以]后|后(?![来面端台续悔期果勤者半天年])", Boundary.AFTER),
    Marker("以来|至今|到现在|到目前", Boundary.SINCE),
    Marker("开始|起(?![床来身飞码点步初了得不草名火])", Boundary.FROM),
    Marker("为止", Boundary.UNTIL),
)

# How Chinese times begin: a cheap test that skips most of a text before RULES are tried.
_COUNTABLE = "(?:[年月日号天周星礼小分季]|个[小钟星礼月])"
_OPENINGS = any_of(
    (
        "[每逢]|往年|历年|最近|过去|近来|近期|近日|刚[才刚]|方才",
        rf"近[的这]? ?[\d{NUMERALS}半几数好]|半[个小天年月]",
        "这一?[阵段半两几些]|前一?[阵段两几些]",
        "[去今明后昨前本][年天日儿早晚晨夜]|大[前后]|上一年",
        "(?:[上下]{1,3}|[这本])一?个?[周星礼月]|[上中下]旬|[上下]半年",
        "周[一二三四五六日天末]|星期|礼拜|[年月][初中底末]|[春夏秋冬][天季]|第.个?季",
        # A number starts at its first character: 十三号 is not read again from 三.
        rf"[{NUMERALS}几数好](?<![{NUMERALS}第几数].)[{NUMERALS}几]{{0,5}}{_COUNTABLE}",
        rf"\b\d{{1,4}} ?{_COUNTABLE}",
        "十一[长假]",
        *CHINESE_HOLIDAYS,
    )
)
_FIRST = r"(?=[\d\u3007\u4e00-\u9fff])"
STARTS = rf"{_FIRST}(?:{_OPENINGS}|(?:从|自从?|截至|截止到?|直到)(?:{_OPENINGS}|\d))"
