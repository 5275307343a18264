"""The time words of English, as tables; the text was made lower case before."""

from datetime import datetime

from memrecall.text.times import holidays as feasts
from memrecall.text.times.grammar import Boundary, Marker, Rule, Standing, any_of, every
from memrecall.text.times.ranges import (
    Count,
    Range,
    Unit,
    ago,
    before_current,
    floor,
    half_ago,
    later,
    rolling,
    whole,
)
from memrecall.text.times.recurrence import (
    SEASONS,
    Cycle,
    any_part,
    calendar_part,
    clock,
    day_of_month,
    day_part,
    day_span,
    last,
    month,
    month_day,
    quarter,
    season,
    this,
    upcoming,
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
_UNITS: dict[str, Unit] = {
    "minute": "minute",
    "min": "minute",
    "hour": "hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "year",
}
_UNIT = f"({'|'.join(_UNITS)})s?"


def _count(word: str) -> Count:
    return _COUNTS[word] if word in _COUNTS else Count(int(word), int(word))


def _ago(now: datetime, count: str, unit: str) -> Range:
    return ago(now, _count(count), _UNITS[unit])


def _later(now: datetime, count: str, unit: str) -> Range:
    return later(now, _count(count), _UNITS[unit])


def _rolling(now: datetime, count: str, unit: str) -> Range:
    return rolling(now, _count(count), _UNITS[unit])


COUNTED = (
    Rule(f"(?:last|past|previous) {_COUNT} {_UNIT}", _rolling),
    Rule(
        "past (hour|day|week|month|year)|last (hour)",
        lambda now, unit, hour: _rolling(now, "one", unit or hour),
    ),
    Rule(f"{_COUNT} {_UNIT} ago", _ago),
    Rule(f"{_COUNT} {_UNIT} from now", _later),
    Rule("half an? (hour|day|month|year) ago", lambda now, unit: half_ago(now, _UNITS[unit])),
    Rule("other day", lambda now: before_current(now, "day", 7)),
    Rule("recently|lately", lambda now: rolling(now, Count(7, 7), "day")),
    Rule("just now|a moment ago|moments ago", lambda now: rolling(now, Count(2, 2), "day")),
)

COUNT_STARTS = any_of(
    (
        f"{_COUNT} {any_of(_UNITS)}",
        "half an? ",
        "other day",
        "recently",
        "lately",
        "just now",
        "moments",
    )
)


_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# Without sat and sun, which are words of their own.
_SHORT_WEEKDAYS = {
    "mon": 0,
    "tue": 1,
    "tues": 1,
    "wed": 2,
    "thu": 3,
    "thur": 3,
    "thurs": 3,
    "fri": 4,
}
_MONTHS = {
    "january": 1,
    "february": 2,
    "march": 3,
    "april": 4,
    "may": 5,
    "june": 6,
    "july": 7,
    "august": 8,
    "september": 9,
    "october": 10,
    "november": 11,
    "december": 12,
}
_SHORT_MONTHS = {name[:3]: number for name, number in _MONTHS.items() if len(name) > 3}
_SHORT_MONTHS["sept"] = 9
_MONTH_NUMBERS = _MONTHS | _SHORT_MONTHS
# Words of other meanings, which need company to be months.
_SHY_MONTHS = ("may", "march")
_DAY_PARTS = ("morning", "noon", "afternoon", "evening", "night", "midnight")
_SEASONS = {name: season(name) for name in SEASONS} | {"fall": season("autumn")}
_CYCLES: dict[str, Cycle] = (
    {name: weekday(number) for number, name in enumerate(_WEEKDAYS)}
    | {name: weekday(number) for name, number in _SHORT_WEEKDAYS.items()}
    | {name: month(number) for name, number in _MONTH_NUMBERS.items()}
    | _SEASONS
    | feasts.ENGLISH
    | {"weekend": weekend()}
)
_OFFSETS = {"last": -1, "previous": -1, "this": 0, "current": 0, "next": 1, "coming": 1}
_DAY_OFFSETS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_NEARBY_UNIT = any_of(("hour", "day", "week", "month", "year", *_DAY_PARTS))
_PARTS = {"beginning": "start", "start": "start", "middle": "middle", "end": "end"}

_MONTH = any_of(sorted(_MONTH_NUMBERS, key=len, reverse=True)) + "[.]?"
_SURE_MONTH = any_of(name for name in _MONTHS if name not in _SHY_MONTHS)
_SHY_MONTH = any_of(_SHY_MONTHS)
_NAME = any_of(sorted(_CYCLES, key=len, reverse=True))
_YEAR = r"(?:19|20)\d\d"
_ORDINAL = "(?:st|nd|rd|th)"
# March 3 miles, in 2000 words: a number before a noun counts things.
_NOT_COUNTING = (
    "(?! ?%| (?:items?|words?|lines?|people|users?|times|dollars?|tokens?|files?|rows?|steps?"
    "|points?|bytes?|ms|px|km|miles?|hours?|days?|weeks?|percent)(?![a-z]))"
)
_NOT_DECIMAL = r"(?![/\d]|[.,:]\d)"
# "This may be": a month only before what no verb can be.
_SEEN_AS_MONTH = r"(?=$|\s?[^\sa-z]| (?:i|we|you|he|she|they|the|my|our|and|for|at|with)(?![a-z]))"


def _cycle(_now: datetime, name: str) -> Cycle:
    # The words may stand on two lines or have two blanks between them.
    return _CYCLES[" ".join(name.split())]


def _pointed(now: datetime, pointer: str, name: str) -> Range:
    cycle, word = _cycle(now, name), pointer.split()[-1]
    if word == "this":
        return this(cycle, now)
    if word in ("next", "coming"):
        # People say "next weekend" for the one after the one to come.
        soon = whole(now, "week" if (word, name) == ("next", "weekend") else "day").end
        return upcoming(cycle, soon)
    return last(cycle, now)


def _nearby(now: datetime, pointer: str, unit: Unit) -> Range:
    return whole(now, unit, _OFFSETS[pointer])


def _nearby_day(now: datetime, word: str) -> Range:
    return whole(now, "day", _DAY_OFFSETS[word])


def _part_of_today(now: datetime, part: str) -> Range:
    return day_part(part).at(whole(now, "day"))


def _part_of_calendar(_now: datetime, part: str, unit: Unit) -> Cycle:
    return calendar_part(_PARTS[part], unit)


def _month_number(name: str) -> int:
    return _MONTH_NUMBERS[name.rstrip(".")]


def _month_day(_now: datetime, name: str, day: str, final: str | None = None) -> Cycle:
    number = _month_number(name)
    return day_span(number, int(day), int(final)) if final else month_day(number, int(day))


def _day_month(now: datetime, day: str, name: str) -> Cycle:
    return _month_day(now, name, day)


def _days_month(now: datetime, day: str, final: str, name: str) -> Cycle:
    return _month_day(now, name, day, final)


def _month_year(now: datetime, name: str, year: str) -> Range:
    return month(_month_number(name)).at(_year(now, year))


def _year(now: datetime, digits: str) -> Range:
    return whole(floor(now, "year").replace(year=int(digits)), "year")


def _clock(_now: datetime, hour: str, minute: str | None, half: str) -> Cycle:
    if not 1 <= int(hour) <= 12:
        raise ValueError(f"{hour} {half}.m. is no time of day")
    number = int(hour) % 12 + (12 if half == "p" else 0)
    return clock(number, int(minute) if minute else None, exact=True)


_RECURRING = (
    Rule(
        r"(?:every|each)(?: (?:other|single|last|first|second|third|\d\d?(?:st|nd|rd|th)?))?", every
    ),
    Rule(f"(?:{any_of(_WEEKDAYS)}|weekend)s", every),
)
_NEARBY = (
    Rule("day before yesterday", lambda now: whole(now, "day", -2)),
    Rule("day after tomorrow", lambda now: whole(now, "day", 2)),
    Rule("(week|month|year) before last", lambda now, unit: whole(now, unit, -2)),
    Rule(f"({'|'.join(_DAY_OFFSETS)})", _nearby_day),
    Rule("last night", lambda now: day_part("night").at(whole(now, "day", -1))),
    Rule("night before last", lambda now: day_part("night").at(whole(now, "day", -2))),
    Rule("tonight", lambda now: day_part("night").at(whole(now, "day"))),
    Rule("this (morning|afternoon|evening)", _part_of_today),
    Rule("(last|previous|this|current|next|coming) (week|month|year)", _nearby),
    Rule(f"this ({_SHY_MONTH}){_SEEN_AS_MONTH}", lambda now, name: this(_CYCLES[name], now)),
    Rule(
        f"(last|past|this past|previous|this coming|coming|this(?! {_SHY_MONTH})|next) ({_NAME})",
        _pointed,
    ),
)
_CALENDAR = (
    Rule(f"({_MONTH}),?(?: of)? ({_YEAR})", _month_year),
    Rule(
        rf"({_MONTH}) (\d\d?){_ORDINAL}?(?: ?(?:-|to) ?(\d\d?){_ORDINAL}?)?"
        rf"(?![a-z]){_NOT_DECIMAL}{_NOT_COUNTING}",
        _month_day,
    ),
    Rule(
        rf"(?<!\d[.])(\d\d?){_ORDINAL}?(?: ?[-–] ?| to (?:the )?|(?<=between\s\d) and (?:the )?"
        rf"|(?<=between\s\d\d) and (?:the )?)(\d\d?){_ORDINAL}?(?: of)?"
        rf" ({_SURE_MONTH}|{any_of(_SHORT_MONTHS)}[.]?|{_SHY_MONTH}(?=,? {_YEAR}|$|[.,;!?]))",
        _days_month,
    ),
    Rule(rf"(\d\d?){_ORDINAL}(?: of)? ({_MONTH})", _day_month),
    Rule(rf"(?<!\d[.])(\d\d?) ({_SURE_MONTH}|{any_of(_SHORT_MONTHS)}[.]?)", _day_month),
    Rule(rf"(\d\d?) ({_SHY_MONTH})(?=,? {_YEAR}|$|[.,;!?]| to \d)", _day_month),
    Rule(
        rf"(?<=on\sthe\s)(\d\d?){_ORDINAL}(?=$|\s?[^\sa-z])",
        lambda _now, day: day_of_month(int(day)),
    ),
    Rule(rf"(?<=on\s)({any_of(_SHORT_WEEKDAYS)})", _cycle),
    Rule(f"({any_of(_WEEKDAYS)}|weekend|{any_of(feasts.ENGLISH)})", _cycle),
    Rule(f"({_SURE_MONTH})", _cycle),
    Rule(f"({_SHY_MONTH})(?= of {any_of(_OFFSETS)} year)", _cycle),
    Rule(f"({_SHY_MONTH})", _cycle, Standing.SHY),
    Rule(f"({any_of(_SHORT_MONTHS)})(?![(])", _cycle, Standing.LEANING),
    Rule(f"({any_of(_SEASONS)})", _cycle, Standing.LEANING),
    Rule("q([1-4])", lambda _now, number: quarter(int(number)), Standing.LEANING),
    Rule(
        f"({_YEAR})(?!(?<=0)'s|[\u4e00-\u9fff]|-){_NOT_DECIMAL}{_NOT_COUNTING}",
        _year,
        Standing.LEANING,
    ),
    Rule("(beginning|start|middle|end) of the (month|year)", _part_of_calendar),
    Rule(
        "(beginning|start|middle|end)(?= of)",
        lambda _now, part: any_part(_PARTS[part]),
        Standing.BOUND,
    ),
    Rule("(early|mid|late)", lambda _now, part: any_part(part), Standing.BOUND),
)
_TIMES_OF_DAY = (
    Rule(f"({'|'.join(_DAY_PARTS)})", lambda _now, name: day_part(name), Standing.BOUND),
    Rule(r"(\d\d?)(?::([0-5]\d))? ?([ap])[.]?m[.]?", _clock, Standing.BOUND),
    Rule(r"(\d\d?) o'clock", lambda _now, hour: clock(int(hour)), Standing.BOUND),
)
RULES = tuple(
    rule._replace(pattern=f"(?:{rule.pattern})(?![a-z0-9])")
    for rule in (*_RECURRING, *COUNTED, *_NEARBY, *_CALENDAR, *_TIMES_OF_DAY)
)

LEADS = tuple(
    Marker(f"(?:{marker.pattern})(?: the)? ", marker.edge, marker.licenses)
    for marker in (
        Marker("before|prior to", Boundary.BEFORE, licenses=True),
        Marker("after", Boundary.AFTER, licenses=True),
        Marker("(?:ever )?since|starting(?: in| on| from)?", Boundary.SINCE, licenses=True),
        Marker("until|till|up to|up until", Boundary.UNTIL, licenses=True),
        Marker("by", Boundary.UNTIL),
        Marker("from|between", Boundary.BETWEEN, licenses=True),
        Marker("in|during|throughout|within|of", Boundary.WITHIN, licenses=True),
        Marker("on|at|over", Boundary.WITHIN),
    )
)
TAILS = (
    Marker(" (?:onwards?|to date)(?![a-z])| (?:until|till|to|up to) now(?![a-z])", Boundary.SINCE),
)

# How English times begin: a quick look that rules out most of a text before RULES are tried.
_OPENINGS = any_of(
    (
        *sorted({name.split()[0].split("'")[0] for name in _CYCLES}),
        *_DAY_OFFSETS,
        *_DAY_PARTS,
        "tonight|every|each|early|mid|late|q[1-4]",
        "day (?:before|after)|(?:night|week|month|year) before",
        f"(?:{any_of(_OFFSETS)}|past) (?:{_NAME}|{COUNT_STARTS}|{_NEARBY_UNIT}|past|coming)",
        f"{any_of(_PARTS)} of ",
        COUNT_STARTS,
        f"{_YEAR} {_MONTH}",
        rf"\d\d?(?: ?[-–] ?| to (?:the )?)\d\d?{_ORDINAL}?(?: of)? {_MONTH}",
        rf"\d\d?(?:{_ORDINAL}| ?[ap][.]?m| o'clock|(?: of)? {_MONTH})",
    )
)
_FIRST = r"\b(?=[a-z\d])"
STARTS = rf"{_FIRST}(?:{_OPENINGS}|{any_of(marker.pattern for marker in LEADS)}(?:{_OPENINGS}|\d))"
