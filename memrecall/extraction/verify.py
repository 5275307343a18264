"""Marks on a model's facts: what their messages do not confirm, as far as code can be certain.

A mark drops nothing. A number or date that no source has, a source that is nobody's message, and a
negation that only one side has are certain. Names are not: people abbreviate them, and say them in
other sessions.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import combinations, pairwise

from memrecall.extraction.protocol import Fact, Utterance
from memrecall.text.normalize import normalize
from memrecall.text.times import TimeSpan, find_times
from memrecall.text.times.chinese import NUMERALS, read_number
from memrecall.text.tokens import analyze
from memrecall.types import Doubt

_LONGEST = 4_000  # characters of a message that are read
_BEFORE = 2  # messages before a source: a question gives the number that "yes" confirms
# Of times before and after, a calendar may lack the days around them.
_FIRST, _LAST = datetime(1000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
_TEENS = "fifteen sixteen seventeen eighteen nineteen twenty"
_WORDS: dict[str, float] = {
    word: number for number, word in enumerate(f"{_SMALL} {_TEENS}".split())
}
_WORDS |= {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80}
_WORDS |= {"ninety": 90, "hundred": 100, "thousand": 1_000, "dozen": 12, "couple": 2, "twice": 2}
_WORDS |= {
    "a": 1,
    "an": 1,
    "once": 1,
    "thrice": 3,
    "half": 0.5,
    "半": 0.5,
    "俩": 2,
    "仨": 3,
    "打": 12,
}
_WORD = re.compile(r"[a-z]+|[半俩仨]|(?<=[一两])打")
# A run that no unit follows is read once: lookbehinds keep its inner characters from being tried.
_TENS = re.compile(r"(twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)[ -](\w+)")
_HUNDREDS = re.compile(r"(?<!\w)(\w+) (hundred|thousand)(?: and)?(?: (\w+))?")
_UNITS = {"k": 1_000, "w": 10_000, "百": 100, "千": 1_000, "万": 10_000, "亿": 100_000_000}
_LARGE = re.compile(
    r"(?<!\d)(\d+(?:\.\d+)?)\s?([百千万亿]|[kw](?=\d?(?![a-z\d])))(\d|[一二三四五六七八九])?",
    re.IGNORECASE,
)
_NUMERALS = re.compile(f"[{NUMERALS}万亿]+")
_DECIMAL = re.compile(f"(?<![{NUMERALS}])([{NUMERALS}]+)点([{NUMERALS}]+)(?![{NUMERALS}半刻])")
_LONGEST_RUN = 24  # numerals; a longer run is no number
# 两万三 is 23,000 and 三块二 is 3.2.
_SHORT = re.compile(r"(.*[万千百])([一二三四五六七八九])")
_MONEY = re.compile(
    rf"((?<!\d)\d+|(?<![{NUMERALS}])[{NUMERALS}]+)[块元]([一二三四五六七八九])(?![{NUMERALS}])"
)
_MOST_COMBINED = 10  # numbers; of more, any number is the sum of two by chance
_THOUSANDS = 10_000  # where such a number is said, 318 may be short for 318,000
_LARGEST_FACTOR, _FEW = 12, 5  # people, months, nights; numbers of which any two may multiply

_HOUR = r"(\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_CLOCK = re.compile(r"(?<![\d:.])([01]?\d|2[0-4])[:：]([0-5]\d)(?::[0-5]\d)?(?![\d:])")
_DOTTED_CLOCK = re.compile(r"(?<![\d.])([01]?\d|2[0-4])[.h]([0-5]\d)(?![\d.])")
_PAST = re.compile(
    r"(?<![\d:.])(quarter|half|twenty|ten|five|[12]?[05]) (past|to|after|till?) "
    rf"{_HOUR}\b(?![:,.]\d)"
)
_HALF_HOUR = re.compile(rf"\bhalf {_HOUR}\b")
_CHINESE_CLOCK = re.compile(
    rf"(\d{{1,2}}|[{NUMERALS}]{{1,3}})[点點时時](半|[一三]刻|\d{{1,2}}|[{NUMERALS}]{{1,3}})?"
)
_MINUTES = {"quarter": 15, "half": 30, "半": 30, "一刻": 15, "三刻": 45}

_DURATION = re.compile(
    rf"(?P<half>half an hour|半个?(?:小时|钟头))|(?P<quarter>quarter of an hour|[一三]刻钟)"
    rf"|(?P<count>(?<!\d)\d+(?:\.\d+)?|(?<![a-z])[a-z]+|(?<![{NUMERALS}])[{NUMERALS}]+)"
    r"[ -]?个?(?P<unit>hours?|hrs?|小时|钟头|min\w*|分钟)"
)

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = re.compile(
    r"\b(?:(?P<weeks>(?:a |one |two |)weeks?) (?:on|from|after|this|next|coming) )?(?:the )?"
    rf"(?P<en>{'|'.join(_DAYS)})(?:s|nes|rs|ur)?(?:day)?s?\b(?P<week> week\b)?"
    r"|(?:周|星期|礼拜|禮拜|週)(?P<zh>[一二三四五六日天])"
)
_WEEKDAY_AFTER = re.compile(rf"(?:{_WEEKDAY.pattern})" + r"(?= after\b| before\b|前|后)")
_WEEKLY = re.compile(
    rf"\bevery (?P<each>{'|'.join(_DAYS)})|\b(?P<plural>{'|'.join(_DAYS)})(?:s|nes|rs|ur)?days\b"
    r"|每个?(?:周|星期|礼拜)(?P<zh>[一二三四五六日天](?:[和、到至,]?(?:周|星期|礼拜)?[一二三四五六日天])*)"
)
_ORDINAL = re.compile(r"(?<!\d)(\d{1,2})(?:(?:st|nd|rd|th)\b|[号號日])|月(\d{1,2})(?!\d)")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_ORDINAL_WORD = re.compile(rf"\b({'|'.join(_ORDINALS)}) of\b")
_RANGE_DAYS = re.compile(r"(?<!\d)(\d{1,2})(?=\s?[日号至到–—-])|(?<=[到至–—-])\s?(\d{1,2})(?!\d)")
_TOMORROW = re.compile(r"\b(?:tmrw?|tomoz)\b")
_PRECISE, _NEAR, _SLACK = timedelta(days=15), timedelta(days=45), timedelta(hours=6)
_COUNTED = re.compile(
    rf"(?P<count>\d{{1,3}}|(?<![a-z])[a-z]+) (?P<unit>day|week|fortnight|month|year|decade)s?\b"
    rf"|(?P<digits>\d{{1,3}}|[{NUMERALS}半]{{1,3}})个?(?P<zh>天|周|星期|礼拜|月|年|岁)(?!底|初)"
)
_OPEN = re.compile(r"^(?:since|from|until|by|before|after) |(?:起|以来|开始|以后|之后|之前|以前)$")
_UNIT_DAYS = {"day": 1, "week": 7, "fortnight": 14, "month": 30.44, "year": 365.25}
_UNIT_DAYS |= {"decade": 3652.5, "天": 1, "周": 7, "星期": 7, "礼拜": 7, "月": 30.44}
_UNIT_DAYS |= {"年": 365.25, "岁": 365.25}
_MOST_DAYS = 200 * 365.25

_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|nope|nah|cannot|without|neither|nor|\w+n['’]t"
    r"|dont|doesnt|didnt|cant|wont|isnt|arent|wasnt|werent|havent|hasnt|aint|wouldnt|shouldnt)\b"
    r"|[不没沒無无别別莫未甭]",
    re.IGNORECASE,
)
_NO_NEGATION = re.compile(
    r"不耐|不错|不錯|不过|不過|不久|不同|不仅|不僅|不但|不少|不断|没准|特别|特別|分别|区别|级别|性别|个别|无线|无论"
    r"|差不多|\bnot (?=\d)|\b(?:no (?:problem|worries|idea|doubt|way)|not only|why not)\b"
    r"|\b(?:isn't it|don't you)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[.!?;。！？；，,\n]+")
_SAME_CLAUSE = 0.7  # of a clause's words, from which on a fact repeats it

_Clock = tuple[int, int]  # on a dial of twelve hours


def find_doubts(
    fact: Fact, messages: Sequence[Utterance], *, now: datetime, zone: tzinfo = UTC
) -> tuple[Doubt, ...]:
    """Return what the messages that a fact names do not confirm, if anything.

    `messages` are all that the model was shown, in order; `now` is the time of those without one.
    """
    places = [i for i, message in enumerate(messages) if message.message_id in fact.source_ids]
    sources = [messages[place] for place in places]
    if not any(source.is_from_person for source in sources):
        return ("source",)
    shown = {n for place in places for n in range(max(place - _BEFORE, 0), place + 1)}
    said = _Reading(sources, now, zone)
    around = _Reading([messages[n] for n in sorted(shown)], said.now, zone)
    doubts: list[Doubt] = []
    text = _fold(fact.text)
    wrong_dates, rest = _read_dates(text, said, around)
    weekly = _weekly_days(text)
    if wrong_dates or (around.weekdays and not weekly <= around.weekdays):
        doubts.append("date")
    if _has_unknown_numbers(rest, said, around):
        doubts.append("number")
    if _differs_in_negation(fact, sources):
        doubts.append("negation")
    return tuple(doubts)


class _Reading:
    """The numbers, clocks and times that some messages say."""

    def __init__(self, messages: Sequence[Utterance], now: datetime, zone: tzinfo) -> None:
        times = [message.ts for message in messages if message.ts is not None]
        self.now = min(max(max(times, default=now), _FIRST), _LAST)
        self.zone = zone
        self.text = "\n".join(_fold(message.text[:_LONGEST]) for message in messages)
        self.clocks = frozenset(_clocks(self.text))
        self.values = frozenset(_values(self.text))
        self.durations = frozenset(_durations(self.text))
        self.spans = list(_spans(self.text, self.now, zone))
        ordinals = {int(a or b) for a, b in _ORDINAL.findall(self.text)}
        ordinals |= {_ORDINALS.index(word) + 1 for word in _ORDINAL_WORD.findall(self.text)}
        self.ordinals = frozenset(ordinals)
        self.weekdays = frozenset(map(_weekday_number, _WEEKDAY.finditer(self.text)))
        self.weekdays_after = frozenset(map(_weekday_number, _WEEKDAY_AFTER.finditer(self.text)))

    @property
    def numbers(self) -> frozenset[float]:
        """All numbers that the messages say or that follow from what they say."""
        parts = {float(part) for clock in self.clocks for part in clock}
        years = {self.now.year + sign * v for v in self.values if v < 130 for sign in (1, -1)}
        years |= {self.now.year - v for v in self.values if 1900 <= v <= self.now.year}
        derived: set[float] = set()
        if len(self.values) <= _MOST_COMBINED:
            for first, second in combinations(sorted(self.values), 2):
                derived |= {first + second, second - first}
                if first <= _LARGEST_FACTOR or len(self.values) <= _FEW:
                    derived.add(first * second)
        # A small number is the sum or the difference of some others by chance.
        derived = {number for number in derived if number > 9 or number % 1}
        # "We offered 312k, going 318 tomorrow".
        large = [value for value in self.values if value >= _THOUSANDS]
        derived |= {
            thousands
            for thousands in (value * 1_000 for value in self.values)
            if any(value / 2 <= thousands <= value * 2 for value in large)
        }
        return frozenset(round(n, 6) for n in (*self.values, *parts, *years, *derived))


def _fold(text: str) -> str:
    return _TOMORROW.sub("tomorrow", normalize(text).casefold())


def _read_dates(text: str, said: _Reading, around: _Reading) -> tuple[bool, str]:
    """Return whether no message names a date of a text, and the text without its dates."""
    evidence = said if said.spans else around
    is_wrong = False
    for span in reversed(find_times(text, said.now, said.zone, past=False)):
        if _CLOCK.fullmatch(span.text) or span.grain in ("minute", "hour"):
            is_clock_only = not re.search(r"\d{4}|[月日]", span.text)
            if is_clock_only:
                continue  # a clock is compared as one
        is_wrong |= not (_is_named(span, evidence) or _is_derived(span, evidence))
        text = text[: span.position] + " " + _clock_part(span.text) + text[_end(span) :]
    return is_wrong, text


def _end(span: TimeSpan) -> int:
    return span.position + len(span.text)


def _clock_part(text: str) -> str:
    """Return the clock in a date, which is compared with the clocks of messages."""
    match = _CLOCK.search(text) or _CHINESE_CLOCK.search(text)
    return match.group() if match else ""


def _is_named(span: TimeSpan, evidence: _Reading) -> bool:
    if span.text in evidence.text or (span.start is None and span.end is None):
        return True
    start, end = _closed(span, evidence)
    is_long = end - start > 2 * _DAY
    if start - _SLACK <= evidence.now <= end + _SLACK and not (
        is_long and _RANGE_DAYS.search(span.text)
    ):
        return True  # said on that day, or in that year
    if is_long:
        named = (first or last for first, last in _RANGE_DAYS.findall(span.text))
        days = {float(day) for day in named}
        return days <= evidence.numbers and _overlaps(evidence.spans, start, end)
    local = start.astimezone(evidence.zone)
    # "On Sunday, the 15th", "the Tuesday after that".
    is_near = abs(start - evidence.now) <= _NEAR
    if is_near and local.weekday() in evidence.weekdays_after:
        return True
    if local.day in evidence.ordinals and (is_near or _overlaps(evidence.spans, start, end)):
        return True
    # "The first Sunday of September"; a month alone does not confirm a day of it.
    if local.weekday() in evidence.weekdays and _overlaps(evidence.spans, start, end):
        return True
    precise = [(since, until) for since, until in evidence.spans if until - since <= _PRECISE]
    return _overlaps(precise, start, end)


def _overlaps(spans: Iterable[tuple[datetime, datetime]], start: datetime, end: datetime) -> bool:
    return any(start < until and since < end for since, until in spans)


def _closed(span: TimeSpan, evidence: _Reading) -> tuple[datetime, datetime]:
    """Return the time that a span names: "since 2020" is about all of 2020."""
    if span.start is None or span.end is None:
        named = _OPEN.sub("", span.text)
        for inner in find_times(named, evidence.now, evidence.zone, past=False):
            if inner.start is not None and inner.end is not None:
                span = inner
    start = span.start or span.end or evidence.now
    return start, span.end or start


def _is_derived(span: TimeSpan, evidence: _Reading) -> bool:
    """Return True for the day of a birthday in the year that follows from an age."""
    if span.start is None:
        return False
    day = span.start.astimezone(evidence.zone)
    same_day = any(
        (since.astimezone(evidence.zone).month, since.astimezone(evidence.zone).day)
        == (day.month, day.day)
        for since, _ in evidence.spans
    )
    is_year = span.grain == "year" or same_day
    return is_year and day.year in evidence.numbers


def _spans(text: str, now: datetime, zone: tzinfo) -> Iterator[tuple[datetime, datetime]]:
    """Yield the times that a text names, and those that it counts from when it was said.

    "Next Friday" is read as the coming one and as the one after it.
    """
    weekdays = list(_weekdays(text, now, zone))
    counted_from = [match for match, _ in weekdays if match["weeks"] or match["week"]]
    for past in (True, False):
        for span in find_times(text, now, zone, past=past):
            start, end = span.start or span.end, span.end or span.start
            is_part = any(m.start() <= span.position < m.end() for m in counted_from)
            if start is not None and end is not None and not is_part:
                yield start, max(end, start + _DAY)
    for _, day in weekdays:
        yield day, day + _DAY
    plain = text
    for match in counted_from:
        plain = plain.replace(match.group(), " ")
    for days, precision in _counted_days(plain):
        for sign in (1, -1):
            moment = now + sign * timedelta(days=days)
            yield moment - timedelta(days=precision), moment + timedelta(days=precision)


def _weekday_number(match: re.Match[str]) -> int:
    """Return 0 for Monday to 6 for Sunday."""
    return (
        _DAYS.index(match["en"]) if match["en"] else min("一二三四五六日天".index(match["zh"]), 6)
    )


def _weekly_days(text: str) -> set[int]:
    """Return the weekdays on which a text says that something happens every week."""
    days: set[int] = set()
    for match in _WEEKLY.finditer(text):
        if name := match["each"] or match["plural"]:
            days.add(_DAYS.index(name))
        for day in match["zh"] or "":
            if day in "一二三四五六日天":
                days.add(min("一二三四五六日天".index(day), 6))
    return days


def _weekdays(text: str, now: datetime, zone: tzinfo) -> Iterator[tuple[re.Match[str], datetime]]:
    """Yield the days that names of weekdays may mean: this week's, the next and the one before."""
    today = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    for match in _WEEKDAY.finditer(text):
        number = _weekday_number(match)
        coming = today + timedelta(days=(number - today.weekday()) % 7 or 7)
        weeks = (2 if "two" in match["weeks"] else 1) if match["weeks"] else bool(match["week"])
        if weeks:
            yield match, coming + weeks * _WEEK
            continue
        before = text[max(0, match.start() - 6) : match.start()]
        if ahead := re.search("(下+)个?$", before):
            monday = today - timedelta(days=today.weekday())
            yield match, monday + timedelta(days=number) + len(ahead[1]) * _WEEK
            continue
        yield match, coming - _WEEK
        yield match, coming
        if "next" in before:
            yield match, coming + _WEEK


def _counted_days(text: str) -> Iterator[tuple[float, float]]:
    """Yield lengths of time that a text counts, with their precision: "for six years", 三个月."""
    lengths: list[tuple[int, float, float]] = []
    for match in _COUNTED.finditer(text):
        count, unit = match["count"] or match["digits"] or "", match["unit"] or match["zh"]
        if count.isdigit():
            number: float = int(count)
        elif count in _WORDS:
            number = _WORDS[count]
        else:
            number = read_number(count.replace("半", "")) if match["zh"] else 1
        days = _UNIT_DAYS[unit]
        lengths.append((match.start(), min(number * days, _MOST_DAYS), max(days / 2, 1)))
    for _, days, precision in lengths:
        yield days, precision
    for (start, days, _), (end, more, precision) in pairwise(lengths):
        if end - start <= len("twenty years and "):  # two years and four months
            yield days + more, precision


def _has_unknown_numbers(text: str, said: _Reading, around: _Reading) -> bool:
    """Return True if the messages neither say a number of a text nor give it together."""
    durations = set(_durations(text))
    if durations and said.durations and not durations & said.durations:
        return True
    clocks = set(_clocks(text))
    wanted = {float(n.replace(",", "")) for n in _NUMBER.findall(_CLOCK.sub(" ", text))}
    # "Yes, that one" says no number; the question before it does.
    evidence = said if said.values - {1} or said.clocks else around
    bare_hours = {(hour, 0) for hour in range(12) if {hour, hour + 12} & evidence.values}
    unknown_clocks = clocks - evidence.clocks - bare_hours
    unknown = wanted - evidence.numbers - {hour + 12 for hour, _ in evidence.clocks}
    return bool(unknown_clocks) or bool(unknown - around.numbers if evidence is around else unknown)


def _durations(text: str) -> Iterator[float]:
    """Yield the minutes of lengths of time that a text says, up to some hours."""
    for match in _DURATION.finditer(text):
        count = match["count"]
        if match["half"]:
            yield 30
        elif match["quarter"]:
            yield 45 if "三" in match["quarter"] else 15
        elif count[0].isdigit() or count in _WORDS or not count.isascii():
            known = _WORDS.get(count)
            number = float(count) if count[0].isdigit() else known or read_number(count)
            yield number * (1 if match["unit"].startswith(("min", "分")) else 60)


def _clocks(text: str) -> Iterator[_Clock]:
    """Yield the clocks that a text says: 15:30, half past three, quarter to four, 两点半."""
    for hour, minute in (*_CLOCK.findall(text), *_DOTTED_CLOCK.findall(text)):
        yield int(hour) % 12, int(minute)
    for count, side, hour in _PAST.findall(text):
        minutes = _MINUTES.get(count) or int(count if count.isdigit() else _WORDS.get(count, 0))
        number = int(hour if hour.isdigit() else _WORDS[hour])
        yield (
            (number % 12, minutes)
            if side in ("past", "after")
            else (
                (number - 1) % 12,
                60 - minutes,
            )
        )
    for hour in _HALF_HOUR.findall(text):
        yield int(hour if hour.isdigit() else _WORDS[hour]) % 12, 30
    for hour, part in _CHINESE_CLOCK.findall(text):
        number = int(hour) if hour.isdigit() else int(read_number(hour))
        minutes = _MINUTES.get(part) or int(
            part if part.isdigit() else read_number(part) if part else 0
        )
        yield number % 12, minutes


def _values(text: str) -> Iterator[float]:
    """Yield the values of a text's numbers: 1,200, thirty-two, 5k, 两万三, 三块二."""
    yield from _plain_values(_LARGE.sub(" ", _CLOCK.sub(" ", text)))
    yield from (_WORDS[word] for word in _WORD.findall(text) if word in _WORDS)
    for tens, digit in _TENS.findall(text):
        if digit in _WORDS:
            yield _WORDS[tens] + _WORDS[digit]
    for count, unit, rest in _HUNDREDS.findall(text):
        number = _WORDS.get(count, 1) * _WORDS[unit]
        yield from (number, number + _WORDS.get(rest, 0))
    for count, unit, rest in _LARGE.findall(text):
        size = _UNITS[unit.casefold()]
        more = read_number(rest) if rest and not rest.isdigit() else float(rest or 0)
        yield from (float(count) * size, float(count) * size + more * size / 10)
    for run in (run for run in _NUMERALS.findall(text) if len(run) <= _LONGEST_RUN):
        yield _read_chinese(run)
        if match := _SHORT.fullmatch(run):
            yield _read_chinese(match[1]) + read_number(match[2]) * _UNITS[match[1][-1]] / 10
    for whole, digits in _DECIMAL.findall(text):
        tail = "".join(str(read_number(digit)) for digit in digits)
        yield read_number(whole) + float(f"0.{tail}")
    for whole, tenth in _MONEY.findall(text):
        number = float(whole) if whole.isdigit() else read_number(whole)
        yield number + read_number(tenth) / 10


def _plain_values(text: str) -> Iterator[float]:
    for number in (found.replace(",", "") for found in _NUMBER.findall(text)):
        yield float(number)
        if number.count(".") == 1:  # a version, or a clock
            yield from map(float, number.split("."))


def _read_chinese(run: str) -> int:
    """Return the value of numerals with 万 and 亿."""
    for unit in "亿万":
        before, mark, after = run.partition(unit)
        if mark:
            return (_read_chinese(before) or 1) * _UNITS[unit] + _read_chinese(after)
    return read_number(run) if run else 0


def _differs_in_negation(fact: Fact, sources: Sequence[Utterance]) -> bool:
    """Return True if only the fact denies something, or only the clauses that it repeats."""
    said = "\n".join(source.text[:_LONGEST] for source in sources)
    terms = set(analyze(normalize(fact.text)).atoms)
    repeated = []
    for clause in filter(str.strip, _CLAUSE.split(said)):
        words = set(analyze(normalize(_NEGATION.sub(" ", clause))).atoms)
        if len(words) > 1 and len(words & terms) >= _SAME_CLAUSE * len(words):
            repeated.append(clause)
    if fact.negated or _denies(fact.text):
        return bool(repeated) and not _denies(said)
    return bool(repeated) and all(map(_denies, repeated))


def _denies(text: str) -> bool:
    return _NEGATION.search(_NO_NEGATION.sub(" ", text)) is not None
