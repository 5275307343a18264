"""A baseline: the scores of a run question by question, which later runs must not fall below."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.compare import OVERALL, Change, changes_of
from memrecall.evaluation.metrics import MAIN, categories, measure
from memrecall.evaluation.runs import EvaluationRun
from memrecall.evaluation.statistics import Floats, Table

FORMAT = 1
LEAST_QUESTIONS = 20  # a smaller category says too little by itself
_DIGITS = 4


def baseline_of(run: EvaluationRun) -> str:
    """The main scores of a complete run as JSON, a line for each question."""
    _require_complete(run)
    table, names = measure(run.questions, run.answers), MAIN[run.state.plan.mode]
    columns = [table.each(name) for name in names]
    head = {
        "format": FORMAT,
        "mode": run.state.plan.mode,
        "metrics": list(names),
        "corpus_sha256": run.state.plan.corpus_sha256,
        "queries_sha256": run.state.plan.queries_sha256,
    }
    opening = json.dumps(head, ensure_ascii=False)[:-1]
    scores = [
        f"{json.dumps(question.query_id, ensure_ascii=False)}: {json.dumps(_row(columns, at))}"
        for at, question in enumerate(run.questions)
    ]
    body = ",\n".join(scores)
    return f'{opening}, "scores": {{\n{body}\n}}}}\n'


def _row(columns: list[Floats], at: int) -> list[float | None]:
    return [None if np.isnan(each[at]) else round(float(each[at]), _DIGITS) for each in columns]


def _require_complete(run: EvaluationRun) -> None:
    if not run.state.complete:
        raise InvalidArgument(
            f"{run.name} is not complete: {len(run.answers)} questions were asked",
            hint="Run the same `memrecall eval run` again to go on",
        )


def check(run: EvaluationRun, path: Path) -> list[Change]:
    """The main scores beside their baseline, over all questions and by every larger category."""
    _require_complete(run)
    kept = _read(path)
    _require_fitting(run, kept, path)
    names = kept["metrics"]
    table = _at_precision(measure(run.questions, run.answers), names)
    scores = [kept["scores"][question.query_id] for question in run.questions]
    before = _table(names, np.array(scores, dtype=np.float64).T)
    groups = {OVERALL: np.arange(table.size), **categories(run.questions)}
    return [
        change
        for category, rows in groups.items()
        for change in changes_of(before, table, category, rows)
        if category == OVERALL or change.questions >= LEAST_QUESTIONS
    ]


def has_fallen(change: Change) -> bool:
    """Whether a score is surely below its baseline."""
    return change.high < 0


def _at_precision(table: Table, names: list[str]) -> Table:
    """The scores as a baseline keeps them: equal runs must be equal."""
    return _table(names, np.stack([np.round(table.each(name), _DIGITS) for name in names]))


def _table(names: list[str], scores: Floats) -> Table:
    known = ~np.isnan(scores)
    return Table(tuple(names), np.where(known, scores, 0.0), known.astype(np.float64))


def _read(path: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(path.read_bytes())
        fits = kept["format"] == FORMAT and isinstance(kept["scores"], dict)
    except OSError as error:
        raise InvalidArgument(
            f"cannot read {path}: {error.strerror}", hint="`memrecall eval baseline` writes one"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"{path} is not a baseline: {error}", hint="`memrecall eval baseline` writes one"
        ) from None
    if not fits:
        raise InvalidArgument(
            f"{path} is a baseline of another format", hint="`memrecall eval baseline` writes one"
        )
    return kept


def _require_fitting(run: EvaluationRun, kept: dict[str, Any], path: Path) -> None:
    plan = run.state.plan
    asked = {question.query_id for question in run.questions}
    differences = {
        f"is of mode {kept.get('mode')}, not {plan.mode}": kept.get("mode") != plan.mode,
        "was made with other questions": kept.get("queries_sha256") != plan.queries_sha256,
        "was made with another corpus": kept.get("corpus_sha256") != plan.corpus_sha256,
        "has the scores of other questions": kept["scores"].keys() != asked,
    }
    for said, differs in differences.items():
        if differs:
            raise InvalidArgument(
                f"the baseline {path} {said}", hint="Write it anew with `memrecall eval baseline`"
            )
