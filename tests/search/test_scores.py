"""Standardised scores and their weighted sum."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memrecall.search.ranking.scores import (
    FEATURES,
    HYBRID,
    RankingWeights,
    Standardizer,
    combine,
    to_relevance,
)

Floats = npt.NDArray[np.float32]
ASSUMED_ROWS = 8


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float32)


def test_standardizer_assumes_unrelated_rows() -> None:
    values = floats(3, 5)
    unrelated = (0.5, 0.25)
    standardizer = Standardizer.fit(values, 2, unrelated)
    # Half of the assumed rows are one spread above their mean, half below.
    assumed = [0.25, 0.75] * (ASSUMED_ROWS // 2)
    expected = np.array([*values, *assumed])
    assert standardizer.mean == pytest.approx(expected.mean())
    assert standardizer.spread == pytest.approx(expected.std())


def test_standardizer_counts_rows_without_a_value_as_zero() -> None:
    standardizer = Standardizer.fit(floats(3, 5), 100)
    expected = np.array([3, 5] + [0] * (98 + ASSUMED_ROWS))
    assert standardizer.mean == pytest.approx(expected.mean())
    assert standardizer.spread == pytest.approx(expected.std())


def test_assumed_rows_matter_less_in_a_large_collection() -> None:
    values = np.random.default_rng(0).normal(4, 2, 5_000).astype(np.float32)

    def mean(rows: int) -> float:
        return Standardizer.fit(values[:rows], rows).mean

    assert mean(2) < mean(50) < mean(5_000) == pytest.approx(4, abs=0.1)


def test_single_row_stands_out_from_unrelated_rows() -> None:
    unrelated = (0.1, 0.05)
    near, far = (Standardizer.fit(floats(cosine), 1, unrelated) for cosine in (0.6, 0.1))
    assert near.apply(floats(0.6))[0] > 1
    assert far.apply(floats(0.1))[0] == pytest.approx(0, abs=1e-5)


def test_standard_scores_without_spread_are_zero() -> None:
    assert Standardizer.fit(floats(0, 0), 2).apply(floats(0, 3)).tolist() == [0, 0]
    assert Standardizer.fit(floats(), 0).apply(floats()).tolist() == []


def test_scale_measures_from_zero() -> None:
    standardizer = Standardizer(mean=2.0, spread=4.0)
    assert standardizer.apply(floats(0, 2, 6)).tolist() == [-0.5, 0, 1]
    assert standardizer.scale(floats(0, 2, 6)).tolist() == [0, 0.5, 1.5]


def test_standard_scores_are_bounded() -> None:
    assert Standardizer(mean=0.0, spread=0.01).apply(floats(-5, 5)).tolist() == [-8, 8]


def test_combined_score_is_the_weighted_sum_and_the_bias() -> None:
    weights = RankingWeights(lexical=2.0, time=3.0, bias=-1.0)
    features: dict[str, Any] = {"lexical": floats(1, 0), "time": floats(0, 1)}
    assert combine(features, weights).tolist() == [1, 2]


def test_every_hybrid_weight_belongs_to_a_feature() -> None:
    features = {name: floats(1) for name in FEATURES}
    total = sum(getattr(HYBRID, name) for name in FEATURES) + HYBRID.bias
    assert combine(features, HYBRID)[0] == pytest.approx(total, abs=1e-4)


def test_score_of_zero_is_a_relevance_of_one_half() -> None:
    assert to_relevance(floats(-40, -1, 0, 1, 40)).tolist() == pytest.approx(
        [0, 0.2689, 0.5, 0.7311, 1], abs=1e-4
    )
