"""Handoffs compared with search results, and disabled recall parts."""

import json

import pytest

from tests.evaluation.conftest import EvaluationCli
from tests.evaluation.samples import read_lines, write_lines


def test_handoffs_are_compared_with_best_search_cut(evaluation: EvaluationCli) -> None:
    evaluation.run("search")
    evaluation.run("recall", "recall")
    runs = ("search", "recall")
    handoffs = evaluation.call("compare", *runs, "--json").json["handed_off"]
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
    text = evaluation.call("compare", *runs)
    assert text.code == 0
    assert f"none for {handoffs['empty']:.1%}" in text.out
    assert f"F1, search cut at {handoffs['best_cut']}" in text.out
    backwards = evaluation.call("compare", *reversed(runs), "--json")
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
