"""The words of a message that say what it is about: exact ones, and telling ones."""

import re
from collections.abc import Iterable

from memrecall.agent.rules.words import DRESS, EMPTY_EN, EMPTY_ZH
from memrecall.text.keywords import extract_keywords
from memrecall.text.times import TimeSpan
from memrecall.text.tokens import stem

LONGEST_READ = 2_000
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
_EMPTY_STEMS = frozenset(map(stem, EMPTY_EN))


def undress(text: str) -> str:
    """The text without politeness and without the words that only ask to be told."""
    for pattern in DRESS:
        text = pattern.sub(" ", text)
    return " ".join(text.split()).lstrip(" ,，。.?？!！;；")


def exact_words(text: str, times: Iterable[TimeSpan] = ()) -> tuple[str, ...]:
    """What must be kept letter by letter: quotations, paths, addresses, identifiers, numbers."""
    text = _blank(text[:LONGEST_READ], times)
    quoted = [next(filter(None, match.groups())).strip() for match in _QUOTES.finditer(text)]
    found = [quote for quote in quoted if 1 < len(quote) <= _LONGEST_QUOTE]
    found += [match.group().rstrip(".,;:!?") for match in _IDENTIFIER.finditer(text)]
    return tuple(dict.fromkeys(found))


def content_words(text: str, times: Iterable[TimeSpan] = ()) -> tuple[str, ...]:
    """The telling words of a text, most telling first; none if it only points or asks."""
    bare = undress(_blank(text[:LONGEST_READ], times))
    words = [weighted.word for weighted in extract_keywords(bare, 2 * _MOST_WORDS)]
    return tuple(word for word in words if not _is_empty(word))[:_MOST_WORDS]


def _is_empty(word: str) -> bool:
    if word.isascii():
        return stem(word) in _EMPTY_STEMS
    return word in EMPTY_ZH


def _blank(text: str, times: Iterable[TimeSpan]) -> str:
    for span in times:
        end = span.position + len(span.text)
        text = text[: span.position] + " " * len(span.text) + text[end:]
    return text
