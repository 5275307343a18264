"""Comparison of runs with each other, metric by metric, and baselines.

A baseline has the main scores of a run, which later runs are checked against.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.metrics import (
    LOWER_IS_BETTER,
    MAIN_METRICS,
    FloatArray,
    MetricTable,
    RowNumbers,
    categories,
    intervals,
    measure,
)
from memrecall.evaluation.runs import EvaluationRun

OVERALL = "overall"
_FORMAT = 1  # of baselines
MIN_CATEGORY_SIZE = 20  # smaller categories are too noisy to check on their own
_DIGITS = 4
_HINT = "`memrecall eval baseline` writes one"


@dataclass(frozen=True, slots=True)
class Change:
    """One metric in both runs, and the interval of its difference."""

    metric: str
    category: str
    questions: int
    before: float
    after: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """The gain; negative for a loss."""
        return self.after - self.before

    @property
    def is_significant(self) -> bool:
        """True if the interval does not contain 0."""
        return self.low > 0 or self.high < 0

    @property
    def is_better(self) -> bool:
        """True if the metric improved."""
        return (self.difference > 0) != (self.metric in LOWER_IS_BETTER)


def _require_same_questions(first: EvaluationRun, second: EvaluationRun) -> None:
    """Reject runs over different questions."""
    ids = [[question.query_id for question in run.questions] for run in (first, second)]
    plans = [run.state.plan for run in (first, second)]
    if plans[0].queries_sha256 != plans[1].queries_sha256:
        difference = "have different questions"
    elif plans[0].corpus_sha256 != plans[1].corpus_sha256:
        difference = "have different corpora"
    elif ids[0] != ids[1]:
        difference = f"have {len(ids[0])} and {len(ids[1])} answers"
    elif not ids[0]:
        difference = "have no answers yet"
    else:
        return
    raise InvalidArgument(
        f"{first.name} and {second.name} {difference}",
        hint="Compare complete runs of the same files with the same --max-questions",
    )


def compare(first: EvaluationRun, second: EvaluationRun) -> list[Change]:
    """Compare all metrics that both runs have, overall and by category."""
    _require_same_questions(first, second)
    before, after = (measure(run.questions, run.answers) for run in (first, second))
    # Calibration error is about results in a search, but about handoffs in a recall.
    excluded = {"ece"} if first.state.plan.mode != second.state.plan.mode else set()
    shared = [name for name in before.all_names if name in {*after.all_names} - excluded]
    groups = {OVERALL: np.arange(before.size), **categories(first.questions)}
    return list(_table_changes(before.select(shared), after.select(shared), groups))


def _table_changes(
    before: MetricTable, after: MetricTable, groups: Mapping[str, RowNumbers]
) -> Iterable[Change]:
    """Yield the changes of each group of questions, for the metrics that it defines."""
    for category, rows in groups.items():
        low, high = intervals(after, rows, before=before)
        counts = before.counts(rows)
        columns = (before.all_names, counts, before.values(rows), after.values(rows), low, high)
        for name, count, *values in zip(*columns, strict=True):
            if not np.isnan(values[1] - values[0]):
                yield Change(name, category, count, *map(float, values))


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
    lines = []
    for question, scores in zip(run.questions, zip(*columns, strict=True), strict=True):
        values = [None if np.isnan(score) else round(float(score), _DIGITS) for score in scores]
        key = json.dumps(question.query_id, ensure_ascii=False)
        lines.append(f"{key}: {json.dumps(values)}")
    body = ",\n".join(lines)
    return f'{opening}, "scores": {{\n{body}\n}}}}\n'


def _require_complete(run: EvaluationRun) -> None:
    if not run.state.complete:
        raise InvalidArgument(
            f"{run.name} is not complete: {len(run.answers)} questions are answered",
            hint="Repeat its `memrecall eval run` to continue",
        )


def compare_with_baseline(run: EvaluationRun, path: Path) -> list[Change]:
    """Compare a run's main scores with a baseline, overall and by larger category."""
    _require_complete(run)
    baseline = _read_baseline(path, run)
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
        for change in _table_changes(before, after, groups)
        if change.category == OVERALL or change.questions >= MIN_CATEGORY_SIZE
    ]


def is_regression(change: Change) -> bool:
    """Return True if a score is significantly below its baseline."""
    return change.high < 0


def _score_table(names: list[str], scores: FloatArray) -> MetricTable:
    is_defined = ~np.isnan(scores)
    numerators = np.where(is_defined, scores, 0.0)
    return MetricTable(tuple(names), numerators, is_defined.astype(np.float64))


def _read_baseline(path: Path, run: EvaluationRun) -> dict[str, Any]:
    """Read the baseline of a run; refuse one of another mode or other questions."""
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
    return baseline
