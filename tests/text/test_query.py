"""The query language: parsing, errors with positions, and round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.errors import QuerySyntaxError
from memrecall.text.query import (
    NOTHING,
    Phrase,
    Prefix,
    Query,
    QueryAnd,
    QueryNot,
    QueryOr,
    Term,
    parse_query,
    positive_words,
)
from tests.cases import check_each, read_rows

A, B, C, D = map(Term, "abcd")


READINGS: list[tuple[str, Query]] = [
    ("a", A),
    ("  a\u3000", A),
    ("a b c", QueryAnd((A, B, C))),
    ("a AND b", QueryAnd((A, B))),
    ("a OR b", QueryOr((A, B))),
    ("NOT a", QueryNot(A)),
    ("NOT NOT a", QueryNot(QueryNot(A))),
    ("a NOT b", QueryAnd((A, QueryNot(B)))),
    ("a AND NOT b", QueryAnd((A, QueryNot(B)))),
    ("a OR NOT b", QueryOr((A, QueryNot(B)))),
    ("a b OR c d", QueryOr((QueryAnd((A, B)), QueryAnd((C, D))))),
    ("a AND b OR c", QueryOr((QueryAnd((A, B)), C))),
    ("a OR b AND c", QueryOr((A, QueryAnd((B, C))))),
    ("NOT a b", QueryAnd((QueryNot(A), B))),
    ("NOT (a b)", QueryNot(QueryAnd((A, B)))),
    ("(a OR b) c", QueryAnd((QueryOr((A, B)), C))),
    ("(a)(b)", QueryAnd((A, B))),
    ("((a))", A),
    ("a (b AND (c d))", QueryAnd((A, B, C, D))),
    ("a OR (b OR (c OR d))", QueryOr((A, B, C, D))),
    ("conf*", Prefix("conf")),
    ("conf**", Prefix("conf")),
    ("AND*", Prefix("AND")),
    ('"a b"', Phrase("a b")),
    ('a"b"c', QueryAnd((A, Phrase("b"), C))),
    ('"AND"', Phrase("AND")),
    ('"a AND (b"', Phrase("a AND (b")),
    ("北京 天气", QueryAnd((Term("北京"), Term("天气")))),
    # a minus before a word excludes it
    ("a -b", QueryAnd((A, QueryNot(B)))),
    ("-a", QueryNot(A)),
    ("火锅 -花生", QueryAnd((Term("火锅"), QueryNot(Term("花生"))))),
    ("a －b", QueryAnd((A, QueryNot(B)))),
    ('a -"b c"', QueryAnd((A, QueryNot(Phrase("b c"))))),
    ("a -(b OR c)", QueryAnd((A, QueryNot(QueryOr((B, C)))))),
    ("(-a b)", QueryAnd((QueryNot(A), B))),
    ("a OR -👍", QueryOr((A, QueryNot(Term("👍"))))),
    ("a-b", Term("a-b")),
    ("a - b", QueryAnd((A, B))),
    ("a --b", QueryAnd((A, Term("--b")))),
    # emoji are words, and signs alone are nothing
    ("love ❤️", QueryAnd((Term("love"), Term("❤️")))),
    ("😀", Term("😀")),
    ("不吃 ？", Term("不吃")),
    ("a !!! b", QueryAnd((A, B))),
    ("a AND ... OR b", QueryOr((A, B))),
    ("a NOT ?", A),
    ("a (!) b", QueryAnd((A, B))),
    ("x *", Term("x")),
    ('"x"*', Phrase("x")),
    ('a "?!"', A),
    ("x !!*", Term("x")),
    ("… -> ？", NOTHING),
    ("＊＊", NOTHING),
    ("NOT !", NOTHING),
]


def test_parses_words_operators_and_groups() -> None:
    def check(case: tuple[str, Query]) -> None:
        text, expected = case
        assert parse_query(text) == expected

    check_each(READINGS, check)


def test_full_width_syntax_is_equivalent() -> None:
    def check(case: tuple[str, str]) -> None:
        text, plain = case
        assert parse_query(text) == parse_query(plain)

    check_each(read_rows("queries", "full width"), check)


SINGLE_WORDS: list[str] = [
    *("C++", "C#", "don't", "don’t", "a:b", "foo@bar.com", "/etc/x", "--x", "a*b", "*a", "x，y"),
    *("and", "QueryOr", "nOT", "ANDROID", "v1.2.3", "db_config_001", "北京", "‘x’"),
]


def test_word_ends_at_space_quote_or_parenthesis() -> None:
    def check(word: str) -> None:
        assert parse_query(word) == Term(word)
        assert parse_query(f"({word})") == Term(word)

    check_each(SINGLE_WORDS, check)


def test_positions_count_characters_of_the_original_text() -> None:
    query = parse_query("（北京　OR “天 气”）conf＊")
    assert isinstance(query, QueryAnd)
    alternatives, prefix = query.parts
    assert isinstance(alternatives, QueryOr)
    leaves = [
        part for part in (*alternatives.parts, prefix) if isinstance(part, Term | Phrase | Prefix)
    ]
    assert [leaf.position for leaf in leaves] == [1, 7, 13]


def test_syntax_errors_have_positions() -> None:
    def check(case: tuple[str, int, str]) -> None:
        text, position, message = case
        with pytest.raises(QuerySyntaxError, match=message) as error_info:
            parse_query(text)
        assert error_info.value.position == position

    check_each(read_rows("queries", "errors"), check)


def test_nesting_is_limited() -> None:
    assert parse_query("(" * 50 + "a" + ")" * 50) == A
    for opening, width in (("(", 1), ("NOT ", 4)):
        with pytest.raises(QuerySyntaxError, match="deeper than 50") as error_info:
            parse_query(opening * 2000 + "a")
        assert error_info.value.position == 50 * width


def test_adjacent_groups_do_not_count_as_nesting() -> None:
    query = parse_query("(a) " * 2000)
    assert isinstance(query, QueryAnd)
    assert len(query.parts) == 2000


def test_length_is_limited() -> None:
    assert parse_query("a" * 10_000) == Term("a" * 10_000)
    with pytest.raises(QuerySyntaxError, match="10001 characters") as error_info:
        parse_query("a" * 10_001)
    assert error_info.value.position == 10_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", ["a"]),
        ('a "b c" NOT d', ["a", "b c"]),
        ("conf* OR (北京 NOT (x OR y))", ["conf*", "北京"]),
        ("NOT a", []),
        ("a a", ["a", "a"]),
    ],
)
def test_positive_words_omit_negated_words(text: str, words: list[str]) -> None:
    assert positive_words(parse_query(text)) == words


@given(st.text(alphabet='ab- AND OR NOT()（）"“”「」*＊北京! \n', max_size=60))
def test_any_text_parses_or_raises_a_syntax_error_inside_it(text: str) -> None:
    position = 0
    try:
        parse_query(text)
    except QuerySyntaxError as error:
        position = error.position
    assert 0 <= position < max(len(text), 1)
