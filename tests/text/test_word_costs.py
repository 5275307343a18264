"""How rare terms are in their language."""

import pytest

from memrecall.text.language import STEPS, TABLE, UNKNOWN, pair_cost, term_cost
from memrecall.text.tokens import is_cjk, stem

from ..cases import check_each

COMMON_AND_RARE = [
    ("the", "time"),
    ("time", "oboe"),
    ("people", "anniversary"),
    ("work", "greenhouse"),
    ("的", "吃"),
    ("我", "敏"),
    ("中国", "过敏"),
    ("一个", "海鲜"),
    ("不能", "徒步"),
]


def cost_of(word: str) -> float:
    """Return the cost of an English word, a character or a pair of characters."""
    return term_cost(*word) if is_cjk(word[0]) else term_cost(stem(word))


def test_common_words_cost_less_than_rare_ones() -> None:
    def check(case: tuple[str, str]) -> None:
        common, rare = map(cost_of, case)
        assert 0 < common < rare

    check_each(COMMON_AND_RARE, check)


def test_unknown_words_cost_most() -> None:
    for term in ("zzyzxquux", "db_config_001", "龘"):
        assert term_cost(term) == UNKNOWN
    assert all(term_cost(word) <= UNKNOWN for word in ("the", "oboe", "吃"))


def test_pair_costs_less_than_its_characters_by_chance() -> None:
    for pair in ("中国", "过敏", "花生"):
        assert term_cost(*pair) < term_cost(pair[0]) + term_cost(pair[1])


def test_unknown_pair_costs_as_much_as_its_characters_up_to_a_limit() -> None:
    assert term_cost("的", "吃") == pytest.approx(term_cost("的") + term_cost("吃"), abs=3)
    assert term_cost("龘", "吃") == min(UNKNOWN + term_cost("吃"), 1.5 * UNKNOWN)
    assert term_cost("龘", "靐") == 1.5 * UNKNOWN
    assert pair_cost({"甲": 4.0, "乙": 5.0}, "甲乙") == 9.0


def test_table_has_each_term_once_in_the_order_of_costs() -> None:
    lines = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()]
    steps = [int(step) for step, _ in lines]
    assert steps == sorted(set(steps))
    terms = [term for _, group in lines for term in group.split(" ")]
    assert all(terms)
    assert len(terms) == len(set(terms))
    assert all(0 < step / STEPS <= 1.5 * UNKNOWN for step in steps)


def test_table_has_stems_as_rows_are_indexed() -> None:
    for word in ("people", "because", "company"):
        assert term_cost(stem(word)) < UNKNOWN
