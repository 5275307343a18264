"""The charts of evaluation runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from memrecall.evaluation.curves import calibration, latency_shares, recall_by_depth
from memrecall.evaluation.folder import Run, State
from memrecall.server.dashboard.charts import axis, xy_chart
from memrecall.server.dashboard.parts import card
from memrecall.server.dashboard.runs import main_metric
from memrecall.server.dashboard.visit import Visit

_MOST_POINTS = 400
_SHARE: dict[str, Any] = {"min": 0, "max": 1}


def draw_trend(visit: Visit, runs: Sequence[tuple[str, State]]) -> None:
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


def draw_curves(visit: Visit, run: Run) -> None:
    """Recall against k, calibration, latency."""
    _draw_depth(visit, run)
    _draw_calibration(visit, run)
    _draw_latency(visit, run)


def _draw_depth(visit: Visit, run: Run) -> None:
    heading = visit.say("recall_by_k")
    points = [[k, round(share, 4)] for k, share in enumerate(recall_by_depth(run), 1)]
    with card(heading):
        line = {"type": "line", "data": points, "showSymbol": False}
        xy_chart(heading, axis(min=1), axis(**_SHARE), [line])


def _draw_calibration(visit: Visit, run: Run) -> None:
    heading = visit.say("calibration")
    kind, bins = calibration(run)
    points = [[round(said, 4), round(came, 4)] for said, came, _ in bins]
    diagonal = {"type": "line", "data": [[0, 0], [1, 1]], "showSymbol": False}
    dashed = {"lineStyle": {"type": "dashed", "color": "#8a93a3", "width": 1}, "silent": True}
    with card(f"{heading}: {kind}"):
        line = {"type": "line", "data": points, "symbolSize": 7}
        xy_chart(heading, axis(**_SHARE), axis(**_SHARE), [line, {**diagonal, **dashed}])


def _draw_latency(visit: Visit, run: Run) -> None:
    heading = visit.say("latency_shares")
    shares = latency_shares(run)
    step = max(1, len(shares) // _MOST_POINTS)
    points = [[round(ms, 2), round(share, 4)] for ms, share in shares[::step]]
    with card(heading):
        line = {"type": "line", "data": points, "showSymbol": False}
        across = axis(type="log", splitLine={"show": False})
        xy_chart(heading, across, axis(**_SHARE), [line])
