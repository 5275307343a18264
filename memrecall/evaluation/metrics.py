"""Metrics of results against the evidence of their questions."""

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any

import numpy as np

from memrecall.evaluation.questions import Question, QuestionResult
from memrecall.evaluation.statistics import (
    Floats,
    MetricTable,
    PooledMetric,
    Rows,
    area_under_roc,
    brier_skill,
    calibration_error,
    intervals,
)

CUTS = (1, 5, 10, 20)
GAIN_CUT = 10
THRESHOLD = 0.5  # the default threshold, whose effect is measured
CALIBRATION_DEPTH = 20  # results per question that calibration covers
LOWER_IS_BETTER = frozenset({"ece", "model_calls", "tool_calls", "prompt_characters"})
SUMMARY_METRICS = {
    "search": ("recall@1", "recall@5", "recall@10", "recall@20", "hit@10", "mrr", "ndcg@10"),
    "recall": ("f1", "precision", "recall", "recall@10", "abstention_accuracy", "auroc", "ece"),
}
MAIN_METRICS = {"search": ("recall@10",), "recall": ("f1", "abstention_accuracy")}

Pair = tuple[Question, QuestionResult]
_Ratios = dict[str, tuple[Floats, Floats]]


def measure(questions: Sequence[Question], answers: Sequence[QuestionResult]) -> MetricTable:
    """Return the table of all metrics that are defined for these results."""
    pairs = list(zip(questions, answers, strict=True))
    ratios: _Ratios = {}
    for cut in CUTS:
        shares, counted = _ratio(pairs, lambda q, a, k=cut: key_recall(a.keys[:k], q))
        ratios[f"recall@{cut}"] = shares, counted
        ratios[f"hit@{cut}"] = (shares > 0).astype(np.float64), counted
        ratios[f"all@{cut}"] = (shares == 1).astype(np.float64), counted
    ratios["mrr"] = _ratio(pairs, _reciprocal_rank)
    ratios[f"ndcg@{GAIN_CUT}"] = _ratio(pairs, _gain)
    if all(answer.recalled for answer in answers):
        return MetricTable.of(ratios | _recall_ratios(pairs), _recall_pools(pairs))
    return MetricTable.of(ratios | _search_ratios(pairs), _search_pools(pairs))


def _column(pairs: Sequence[Pair], metric: Callable[[Question, QuestionResult], float]) -> Floats:
    return np.array([metric(question, answer) for question, answer in pairs], dtype=np.float64)


def _ratio(
    pairs: Sequence[Pair], metric: Callable[..., float], *, answerable: bool = False
) -> tuple[Floats, Floats]:
    """Return numerators and denominators of a mean over the questions with evidence."""
    counted = _column(pairs, lambda q, a: q.answerable if answerable else bool(q.evidence))
    values = [
        metric(*pair) if is_counted else 0.0
        for pair, is_counted in zip(pairs, counted, strict=True)
    ]
    return np.array(values, dtype=np.float64), counted


def _reciprocal_rank(question: Question, answer: QuestionResult) -> float:
    ranks = (rank for rank, key in enumerate(answer.keys, 1) if key in question.evidence)
    return 1.0 / next(ranks, float("inf"))


def _gain(question: Question, answer: QuestionResult) -> float:
    """Return the normalised discounted cumulative gain with binary relevance."""
    discounts = 1.0 / np.log2(np.arange(2, GAIN_CUT + 2))
    is_hit = [key in question.evidence for key in answer.keys[:GAIN_CUT]]
    best = discounts[: len(question.evidence)].sum()
    return float(discounts[: len(is_hit)][is_hit].sum() / best) if is_hit else 0.0


def _search_ratios(pairs: Sequence[Pair]) -> _Ratios:
    above = _column(pairs, lambda q, a: _evidence_in_ten(q, a, THRESHOLD))
    results = _column(pairs, lambda q, a: _count_above(a.retrieved, THRESHOLD))
    return {
        f"kept@{THRESHOLD}": (above, _column(pairs, lambda q, a: _evidence_in_ten(q, a, 0.0))),
        f"results@{THRESHOLD}": (results, np.ones(len(pairs))),
    }


def _evidence_in_ten(question: Question, answer: QuestionResult, threshold: float) -> int:
    hits = [item for item in answer.retrieved[:10] if item[0] in question.evidence]
    return _count_above(hits, threshold)


def _count_above(retrieved: Sequence[tuple[str, float | None]], threshold: float) -> int:
    return sum(score is not None and score >= threshold for _, score in retrieved)


def _search_pools(pairs: Sequence[Pair]) -> dict[str, PooledMetric]:
    if not pairs or any(answer.probabilities is None for _, answer in pairs):
        return {}
    predicted, true = result_outcomes(pairs, lambda answer: answer.probabilities or ())
    return {
        "ece": PooledMetric(predicted, true, calibration_error),
        "brier_skill": PooledMetric(predicted, true, brier_skill),
    }


def result_outcomes(
    pairs: Sequence[Pair], predictions: Callable[[QuestionResult], Sequence[float | None]]
) -> tuple[Floats, Floats]:
    """Return predictions of the first results of each question, and if they are evidence."""
    predicted = np.full((len(pairs), CALIBRATION_DEPTH), np.nan)
    true = np.zeros((len(pairs), CALIBRATION_DEPTH))
    for row, (question, answer) in enumerate(pairs):
        predicted_keys = zip(answer.keys, predictions(answer), strict=False)
        for rank, (key, prediction) in enumerate(islice(predicted_keys, CALIBRATION_DEPTH)):
            predicted[row, rank] = np.nan if prediction is None else prediction
            true[row, rank] = key in question.evidence
    return predicted, true


def _recall_ratios(pairs: Sequence[Pair]) -> _Ratios:
    ones = np.ones(len(pairs))
    unanswerable = _column(pairs, lambda q, a: not q.answerable)
    # An empty handoff counts as an abstention, whatever its stop reason.
    abstained = _column(pairs, lambda q, a: not _handed_off(a))
    return {
        "precision": _ratio(pairs, lambda q, a: _key_precision(_handed_off(a), q), answerable=True),
        "recall": _ratio(pairs, lambda q, a: key_recall(_handed_off(a), q), answerable=True),
        "f1": _ratio(pairs, lambda q, a: key_f1(_handed_off(a), q), answerable=True),
        "keys": (_column(pairs, lambda q, a: len(_handed_off(a))), ones),
        "abstained": (abstained, ones),
        "abstention_precision": (abstained * unanswerable, abstained),
        "abstention_recall": (abstained * unanswerable, unanswerable),
        "abstention_accuracy": ((abstained == unanswerable).astype(np.float64), ones),
        "model_calls": (_column(pairs, lambda q, a: _recalled(a).model_calls), ones),
        "tool_calls": (_column(pairs, lambda q, a: _recalled(a).tool_calls), ones),
        "prompt_characters": (_column(pairs, lambda q, a: _recalled(a).prompt_characters), ones),
    }


def _recall_pools(pairs: Sequence[Pair]) -> dict[str, PooledMetric]:
    confidence, right = confidence_outcomes(pairs)
    unanswerable = _column(pairs, lambda q, a: not q.answerable)[:, None]
    return {
        "auroc": PooledMetric(1.0 - confidence, unanswerable, area_under_roc),
        "ece": PooledMetric(confidence, right, calibration_error),
    }


def confidence_outcomes(pairs: Sequence[Pair]) -> tuple[Floats, Floats]:
    """Return the confidence of each recall, and if it handed off any evidence."""
    confidence = _column(pairs, lambda q, a: _recalled(a).confidence)
    right = _column(pairs, lambda q, a: q.answerable and not _handed_off(a).isdisjoint(q.evidence))
    return confidence[:, None], right[:, None]


def abstention_curve(pairs: Sequence[Pair]) -> list[tuple[float, float]]:
    """Return false and true abstention rates for every threshold of the confidence."""
    confidence = _column(pairs, lambda q, a: _recalled(a).confidence)
    answerable = _column(pairs, lambda q, a: q.answerable) > 0
    if answerable.all() or not answerable.any():
        return []
    levels = [*np.unique(confidence).tolist(), 1.0 + 1e-9]
    below = [confidence < level for level in levels]
    return [(float(low[answerable].mean()), float(low[~answerable].mean())) for low in below]


def _recalled(answer: QuestionResult) -> Any:
    return answer.recalled


def _handed_off(answer: QuestionResult) -> frozenset[str]:
    return frozenset(_recalled(answer).relevant_memory_keys)


def _key_precision(keys: Collection[str], question: Question) -> float:
    return len(set(keys).intersection(question.evidence)) / len(keys) if keys else 0.0


def key_recall(keys: Collection[str], question: Question) -> float:
    """Return the share of a question's evidence that is among the keys."""
    return len(set(keys).intersection(question.evidence)) / len(question.evidence)


def key_f1(keys: Collection[str], question: Question) -> float:
    """Return the harmonic mean of the precision and the recall of distinct keys."""
    hits = len(set(keys).intersection(question.evidence))
    return 2.0 * hits / (len(keys) + len(question.evidence))


def categories(questions: Sequence[Question]) -> dict[str, Rows]:
    """Return the rows of every category, sorted by name."""
    names = sorted({question.category for question in questions} - {""})
    labels = np.array([question.category for question in questions])
    return {name: np.flatnonzero(labels == name) for name in names}


def summarize(
    questions: Sequence[Question], answers: Sequence[QuestionResult], seconds: Sequence[float]
) -> dict[str, Any]:
    """Return all metrics with intervals, overall and by category, and the latency."""
    if not answers:
        return {}
    table = measure(questions, answers)
    return {
        "overall": _metric_fields(table, np.arange(table.size)),
        "categories": {
            name: _metric_fields(table, rows) for name, rows in categories(questions).items()
        },
        "latency": latency(seconds),
    }


def _metric_fields(table: MetricTable, rows: Rows) -> dict[str, dict[str, float | int]]:
    low, high = intervals(table, rows)
    columns = (table.all_names, table.values(rows), low, high, table.counts(rows))
    return {
        name: {"value": _round(value), "low": _round(a), "high": _round(b), "questions": n}
        for name, value, a, b, n in zip(*columns, strict=True)
        if not np.isnan(value)
    }


def _round(value: float) -> float:
    return round(float(value), 6)


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 95th percentile of the latency in seconds."""
    p50, p95 = np.percentile(np.array(seconds), (50, 95))
    return {"p50": _round(p50), "p95": _round(p95)}
