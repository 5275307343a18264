"""Marks on a model's facts: what their messages do not confirm, as far as code can be certain.

A mark drops nothing. A number or date that no source has, a source that is nobody's message, and a
negation that only one side has are certain. Names are not: people abbreviate them, and say them in
other sessions.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from itertools import accumulate, combinations, product
from typing import NamedTuple

from memrecall.extraction.protocol import Fact, Utterance
from memrecall.text.language import STOP_CHARS, STOP_TERMS, is_question, tag_words
from memrecall.text.times import TimeSpan, find_times
from memrecall.text.times.chinese import NUMERALS, read_number
from memrecall.text.tokens import BREAK, analyze, normalize
from memrecall.types import Doubt

_LONGEST = 4_000  # characters of a message that are read
# Of times before and after, a calendar may lack the days around them.
_FIRST, _LAST = datetime(1000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_PRECISE, _NEAR, _LONG = timedelta(days=8), timedelta(days=45), timedelta(days=300)
_MOST_DAYS = 200 * 365.25
_MOST_NUMBERS = 12  # of more, any number follows from some of them by chance
_THOUSANDS = 10_000  # where such a number is said, 318 may be short for 318,000


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SHORT = {day[:3]: day for day in _DAYS} | {"tues": "tuesday", "weds": "wednesday"}
_SHORT |= {"thur": "thursday", "thurs": "thursday", "tmrw": "tomorrow", "sept": "september"}
_SHORT |= {"til": "until", "wk": "week", "wks": "weeks", "yr": "year", "yrs": "years"}
_SHORT |= {"hr": "hour", "hrs": "hours", "doz": "dozen", "the month": "this month"}
_SHORTHAND = re.compile(rf"\b(?:{_any(_SHORT)})\b")
_WEEKDAY = re.compile(
    rf"(?:(?P<weeks>(?:two )?weeks?) (?:from|on|after) )?\b(?P<en>{_any(_DAYS)})s?\b"
    r"(?P<week> week\b)?|(?<![上下])(?:周|星期|礼拜)(?P<zh>[一二三四五六日天])"
)
_WEEKLY = re.compile(rf"每|\bevery\b|\b(?:{_any(_DAYS)})s\b")
# "Since 2020" is about all of 2020, as "in 2020" is.
_OPEN = re.compile(r"\b(?:since|from|until|by|before|after)\b")
_ZH_OPEN = re.compile(r"(?<=[年月日号初底末])(?:起|以来|开始|[以之]?[前后])")

_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
_TEENS = "fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS: dict[str, float] = {word: n for n, word in enumerate(f"{_SMALL} {_TEENS}".split())}
_WORDS |= {word: 10 * n for n, word in enumerate(_TENS.split(), 2)}
_WORDS |= {"hundred": 100, "couple": 2, "twice": 2, "half": 0.5, "半": 0.5, "俩": 2, "仨": 3}
# Read in messages alone: that a fact counts "a second job" does not make 2 a number of it.
_IMPLIED = {"both": "2"} | {
    word: str(n)
    for n, word in enumerate(
        ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"], 1
    )
}
_IMPLIED_NUMBER = re.compile(rf"\b(?:{_any(_IMPLIED)})\b")
_SIZES: dict[str, float] = {"k": 1e3, "w": 1e4, "m": 1e6, "dozen": 12, "打": 12, "成": 10}
_SIZES |= {"thousand": 1e3, "million": 1e6, "百": 100, "千": 1e3, "万": 1e4, "亿": 1e8}
_LENGTHS: dict[str, float] = {"day": 1, "天": 1, "week": 7, "周": 7, "星期": 7, "礼拜": 7}
_LENGTHS |= {
    "fortnight": 14,
    "month": 30.44,
    "月": 30.44,
    "year": 365.25,
    "年": 365.25,
    "岁": 365.25,
}
_PARTS = {"hour": 60, "小时": 60, "钟头": 60, "week": 7, "周": 7, "星期": 7, "fortnight": 14}
_UNIT = _any(_LENGTHS | _PARTS)
_WORD = rf"(?:{_any(word for word in _WORDS if word.isascii())})\b"
_NUMBER = re.compile(
    rf"(?:(?P<digits>\d+(?:,\d{{3}})*(?:\.\d+)?)|(?P<zh>[半俩仨])"
    # 周二 is no number, and 第二天 the next day.
    rf"|(?<![周期拜])(?<!第(?=[一二]))(?P<run>[{NUMERALS}]{{1,24}})(?:[点块](?P<part>[{NUMERALS}]+))?"
    rf"|\b(?P<en>{_WORD}(?:(?:[ -]|(?<=hundred) and ){_WORD})*)|\ban?(?= (?:dozen|{_UNIT})))"
    rf"(?:[ -]?(?P<size>{_any(_SIZES)})(?![a-z])(?P<tail>[\d{NUMERALS}](?![\d{NUMERALS}]))?)?"
    rf"(?:[ -]?(?:an? |more |个)?(?P<unit>{_UNIT}))?"
)
_DAY_END = re.compile(r"(?:st|nd|rd|th)\b|[号日]|(?![a-z\u4e00-\u9fff])")
_HOUR = rf"(?:\d{{1,2}}|{_any(_SMALL.split()[1:13])})\b"
_CLOCK = re.compile(
    r"(?<![\d:.])(?P<hour>[01]?\d|2[0-4])(?P<mark>[:.])(?P<minute>[0-5]\d)(?::[0-5]\d)?(?![\d:])"
    rf"|\b(?P<count>quarter|half) (?P<side>past|to|after|until) (?P<of>{_HOUR})"
    rf"|\bhalf (?P<half>{_HOUR})|(?P<zh>\d{{1,2}}|[{NUMERALS}]{{1,3}})[点时]"
    rf"(?P<zh_minute>半|[一三]刻|\d\d|[{NUMERALS}]{{2,3}})"
)
_MINUTES = {"quarter": 15, "half": 30, "半": 30, "一刻": 15, "三刻": 45}

_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|nope|nah|cannot|without|neither|nor|\w+n't|aint|cant"
    r"|(?:do|does|did|wo|is|are|was|were|have|has|would|should)nt)\b|[不没无别未甭]"
)
_NO_NEGATION = re.compile(
    r"不(?:耐|错|过|久|同|仅|但|少|断)|差不多|没准|特别|分别|区别|级别|性别|个别|无线|无论"
    r"|\bgoing to\b|\bno (?:problem|worries|idea|doubt|way)\b|\b(?:not only|why not)\b"
    r"|\bnot (?=\d)|\b(?:isn't it|don't you)\b"
)
_CLAUSE = re.compile(r"[.!?;。！？；，,\n]+|(?<=[\u4e00-\u9fff])\s+|\s+(?=[\u4e00-\u9fff])")
_MOST, _NEARLY_ALL = 0.5, 0.7  # of the words of a fact that a clause has

_Clock = tuple[int, int]  # on a dial of twelve hours
_Period = tuple[datetime, datetime]


class _Number(NamedTuple):
    position: int
    values: frozenset[float]  # what it may mean: 5k is 5 and 5,000, half an hour 0.5 and 30
    length: float  # in days, of one, if it counts days or longer times
    may_be_day: bool  # of a month: 18, 18th, 十八号


def find_doubts(
    fact: Fact,
    messages: Sequence[Utterance],
    known: Sequence[str] = (),
    *,
    now: datetime,
    zone: tzinfo = UTC,
) -> tuple[Doubt, ...]:
    """Return what the messages that a fact names do not confirm, if anything.

    `messages` are all that the model was shown, in order; `now` is the time of those without one.
    `known` are the texts of the memories that the fact replaces: it may say what they said.
    """
    places = [i for i, message in enumerate(messages) if message.message_id in fact.source_ids]
    sources = [messages[place] for place in places]
    if not any(source.is_from_person for source in sources):
        return ("source",)
    said = _Evidence(sources, known, now, zone)
    # "Yes, that one" says no number; the question before it does.
    shown = sorted({n for place in places for n in (place - 1, place) if n >= 0})
    around = _Evidence([messages[n] for n in shown], known, said.now, zone)
    text = _fold(fact.text)
    is_wrong, rest = _read_dates(text, said if said.spans else around)
    doubts: list[Doubt] = ["date"] if is_wrong else []
    if _has_unknown_numbers(rest, said if said.numbers - {1} or said.clocks else around):
        doubts.append("number")
    if _differs_in_negation(text, fact.negated, messages, places):
        doubts.append("negation")
    return tuple(doubts)


def _fold(text: str) -> str:
    folded = normalize(text[:_LONGEST]).casefold()
    return _SHORTHAND.sub(lambda match: _SHORT[match.group()], folded)


class _Evidence:
    """The numbers, clocks and times that some messages and known memories say."""

    def __init__(
        self, messages: Sequence[Utterance], known: Sequence[str], now: datetime, zone: tzinfo
    ) -> None:
        times = [message.ts for message in messages if message.ts is not None]
        self.now = min(max(max(times, default=now), _FIRST), _LAST).astimezone(zone)
        self.zone = zone
        self.text = "\n".join(map(_fold, (*(message.text for message in messages), *known)))
        self.clocks, rest = _split_clocks(self.text)
        rest = _IMPLIED_NUMBER.sub(lambda match: _IMPLIED[match.group()], rest)
        self.in_order = list(_numbers(rest))
        self.numbers = {value for number in self.in_order for value in number.values}
        self.numbers |= {hour for hour, minute in self.clocks if not minute}
        self.weekdays = {_weekday(match) for match in _WEEKDAY.finditer(self.text)}
        self.spans = list(self._find_spans())

    def _find_spans(self) -> Iterator[_Period]:
        """Yield the times that the messages name, and those counted from them or from now."""
        text, bases = self.text, [self.now]
        for match in reversed(list(_WEEKDAY.finditer(text))):
            yield from ((day, day + _DAY) for day in _weekdays(match, self.now))
            if match["weeks"] or match["week"]:  # "a week from Monday" is not on Monday
                text = text[: match.start()] + text[match.end() :]
        for past in (True, False):
            for span in find_times(text, self.now, self.zone, past=past):
                start, end = span.start or span.end, span.end or span.start
                if start is not None and end is not None:
                    yield start, max(end, start + _DAY)
                    bases.append(start)
        for number in self.in_order[:_MOST_NUMBERS] if text == self.text else ():
            is_year = number.length > 31  # 两岁四个月 is said by its years
            precision = timedelta(days=max(number.length / (2 if is_year else 4), 1))
            for base, value in product(bases[:_MOST_NUMBERS], number.values):
                days = value * number.length
                for sign in (1, -1) if 0 < days < _MOST_DAYS and _FIRST < base < _LAST else ():
                    moment = base + sign * timedelta(days=days)
                    yield moment - precision, moment + precision

    @cached_property
    def known(self) -> set[float]:
        """The numbers that the messages say or that follow from them."""
        said, year = self.numbers, self.now.year
        follow: set[float] = set()
        if len(self.in_order) <= _MOST_NUMBERS:
            for first, second in combinations(sorted(said), 2):
                follow |= {second - first, first * second, second / 2}
                if second <= 12:  # 押一付三 is four rents
                    follow |= {(first + second) * value for value in said}
            values = [max(number.values) for number in self.in_order]
            for first in range(len(values)):
                follow.update(accumulate(values[first:]))
        # A small number is the sum or the difference of some others by chance.
        follow = {number for number in follow if number > 9 or number % 1}
        large = [value for value in said if value >= _THOUSANDS]
        follow |= {v * 1e3 for v in said if any(o / 2 <= v * 1e3 <= o * 2 for o in large)}
        follow |= {year + sign * v for v in said if v < 130 for sign in (1, -1)}
        follow |= {2000 + v if v < 100 else year - v for v in said if v <= year}
        return {round(number, 6) for number in (*said, *follow)}


def _weekday(match: re.Match[str]) -> int:
    """Return 0 for Monday to 6 for Sunday."""
    name = match["en"]
    return _DAYS.index(name) if name else min("一二三四五六日天".index(match["zh"]), 6)


def _weekdays(match: re.Match[str], now: datetime) -> list[datetime]:
    """Return the days that the name of a weekday may mean: the coming one and the one before."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    coming = today + timedelta(days=(_weekday(match) - today.weekday()) % 7 or 7)
    if weeks := match["weeks"] or match["week"]:
        return [coming + _WEEK * (2 if weeks.startswith("two") else 1)]
    is_next = match.string.endswith("next ", 0, match.start())
    return [coming - _WEEK, coming, coming + is_next * _WEEK]


def _read_dates(text: str, evidence: _Evidence) -> tuple[bool, str]:
    """Return whether no message names a date of a text, and the text without its dates."""
    weekly = set(map(_weekday, _WEEKDAY.finditer(text))) if _WEEKLY.search(text) else set()
    is_wrong = bool(evidence.weekdays) and not weekly <= evidence.weekdays
    text = _ZH_OPEN.sub("", _OPEN.sub("in", text))
    for span in reversed(find_times(text, evidence.now, evidence.zone, past=False)):
        if span.grain in ("minute", "hour") and not re.search(r"\d{4}|[月日]", span.text):
            continue  # a clock is compared as one
        is_wrong |= not _is_named(span, evidence)
        clock = _CLOCK.search(span.text)
        end = span.position + len(span.text)
        text = f"{text[: span.position]} {clock.group() if clock else ''} {text[end:]}"
    return is_wrong, text


def _is_named(span: TimeSpan, evidence: _Evidence) -> bool:
    start, end = span.start, span.end
    if start is None or end is None or not re.search(r"\d", span.text):
        return True
    if end - start <= 2 * _DAY:
        return _is_named_day(start, evidence)
    if (start, end) in evidence.spans:
        return True
    if span.grain == "range" and end - start <= _NEAR:
        return _is_named_day(start, evidence) and _is_named_day(end - _DAY, evidence)
    year = start.astimezone(evidence.zone).year
    is_named_year = end - start > _LONG and year in evidence.known
    return is_named_year or start <= evidence.now < end or _overlaps(evidence.spans, start, end)


def _is_named_day(start: datetime, evidence: _Evidence) -> bool:
    end, day = start + _DAY, start.astimezone(evidence.zone)
    precise = [(since, until) for since, until in evidence.spans if until - since <= _PRECISE]
    if start <= evidence.now < end or _overlaps(precise, start, end):
        return True
    is_in_month = _overlaps(evidence.spans, start, end)
    if day.weekday() in evidence.weekdays and is_in_month:
        return True  # "the first Sunday of September"
    is_day = any(day.day in number.values for number in evidence.in_order if number.may_be_day)
    is_birthday = day.year < evidence.now.year - 1 and day.year in evidence.known
    return is_day and (is_in_month or is_birthday or abs(start - evidence.now) <= _NEAR)


def _overlaps(spans: Iterable[_Period], start: datetime, end: datetime) -> bool:
    return any(start < until and since < end for since, until in spans)


def _has_unknown_numbers(text: str, evidence: _Evidence) -> bool:
    """Return True if the messages neither say a number of a text nor give it together."""
    clocks, rest = _split_clocks(text)
    for (hour, minute), is_certain in clocks.items():
        is_bare = not minute and {hour, hour + 12} & evidence.numbers
        if is_certain and (hour, minute) not in evidence.clocks and not is_bare:
            return True
    names = _positions_of_names(rest)
    for position, values, *_ in _numbers(rest):
        is_vague = values & {0, 1} or (0.5 in values and 30 not in values)
        if not is_vague and position not in names and not values & evidence.known:
            return True
    return False


def _positions_of_names(text: str) -> set[int]:
    """Return the positions of Chinese characters in nouns, such as 四 in 四川."""
    names, position = set[int](), 0
    for word, kind in [] if text.isascii() else tag_words(text):
        names |= set(range(position, position + len(word))) if kind.startswith("n") else set()
        position += len(word)
    return names


def _split_clocks(text: str) -> tuple[dict[_Clock, bool], str]:
    """Return the clocks that a text says, whether they are certain, and the text without these."""
    clocks: dict[_Clock, bool] = {}

    def read(match: re.Match[str]) -> str:
        """Read 15:30, half past three, quarter to four or 两点半; 7.30 may be a number."""
        word = match["hour"] or match["zh"] or match["half"] or match["of"]
        hour = int(_WORDS[word]) if word in _WORDS else read_number(word)
        part = match["minute"] or match["zh_minute"] or match["count"] or "half"
        minute = _MINUTES.get(part) or read_number(part)
        if match["side"] in ("to", "until"):
            hour, minute = hour - 1, 60 - minute
        clocks[hour % 12, minute] = match["mark"] != "."
        return match.group() if match["mark"] == "." else " "

    rest = _CLOCK.sub(read, text)
    return clocks, rest


def _numbers(text: str) -> Iterator[_Number]:
    """Yield the numbers that a text says: 1,200, thirty-two, 5k, 两万三, 三块二."""
    for match in _NUMBER.finditer(text):
        size, unit, tail = match["size"], match["unit"] or "", read_number(match["tail"] or "0")
        values = _read_values(match)
        if size:
            scaled = {(value + tail / 10) * _SIZES[size] for value in values}
            values = scaled if size in "百千万亿" else values | scaled
        values |= {_PARTS[unit] * value for value in values if unit in _PARTS}
        rounded = frozenset(round(value, 6) for value in values)
        is_day = text.endswith("月", 0, match.start()) or _DAY_END.match(text, match.end())
        may_be_day = bool(is_day) and not size and not unit
        yield _Number(match.start(), rounded, _LENGTHS.get(unit, 0), may_be_day)


def _read_values(match: re.Match[str]) -> set[float]:
    """Return what a number may mean: 两千三 is 2,300, or else 2,003."""
    run = match["run"]
    if match["digits"]:
        return {float(match["digits"].replace(",", ""))}
    if run and match["part"]:
        decimals = "".join(str(read_number(digit)) for digit in match["part"])
        return {read_number(run) + float(f"0.{decimals}")}
    if run and len(run) > 2 and run[-2] in "百千" and run[-1] not in "十百千":
        return {
            read_number(run),
            read_number(run[:-1]) + read_number(run[-1]) * _SIZES[run[-2]] / 10,
        }
    if run:
        return {read_number(run)}
    total: float = 0
    for word in re.split("[ -]", match["en"] or match["zh"] or "one"):
        value = _WORDS.get(word, 0)
        total = (total or 1) * value if value == 100 else total + value
    return {total}


def _differs_in_negation(
    text: str, negated: bool, messages: Sequence[Utterance], places: Sequence[int]
) -> bool:
    """Return True if only a fact denies something, or only the clauses that it repeats."""
    words = _content(text)
    affirmed: list[dict[str, None]] = []
    denied: list[dict[str, None]] = []
    for place in places:
        clauses = _clauses(messages[place].text) if messages[place].is_from_person else []
        for number, clause in enumerate(clauses):
            negation = _NEGATION.search(clause)
            if negation is None:
                affirmed += [] if is_question(clause) else [_content(clause)]
                continue
            if number == 0 and negation.start() == 0 and place:  # "no, not any more"
                denied += map(_content, filter(is_question, _clauses(messages[place - 1].text)))
            # What a clause denies comes next: not "can't wait to go".
            is_about = next(iter(_content(clause[negation.end() :])), None) in words
            denied.append(_content(clause) if is_about else {})

    def repeats(clause: dict[str, None], share: float) -> bool:
        return len(words.keys() & clause.keys()) > share * len(words)

    if negated or _NEGATION.search(_NO_NEGATION.sub(" ", text)):
        # What has ended held before: the fact is to say nothing else than the clause.
        shared = [c for c in affirmed if len(words.keys() & c.keys()) > _NEARLY_ALL * len(c)]
        return not denied and any(repeats(clause, _NEARLY_ALL) for clause in shared)
    is_affirmed = any(repeats(clause, _MOST) for clause in affirmed)
    return not is_affirmed and any(repeats(clause, _MOST) for clause in denied)


def _clauses(text: str) -> list[str]:
    folded = _NO_NEGATION.sub(" ", _fold(text))
    return [clause.strip() for clause in _CLAUSE.split(folded) if clause.strip()]


def _content(text: str) -> dict[str, None]:
    """Return the terms of a text that are not stop words, in order."""
    no_content = STOP_TERMS | STOP_CHARS | {BREAK, "user"}
    atoms = analyze(text.replace("用户", " ")).atoms
    return dict.fromkeys(a for a in atoms if a not in no_content and not a.isdigit())
