"""The baseline of an evaluation: the main scores of a run, which later runs are checked against."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.compare import OVERALL, Change, table_changes
from memrecall.evaluation.metrics import MAIN_METRICS, categories, measure
from memrecall.evaluation.runs import EvaluationRun
from memrecall.evaluation.statistics import FloatArray, MetricTable

_FORMAT = 1
MIN_CATEGORY_SIZE = 20  # smaller categories are too noisy to check on their own
_DIGITS = 4
_HINT = "`memrecall eval baseline` writes one"


def render_baseline(run: EvaluationRun) -> str:
    """Return the main scores of a complete run as JSON, with one line per question."""
    _require_complete(run)
    plan, metrics = run.state.plan, MAIN_METRICS[run.state.plan.mode]
    table = measure(run.questions, run.answers)
    columns = [table.per_question(name) for name in metrics]
    header = {
        "format": _FORMAT,
        "mode": plan.mode,
        "metrics": list(metrics),
        "corpus_sha256": plan.corpus_sha256,
        "queries_sha256": plan.queries_sha256,
    }
    opening = json.dumps(header, ensure_ascii=False)[:-1]
    scores = [
        f"{json.dumps(question.query_id, ensure_ascii=False)}: {json.dumps(_row(columns, at))}"
        for at, question in enumerate(run.questions)
    ]
    body = ",\n".join(scores)
    return f'{opening}, "scores": {{\n{body}\n}}}}\n'


def _row(columns: list[FloatArray], at: int) -> list[float | None]:
    values = [float(column[at]) for column in columns]
    return [None if np.isnan(value) else round(value, _DIGITS) for value in values]


def _require_complete(run: EvaluationRun) -> None:
    if not run.state.complete:
        raise InvalidArgument(
            f"{run.name} is not complete: {len(run.answers)} questions are answered",
            hint="Repeat its `memrecall eval run` to continue",
        )


def compare_with_baseline(run: EvaluationRun, path: Path) -> list[Change]:
    """Compare a run's main scores with a baseline, overall and by larger category."""
    _require_complete(run)
    baseline = _read_baseline(path)
    _require_matching(run, baseline, path)
    names = baseline["metrics"]
    table = measure(run.questions, run.answers)
    # Rounded as in the baseline, so that equal runs are equal.
    rounded = [np.round(table.per_question(name), _DIGITS) for name in names]
    after = _score_table(names, np.stack(rounded))
    scores = [baseline["scores"][question.query_id] for question in run.questions]
    before = _score_table(names, np.array(scores, dtype=np.float64).T)
    groups = {OVERALL: np.arange(after.size), **categories(run.questions)}
    return [
        change
        for change in table_changes(before, after, groups)
        if change.category == OVERALL or change.questions >= MIN_CATEGORY_SIZE
    ]


def is_regression(change: Change) -> bool:
    """Return True if a score is significantly below its baseline."""
    return change.high < 0


def _score_table(names: list[str], scores: FloatArray) -> MetricTable:
    is_defined = ~np.isnan(scores)
    numerators = np.where(is_defined, scores, 0.0)
    return MetricTable(tuple(names), numerators, is_defined.astype(np.float64))


def _read_baseline(path: Path) -> dict[str, Any]:
    try:
        baseline: dict[str, Any] = json.loads(path.read_bytes())
        is_readable = baseline["format"] == _FORMAT
        is_readable = is_readable and isinstance(baseline["scores"], dict)
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}", hint=_HINT) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{path} is not a baseline: {error}", hint=_HINT) from None
    if not is_readable:
        raise InvalidArgument(f"{path} has another baseline format", hint=_HINT)
    return baseline


def _require_matching(run: EvaluationRun, baseline: dict[str, Any], path: Path) -> None:
    plan = run.state.plan
    ids = {question.query_id for question in run.questions}
    mode = baseline.get("mode")
    differences = {
        f"has mode {mode}, not {plan.mode}": mode != plan.mode,
        "has different questions": baseline.get("queries_sha256") != plan.queries_sha256,
        "has a different corpus": baseline.get("corpus_sha256") != plan.corpus_sha256,
        "has scores of other questions": baseline["scores"].keys() != ids,
    }
    for difference, is_present in differences.items():
        if is_present:
            raise InvalidArgument(
                f"baseline {path} {difference}", hint="Rewrite it with `memrecall eval baseline`"
            )
