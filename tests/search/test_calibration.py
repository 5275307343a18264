"""Calibration: order, range, the probability of an answer, and what similarity is noise."""

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
from memrecall.search.ranking.scores import (
    BACKGROUND,
    HALF_RELEVANT,
    HYBRID,
    RIVALS,
    TOP_ROWS,
    Calibrated,
    Noise,
    QuerySupport,
    answer_probability,
    calibrate,
    significance_of,
)
from memrecall.types import NewMessage, Role

Floats = npt.NDArray[np.float32]

# Scores as `combine` returns them, in steps wide enough to survive another rounding.
SCORES = st.lists(st.integers(-800, 800).map(lambda step: step / 100), min_size=1, max_size=90)
SHARES = st.floats(0, 1)
SUPPORTS = st.builds(
    QuerySupport,
    known=SHARES,
    coverage=SHARES,
    significance=st.floats(-20, 40),
    words=st.floats(0, 60),
    rows=st.integers(0, 10**6),
)
STRONG = QuerySupport(known=1.0, coverage=1.0, significance=9.0, words=6, rows=50)


def floats(values: Any) -> Floats:
    return np.array(values, dtype=np.float32)


def calibrate_scores(
    scores: Any,
    support: QuerySupport = STRONG,
    *,
    visible: Any = None,
    lone: float = 0.0,
    time: float = 0.0,
) -> Calibrated:
    rows = floats(scores)
    mask = np.ones(len(rows), dtype=np.bool_) if visible is None else np.array(visible)
    return calibrate(rows, mask, make_features(rows, lone=lone, time=time), support)


def make_features(rows: Floats, **values: Any) -> dict[str, Floats]:
    names = ("lone", "time", "nearby")
    return {name: np.zeros_like(rows) + floats(values.get(name, 0.0)) for name in names}


def answerable(scores: Any, support: QuerySupport) -> float:
    return answer_probability(np.sort(floats(scores))[::-1], support)


# The rows


@given(SCORES, SUPPORTS)
def test_calibration_keeps_the_order(scores: list[float], support: QuerySupport) -> None:
    order = np.argsort(floats(scores), kind="stable")
    ties = np.diff(floats(scores)[order]) == 0
    for values in calibrate_scores(scores, support):
        steps = np.diff(values[order])
        assert (steps >= 0).all()
        assert (steps[ties] == 0).all()


@given(SCORES, SUPPORTS, SHARES, SHARES)
def test_relevance_and_probability_are_between_0_and_1(
    scores: list[float], support: QuerySupport, lone: float, time: float
) -> None:
    relevance, probability = calibrate_scores(scores, support, lone=lone, time=time)
    assert ((probability >= 0) & (probability <= relevance) & (relevance <= 1)).all()


@given(SCORES, SUPPORTS)
def test_no_row_is_likelier_than_an_answer(scores: list[float], support: QuerySupport) -> None:
    limit = answerable(scores, support) + 1e-6
    _, probability = calibrate_scores(scores, support, lone=1, time=1)
    assert (probability <= limit).all()


@given(SCORES, SUPPORTS, st.data())
def test_hidden_rows_do_not_affect_calibration(
    scores: list[float], support: QuerySupport, data: st.DataObject
) -> None:
    visible = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    open_rows = np.array(visible, dtype=np.bool_)
    if not open_rows.any():
        return
    among_others = calibrate_scores(scores, support, visible=open_rows)
    expected = calibrate_scores(floats(scores)[open_rows], support)
    np.testing.assert_array_equal(among_others.relevance[open_rows], expected.relevance)
    np.testing.assert_array_equal(among_others.probability[open_rows], expected.probability)


@pytest.mark.parametrize("scores", [[], [1.0, 2.0]])
def test_nothing_is_relevant_without_visible_rows(scores: list[float]) -> None:
    calibrated = calibrate_scores(scores, visible=np.zeros(len(scores), dtype=np.bool_))
    assert calibrated.relevance.tolist() == [0] * len(scores)
    assert calibrated.probability.tolist() == [0] * len(scores)


def test_single_row_is_calibrated_by_its_score() -> None:
    strong, weak = calibrate_scores([6.0]), calibrate_scores([-6.0])
    assert strong.probability[0] > 0.5 > HALF_RELEVANT > weak.probability[0]
    assert strong.relevance[0] > 0.5 > weak.relevance[0]


def test_relevance_of_one_half_is_the_chosen_probability() -> None:
    scores = floats(np.linspace(-8, 2, 2_000))
    for support in (STRONG, STRONG._replace(known=0.5, significance=4.0)):
        relevance, probability = calibrate_scores(scores, support)
        middle = int(np.argmin(np.abs(relevance - 0.5)))
        assert probability[middle] == pytest.approx(HALF_RELEVANT, rel=0.02)


def test_equal_rows_share_probability_up_to_rival_limit() -> None:
    chances = [calibrate_scores([4.0] * rows).probability[0] for rows in (1, 5, RIVALS)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 2 * chances[-1]
    beyond = calibrate_scores([4.0] * (RIVALS + 30)).probability[0]
    assert beyond == calibrate_scores([4.0] * RIVALS).probability[0]


def test_lone_rows_and_named_times_raise_probability() -> None:
    scores = [3.0, 2.0, 1.0]
    plain = calibrate_scores(scores)
    for calibrated in (calibrate_scores(scores, lone=1), calibrate_scores(scores, time=1)):
        assert (calibrated.probability > plain.probability).all()
        assert (calibrated.relevance > plain.relevance).all()


def test_only_top_rows_shift_calibration() -> None:
    scores = floats(np.linspace(5, 0, TOP_ROWS + 10))
    beyond_top = np.zeros_like(scores)
    beyond_top[TOP_ROWS:] = 1
    all_rows = np.ones(len(scores), dtype=np.bool_)
    np.testing.assert_array_equal(
        calibrate(scores, all_rows, make_features(scores, lone=beyond_top), STRONG),
        calibrate(scores, all_rows, make_features(scores), STRONG),
    )


def test_named_time_is_no_answer_to_an_unknown_subject() -> None:
    plain, all_rows = floats([0.0, -0.5, -1.0]), np.ones(3, dtype=np.bool_)
    features = make_features(plain, time=[1.0, 0.0, 0.0])
    dated = plain + HYBRID.time * features["time"]
    unknown, known = STRONG._replace(known=0.0, coverage=0.0), STRONG
    expected = answerable(plain, unknown)
    doubted, trusted = (calibrate(dated, all_rows, features, s) for s in (unknown, known))
    assert doubted.probability[0] <= expected + 1e-6 < trusted.probability[0]


# The answer


@given(SCORES, SUPPORTS, SHARES, st.floats(0, 40))
def test_less_known_covered_or_similar_makes_an_answer_less_likely(
    scores: list[float], support: QuerySupport, share: float, difference: float
) -> None:
    fewer = support._replace(known=support.known * share)
    less = support._replace(coverage=support.coverage * share)
    farther = support._replace(significance=support.significance - difference)
    for weaker in (fewer, less, farther):
        assert 0 <= answerable(scores, weaker) <= answerable(scores, support) <= 1


@given(SUPPORTS, st.integers(0, 10**6))
def test_more_rows_make_an_answer_less_likely(support: QuerySupport, rows: int) -> None:
    among_more = support._replace(rows=support.rows + rows)
    # A coverage of 1 must not make up for the number of rows.
    assert answerable([0.0], among_more) <= answerable([0.0], support) + 1e-12


def test_support_changes_the_probability_noticeably() -> None:
    scores = [2.0, 0.0, -1.0]
    strong = answerable(scores, STRONG)
    assert strong > 0.9
    weaker = (
        STRONG._replace(known=0.0, coverage=0.0),
        STRONG._replace(significance=1.0),
        STRONG._replace(rows=5_000),
    )
    for support in weaker:
        assert answerable(scores, support) < strong - 0.01
    assert answerable(scores, QuerySupport(0.0, 0.0, 0.5, words=6, rows=50)) < 0.1


def test_lead_of_the_best_row_makes_an_answer_likelier() -> None:
    support = STRONG._replace(significance=2.0, known=0.5)
    lead, tie = answerable([4.0, 0.0, 0.0], support), answerable([4.0, 4.0, 4.0], support)
    assert lead > tie
    assert answerable([4.0], support) == tie  # a single row leads nobody


def test_significance_is_capped() -> None:
    scores, support = [1.0, 0.0], STRONG._replace(known=0.0, rows=10**5)
    capped = [answerable(scores, support._replace(significance=far)) for far in (12.0, 13.0, 500.0)]
    assert len(set(capped)) == 1


# Noise


def test_noise_is_median_and_spread_of_cosines() -> None:
    cosines = np.random.default_rng(0).normal(0.3, 0.1, 5_000).astype(np.float32)
    noise = Noise.of(cosines)
    assert noise.median == pytest.approx(0.3, abs=0.01)
    assert noise.spread == pytest.approx(0.1, abs=0.01)
    assert noise.significance(noise.median) == 0
    assert noise.significance(noise.median + 3 * noise.spread) == pytest.approx(3)


def test_noise_is_robust_to_one_outlier() -> None:
    cosines = floats(np.linspace(-0.1, 0.2, len(BACKGROUND)))
    with_outlier = cosines.copy()
    with_outlier[0] = 0.95  # the query is about one of the sentences
    plain, noisy = Noise.of(cosines), Noise.of(with_outlier)
    assert noisy.median == pytest.approx(plain.median, abs=0.02)
    assert noisy.spread == pytest.approx(plain.spread, abs=0.02)


def test_noise_of_equal_cosines_has_a_spread() -> None:
    noise = Noise.of(floats([0.4] * 5))
    assert noise.spread > 0
    assert noise.significance(0.4) == pytest.approx(0, abs=1e-5)


def test_noise_floor_rises_with_rows() -> None:
    noise = Noise(median=0.1, spread=0.05)
    floors = [noise.floor(rows) for rows in (8, 50, 1_000, 10**6)]
    assert floors == sorted(set(floors))
    assert floors[0] > noise.median + noise.spread
    assert noise.floor(0) == noise.floor(1) == floors[0]


def test_significance_without_vectors_is_middling() -> None:
    assert significance_of(0.3, Noise(0.1, 0.1)) == pytest.approx(2)
    assert 2 < significance_of(0.0, None) < 10


# The search


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
    scores = [hit.score for hit in page.results]
    assert scores == sorted(scores, reverse=True)
    for score, chance in zip(scores, probabilities, strict=True):
        assert chance <= score
