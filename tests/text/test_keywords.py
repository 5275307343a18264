"""Keyword extraction: whole identifiers, no stop words, specific words first."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.text.keywords import WeightedWord, extract_keywords
from memrecall.text.language import STOP_CHARS, STOP_TERMS, STOP_WORDS
from memrecall.text.tokens import is_cjk, stem
from tests.cases import check_each, read_rows


def words(text: str, limit: int = 10) -> list[str]:
    return [keyword.word for keyword in extract_keywords(text, limit)]


IDENTIFIERS: list[str] = [
    *("db_config_001", "getUserName", "foo@bar.com", "v1.2.3", "/etc/nginx/nginx.conf"),
    *("~/notes/todo.md", "./run.sh", "GPT-4", "x86", "https://example.com/a", "C:\\temp\\x"),
]


def test_identifiers_rank_first_and_are_not_split() -> None:
    def check(whole: str) -> None:
        assert words(f"项目 {whole} 的数据库 database")[0] == whole
        assert words(f"The database of {whole} matters")[0] == whole

    check_each(IDENTIFIERS, check)


def test_specific_words_rank_above_common_ones() -> None:
    def check(case: tuple[str, list[str]]) -> None:
        text, expected = case
        assert words(text) == expected

    check_each(read_rows("keywords", "keywords"), check)


def test_repeated_word_is_returned_once_in_its_first_spelling() -> None:
    assert words("數據庫，数据库") == ["數據庫"]
    assert words("Users, user and USERS") == ["Users"]
    assert words("John's car, John") == ["John", "car"]
    assert words("DB_Config db_config") == ["DB_Config"]


def test_frequent_words_rank_above_rare_ones() -> None:
    assert words("apple cherry cherry") == ["cherry", "apple"]


def test_words_with_equal_scores_stay_in_text_order() -> None:
    assert words("grape melon apple") == ["grape", "melon", "apple"]


def test_weights_start_at_one_and_decrease() -> None:
    keywords = extract_keywords("getUserName 调用数据库，数据库很慢")
    assert keywords[0].weight == 1.0
    weights = [word.weight for word in keywords]
    assert weights == sorted(weights, reverse=True)
    assert keywords[0] == WeightedWord(keywords[0].word, 1.0)


def test_limit_bounds_the_number_of_keywords() -> None:
    assert len(words("apple grape melon lemon", limit=2)) == 2
    assert words("apple", limit=0) == []


def test_very_long_words_are_not_keywords() -> None:
    assert words("x1" * 500 + " apple") == ["apple"]


STOPPED: list[str] = ["the", "don't", "了", "我们", "because", "yourselves"]


def test_stop_words_are_not_keywords() -> None:
    def check(text: str) -> None:
        assert words(text) == []

    check_each(STOPPED, check)


def test_stop_word_sets_are_stemmed_or_plain_as_used() -> None:
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
def test_every_keyword_occurs_in_the_text(text: str) -> None:
    keywords = extract_keywords(text)
    assert all(word.word and word.word in text for word in keywords)
    assert all(0 < word.weight <= 1 for word in keywords)
    if unicodedata.is_normalized("NFKC", text):
        assert len({word.word for word in keywords}) == len(keywords)
