"""The figures of some runs: what each shows, and its plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.metrics import (
    judged_confidence,
    judged_results,
    summarise,
    trade_off,
)
from memrecall.evaluation.plots import (
    Axis,
    Series,
    Whisker,
    line_chart,
    log_axis,
    share_axis,
    whisker_chart,
)
from memrecall.evaluation.runs import EvaluationRun
from memrecall.evaluation.statistics import calibration_bins

DEEPEST = 50


def recall_by_depth(run: EvaluationRun) -> list[float]:
    """The share of a question's evidence among the first 1, 2, … keys."""
    depth = min(run.state.plan.depth, DEEPEST)
    found = np.zeros((len(run.answers), depth))
    asked = [len(question.evidence) for question in run.questions]
    for at, (question, answer) in enumerate(zip(run.questions, run.answers, strict=True)):
        for place, key in enumerate(answer.keys[:depth]):
            found[at, place] = key in question.evidence
    counts = np.array(asked)
    known = counts > 0
    if not known.any():
        return [0.0] * depth
    shares = found[known].cumsum(axis=1) / counts[known, None]
    return [float(value) for value in shares.mean(axis=0)]


def calibration(run: EvaluationRun) -> tuple[str, list[tuple[float, float, int]]]:
    """What was predicted, and in bins: the prediction, how often it came true, of how many."""
    pairs = list(zip(run.questions, run.answers, strict=True))
    if run.state.plan.mode == "recall":
        kind, (predicted, true) = "confidence", judged_confidence(pairs)
    elif all(answer.probabilities is not None for answer in run.answers):
        kind = "probability"
        predicted, true = judged_results(pairs, lambda answer: answer.probabilities or ())
    else:
        kind = "relevance score"
        predicted, true = judged_results(pairs, lambda answer: [s for _, s in answer.retrieved])
    known = ~np.isnan(predicted)
    return kind, calibration_bins(predicted[known], true[known])


def latency_shares(run: EvaluationRun) -> list[tuple[float, float]]:
    """Milliseconds, and the share of the questions that took at most so long."""
    took = sorted(1000 * seconds for seconds in run.seconds)
    return [(ms, number / len(took)) for number, ms in enumerate(took, 1)]


MOST_RUNS = 8  # so many colours can be told apart
_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Shown:
    """A run with its name on the page, its colour and its figures."""

    name: str
    colour: int
    run: EvaluationRun
    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its heading and what is to be said of it. A notebook shows it as an image."""

    name: str
    heading: str
    said: str
    plot: str  # SVG whose colours are classes
    shown: Sequence[Shown]

    def __repr__(self) -> str:
        return f"<Figure {self.name}: {self.heading}>"

    def _repr_svg_(self) -> str:
        """How a notebook shows it."""
        from memrecall.evaluation.plots import image_of

        runs = [(each.name, each.colour) for each in self.shown]
        return image_of(self.heading, self.said, runs, self.plot)


def figures_of(*runs: EvaluationRun) -> dict[str, Figure]:
    """The figures of up to eight runs, by name: `recall_by_depth`, `by_category`, …"""
    return {figure.name: figure for figure in draw_figures(shown_runs(runs))}


def shown_runs(runs: Sequence[EvaluationRun]) -> list[Shown]:
    """Runs with names and colours that tell them apart; refuses runs without an answer."""
    if len(runs) > MOST_RUNS:
        raise InvalidArgument(f"{len(runs)} runs do not fit one report", hint="Give at most 8")
    for run in runs:
        if not run.answers:
            raise InvalidArgument(f"{run.name} has no answer yet", hint="Run it first")
    return [
        Shown(name, at, run, summarise(run.questions, run.answers, run.seconds))
        for at, (name, run) in enumerate(zip(unique_names(runs), runs, strict=True))
    ]


def draw_figures(shown: Sequence[Shown]) -> list[Figure]:
    """Every figure that these runs have."""
    return [
        _recall_by_depth(shown),
        _by_category(shown, "by_category", "recall@10", "evidence recall at 10"),
        *_handed_off(shown),
        *_abstention(shown),
        _calibration(shown),
        _latency(shown),
    ]


def unique_names(runs: Sequence[EvaluationRun]) -> list[str]:
    """What the runs are called; runs of one name are numbered."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: at + 1].count(name)})"
        for at, name in enumerate(names)
    ]


def _recall_by_depth(shown: Sequence[Shown]) -> Figure:
    heading = "Evidence recall against k"
    series = [
        Series(each.name, each.colour, list(enumerate(recall_by_depth(each.run), 1)))
        for each in shown
    ]
    deepest = max(len(each.points) for each in series)
    ticks = [k for k in (1, 5, 10, 20, 30, 40, 50) if k <= deepest]
    axis = Axis("k", 1, max(deepest, 2), ticks)
    plot = line_chart(heading, axis, share_axis("share of the evidence"), series)
    return Figure(
        "recall_by_depth",
        heading,
        "Share of a question's evidence among the first k keys.",
        plot,
        shown,
    )


def _by_category(shown: Sequence[Shown], name: str, metric: str, label: str) -> Figure:
    kinds = sorted({kind for each in shown for kind in each.metrics["categories"]})
    rows = [("overall", [(each, each.metrics["overall"]) for each in shown])]
    rows += [
        (kind, [(each, each.metrics["categories"].get(kind, {})) for each in shown])
        for kind in kinds
    ]
    groups = [
        (kind, [_whisker(each, told[metric]) for each, told in figures if metric in told])
        for kind, figures in rows
    ]
    heading = f"{label[0].upper()}{label[1:]} by category"
    plot = whisker_chart(heading, label, [group for group in groups if group[1]])
    return Figure(name, heading, "With 95 % intervals.", plot, shown)


def _whisker(each: Shown, told: dict[str, float]) -> Whisker:
    return Whisker(each.name, each.colour, told["value"], told["low"], told["high"])


def _handed_off(shown: Sequence[Shown]) -> list[Figure]:
    if not any(each.run.state.plan.mode == "recall" for each in shown):
        return []
    return [_by_category(shown, "handed_off", "f1", "F1 of the keys handed off")]


def _abstention(shown: Sequence[Shown]) -> list[Figure]:
    """Where a threshold of the confidence may lie, if some questions have no answer."""
    heading = "Abstaining below a confidence"
    series = [
        Series(each.name, each.colour, points)
        for each in shown
        if each.run.state.plan.mode == "recall"
        and (points := trade_off(list(zip(each.run.questions, each.run.answers, strict=True))))
    ]
    if not series:
        return []
    across = share_axis("answerable questions left unanswered")
    up = share_axis("unanswerable questions noticed")
    plot = line_chart(heading, across, up, series, diagonal=True)
    said = "Each point is a threshold; on the diagonal nothing is told apart."
    return [Figure("abstention", heading, said, plot, shown)]


def _calibration(shown: Sequence[Shown]) -> Figure:
    heading = "Calibration"
    series, kinds = [], []
    for each in shown:
        kind, bins = calibration(each.run)
        kinds.append(kind)
        points = [(said, came) for said, came, _ in bins]
        series.append(Series(f"{each.name}, {kind}", each.colour, points, dots=True))
    across = share_axis(" or ".join(dict.fromkeys(kinds)))
    plot = line_chart(heading, across, share_axis("share that is evidence"), series, diagonal=True)
    said = (
        "Ten bins of equal size. A confidence is right if any evidence was handed off, a "
        "probability or score if the result is evidence (first 20). A score only ranks: "
        "it need not lie on the diagonal."
    )
    return Figure("calibration", heading, said, plot, shown)


def _latency(shown: Sequence[Shown]) -> Figure:
    heading = "Latency"
    series = [Series(each.name, each.colour, latency_shares(each.run)) for each in shown]
    axis = log_axis("milliseconds", [ms for each in series for ms, _ in each.points])
    plot = line_chart(heading, axis, share_axis("share of the questions"), series)
    return Figure(
        "latency", heading, "Share of the questions that took at most so long.", plot, shown
    )
