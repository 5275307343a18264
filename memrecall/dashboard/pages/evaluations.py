"""Evaluations: the runs over time, one of them in figures, two compared question by question."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from memrecall.dashboard.charts import draw_curves, draw_intervals, draw_trend
from memrecall.dashboard.frame import page
from memrecall.dashboard.runs import (
    compare_runs,
    list_runs,
    main_metric,
    read_changes,
    read_run,
)
from memrecall.dashboard.session import Visit
from memrecall.dashboard.widgets import card, dim, fact, milliseconds, note, row, title
from memrecall.evaluation.compare import OVERALL, Change, QuestionChange
from memrecall.evaluation.runs import RunState

QUESTIONS_SHOWN = 50
MOST_RUNS = 100


@page("/evaluations", "evaluations")
async def evaluations(visit: Visit) -> None:
    """The runs there are, the latest first."""
    title(visit.say("evaluations"))
    found = (await list_runs(visit))[:MOST_RUNS]
    if not found:
        with card():
            note(visit.say("no_runs", folder=visit.library.settings.runs_dir))
        return
    with card(visit.say("over_time")):
        draw_trend(visit, found)
    chosen: list[str] = []
    with card(visit.say("runs")):
        with ui.element("div").classes("mr-list"):
            for name, state in found:
                _draw_run(visit, name, state, chosen)
        if len(found) > 1:
            _draw_comparing(visit, chosen)


def _draw_run(visit: Visit, name: str, state: RunState, chosen: list[str]) -> None:
    with ui.element("div").classes("mr-item"):

        def choose(change: Any) -> None:
            chosen.append(name) if change.value else chosen.remove(name)

        box = ui.checkbox(on_change=choose).props("dense")
        box.props["aria-label"] = visit.say("choose_run", name=name)
        ui.link(name, visit.link("/evaluations/run", name=name))
        metric = main_metric(state)
        figure = state.metrics.get("overall", {}).get(metric)
        if figure:
            ui.label(f"{metric} {_told(figure)}")
        if not state.complete:
            ui.label(visit.say("incomplete")).classes("mr-badge mr-warn")
        questions = state.counts.get("questions", 0)
        dim(f"{state.plan.mode} · {visit.say('questions_count', count=questions)}")
        dim(state.started_at[:16].replace("T", " "))


def _draw_comparing(visit: Visit, chosen: list[str]) -> None:
    def compare() -> None:
        if len(chosen) != 2:
            ui.notify(visit.say("choose_two_runs"), type="warning")
            return
        after, before = chosen
        ui.navigate.to(visit.link("/evaluations/compare", a=before, b=after))

    ui.button(visit.say("compare_chosen"), icon="compare", on_click=compare).props("outline")


def _told(figure: Mapping[str, float]) -> str:
    value, low, high = (
        f"{number:,.0f}" if abs(figure["value"]) >= 100 else f"{number:.3f}"
        for number in (figure["value"], figure["low"], figure["high"])
    )
    return f"{value} ({low} – {high})"


@page("/evaluations/run", "run")
async def run(visit: Visit) -> None:
    """One run in figures, with their intervals, by category."""
    read, figures = await read_run(visit, visit.asked.get("name", ""))
    plan = read.state.plan
    ui.link(visit.say("evaluations"), "/evaluations")
    title(read.name)
    with row():
        fact(visit.say("mode"), plan.mode)
        fact(visit.say("questions"), str(len(read.answers)))
        fact(visit.say("embedder"), plan.embedder)
        fact(visit.say("model"), plan.model or visit.say("rules"))
        fact(visit.say("version"), plan.version)
        for name in ("p50", "p95"):
            if figures:
                fact(name, milliseconds(figures["latency"][name]))
    if not figures:
        note(visit.say("no_answers"))
        return
    with ui.element("div").classes("mr-grid mr-halves"):
        draw_intervals(visit, figures, main_metric(read.state))
        draw_curves(visit, read)
    with card(visit.say("figures")):
        _draw_table(visit, figures)


def _draw_table(visit: Visit, figures: Mapping[str, Any]) -> None:
    """All figures: a row for each, a column for each category."""
    kinds = {OVERALL: figures["overall"], **figures["categories"]}
    columns = [{"name": "metric", "label": visit.say("figure"), "field": "metric", "align": "left"}]
    columns += [{"name": kind, "label": kind, "field": kind, "align": "right"} for kind in kinds]
    rows = [
        {"metric": metric, **{kind: _cell(told.get(metric)) for kind, told in kinds.items()}}
        for metric in figures["overall"]
    ]
    ui.table(columns=columns, rows=rows, row_key="metric").props("flat dense").classes("mr-table")


def _cell(figure: Mapping[str, float] | None) -> str:
    return "–" if figure is None else _told(figure)


@page("/evaluations/compare", "compare_runs")
async def compare(visit: Visit) -> None:
    """Two runs: what changed, how surely, and the questions by what got worse."""
    names = (visit.asked.get("a", ""), visit.asked.get("b", ""))
    told = await compare_runs(visit, *names, visit.asked.get("metric", ""))
    ui.link(visit.say("evaluations"), "/evaluations")
    title(f"{told.first.name} → {told.second.name}")
    with card(visit.say("what_changed")):
        place = ui.element("div").classes("mr-list").props("aria-live=polite")
        with place:
            ui.spinner(size="md")
    with card(visit.say("questions")):
        with row():
            for metric in told.metrics:
                chip = ui.link(metric, visit.link_here(metric=metric, page=None)).classes("mr-chip")
                chip.props("aria-current=page" if metric == told.metric else "")
        _draw_questions(visit, told.questions)
    # The intervals take their time: the page is shown before they are drawn.
    await ui.context.client.connected()
    changes = await read_changes(visit, *names)
    place.clear()
    with place:
        for change in changes:
            _draw_change(visit, change)


def _draw_change(visit: Visit, change: Change) -> None:
    with ui.element("div").classes("mr-item"):
        ui.label(change.metric).classes("mr-grow")
        ui.label(f"{change.before:.3f} → {change.after:.3f}")
        look = "mr-dim"
        if change.is_significant:
            look = "mr-good" if change.is_better else "mr-bad"
        interval = f"({change.low:+.3f} – {change.high:+.3f})"
        ui.label(f"{change.difference:+.3f} {interval}").classes(look)
        dim(visit.say("sure") if change.is_significant else visit.say("unsure"))


def _draw_questions(visit: Visit, questions: Sequence[QuestionChange]) -> None:
    asked = visit.asked.get("page", "0")
    number = int(asked) if asked.isascii() and asked.isdigit() else 0
    begin = number * QUESTIONS_SHOWN
    with ui.element("div").classes("mr-list"):
        for item in questions[begin : begin + QUESTIONS_SHOWN]:
            with ui.element("div").classes("mr-item mr-question"):
                ui.label(item.query[:400]).classes("mr-grow mr-text")
                ui.label(f"{item.before:.2f} → {item.after:.2f}").classes(_look(item.loss))
                dim(f"{item.category} · {item.query_id}")
    with row():
        if number:
            ui.link(visit.say("newest_page"), visit.link_here(page=number - 1)).classes("mr-button")
        if begin + QUESTIONS_SHOWN < len(questions):
            ui.link(visit.say("more"), visit.link_here(page=number + 1)).classes("mr-button")


def _look(loss: float) -> str:
    if loss > 0:
        return "mr-bad"
    return "mr-good" if loss < 0 else "mr-dim"
