"""Metrics of results against the evidence of their questions, with bootstrap intervals.

A `MetricTable` has a column for every question. Most metrics are ratios of two sums over questions,
with the mean as the simplest case; the others compare predictions with outcomes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from memrecall.evaluation.datasets import Question, QuestionResult, RecallRecord

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


def intervals(
    table: MetricTable, rows: RowNumbers, *, before: MetricTable | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the 95 % bootstrap interval of every metric, or of its gain over an earlier table."""
    random = np.random.default_rng(SEED)
    resampled = []
    for _ in range(RESAMPLES):
        sample = rows[random.integers(0, len(rows), len(rows))]
        values = table.values(sample)
        # Both tables are measured on the same sample: differences vary less than scores.
        resampled.append(values if before is None else values - before.values(sample))
    samples = np.stack(resampled)
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


CUTS = (1, 5, 10, 20)
GAIN_CUT = 10
THRESHOLD = 0.5  # the default threshold, whose effect is measured
CALIBRATION_DEPTH = 20  # results per question that calibration covers
LOWER_IS_BETTER = frozenset({"ece", "answer_ece", "model_calls", "tool_calls", "prompt_characters"})
SUMMARY_METRICS = {
    "search": (
        *("recall@1", "recall@5", "recall@10", "recall@20", "hit@10", "mrr", "ndcg@10"),
        *("abstention_accuracy", "auroc", "answer_ece"),
    ),
    "recall": ("f1", "precision", "recall", "recall@10", "abstention_accuracy", "auroc", "ece"),
}
MAIN_METRICS = {"search": ("recall@10",), "recall": ("f1", "abstention_accuracy")}

_Pairs = Sequence[tuple[Question, QuestionResult]]
_Ratios = dict[str, tuple[FloatArray, FloatArray]]
_Pools = dict[str, PooledMetric]


def measure(questions: Sequence[Question], answers: Sequence[QuestionResult]) -> MetricTable:
    """Return the table of all metrics that are defined for these results."""
    pairs = list(zip(questions, answers, strict=True))
    counted = _column(bool(question.evidence) for question in questions)
    ratios: _Ratios = {}
    for cut in CUTS:
        shares = _column(_share_found(question, answer.keys[:cut]) for question, answer in pairs)
        ratios[f"recall@{cut}"] = shares, counted
        ratios[f"hit@{cut}"] = (shares > 0).astype(np.float64), counted
        ratios[f"all@{cut}"] = (shares == 1).astype(np.float64), counted
    ratios["mrr"] = _column(_reciprocal_rank(*pair) for pair in pairs), counted
    ratios[f"ndcg@{GAIN_CUT}"] = _column(_gain(*pair) for pair in pairs), counted
    records = [answer.recalled for answer in answers if answer.recalled]
    if len(records) == len(answers):
        more, pools = _measure_recalls(questions, records)
    else:
        more, pools = _measure_searches(pairs)
    return MetricTable.of(ratios | more, pools)


def _column(values: Iterable[float]) -> FloatArray:
    return np.fromiter(values, np.float64)


def _share_found(question: Question, keys: Collection[str]) -> float:
    """Return the share of a question's evidence that is among the keys; 0 without evidence."""
    return len(set(keys).intersection(question.evidence)) / max(len(question.evidence), 1)


def _reciprocal_rank(question: Question, answer: QuestionResult) -> float:
    ranks = (rank for rank, key in enumerate(answer.keys, 1) if key in question.evidence)
    return 1.0 / next(ranks, float("inf"))


def _gain(question: Question, answer: QuestionResult) -> float:
    """Return the normalised discounted cumulative gain with binary relevance."""
    is_hit = [key in question.evidence for key in answer.keys[:GAIN_CUT]]
    if not any(is_hit):
        return 0.0
    discounts = 1.0 / np.log2(np.arange(2, GAIN_CUT + 2))
    best = discounts[: len(question.evidence)].sum()
    return float(discounts[: len(is_hit)][is_hit].sum() / best)


def _measure_searches(pairs: _Pairs) -> tuple[_Ratios, _Pools]:
    """Return what only searches have: their scores, and the calibration of their probabilities."""
    kept: list[int] = []  # evidence among the first ten results, above the threshold
    found: list[int] = []  # evidence among the first ten results
    above: list[int] = []  # results above the threshold
    for question, answer in pairs:
        scores = [score for key, score in answer.retrieved[:10] if key in question.evidence]
        kept.append(sum(score is not None and score >= THRESHOLD for score in scores))
        found.append(sum(score is not None and score >= 0.0 for score in scores))
        above.append(sum(score is not None and score >= THRESHOLD for _, score in answer.retrieved))
    ratios: _Ratios = {
        f"kept@{THRESHOLD}": (_column(kept), _column(found)),
        f"results@{THRESHOLD}": (_column(above), np.ones(len(pairs))),
    }
    with_results = [answer for _, answer in pairs if answer.retrieved]
    if not with_results or any(answer.probabilities is None for answer in with_results):
        return ratios, {}  # only hybrid searches give probabilities
    # The first results of each question: whether each is evidence.
    predicted = np.full((len(pairs), CALIBRATION_DEPTH), np.nan)
    true = np.zeros((len(pairs), CALIBRATION_DEPTH))
    for row, (question, answer) in enumerate(pairs):
        results = zip(answer.keys, answer.probabilities or (), strict=False)
        for rank, (key, probability) in enumerate(islice(results, CALIBRATION_DEPTH)):
            predicted[row, rank] = probability
            true[row, rank] = key in question.evidence
    pools = {
        "ece": PooledMetric(predicted, true, calibration_error),
        "brier_skill": PooledMetric(predicted, true, brier_skill),
    }
    answerable = _column(question.answerable for question, _ in pairs)
    if answerable.all():
        return ratios, pools
    # The confidence of a search that the store has an answer at all is the relevance of its best
    # result. Its probability is about one row: it is lower if several rows may be the evidence.
    confidence = _column(
        max((score or 0.0 for _, score in answer.retrieved), default=0.0) for _, answer in pairs
    )
    ratios |= _abstention_ratios(confidence < THRESHOLD, answerable)
    pools |= {
        "auroc": PooledMetric(confidence[:, None], answerable[:, None], area_under_roc),
        "answer_ece": PooledMetric(confidence[:, None], answerable[:, None], calibration_error),
    }
    return ratios, pools


def _measure_recalls(
    questions: Sequence[Question], records: Sequence[RecallRecord]
) -> tuple[_Ratios, _Pools]:
    """Return what only recalls have: the quality of their handoffs, confidence and cost."""
    ones = np.ones(len(records))
    handed_off = [set(record.relevant_memory_keys) for record in records]
    keys = _column(map(len, handed_off))
    hits = _column(
        len(own.intersection(question.evidence))
        for question, own in zip(questions, handed_off, strict=True)
    )
    evidence = _column(len(question.evidence) for question in questions)
    answerable = _column(question.answerable for question in questions)
    precision, recall, f1 = (
        np.nan_to_num(divide(answerable * numerators, denominators))
        for numerators, denominators in (
            (hits, keys),
            (hits, evidence),
            (2 * hits, keys + evidence),
        )
    )
    ratios: _Ratios = {
        "precision": (precision, answerable),
        "recall": (recall, answerable),
        "f1": (f1, answerable),
        "keys": (keys, ones),
        # An empty handoff counts as an abstention, whatever its stop reason.
        **_abstention_ratios(keys == 0, answerable),
        "model_calls": (_column(record.model_calls for record in records), ones),
        "tool_calls": (_column(record.tool_calls for record in records), ones),
        "prompt_characters": (_column(record.prompt_characters for record in records), ones),
    }
    confidence = _column(record.confidence for record in records)[:, None]
    is_right = (answerable * hits > 0).astype(np.float64)[:, None]
    pools = {
        "auroc": PooledMetric(1.0 - confidence, 1.0 - answerable[:, None], area_under_roc),
        "ece": PooledMetric(confidence, is_right, calibration_error),
    }
    return ratios, pools


def _abstention_ratios(is_abstention: npt.NDArray[np.bool_], answerable: FloatArray) -> _Ratios:
    ones = np.ones(len(answerable))
    abstained = is_abstention.astype(np.float64)
    unanswerable = (answerable == 0).astype(np.float64)
    return {
        "abstained": (abstained, ones),
        "abstention_precision": (abstained * unanswerable, abstained),
        "abstention_recall": (abstained * unanswerable, unanswerable),
        "abstention_accuracy": ((abstained == unanswerable).astype(np.float64), ones),
    }


def categories(questions: Sequence[Question]) -> dict[str, RowNumbers]:
    """Return the rows of every category, sorted by name."""
    labels = np.array([question.category for question in questions])
    return {str(name): np.flatnonzero(labels == name) for name in np.unique(labels) if name}


def summarize(
    questions: Sequence[Question],
    answers: Sequence[QuestionResult],
    seconds: Sequence[float],
) -> dict[str, Any]:
    """Return all metrics with intervals, overall and by category, and the latency."""
    if not answers:
        return {}
    table = measure(questions, answers)
    p50, p95 = np.percentile(np.array(seconds), (50, 95))
    return {
        "overall": _metric_fields(table, np.arange(table.size)),
        "categories": {
            name: _metric_fields(table, rows) for name, rows in categories(questions).items()
        },
        "latency": {"p50": _round(p50), "p95": _round(p95)},
    }


def _metric_fields(table: MetricTable, rows: RowNumbers) -> dict[str, dict[str, float | int]]:
    low, high = intervals(table, rows)
    columns = (table.all_names, table.values(rows), low, high, table.counts(rows))
    return {
        name: {"value": _round(value), "low": _round(a), "high": _round(b), "questions": n}
        for name, value, a, b, n in zip(*columns, strict=True)
        if not np.isnan(value)
    }


def _round(value: float) -> float:
    return round(float(value), 6)


def format_value(value: float, sign: str = "") -> str:
    """Return a metric with three digits; a count of 100 or more as a whole number."""
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3f}"


def format_interval(metric: Mapping[str, float] | None) -> str:
    """Return a metric with its interval; a dash if it is undefined."""
    if metric is None:
        return "–"
    value, low, high = (format_value(metric[part]) for part in ("value", "low", "high"))
    return f"{value} ({low} – {high})"
