"""Calibration of scores to probabilities: order, range and the meaning of 0.5."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.search.ranking.calibration import HALF, LOOKED_AT, RIVALS, calibrate, probability
from memrecall.search.ranking.scores import relevance
from memrecall.types import NewMessage, Role

Floats = npt.NDArray[np.float32]

# Scores as `combine` returns them, in steps wide enough to survive another rounding.
SCORES = st.lists(st.integers(-2_000, 2_000).map(lambda step: step / 100), min_size=1, max_size=90)


def floats(values: Any) -> Floats:
    return np.array(values, dtype=np.float32)


def calibrate_scores(
    scores: Any, *, visible: Any = None, lone: float = 0.0, time: float = 0.0
) -> Floats:
    rows = floats(scores)
    mask = np.ones(len(rows), dtype=np.bool_) if visible is None else np.array(visible)
    return calibrate(rows, mask, np.full_like(rows, lone), np.full_like(rows, time))


@given(SCORES)
def test_calibration_keeps_the_order(scores: list[float]) -> None:
    after = calibrate_scores(scores)
    order = np.argsort(floats(scores), kind="stable")
    assert order.tolist() == np.argsort(after, kind="stable").tolist()
    level = np.diff(floats(scores)[order]) == 0
    assert (np.diff(after[order])[level] == 0).all()


@given(st.floats(-60, 60), st.floats(-60, 60))
def test_probability_rises_with_score(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert 0 <= probability(low) <= probability(high) <= 1
    assert 0 <= relevance(low) <= relevance(high) <= 1


@given(SCORES, st.floats(0, 1), st.floats(0, 1))
def test_probability_is_between_0_and_1(scores: list[float], lone: float, time: float) -> None:
    for total in calibrate_scores(scores, lone=lone, time=time).tolist():
        assert 0 <= probability(total) <= 1
        assert 0 <= relevance(total) <= 1


@given(SCORES, st.integers(0, 400))
def test_higher_score_lowers_probability_of_rivals(scores: list[float], step: int) -> None:
    better = [scores[0] + step / 100, *scores[1:]]
    before, after = calibrate_scores(scores), calibrate_scores(better)
    slack = 2e-4  # of two roundings
    assert after[0] >= before[0] - slack
    assert (after[1:] <= before[1:] + slack).all()


@given(SCORES, st.data())
def test_hidden_rows_do_not_affect_calibration(scores: list[float], data: st.DataObject) -> None:
    visible = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    open_rows = np.array(visible, dtype=np.bool_)
    if not open_rows.any():
        return
    among_others = calibrate_scores(scores, visible=open_rows)[open_rows]
    expected = calibrate_scores(floats(scores)[open_rows])
    np.testing.assert_array_equal(among_others, expected)


@pytest.mark.parametrize("scores", [[], [1.0, 2.0]])
def test_scores_are_unchanged_without_visible_rows(scores: list[float]) -> None:
    after = calibrate_scores(scores, visible=np.zeros(len(scores), dtype=np.bool_))
    assert after.tolist() == scores


def test_single_row_is_calibrated_by_its_score() -> None:
    strong, weak = calibrate_scores([6.0])[0], calibrate_scores([-6.0])[0]
    assert probability(float(strong)) > 0.5 > HALF > probability(float(weak))


def test_relevance_of_one_half_is_the_chosen_probability() -> None:
    assert relevance(0.0) == 0.5
    assert probability(0.0) == HALF


def test_equal_rows_share_probability_up_to_rival_limit() -> None:
    chances = [probability(float(calibrate_scores([4.0] * rows)[0])) for rows in (1, 5, RIVALS)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 2 * chances[-1]
    assert calibrate_scores([4.0] * (RIVALS + 30))[0] == calibrate_scores([4.0] * RIVALS)[0]


def test_lone_rows_and_named_times_raise_probability() -> None:
    scores = [3.0, 2.0, 1.0]
    plain = calibrate_scores(scores)
    assert (calibrate_scores(scores, lone=1) > plain).all()
    assert (calibrate_scores(scores, time=1) > plain).all()


def test_only_top_rows_shift_calibration() -> None:
    scores = floats(np.linspace(5, 0, LOOKED_AT + 10))
    zeros = np.zeros_like(scores)
    beyond_top = zeros.copy()
    beyond_top[LOOKED_AT:] = 1
    all_rows = np.ones(len(scores), dtype=np.bool_)
    np.testing.assert_array_equal(
        calibrate(scores, all_rows, beyond_top, beyond_top),
        calibrate(scores, all_rows, zeros, zeros),
    )


async def test_only_hybrid_search_returns_probabilities(library: Library) -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    texts = ["green tea with lemon", "black tea", "a walk by the sea", "tea, and more tea"]
    batch = [
        NewMessage(message_id=f"m{at}", role=Role.USER, content=text, ts=start + timedelta(days=at))
        for at, text in enumerate(texts)
    ]
    await library.add_messages(Scope("lin"), batch)
    for mode in ("keyword", "semantic"):
        page = await library.search(Scope("lin"), SearchRequest("green tea", mode=mode))
        assert {hit.probability for hit in page.results} == {None}, mode
    page = await library.search(Scope("lin"), SearchRequest("green tea", mode="hybrid"))
    chances = [hit.probability for hit in page.results]
    probabilities = [chance for chance in chances if chance is not None]
    assert len(probabilities) == len(chances)
    assert probabilities == sorted(probabilities, reverse=True)
    for hit, chance in zip(page.results, probabilities, strict=True):
        assert (hit.score >= 0.5) == (chance >= HALF) or abs(chance - HALF) < 1e-3
