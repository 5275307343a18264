"""Truncation of texts that share a character budget."""

from hypothesis import given
from hypothesis import strategies as st

from memrecall.chat.turn import fit_texts
from memrecall.text_length import ELLIPSIS


def test_long_texts_share_what_short_ones_leave() -> None:
    fitted_texts = fit_texts(["short", "x" * 500, "y" * 80], 200, 10)
    assert fitted_texts == ["short", "x" * 115 + ELLIPSIS, "y" * 80]


def test_long_texts_are_truncated_equally() -> None:
    assert [len(text) for text in fit_texts(["x" * 500, "y" * 400], 200, 10)] == [101, 101]


def test_no_text_is_truncated_below_the_minimum() -> None:
    assert fit_texts(["x" * 50] * 4, 40, 20) == ["x" * 20 + ELLIPSIS] * 4


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(0, 1_000))
def test_budget_is_kept_and_used(lengths: list[int], budget: int) -> None:
    texts = ["x" * length for length in lengths]
    fitted_texts = fit_texts(texts, budget, 0)
    used = sum(len(text.removesuffix(ELLIPSIS)) for text in fitted_texts)
    assert used <= budget or used == sum(lengths)
    if used < sum(lengths):
        assert used > budget - len(texts)  # only the remainder of the division is unused
        longest = max(len(text.removesuffix(ELLIPSIS)) for text in fitted_texts)
        cut = [text for text in fitted_texts if text.endswith(ELLIPSIS)]
        assert all(len(text) == longest + 1 for text in cut)
