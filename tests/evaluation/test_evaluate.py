"""`evaluate()` and its options."""

import json
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.evaluation.datasets import Corpus, QuestionSet, read_corpus, read_questions
from memrecall.evaluation.runner import evaluate
from memrecall.importers.jsonl import read_entry
from memrecall.memory import Library

from .conftest import EvaluationCli
from .samples import CORPUS, QUERIES, write_lines


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
