"""Overview: how much there is, what happened in the last hour, day or week, and how it went."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from memrecall.dashboard.charts import PALETTE, axis, chart, xy_chart
from memrecall.dashboard.figures import SPANS, Figures, TimeRange, figures_of_recalls
from memrecall.dashboard.frame import page
from memrecall.dashboard.session import Visit
from memrecall.dashboard.widgets import card, choose_user, dim, milliseconds, note, row, title

MOST_RECALLS = 5_000
_LEVELS = ("users", "messages", "memories", "knowledge")
_NAMED = frozenset({"recalls", "leaks", "errors"})
_FEW_POINTS = 30
_SHARES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))


@page("/", "overview")
async def overview(visit: Visit) -> None:
    """The service for who may look at it, else one user."""
    title(visit.say("overview"))
    span = SPANS.get(visit.asked.get("span", ""), SPANS["day"])
    with row():
        for name in SPANS:
            chip = ui.link(visit.say(f"span_{name}"), visit.link_here(span=name))
            chip.classes("mr-chip").props("aria-current=page" if name == span.name else "")
    if await visit.sees_service() and not visit.user:
        await _draw_service(visit, span)
    elif await choose_user(visit):
        await _draw_user(visit, span)


async def _draw_service(visit: Visit, span: TimeRange) -> None:
    now = datetime.now(UTC)
    rows = await visit.library.store.counters.read(span.resolution, span.begin(now))
    figures = Figures.of(rows, span.buckets(now))
    if visit.service.tally is None:
        note(visit.say("not_counted"))
    with ui.element("div").classes("mr-tiles"):
        for name in _LEVELS:
            _draw_tile(visit, name, figures.level(name), figures.levels(name))
    _draw_outcomes(visit, figures)
    with ui.element("div").classes("mr-grid"):
        _draw_activity(visit, figures, ("searches", "recalls", "turns"))
        _draw_latency(visit, figures, "recall_seconds")
        _draw_latency(visit, figures, "search_seconds")
        for name in ("recalls", "iterations", "windows", "confidence", "leaks", "errors"):
            _draw_shares(visit, figures, name)


async def _draw_user(visit: Visit, span: TimeRange) -> None:
    scope, now = await visit.scope(), datetime.now(UTC)
    store = visit.library.store
    found = await store.traces(scope).since(span.begin(now), MOST_RECALLS)
    figures = figures_of_recalls(found, span, now)
    counts = await store.count(scope.user_id)
    with ui.element("div").classes("mr-tiles"):
        for name in ("sessions", "messages", "memories", "traces"):
            _draw_tile(visit, name, counts[name], [])
    _draw_outcomes(visit, figures)
    with ui.element("div").classes("mr-grid"):
        _draw_activity(visit, figures, ("recalls",))
        _draw_latency(visit, figures, "recall_seconds")
        for name in ("recalls", "iterations", "confidence"):
            _draw_shares(visit, figures, name)


def _draw_tile(visit: Visit, name: str, value: int | None, over_time: Sequence[int | None]) -> None:
    with ui.card().classes("mr-card mr-tile"):
        dim(visit.say(name))
        ui.label("–" if value is None else f"{value:,}").classes("mr-number")
        if sum(level is not None for level in over_time) > 1:
            _draw_trend(visit.say(name), over_time)


def _draw_trend(name: str, over_time: Sequence[int | None]) -> None:
    """A line without axes."""
    hidden = {"show": False}
    across = {"type": "category", **hidden}
    line = {"type": "line", "data": list(over_time), "showSymbol": False, "connectNulls": True}
    chart(
        {
            "grid": {"left": 0, "right": 0, "top": 4, "bottom": 4},
            "xAxis": across,
            "yAxis": {"type": "value", "scale": True, **hidden},
            "series": [line],
        },
        name,
    ).classes("mr-trend")


def _draw_outcomes(visit: Visit, figures: Figures) -> None:
    """The figures of the whole span in one line."""
    recalls = figures.total("recalls")
    abstained = figures.by_label("abstained").get("yes", 0)
    told = {
        "searches": f"{figures.total('searches'):,}",
        "recalls": f"{recalls:,}",
        "abstentions": f"{abstained:,}" + (f" ({abstained / recalls:.0%})" if recalls else ""),
        "errors": f"{figures.total('errors'):,}",
    }
    for share, name in _SHARES:
        seconds = figures.percentile("recall_seconds", share)
        told[f"recall_{name}"] = "–" if seconds is None else milliseconds(seconds)
    with card(), row():
        for name, value in told.items():
            with ui.element("div").classes("mr-fact"):
                dim(visit.say(name))
                ui.label(value).props(f"data-figure={name}")


def _draw_activity(visit: Visit, figures: Figures, names: Sequence[str]) -> None:
    with card(visit.say("activity")):
        series = [
            {
                "type": "bar",
                "stack": "all",
                "name": visit.say(name),
                "data": _over_time(figures, name),
            }
            for name in names
        ]
        xy_chart(visit.say("activity"), _TIME, axis(minInterval=1), series)


def _over_time(figures: Figures, name: str) -> list[list[Any]]:
    return [list(pair) for pair in zip(_moments(figures), figures.over_time(name), strict=True)]


def _moments(figures: Figures) -> list[float]:
    return [bucket.timestamp() * 1000 for bucket in figures.buckets]


_TIME = axis(type="time", splitLine={"show": False})


def _draw_latency(visit: Visit, figures: Figures, name: str) -> None:
    with card(visit.say(name)):
        if not figures.total(name):
            note(visit.say("nothing_yet"))
            return
        series = []
        for share, label in _SHARES:
            times = figures.percentiles(name, share)
            points = [
                [at, None if seconds is None else round(seconds * 1000, 1)]
                for at, seconds in zip(_moments(figures), times, strict=True)
            ]
            line = {"type": "line", "name": label, "data": points, "connectNulls": True}
            series.append({**line, "showSymbol": len(points) - times.count(None) <= _FEW_POINTS})
        xy_chart(visit.say(name), _TIME, axis(), series)


def _draw_shares(visit: Visit, figures: Figures, name: str) -> None:
    """How something was distributed: bars by kind."""
    heading = visit.say(f"by_{name}")
    counts = figures.by_label(name)
    with card(heading):
        if not counts:
            note(visit.say("nothing_yet"))
            return
        labels = _ordered(counts)
        look = {"color": PALETTE[3 if name in ("leaks", "errors") else 0]}
        shown = [f"{label}+" for label in labels] if name == "confidence" else labels
        bars = {"type": "bar", "barMaxWidth": 28, "itemStyle": look}
        kinds = axis(type="category", data=shown, splitLine={"show": False})
        amounts = axis(minInterval=1)
        if name in _NAMED:  # names are long: they stand beside their bars, the first one on top
            kinds["inverse"] = True
            kinds, amounts = amounts, kinds
        xy_chart(heading, kinds, amounts, [{**bars, "data": [counts[label] for label in labels]}])


def _ordered(counts: Mapping[str, int]) -> list[str]:
    """Numbers by their size, names by how often they came."""
    try:
        return sorted(counts, key=float)
    except ValueError:
        return sorted(counts, key=lambda label: -counts[label])[:8]
