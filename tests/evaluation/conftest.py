"""Fixtures that run evaluations of sample files from the command line."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome, Shell, shell
from tests.evaluation.samples import CORPUS, QUERIES, message, write_lines

__all__ = ["shell"]


@dataclass(frozen=True)
class EvaluationCli:
    """The `memrecall eval` commands and the sample files."""

    shell: Shell
    folder: Path
    corpus: Path
    queries: Path

    def run(self, name: str, mode: str = "search", *options: object) -> Outcome:
        """Run `memrecall eval run` and write to the named folder."""
        files = ("--corpus", self.corpus, "--queries", self.queries)
        return self.shell(
            "eval", "run", *files, "--mode", mode, "--out", self.folder / name, "--json", *options
        )

    def call(self, command: str, *words: object) -> Outcome:
        """Run another command of `memrecall eval`; words are names of runs up to an option."""
        options = next((at for at, word in enumerate(words) if str(word)[:2] == "--"), len(words))
        runs = [self.folder / str(word) for word in words[:options]]
        return self.shell("eval", command, *runs, *words[options:])

    def file(self, name: str, part: str) -> Path:
        """Return the path of a run's file."""
        return self.folder / name / part


@pytest.fixture
def evaluation(shell: Shell, tmp_path: Path) -> EvaluationCli:
    corpus = write_lines(tmp_path / "corpus.jsonl", CORPUS)
    queries = write_lines(tmp_path / "queries.jsonl", QUERIES)
    return EvaluationCli(shell, tmp_path, corpus, queries)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few resamples for intervals; one test asks for the real number."""
    monkeypatch.setattr("memrecall.evaluation.metrics.RESAMPLES", 20)


@pytest.fixture
def large_evaluation(evaluation: EvaluationCli) -> EvaluationCli:
    """An evaluation of forty questions in two categories of equal size."""
    rows = [
        message("lin", f"n{n}", f"2025-{n % 12 + 1:02}-05", f"number{n} is here") for n in range(40)
    ]
    write_lines(evaluation.corpus, rows)
    kinds = ["odd", "even"]
    questions = [
        {"query_id": f"q{n}", "user_id": "lin", "query": f"number{n}", "evidence": [f"n{n}"],
         "category": kinds[n % 2]}
        for n in range(40)
    ]  # fmt: skip
    write_lines(evaluation.queries, questions)
    return evaluation
