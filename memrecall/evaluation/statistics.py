"""Metrics over questions with bootstrap intervals, paired or unpaired.

A `MetricTable` has a column for every question. Most metrics are ratios of two sums over questions,
with the mean as the simplest case; the others compare predictions with outcomes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
RowNumbers = npt.NDArray[np.intp]

RESAMPLES = 1_000
SEED = 20_260_101
BINS = 10
_TAILS = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class PooledMetric:
    """Predictions (questions × ranks, NaN where missing) and their outcomes."""

    predicted: FloatArray
    true: FloatArray
    measure: Callable[[FloatArray, FloatArray], float]

    def value(self, rows: RowNumbers) -> float:
        """Return the metric over the questions in `rows`."""
        predicted, true = self.predicted[rows].ravel(), self.true[rows].ravel()
        is_present = ~np.isnan(predicted)
        return self.measure(predicted[is_present], true[is_present])


@dataclass(frozen=True, slots=True)
class MetricTable:
    """Metrics by name: numerators and denominators per question, and pooled metrics."""

    names: tuple[str, ...]
    numerators: FloatArray
    denominators: FloatArray
    pooled: Mapping[str, PooledMetric] = field(default_factory=dict)

    @classmethod
    def of(
        cls, ratios: Mapping[str, tuple[FloatArray, FloatArray]], pooled: Mapping[str, PooledMetric]
    ) -> "MetricTable":
        """Build a table from pairs of numerators and denominators."""
        numerators = np.stack([pair[0] for pair in ratios.values()])
        denominators = np.stack([pair[1] for pair in ratios.values()])
        return cls(tuple(ratios), numerators, denominators, pooled)

    @property
    def size(self) -> int:
        """Number of questions."""
        return int(self.numerators.shape[1])

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of all metrics, in the order of `values`."""
        return (*self.names, *self.pooled)

    def select(self, names: Sequence[str]) -> "MetricTable":
        """Return the same questions with a subset of the metrics."""
        at = [index for index, name in enumerate(self.names) if name in names]
        pooled = {name: metric for name, metric in self.pooled.items() if name in names}
        selected = tuple(self.names[index] for index in at)
        return MetricTable(selected, self.numerators[at], self.denominators[at], pooled)

    def values(self, rows: RowNumbers) -> FloatArray:
        """Return every metric over the questions in `rows`; NaN where undefined."""
        numerators = self.numerators[:, rows].sum(axis=1)
        ratios = divide(numerators, self.denominators[:, rows].sum(axis=1))
        return np.append(ratios, [metric.value(rows) for metric in self.pooled.values()])

    def counts(self, rows: RowNumbers) -> list[int]:
        """Return the number of questions in `rows` that each metric covers."""
        ratios = [int(count) for count in (self.denominators[:, rows] > 0).sum(axis=1)]
        pooled = [
            int((~np.isnan(metric.predicted[rows])).any(axis=1).sum())
            for metric in self.pooled.values()
        ]
        return ratios + pooled

    def per_question(self, name: str) -> FloatArray:
        """Return one ratio for every question; NaN where undefined."""
        at = self.names.index(name)
        return divide(self.numerators[at], self.denominators[at])


def divide(numerators: FloatArray, denominators: FloatArray) -> FloatArray:
    """Divide elementwise; NaN where the denominator is 0."""
    result = np.full(numerators.shape, np.nan)
    np.divide(numerators, denominators, out=result, where=denominators > 0)
    return result


def intervals(table: MetricTable, rows: RowNumbers) -> tuple[FloatArray, FloatArray]:
    """Return the 95 % bootstrap interval of every metric."""
    return _tails(np.stack([table.values(sample) for sample in _resample(rows)]))


def paired_intervals(
    first: MetricTable, second: MetricTable, rows: RowNumbers
) -> tuple[FloatArray, FloatArray]:
    """Return the intervals of the differences second - first over the same samples."""
    samples = _resample(rows)
    return _tails(np.stack([second.values(sample) - first.values(sample) for sample in samples]))


def _resample(rows: RowNumbers) -> list[RowNumbers]:
    random = np.random.default_rng(SEED)
    return [rows[random.integers(0, len(rows), len(rows))] for _ in range(RESAMPLES)]


def _tails(samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    low, high = np.full(samples.shape[1], np.nan), np.full(samples.shape[1], np.nan)
    is_defined = ~np.isnan(samples).all(axis=0)
    if is_defined.any():
        low[is_defined], high[is_defined] = np.nanpercentile(samples[:, is_defined], _TAILS, axis=0)
    return low, high


def area_under_roc(score: FloatArray, true: FloatArray) -> float:
    """Return the chance that a positive scores above a negative; a tie counts half."""
    positives, negatives = score[true > 0], np.sort(score[true <= 0])
    if not len(positives) or not len(negatives):
        return float("nan")
    left = np.searchsorted(negatives, positives, "left")
    right = np.searchsorted(negatives, positives, "right")
    return float((left + right).mean() / 2 / len(negatives))


def calibration_bins(predicted: FloatArray, true: FloatArray) -> list[tuple[float, float, int]]:
    """Return ten bins of equal size by prediction: mean prediction, share true, size."""
    # Sorted by outcome as well, so that ties do not depend on the order of the questions.
    order = np.lexsort((true, predicted))
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    return [(float(predicted[part].mean()), float(true[part].mean()), len(part)) for part in parts]


def calibration_error(predicted: FloatArray, true: FloatArray) -> float:
    """Return the expected calibration error over ten bins of equal size."""
    if not len(predicted):
        return float("nan")
    bins = calibration_bins(predicted, true)
    return sum(abs(mean - share) * size for mean, share, size in bins) / len(predicted)


def brier_skill(predicted: FloatArray, true: FloatArray) -> float:
    """Return the Brier skill score: 1 is perfect, 0 is no better than the base rate."""
    if not len(predicted) or not 0.0 < true.mean() < 1.0:
        return float("nan")
    return 1.0 - float(((predicted - true) ** 2).mean() / true.var())
