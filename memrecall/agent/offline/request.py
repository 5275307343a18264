"""Parsing of a request: its references, search terms, times and kind of question."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from memrecall.agent.offline.references import QUESTIONS_ABOUT_USER, Reference, find_references
from memrecall.agent.offline.vocabulary import (
    ASKING,
    ASSISTANCE_VERBS_ZH,
    GENERIC_WORDS_EN,
    GENERIC_WORDS_ZH,
    POLITE_PHRASES,
    QUESTION_MARKERS,
    QUESTIONS_FOR_ALL,
    REQUEST_MARKERS,
    SPEECH_VERBS_EN,
    SPEECH_VERBS_ZH,
    alternation,
    chinese_pattern,
    english_pattern,
    listed,
    matches_any,
    pattern_ignoring_case,
)
from memrecall.messages import ConversationMessage, strip_markers
from memrecall.text.keywords import extract_keywords
from memrecall.text.language import is_question
from memrecall.text.times import TimeSpan, find_times
from memrecall.text.tokens import stem, word_coverage
from memrecall.types import Language, Role

MAX_PARSED_LENGTH = 2_000
_MAX_QUOTE_LENGTH = 60
_MAX_WORDS = 16

_QUOTES = re.compile(
    r"[“\"]([^“”\"\n]+)[”\"]|[‘「『《]([^‘’「」『』《》\n]+)[’」』》]|`([^`\n]+)`|(?<!\w)'([^'\n]{2,})'(?!\w)"
)
_IDENTIFIER = re.compile(
    r"https?://\S+|~?/?(?<![\w.\-])[\w.\-]++(?:[/\\][\w.\-]++)+/?"  # URL, path
    r"|(?<![\w.\-+])[\w.\-+]++@[\w\-]++\.[\w.\-]+"  # mail
    r"|(?<![\w.])[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+|(?<!\w)v?\d+(?:\.\d+){1,3}\b"  # a_name, 1.2.3
    r"|(?<!\w)(?=[\w\-]{0,64}[A-Za-z])(?=[\w\-]{0,64}\d)[A-Za-z0-9][A-Za-z0-9\-]{2,}"
    r"|(?<![\w.:/-])\d{3,}(?![\w.:/年-])",
    re.ASCII,
)
_QUESTION_ENDINGS = ("?", "？", "吗", "呢", "吗。", "呢。")
_STATEMENT_ENDINGS = (".", "。", "!", "！", "…")
# Marks of a question that depends on the one before it: "and the dog?", "what did he pay?", 猫呢？
_ELLIPSIS = pattern_ignoring_case(
    r"^\W*(?:and|but|so|or|also)\b|\b(?:what|how) about\b",
    r"\b(?:he|him|his|she|hers?|they|them|theirs?|it|its|there|then|the other|another)\b",
    "^那|呢[？?]?$|[他她它]|那[天次里儿边家个位]|其他|另外|另一",
)
# A question after "and" may be complete: "and what is the dog called?", 那狗叫什么？
_CONNECTIVE = pattern_ignoring_case(
    r"^\W*(?:(?:and|but|so|or|also)\b[\s,]*)+(?=(?:what|who|whose|where|when|which|why|how)\b)",
    "^那(?:么|请问)?[，,]?(?=[^是天次里儿边家个位就你么]*(?:什么|谁|哪|几|多少|怎么))",
)
_GENERIC_STEMS = frozenset(map(stem, GENERIC_WORDS_EN))


def strip_polite_phrases(text: str) -> str:
    """Return the text without politeness and phrases such as "tell me"."""
    for pattern in POLITE_PHRASES:
        text = pattern.sub(" ", text)
    return " ".join(text.split()).lstrip(" ,，。.?？!！;；")


def extract_exact_terms(text: str, times: Iterable[TimeSpan] = ()) -> tuple[str, ...]:
    """Return quotations, paths, addresses, identifiers and numbers, verbatim."""
    text = _blank_times(text[:MAX_PARSED_LENGTH], times)
    quotes = [next(filter(None, match.groups())).strip() for match in _QUOTES.finditer(text)]
    terms = [quote for quote in quotes if 1 < len(quote) <= _MAX_QUOTE_LENGTH]
    terms += [match.group().rstrip(".,;:!?") for match in _IDENTIFIER.finditer(text)]
    return tuple(dict.fromkeys(terms))


def extract_content_words(text: str, times: Iterable[TimeSpan] = ()) -> tuple[str, ...]:
    """Return the words that identify a subject, most distinctive first."""
    content = strip_polite_phrases(_blank_times(text[:MAX_PARSED_LENGTH], times))
    words = [keyword.word for keyword in extract_keywords(content, 2 * _MAX_WORDS)]
    return tuple(word for word in words if not _is_generic(word))[:_MAX_WORDS]


def asks_something(text: str) -> bool:
    """Return True if a message ends in a question, also one without punctuation."""
    text = text.rstrip(' \n"”)）」')
    if text.endswith(_QUESTION_ENDINGS):
        return True
    return not text.endswith(_STATEMENT_ENDINGS) and is_question(text)


def repeats_request(text: str, request: str) -> bool:
    """Return True for a question that says nothing which the request does not say.

    It is no evidence for its own answer. A request for what was asked means the question itself.
    """
    if not asks_something(text) or matches_any(request, ASKING):
        return False
    # 护照号 and 护照号码 are the same, but do not share all words.
    text, request = (each.replace("号码", "号") for each in (text, request))
    words = extract_content_words(text)
    return bool(words) and word_coverage(words, request) >= 1


def _is_generic(word: str) -> bool:
    return stem(word) in _GENERIC_STEMS if word.isascii() else word in GENERIC_WORDS_ZH


def _blank_times(text: str, times: Iterable[TimeSpan]) -> str:
    for span in times:
        end = span.position + len(span.text)
        text = text[: span.position] + " " * len(span.text) + text[end:]
    return text


# Speaker and listener may be named between a time and its verb of speech.
_SPEECH_FOLLOWS_ZH = re.compile(
    "(?:的时候|里|那天|早上|晚上|下午|上午)?(?:我|你|您|咱们?|我们|你们|他|她|他们)?(?:们)?"
    "(?:[跟和对与同][^，。？！的]{1,6}?)?(?:还|都|就|也|曾|到底)?"
    f"(?:{alternation(SPEECH_VERBS_ZH)}|{alternation(ASSISTANCE_VERBS_ZH)})"
)
_SPEECH_EN = english_pattern(SPEECH_VERBS_EN + ",suggested,recommended,gave,sent,listed,proposed")
_CLAUSE_BREAK = re.compile(
    r"\b(?:about|that|if|whether|how|why|when|where|who)\b|[,;:]", re.IGNORECASE
)
_PRONOUN = re.compile(r"[\s,]*(?:i|we|you)\s+(?:\w+\s+)?", re.IGNORECASE)
_MAX_MESSAGE_SPAN = timedelta(days=8)
_MAX_DISTANCE = 48  # characters between an English verb of speech and its time

_VAGUE_TIMES = (
    chinese_pattern(listed("vague_times_zh")),
    english_pattern(listed("vague_times_en")),
)


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """The times that a request names.

    `message_span` limits the search to messages of that time.
    """

    spans: tuple[TimeSpan, ...] = ()
    message_span: TimeSpan | None = None


def _read_times(text: str, spans: Sequence[TimeSpan]) -> RequestTimes:
    exact = [span for span in spans if not matches_any(span.text, _VAGUE_TIMES)]
    candidates = [span for span in exact if _dates_speech(text, span)]
    # People misremember months, and two times are asked about together: neither is a filter.
    is_filter = len(candidates) == 1 and _is_short(candidates[0])
    message_span = candidates[0] if is_filter else None
    return RequestTimes(tuple(spans), message_span)


def _is_short(span: TimeSpan) -> bool:
    return bool(span.start and span.end and span.end - span.start <= _MAX_MESSAGE_SPAN)


def _dates_speech(text: str, span: TimeSpan) -> bool:
    """Return True if the time says when something was said, not when it happened."""
    end = span.position + len(span.text)
    if _SPEECH_FOLLOWS_ZH.match(text, end):
        return True
    before = text[max(span.position - _MAX_DISTANCE, 0) : span.position]
    verbs = list(_SPEECH_EN.finditer(before))
    if verbs and not _CLAUSE_BREAK.search(before, verbs[-1].end()):
        return True
    # "Last week you told me" qualifies, "in May, who said" does not.
    after = text[end : end + _MAX_DISTANCE]
    verb = _SPEECH_EN.search(after)
    return verb is not None and _PRONOUN.fullmatch(after[: verb.start()]) is not None


_EARLIER_CONVERSATION = frozenset({"past", "said", "alike"})


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
    text: str  # the last message of the user
    question: str  # the same without polite phrases
    references: tuple[Reference, ...]
    words: tuple[str, ...]  # its content words, most distinctive first
    exact_terms: tuple[str, ...]  # its quotations, paths, identifiers, numbers
    times: RequestTimes
    is_about_user: bool  # a question about the user, whatever the conversation is about
    asks_for_all: bool  # a count, or a list of all of something
    earlier: tuple[WindowMessage, ...]  # the messages before it, latest first

    @property
    def search_terms(self) -> tuple[str, ...]:
        """The exact terms and the content words."""
        return (*self.exact_terms, *self.words)

    @property
    def is_bare(self) -> bool:
        """Whether it points at something without describing it."""
        return bool(self.references) and not self.search_terms

    @property
    def is_empty(self) -> bool:
        """Whether it refers to nothing and names nothing, as a greeting does."""
        return not (self.references or self.search_terms or self.times.spans)

    @property
    def points_back(self) -> bool:
        """Whether it refers to an earlier conversation."""
        return any(reference.kind in _EARLIER_CONVERSATION for reference in self.references)

    @property
    def is_topical(self) -> bool:
        """Whether to search by the whole conversation instead of this message alone."""
        is_standalone = (self.points_back or self.is_about_user) and not self.is_reply
        is_complete = is_standalone or (is_question(self.text) and not self.is_elliptic)
        return bool(self.earlier) and (self.is_bare or not is_complete)

    @property
    def is_elliptic(self) -> bool:
        """Whether it leaves out what was named before it."""
        return not self.search_terms or _is_elliptic(self.question)

    @property
    def is_reply(self) -> bool:
        """Whether it only answers a question: "last time I …" may be a statement."""
        if not self.earlier or self.earlier[0].role == "user":
            return False
        if matches_any(self.text, (*QUESTION_MARKERS, *REQUEST_MARKERS)):
            return False
        return any(mark in self.earlier[0].text for mark in "?？")

    @property
    def context_words(self) -> tuple[str, ...]:
        """The content words of the earlier messages, latest message first."""
        return tuple(dict.fromkeys(word for message in self.earlier for word in message.words))


def _is_elliptic(question: str) -> bool:
    return _ELLIPSIS.search(_CONNECTIVE.sub("", question)) is not None


def parse_request(
    text: str,
    earlier: Sequence[ConversationMessage],
    now: datetime,
    zone: ZoneInfo,
    language: Language,
) -> ParsedRequest:
    """Parse a message that is asked about, with the messages before it, oldest first."""
    text = strip_markers(text[:MAX_PARSED_LENGTH])
    spans = find_times(text, now, zone)
    words, exact_terms = extract_content_words(text, spans), extract_exact_terms(text, spans)
    references = find_references(text)
    return ParsedRequest(
        language=language,
        text=text,
        question=strip_polite_phrases(text),
        references=references,
        words=words,
        exact_terms=exact_terms,
        times=_read_times(text, spans),
        is_about_user=matches_any(text, QUESTIONS_ABOUT_USER),
        asks_for_all=matches_any(text, QUESTIONS_FOR_ALL),
        earlier=tuple(
            WindowMessage(message.role, content, extract_content_words(content))
            for message in reversed(earlier)
            if message.role in (Role.USER, Role.ASSISTANT, Role.OTHER)
            and (content := strip_markers(message.text[:MAX_PARSED_LENGTH]))
        ),
    )
