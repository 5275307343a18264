"""Search terms of a text: atoms with a position, extras without one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.text.tokens import MAX_EXTRA_LENGTH, Analysis, analyze, is_cjk, stem
from tests.cases import check_each, read_rows

_PIECES = st.sampled_from(
    [
        *("北京", "數據庫", "getUserName", "db_config_001", "C++", "v1.2.3", "foo@bar.com"),
        *("don't", "/etc/x", "café", "ＧＰＴ", "①", "½", "ガ", "한"),
        *("…", "，", " ", "\n", "_", "\u0301", "😀"),
    ]
)
TEXTS = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.lists(_PIECES).map("".join))


def test_analysis() -> None:
    def check(case: tuple[str, list[str], list[str]]) -> None:
        text, atoms, extras = case
        assert analyze(text) == Analysis(atoms, extras)

    check_each(read_rows("tokens", "analyses"), check)


def test_programming_language_names_before_chinese() -> None:
    assert analyze("用C++写").atoms == ["用", "c++", "写"]


def test_accented_words_have_no_parts() -> None:
    assert analyze("Müller straße").extras == []


SCRIPTS: list[tuple[str, str]] = [
    ("數據庫遷移", "数据库迁移"),
    ("臺灣大學的圖書館", "台湾大学的图书馆"),
    ("我們討論過這個問題，對嗎？", "我们讨论过这个问题，对吗？"),
    ("用 Python 寫資料庫", "用 Python 写资料库"),
    ("龍鳳呈祥", "龙凤呈祥"),
    ("頭髮與發展", "头发与发展"),
]


def test_traditional_and_simplified_share_terms() -> None:
    def check(case: tuple[str, str]) -> None:
        traditional, simplified = case
        assert analyze(traditional) == analyze(simplified)

    check_each(SCRIPTS, check)


@pytest.mark.parametrize(
    ("first", "second"),
    [("Café", "cafe"), ("ＡＰＩ", "api"), ("Running", "runs"), ("USERS", "user"), ("İ", "i")],
)
def test_spellings_share_a_stem(first: str, second: str) -> None:
    assert analyze(first).atoms == analyze(second).atoms


def test_stem_removes_case_accents_and_apostrophes() -> None:
    assert [stem(word) for word in ("Studies", "Élan", "O'Reilly", "x86")] == [
        *("studi", "elan", "oreilli", "x86")
    ]


def test_very_long_chunk_is_not_an_extra() -> None:
    assert analyze("a-" * MAX_EXTRA_LENGTH + "a").extras == []


@pytest.mark.parametrize(
    ("term", "expected"), [("北", True), ("ガ", True), ("한", True), ("a", False), ("北京", False)]
)
def test_single_characters_of_spaceless_scripts(term: str, expected: bool) -> None:
    assert is_cjk(term) is expected


@settings(deadline=None)
@given(TEXTS)
def test_search_text_round_trips(text: str) -> None:
    analysis = analyze(text)
    line = analysis.to_search_text()
    atoms, _, extras = line.partition("\t")
    assert (atoms.split(), extras.split()) == (analysis.atoms, analysis.extras)
    assert "\n" not in line
