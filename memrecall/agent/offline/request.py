"""Reading a request: what its last user message refers to, and by which words to look for it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from memrecall.agent.offline.findings import covered
from memrecall.agent.offline.references import QUESTIONS_ABOUT_USER, Reference, find_references
from memrecall.agent.offline.vocabulary import (
    COUNT_QUESTIONS,
    GENERIC_WORDS_EN,
    GENERIC_WORDS_ZH,
    MEMORY_TYPE_HINTS,
    POLITE_PHRASES,
    PREFERENCE_QUESTIONS,
    QUESTION_MARKERS,
    REQUEST_MARKERS,
    SPEECH_VERBS_EN,
    TIME_QUESTIONS,
    alternation,
    chinese_pattern,
    english_pattern,
    pattern_ignoring_case,
)
from memrecall.model.prompts import Language
from memrecall.search.request import Mode
from memrecall.text.keywords import extract_keywords
from memrecall.text.language import language_of
from memrecall.text.times import TimeSpan, find_times
from memrecall.text.tokens import stem

MAX_PARSED_LENGTH = 2_000
_LONGEST_QUOTE = 60
_MOST_WORDS = 16

_QUOTES = re.compile(
    r"[“\"]([^“”\"\n]+)[”\"]|[‘「『《]([^‘’「」『』《》\n]+)[’」』》]|`([^`\n]+)`|(?<!\w)'([^'\n]{2,})'(?!\w)"
)
_IDENTIFIER = re.compile(
    r"https?://\S+|~?/?[\w.\-]+(?:[/\\][\w.\-]+)+/?|[\w.\-+]+@[\w\-]+\.[\w.\-]+"  # URL, path, mail
    r"|(?<![\w.])[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+|(?<!\w)v?\d+(?:\.\d+){1,3}\b"  # a_name, 1.2.3
    r"|(?<!\w)(?=[\w\-]*[A-Za-z])(?=[\w\-]*\d)[A-Za-z0-9][A-Za-z0-9\-]{2,}|(?<![\w.:/-])\d{3,}(?![\w.:/年-])",
    re.ASCII,
)
_EMPTY_STEMS = frozenset(map(stem, GENERIC_WORDS_EN))


def strip_polite_phrases(text: str) -> str:
    """The text without politeness and without the words that only ask to be told."""
    for pattern in POLITE_PHRASES:
        text = pattern.sub(" ", text)
    return " ".join(text.split()).lstrip(" ,，。.?？!！;；")


def extract_exact_terms(text: str, times: Iterable[TimeSpan] = ()) -> tuple[str, ...]:
    """What must be kept letter by letter: quotations, paths, addresses, identifiers, numbers."""
    text = _blank(text[:MAX_PARSED_LENGTH], times)
    quoted = [next(filter(None, match.groups())).strip() for match in _QUOTES.finditer(text)]
    found = [quote for quote in quoted if 1 < len(quote) <= _LONGEST_QUOTE]
    found += [match.group().rstrip(".,;:!?") for match in _IDENTIFIER.finditer(text)]
    return tuple(dict.fromkeys(found))


def extract_content_words(text: str, times: Iterable[TimeSpan] = ()) -> tuple[str, ...]:
    """The telling words of a text, most telling first; none if it only points or asks."""
    bare = strip_polite_phrases(_blank(text[:MAX_PARSED_LENGTH], times))
    words = [weighted.word for weighted in extract_keywords(bare, 2 * _MOST_WORDS)]
    return tuple(word for word in words if not _is_empty(word))[:_MOST_WORDS]


def _is_empty(word: str) -> bool:
    if word.isascii():
        return stem(word) in _EMPTY_STEMS
    return word in GENERIC_WORDS_ZH


def _blank(text: str, times: Iterable[TimeSpan]) -> str:
    for span in times:
        end = span.position + len(span.text)
        text = text[: span.position] + " " * len(span.text) + text[end:]
    return text


Whose = Literal["user", "assistant"]

_PAST_ZH = (
    "(?:之前|以前|上次|上回|昨天|刚才|刚刚|那天|曾经|还|都|也|当时|最近|跟我|和我|对我|向我"
    "|[^，。？！你我]{0,6}?)"
)
_PAST_EN = "(?:'ve|'d| have| had| did| just| once| already| ever| also| previously)*"
_TO_YOU = "(?<![跟和对向与给问])"  # 跟你说: it is not you who speaks
_ASSISTANT = (
    re.compile(rf"{_TO_YOU}[你您]{_PAST_ZH}(?:{alternation(SERVING_ZH)})"),
    re.compile(rf"{_TO_YOU}[你您]{_PAST_ZH}(?:{alternation(SAYING_ZH)})(?:过|的|了|到)"),
    re.compile("你的(?:建议|推荐|回答|回复|答复)"),
    pattern_ignoring_case(
        rf"\byou{_PAST_EN}\s+(?:{alternation(SAYING_EN)}|{alternation(SERVING_EN)})\b",
        r"\byour\s+(?:\w+\s+)?(?:suggestion|advice|recommendation|answer|reply|proposal)s?\b",
    ),
)
_USER = (
    re.compile(rf"我(?:[跟和对向]你)?{_PAST_ZH}(?:{alternation(SAYING_ZH)})(?:过|的|了|到)"),
    re.compile("我(?:最|很|比较|不|都|平时|一直|一般)*(?:喜欢|讨厌|爱吃|爱喝|爱看|偏好|习惯|爱)"),
    pattern_ignoring_case(
        rf"\bi{_PAST_EN}\s+(?:{alternation(SAYING_EN)})\b",
        r"\b(?:do|did|what|which)\s+i\s+(?:\w+\s+)?(?:like|prefer|hate|dislike|love)\b",
        r"\bmy\s+(?:\w+\s+)?(?:favou?rite|preference|preferred|taste)",
    ),
)
_TOGETHER = re.compile(r"我们|咱们?|\bwe\b|\bour\b|\bus\b", re.IGNORECASE)


def whose_words(text: str) -> Whose | None:
    """The role whose messages are asked for; None if either may have said it."""
    if any(pattern.search(text) for pattern in _ASSISTANT):
        return "assistant"
    if _TOGETHER.search(text):
        return None
    return "user" if any(pattern.search(text) for pattern in _USER) else None


# Between a time and its verb of saying may stand who said it and to whom.
_SAYING_NEXT = re.compile(
    "(?:的时候|里|那天|早上|晚上|下午|上午)?(?:我|你|您|咱们?|我们|你们|他|她|他们)?(?:们)?"
    "(?:[跟和对与同][^，。？！的]{1,6}?)?(?:还|都|就|也|曾|到底)?"
    f"(?:{alternation(SAYING_ZH)}|{alternation(SERVING_ZH)})"
)
_SAYING_EN = english_pattern(SPEECH_VERBS_EN + ",suggested,recommended,gave,sent,listed,proposed")
_PARTED = re.compile(r"\b(?:about|that|if|whether|how|why|when|where|who)\b|[,;:]", re.IGNORECASE)
_WE_DID = re.compile(r"[\s,]*(?:i|we|you)\s+(?:\w+\s+)?", re.IGNORECASE)
_SHORT = timedelta(days=8)
_NEAR = 48  # characters between an English verb of saying and its time

_Pair = tuple[re.Pattern[str], re.Pattern[str]]
# Days that rough words mean; None: no time at all.
_VAGUE: tuple[tuple[int | None, _Pair], ...] = (
    (
        None,
        (
            chinese_pattern("一直,习惯,总是,向来,平时,通常"),
            english_pattern("always,usually,generally,all along"),
        ),
    ),
    (3, (chinese_pattern("刚才,刚刚,方才"), english_pattern("just now,a moment ago,a minute ago"))),
    (
        7,
        (
            chinese_pattern("最近,近来,这几天,前几天,前两天"),
            english_pattern("recently,lately,the other day,other day,these days"),
        ),
    ),
    (
        30,
        (
            chinese_pattern("上次,上回,上一次,之前,先前"),
            english_pattern("last time,previously,earlier,before"),
        ),
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


Asks = Literal["fact", "count", "when", "preference"]
_FAR = frozenset({"past", "said", "alike"})


@dataclass(frozen=True, slots=True)
class WindowMessage:
    """A message of the window."""

    role: str
    text: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request as the rules understand it."""

    language: Language
    text: str  # the asked message
    question: str  # the same without politeness
    references: tuple[Reference, ...]
    words: tuple[str, ...]  # content words of the asked message, most telling first
    exact: tuple[str, ...]  # quotations, paths, identifiers, numbers
    timing: Timing
    whose: Whose | None
    personal: bool  # asks for a fact about the user, whatever was talked about before
    asks: Asks
    mode: Mode
    leaning: str | None  # the type of memory that is rather meant
    earlier: tuple[WindowMessage, ...]  # the messages before it, latest first

    @property
    def bare(self) -> bool:
        """Whether it points at something and names nothing."""
        return bool(self.references) and not self.words and not self.exact

    @property
    def empty(self) -> bool:
        """Whether it neither points nor names: a greeting, a nod."""
        return not (self.references or self.words or self.exact or self.timing.spans)

    @property
    def points_back(self) -> bool:
        """Whether it points at an earlier conversation, not only at this one."""
        return any(reference.to in _FAR for reference in self.references)

    @property
    def topical(self) -> bool:
        """Whether it is the conversation that is to be searched by, not one question."""
        alone = (self.points_back or self.personal) and not self.replies
        return bool(self.earlier) and (self.bare or not alone)

    @property
    def replies(self) -> bool:
        """Whether it answers a question and asks nothing: "last time I …" only tells something."""
        if not self.earlier or self.earlier[0].role == "user":
            return False
        if any(pattern.search(self.text) for pattern in (*QUESTION_MARKERS, *REQUEST_MARKERS)):
            return False
        return any(mark in self.earlier[0].text for mark in "?？")

    @property
    def context_words(self) -> tuple[str, ...]:
        """Content words of the earlier messages, the latest message first."""
        return tuple(dict.fromkeys(word for line in self.earlier for word in line.words))


def parse_request(
    messages: Sequence[Mapping[str, Any]], now: datetime, zone: ZoneInfo
) -> ParsedRequest:
    """Read the window's messages; the last one of the user is what is asked."""
    place = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
    asked = str(messages[place].get("text", "")) if messages else ""
    text = asked[:MAX_PARSED_LENGTH]
    spans = find_times(text, now, zone)
    words, exact = extract_content_words(text, spans), extract_exact_terms(text, spans)
    references = find_references(text)
    asking = bool(references) or any(pattern.search(text) for pattern in QUESTION_MARKERS)
    return ParsedRequest(
        language=language_of(asked),
        text=text,
        question=strip_polite_phrases(text),
        references=references,
        words=words,
        exact=exact,
        timing=read_timing(text, spans),
        # Who tells that he likes something asks for nobody's words.
        whose=whose_words(text) if asking else None,
        personal=any(pattern.search(text) for pattern in QUESTIONS_ABOUT_USER),
        asks=_asks(text),
        # A question around an exact word is found better by both sides together.
        mode="keyword" if exact and covered(words, " ".join(exact)) >= 1 else "hybrid",
        leaning=_leaning(text),
        earlier=_earlier(messages[:place] if place >= 0 else messages[:-1]),
    )


def _earlier(messages: Sequence[Mapping[str, Any]]) -> tuple[WindowMessage, ...]:
    kept = [m for m in reversed(messages) if m.get("role") in ("user", "assistant", "other")]
    return tuple(
        WindowMessage(str(m["role"]), text, extract_content_words(text))
        for m in kept
        if (text := str(m.get("text", ""))[:MAX_PARSED_LENGTH])
    )


def _asks(text: str) -> Asks:
    tables: tuple[tuple[Asks, Any], ...] = (
        ("count", COUNT_QUESTIONS),
        ("when", TIME_QUESTIONS),
        ("preference", PREFERENCE_QUESTIONS),
    )
    for name, pair in tables:
        if any(pattern.search(text) for pattern in pair):
            return name
    return "fact"


def _leaning(text: str) -> str | None:
    for name, pair in MEMORY_TYPE_HINTS.items():
        if any(pattern.search(text) for pattern in pair):
            return name
    return None
