"""Figures: by hand, and what must hold for any answers."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.evaluation.metrics import CUTS, categories, latency, measure, summarize
from memrecall.evaluation.questions import Question, QuestionResult, RecallRecord
from memrecall.evaluation.statistics import (
    MetricTable,
    PooledMetric,
    area_under_roc,
    brier_skill,
    calibration_bins,
    calibration_error,
    intervals,
    paired_intervals,
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


def found(number: int, keys: Sequence[str], scores: Sequence[float] = ()) -> QuestionResult:
    given = scores or [1 - at / 100 for at in range(len(keys))]
    return QuestionResult(f"q{number}", "", tuple(zip(keys, given, strict=True)))


def recalled(
    number: int, handed: Sequence[str], confidence: float, *, abstained: bool = False
) -> QuestionResult:
    result = RecallRecord(tuple(handed), confidence, abstained, "handoff", 1, (5,), 4, 3, 1_000)
    return QuestionResult(f"q{number}", "", tuple((key, None) for key in handed), recalled=result)


def values(questions: Sequence[Question], answers: Sequence[QuestionResult]) -> dict[str, float]:
    table = measure(questions, answers)
    rows = np.arange(table.size)
    return dict(zip(table.all_names, map(float, table.values(rows)), strict=True))


def test_metrics_of_evidence_at_ranks_2_and_12() -> None:
    keys = ["x", "a", *KEYS[:9], "b"]  # a is second, b twelfth
    told = values([question(1, ["a", "b"])], [found(1, keys)])
    assert (told["recall@1"], told["recall@5"], told["recall@10"], told["recall@20"]) == (
        0.0, 0.5, 0.5, 1.0
    )  # fmt: skip
    assert (told["hit@1"], told["hit@5"], told["all@10"], told["all@20"]) == (0, 1, 0, 1)
    assert told["mrr"] == 0.5
    best = 1 + 1 / math.log2(3)
    assert told["ndcg@10"] == pytest.approx((1 / math.log2(3)) / best)


def test_questions_without_evidence_are_not_counted() -> None:
    asked = [question(1, ["a"]), question(2, [])]
    told = values(asked, [found(1, ["a"]), found(2, ["a"])])
    assert told["recall@1"] == told["mrr"] == 1.0
    counts = summarize(asked, [found(1, ["a"]), found(2, ["a"])], [0.1, 0.2])["overall"]
    assert counts["recall@1"]["questions"] == 1
    assert counts["results@0.5"]["questions"] == 2


def test_unanswerable_questions_alone_define_no_evidence_metrics() -> None:
    told = summarize([question(1, [])], [found(1, ["a"])], [0.1])["overall"]
    assert "recall@10" not in told
    assert told["results@0.5"]["value"] == 1.0


def test_threshold_metrics() -> None:
    asked = [question(1, ["a", "b"]), question(2, ["c"])]
    answers = [found(1, ["a", "b", "x"], [0.9, 0.4, 0.6]), found(2, ["x", "c"], [0.3, 0.2])]
    told = values(asked, answers)
    assert told["kept@0.5"] == pytest.approx(1 / 3)  # of three pieces of evidence in the first ten
    assert told["results@0.5"] == 1.0  # two of the first question, none of the second


def test_metrics_of_handed_off_keys() -> None:
    asked = [question(1, ["a", "b"]), question(2, ["c"]), question(3, [])]
    answers = [
        recalled(1, ["a", "x", "y"], 0.8),
        recalled(2, [], 0.2, abstained=True),
        recalled(3, [], 0.1, abstained=True),
    ]
    told = values(asked, answers)
    assert told["precision"] == pytest.approx((1 / 3 + 0) / 2)
    assert told["recall"] == pytest.approx((1 / 2 + 0) / 2)
    assert told["f1"] == pytest.approx((2 / 5 + 0) / 2)
    assert told["keys"] == 1.0
    assert told["abstained"] == pytest.approx(2 / 3)
    assert told["abstention_precision"] == 0.5
    assert told["abstention_recall"] == 1.0
    assert told["abstention_accuracy"] == pytest.approx(2 / 3)
    assert told["auroc"] == 1.0  # the unanswerable one had the least confidence
    assert (told["model_calls"], told["tool_calls"]) == (3, 4)
    assert told["prompt_characters"] == 1_000
    # Three bins of one question each: 0.1 and 0.2 were wrong, 0.8 was right.
    assert told["ece"] == pytest.approx((0.1 + 0.2 + 0.2) / 3)


def test_calibration_metrics_require_probabilities() -> None:
    asked = [question(1, ["a"])]
    plain = found(1, ["a", "b"])
    assert not {"ece", "brier_skill"} & values(asked, [plain]).keys()
    sure = QuestionResult("q1", "", plain.retrieved, probabilities=(1.0, 0.0))
    told = values(asked, [sure])
    assert (told["ece"], told["brier_skill"]) == (0.0, 1.0)


def test_area_under_roc_of_small_examples() -> None:
    score = np.array([0.9, 0.5, 0.5, 0.1])
    assert area_under_roc(score, np.array([1.0, 1, 0, 0])) == pytest.approx(3.5 / 4)
    assert math.isnan(area_under_roc(score, np.ones(4)))


def test_calibration_of_small_examples() -> None:
    predicted, true = np.array([0.1] * 10 + [0.9] * 10), np.array([0.0] * 10 + [1.0] * 10)
    assert calibration_error(predicted, true) == pytest.approx(0.1)
    assert [size for *_, size in calibration_bins(predicted, true)] == [2] * 10
    assert math.isnan(calibration_error(np.array([]), np.array([])))
    assert brier_skill(np.full(20, 0.5), true) == pytest.approx(0.0)
    assert brier_skill(true, true) == 1.0
    assert math.isnan(brier_skill(predicted, np.zeros(20)))


def test_latency_percentiles() -> None:
    told = latency([n / 100 for n in range(101)])
    assert told == {"p50": 0.5, "p95": 0.95}


def table_of(scores: Sequence[float]) -> MetricTable:
    column = np.array(scores, dtype=np.float64)
    return MetricTable.of({"score": (column, np.ones(len(column)))}, {})


def test_interval_contains_mean_and_is_deterministic() -> None:
    table = table_of([0.0, 1.0] * 50)
    rows = np.arange(table.size)
    low, high = intervals(table, rows)
    assert 0.35 < low[0] < 0.45
    assert 0.55 < high[0] < 0.65
    assert [*intervals(table, rows)] == [low, high]


def test_paired_interval_of_constant_gain() -> None:
    before = table_of([0.0, 1.0] * 50)
    after = table_of([0.05, 1.05] * 50)
    low, high = paired_intervals(before, after, np.arange(100))
    assert low[0] == pytest.approx(0.05)
    assert high[0] == pytest.approx(0.05)


def test_undefined_metric_has_no_interval() -> None:
    empty = MetricTable.of({"score": (np.zeros(3), np.zeros(3))}, {})
    low, high = intervals(empty, np.arange(3))
    assert np.isnan([low[0], high[0]]).all()


def test_categories_map_names_to_rows() -> None:
    asked = [question(1, [], "b"), question(2, [], "a"), question(3, [], "b")]
    told = {name: list(rows) for name, rows in categories(asked).items()}
    assert told == {"a": [1], "b": [0, 2]}
    assert categories([question(1, [])]) == {}


key_lists = st.lists(st.sampled_from(KEYS), max_size=30, unique=True)
cases = st.lists(st.tuples(key_lists, key_lists), min_size=1, max_size=8)


@settings(max_examples=30)
@given(cases)
def test_recall_is_bounded_and_grows_with_k(told: list[tuple[list[str], list[str]]]) -> None:
    asked = [question(n, evidence) for n, (evidence, _) in enumerate(told)]
    figures = values(asked, [found(n, keys) for n, (_, keys) in enumerate(told)])
    if not any(evidence for evidence, _ in told):
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


handed_cases = st.lists(
    st.tuples(key_lists, key_lists, st.floats(0, 1), st.booleans()), min_size=1, max_size=12
)


@settings(max_examples=30)
@given(handed_cases, st.randoms())
def test_metrics_do_not_depend_on_question_order(
    told: list[tuple[list[str], list[str], float, bool]], random: st.DataObject
) -> None:
    pairs = [
        (question(n, evidence), recalled(n, keys, sure, abstained=quiet and not keys))
        for n, (evidence, keys, sure, quiet) in enumerate(told)
    ]
    mixed = list(pairs)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    first = values(*zip(*pairs, strict=True))
    second = values(*zip(*mixed, strict=True))
    assert first == pytest.approx(second, nan_ok=True)
    for name in ("precision", "recall", "f1", "ece", "auroc", "abstention_accuracy"):
        assert math.isnan(first[name]) or -1e-12 <= first[name] <= 1.0 + 1e-12


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_perfect_predictions_have_no_calibration_error(told: list[tuple[float, bool]]) -> None:
    true = np.array([float(came) for _, came in told])
    assert calibration_error(true, true) == 0.0
    predicted = np.array([said for said, _ in told])
    assert 0.0 <= calibration_error(predicted, true) <= 1.0


def test_pooled_metric_covers_selected_questions() -> None:
    predicted = np.array([[0.2, np.nan], [0.8, 0.6]])
    pooled = PooledMetric(predicted, np.array([[0.0, 0.0], [1.0, 1.0]]), calibration_error)
    assert pooled.value(np.array([0])) == pytest.approx(0.2)
    assert pooled.value(np.array([1])) == pytest.approx(0.3)
