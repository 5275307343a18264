"""Metrics of results against the evidence of their questions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from memrecall.evaluation.questions import Question, QuestionResult
from memrecall.evaluation.statistics import (
    FloatArray,
    MetricTable,
    PooledMetric,
    RowNumbers,
    area_under_roc,
    brier_skill,
    calibration_error,
    intervals,
)

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

Pair = tuple[Question, QuestionResult]
_Ratios = dict[str, tuple[FloatArray, FloatArray]]


def measure(questions: Sequence[Question], answers: Sequence[QuestionResult]) -> MetricTable:
    """Return the table of all metrics that are defined for these results."""
    pairs = list(zip(questions, answers, strict=True))
    ratios: _Ratios = {}
    for cut in CUTS:
        shares, counted = _ratio(pairs, lambda q, a, k=cut: _key_recall(a.keys[:k], q))
        ratios[f"recall@{cut}"] = shares, counted
        ratios[f"hit@{cut}"] = (shares > 0).astype(np.float64), counted
        ratios[f"all@{cut}"] = (shares == 1).astype(np.float64), counted
    ratios["mrr"] = _ratio(pairs, _reciprocal_rank)
    ratios[f"ndcg@{GAIN_CUT}"] = _ratio(pairs, _gain)
    if all(answer.recalled for answer in answers):
        return MetricTable.of(ratios | _recall_ratios(pairs), _recall_pools(pairs))
    ratios, pools = ratios | _search_ratios(pairs), {}
    if _has_probabilities(answers):
        pools = _search_pools(pairs)
        if not all(question.answerable for question in questions):
            ratios |= _abstention_ratios(pairs, _best_relevance(pairs) < THRESHOLD)
            pools |= _answer_pools(pairs)
    return MetricTable.of(ratios, pools)


def _column(
    pairs: Sequence[Pair], metric: Callable[[Question, QuestionResult], float]
) -> FloatArray:
    return np.array([metric(question, answer) for question, answer in pairs], dtype=np.float64)


def _ratio(
    pairs: Sequence[Pair], metric: Callable[..., float], *, answerable: bool = False
) -> tuple[FloatArray, FloatArray]:
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


def _has_probabilities(answers: Sequence[QuestionResult]) -> bool:
    """Return True if every result has a probability, which only hybrid searches give."""
    with_results = [answer for answer in answers if answer.retrieved]
    return bool(with_results) and all(a.probabilities is not None for a in with_results)


def _best_relevance(pairs: Sequence[Pair]) -> FloatArray:
    """Return the confidence of each search that the store has an answer at all.

    That is the relevance of its best result, which is close to the chance that there is an answer.
    The probability is that of one row: it is lower if several rows may be the evidence.
    """
    return _column(pairs, lambda q, a: max((score or 0.0 for _, score in a.retrieved), default=0.0))


def _answer_pools(pairs: Sequence[Pair]) -> dict[str, PooledMetric]:
    confidence = _best_relevance(pairs)[:, None]
    answerable = _column(pairs, lambda q, a: q.answerable)[:, None]
    return {
        "auroc": PooledMetric(confidence, answerable, area_under_roc),
        "answer_ece": PooledMetric(confidence, answerable, calibration_error),
    }


def _search_pools(pairs: Sequence[Pair]) -> dict[str, PooledMetric]:
    """Return the calibration of the first results of each question: whether they are evidence."""
    predicted = np.full((len(pairs), CALIBRATION_DEPTH), np.nan)
    true = np.zeros((len(pairs), CALIBRATION_DEPTH))
    for row, (question, answer) in enumerate(pairs):
        results = zip(answer.keys, answer.probabilities or (), strict=False)
        for rank, (key, probability) in enumerate(islice(results, CALIBRATION_DEPTH)):
            predicted[row, rank] = probability
            true[row, rank] = key in question.evidence
    return {
        "ece": PooledMetric(predicted, true, calibration_error),
        "brier_skill": PooledMetric(predicted, true, brier_skill),
    }


def _recall_ratios(pairs: Sequence[Pair]) -> _Ratios:
    ones = np.ones(len(pairs))
    # An empty handoff counts as an abstention, whatever its stop reason.
    abstained = _column(pairs, lambda q, a: not _handed_off(a)) > 0
    return {
        "precision": _ratio(pairs, lambda q, a: _key_precision(_handed_off(a), q), answerable=True),
        "recall": _ratio(pairs, lambda q, a: _key_recall(_handed_off(a), q), answerable=True),
        "f1": _ratio(pairs, lambda q, a: _key_f1(_handed_off(a), q), answerable=True),
        "keys": (_column(pairs, lambda q, a: len(_handed_off(a))), ones),
        **_abstention_ratios(pairs, abstained),
        "model_calls": (_column(pairs, lambda q, a: _recalled(a).model_calls), ones),
        "tool_calls": (_column(pairs, lambda q, a: _recalled(a).tool_calls), ones),
        "prompt_characters": (_column(pairs, lambda q, a: _recalled(a).prompt_characters), ones),
    }


def _abstention_ratios(pairs: Sequence[Pair], is_abstention: npt.NDArray[np.bool_]) -> _Ratios:
    ones, abstained = np.ones(len(pairs)), is_abstention.astype(np.float64)
    unanswerable = _column(pairs, lambda q, a: not q.answerable)
    return {
        "abstained": (abstained, ones),
        "abstention_precision": (abstained * unanswerable, abstained),
        "abstention_recall": (abstained * unanswerable, unanswerable),
        "abstention_accuracy": ((abstained == unanswerable).astype(np.float64), ones),
    }


def _recall_pools(pairs: Sequence[Pair]) -> dict[str, PooledMetric]:
    confidence = _column(pairs, lambda q, a: _recalled(a).confidence)[:, None]
    is_right = _column(
        pairs, lambda q, a: q.answerable and not _handed_off(a).isdisjoint(q.evidence)
    )
    unanswerable = _column(pairs, lambda q, a: not q.answerable)[:, None]
    return {
        "auroc": PooledMetric(1.0 - confidence, unanswerable, area_under_roc),
        "ece": PooledMetric(confidence, is_right[:, None], calibration_error),
    }


def _recalled(answer: QuestionResult) -> Any:
    return answer.recalled


def _handed_off(answer: QuestionResult) -> frozenset[str]:
    return frozenset(_recalled(answer).relevant_memory_keys)


def _key_precision(keys: Collection[str], question: Question) -> float:
    return len(set(keys).intersection(question.evidence)) / len(keys) if keys else 0.0


def _key_recall(keys: Collection[str], question: Question) -> float:
    """Return the share of a question's evidence that is among the keys."""
    return len(set(keys).intersection(question.evidence)) / len(question.evidence)


def _key_f1(keys: Collection[str], question: Question) -> float:
    """Return the harmonic mean of the precision and the recall of distinct keys."""
    hits = len(set(keys).intersection(question.evidence))
    return 2.0 * hits / (len(keys) + len(question.evidence))


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
    return {
        "overall": _metric_fields(table, np.arange(table.size)),
        "categories": {
            name: _metric_fields(table, rows) for name, rows in categories(questions).items()
        },
        "latency": latency(seconds),
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


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 95th percentile of the latency in seconds."""
    p50, p95 = np.percentile(np.array(seconds), (50, 95))
    return {"p50": _round(p50), "p95": _round(p95)}
