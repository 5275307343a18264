"""`evaluate()`, and the notebook views of runs, comparisons and figures."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.evaluation.compare import compare
from memrecall.evaluation.corpus import Corpus, read_corpus
from memrecall.evaluation.questions import QuestionSet, read_questions
from memrecall.evaluation.report import figures_of
from memrecall.evaluation.runner import evaluate
from memrecall.evaluation.runs import EvaluationRun
from memrecall.importers.jsonl import read_entry
from memrecall.memory import Library

from ..inert import EVIL, assert_harmless
from .conftest import EvaluationCli
from .samples import CORPUS, QUERIES, write_lines

CHINESE = [row for row in QUERIES if row["user_id"] == "lin"]


@pytest.fixture
def engine() -> str:
    """Evaluation knows no engine."""
    return "sqlite"


def files(tmp_path: Path, questions: list[Any] = QUERIES) -> tuple[Corpus, QuestionSet]:
    corpus = read_corpus(write_lines(tmp_path / "corpus.jsonl", CORPUS), read_entry)
    return corpus, read_questions(write_lines(tmp_path / "queries.jsonl", questions))


async def test_evaluate_writes_complete_run(library: Library, tmp_path: Path) -> None:
    steps: list[int] = []
    corpus, questions = files(tmp_path)
    run = await evaluate(library, corpus, questions, tmp_path / "run", progress=steps.append)
    assert run.state.complete
    assert len(run.answers) == sum(steps) == len(QUERIES)
    repeated = await evaluate(library, corpus, questions, tmp_path / "run")
    assert repeated.answers == run.answers
    assert repr(run) == "<Run run: search, 7 questions answered>"


async def test_second_run_reuses_imported_corpus(library: Library, tmp_path: Path) -> None:
    corpus, questions = files(tmp_path)
    hybrid = await evaluate(library, corpus, questions, tmp_path / "both")
    keyword = await evaluate(
        library, corpus, questions, tmp_path / "words", retrieval="keyword", stored=True
    )
    assert keyword.state.plan.retrieval == "keyword"
    assert keyword.answers != hybrid.answers
    assert keyword.answers[1].keys == ["m2"]  # no other row contains db_config_001
    with pytest.raises(InvalidArgument, match="is not empty"):
        await evaluate(library, corpus, questions, tmp_path / "anew")


async def test_evaluate_recall_offline(library: Library, tmp_path: Path) -> None:
    corpus, questions = files(tmp_path)
    run = await evaluate(library, corpus, questions, tmp_path / "run", mode="recall")
    assert all(answer.recalled for answer in run.answers)
    text = assert_harmless(run._repr_html_(), allow_svg=True).text
    assert "recall · hash · 7 questions · 1 without an answer" in text
    assert "abstention_accuracy" in text


async def test_unknown_mode_and_other_corpus_are_rejected(library: Library, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="holds 0 messages and 0 memories, the corpus 8"):
        await evaluate(library, *files(tmp_path), tmp_path / "other", stored=True)
    with pytest.raises(InvalidArgument, match="unknown mode 'guess'"):
        await evaluate(library, *files(tmp_path), tmp_path / "run", mode="guess")  # type: ignore[arg-type]


def test_retrieval_option_is_checked(evaluation: EvaluationCli) -> None:
    assert evaluation.run("words", "search", "--retrieval", "keyword").code == 0
    plan = json.loads(evaluation.file("words", "summary.json").read_bytes())["plan"]
    assert plan["retrieval"] == "keyword"
    assert "retrieval = keyword, not hybrid" in evaluation.run("words").err
    assert (
        "unknown retrieval 'guess'" in evaluation.run("other", "search", "--retrieval", "guess").err
    )
    outcome = evaluation.run("other", "recall", "--retrieval", "keyword")
    assert "--retrieval requires --mode search" in outcome.err


@pytest.fixture
async def runs(library: Library, tmp_path: Path) -> tuple[EvaluationRun, EvaluationRun]:
    corpus, questions = files(tmp_path)
    first = await evaluate(library, corpus, questions, tmp_path / "first")
    second = await evaluate(
        library, corpus, questions, tmp_path / "second", retrieval="keyword", stored=True
    )
    return first, second


async def test_run_display_has_metrics_and_plot(
    runs: tuple[EvaluationRun, EvaluationRun],
) -> None:
    page = assert_harmless(runs[1]._repr_html_(), allow_svg=True)
    assert page.text.startswith("secondsearch · keyword · hash · 7 questions · 1 without an answer")
    figure = runs[1].state.metrics["overall"]["recall@10"]
    interval = f"{figure['low']:.3f} – {figure['high']:.3f}"
    assert f"recall@10{figure['value']:.3f}{interval}" in page.text
    assert "By category" in page.text
    assert "svg" in page.tags
    empty = replace(runs[0], questions=(), answers=(), seconds=())
    assert "no answers yet" in assert_harmless(empty._repr_html_()).text


async def test_comparison_display_lists_largest_losses(
    runs: tuple[EvaluationRun, EvaluationRun],
) -> None:
    first, second = runs
    answers = (replace(second.answers[0], retrieved=()), *second.answers[1:])
    worse_run = EvaluationRun(second.name, second.state, second.questions, answers, second.seconds)
    changes = compare(first, worse_run)
    assert isinstance(changes, list)
    assert repr(changes) == f"<Changes first → second: {len(changes)} metrics>"
    text = assert_harmless(changes._repr_html_()).text
    assert text.startswith("first → secondmetricbeforeafterdifference95 % intervalrecall@1")
    lost = next(c for c in changes if c.metric == "recall@10" and c.category == "overall")
    assert lost.difference < 0
    assert f"{lost.before:.3f}{lost.after:.3f}{lost.difference:+.3f}" in text
    assert "Largest losses of recall@10 (1)" in text
    assert "1.00 → 0.00fact我对海鲜过敏吗" in text


async def test_chinese_run_display_has_chinese_labels(library: Library, tmp_path: Path) -> None:
    run = await evaluate(library, *files(tmp_path, CHINESE), tmp_path / "run")
    text = assert_harmless(run._repr_html_(), allow_svg=True).text
    assert "3 个问题" in text
    assert "指标数值95 % 区间" in text
    assert "按类别" in text


async def test_figures_are_inert_html(
    runs: tuple[EvaluationRun, EvaluationRun],
) -> None:
    figures = figures_of(*runs)
    assert list(figures) == ["recall_by_depth", "by_category", "calibration", "latency"]
    for figure in figures.values():
        page = assert_harmless(figure._repr_html_(), allow_svg=True)
        assert page.text.startswith(f"{figure.heading}{figure.caption}● first ● second ")
        assert "svg" in page.tags
        assert repr(figure) == f"<Figure {figure.name}: {figure.heading}>"


async def test_questions_are_escaped_in_displays(library: Library, tmp_path: Path) -> None:
    rows = [{**QUERIES[0], "query": f"我对海鲜过敏吗 {EVIL}", "category": EVIL, "evidence": ["m2"]}]
    corpus, questions = files(tmp_path, rows)
    folder = tmp_path / EVIL.replace("/", "")
    first = await evaluate(library, corpus, questions, folder)
    second = await evaluate(
        library, corpus, questions, tmp_path / "words", retrieval="keyword", stored=True
    )
    for html in (first._repr_html_(), compare(first, second)._repr_html_()):
        assert folder.name in assert_harmless(html, allow_svg=True).text
    for figure in figures_of(first, second).values():
        assert folder.name in assert_harmless(figure._repr_html_(), allow_svg=True).text
