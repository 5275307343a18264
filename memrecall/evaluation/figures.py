"""The figures of one or more runs: data, heading, caption and plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.metrics import (
    abstention_curve,
    confidence_outcomes,
    has_probabilities,
    result_outcomes,
)
from memrecall.evaluation.plots import (
    Axis,
    Series,
    category_chart,
    category_heading,
    line_chart,
    log_axis,
    render_image,
    share_axis,
)
from memrecall.evaluation.runs import EvaluationRun
from memrecall.evaluation.statistics import calibration_bins

MAX_DEPTH = 50
MAX_RUNS = 8  # the palette has eight distinguishable colours


def recall_by_depth(run: EvaluationRun) -> list[float]:
    """Return the share of the evidence among the first 1, 2, … keys."""
    depth = min(run.state.plan.depth, MAX_DEPTH)
    is_hit = np.zeros((len(run.answers), depth))
    for row, (question, answer) in enumerate(run.pairs):
        for rank, key in enumerate(answer.keys[:depth]):
            is_hit[row, rank] = key in question.evidence
    counts = np.array([len(question.evidence) for question in run.questions])
    has_evidence = counts > 0
    if not has_evidence.any():
        return [0.0] * depth
    shares = is_hit[has_evidence].cumsum(axis=1) / counts[has_evidence, None]
    return [float(value) for value in shares.mean(axis=0)]


def calibration(run: EvaluationRun) -> tuple[str, list[tuple[float, float, int]]]:
    """Return the kind of prediction, and its bins: mean prediction, share true, size."""
    pairs = run.pairs
    if run.state.plan.mode == "recall":
        kind, (predicted, true) = "confidence", confidence_outcomes(pairs)
    elif has_probabilities(run.answers):
        kind = "probability"
        predicted, true = result_outcomes(pairs, lambda answer: answer.probabilities or ())
    else:
        kind = "relevance score"
        predicted, true = result_outcomes(pairs, lambda answer: [s for _, s in answer.retrieved])
    is_present = ~np.isnan(predicted)
    return kind, calibration_bins(predicted[is_present], true[is_present])


def latency_shares(run: EvaluationRun) -> list[tuple[float, float]]:
    """Return the latencies in milliseconds with their cumulative share of the questions."""
    latencies = sorted(1000 * seconds for seconds in run.seconds)
    return [(ms, number / len(latencies)) for number, ms in enumerate(latencies, 1)]


@dataclass(frozen=True, slots=True)
class PlottedRun:
    """A run with its label, colour and metrics in a report."""

    name: str
    colour: int
    run: EvaluationRun
    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with heading and caption, displayed as an image in notebooks."""

    name: str
    heading: str
    caption: str
    plot: str  # SVG with CSS classes for its colours
    runs: Sequence[PlottedRun]

    def __repr__(self) -> str:
        return f"<Figure {self.name}: {self.heading}>"

    def _repr_svg_(self) -> str:
        legend = [(run.name, run.colour) for run in self.runs]
        return render_image(self.heading, self.caption, legend, self.plot)


def figures_of(*runs: EvaluationRun) -> dict[str, Figure]:
    """Return the figures of up to eight runs, by name: `recall_by_depth`, `by_category`, …"""
    return {figure.name: figure for figure in draw_figures(prepare_runs(runs))}


def prepare_runs(runs: Sequence[EvaluationRun]) -> list[PlottedRun]:
    """Give runs distinct labels and colours; reject runs without results."""
    if len(runs) > MAX_RUNS:
        raise InvalidArgument(
            f"{len(runs)} runs do not fit one report", hint=f"Pass at most {MAX_RUNS}"
        )
    for run in runs:
        if not run.answers:
            raise InvalidArgument(f"{run.name} has no answers yet", hint="Run it first")
    return [
        PlottedRun(name, at, run, run.summarize())
        for at, (name, run) in enumerate(zip(unique_names(runs), runs, strict=True))
    ]


def draw_figures(runs: Sequence[PlottedRun]) -> list[Figure]:
    """Return all figures that are defined for these runs."""
    has_recall = any(run.run.state.plan.mode == "recall" for run in runs)
    handed_off = ("handed_off", "f1", "F1 of the keys handed off")
    return [
        _recall_by_depth(runs),
        _by_category(runs, "by_category", "recall@10", "evidence recall at 10"),
        *([_by_category(runs, *handed_off)] if has_recall else []),
        *_abstention(runs),
        _calibration(runs),
        _latency(runs),
    ]


def unique_names(runs: Sequence[EvaluationRun]) -> list[str]:
    """Return the names of the runs; equal names are numbered."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: at + 1].count(name)})"
        for at, name in enumerate(names)
    ]


def _recall_by_depth(runs: Sequence[PlottedRun]) -> Figure:
    heading = "Evidence recall against k"
    series = [
        Series(run.name, run.colour, list(enumerate(recall_by_depth(run.run), 1))) for run in runs
    ]
    deepest = max(len(line.points) for line in series)
    ticks = [k for k in (1, 5, 10, 20, 30, 40, 50) if k <= deepest]
    axis = Axis("k", 1, max(deepest, 2), ticks)
    plot = line_chart(heading, axis, share_axis("share of the evidence"), series)
    caption = "Share of the evidence among the first k keys."
    return Figure("recall_by_depth", heading, caption, plot, runs)


def _by_category(runs: Sequence[PlottedRun], name: str, metric: str, label: str) -> Figure:
    plot = category_chart(label, metric, {run.name: run.metrics for run in runs})
    return Figure(name, category_heading(label), "With 95 % intervals.", plot, runs)


def _abstention(runs: Sequence[PlottedRun]) -> list[Figure]:
    """Return the abstention curve, if some questions are unanswerable."""
    heading = "Abstaining below a confidence"
    series = [
        Series(run.name, run.colour, points)
        for run in runs
        if run.run.state.plan.mode == "recall" and (points := abstention_curve(run.run.pairs))
    ]
    if not series:
        return []
    across = share_axis("share of answerable questions unanswered")
    up = share_axis("share of unanswerable questions detected")
    plot = line_chart(heading, across, up, series, diagonal=True)
    caption = "Each point is a threshold; the diagonal is chance."
    return [Figure("abstention", heading, caption, plot, runs)]


def _calibration(runs: Sequence[PlottedRun]) -> Figure:
    heading = "Calibration"
    series, kinds = [], []
    for run in runs:
        kind, bins = calibration(run.run)
        kinds.append(kind)
        points = [(mean, share) for mean, share, _ in bins]
        series.append(Series(f"{run.name}, {kind}", run.colour, points, dots=True))
    across = share_axis(" or ".join(dict.fromkeys(kinds)))
    plot = line_chart(heading, across, share_axis("share that is evidence"), series, diagonal=True)
    caption = (
        "Ten bins of equal size. A confidence is correct if any evidence was handed off, a "
        "probability or score if the result is evidence (first 20). A score only ranks: "
        "it need not lie on the diagonal."
    )
    return Figure("calibration", heading, caption, plot, runs)


def _latency(runs: Sequence[PlottedRun]) -> Figure:
    heading = "Latency"
    series = [Series(run.name, run.colour, latency_shares(run.run)) for run in runs]
    axis = log_axis("milliseconds", [ms for line in series for ms, _ in line.points])
    plot = line_chart(heading, axis, share_axis("share of the questions"), series)
    return Figure("latency", heading, "Cumulative share of the questions.", plot, runs)
