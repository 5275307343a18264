"""Times of a request: when it was said, when it happened, or only roughly how long ago."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from memrecall.agent.rules.words import SAYING_EN, SAYING_ZH, SERVING_ZH, any_of, chinese, english
from memrecall.text.times import TimeSpan

# Between a time and its verb of saying may stand who said it and to whom.
_SAYING_NEXT = re.compile(
    "(?:的时候|里|那天|早上|晚上|下午|上午)?(?:我|你|您|咱们?|我们|你们|他|她|他们)?(?:们)?"
    "(?:[跟和对与同][^，。？！的]{1,6}?)?(?:还|都|就|也|曾|到底)?"
    f"(?:{any_of(SAYING_ZH)}|{any_of(SERVING_ZH)})"
)
_SAYING_EN = english(SAYING_EN + ",suggested,recommended,gave,sent,listed,proposed")
_PARTED = re.compile(r"\b(?:about|that|if|whether|how|why|when|where|who)\b|[,;:]", re.IGNORECASE)
_WE_DID = re.compile(r"[\s,]*(?:i|we|you)\s+(?:\w+\s+)?", re.IGNORECASE)
_SHORT = timedelta(days=8)
_NEAR = 48  # characters between an English verb of saying and its time

_Pair = tuple[re.Pattern[str], re.Pattern[str]]
# Days that rough words mean; None: no time at all.
_VAGUE: tuple[tuple[int | None, _Pair], ...] = (
    (
        None,
        (chinese("一直,习惯,总是,向来,平时,通常"), english("always,usually,generally,all along")),
    ),
    (3, (chinese("刚才,刚刚,方才"), english("just now,a moment ago,a minute ago"))),
    (
        7,
        (
            chinese("最近,近来,这几天,前几天,前两天"),
            english("recently,lately,the other day,other day,these days"),
        ),
    ),
    (
        30,
        (chinese("上次,上回,上一次,之前,先前"), english("last time,previously,earlier,before")),
    ),
)


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a request. `said` bounds the messages; `recency` is days, as a leaning only."""

    spans: tuple[TimeSpan, ...] = ()
    said: TimeSpan | None = None
    recency: int | None = None


def read_timing(text: str, spans: Sequence[TimeSpan]) -> Timing:
    """Tell a time of saying from a time of the thing itself."""
    said = [span for span in spans if not is_vague(span) and _belongs_to_saying(text, span)]
    # Of a month people are not sure, and of two times they ask together: both only lean.
    sure = len(said) == 1 and _is_short(said[0])
    return Timing(tuple(spans), said[0] if sure else None, _recency(text))


def _is_short(span: TimeSpan) -> bool:
    return bool(span.start and span.end and span.end - span.start <= _SHORT)


def is_vague(span: TimeSpan) -> bool:
    """Whether the words name no stretch of their own: recently, 刚才."""
    return any(pattern.search(span.text) for _, pair in _VAGUE for pattern in pair)


def _belongs_to_saying(text: str, span: TimeSpan) -> bool:
    end = span.position + len(span.text)
    if _SAYING_NEXT.match(text, end):
        return True
    before = text[max(span.position - _NEAR, 0) : span.position]
    verbs = list(_SAYING_EN.finditer(before))
    if verbs and not _PARTED.search(before, verbs[-1].end()):
        return True
    # "Last week you told me"; but not "in May, who said".
    after = text[end : end + _NEAR]
    verb = _SAYING_EN.search(after)
    return verb is not None and _WE_DID.fullmatch(after[: verb.start()]) is not None


def _recency(text: str) -> int | None:
    for days, pair in _VAGUE:
        if any(pattern.search(text) for pattern in pair):
            return days
    return None
