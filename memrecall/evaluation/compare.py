"""Comparison of runs: metric by metric, question by question, and with a baseline."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.metrics import LOWER_IS_BETTER, MAIN_METRICS, categories, measure
from memrecall.evaluation.questions import Question
from memrecall.evaluation.runs import EvaluationRun, QuestionResult
from memrecall.evaluation.statistics import Floats, MetricTable, Rows, paired_intervals

OVERALL = "overall"
DEEPEST_CUT = 20
BASELINE_FORMAT = 1
MIN_CATEGORY_SIZE = 20  # smaller categories are too noisy to check on their own
_BASELINE_DIGITS = 4
_BASELINE_HINT = "`memrecall eval baseline` writes one"


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


@dataclass(frozen=True, slots=True)
class QuestionChange:
    """One question in both runs; a negative `loss` is a gain."""

    query_id: str
    category: str
    query: str
    before: float
    after: float
    loss: float


class MetricChanges(list[Change]):
    """The metrics that two runs share, with a notebook display."""

    def __init__(
        self, first: EvaluationRun, second: EvaluationRun, changes: Iterable[Change]
    ) -> None:
        super().__init__(changes)
        self.first = first
        self.second = second

    def __repr__(self) -> str:
        return f"<Changes {self.first.name} → {self.second.name}: {len(self)} metrics>"

    def _repr_html_(self) -> str:
        """Return the notebook display."""
        from memrecall.evaluation.report import render_changes

        return render_changes(self)


def require_same_questions(first: EvaluationRun, second: EvaluationRun) -> None:
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


def compare(
    first: EvaluationRun, second: EvaluationRun, *, by_category: bool = True
) -> MetricChanges:
    """Compare all metrics that both runs have, overall and by category."""
    require_same_questions(first, second)
    before, after = _shared_tables(first, second)
    groups = {OVERALL: np.arange(before.size)}
    if by_category:
        groups |= categories(first.questions)
    changes = (
        change for name, rows in groups.items() for change in _changes(before, after, name, rows)
    )
    return MetricChanges(first, second, changes)


def _shared_tables(first: EvaluationRun, second: EvaluationRun) -> tuple[MetricTable, MetricTable]:
    tables = [measure(run.questions, run.answers) for run in (first, second)]
    # Calibration error is about results in a search, but about handoffs in a recall.
    excluded = {"ece"} if first.state.plan.mode != second.state.plan.mode else set()
    shared = [name for name in tables[0].all_names if name in {*tables[1].all_names} - excluded]
    return tables[0].select(shared), tables[1].select(shared)


def _changes(before: MetricTable, after: MetricTable, category: str, rows: Rows) -> list[Change]:
    """Return the changes of all metrics that are defined for the questions in `rows`."""
    low, high = paired_intervals(before, after, rows)
    metrics = zip(
        before.all_names,
        before.counts(rows),
        before.values(rows),
        after.values(rows),
        low,
        high,
        strict=True,
    )
    return [
        Change(name, category, count, float(a), float(b), float(bottom), float(top))
        for name, count, a, b, bottom, top in metrics
        if not np.isnan(b - a)
    ]


def question_changes(
    first: EvaluationRun, second: EvaluationRun, metric: str
) -> list[QuestionChange]:
    """Return all questions by their loss of a metric, largest loss first."""
    before, after = _shared_tables(first, second)
    if metric not in before.names:
        raise InvalidArgument(
            f"metric {metric!r} does not exist for single questions of both runs",
            hint=f"Use one of {', '.join(before.names)}",
        )
    losses = before.per_question(metric) - after.per_question(metric)
    if metric in LOWER_IS_BETTER:
        losses = -losses
    order = [int(at) for at in np.argsort(-losses, kind="stable") if not np.isnan(losses[at])]
    return [
        QuestionChange(
            query_id=first.questions[at].query_id,
            category=first.questions[at].category,
            query=first.questions[at].query,
            before=float(before.per_question(metric)[at]),
            after=float(after.per_question(metric)[at]),
            loss=float(losses[at]),
        )
        for at in order
    ]


def question_metrics(first: EvaluationRun, second: EvaluationRun) -> list[str]:
    """Return the metrics that both runs have for single questions."""
    return list(_shared_tables(first, second)[0].names)


def worst_question_changes(
    first: EvaluationRun, second: EvaluationRun, metric: str, limit: int
) -> list[QuestionChange]:
    """Return the questions with the largest losses of a metric."""
    changes = question_changes(first, second, metric)
    return [change for change in changes if change.loss > 0][:limit]


_Pair = tuple[Question, QuestionResult, frozenset[str]]


@dataclass(frozen=True, slots=True)
class HandoffComparison:
    """Keys of a recall against the first keys of a search, over the answerable questions.

    A search returns a list, a recall an answer. To be worth its calls, a recall must choose keys at
    least as well as the best fixed cut of that list. An empty handoff counts as nothing found.
    """

    questions: int
    keys: float  # average number handed off
    empty: float  # share of the questions with an empty handoff
    f1: float
    search_f1: float  # cut at `best_cut` for every question
    best_cut: int
    recall: float
    search_recall: float  # cut, per question, at the number of keys handed off


def compare_handoffs(search: EvaluationRun, recall: EvaluationRun) -> HandoffComparison:
    """Compare a recall run with a search run over the same questions."""
    modes = (search.state.plan.mode, recall.state.plan.mode)
    if modes != ("search", "recall"):
        raise InvalidArgument(
            f"{search.name} is a {modes[0]} run and {recall.name} a {modes[1]} run",
            hint="Pass a search run first, then a recall run",
        )
    require_same_questions(search, recall)
    pairs = [
        (question, searched, frozenset(recalled.recalled.relevant_memory_keys))
        for question, searched, recalled in zip(
            search.questions, search.answers, recall.answers, strict=True
        )
        if question.answerable and recalled.recalled
    ]
    if not pairs:
        raise InvalidArgument(f"no question of {search.name} is answerable")
    cuts = [_mean(pairs, _cut_f1(cut)) for cut in range(1, DEEPEST_CUT + 1)]
    best = int(np.argmax(cuts))
    return HandoffComparison(
        questions=len(pairs),
        keys=_mean(pairs, lambda question, searched, keys: len(keys)),
        empty=_mean(pairs, lambda question, searched, keys: not keys),
        f1=_mean(pairs, lambda question, searched, keys: _f1(keys, question.evidence)),
        search_f1=cuts[best],
        best_cut=best + 1,
        recall=_mean(pairs, lambda question, searched, keys: _recall(keys, question.evidence)),
        search_recall=_mean(pairs, _search_recall),
    )


def _cut_f1(cut: int) -> Callable[[Question, QuestionResult, frozenset[str]], float]:
    return lambda question, searched, keys: _f1(frozenset(searched.keys[:cut]), question.evidence)


def _search_recall(question: Question, searched: QuestionResult, keys: frozenset[str]) -> float:
    return _recall(frozenset(searched.keys[: len(keys)]), question.evidence)


def _mean(
    pairs: Sequence[_Pair], metric: Callable[[Question, QuestionResult, frozenset[str]], float]
) -> float:
    return round(float(np.mean([metric(*pair) for pair in pairs])), 6)


def _f1(keys: frozenset[str], evidence: Sequence[str]) -> float:
    return 2 * len(keys.intersection(evidence)) / (len(keys) + len(evidence))


def _recall(keys: frozenset[str], evidence: Sequence[str]) -> float:
    return len(keys.intersection(evidence)) / len(evidence)


def render_baseline(run: EvaluationRun) -> str:
    """Return the main scores of a complete run as JSON, with one line per question."""
    _require_complete(run)
    plan, metrics = run.state.plan, MAIN_METRICS[run.state.plan.mode]
    table = measure(run.questions, run.answers)
    columns = [table.per_question(name) for name in metrics]
    header = {
        "format": BASELINE_FORMAT,
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


def _row(columns: list[Floats], at: int) -> list[float | None]:
    values = [float(column[at]) for column in columns]
    return [None if np.isnan(value) else round(value, _BASELINE_DIGITS) for value in values]


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
    rounded = [np.round(table.per_question(name), _BASELINE_DIGITS) for name in names]
    after = _score_table(names, np.stack(rounded))
    scores = [baseline["scores"][question.query_id] for question in run.questions]
    before = _score_table(names, np.array(scores, dtype=np.float64).T)
    groups = {OVERALL: np.arange(after.size), **categories(run.questions)}
    return [
        change
        for category, rows in groups.items()
        for change in _changes(before, after, category, rows)
        if category == OVERALL or change.questions >= MIN_CATEGORY_SIZE
    ]


def is_regression(change: Change) -> bool:
    """Return True if a score is significantly below its baseline."""
    return change.high < 0


def _score_table(names: list[str], scores: Floats) -> MetricTable:
    is_defined = ~np.isnan(scores)
    numerators = np.where(is_defined, scores, 0.0)
    return MetricTable(tuple(names), numerators, is_defined.astype(np.float64))


def _read_baseline(path: Path) -> dict[str, Any]:
    try:
        baseline: dict[str, Any] = json.loads(path.read_bytes())
        is_readable = baseline["format"] == BASELINE_FORMAT
        is_readable = is_readable and isinstance(baseline["scores"], dict)
    except OSError as error:
        raise InvalidArgument(
            f"cannot read {path}: {error.strerror}", hint=_BASELINE_HINT
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{path} is not a baseline: {error}", hint=_BASELINE_HINT) from None
    if not is_readable:
        raise InvalidArgument(f"{path} has another baseline format", hint=_BASELINE_HINT)
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
