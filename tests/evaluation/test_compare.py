"""Handoffs compared with search results, disabled recall parts, and abstention."""

import json

import numpy as np
import pytest

from memrecall.evaluation.metrics import abstention_curve, measure
from memrecall.evaluation.questions import Question, QuestionResult, RecallRecord
from tests.evaluation.conftest import EvaluationCli
from tests.evaluation.samples import read_lines, write_lines

ROWS = np.arange(4)


def question(key: str, evidence: list[str], category: str = "fact") -> Question:
    return Question(
        query_id=key, user_id="u", query="?", evidence=tuple(evidence), category=category
    )


def recall_result(key: str, keys: list[str], confidence: float) -> QuestionResult:
    outcome = RecallRecord(
        relevant_memory_keys=tuple(keys),
        confidence=confidence,
        abstained=not keys,
        stop_reason="handoff",
        iterations=1,
        windows=(5,),
        tool_calls=1,
        model_calls=1,
        prompt_characters=1,
    )
    return QuestionResult(key, "fact", tuple((k, None) for k in keys), recalled=outcome)


def test_handoffs_are_compared_with_best_search_cut(evaluation: EvaluationCli) -> None:
    evaluation.run("search")
    evaluation.run("recall", "recall")
    runs = (evaluation.folder / "search", evaluation.folder / "recall")
    handoffs = evaluation.shell("eval", "compare", *runs, "--json").json["handed_off"]
    answers = {
        line["query_id"]: line for line in read_lines(evaluation.file("recall", "results.jsonl"))
    }
    evidence = {
        q["query_id"]: q["evidence"] for q in read_lines(evaluation.queries) if q["evidence"]
    }
    keys = {name: set(answers[name]["relevant_memory_keys"]) for name in evidence}
    recall = sum(len(keys[q] & set(evidence[q])) / len(evidence[q]) for q in evidence) / len(
        evidence
    )
    assert handoffs["questions"] == len(evidence)
    assert handoffs["recall"] == pytest.approx(recall, abs=1e-5)
    assert handoffs["keys"] == pytest.approx(sum(map(len, keys.values())) / len(evidence), abs=1e-5)
    text = evaluation.shell("eval", "compare", *runs)
    assert text.code == 0
    assert f"none for {handoffs['empty']:.1%}" in text.out
    assert f"F1, search cut at {handoffs['best_cut']}" in text.out
    backwards = evaluation.shell("eval", "compare", *reversed(runs), "--json")
    assert "handed_off" not in backwards.json


def test_recall_parts_can_be_disabled(evaluation: EvaluationCli) -> None:
    lines = read_lines(evaluation.queries)
    conversation = "\n".join(["Hello!", "Hi."] * 3 + ["I had such good tea today."])
    write_lines(evaluation.queries, [*lines, {**lines[3], "query_id": "q8", "query": conversation}])
    evaluation.run("grown", "recall")
    evaluation.run("still", "recall", "--no-grow-window", "--no-expand-queries")
    windows = {
        name: {
            r["query_id"]: r["windows"] for r in read_lines(evaluation.file(name, "results.jsonl"))
        }
        for name in ("grown", "still")
    }
    assert windows["grown"]["q8"] == [5, 7]
    assert windows["still"]["q8"] == [5]
    plan = json.loads(evaluation.file("still", "summary.json").read_bytes())["plan"]
    assert plan["without"] == ["grow_window", "expand_queries"]
    repeated = evaluation.run("still", "recall")
    assert repeated.code == 2
    assert "without" in repeated.err
    search_run = evaluation.run("searched", "search", "--no-grow-window")
    assert "--no-grow-window: only for --mode recall" in search_run.err


def test_adversarial_questions_are_unanswerable() -> None:
    questions = [
        question("q1", ["a"]),
        question("q2", ["b"], "adversarial"),
        question("q3", [], "anything"),
        question("q4", ["c"], "Unanswerable"),
    ]
    assert [item.answerable for item in questions] == [True, False, False, False]
    answers = [
        recall_result("q1", ["a"], 0.9),
        *(recall_result(f"q{n}", [], 0.1) for n in (2, 3, 4)),
    ]
    table = measure(questions, answers)
    values = dict(zip(table.all_names, table.values(ROWS), strict=True))
    assert (values["f1"], values["abstention_recall"], values["auroc"]) == (1, 1, 1)
    # Retrieved statements of the other person still count as found.
    assert table.counts(ROWS)[table.all_names.index("recall@10")] == 3


def test_abstention_curve_covers_every_threshold() -> None:
    questions = [question("q1", ["a"]), question("q2", ["b"]), question("q3", [])]
    answers = [
        recall_result("q1", ["a"], 0.9),
        recall_result("q2", ["b"], 0.3),
        recall_result("q3", [], 0.4),
    ]
    pairs = list(zip(questions, answers, strict=True))
    assert abstention_curve(pairs) == [(0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (1.0, 1.0)]
    assert abstention_curve(pairs[:2]) == []
