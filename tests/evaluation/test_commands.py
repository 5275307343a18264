"""The commands `eval compare`, `list`, `baseline` and `check`."""

import pytest

from memrecall.evaluation.compare import Change
from tests.cases import check_each
from tests.evaluation.conftest import EvaluationCli
from tests.evaluation.samples import QUERIES, message, read_lines, write_lines


def remove_results(evaluation: EvaluationCli, name: str, **chosen: tuple[str, ...]) -> None:
    """Remove the retrieved keys of some questions from a run."""
    ((field, values),) = chosen.items()
    file = evaluation.file(name, "results.jsonl")
    rows = read_lines(file)
    write_lines(file, [row | {"retrieved": []} if row[field] in values else row for row in rows])


def test_compare_lists_changes_and_losses(evaluation: EvaluationCli) -> None:
    evaluation.run("a")
    evaluation.run("b")
    remove_results(evaluation, "b", query_id=("q1", "q4"))
    outcome = evaluation.call("compare", "a", "b", "--json")
    assert outcome.code == 0, outcome.err
    changes = {(row["metric"], row["category"]): row for row in outcome.json["changes"]}
    overall = changes["recall@10", "overall"]
    assert overall["difference"] == pytest.approx(-2 / 6)
    assert overall["low"] <= overall["difference"] <= overall["high"] <= 0
    assert changes["recall@10", "name"]["difference"] == 0
    assert "recall@10" in evaluation.call("compare", "a", "b").out


def test_compare_search_with_recall(evaluation: EvaluationCli) -> None:
    evaluation.run("a")
    evaluation.run("b", "recall")
    outcome = evaluation.call("compare", "a", "b", "--json")
    metrics = {row["metric"] for row in outcome.json["changes"]}
    assert "recall@10" in metrics
    assert not {"f1", "kept@0.5"} & metrics


def test_compare_rejects_different_questions(evaluation: EvaluationCli) -> None:
    evaluation.run("a")
    evaluation.run("few", "search", "--max-questions", 3)
    write_lines(evaluation.queries, QUERIES[:4])
    evaluation.run("other")
    write_lines(evaluation.corpus, [message("lin", "m1", "2025-01-01", "hi")])
    write_lines(evaluation.queries, [{**QUERIES[0]}])
    errors = {
        "few": "have 7 and 3 answers",
        "other": "have different questions",
        "nowhere": "is not a run: it has no summary.json",
    }
    for name, words in errors.items():
        outcome = evaluation.call("compare", "a", name)
        assert outcome.code == 2
        assert words in outcome.err


def test_list_shows_runs_folder(evaluation: EvaluationCli, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = evaluation.folder / "runs"
    monkeypatch.setenv("MEMRECALL_DATA_DIR", str(evaluation.folder))
    assert "no runs in" in evaluation.shell("eval", "list").out
    evaluation.run("runs/first")
    evaluation.run("runs/second", "recall")
    (runs / "stray").mkdir()
    outcome = evaluation.shell("eval", "list", "--json")
    runs_by_name = {item["name"]: item for item in outcome.json["items"]}
    assert set(runs_by_name) == {"first", "second"}
    assert runs_by_name["first"]["f1"] is None
    assert runs_by_name["second"]["f1"] is not None
    assert runs_by_name["first"]["recall@10"] == pytest.approx(5 / 6, abs=1e-5)
    assert (runs_by_name["first"]["questions"], runs_by_name["first"]["complete"]) == (7, True)
    text = evaluation.shell("eval", "list").out
    assert "first  search" in text
    assert "recall@10 0.833" in text
    outcome = evaluation.shell("eval", "compare", "first", "second")
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("mode", ["search", "recall"])
def test_run_passes_its_own_baseline(large_evaluation: EvaluationCli, mode: str) -> None:
    large_evaluation.run("run", mode)
    file = large_evaluation.folder / "baseline.json"
    assert large_evaluation.call("baseline", "run", "--out", file).code == 0
    assert len(file.read_bytes()) < 40 * 40 + 400
    outcome = large_evaluation.call("check", "run", "--baseline", file, "--json")
    assert outcome.code == 0, outcome.out
    assert outcome.json["passed"]
    assert {change["difference"] for change in outcome.json["changes"]} == {0.0}
    groups = {(change["metric"], change["category"]) for change in outcome.json["changes"]}
    names = ["recall@10"] if mode == "search" else ["f1", "abstention_accuracy"]
    assert groups == {(name, kind) for name in names for kind in ("overall", "odd", "even")}


def test_check_exits_1_on_regression(large_evaluation: EvaluationCli) -> None:
    large_evaluation.run("run")
    file = large_evaluation.folder / "baseline.json"
    large_evaluation.call("baseline", "run", "--out", file)
    remove_results(large_evaluation, "run", query_id=("q1", "q3"))
    small = large_evaluation.call("check", "run", "--baseline", file)
    assert small.code == 0
    assert "no regressions" in small.out
    remove_results(large_evaluation, "run", category=("even",))
    outcome = large_evaluation.call("check", "run", "--baseline", file)
    assert outcome.code == 1
    assert "regressions: recall@10 (overall), recall@10 (even)" in outcome.out


def test_mismatched_baselines_are_rejected(evaluation: EvaluationCli) -> None:
    evaluation.run("run")
    file = evaluation.folder / "baseline.json"
    evaluation.call("baseline", "run", "--out", file)
    outcome = evaluation.call("check", "run", "--baseline", file, "--json")
    categories = [change["category"] for change in outcome.json["changes"]]
    assert categories == ["overall"]  # the others are small

    def check(name: str) -> str:
        outcome = evaluation.call("check", name, "--baseline", file)
        assert outcome.code == 2
        return outcome.err

    evaluation.run("recall", "recall")
    assert "has mode search, not recall" in check("recall")
    evaluation.run("few", "search", "--max-questions", 2)
    assert "has scores of other questions" in check("few")
    write_lines(evaluation.queries, QUERIES[:3])
    evaluation.run("other")
    assert "has different questions" in check("other")
    file.write_text('{"format": 9, "scores": {}}', "utf-8")
    assert "another baseline format" in check("run")
    file.write_text("[]", "utf-8")
    assert "is not a baseline" in check("run")
    file.unlink()
    assert "cannot read" in check("run")


def test_damaged_run_is_reported(evaluation: EvaluationCli) -> None:
    cases: list[tuple[str, str, str]] = [
        ("summary.json", "{", "summary.json cannot be read"),
        ("summary.json", '{"format": 7}', "has another format"),
        ("results.jsonl", '{"query_id": "q1"}\n', "results.jsonl line 1"),
        (
            "results.jsonl",
            '{"query_id": "q9", "category": "", "retrieved": []}\n',
            "its results do not match its questions",
        ),
    ]
    evaluation.run("run")

    def check(case: tuple[str, str, str]) -> None:
        part, text, error = case
        whole = evaluation.file("run", part).read_bytes()
        evaluation.file("run", part).write_text(text, "utf-8")
        outcome = evaluation.call("baseline", "run", "--out", evaluation.folder / "x.json")
        evaluation.file("run", part).write_bytes(whole)
        assert (outcome.code, error in outcome.err) == (2, True), outcome.err

    check_each(cases, check)


def test_is_better_depends_on_metric() -> None:
    def change(metric: str, after: float) -> Change:
        return Change(metric, "overall", 9, 1.0, after, -0.1, 0.1)

    assert change("recall@10", 2.0).is_better
    assert not change("ece", 2.0).is_better
    assert change("ece", 0.5).is_better
    assert not change("ece", 0.5).is_significant
