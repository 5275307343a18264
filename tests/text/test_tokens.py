"""Search terms of a text: atoms with a position, extras without one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.text.tokens import BREAK, MAX_EXTRA_LENGTH, Analysis, analyze, is_cjk, stem
from tests.cases import check_each

_PIECES = st.sampled_from(
    [
        *("北京", "數據庫", "getUserName", "db_config_001", "C++", "v1.2.3", "foo@bar.com"),
        *("don't", "/etc/x", "café", "ＧＰＴ", "①", "½", "ガ", "한"),
        *("…", "，", " ", "\n", "_", "\u0301", "😀"),
    ]
)
TEXTS = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.lists(_PIECES).map("".join))


ANALYSES: list[tuple[str, list[str], list[str]]] = [
    # Latin words are indexed by their stem
    ("The users were running", ["the", "user", "were", "run"], []),
    ("don't", ["dont"], []),
    ("don’t", ["dont"], []),
    ("John's", ["john"], []),
    ("CAFÉ", ["cafe"], []),
    # identifiers are found by their parts and as a whole
    ("db_config_001", ["db", "config", "001"], ["db_config_001"]),
    ("DB_CONFIG", ["db", "config"], ["db_config"]),
    ("getUserName", ["getusernam"], ["get", "user", "name"]),
    ("HTTPServer", ["httpserver"], ["http", "server"]),
    ("GPT4", ["gpt4"], ["gpt", "4"]),
    ("v1.2.3", ["1", "2", "3"], ["v1.2.3", "1.2.3", "v1"]),
    ("app-V1.2.3-rc.1", ["app", "1", "2", "3", "rc", "1"], ["app-v1.2.3-rc.1", "1.2.3", "v1"]),
    ("rev1.2", ["rev1", "2"], ["rev1.2", "rev", "1"]),
    ("3.11", ["3", "11"], ["3.11"]),
    ("foo@bar.com", ["foo", "bar", "com"], ["foo@bar.com"]),
    ("/etc/nginx.conf", ["etc", "nginx", "conf"], ["etc/nginx.conf"]),
    ("C:\\temp", ["c", "temp"], ["c:\\temp"]),
    ("__init__", ["init"], []),
    ("2026-01-26", ["2026", "01", "26"], ["2026-01-26"]),
    # languages with signs in their names
    ("C++", ["c++"], []),
    ("C# and F#.", ["c#", "and", "f#"], []),
    ("c++11", ["c", "11"], ["c++11"]),
    # Chinese is indexed by characters; punctuation between them is kept
    ("北京大学", ["北", "京", "大", "学"], []),
    ("你好，世界", ["你", "好", BREAK, "世", "界"], []),
    ("你好 世界", ["你", "好", "世", "界"], []),
    ("你好, world", ["你", "好", "world"], []),
    # mixed, full-width and compatibility forms
    ("用Python写", ["用", "python", "写"], []),
    ("ＧＰＴ－４", ["gpt", "4"], ["gpt-4"]),
    ("①", ["1"], []),
    # emoji are terms, without skin tones and variants; flags are pairs of letters
    ("love ❤️", ["love", "❤"], []),
    ("好👍🏽的", ["好", "👍", "的"], []),
    ("👨\u200d👩\u200d👧", ["👨", "👩", "👧"], []),
    ("🇩🇪🇫🇷", ["🇩🇪", "🇫🇷"], []),
    # characters without width do not hide words
    ("hot\u200bpot", ["hotpot"], []),
    ("\ufeff火\u2060锅\u00ad", ["火", "锅"], []),
    # nothing to find
    ("", [], []),
    ("!!! … → \u200b __", [], []),
]


def test_analysis() -> None:
    def check(case: tuple[str, list[str], list[str]]) -> None:
        text, atoms, extras = case
        assert analyze(text) == Analysis(atoms, extras)

    check_each(ANALYSES, check)


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
