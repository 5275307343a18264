"""Two convex fits: the weights of hybrid search, and the probability of a score.

Both use Newton's method, so that the same examples give the same numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks.ranking_evidence import Example, LabelledSet
from memrecall.evaluation.metrics import CALIBRATION_DEPTH
from memrecall.evaluation.statistics import brier_skill, calibration_error
from memrecall.search.ranking import calibration
from memrecall.search.ranking.scores import FEATURES, HYBRID, RankingWeights

Floats = npt.NDArray[np.float64]
Slope = tuple[float, Floats, Floats]  # a value, its slope and its curvature

# Features that the sets hardly exercise are not fitted: most rows are notes and events, not
# dialogue, and there are too many for coverage to matter beside the standard scores.
HELD = ("neighbours", "speaker", "voice", "asks", "coverage", "exact", "cosine")
RIVALS = 300  # number of best wrong candidates per question in a fit
FIRST = 10
DEPTH = calibration.RIVALS  # results of a question that a threshold is applied to
PENALTY = 3e-3  # L2 penalty: correlated features share their weight
_STEPS = 50


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The coefficients that turn a share of the scores into a probability."""

    share: float
    lone: float
    timed: float
    bias: float


COMMITTED = Coefficients(calibration.SHARE, calibration.LONE, calibration.TIMED, calibration.BIAS)


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
        return _penalised(value, slope, curvature, weights, np.ones_like(weights))


def _penalised(value: float, slope: Floats, curvature: Floats, point: Floats, on: Floats) -> Slope:
    small = PENALTY * on
    return (
        value + 0.5 * float(np.sum(small * point * point)),
        slope + small * point,
        curvature + np.diag(small),
    )


def make_lists(sets: Sequence[LabelledSet], fitted: Sequence[str], held: Sequence[str]) -> Lists:
    """Return the questions that have evidence among their candidates, with the best negatives."""
    fixed = _vector(HYBRID, held)
    parts, offsets, target, weight = [], [], [], []
    for labelled in sets:
        answerable = [example for example in labelled.examples if example.right.any()]
        for example in answerable:
            _, order = example.ranked(HYBRID)
            at = np.union1d(order[:RIVALS], np.flatnonzero(example.right))
            parts.append(_columns(example, at, fitted))
            offsets.append(_columns(example, at, held) @ fixed)
            target.append(example.right[at] / example.right.sum())
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


def _columns(example: Example, at: npt.NDArray[np.intp], names: Sequence[str]) -> Floats:
    return np.stack([example.evidence[name][at] for name in names], axis=1).astype(np.float64)


def _vector(weights: RankingWeights, names: Sequence[str]) -> Floats:
    return np.array([getattr(weights, name) for name in names], dtype=np.float64)


def fit_weights(sets: Sequence[LabelledSet], held: Sequence[str] = HELD) -> RankingWeights:
    """Return the weights that maximise the likelihood; fixed ones and the bias are unchanged."""
    fitted = [name for name in FEATURES if name not in held]
    lists = make_lists(sets, fitted, held)
    solution = minimise(lists.loss, _vector(HYBRID, fitted))
    return replace(HYBRID, **dict(zip(fitted, solution.tolist(), strict=True)))


def recall(labelled: LabelledSet, weights: RankingWeights) -> float:
    """Return the mean share of a question's evidence among the first ten."""
    shares = []
    for example in labelled.examples:
        if example.wanted:
            _, order = example.ranked(weights)
            shares.append(float(example.right[order[:FIRST]].sum()) / example.wanted)
    return float(np.mean(shares))


@dataclass(frozen=True, slots=True)
class Results:
    """The first results of all questions of a set, one row each, for calibration."""

    features: Floats  # share of the score in logarithms, lone rows, rows in a named time, 1
    right: npt.NDArray[np.bool_]
    rank: npt.NDArray[np.intp]  # from 0
    questions: int

    @classmethod
    def of(cls, labelled: LabelledSet) -> "Results":
        """Return the results ranked with the current weights."""
        features, right, rank = [], [], []
        for example in labelled.examples:
            scores, order = example.ranked(HYBRID)
            first = order[:DEPTH]
            features.append(_calibration_features(example, scores[first].astype(np.float64), first))
            right.append(example.right[first])
            rank.append(np.arange(len(first)))
        return cls(
            np.concatenate(features),
            np.concatenate(right),
            np.concatenate(rank),
            len(labelled.examples),
        )

    def chances(self, coefficients: Coefficients) -> Floats:
        """Return the probability that each result is correct."""
        return _sigmoid(self.features @ np.array(list(asdict(coefficients).values())))


def _calibration_features(example: Example, scores: Floats, first: npt.NDArray[np.intp]) -> Floats:
    """Return the features of `calibration.calibrate`, before its coefficients."""
    total = np.logaddexp.reduce(np.append(scores, calibration.NONE_OF_THEM))
    top_rows = first[: calibration.LOOKED_AT]
    columns = np.ones((len(first), 4))
    columns[:, 0] = scores - total
    if len(top_rows):
        columns[:, 1] = example.evidence["lone"][top_rows].mean()
        columns[:, 2] = example.evidence["time"][top_rows].mean()
    return columns


def _sigmoid(values: Floats) -> Floats:
    chances: Floats = 1 / (1 + np.exp(-values))
    return chances


def fit_calibration(sets: Sequence[Results]) -> Coefficients:
    """Fit a logistic regression over the first twenty results of each question."""
    judged = [results.rank < CALIBRATION_DEPTH for results in sets]
    features = np.concatenate([r.features[at] for r, at in zip(sets, judged, strict=True)])
    right = np.concatenate([r.right[at] for r, at in zip(sets, judged, strict=True)])
    weight = np.concatenate([np.full(at.sum(), 1 / at.sum() / len(sets)) for at in judged])

    def loss(point: Floats) -> Slope:
        logits = features @ point
        chance = _sigmoid(logits)
        value = float(np.sum(weight * (np.logaddexp(0, logits) - right * logits)))
        curvature = features.T @ ((weight * chance * (1 - chance))[:, None] * features)
        slope = features.T @ (weight * (chance - right))
        return _penalised(value, slope, curvature, point, np.array([1.0, 1.0, 1.0, 0.0]))

    return Coefficients(*minimise(loss, np.array([1.0, 0.0, 0.0, 0.0])).tolist())


def judge(results: Results, coefficients: Coefficients) -> dict[str, float]:
    """Measure the calibration of the first twenty results, and the effect of threshold 0.5."""
    chances = results.chances(coefficients)
    judged, right = results.rank < CALIBRATION_DEPTH, results.right.astype(np.float64)
    passed = chances >= calibration.HALF
    among_first = results.right & (results.rank < FIRST)
    return {
        "ece": calibration_error(chances[judged], right[judged]),
        "brier_skill": brier_skill(chances[judged], right[judged]),
        "kept@0.5": float(passed[among_first].mean()),
        "results@0.5": float(passed.sum()) / results.questions,
    }
