"""Normalization of width, composition, traditional characters and accents."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.text.tokens import (
    entity_key,
    normalize,
    normalize_caseless,
    normalize_with_offsets,
    strip_accents,
)
from tests.cases import check_each, read_rows

# These become combining marks that join the previous character only in the next pass.
_LATE_MARKS = "\u0f73\u0f75\u0f81\uff9e\uff9f"
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=_LATE_MARKS))


def test_spellings_are_normalised() -> None:
    def check(case: tuple[str, str]) -> None:
        text, expected = case
        assert normalize(text) == expected

    check_each(read_rows("spellings", "spellings"), check)


def test_half_width_voiced_kana_is_composed() -> None:
    assert normalize("ｶﾞ") == "ガ"


OFFSETS: list[tuple[str, list[int] | None]] = [
    ("abc", None),
    ("數據庫", None),
    ("Ａ，Ｂ", None),
    ("a①b", [0, 1, 2]),
    ("㎏x", [0, 0, 1]),
    ("e\u0301x", [0, 2]),
]


def test_offsets_refer_to_the_original_text() -> None:
    def check(case: tuple[str, list[int] | None]) -> None:
        text, offsets = case
        assert normalize_with_offsets(text)[1] == offsets

    check_each(OFFSETS, check)


@pytest.mark.parametrize(
    ("word", "bare"),
    [
        ("café", "cafe"),
        ("Müller", "Muller"),
        ("naïve", "naive"),
        ("plain", "plain"),
        ("北京", "北京"),
    ],
)
def test_strip_accents(word: str, bare: str) -> None:
    assert strip_accents(word) == bare


@settings(deadline=None)
@given(TEXTS)
def test_normalising_is_idempotent(text: str) -> None:
    normalized = normalize(text)
    assert normalize(normalized) == normalized


@settings(deadline=None)
@given(TEXTS)
def test_offsets_are_ordered_and_within_the_text(text: str) -> None:
    plain, offsets = normalize_with_offsets(text)
    if offsets is None:
        assert len(plain) == len(text)
    else:
        assert len(offsets) == len(plain)
        assert offsets == sorted(offsets)
        assert all(0 <= offset < len(text) for offset in offsets)


def test_comparison_ignores_width_script_and_case() -> None:
    assert normalize_caseless(" ＡＮＮ說 ") == normalize_caseless("ann说") == "ann说"


def test_entity_key_ignores_width_case_and_spaces_only() -> None:
    assert entity_key(" Ann  Ｌee") == entity_key("ANN LEE") == "ann lee"
    assert len({entity_key(name) for name in ("C", "C#", "C++", "José", "Jose", "Dr. José")}) == 6
    assert len(entity_key("a" * 1_000)) == 255
