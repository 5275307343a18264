"""Charts in the dashboard's style, and the charts of evaluation runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from nicegui import ui

from memrecall.dashboard.page import Page
from memrecall.dashboard.widgets import card, dim_label
from memrecall.evaluation.charts import PALETTE
from memrecall.evaluation.metrics import MAIN_METRICS
from memrecall.evaluation.report import PlottedRun, draw_figures
from memrecall.evaluation.runs import EvaluationRun, RunState

# The browser chooses: a canvas has no style sheet, and only it knows the theme of the system.
TEXT_COLORS = {"light": "#5b6675", "dark": "#a3abb8"}
TEXT_COLOR = {
    ":color": "document.body.classList.contains('body--dark')"
    f" ? '{TEXT_COLORS['dark']}' : '{TEXT_COLORS['light']}'"
}
_LINE = "rgba(128, 136, 150, .3)"


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
    xy_chart(page.text("over_time"), TIME_AXIS, axis(min=0, max=1), lines)


def draw_run_figures(page: Page, run: EvaluationRun, metrics: dict[str, Any]) -> None:
    """Draw the figures of a run's report as images, which cannot contain scripts."""
    plotted = PlottedRun(run.name, PALETTE[0], run, metrics)
    for figure in draw_figures([plotted], page.language):
        svg = figure.chart.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        with card(figure.heading):
            dim_label(figure.caption)
            image = ui.element("img").classes("mr-figure")
            image.props["src"] = f"data:image/svg+xml,{quote(svg)}"
            image.props["alt"] = figure.heading


def main_metric(state: RunState) -> str:
    """Return the most important metric of a run's mode."""
    return MAIN_METRICS[state.plan.mode][0]
