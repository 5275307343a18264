"""The length of texts: cut for display, put on one line, estimated in tokens, worth caching."""

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

ELLIPSIS = "…"
# From the first code point of the CJK blocks on; what comes before is mostly alphabetic.
_WIDE = re.compile("[\u2e80-\U0010ffff]+")
_LETTERS_PER_TOKEN = 4


def truncate_text(text: str, limit: int, ellipsis: str = ELLIPSIS) -> str:
    """Return the text, or its first `limit` characters followed by the ellipsis."""
    return text if len(text) <= limit else text[:limit] + ellipsis


def utf8_length(text: str) -> int:
    """Return how many bytes a text takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def center_start(length: int, limit: int, center: int) -> int:
    """Return where `limit` of `length` characters begin, so that a position is in their middle."""
    return max(min(center - limit // 2, length - limit), 0)


def truncate_around(text: str, limit: int, center: int) -> str:
    """Return the text, or `limit` characters around a position, with an ellipsis at each cut."""
    start = center_start(len(text), limit, center)
    before, after = ELLIPSIS if start else "", ELLIPSIS if start + limit < len(text) else ""
    return before + text[start : start + limit] + after


def single_line(text: str, limit: int | None = None) -> str:
    """Return the text on one line, truncated if a limit is given."""
    line = " ".join(text.split())
    return line if limit is None else truncate_text(line, limit)


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a model counts, without loading a tokenizer.

    A Chinese character is about one token; four letters of an alphabet are one.
    """
    wide = 0 if text.isascii() else sum(map(len, _WIDE.findall(text)))
    return wide + (len(text) - wide + _LETTERS_PER_TOKEN - 1) // _LETTERS_PER_TOKEN


def fitting_characters(text: str, tokens: int) -> int:
    """Return how many characters of a text surely fit into a number of tokens."""
    return tokens if _WIDE.search(text) else tokens * _LETTERS_PER_TOKEN


def cache_short_texts(entries: int, characters: int) -> Callable[[Function], Function]:
    """Cache the latest results of a function of texts, except if the first text is longer.

    The entries of a cache are counted, whatever their size: tens of thousands of long texts, which
    anybody may send, would take gigabytes.
    """

    def decorate(function: Function) -> Function:
        cached = lru_cache(entries)(function)

        @wraps(function)
        def call(text: str, *others: str) -> Any:
            return (cached if len(text) <= characters else function)(text, *others)

        call.cache_info = cached.cache_info  # type: ignore[attr-defined]
        return cast(Function, call)

    return decorate
