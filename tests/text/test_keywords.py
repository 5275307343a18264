"""The words worth showing: identifiers whole, stop words gone, the specific before the common."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.text.keywords import WeightedWord, extract_keywords
from memrecall.text.language import STOP_CHARS, STOP_TERMS, STOP_WORDS
from memrecall.text.tokens import is_cjk, stem
from tests.cases import check_each


def words(text: str, limit: int = 10) -> list[str]:
    return [found.word for found in extract_keywords(text, limit)]


IDENTIFIERS: list[str] = [
    *("db_config_001", "getUserName", "foo@bar.com", "v1.2.3", "/etc/nginx/nginx.conf"),
    *("~/notes/todo.md", "./run.sh", "GPT-4", "x86", "https://example.com/a", "C:\\temp\\x"),
]


def test_identifiers_stay_whole_and_come_first() -> None:
    def check(whole: str) -> None:
        assert words(f"项目 {whole} 的数据库 database")[0] == whole
        assert words(f"The database of {whole} matters")[0] == whole

    check_each(IDENTIFIERS, check)


KEYWORDS: list[tuple[str, list[str]]] = [
    ("张三在腾讯负责数据库", ["张三", "腾讯", "数据库", "负责"]),
    ("We met Alice in the office to review", ["Alice", "office", "review", "met"]),
    ("我们的 API 是什么？", ["API"]),
    ("我养了一只猫", ["猫"]),
    ("client/server", ["client/server"]),
    ("the year 2024 and 7", ["year", "2024"]),
    ("e.g. and/or i.e.", []),
    ("的了吗呢，我们因为所以", []),
    ("it is what it is", []),
    ("!!!", []),
    ("", []),
]


def test_specific_words_before_common_ones() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        text, expected = case
        assert words(text) == expected

    check_each(KEYWORDS, check)


def test_the_same_word_counts_once_as_first_written() -> None:
    assert words("數據庫，数据库") == ["數據庫"]
    assert words("Users, user and USERS") == ["Users"]
    assert words("John's car, John") == ["John", "car"]
    assert words("DB_Config db_config") == ["DB_Config"]


def test_frequent_words_come_before_rare_ones() -> None:
    assert words("apple cherry cherry") == ["cherry", "apple"]


def test_equals_keep_the_order_of_the_text() -> None:
    assert words("grape melon apple") == ["grape", "melon", "apple"]


def test_weights_run_from_one_down() -> None:
    found = extract_keywords("getUserName 调用数据库，数据库很慢")
    assert found[0].weight == 1.0
    weights = [word.weight for word in found]
    assert weights == sorted(weights, reverse=True)
    assert found[0] == WeightedWord(found[0].word, 1.0)


def test_the_limit_is_kept() -> None:
    assert len(words("apple grape melon lemon", limit=2)) == 2
    assert words("apple", limit=0) == []


def test_endless_words_are_no_keywords() -> None:
    assert words("x1" * 500 + " apple") == ["apple"]


STOPPED: list[str] = ["the", "don't", "了", "我们", "because", "yourselves"]


def test_stop_words_are_no_keywords() -> None:
    def check(text: str) -> None:
        assert words(text) == []

    check_each(STOPPED, check)


def test_stop_sets_have_the_forms_they_are_compared_with() -> None:
    assert all(stem(word) in STOP_TERMS for word in ("the", "don't", "was", "yourselves"))
    assert STOP_TERMS.isdisjoint({"user", "run", "python", "ask"})
    assert all(map(is_cjk, STOP_CHARS))
    assert {"的", "了", "吗", "呢", "吧", "啊", "是", "我", "你", "他", "在", "和"} <= STOP_CHARS
    assert {"我们", "because"} <= STOP_WORDS


_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(
        st.sampled_from(["北京", "數據庫", "getUserName", "a_1", "①", "½", "，", " ", "the"])
    ).map("".join),
)


@settings(deadline=None)
@given(_TEXTS)
def test_every_keyword_stands_in_the_text(text: str) -> None:
    found = extract_keywords(text)
    assert all(word.word and word.word in text for word in found)
    assert all(0 < word.weight <= 1 for word in found)
    if unicodedata.is_normalized("NFKC", text):
        assert len({word.word for word in found}) == len(found)
