"""The charts of evaluation runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nicegui import ui

from memrecall.dashboard.runs import main_metric
from memrecall.dashboard.session import Visit
from memrecall.dashboard.widgets import card
from memrecall.evaluation.figures import calibration, latency_shares, recall_by_depth
from memrecall.evaluation.runs import EvaluationRun, RunState

# Told apart also by who sees few colours.
PALETTE = ("#4477dd", "#dd8822", "#229977", "#bb4466", "#8866cc", "#33a0b5", "#99872e", "#777f8c")
_GREY = "#8a93a3"
_LINE = "rgba(128, 136, 150, .3)"


def chart(options: Mapping[str, Any], name: str) -> ui.echart:
    """A chart; `name` is what it says to who cannot see it."""
    look: dict[str, Any] = {
        "color": list(PALETTE),
        "backgroundColor": "transparent",
        "textStyle": {"color": _GREY},
        "animation": False,
        "aria": {"enabled": True, "label": {"description": name}},
        # Drawn as text on the canvas: what users wrote is never taken as HTML.
        "tooltip": {"renderMode": "richText", "trigger": "item", "confine": True},
    }
    drawn = ui.echart({**look, **options}).classes("mr-chart")
    drawn.props["aria-label"] = name
    return drawn


def axis(name: str = "", **more: Any) -> dict[str, Any]:
    """An axis of values."""
    return {
        "type": "value",
        "name": name,
        "nameTextStyle": {"color": _GREY},
        "axisLabel": {"color": _GREY},
        "axisLine": {"lineStyle": {"color": _LINE}},
        "splitLine": {"lineStyle": {"color": _LINE}},
        **more,
    }


def xy_chart(
    name: str,
    across: Mapping[str, Any],
    up: Mapping[str, Any],
    series: Sequence[Mapping[str, Any]],
) -> ui.echart:
    """Lines, bars or points over two axes."""
    told = [str(each["name"]) for each in series if each.get("name")]
    legend = {"show": len(told) > 1, "textStyle": {"color": _GREY}, "top": 0, "type": "scroll"}
    return chart(
        {
            "grid": {
                "left": 8,
                "right": 16,
                "top": 36 if len(told) > 1 or up.get("name") else 12,
                "bottom": 8,
                "containLabel": True,
            },
            "legend": legend,
            "xAxis": dict(across),
            "yAxis": dict(up),
            "series": [dict(each) for each in series],
            "tooltip": {"renderMode": "richText", "trigger": "axis", "confine": True},
        },
        name,
    )


_MOST_POINTS = 400
_SHARE: dict[str, Any] = {"min": 0, "max": 1}


def draw_trend(visit: Visit, runs: Sequence[tuple[str, RunState]]) -> None:
    """The main figure of each mode, run by run."""
    series: dict[str, list[Any]] = {}
    for name, state in reversed(runs):
        metric = main_metric(state)
        figure = state.metrics.get("overall", {}).get(metric)
        if figure:
            at = datetime.fromisoformat(state.started_at).timestamp() * 1000
            point = {"name": name, "value": [at, round(figure["value"], 4)]}
            series.setdefault(f"{state.plan.mode}: {metric}", []).append(point)
    lines = [
        {"type": "line", "name": name, "data": points, "symbolSize": 8}
        for name, points in series.items()
    ]
    time = axis(type="time", splitLine={"show": False})
    xy_chart(visit.say("over_time"), time, axis(**_SHARE), lines)


def draw_intervals(visit: Visit, figures: Mapping[str, Any], metric: str) -> None:
    """A figure by category: the value as a line in the box of its interval."""
    kinds = {visit.say("overall"): figures["overall"], **figures["categories"]}
    told = {kind: measured[metric] for kind, measured in kinds.items() if metric in measured}
    # A box needs five numbers: the interval is both the box and its whiskers.
    boxes = [[f["low"], f["low"], f["value"], f["high"], f["high"]] for f in told.values()]
    names = axis(type="category", data=list(told), splitLine={"show": False}, inverse=True)
    heading = visit.say("by_category", metric=metric)
    with card(heading):
        bars = {"type": "boxplot", "data": boxes, "name": metric, "boxWidth": [6, 16]}
        drawn = xy_chart(heading, axis(scale=True), names, [bars])
        drawn.style(f"height: {max(200, 34 * len(told))}px")


def draw_curves(visit: Visit, run: EvaluationRun) -> None:
    """Recall against k, calibration, latency."""
    _draw_depth(visit, run)
    _draw_calibration(visit, run)
    _draw_latency(visit, run)


def _draw_depth(visit: Visit, run: EvaluationRun) -> None:
    heading = visit.say("recall_by_k")
    points = [[k, round(share, 4)] for k, share in enumerate(recall_by_depth(run), 1)]
    with card(heading):
        line = {"type": "line", "data": points, "showSymbol": False}
        xy_chart(heading, axis(min=1), axis(**_SHARE), [line])


def _draw_calibration(visit: Visit, run: EvaluationRun) -> None:
    heading = visit.say("calibration")
    kind, bins = calibration(run)
    points = [[round(said, 4), round(came, 4)] for said, came, _ in bins]
    diagonal = {"type": "line", "data": [[0, 0], [1, 1]], "showSymbol": False}
    dashed = {"lineStyle": {"type": "dashed", "color": "#8a93a3", "width": 1}, "silent": True}
    with card(f"{heading}: {kind}"):
        line = {"type": "line", "data": points, "symbolSize": 7}
        xy_chart(heading, axis(**_SHARE), axis(**_SHARE), [line, {**diagonal, **dashed}])


def _draw_latency(visit: Visit, run: EvaluationRun) -> None:
    heading = visit.say("latency_shares")
    shares = latency_shares(run)
    step = max(1, len(shares) // _MOST_POINTS)
    points = [[round(ms, 2), round(share, 4)] for ms, share in shares[::step]]
    with card(heading):
        line = {"type": "line", "data": points, "showSymbol": False}
        across = axis(type="log", splitLine={"show": False})
        xy_chart(heading, across, axis(**_SHARE), [line])
