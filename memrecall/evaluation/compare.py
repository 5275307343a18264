"""What a recall hands off, beside a search that is cut at a number of keys.

A search gives a list, a recall gives an answer. To be worth its calls it must choose keys at least
as well as the best single cut of that list does, which nobody knows beforehand.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.metrics import LOWER_IS_BETTER, categories, measure
from memrecall.evaluation.questions import Question
from memrecall.evaluation.runs import EvaluationRun, QuestionResult
from memrecall.evaluation.statistics import Rows, Table, paired_intervals

OVERALL = "overall"


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in both runs, and the interval of its difference."""

    metric: str
    category: str
    questions: int
    before: float
    after: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """What was gained; below 0: lost."""
        return self.after - self.before

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves no doubt about the direction."""
        return self.low > 0 or self.high < 0

    @property
    def is_better(self) -> bool:
        """Whether it went the way that one wants."""
        return (self.difference > 0) != (self.metric in LOWER_IS_BETTER)


@dataclass(frozen=True, slots=True)
class QuestionChange:
    """A question in both runs; `loss` is how much worse it did, below 0 how much better."""

    query_id: str
    category: str
    query: str
    before: float
    after: float
    loss: float


class MetricChanges(list[Change]):
    """The figures that two runs share; a notebook shows them with what got worse."""

    def __init__(
        self, first: EvaluationRun, second: EvaluationRun, changes: Iterable[Change]
    ) -> None:
        super().__init__(changes)
        self.first = first
        self.second = second

    def __repr__(self) -> str:
        return f"<Changes {self.first.name} → {self.second.name}: {len(self)} figures>"

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from memrecall.evaluation.display import changes_html

        return changes_html(self)


def require_same_questions(first: EvaluationRun, second: EvaluationRun) -> None:
    """Refuse two runs that were asked different things."""
    asked = [[question.query_id for question in run.questions] for run in (first, second)]
    plans = [run.state.plan for run in (first, second)]
    if plans[0].queries_sha256 != plans[1].queries_sha256:
        differ = "were asked different questions"
    elif plans[0].corpus_sha256 != plans[1].corpus_sha256:
        differ = "are about different corpora"
    elif asked[0] != asked[1]:
        differ = f"have {len(asked[0])} and {len(asked[1])} answers"
    elif not asked[0]:
        differ = "have no answer yet"
    else:
        return
    raise InvalidArgument(
        f"{first.name} and {second.name} {differ}",
        hint="Compare complete runs of the same files and the same --max-questions",
    )


def compare(
    first: EvaluationRun, second: EvaluationRun, *, by_category: bool = True
) -> MetricChanges:
    """Every figure that both runs have, over all questions and by category."""
    require_same_questions(first, second)
    before, after = _shared_tables(first, second)
    groups = {OVERALL: np.arange(before.size)}
    if by_category:
        groups |= categories(first.questions)
    changes = (
        change for name, rows in groups.items() for change in changes_of(before, after, name, rows)
    )
    return MetricChanges(first, second, changes)


def _shared_tables(first: EvaluationRun, second: EvaluationRun) -> tuple[Table, Table]:
    tables = [measure(run.questions, run.answers) for run in (first, second)]
    # Of results in a search, of answers in a recall: the same word, but not the same thing.
    apart = {"ece"} if first.state.plan.mode != second.state.plan.mode else set()
    shared = [name for name in tables[0].all_names if name in {*tables[1].all_names} - apart]
    return tables[0].only(shared), tables[1].only(shared)


def changes_of(before: Table, after: Table, category: str, rows: Rows) -> list[Change]:
    """The figures of two tables over some questions; those that have no meaning are left out."""
    low, high = paired_intervals(before, after, rows)
    figures = zip(
        before.all_names,
        before.counts(rows),
        before.values(rows),
        after.values(rows),
        low,
        high,
        strict=True,
    )
    return [
        Change(name, category, count, float(a), float(b), float(least), float(most))
        for name, count, a, b, least, most in figures
        if not np.isnan(b - a)
    ]


def question_changes(
    first: EvaluationRun, second: EvaluationRun, metric: str
) -> list[QuestionChange]:
    """All questions by a figure, those that lost most of it first."""
    before, after = _shared_tables(first, second)
    if metric not in before.names:
        raise InvalidArgument(
            f"metric {metric!r} is not one that both runs have for single questions",
            hint=f"Use one of {', '.join(before.names)}",
        )
    losses = before.each(metric) - after.each(metric)
    if metric in LOWER_IS_BETTER:
        losses = -losses
    order = [int(at) for at in np.argsort(-losses, kind="stable") if not np.isnan(losses[at])]
    return [
        QuestionChange(
            query_id=first.questions[at].query_id,
            category=first.questions[at].category,
            query=first.questions[at].query,
            before=float(before.each(metric)[at]),
            after=float(after.each(metric)[at]),
            loss=float(losses[at]),
        )
        for at in order
    ]


def question_metrics(first: EvaluationRun, second: EvaluationRun) -> list[str]:
    """The figures that both runs have for single questions."""
    return list(_shared_tables(first, second)[0].names)


def worsened(
    first: EvaluationRun, second: EvaluationRun, metric: str, most: int
) -> list[QuestionChange]:
    """The questions that lost most of a figure."""
    changes = question_changes(first, second, metric)
    return [change for change in changes if change.loss > 0][:most]


DEEPEST_CUT = 20

_Pair = tuple[Question, QuestionResult, frozenset[str]]


@dataclass(frozen=True, slots=True)
class HandedOff:
    """Keys of a recall against the first keys of a search, over the answerable questions.

    Nothing handed off counts as nothing found, on both sides of `recall`.
    """

    questions: int
    keys: float  # handed off, on average
    empty: float  # the share of these questions for which nothing was handed off
    f1: float
    search_f1: float  # cut at `best_cut`, which is the same for every question
    best_cut: int
    recall: float
    search_recall: float  # cut, question by question, at as many keys as the recall handed off


def hand_off_figures(search: EvaluationRun, recall: EvaluationRun) -> HandedOff:
    """Hold a recall run against a search run of the same questions."""
    modes = (search.state.plan.mode, recall.state.plan.mode)
    if modes != ("search", "recall"):
        raise InvalidArgument(
            f"{search.name} is a {modes[0]} run and {recall.name} a {modes[1]} run",
            hint="Give a search run first, then a recall run",
        )
    require_same_questions(search, recall)
    pairs = [
        (question, found, frozenset(given.recalled.relevant_memory_keys))
        for question, found, given in zip(
            search.questions, search.answers, recall.answers, strict=True
        )
        if question.answerable and given.recalled
    ]
    if not pairs:
        raise InvalidArgument(f"no question of {search.name} has an answer")
    cuts = [_mean(pairs, _cut_f1(cut)) for cut in range(1, DEEPEST_CUT + 1)]
    best = int(np.argmax(cuts))
    return HandedOff(
        questions=len(pairs),
        keys=_mean(pairs, lambda question, found, keys: len(keys)),
        empty=_mean(pairs, lambda question, found, keys: not keys),
        f1=_mean(pairs, lambda question, found, keys: _f1(keys, question.evidence)),
        search_f1=cuts[best],
        best_cut=best + 1,
        recall=_mean(pairs, lambda question, found, keys: _recall(keys, question.evidence)),
        search_recall=_mean(pairs, _search_recall),
    )


def _cut_f1(cut: int) -> Callable[[Question, QuestionResult, frozenset[str]], float]:
    return lambda question, found, keys: _f1(frozenset(found.keys[:cut]), question.evidence)


def _search_recall(question: Question, found: QuestionResult, keys: frozenset[str]) -> float:
    return _recall(frozenset(found.keys[: len(keys)]), question.evidence)


def _mean(
    pairs: Sequence[_Pair], figure: Callable[[Question, QuestionResult, frozenset[str]], float]
) -> float:
    return round(float(np.mean([figure(*pair) for pair in pairs])), 6)


def _f1(keys: frozenset[str], evidence: Sequence[str]) -> float:
    return 2 * len(keys.intersection(evidence)) / (len(keys) + len(evidence))


def _recall(keys: frozenset[str], evidence: Sequence[str]) -> float:
    return len(keys.intersection(evidence)) / len(evidence)
