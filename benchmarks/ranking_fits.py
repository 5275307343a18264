"""The fit of the weights of hybrid search: a softmax over the candidates of each question.

It uses Newton's method, so that the same examples give the same numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks.ranking_evidence import Example, LabelledSet
from memrecall.search.ranking.scores import FEATURES, HYBRID, RankingWeights

Floats = npt.NDArray[np.float64]
Slope = tuple[float, Floats, Floats]  # a value, its slope and its curvature
Ranker = Callable[[Example], npt.NDArray[np.intp]]  # candidates from best to worst

# These stay as they are, 0: standardised features say the same in large stores, and in a store of
# a few rows the calibration uses them.
HELD = ("coverage", "cosine", "lone")
FIRST = 10
PENALTY = 3e-3  # L2 penalty: correlated features share their weight
_STEPS = 50


def minimise(function: Callable[[Floats], Slope], start: Floats) -> Floats:
    """Return the minimum of a convex function by Newton's method with step halving."""
    point = start
    value, slope, curvature = function(point)
    for _ in range(_STEPS):
        step = np.linalg.solve(curvature, slope)
        while np.abs(step).max() > 1e-7:
            lower, next_slope, next_curvature = function(point - step)
            if lower <= value:
                break
            step = step / 2
        else:
            return point
        point, value, slope, curvature = point - step, lower, next_slope, next_curvature
    return point


def penalised(value: float, slope: Floats, curvature: Floats, point: Floats, on: Floats) -> Slope:
    """Add a square penalty; `on` is its strength for each coordinate."""
    return (
        value + 0.5 * float(np.sum(on * point * point)),
        slope + on * point,
        curvature + np.diag(on),
    )


@dataclass(frozen=True, slots=True)
class Lists:
    """The candidates of many questions, concatenated."""

    parts: Floats  # one row per candidate, one column per fitted feature
    offset: Floats  # each candidate's score from features that are not fitted
    starts: npt.NDArray[np.intp]
    question: npt.NDArray[np.intp]  # of each candidate
    target: Floats  # target probability of each candidate
    weight: Floats  # of each question

    def loss(self, weights: Floats) -> Slope:
        """Return the cross entropy of a softmax over each list."""
        scores = self.parts @ weights + self.offset
        scores -= np.maximum.reduceat(scores, self.starts)[self.question]
        odds = np.exp(scores)
        total = np.add.reduceat(odds, self.starts)[self.question]
        weight, probabilities = self.weight[self.question], odds / total
        value = -float(np.sum(weight * self.target * (scores - np.log(total))))
        expected = np.add.reduceat(probabilities[:, None] * self.parts, self.starts)
        slope = self.parts.T @ (weight * (probabilities - self.target))
        curvature = self.parts.T @ ((weight * probabilities)[:, None] * self.parts)
        curvature -= expected.T @ (self.weight[:, None] * expected)
        return penalised(value, slope, curvature, weights, np.full_like(weights, PENALTY))


def make_lists(sets: Sequence[LabelledSet], fitted: Sequence[str], held: Sequence[str]) -> Lists:
    """Return the questions that have evidence among their candidates. Sets count the same."""
    fixed = _vector(HYBRID, held)
    parts, offsets, target, weight = [], [], [], []
    for labelled in sets:
        answerable = [example for example in labelled.examples if example.right.any()]
        for example in answerable:
            parts.append(_columns(example, fitted))
            offsets.append(_columns(example, held) @ fixed)
            target.append(example.right / example.right.sum())
            weight.append(1.0 / len(answerable) / len(sets))
    sizes = [len(part) for part in target]
    starts = np.cumsum([0, *sizes[:-1]])
    return Lists(
        np.concatenate(parts),
        np.concatenate(offsets),
        starts,
        np.repeat(np.arange(len(sizes)), sizes),
        np.concatenate(target),
        np.array(weight),
    )


def _columns(example: Example, names: Sequence[str]) -> Floats:
    return np.stack([example.evidence[name] for name in names], axis=1).astype(np.float64)


def _vector(weights: RankingWeights, names: Sequence[str]) -> Floats:
    return np.array([getattr(weights, name) for name in names], dtype=np.float64)


def fit_weights(sets: Sequence[LabelledSet], held: Sequence[str] = HELD) -> RankingWeights:
    """Return the weights that maximise the likelihood; fixed ones and the bias are unchanged."""
    fitted = [name for name in FEATURES if name not in held]
    lists = make_lists(sets, fitted, held)
    solution = minimise(lists.loss, _vector(HYBRID, fitted))
    return replace(HYBRID, **dict(zip(fitted, solution.tolist(), strict=True)))


def by_weights(weights: RankingWeights) -> Ranker:
    """Return the ranking of a hybrid search."""
    return lambda example: example.ranked(weights)[1]


def by_words(example: Example) -> npt.NDArray[np.intp]:
    """Rank like a search by words alone."""
    return np.argsort(-example.words, kind="stable")


def by_meaning(example: Example) -> npt.NDArray[np.intp]:
    """Rank by the cosine alone."""
    return np.argsort(-example.evidence["cosine"], kind="stable")


def measure(labelled: LabelledSet, ranker: Ranker) -> dict[str, float]:
    """Return recall@10 and MRR over the questions that have evidence."""
    recalls, reciprocal_ranks = [], []
    for example in labelled.examples:
        if example.wanted:
            is_right = example.right[ranker(example)]
            recalls.append(float(is_right[:FIRST].sum()) / example.wanted)
            reciprocal_ranks.append(1 / (1 + int(is_right.argmax())) if is_right.any() else 0.0)
    return {"recall@10": float(np.mean(recalls)), "MRR": float(np.mean(reciprocal_ranks))}


def recall(labelled: LabelledSet, weights: RankingWeights) -> float:
    """Return the mean share of a question's evidence among the first ten."""
    return measure(labelled, by_weights(weights))["recall@10"]
