"""Truncated text, single lines and token estimates."""

import pytest

from memrecall.text_length import estimate_tokens, single_line, truncate_text


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
