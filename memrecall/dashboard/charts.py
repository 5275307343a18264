"""Charts in the dashboard's style, and the charts of evaluation runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nicegui import ui

from memrecall.dashboard.page import Page
from memrecall.dashboard.widgets import card
from memrecall.evaluation.figures import calibration, latency_shares, recall_by_depth
from memrecall.evaluation.metrics import MAIN_METRICS
from memrecall.evaluation.runs import EvaluationRun, RunState

# Distinguishable with a colour vision deficiency.
PALETTE = ("#4477dd", "#cc7711", "#229977", "#bb4466", "#8866cc", "#33a0b5", "#99872e", "#777f8c")
_GREY = "#8a93a3"  # of lines, on both themes
# The browser chooses: a canvas has no style sheet, and only it knows the theme of the system.
TEXT_COLORS = {"light": "#5b6675", "dark": "#a3abb8"}
TEXT_COLOR = {
    ":color": "document.body.classList.contains('body--dark')"
    f" ? '{TEXT_COLORS['dark']}' : '{TEXT_COLORS['light']}'"
}
_LINE = "rgba(128, 136, 150, .3)"
_MAX_POINTS = 400
_SHARE: dict[str, Any] = {"min": 0, "max": 1}


def chart(options: Mapping[str, Any], description: str) -> ui.echart:
    """Draw a chart with a description for screen readers."""
    defaults: dict[str, Any] = {
        "color": list(PALETTE),
        "backgroundColor": "transparent",
        "textStyle": TEXT_COLOR,
        "animation": False,
        "aria": {"enabled": True, "label": {"description": description}},
        # Rendered as text on the canvas, so that user content is never interpreted as HTML.
        "tooltip": {"renderMode": "richText", "trigger": "item", "confine": True},
    }
    element = ui.echart({**defaults, **options}).classes("mr-chart")
    element.props["aria-label"] = description
    return element


def axis(name: str = "", **options: Any) -> dict[str, Any]:
    """Return the options of an axis, by default of values."""
    return {
        "type": "value",
        "name": name,
        "nameTextStyle": TEXT_COLOR,
        "axisLabel": TEXT_COLOR,
        "axisLine": {"lineStyle": {"color": _LINE}},
        "splitLine": {"lineStyle": {"color": _LINE}},
        **options,
    }


TIME_AXIS = axis(type="time", splitLine={"show": False})


def xy_chart(
    description: str,
    x_axis: Mapping[str, Any],
    y_axis: Mapping[str, Any],
    series: Sequence[Mapping[str, Any]],
) -> ui.echart:
    """Draw lines, bars or points over two axes."""
    has_legend = sum(bool(each.get("name")) for each in series) > 1
    return chart(
        {
            "grid": {
                "left": 8,
                "right": 16,
                "top": 36 if has_legend or y_axis.get("name") else 12,
                "bottom": 8,
                "containLabel": True,
            },
            "legend": {
                "show": has_legend,
                "textStyle": TEXT_COLOR,
                "top": 0,
                "type": "scroll",
            },
            "xAxis": dict(x_axis),
            "yAxis": dict(y_axis),
            "series": [dict(each) for each in series],
            "tooltip": {"renderMode": "richText", "trigger": "axis", "confine": True},
        },
        description,
    )


def draw_trend(page: Page, runs: Sequence[tuple[str, RunState]]) -> None:
    """Draw the main metric of each mode, run by run."""
    series: dict[str, list[Any]] = {}
    for name, state in reversed(runs):
        metric = main_metric(state)
        measured = state.metrics.get("overall", {}).get(metric)
        if measured:
            time = datetime.fromisoformat(state.started_at).timestamp() * 1000
            point = {"name": name, "value": [time, round(measured["value"], 4)]}
            series.setdefault(f"{state.plan.mode}: {metric}", []).append(point)
    lines = [
        {"type": "line", "name": name, "data": points, "symbolSize": 8}
        for name, points in series.items()
    ]
    xy_chart(page.text("over_time"), TIME_AXIS, axis(**_SHARE), lines)


def draw_intervals(page: Page, metrics: Mapping[str, Any], metric: str) -> None:
    """Draw a metric by category: the value as a line in the box of its interval."""
    categories = {page.text("overall"): metrics["overall"], **metrics["categories"]}
    measured = {name: values[metric] for name, values in categories.items() if metric in values}
    # A box plot takes five numbers: the interval is both the box and its whiskers.
    boxes = [[m["low"], m["low"], m["value"], m["high"], m["high"]] for m in measured.values()]
    names = axis(type="category", data=list(measured), splitLine={"show": False}, inverse=True)
    heading = page.text("by_category", metric=metric)
    with card(heading):
        bars = {"type": "boxplot", "data": boxes, "name": metric, "boxWidth": [6, 16]}
        element = xy_chart(heading, axis(scale=True), names, [bars])
        element.style(f"height: {max(200, 34 * len(measured))}px")


def draw_curves(page: Page, run: EvaluationRun) -> None:
    """Draw recall at k, calibration and latency."""
    share = axis(**_SHARE)
    depth = [[k, round(recall, 4)] for k, recall in enumerate(recall_by_depth(run), 1)]
    heading = page.text("recall_by_k")
    with card(heading):
        xy_chart(heading, axis(min=1), share, [_line(depth)])
    _draw_calibration(page, run)
    latencies = latency_shares(run)
    step = max(1, len(latencies) // _MAX_POINTS)
    points = [[round(ms, 2), round(value, 4)] for ms, value in latencies[::step]]
    heading = page.text("latency_shares")
    with card(heading):
        xy_chart(heading, axis(type="log", splitLine={"show": False}), share, [_line(points)])


def _draw_calibration(page: Page, run: EvaluationRun) -> None:
    heading = page.text("calibration")
    kind, bins = calibration(run)
    points = [[round(predicted, 4), round(observed, 4)] for predicted, observed, _ in bins]
    line = {"type": "line", "data": points, "symbolSize": 7}
    dashed = {"lineStyle": {"type": "dashed", "color": _GREY, "width": 1}, "silent": True}
    with card(f"{heading}: {kind}"):
        diagonal = {**_line([[0, 0], [1, 1]]), **dashed}
        xy_chart(heading, axis(**_SHARE), axis(**_SHARE), [line, diagonal])


def _line(points: Sequence[Sequence[float]]) -> dict[str, Any]:
    return {"type": "line", "data": points, "showSymbol": False}


def main_metric(state: RunState) -> str:
    """Return the most important metric of a run's mode."""
    return MAIN_METRICS[state.plan.mode][0]
