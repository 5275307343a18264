"""Evaluation metrics: hand-computed examples and properties."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.evaluation.datasets import Question, QuestionResult, RecallRecord
from memrecall.evaluation.metrics import (
    CUTS,
    MetricTable,
    area_under_roc,
    brier_skill,
    calibration_bins,
    calibration_error,
    intervals,
    measure,
    summarize,
)

KEYS = [f"k{n}" for n in range(30)]


def question(number: int, evidence: Sequence[str], category: str = "") -> Question:
    return Question(
        query_id=f"q{number}",
        user_id="lin",
        query="what?",
        evidence=tuple(evidence),
        category=category,
    )


def search_result(number: int, keys: Sequence[str], scores: Sequence[float] = ()) -> QuestionResult:
    rank_scores = scores or [1 - at / 100 for at in range(len(keys))]
    return QuestionResult(f"q{number}", "", tuple(zip(keys, rank_scores, strict=True)))


def recall_result(
    number: int, keys: Sequence[str], confidence: float, *, abstained: bool = False
) -> QuestionResult:
    result = RecallRecord(tuple(keys), confidence, abstained, "handoff", 1, (5,), 4, 3, 1_000)
    return QuestionResult(f"q{number}", "", tuple((key, None) for key in keys), recalled=result)


def values(questions: Sequence[Question], answers: Sequence[QuestionResult]) -> dict[str, float]:
    table = measure(questions, answers)
    rows = np.arange(table.size)
    return dict(zip(table.all_names, map(float, table.values(rows)), strict=True))


def test_metrics_of_evidence_at_ranks_2_and_12() -> None:
    keys = ["x", "a", *KEYS[:9], "b"]  # a is second, b twelfth
    metrics = values([question(1, ["a", "b"])], [search_result(1, keys)])
    assert [metrics[f"recall@{cut}"] for cut in (1, 5, 10, 20)] == [0.0, 0.5, 0.5, 1.0]
    assert [metrics[name] for name in ("hit@1", "hit@5", "all@10", "all@20")] == [0, 1, 0, 1]
    assert metrics["mrr"] == 0.5
    best = 1 + 1 / math.log2(3)
    assert metrics["ndcg@10"] == pytest.approx((1 / math.log2(3)) / best)


def test_questions_without_evidence_are_not_counted() -> None:
    questions = [question(1, ["a"]), question(2, [])]
    metrics = values(questions, [search_result(1, ["a"]), search_result(2, ["a"])])
    assert metrics["recall@1"] == metrics["mrr"] == 1.0
    counts = summarize(questions, [search_result(1, ["a"]), search_result(2, ["a"])], [0.1, 0.2])[
        "overall"
    ]
    assert counts["recall@1"]["questions"] == 1
    assert counts["results@0.5"]["questions"] == 2


def test_unanswerable_questions_alone_define_no_evidence_metrics() -> None:
    overall = summarize([question(1, [])], [search_result(1, ["a"])], [0.1])["overall"]
    assert "recall@10" not in overall
    assert (overall["results@0.5"]["value"], "kept@0.5" in overall) == (1.0, False)


def test_threshold_metrics() -> None:
    questions = [question(1, ["a", "b"]), question(2, ["c"])]
    answers = [
        search_result(1, ["a", "b", "x"], [0.9, 0.4, 0.6]),
        search_result(2, ["x", "c"], [0.3, 0.2]),
    ]
    metrics = values(questions, answers)
    assert metrics["kept@0.5"] == pytest.approx(
        1 / 3
    )  # one of three pieces of evidence in the top ten
    assert metrics["results@0.5"] == 1.0  # two for the first question, none for the second


def test_metrics_of_handed_off_keys() -> None:
    questions = [question(1, ["a", "b"]), question(2, ["c"]), question(3, [])]
    answers = [
        recall_result(1, ["a", "x", "y"], 0.8),
        recall_result(2, [], 0.2, abstained=True),
        recall_result(3, [], 0.1, abstained=True),
    ]
    metrics = values(questions, answers)
    assert metrics["precision"] == pytest.approx((1 / 3 + 0) / 2)
    assert metrics["recall"] == pytest.approx((1 / 2 + 0) / 2)
    assert metrics["f1"] == pytest.approx((2 / 5 + 0) / 2)
    assert metrics["keys"] == 1.0
    assert metrics["abstained"] == pytest.approx(2 / 3)
    assert metrics["abstention_precision"] == 0.5
    assert metrics["abstention_recall"] == 1.0
    assert metrics["abstention_accuracy"] == pytest.approx(2 / 3)
    assert metrics["auroc"] == 1.0  # the unanswerable question had the lowest confidence
    assert (metrics["model_calls"], metrics["tool_calls"]) == (3, 4)
    assert metrics["prompt_characters"] == 1_000
    # Three bins of one question each: 0.1 and 0.2 were wrong, 0.8 was right.
    assert metrics["ece"] == pytest.approx((0.1 + 0.2 + 0.2) / 3)


def test_calibration_metrics_require_probabilities() -> None:
    questions = [question(1, ["a"])]
    without_probabilities = search_result(1, ["a", "b"])
    assert not {"ece", "brier_skill"} & values(questions, [without_probabilities]).keys()
    with_probabilities = QuestionResult(
        "q1", "", without_probabilities.retrieved, probabilities=(1.0, 0.0)
    )
    metrics = values(questions, [with_probabilities])
    assert (metrics["ece"], metrics["brier_skill"]) == (0.0, 1.0)


def hybrid_result(number: int, relevance: float | None) -> QuestionResult:
    """Return a hybrid search with one result, or with none."""
    if relevance is None:
        return QuestionResult(f"q{number}", "", ())
    return QuestionResult(f"q{number}", "", (("a", relevance),), probabilities=(relevance / 2,))


def test_abstention_of_search_by_best_relevance() -> None:
    questions = [question(1, ["a"]), question(2, ["b"]), question(3, []), question(4, [])]
    answers = [hybrid_result(at, relevance) for at, relevance in enumerate((0.9, 0.4, 0.6, None))]
    metrics = values(questions, answers)
    assert metrics["auroc"] == pytest.approx(3 / 4)
    assert metrics["abstained"] == 0.5  # the second question and the one without results
    assert metrics["abstention_accuracy"] == 0.5
    assert (metrics["abstention_precision"], metrics["abstention_recall"]) == (0.5, 0.5)
    # Four bins of one question each: 0.9 and 0.4 for answerable, 0.6 and 0 for other questions.
    assert metrics["answer_ece"] == pytest.approx((0.1 + 0.6 + 0.6 + 0.0) / 4)


def test_abstention_of_search_requires_unanswerable_questions_and_probabilities() -> None:
    names = {"auroc", "abstention_accuracy", "answer_ece"}
    answerable = [question(1, ["a"]), question(2, ["a"])]
    answers = [hybrid_result(1, 0.9), hybrid_result(2, 0.4)]
    assert not names & values(answerable, answers).keys()
    mixed = [question(1, ["a"]), question(2, [])]
    assert names <= values(mixed, answers).keys()
    keyword = [search_result(1, ["a"]), search_result(2, ["a"])]
    assert not names & values(mixed, keyword).keys()


def test_area_under_roc_of_small_examples() -> None:
    score = np.array([0.9, 0.5, 0.5, 0.1])
    assert area_under_roc(score, np.array([1.0, 1, 0, 0])) == pytest.approx(3.5 / 4)
    assert math.isnan(area_under_roc(score, np.ones(4)))


def test_calibration_of_small_examples() -> None:
    predictions, outcomes = np.array([0.1] * 10 + [0.9] * 10), np.array([0.0] * 10 + [1.0] * 10)
    assert calibration_error(predictions, outcomes) == pytest.approx(0.1)
    assert [size for *_, size in calibration_bins(predictions, outcomes)] == [2] * 10
    assert math.isnan(calibration_error(np.array([]), np.array([])))
    assert brier_skill(np.full(20, 0.5), outcomes) == pytest.approx(0.0)
    assert brier_skill(outcomes, outcomes) == 1.0
    assert math.isnan(brier_skill(predictions, np.zeros(20)))


def make_table(scores: Sequence[float]) -> MetricTable:
    column = np.array(scores, dtype=np.float64)
    return MetricTable.of({"score": (column, np.ones(len(column)))}, {})


def test_interval_contains_mean_and_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrecall.evaluation.metrics.RESAMPLES", 1_000)
    table = make_table([0.0, 1.0] * 50)
    rows = np.arange(table.size)
    low, high = intervals(table, rows)
    assert 0.35 < low[0] < 0.45
    assert 0.55 < high[0] < 0.65
    assert [*intervals(table, rows)] == [low, high]


def test_paired_interval_of_constant_gain() -> None:
    before = make_table([0.0, 1.0] * 50)
    after = make_table([0.05, 1.05] * 50)
    low, high = intervals(after, np.arange(100), before=before)
    assert low[0] == pytest.approx(0.05)
    assert high[0] == pytest.approx(0.05)


key_lists = st.lists(st.sampled_from(KEYS), max_size=30, unique=True)
search_cases = st.lists(st.tuples(key_lists, key_lists), min_size=1, max_size=8)


@settings(max_examples=30)
@given(search_cases)
def test_recall_is_bounded_and_grows_with_k(cases: list[tuple[list[str], list[str]]]) -> None:
    questions = [question(n, evidence) for n, (evidence, _) in enumerate(cases)]
    figures = values(questions, [search_result(n, keys) for n, (_, keys) in enumerate(cases)])
    if not any(evidence for evidence, _ in cases):
        assert math.isnan(figures["recall@10"])
        return
    for name in ("recall", "hit", "all"):
        series = [figures[f"{name}@{cut}"] for cut in CUTS]
        assert series == sorted(series)
        assert 0.0 <= series[0] <= series[-1] <= 1.0
    for cut in CUTS:
        assert figures[f"all@{cut}"] <= figures[f"recall@{cut}"] <= figures[f"hit@{cut}"]
    assert 0.0 <= figures["mrr"] <= 1.0
    assert 0.0 <= figures["ndcg@10"] <= 1.0 + 1e-12


def test_adversarial_questions_are_unanswerable() -> None:
    questions = [
        question(1, ["a"], "fact"),
        question(2, ["b"], "adversarial"),
        question(3, [], "anything"),
        question(4, ["c"], "Unanswerable"),
    ]
    assert [item.answerable for item in questions] == [True, False, False, False]
    answers = [recall_result(1, ["a"], 0.9), *(recall_result(n, [], 0.1) for n in (2, 3, 4))]
    metrics = values(questions, answers)
    assert (metrics["f1"], metrics["abstention_recall"], metrics["auroc"]) == (1, 1, 1)
    # Retrieved statements of the other person still count as found.
    overall = summarize(questions, answers, [0.1] * 4)["overall"]
    assert overall["recall@10"]["questions"] == 3
