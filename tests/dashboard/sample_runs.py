"""Sample evaluation runs: three runs of the same questions, one of them incomplete."""

import json
from pathlib import Path

from memrecall.evaluation.datasets import QuestionResult
from memrecall.evaluation.metrics import summarize
from memrecall.evaluation.runs import RunFolder, RunPlan, RunState

from .sample import SCRIPT

QUESTIONS = 12
NEVER_FOUND = 3


def write_sample_runs(folder: Path) -> None:
    """Write the runs: `first` misses the evidence of one question, `second` of two."""
    _write_run(folder / "first", "2026-01-01T10:00:00Z", missed={NEVER_FOUND})
    _write_run(folder / "second", "2026-02-01T10:00:00Z", missed={NEVER_FOUND, 7})
    _write_run(folder / "third", "2026-03-01T10:00:00Z", missed=set(), answered=5)


def _write_run(path: Path, started_at: str, missed: set[int], answered: int = QUESTIONS) -> None:
    plan = RunPlan(
        mode="search", depth=20, max_questions=None, corpus_sha256="c", queries_sha256="q",
        embedder="hash", model="", version="0.1.0",
    )  # fmt: skip
    state = RunState(plan, "corpus.jsonl", "queries.jsonl", started_at, imported=True)
    questions = [
        {
            "query_id": f"q{number}",
            "user_id": "ann",
            "query": SCRIPT if number == 7 else f"What about number {number}?",
            "evidence": [f"m{number}"],
            "category": "fact" if number % 2 else "temporal",
        }
        for number in range(QUESTIONS)
    ]
    run = RunFolder(path)
    run.begin(state, "".join(json.dumps(item) + "\n" for item in questions).encode())
    for number, item in enumerate(questions[:answered]):
        key = "other" if number in missed else f"m{number}"
        retrieved = ((key, 0.9), ("beside", 0.2))
        answer = QuestionResult(str(item["query_id"]), str(item["category"]), retrieved, (0.8, 0.1))
        run.append(answer, 0.004 + number / 1000)
    run_data = run.read()
    state.counts = {"questions": QUESTIONS, "answered": answered}
    state.complete = answered == QUESTIONS
    if state.complete:
        state.metrics = summarize(run_data.questions, run_data.answers, run_data.seconds)
    run.save(state)
