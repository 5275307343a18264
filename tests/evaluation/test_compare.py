"""What a recall hands off beside a search cut at k, parts switched off, and abstention."""

import json

import numpy as np
import pytest

from memrecall.evaluation.metrics import abstention_curve, measure
from memrecall.evaluation.questions import Question, QuestionResult, RecallRecord
from tests.evaluation.conftest import Bench
from tests.evaluation.samples import read_lines, write_lines

ROWS = np.arange(4)


def question(key: str, evidence: list[str], category: str = "fact") -> Question:
    return Question(
        query_id=key, user_id="u", query="?", evidence=tuple(evidence), category=category
    )


def recalled(key: str, keys: list[str], confidence: float) -> QuestionResult:
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


def test_handoffs_are_compared_with_best_search_cut(bench: Bench) -> None:
    bench.run("search")
    bench.run("recall", "recall")
    runs = (bench.folder / "search", bench.folder / "recall")
    told = bench.shell("eval", "compare", *runs, "--json").json["handed_off"]
    answers = {line["query_id"]: line for line in read_lines(bench.file("recall", "results.jsonl"))}
    asked = {q["query_id"]: q["evidence"] for q in read_lines(bench.queries) if q["evidence"]}
    keys = {name: set(answers[name]["relevant_memory_keys"]) for name in asked}
    recall = sum(len(keys[q] & set(asked[q])) / len(asked[q]) for q in asked) / len(asked)
    assert told["questions"] == len(asked)
    assert told["recall"] == pytest.approx(recall, abs=1e-5)
    assert told["keys"] == pytest.approx(sum(map(len, keys.values())) / len(asked), abs=1e-5)
    shown = bench.shell("eval", "compare", *runs)
    assert shown.code == 0
    assert f"none for {told['empty']:.1%}" in shown.out
    assert f"F1, search cut at {told['best_cut']}" in shown.out
    backwards = bench.shell("eval", "compare", *reversed(runs), "--json")
    assert "handed_off" not in backwards.json


def test_recall_parts_can_be_disabled(bench: Bench) -> None:
    lines = read_lines(bench.queries)
    talk = "\n".join(["Hello!", "Hi."] * 3 + ["I had such good tea today."])
    write_lines(bench.queries, [*lines, {**lines[3], "query_id": "q8", "query": talk}])
    bench.run("grown", "recall")
    bench.run("still", "recall", "--no-grow-window", "--no-expand-queries")
    windows = {
        name: {r["query_id"]: r["windows"] for r in read_lines(bench.file(name, "results.jsonl"))}
        for name in ("grown", "still")
    }
    assert windows["grown"]["q8"] == [5, 7]
    assert windows["still"]["q8"] == [5]
    plan = json.loads(bench.file("still", "summary.json").read_bytes())["plan"]
    assert plan["without"] == ["grow_window", "expand_queries"]
    again = bench.run("still", "recall")
    assert again.code == 2
    assert "without" in again.err
    searched = bench.run("searched", "search", "--no-grow-window")
    assert "--no-grow-window: only for --mode recall" in searched.err


def test_adversarial_questions_are_unanswerable() -> None:
    asked = [
        question("q1", ["a"]),
        question("q2", ["b"], "adversarial"),
        question("q3", [], "anything"),
        question("q4", ["c"], "Unanswerable"),
    ]
    assert [each.answerable for each in asked] == [True, False, False, False]
    answers = [recalled("q1", ["a"], 0.9), *(recalled(f"q{n}", [], 0.1) for n in (2, 3, 4))]
    table = measure(asked, answers)
    values = dict(zip(table.all_names, table.values(ROWS), strict=True))
    assert (values["f1"], values["abstention_recall"], values["auroc"]) == (1, 1, 1)
    # That the words of the other person were found is still counted.
    assert table.counts(ROWS)[table.all_names.index("recall@10")] == 3


def test_abstention_curve_covers_every_threshold() -> None:
    asked = [question("q1", ["a"]), question("q2", ["b"]), question("q3", [])]
    answers = [recalled("q1", ["a"], 0.9), recalled("q2", ["b"], 0.3), recalled("q3", [], 0.4)]
    pairs = list(zip(asked, answers, strict=True))
    assert abstention_curve(pairs) == [(0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (1.0, 1.0)]
    assert abstention_curve(pairs[:2]) == []
