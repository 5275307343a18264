"""The fit of the calibration: two logistic regressions whose probabilities are multiplied.

The first tells questions that the store answers from foreign ones; the second tells which of the
first rows is the answer, if there is one. Both use Newton's method.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.evaluation_sets import source_of
from benchmarks.ranking_evidence import Example, LabelledSet, Mask
from benchmarks.ranking_fits import FIRST, Floats, Slope, minimise, penalised
from memrecall.evaluation.metrics import CALIBRATION_DEPTH, area_under_roc, calibration_error
from memrecall.search.ranking import scores as calibration
from memrecall.search.ranking.scores import HYBRID, AnswerWeights, RowWeights

_PENALTY = 1e-3  # for one standard deviation of a feature


class CalibrationWeights(NamedTuple):
    """The weights of both probabilities."""

    answer: AnswerWeights
    row: RowWeights


COMMITTED = CalibrationWeights(calibration.ANSWER, calibration.ROW)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The features of one question's calibration, and which of its rows are right."""

    answer: Floats  # in the order of `AnswerWeights`
    rows: Floats  # best rows first, columns in the order of `RowWeights`
    right: Mask
    is_answerable: bool
    source: str

    @classmethod
    def of(cls, example: Example) -> "Outcome":
        """Rank the candidates with the committed weights."""
        scores, order = example.ranked(HYBRID)
        best = order[: calibration.RIVALS]
        ranked = scores[best].astype(np.float64)
        support = example.support
        leads = calibration.discount_time(scores, example.evidence, support.known)[best]
        return cls(
            np.array(tuple(calibration.answer_features(leads, support))),
            _row_features(example, ranked, best),
            example.right[best],
            example.wanted > 0,
            example.source,
        )

    @property
    def is_found(self) -> bool:
        """Whether evidence is among the first ten."""
        return bool(self.right[:FIRST].any())

    def probability(self, weights: CalibrationWeights) -> Floats:
        """Return the probability that each row is evidence."""
        return self._answerable(weights) * _sigmoid(self.rows @ np.array(weights.row))

    def relevance(self, weights: CalibrationWeights) -> Floats:
        """Return the relevance of each row, to which a threshold applies."""
        probability = self.probability(weights)
        return probability / (probability + calibration.HALF_RELEVANT)

    def top_relevance(self, weights: CalibrationWeights) -> float:
        """Return the relevance of the first row; 0 without any."""
        return float(self.relevance(weights)[0]) if len(self.rows) else 0.0

    def _answerable(self, weights: CalibrationWeights) -> float:
        return float(_sigmoid(np.array([self.answer @ np.array(weights.answer)]))[0])


def _row_features(example: Example, ranked: Floats, best: npt.NDArray[np.intp]) -> Floats:
    """Return the features that `calibration.calibrate` gives each row."""
    first = best[: calibration.TOP_ROWS]
    columns = np.ones((len(best), len(RowWeights._fields)))
    if len(best):
        total = np.logaddexp.reduce(np.append(ranked, calibration.NO_ANSWER_SCORE))
        columns[:, 0] = ranked - total
        many = math.log(max(example.support.rows, 2))
        columns[:, 1] = example.evidence["lone"][first].mean() * many
        columns[:, 2] = example.evidence["time"][first].mean()
    return columns


def _sigmoid(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


@dataclass(frozen=True, slots=True)
class CalibrationSet:
    """The calibration features of a set's own and foreign questions."""

    name: str
    own: tuple[Outcome, ...]
    foreign: tuple[Outcome, ...]

    @classmethod
    def of(cls, labelled: LabelledSet) -> "CalibrationSet":
        """Return the outcomes of all questions of a set."""
        own = tuple(map(Outcome.of, labelled.examples))
        return cls(labelled.name, own, tuple(map(Outcome.of, labelled.foreign)))

    def without(self, source: str) -> "CalibrationSet":
        """Return the set without foreign questions of a source."""
        foreign = tuple(outcome for outcome in self.foreign if outcome.source != source)
        return CalibrationSet(self.name, self.own, foreign)


def leave_out(sets: Sequence[CalibrationSet], source: str) -> list[CalibrationSet]:
    """Return sets without anything of a source: neither its sets nor its questions."""
    return [given.without(source) for given in sets if source_of(given.name) != source]


def fit_calibration(sets: Sequence[CalibrationSet]) -> CalibrationWeights:
    """Fit both probabilities."""
    return CalibrationWeights(fit_answer(sets), fit_row(sets))


def fit_answer(sets: Sequence[CalibrationSet]) -> AnswerWeights:
    """Fit the probability that a store answers, to equal parts of own and foreign questions.

    Own questions count if evidence is among their first ten: otherwise nothing that was found shows
    that there is an answer.
    """
    features, truth, weight = [], [], []
    for given in sets:
        found = [outcome for outcome in given.own if outcome.is_found]
        for outcomes, is_own in ((found, 1.0), (given.foreign, 0.0)):
            features += [outcome.answer for outcome in outcomes]
            truth += [is_own] * len(outcomes)
            weight += [1 / len(outcomes) for _ in outcomes]
    true, weights = np.array(truth), np.array(weight)
    for kind in (0.0, 1.0):
        weights[true == kind] /= max(weights[true == kind].sum(), 1e-9)
    return AnswerWeights(*_fit_logistic(np.stack(features), true, weights).tolist())


def fit_row(sets: Sequence[CalibrationSet]) -> RowWeights:
    """Fit the probability of the first twenty rows, to questions that have an answer."""
    features, truth, weight = [], [], []
    for given in sets:
        answerable = [item for item in given.own if item.is_answerable and len(item.rows)]
        for outcome in answerable:
            rows = outcome.rows[:CALIBRATION_DEPTH]
            features.append(rows)
            truth.append(outcome.right[:CALIBRATION_DEPTH])
            weight.append(np.full(len(rows), 1 / len(rows) / len(answerable)))
    columns, weights = np.concatenate(features), np.concatenate(weight)
    true = np.concatenate(truth).astype(np.float64)
    return RowWeights(*_fit_logistic(columns, true, weights / weights.sum()).tolist())


def _fit_logistic(features: Floats, true: Floats, weight: Floats) -> Floats:
    """Return the weights of a logistic regression; the last column is the constant."""
    penalty = _PENALTY * np.maximum(features.var(axis=0), 1e-6)

    def loss(point: Floats) -> Slope:
        logits = features @ point
        chance = _sigmoid(logits)
        value = float(np.sum(weight * (np.logaddexp(0, logits) - true * logits)))
        curvature = features.T @ ((weight * chance * (1 - chance))[:, None] * features)
        slope = features.T @ (weight * (chance - true))
        return penalised(value, slope, curvature, point, penalty)

    return minimise(loss, np.zeros(features.shape[1]))


def judge(given: CalibrationSet, weights: CalibrationWeights) -> dict[str, float]:
    """Measure the probabilities of own questions, and how thresholds treat foreign ones."""
    first = slice(CALIBRATION_DEPTH)
    chances = [outcome.probability(weights)[first] for outcome in given.own]
    right = [outcome.right[first].astype(np.float64) for outcome in given.own]
    own = np.array([o.top_relevance(weights) for o in given.own if o.is_found])
    foreign = np.array([o.top_relevance(weights) for o in given.foreign])
    kept = [o.relevance(weights)[:FIRST][o.right[:FIRST]] >= 0.5 for o in given.own]
    figures = {"ece": calibration_error(np.concatenate(chances), np.concatenate(right))}
    if len(foreign):
        is_own = np.append(np.ones(len(own)), np.zeros(len(foreign)))
        figures["auroc"] = area_under_roc(np.append(own, foreign), is_own)
        figures["foreign<0.5"] = float((foreign < 0.5).mean())
    else:
        figures |= {"auroc": math.nan, "foreign<0.5": math.nan}
    return figures | {"kept@0.5": float(np.concatenate(kept).mean())}
