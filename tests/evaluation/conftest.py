"""The command line with files to evaluate on."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome, Shell, shell
from tests.evaluation.samples import CORPUS, QUERIES, message, write_lines

__all__ = ["shell"]


@dataclass(frozen=True)
class Bench:
    """Runs evaluations of the sample files."""

    shell: Shell
    folder: Path
    corpus: Path
    queries: Path

    def run(self, name: str, mode: str = "search", *more: object) -> Outcome:
        """`memrecall eval run` into a folder of that name."""
        files = ("--corpus", self.corpus, "--queries", self.queries)
        return self.shell(
            "eval", "run", *files, "--mode", mode, "--out", self.folder / name, "--json", *more
        )

    def file(self, name: str, part: str) -> Path:
        """A file of a run."""
        return self.folder / name / part


@pytest.fixture
def bench(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    use_few_resamples(monkeypatch)
    corpus = write_lines(tmp_path / "corpus.jsonl", CORPUS)
    queries = write_lines(tmp_path / "queries.jsonl", QUERIES)
    return Bench(shell, tmp_path, corpus, queries)


def use_few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few times for an interval: how sure it is has tests of its own."""
    monkeypatch.setattr("memrecall.evaluation.statistics.RESAMPLES", 50)


@pytest.fixture
def many(bench: Bench) -> Bench:
    """Forty questions, half of each of two kinds."""
    rows = [
        message("lin", f"n{n}", f"2025-{n % 12 + 1:02}-05", f"number{n} is here") for n in range(40)
    ]
    write_lines(bench.corpus, rows)
    kinds = ["odd", "even"]
    asked = [
        {"query_id": f"q{n}", "user_id": "lin", "query": f"number{n}", "evidence": [f"n{n}"],
         "category": kinds[n % 2]}
        for n in range(40)
    ]  # fmt: skip
    write_lines(bench.queries, asked)
    return bench
