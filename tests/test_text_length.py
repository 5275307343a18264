"""Truncated text, single lines, token estimates and caches of short texts."""

from typing import Any

import pytest

from memrecall.search.ranking.features import _speaker_key
from memrecall.text.tokens import _compose, _read_chunk, stem
from memrecall.text_length import cache_short_texts, estimate_tokens, single_line, truncate_text


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [("abc", 3, "abc"), ("abcd", 3, "abc…"), ("", 0, ""), ("喝茶吗", 2, "喝茶…")],
)
def test_truncated_text_has_an_ellipsis_only_if_something_is_missing(
    text: str, limit: int, expected: str
) -> None:
    assert truncate_text(text, limit) == expected


def test_the_ellipsis_can_be_chosen() -> None:
    assert truncate_text("abcd", 3, "...") == "abc..."


def test_single_line_joins_lines_and_truncates() -> None:
    assert single_line(" a\n\tb  c ") == "a b c"
    assert single_line("a\nb c", 3) == "a b…"


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("tea", 1), ("green tea", 3), ("喝茶吗", 3)])
def test_token_estimate_counts_chinese_characters_and_quarters_of_letters(
    text: str, tokens: int
) -> None:
    assert estimate_tokens(text) == tokens


def test_long_texts_are_not_cached() -> None:
    calls: list[str] = []

    @cache_short_texts(entries=2, characters=3)
    def reverse(text: str) -> str:
        """Return the text from its end."""
        calls.append(text)
        return text[::-1]

    for text in ("abc", "abc", "abcd", "abcd", "茶"):
        assert reverse(text) == text[::-1]
    assert calls == ["abc", "abcd", "abcd", "茶"]
    assert reverse.cache_info().currsize == 2  # type: ignore[attr-defined]
    assert reverse.__doc__ == "Return the text from its end."


def test_caches_of_text_functions_keep_no_long_text() -> None:
    long = "x" * 20_000
    functions: list[Any] = [stem, _read_chunk, _compose, _speaker_key]
    for function in functions:
        before = function.cache_info().currsize
        function(long)
        assert function.cache_info().currsize == before
        assert function.cache_info().maxsize <= 50_000
