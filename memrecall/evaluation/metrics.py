"""What the answers are worth: figures over results and questions, nothing else."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from memrecall.evaluation.questions import Question
from memrecall.evaluation.runs import QuestionResult
from memrecall.evaluation.statistics import (
    Floats,
    Pooled,
    Rows,
    Table,
    area_under_roc,
    brier_skill,
    calibration_error,
    intervals,
)

CUTS = (1, 5, 10, 20)
GAIN_CUT = 10
KEEP = 0.5  # the threshold whose effect is told
CALIBRATED = 20  # results a question whose probabilities are judged
LOWER_IS_BETTER = frozenset({"ece", "model_calls", "tool_calls", "prompt_characters"})
MAIN = {"search": ("recall@10",), "recall": ("f1", "abstention_accuracy")}

Pair = tuple[Question, QuestionResult]
_Ratios = dict[str, tuple[Floats, Floats]]


def measure(questions: Sequence[Question], answers: Sequence[QuestionResult]) -> Table:
    """The table of every figure that these answers allow."""
    pairs = list(zip(questions, answers, strict=True))
    ratios: _Ratios = {}
    for cut in CUTS:
        ratios[f"recall@{cut}"] = _with_evidence(pairs, lambda q, a, k=cut: _share(q, a, k))
        ratios[f"hit@{cut}"] = _with_evidence(pairs, lambda q, a, k=cut: _share(q, a, k) > 0)
        ratios[f"all@{cut}"] = _with_evidence(pairs, lambda q, a, k=cut: _share(q, a, k) == 1)
    ratios["mrr"] = _with_evidence(pairs, _reciprocal_rank)
    ratios[f"ndcg@{GAIN_CUT}"] = _with_evidence(pairs, _gain)
    if all(answer.recalled for answer in answers):
        return Table.of(ratios | _recall_ratios(pairs), _recall_pools(pairs))
    return Table.of(ratios | _search_ratios(pairs), _search_pools(pairs))


def _column(pairs: Sequence[Pair], figure: Callable[[Question, QuestionResult], float]) -> Floats:
    return np.array([figure(question, answer) for question, answer in pairs], dtype=np.float64)


def _with_evidence(pairs: Sequence[Pair], figure: Callable[..., float]) -> tuple[Floats, Floats]:
    """The mean over the questions that have evidence."""
    counted = _column(pairs, lambda q, a: bool(q.evidence))
    return _column(pairs, lambda q, a: figure(q, a) if q.evidence else 0.0), counted


def _answerable(pairs: Sequence[Pair], figure: Callable[..., float]) -> tuple[Floats, Floats]:
    """The mean over the questions that have an answer."""
    counted = _column(pairs, lambda q, a: q.answerable)
    return _column(pairs, lambda q, a: figure(q, a) if q.answerable else 0.0), counted


def _share(question: Question, answer: QuestionResult, cut: int) -> float:
    """The share of the evidence among the first so many."""
    found = set(question.evidence).intersection(answer.keys[:cut])
    return len(found) / len(question.evidence)


def _reciprocal_rank(question: Question, answer: QuestionResult) -> float:
    ranks = (rank for rank, key in enumerate(answer.keys, 1) if key in question.evidence)
    return 1.0 / next(ranks, float("inf"))


def _gain(question: Question, answer: QuestionResult) -> float:
    """Normalised discounted cumulative gain; a key is evidence or not."""
    discounts = 1.0 / np.log2(np.arange(2, GAIN_CUT + 2))
    gained = [key in question.evidence for key in answer.keys[:GAIN_CUT]]
    best = discounts[: len(question.evidence)].sum()
    return float(discounts[: len(gained)][gained].sum() / best) if gained else 0.0


def _search_ratios(pairs: Sequence[Pair]) -> _Ratios:
    ones = np.ones(len(pairs))
    kept = _column(pairs, lambda q, a: _evidence_in_ten(q, a, KEEP))
    return {
        f"kept@{KEEP}": (kept, _column(pairs, lambda q, a: _evidence_in_ten(q, a, 0.0))),
        f"results@{KEEP}": (_column(pairs, lambda q, a: _reaching(a.retrieved, KEEP)), ones),
    }


def _evidence_in_ten(question: Question, answer: QuestionResult, least: float) -> int:
    found = [item for item in answer.retrieved[:10] if item[0] in question.evidence]
    return _reaching(found, least)


def _reaching(retrieved: Sequence[tuple[str, float | None]], least: float) -> int:
    return sum(score is not None and score >= least for _, score in retrieved)


def _search_pools(pairs: Sequence[Pair]) -> dict[str, Pooled]:
    """Of probabilities, where the search gives them. No result of an unanswerable is right."""
    if not pairs or any(answer.probabilities is None for _, answer in pairs):
        return {}
    predicted, true = judged_results(pairs, lambda answer: answer.probabilities or ())
    return {
        "ece": Pooled(predicted, true, calibration_error),
        "brier_skill": Pooled(predicted, true, brier_skill),
    }


def judged_results(
    pairs: Sequence[Pair], predictions: Callable[[QuestionResult], Sequence[float | None]]
) -> tuple[Floats, Floats]:
    """The first results of each question: what is predicted of them, and whether they are right."""
    predicted = np.full((len(pairs), CALIBRATED), np.nan)
    true = np.zeros((len(pairs), CALIBRATED))
    for at, (question, answer) in enumerate(pairs):
        told = zip(answer.keys, predictions(answer), strict=False)
        for place, (key, chance) in enumerate(islice(told, CALIBRATED)):
            predicted[at, place] = np.nan if chance is None else chance
            true[at, place] = key in question.evidence
    return predicted, true


def _recall_ratios(pairs: Sequence[Pair]) -> _Ratios:
    ones = np.ones(len(pairs))
    lacking = _column(pairs, lambda q, a: not q.answerable)
    # Whatever its reason, who is handed nothing has no answer.
    abstained = _column(pairs, lambda q, a: not _handed(a))
    return {
        "precision": _answerable(pairs, _key_precision),
        "recall": _answerable(pairs, _key_recall),
        "f1": _answerable(pairs, _key_f1),
        "keys": (_column(pairs, lambda q, a: len(_handed(a))), ones),
        "abstained": (abstained, ones),
        "abstention_precision": (abstained * lacking, abstained),
        "abstention_recall": (abstained * lacking, lacking),
        "abstention_accuracy": ((abstained == lacking).astype(np.float64), ones),
        "model_calls": (_column(pairs, lambda q, a: _recalled(a).model_calls), ones),
        "tool_calls": (_column(pairs, lambda q, a: _recalled(a).tool_calls), ones),
        "prompt_characters": (_column(pairs, lambda q, a: _recalled(a).prompt_characters), ones),
    }


def _recall_pools(pairs: Sequence[Pair]) -> dict[str, Pooled]:
    confidence, right = judged_confidence(pairs)
    lacking = _column(pairs, lambda q, a: not q.answerable)[:, None]
    return {
        "auroc": Pooled(1.0 - confidence, lacking, area_under_roc),
        "ece": Pooled(confidence, right, calibration_error),
    }


def judged_confidence(pairs: Sequence[Pair]) -> tuple[Floats, Floats]:
    """How sure each recall was, and whether it handed off any evidence."""
    confidence = _column(pairs, lambda q, a: _recalled(a).confidence)
    right = _column(pairs, lambda q, a: q.answerable and not _handed(a).isdisjoint(q.evidence))
    return confidence[:, None], right[:, None]


def trade_off(pairs: Sequence[Pair]) -> list[tuple[float, float]]:
    """For every threshold of the confidence: falsely left unanswered, rightly left unanswered."""
    confidence = _column(pairs, lambda q, a: _recalled(a).confidence)
    answerable = _column(pairs, lambda q, a: q.answerable) > 0
    if answerable.all() or not answerable.any():
        return []
    levels = [*np.unique(confidence).tolist(), 1.0 + 1e-9]
    below = [confidence < level for level in levels]
    return [(float(low[answerable].mean()), float(low[~answerable].mean())) for low in below]


def _recalled(answer: QuestionResult) -> Any:
    return answer.recalled


def _handed(answer: QuestionResult) -> frozenset[str]:
    return frozenset(_recalled(answer).relevant_memory_keys)


def _key_precision(question: Question, answer: QuestionResult) -> float:
    handed = _handed(answer)
    return len(handed.intersection(question.evidence)) / len(handed) if handed else 0.0


def _key_recall(question: Question, answer: QuestionResult) -> float:
    return len(_handed(answer).intersection(question.evidence)) / len(question.evidence)


def _key_f1(question: Question, answer: QuestionResult) -> float:
    handed = _handed(answer)
    found = len(handed.intersection(question.evidence))
    return 2.0 * found / (len(handed) + len(question.evidence))


def categories(questions: Sequence[Question]) -> dict[str, Rows]:
    """The rows of every category, in the order of their names; none if nothing has one."""
    names = sorted({question.category for question in questions} - {""})
    labels = np.array([question.category for question in questions])
    return {name: np.flatnonzero(labels == name) for name in names}


def summarise(
    questions: Sequence[Question], answers: Sequence[QuestionResult], seconds: Sequence[float]
) -> dict[str, Any]:
    """Every figure with its interval, over all questions and by category; times in seconds."""
    if not answers:
        return {}
    table = measure(questions, answers)
    return {
        "overall": _figures(table, np.arange(table.size)),
        "categories": {name: _figures(table, rows) for name, rows in categories(questions).items()},
        "latency": latency(seconds),
    }


def _figures(table: Table, rows: Rows) -> dict[str, dict[str, float | int]]:
    """The figures that have a meaning for some questions."""
    low, high = intervals(table, rows)
    told = zip(table.all_names, table.values(rows), low, high, table.counts(rows), strict=True)
    return {
        name: {"value": _rounded(value), "low": _rounded(a), "high": _rounded(b), "questions": n}
        for name, value, a, b, n in told
        if not np.isnan(value)
    }


def _rounded(value: float) -> float:
    return round(float(value), 6)


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """How long half and nearly all questions took at most."""
    p50, p95 = np.percentile(np.array(seconds), (50, 95))
    return {"p50": _rounded(p50), "p95": _rounded(p95)}
