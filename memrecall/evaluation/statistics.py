"""Figures over questions, and how sure they are: bootstrap intervals, paired or not.

A `Table` has a column for every question. Most figures are ratios of two sums over questions, a
mean being the simplest; the others are computed from pairs of a prediction and what came true.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

RESAMPLES = 1_000
SEED = 20_260_101
BINS = 10
_TAILS = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Pooled:
    """Predictions (questions × places, NaN where there is none) and what came true of them."""

    predicted: Floats
    true: Floats
    measure: Callable[[Floats, Floats], float]

    def value(self, rows: Rows) -> float:
        """The measure over some questions."""
        predicted, true = self.predicted[rows].ravel(), self.true[rows].ravel()
        known = ~np.isnan(predicted)
        return self.measure(predicted[known], true[known])


@dataclass(frozen=True, slots=True)
class Table:
    """Figures by name: sums above and below the line, one column a question; pooled ones apart."""

    names: tuple[str, ...]
    above: Floats
    below: Floats
    pooled: Mapping[str, Pooled] = field(default_factory=dict)

    @classmethod
    def of(
        cls, ratios: Mapping[str, tuple[Floats, Floats]], pooled: Mapping[str, Pooled]
    ) -> "Table":
        """A table of ratios, each given as what stands above and below the line."""
        above = np.stack([pair[0] for pair in ratios.values()])
        below = np.stack([pair[1] for pair in ratios.values()])
        return cls(tuple(ratios), above, below, pooled)

    @property
    def size(self) -> int:
        """How many questions there are."""
        return int(self.above.shape[1])

    @property
    def all_names(self) -> tuple[str, ...]:
        """The figures in the order of `values`."""
        return (*self.names, *self.pooled)

    def only(self, names: Sequence[str]) -> "Table":
        """The same questions with some of the figures."""
        kept = [at for at, name in enumerate(self.names) if name in names]
        pooled = {name: figure for name, figure in self.pooled.items() if name in names}
        shown = tuple(self.names[at] for at in kept)
        return Table(shown, self.above[kept], self.below[kept], pooled)

    def values(self, rows: Rows) -> Floats:
        """Every figure over some questions; NaN where it has no meaning."""
        ratios = divide(self.above[:, rows].sum(axis=1), self.below[:, rows].sum(axis=1))
        return np.append(ratios, [figure.value(rows) for figure in self.pooled.values()])

    def counts(self, rows: Rows) -> list[int]:
        """How many of some questions each figure is about."""
        ratios = [int(count) for count in (self.below[:, rows] > 0).sum(axis=1)]
        pooled = [
            int((~np.isnan(figure.predicted[rows])).any(axis=1).sum())
            for figure in self.pooled.values()
        ]
        return ratios + pooled

    def each(self, name: str) -> Floats:
        """One ratio question by question; NaN where it has no meaning."""
        at = self.names.index(name)
        return divide(self.above[at], self.below[at])


def divide(above: Floats, below: Floats) -> Floats:
    """Above through below; NaN where there is nothing below."""
    result = np.full(above.shape, np.nan)
    np.divide(above, below, out=result, where=below > 0)
    return result


def intervals(table: Table, rows: Rows) -> tuple[Floats, Floats]:
    """The 95 % bootstrap interval of every figure, the questions drawn again with replacement."""
    return _tails(np.stack([table.values(drawn) for drawn in _draws(rows)]))


def paired_intervals(first: Table, second: Table, rows: Rows) -> tuple[Floats, Floats]:
    """The same of the differences second - first, both over the very same draws."""
    draws = [second.values(drawn) - first.values(drawn) for drawn in _draws(rows)]
    return _tails(np.stack(draws))


def _draws(rows: Rows) -> list[Rows]:
    random = np.random.default_rng(SEED)
    return [rows[random.integers(0, len(rows), len(rows))] for _ in range(RESAMPLES)]


def _tails(draws: Floats) -> tuple[Floats, Floats]:
    low, high = np.full(draws.shape[1], np.nan), np.full(draws.shape[1], np.nan)
    known = ~np.isnan(draws).all(axis=0)
    if known.any():
        low[known], high[known] = np.nanpercentile(draws[:, known], _TAILS, axis=0)
    return low, high


def area_under_roc(score: Floats, true: Floats) -> float:
    """The chance that a true one scores above one that is not; a tie counts half."""
    ups, downs = score[true > 0], np.sort(score[true <= 0])
    if not len(ups) or not len(downs):
        return float("nan")
    below = np.searchsorted(downs, ups, "left") + np.searchsorted(downs, ups, "right")
    return float(below.mean() / 2 / len(downs))


def calibration_bins(predicted: Floats, true: Floats) -> list[tuple[float, float, int]]:
    """Ten bins of equal size, from the least to the surest: mean predicted, share true, size."""
    order = np.lexsort((true, predicted))  # a tie must not depend on the questions' order
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    return [(float(predicted[part].mean()), float(true[part].mean()), len(part)) for part in parts]


def calibration_error(predicted: Floats, true: Floats) -> float:
    """How far predictions lie from what came true, over ten bins of equal size."""
    if not len(predicted):
        return float("nan")
    bins = calibration_bins(predicted, true)
    return sum(abs(said - came) * size for said, came, size in bins) / len(predicted)


def brier_skill(predicted: Floats, true: Floats) -> float:
    """How much better than always saying the base rate: 1 is perfect, 0 no better."""
    if not len(predicted) or not 0.0 < true.mean() < 1.0:
        return float("nan")
    return 1.0 - float(((predicted - true) ** 2).mean() / true.var())
