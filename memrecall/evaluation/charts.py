"""The figures of a run that the dashboard shows: lines and intervals as SVG images."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
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
from memrecall.text.language import fill_phrase, language_of, read_phrases
from memrecall.text_length import truncate_text
from memrecall.types import Language

_MAX_DEPTH = 50
_TEXTS = read_phrases(Path(__file__).with_name("charts.json"))
# Distinguishable with a colour vision deficiency, and on light and dark pages.
PALETTE = ("#4477dd", "#cc7711", "#229977", "#bb4466", "#8866cc", "#33a0b5", "#99872e", "#777f8c")
_WIDTH, _HEIGHT = 520, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 24, 12, 44
_NAMES_WIDTH = 190  # left of an interval chart
_ROW_HEIGHT = 28  # in an interval chart
_GRID = {"stroke": "currentColor", "stroke_opacity": 0.2}
_COLOUR = {"stroke": PALETTE[0], "fill": PALETTE[0]}
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

Say = Callable[[str], str]
Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Axis:
    """The label and ticks of an axis, which spans the ticks."""

    label: str
    ticks: Sequence[float] = _SHARES
    is_log: bool = False

    def scale(self, start: float, end: float) -> Scale:
        """Return the mapping from values to coordinates between `start` and `end`."""
        transform = math.log10 if self.is_log else float
        low, high = transform(self.ticks[0]), transform(self.ticks[-1])
        return lambda value: start + (transform(value) - low) / ((high - low) or 1) * (end - start)


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


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart as SVG, with heading and caption."""

    heading: str
    caption: str
    chart: str


def draw_figures(run: EvaluationRun, metrics: dict[str, Any], language: Language) -> list[Figure]:
    """Return all figures that are defined for a run with answers."""
    say = partial(fill_phrase, _TEXTS, language)
    is_recall = run.state.plan.mode == "recall"
    charts: dict[str, str | None] = {
        "recall_by_depth": _depth_chart(run, say),
        "by_category": category_chart(
            say("by_category"), say("recall_at_10"), "recall@10", metrics
        ),
        "handed_off": category_chart(say("handed_off"), say("f1"), "f1", metrics)
        if is_recall
        else None,
        "abstention": _abstention_chart(run, say) if is_recall else None,
        "calibration": _calibration_chart(run, say),
        "latency": _latency_chart(run, say),
    }
    return [Figure(say(name), say(f"{name}_hint"), svg) for name, svg in charts.items() if svg]


def _depth_chart(run: EvaluationRun, say: Say) -> str:
    points = list(enumerate(recall_by_depth(run), 1))
    deepest = len(points)
    ticks = sorted({k for k in (1, 5, 10, 20, 30, 40) if k < deepest} | {deepest})
    axes = (Axis(say("k"), ticks), Axis(say("evidence_share")))
    return line_chart(say("recall_by_depth"), *axes, points)


def _abstention_chart(run: EvaluationRun, say: Say) -> str | None:
    """Draw the abstention curve, if some questions are unanswerable."""
    points = abstention_curve(run.pairs)
    axes = (Axis(say("wrongly")), Axis(say("rightly")))
    return line_chart(say("abstention"), *axes, points, diagonal=True) if points else None


def _calibration_chart(run: EvaluationRun, say: Say) -> str:
    kind, bins = calibration(run)
    points = [(mean, share) for mean, share, _ in bins]
    axes = (Axis(say(kind)), Axis(say("true_share")))
    return line_chart(say("calibration"), *axes, points, diagonal=True, dots=True)


def _latency_chart(run: EvaluationRun, say: Say) -> str:
    latencies = sorted(1000 * seconds for seconds in run.seconds)
    points = [(ms, number / len(latencies)) for number, ms in enumerate(latencies, 1)]
    across = log_axis(say("milliseconds"), latencies)
    return line_chart(say("latency"), across, Axis(say("question_share")), points)


def log_axis(label: str, values: Sequence[float]) -> Axis:
    """Return a logarithmic axis around the values, with ticks at 1, 2, 5, 10 …"""
    low, high = max(min(values), 1e-6), max(*values, 1e-6)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    first, last = max(t for t in ticks if t <= low), min(t for t in ticks if t >= high)
    visible = [tick for tick in ticks if first <= tick <= last]
    if len(visible) > 8:
        visible = [10.0**decade for decade in decades]
    return Axis(label, visible, is_log=True)


def line_chart(
    title: str,
    across: Axis,
    up: Axis,
    points: Sequence[tuple[float, float]],
    *,
    diagonal: bool = False,
    dots: bool = False,
) -> str:
    """Draw a line over two axes; the diagonal is perfect calibration, or chance."""
    bottom = _HEIGHT - _BOTTOM
    x, y = across.scale(_LEFT, _WIDTH - _RIGHT), up.scale(bottom, _TOP)
    parts = [_x_axis(across, x, bottom)]
    for tick in up.ticks:
        parts.append(_line((_LEFT, y(tick)), (_WIDTH - _RIGHT, y(tick)), **_GRID))
        parts.append(_text(_LEFT - 8, y(tick) + 4, f"{tick:g}", anchor="end"))
    if diagonal:
        dashes = {"stroke": "currentColor", "stroke_dasharray": "4 4"}
        parts.append(_line((x(0), y(0)), (x(1), y(1)), **dashes))
    parts.append(_polyline([(round(x(a), 1), round(y(b), 1)) for a, b in points], dots=dots))
    middle = (bottom + _TOP) / 2
    parts.append(_text(14, middle, up.label, transform=f"rotate(-90 14 {middle:.0f})"))
    return _svg(title, _HEIGHT, parts)


def _polyline(points: Sequence[tuple[float, float]], *, dots: bool) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    line = _element("polyline", points=path, fill="none", stroke_width=2, stroke_linejoin="round")
    circles = [_element("circle", cx=x, cy=y, r=4) for x, y in points] if dots else []
    return _element("g", line, *circles, **_COLOUR)


def category_chart(title: str, label: str, metric: str, metrics: Mapping[str, Any]) -> str:
    """Draw a metric of a run with its intervals, overall and by category."""
    groups = {"overall": metrics["overall"]} | dict(sorted(metrics["categories"].items()))
    axis = Axis(label)
    x = axis.scale(_NAMES_WIDTH, _WIDTH - _RIGHT)
    parts, top = [], float(_TOP)
    for name, group in groups.items():
        if metric in group:
            middle = top + _ROW_HEIGHT / 2
            parts += [_row_name(name, middle + 4), _interval(group[metric], x, middle)]
            top += _ROW_HEIGHT
            parts.append(_line((_NAMES_WIDTH, top), (_WIDTH - _RIGHT, top), **_GRID))
    return _svg(title, int(top + _BOTTOM), [_x_axis(axis, x, top, _NAMES_WIDTH), *parts])


def _row_name(name: str, y: float) -> str:
    label = truncate_text(name, 14 if language_of(name) == "zh" else 24)
    return _text(_NAMES_WIDTH - 10, y, label, anchor="end")


def _interval(interval: Mapping[str, float], x: Scale, y: float) -> str:
    line = _line((x(interval["low"]), y), (x(interval["high"]), y), stroke_width=2)
    value = _element("circle", cx=round(x(interval["value"]), 1), cy=round(y, 1), r=4.5)
    return _element("g", line, value, **_COLOUR)


def _x_axis(axis: Axis, x: Scale, bottom: float, left: int = _LEFT) -> str:
    parts = [_text((left + _WIDTH - _RIGHT) / 2, bottom + 38, axis.label)]
    for tick in axis.ticks:
        parts.append(_line((x(tick), _TOP), (x(tick), bottom), **_GRID))
        parts.append(_text(x(tick), bottom + 16, f"{tick:g}"))
    return "".join(parts)


def _line(start: tuple[float, float], end: tuple[float, float], **attributes: object) -> str:
    (x1, y1), (x2, y2) = start, end
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return _element("line", **{name: round(at, 1) for name, at in ends.items()}, **attributes)


def _text(x: float, y: float, text: str, anchor: str = "middle", **attributes: object) -> str:
    place = {"x": round(x, 1), "y": round(y, 1), "text_anchor": anchor}
    return _element("text", escape(text), **place, **attributes)


def _svg(title: str, height: int, parts: Iterable[str]) -> str:
    frame = {"role": "img", "aria_label": title, "viewBox": f"0 0 {_WIDTH} {height}"}
    style = f"width:{_WIDTH}px;max-width:100%;height:auto"
    text = {"fill": "currentColor", "font_size": 12, "font_family": "system-ui, sans-serif"}
    return _element("svg", *parts, **frame, style=style, **text)


def _element(name: str, *parts: str, **attributes: object) -> str:
    """Return an element around parts of SVG; `_` in the name of an attribute stands for `-`."""
    pairs = (
        f' {key.replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{''.join(pairs)}>{''.join(parts)}</{name}>"
