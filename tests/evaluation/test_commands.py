"""`compare`, `report`, `list`, `baseline` and `check`, as a person calls them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from memrecall.evaluation.compare import Change
from memrecall.evaluation.questions import QuestionResult
from tests.cases import check_each
from tests.evaluation.conftest import Bench
from tests.evaluation.samples import QUERIES, message, write_lines


def rewrite(bench: Bench, name: str, change: Any) -> None:
    """Change every answer of a run."""
    file = bench.file(name, "results.jsonl")
    rows = [change(json.loads(line)) for line in file.read_text("utf-8").splitlines()]
    write_lines(file, rows)


def blind(row: dict[str, Any]) -> dict[str, Any]:
    """An answer that found nothing."""
    return {**row, "retrieved": []}


def test_compare_json_lists_changes_and_losses(bench: Bench) -> None:
    bench.run("a")
    bench.run("b")
    rewrite(bench, "b", lambda row: blind(row) if row["query_id"] in ("q1", "q4") else row)
    done = bench.shell("eval", "compare", bench.folder / "a", bench.folder / "b", "--json")
    assert done.code == 0, done.err
    changes = {(row["metric"], row["category"]): row for row in done.json["changes"]}
    overall = changes["recall@10", "overall"]
    assert overall["difference"] == pytest.approx(-2 / 6)
    assert overall["low"] <= overall["difference"] <= overall["high"] <= 0
    assert changes["recall@10", "name"]["difference"] == 0
    assert [row["query_id"] for row in done.json["worst"]] == ["q1", "q4"]
    assert done.json["worst"][0]["query"] == QUERIES[0]["query"]


def test_compare_text_output(bench: Bench) -> None:
    bench.run("a")
    bench.run("b")
    rewrite(bench, "b", blind)
    options = ("--metric", "hit@5", "--worst", 1)
    done = bench.shell("eval", "compare", bench.folder / "a", bench.folder / "b", *options)
    assert "largest losses of hit@5" in done.out
    assert "1.00 → 0.00  我对海鲜过敏吗  q1 fact" in done.out
    wrong = bench.shell("eval", "compare", *2 * (bench.folder / "a",), "--metric", "luck")
    assert (wrong.code, "metric 'luck'" in wrong.err) == (2, True)


def test_compare_search_with_recall(bench: Bench) -> None:
    bench.run("a")
    bench.run("b", "recall")
    done = bench.shell("eval", "compare", bench.folder / "a", bench.folder / "b", "--json")
    metrics = {row["metric"] for row in done.json["changes"]}
    assert "recall@10" in metrics
    assert not {"f1", "kept@0.5"} & metrics


def test_compare_rejects_different_questions(bench: Bench) -> None:
    bench.run("a")
    bench.run("few", "search", "--max-questions", 3)
    write_lines(bench.queries, QUERIES[:4])
    bench.run("other")
    write_lines(bench.corpus, [message("lin", "m1", "2025-01-01", "hi")])
    write_lines(bench.queries, [{**QUERIES[0]}])
    said = {
        "few": "have 7 and 3 answers",
        "other": "have different questions",
        "nowhere": "is not a run: it has no summary.json",
    }
    for name, words in said.items():
        done = bench.shell("eval", "compare", bench.folder / "a", bench.folder / name)
        assert done.code == 2
        assert words in done.err


def test_report_is_standalone_html(bench: Bench) -> None:
    bench.run("a")
    bench.run("b", "recall")
    page = bench.folder / "report.html"
    runs = (bench.folder / "a", bench.folder / "b")
    done = bench.shell("eval", "report", *runs, "--out", page)
    assert done.code == 0, done.err
    text = page.read_text("utf-8")
    assert text.count("<svg") == 6  # by k, by category twice, abstention, calibration, latency
    assert not re.search(r"(src|href)=|url\(|@import|https?://", text)
    assert "prefers-color-scheme:dark" in text
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    alone = bench.shell("eval", "report", bench.folder / "a", "--out", page, "--json")
    assert alone.json["file"] == str(page)
    assert page.read_text("utf-8").count("<svg") == 4


def test_report_escapes_html(bench: Bench) -> None:
    write_lines(bench.queries, [{**QUERIES[0], "category": "<script>alert(1)</script>"}])
    bench.run("a")
    page = bench.folder / "report.html"
    bench.shell("eval", "report", bench.folder / "a", "--out", page)
    assert "<script" not in page.read_text("utf-8")


def test_report_errors(bench: Bench) -> None:
    bench.run("a")
    nine = [bench.folder / "a"] * 9
    assert "9 runs do not fit" in bench.shell("eval", "report", *nine, "--out", "x.html").err
    nowhere = bench.folder / "no" / "where.html"
    done = bench.shell("eval", "report", bench.folder / "a", "--out", nowhere)
    assert (done.code, "cannot write" in done.err) == (2, True)


def test_list_shows_runs_folder(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = bench.folder / "runs"
    monkeypatch.setenv("MEMRECALL_RUNS_DIR", str(runs))
    assert "no runs in" in bench.shell("eval", "list").out
    bench.run("runs/first")
    bench.run("runs/second", "recall")
    (runs / "stray").mkdir()
    done = bench.shell("eval", "list", "--json")
    told = {item["name"]: item for item in done.json["items"]}
    assert set(told) == {"first", "second"}
    assert told["first"]["f1"] is None
    assert told["second"]["f1"] is not None
    assert told["first"]["recall@10"] == pytest.approx(5 / 6, abs=1e-5)
    assert (told["first"]["questions"], told["first"]["complete"]) == (7, True)
    shown = bench.shell("eval", "list").out
    assert "first  search" in shown
    assert "recall@10 0.833" in shown
    done = bench.shell("eval", "compare", "first", "second")
    assert done.code == 0, done.err


@pytest.mark.parametrize("mode", ["search", "recall"])
def test_run_passes_its_own_baseline(many: Bench, mode: str) -> None:
    many.run("run", mode)
    file = many.folder / "baseline.json"
    assert many.shell("eval", "baseline", many.folder / "run", "--out", file).code == 0
    assert len(file.read_bytes()) < 40 * 40 + 400
    done = many.shell("eval", "check", many.folder / "run", "--baseline", file, "--json")
    assert done.code == 0, done.out
    assert done.json["passed"]
    assert {change["difference"] for change in done.json["changes"]} == {0.0}
    groups = {(change["metric"], change["category"]) for change in done.json["changes"]}
    names = ["recall@10"] if mode == "search" else ["f1", "abstention_accuracy"]
    assert groups == {(name, kind) for name in names for kind in ("overall", "odd", "even")}


def test_check_exits_1_on_regression(many: Bench) -> None:
    many.run("run")
    file = many.folder / "baseline.json"
    many.shell("eval", "baseline", many.folder / "run", "--out", file)
    rewrite(many, "run", lambda row: blind(row) if row["query_id"] in ("q1", "q3") else row)
    small = many.shell("eval", "check", many.folder / "run", "--baseline", file)
    assert small.code == 0
    assert "no regressions" in small.out
    rewrite(many, "run", lambda row: blind(row) if row["category"] == "even" else row)
    done = many.shell("eval", "check", many.folder / "run", "--baseline", file)
    assert done.code == 1
    assert "regressions: recall@10 (overall), recall@10 (even)" in done.out


def test_check_ignores_small_categories(bench: Bench) -> None:
    bench.run("run")
    file = bench.folder / "baseline.json"
    bench.shell("eval", "baseline", bench.folder / "run", "--out", file)
    done = bench.shell("eval", "check", bench.folder / "run", "--baseline", file, "--json")
    assert [change["category"] for change in done.json["changes"]] == ["overall"]


def test_mismatched_baselines_are_rejected(bench: Bench) -> None:
    bench.run("run")
    file = bench.folder / "baseline.json"
    bench.shell("eval", "baseline", bench.folder / "run", "--out", file)

    def check(name: str) -> str:
        done = bench.shell("eval", "check", bench.folder / name, "--baseline", file)
        assert done.code == 2
        return done.err

    bench.run("recall", "recall")
    assert "has mode search, not recall" in check("recall")
    bench.run("few", "search", "--max-questions", 2)
    assert "has scores of other questions" in check("few")
    write_lines(bench.queries, QUERIES[:3])
    bench.run("other")
    assert "has different questions" in check("other")
    file.write_text('{"format": 9, "scores": {}}', "utf-8")
    assert "another baseline format" in check("run")
    file.write_text("[]", "utf-8")
    assert "is not a baseline" in check("run")
    file.unlink()
    assert "cannot read" in check("run")


def test_incomplete_run_cannot_be_baseline(bench: Bench) -> None:
    bench.run("run")
    summary = bench.file("run", "summary.json")
    told = json.loads(summary.read_bytes())
    summary.write_text(json.dumps({**told, "complete": False}), "utf-8")
    done = bench.shell("eval", "baseline", bench.folder / "run", "--out", bench.folder / "b.json")
    assert (done.code, "is not complete" in done.err) == (2, True)


def test_damaged_run_is_reported(bench: Bench) -> None:
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
    bench.run("run")

    def check(case: tuple[str, str, str]) -> None:
        part, text, said = case
        whole = bench.file("run", part).read_bytes()
        bench.file("run", part).write_text(text, "utf-8")
        page: Path = bench.folder / "x.html"
        done = bench.shell("eval", "report", bench.folder / "run", "--out", page)
        bench.file("run", part).write_bytes(whole)
        assert (done.code, said in done.err) == (2, True), done.err

    check_each(cases, check)


def test_is_better_depends_on_metric() -> None:
    def change(metric: str, after: float) -> Change:
        return Change(metric, "overall", 9, 1.0, after, -0.1, 0.1)

    assert change("recall@10", 2.0).is_better
    assert not change("ece", 2.0).is_better
    assert change("ece", 0.5).is_better
    assert not change("ece", 0.5).is_significant


def test_question_result_round_trips_through_line() -> None:
    answer = QuestionResult("q", "c", (("k", 0.5), ("j", None)), probabilities=(0.1, 0.2))
    assert QuestionResult.from_dict(json.loads(answer.to_line())) == answer
