"""The figures of a run that the dashboard draws: lines, and intervals by category."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from memrecall.evaluation.metrics import (
    abstention_curve,
    confidence_outcomes,
    has_probabilities,
    result_outcomes,
)
from memrecall.evaluation.runs import EvaluationRun
from memrecall.evaluation.statistics import calibration_bins
from memrecall.text.language import fill_phrase, read_phrases
from memrecall.types import Language

_MAX_DEPTH = 50
_SHORTEST = 0.001  # milliseconds: a logarithm needs more than 0
_TEXTS = read_phrases(Path(__file__).with_name("charts.json"))


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of points, whose second values are shares, or the intervals of groups."""

    heading: str
    caption: str
    across: str  # the labels of the axes
    up: str = ""
    points: Sequence[tuple[float, float]] = ()
    span: tuple[float, float] | None = (0.0, 1.0)  # of the first values; None: logarithmic
    has_diagonal: bool = False  # perfect calibration, or chance
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # value, low, high


def recall_by_depth(run: EvaluationRun) -> list[float]:
    """Return the share of the evidence among the first 1, 2, … keys."""
    depth = min(run.state.plan.depth, _MAX_DEPTH)
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
        kind = "score"
        predicted, true = result_outcomes(pairs, lambda answer: [s for _, s in answer.retrieved])
    is_present = ~np.isnan(predicted)
    return kind, calibration_bins(predicted[is_present], true[is_present])


def make_figures(run: EvaluationRun, metrics: dict[str, Any], language: Language) -> list[Figure]:
    """Return all figures that are defined for a run with answers."""
    say = partial(fill_phrase, _TEXTS, language)

    def line(name: str, across: str, up: str, points: Sequence[Any], **options: Any) -> Figure:
        heading, caption = say(name), say(f"{name}_hint")
        return Figure(heading, caption, say(across), say(up), points, **options)

    def intervals(name: str, label: str, metric: str) -> Figure:
        groups = {"overall": metrics["overall"]} | dict(sorted(metrics["categories"].items()))
        measured = {group: values[metric] for group, values in groups.items() if metric in values}
        return Figure(say(name), say(f"{name}_hint"), say(label), groups=measured)

    depths = list(enumerate(recall_by_depth(run), 1))
    figures = [
        line("recall_by_depth", "k", "evidence_share", depths, span=(1, len(depths))),
        intervals("by_category", "recall_at_10", "recall@10"),
    ]
    if run.state.plan.mode == "recall":
        curve = abstention_curve(run.pairs)  # empty if all questions are answerable, or none
        figures.append(intervals("handed_off", "f1", "f1"))
        figures.append(line("abstention", "wrongly", "rightly", curve, has_diagonal=True))
    kind, bins = calibration(run)
    means = [(mean, share) for mean, share, _ in bins]
    figures.append(line("calibration", kind, "true_share", means, has_diagonal=True))
    latencies = sorted(max(1000 * seconds, _SHORTEST) for seconds in run.seconds)
    shares = [(ms, number / len(latencies)) for number, ms in enumerate(latencies, 1)]
    figures.append(line("latency", "milliseconds", "question_share", shares, span=None))
    return [figure for figure in figures if figure.points or figure.groups]
