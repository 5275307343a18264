"""Tables of English time words, for text in lower case."""

from collections.abc import Callable
from datetime import datetime
from typing import get_args

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
    ENGLISH_HOLIDAYS,
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
    current_occurrence,
    day_of_month,
    day_part,
    day_span,
    floor,
    from_now,
    half_ago,
    last_completed,
    month,
    month_day,
    next_occurrence,
    quarter,
    rolling,
    season,
    weekday,
    weekend,
)

_WORDS = "one two three four five six seven eight nine ten eleven twelve"
_COUNTS = {word: Count(number, number) for number, word in enumerate(_WORDS.split(), 1)} | {
    "a": Count(1, 1),
    "an": Count(1, 1),
    "twenty": Count(20, 20),
    "thirty": Count(30, 30),
    "couple": Count(2, 3),
    "few": Count(2, 5),
    "several": Count(3, 7),
}
_COUNT = rf"(?:a )?(\d{{1,4}}|{'|'.join(sorted(_COUNTS, key=len, reverse=True))})(?: of)?"
_UNITS: dict[str, Unit] = {unit: unit for unit in get_args(Unit)} | {"min": "minute"}
_UNIT = f"({'|'.join(_UNITS)})s?"


def _count(word: str) -> Count:
    return _COUNTS[word] if word in _COUNTS else Count(int(word), int(word))


def _counted(make: MakeCounted) -> Callable[[datetime, str, str], Range]:
    return lambda now, count, unit: make(now, _count(count), _UNITS[unit])


_COUNTED = (
    Rule(f"(?:last|past|previous) {_COUNT} {_UNIT}", _counted(rolling)),
    Rule(
        "past (hour|day|week|month|year)|last (hour)",
        lambda now, unit, hour: rolling(now, Count(1, 1), _UNITS[unit or hour]),
    ),
    Rule(f"{_COUNT} {_UNIT} ago", _counted(ago)),
    Rule(f"{_COUNT} {_UNIT} from now", _counted(from_now)),
    Rule("half an? (hour|day|month|year) ago", lambda now, unit: half_ago(now, _UNITS[unit])),
    Rule("other day", lambda now: before_current(now, "day", 7)),
    Rule("recently|lately", lambda now: rolling(now, Count(7, 7), "day")),
    Rule("just now|a moment ago|moments ago", lambda now: rolling(now, Count(2, 2), "day")),
)

_COUNT_STARTS = any_of(
    (f"{_COUNT} {any_of(_UNITS)}", "half an? |other day|recently|lately|just now|moments")
)

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# "sat" and "sun" are other words too often.
_SHORT_WEEKDAY_NAMES = ("mon", "tue tues", "wed", "thu thur thurs", "fri")
_SHORT_WEEKDAYS = {
    name: number for number, names in enumerate(_SHORT_WEEKDAY_NAMES) for name in names.split()
}
_MONTH_NAMES = """
january february march april may june july august september october november december
"""
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), 1)}
_SHORT_MONTHS = {name[:3]: number for name, number in _MONTHS.items() if len(name) > 3}
_SHORT_MONTHS["sept"] = 9
_MONTH_NUMBERS = _MONTHS | _SHORT_MONTHS
# Months only in a context that confirms it.
_AMBIGUOUS_MONTHS = ("may", "march")
_DAY_PARTS = ("morning", "noon", "afternoon", "evening", "night", "midnight")
_SEASONS = {name: season(name) for name in SEASONS} | {"fall": season("autumn")}
_RECURRENCES: dict[str, Recurrence] = (
    {name: weekday(number) for number, name in enumerate(_WEEKDAYS)}
    | {name: weekday(number) for name, number in _SHORT_WEEKDAYS.items()}
    | {name: month(number) for name, number in _MONTH_NUMBERS.items()}
    | _SEASONS
    | ENGLISH_HOLIDAYS
    | {"weekend": weekend()}
)
_OFFSETS = {"last": -1, "previous": -1, "this": 0, "current": 0, "next": 1, "coming": 1}
_DAY_OFFSETS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_NEARBY_UNIT = any_of(("hour", "day", "week", "month", "year", *_DAY_PARTS))
_PARTS = {"beginning": "start", "start": "start", "middle": "middle", "end": "end"}

_MONTH = any_of(sorted(_MONTH_NUMBERS, key=len, reverse=True)) + "[.]?"
_CLEAR_MONTH = any_of(name for name in _MONTHS if name not in _AMBIGUOUS_MONTHS)
_AMBIGUOUS_MONTH = any_of(_AMBIGUOUS_MONTHS)
_NAME = any_of(sorted(_RECURRENCES, key=len, reverse=True))
_YEAR = r"(?:19|20)\d\d"
_ORDINAL = "(?:st|nd|rd|th)"
# In "March 3 miles" and "in 2000 words" the number counts things.
_NOT_COUNTING = (
    "(?! ?%| (?:items?|words?|lines?|people|users?|times|dollars?|tokens?|files?|rows?|steps?"
    "|points?|bytes?|ms|px|km|miles?|hours?|days?|weeks?|percent)(?![a-z]))"
)
_NOT_DECIMAL = r"(?![/\d]|[.,:]\d)"
# Excludes "this may be": what follows a month cannot be a verb.
_AFTER_MONTH = r"(?=$|\s?[^\sa-z]| (?:i|we|you|he|she|they|the|my|our|and|for|at|with)(?![a-z]))"


def _named_recurrence(_now: datetime, name: str) -> Recurrence:
    # The words may be separated by a line break or two blanks.
    return _RECURRENCES[" ".join(name.split())]


def _pointed_recurrence(now: datetime, pointer: str, name: str) -> Range:
    recurrence, word = _named_recurrence(now, name), pointer.split()[-1]
    if word == "this":
        return current_occurrence(recurrence, now)
    if word in ("next", "coming"):
        # "Next weekend" is the one after the coming one.
        soon = calendar_unit(now, "week" if (word, name) == ("next", "weekend") else "day").end
        return next_occurrence(recurrence, soon)
    return last_completed(recurrence, now)


def _nearby(now: datetime, pointer: str, unit: Unit) -> Range:
    return calendar_unit(now, unit, _OFFSETS[pointer])


def _part_of_day(now: datetime, part: str, offset: int = 0) -> Range:
    return day_part(part).at(calendar_unit(now, "day", offset))


def _month_number(name: str) -> int:
    return _MONTH_NUMBERS[name.rstrip(".")]


def _month_day(_now: datetime, name: str, day: str, final: str | None = None) -> Recurrence:
    number = _month_number(name)
    return day_span(number, int(day), int(final)) if final else month_day(number, int(day))


def _day_month(now: datetime, *days_and_name: str) -> Recurrence:
    *days, name = days_and_name
    return _month_day(now, name, *days)


def _year(now: datetime, digits: str) -> Range:
    return calendar_unit(floor(now, "year").replace(year=int(digits)), "year")


def _clock(_now: datetime, hour: str, minute: str | None, half: str) -> Recurrence:
    if not 1 <= int(hour) <= 12:
        raise ValueError(f"{hour} {half}.m. is not a time of day")
    number = int(hour) % 12 + (12 if half == "p" else 0)
    return clock(number, int(minute) if minute else None, exact=True)


_RECURRING = (
    Rule(
        r"(?:every|each)(?: (?:other|single|last|first|second|third|\d\d?(?:st|nd|rd|th)?))?",
        ignore_recurring,
    ),
    Rule(f"(?:{any_of(_WEEKDAYS)}|weekend)s", ignore_recurring),
)
_NEARBY = (
    Rule("day before yesterday", lambda now: calendar_unit(now, "day", -2)),
    Rule("day after tomorrow", lambda now: calendar_unit(now, "day", 2)),
    Rule("(week|month|year) before last", lambda now, unit: calendar_unit(now, unit, -2)),
    Rule(
        f"({'|'.join(_DAY_OFFSETS)})",
        lambda now, word: calendar_unit(now, "day", _DAY_OFFSETS[word]),
    ),
    Rule("last night", lambda now: _part_of_day(now, "night", -1)),
    Rule("night before last", lambda now: _part_of_day(now, "night", -2)),
    Rule("tonight", lambda now: _part_of_day(now, "night")),
    Rule("this (morning|afternoon|evening)", _part_of_day),
    Rule("(last|previous|this|current|next|coming) (week|month|year)", _nearby),
    Rule(
        f"this ({_AMBIGUOUS_MONTH}){_AFTER_MONTH}",
        lambda now, name: current_occurrence(_RECURRENCES[name], now),
    ),
    Rule(
        "(last|past|this past|previous|this coming|coming"
        f"|this(?! {_AMBIGUOUS_MONTH})|next) ({_NAME})",
        _pointed_recurrence,
    ),
)
_CALENDAR = (
    Rule(
        f"({_MONTH}),?(?: of)? ({_YEAR})",
        lambda now, name, year: month(_month_number(name)).at(_year(now, year)),
    ),
    Rule(
        rf"({_MONTH}) (\d\d?){_ORDINAL}?(?: ?(?:-|to) ?(\d\d?){_ORDINAL}?)?"
        rf"(?![a-z]){_NOT_DECIMAL}{_NOT_COUNTING}",
        _month_day,
    ),
    Rule(
        rf"(?<!\d[.])(\d\d?){_ORDINAL}?(?: ?[-–] ?| to (?:the )?|(?<=between\s\d) and (?:the )?"
        rf"|(?<=between\s\d\d) and (?:the )?)(\d\d?){_ORDINAL}?(?: of)?"
        rf" ({_CLEAR_MONTH}|{any_of(_SHORT_MONTHS)}[.]?"
        rf"|{_AMBIGUOUS_MONTH}(?=,? {_YEAR}|$|[.,;!?]))",
        _day_month,
    ),
    Rule(rf"(\d\d?){_ORDINAL}(?: of)? ({_MONTH})", _day_month),
    Rule(rf"(?<!\d[.])(\d\d?) ({_CLEAR_MONTH}|{any_of(_SHORT_MONTHS)}[.]?)", _day_month),
    Rule(rf"(\d\d?) ({_AMBIGUOUS_MONTH})(?=,? {_YEAR}|$|[.,;!?]| to \d)", _day_month),
    Rule(
        rf"(?<=(?:on|to|by)\sthe\s)(\d\d?){_ORDINAL}(?=$|\s?[^\sa-z]|\s(?:at|in|with|and|so|to|until)\b)",
        lambda _now, day: day_of_month(int(day)),
    ),
    Rule(rf"(?<=on\s)({any_of(_SHORT_WEEKDAYS)})", _named_recurrence),
    Rule(f"({any_of(_WEEKDAYS)}|weekend|{any_of(ENGLISH_HOLIDAYS)})", _named_recurrence),
    Rule(f"({_CLEAR_MONTH})", _named_recurrence),
    Rule(f"({_AMBIGUOUS_MONTH})(?= of {any_of(_OFFSETS)} year)", _named_recurrence),
    Rule(f"({_AMBIGUOUS_MONTH})", _named_recurrence, Requirement.MARKER_OR_PREDECESSOR),
    Rule(f"({any_of(_SHORT_MONTHS)})(?![(])", _named_recurrence, Requirement.MARKER_OR_NEIGHBOR),
    Rule(f"({any_of(_SEASONS)})", _named_recurrence, Requirement.MARKER_OR_NEIGHBOR),
    Rule("q([1-4])", lambda _now, number: quarter(int(number)), Requirement.MARKER_OR_NEIGHBOR),
    Rule(
        f"({_YEAR})(?!(?<=0)'s|[\u4e00-\u9fff]|-){_NOT_DECIMAL}{_NOT_COUNTING}",
        _year,
        Requirement.MARKER_OR_NEIGHBOR,
    ),
    Rule(
        "(beginning|start|middle|end) of the (month|year)",
        lambda _now, part, unit: calendar_part(_PARTS[part], unit),
    ),
    Rule(
        "(beginning|start|middle|end)(?= of)",
        lambda _now, part: any_part(_PARTS[part]),
        Requirement.NEIGHBOR,
    ),
    Rule("(early|mid|late)", lambda _now, part: any_part(part), Requirement.NEIGHBOR),
)
_TIMES_OF_DAY = (
    Rule(f"({'|'.join(_DAY_PARTS)})", lambda _now, name: day_part(name), Requirement.NEIGHBOR),
    Rule(r"(\d\d?)(?::([0-5]\d))? ?([ap])[.]?m[.]?", _clock, Requirement.NEIGHBOR),
    Rule(r"(\d\d?) o'clock", lambda _now, hour: clock(int(hour)), Requirement.NEIGHBOR),
)
RULES = tuple(
    rule._replace(pattern=f"(?:{rule.pattern})(?![a-z0-9])")
    for rule in (*_RECURRING, *_COUNTED, *_NEARBY, *_CALENDAR, *_TIMES_OF_DAY)
)

PREFIXES = tuple(
    Marker(f"(?:{marker.pattern})(?: the)? ", marker.boundary, marker.confirms)
    for marker in (
        Marker("before|prior to", Boundary.BEFORE, confirms=True),
        Marker("after", Boundary.AFTER, confirms=True),
        Marker("(?:ever )?since", Boundary.SINCE, confirms=True),
        Marker("starting(?: in| on| from)?", Boundary.FROM, confirms=True),
        Marker("until|till|up to|up until", Boundary.UNTIL, confirms=True),
        Marker("by", Boundary.UNTIL),
        Marker("from|between", Boundary.BETWEEN, confirms=True),
        Marker("in|during|throughout|within|of", Boundary.WITHIN, confirms=True),
        Marker("on|at|over", Boundary.WITHIN),
    )
)
SUFFIXES = (
    Marker(" (?:to date|(?:until|till|to|up to) now)(?![a-z])", Boundary.SINCE),
    Marker(" onwards?(?![a-z])", Boundary.FROM),
)

# How English times begin: a cheap test that skips most of a text before RULES are tried.
_OPENINGS = any_of(
    (
        *sorted({name.split()[0].split("'")[0] for name in _RECURRENCES}),
        *_DAY_OFFSETS,
        *_DAY_PARTS,
        "tonight|every|each|early|mid|late|q[1-4]",
        "day (?:before|after)|(?:night|week|month|year) before",
        f"(?:{any_of(_OFFSETS)}|past) (?:{_NAME}|{_COUNT_STARTS}|{_NEARBY_UNIT}|past|coming)",
        f"{any_of(_PARTS)} of ",
        _COUNT_STARTS,
        f"{_YEAR} {_MONTH}",
        rf"\d\d?(?: ?[-–] ?| to (?:the )?)\d\d?{_ORDINAL}?(?: of)? {_MONTH}",
        rf"\d\d?(?:{_ORDINAL}| ?[ap][.]?m| o'clock|(?: of)? {_MONTH})",
    )
)
_FIRST = r"\b(?=[a-z\d])"
STARTS = (
    rf"{_FIRST}(?:{_OPENINGS}|{any_of(marker.pattern for marker in PREFIXES)}(?:{_OPENINGS}|\d))"
)
