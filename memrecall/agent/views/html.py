"""Notebook displays of recall results and traces."""

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from memrecall.agent.trace_events import TraceEvent
from memrecall.agent.views.recall import ItemView, RecallViewer, StepView, trace_time_zone
from memrecall.text.html import (
    CODE,
    DIM,
    LINE,
    NARROW,
    QUOTE,
    TEXT,
    TITLE,
    WIDE,
    Html,
    box,
    cell,
    clip,
    colour_of,
    folded,
    meter,
    note,
    score_cell,
    table,
    tag,
    warning,
)
from memrecall.text_length import single_line
from memrecall.types import format_minute

if TYPE_CHECKING:  # they show themselves with this module
    from memrecall.agent.result import RecallResult
    from memrecall.agent.trace import Trace

_MAX_NEIGHBOR = 200  # characters


def result_html(result: "RecallResult") -> str:
    """Return a result as HTML: confidence, summary, evidence, and the folded steps."""
    viewer = RecallViewer(result.language)
    view = viewer.view_result(result)
    colour = colour_of(view.confidence)
    score = tag("span", f"{view.confidence:.2f}", style=f"color:{colour};font-weight:600")
    warnings = [view.problem, *view.remarks]
    parts = [
        tag("div", clip(view.request), style=TITLE),
        tag(
            "div",
            viewer.say("confidence"),
            meter(view.confidence, colour),
            score,
            f" · {view.handed_off}",
            style=LINE,
        ),
        tag("div", clip(view.summary), style=TEXT),
        *([tag("div", tag("em", f"? {view.question}"), style=TEXT)] if view.question else []),
        *map(note, view.times),
        *map(_item, view.evidence),
        *(warning(text) for text in warnings if text),
        folded(
            " · ".join([viewer.say("steps"), *view.cost, result.model]),
            *_steps(viewer, result.trace.events, without=("call", "start", "handoff")),
        ),
    ]
    return str(box(*parts))


def trace_html(trace: "Trace") -> str:
    """Return a trace as HTML: its events in order, with tool results folded."""
    started = format_minute(trace.started_at, trace_time_zone(trace))
    about = note(f"{started} · {trace.trace_id}")
    return str(box(about, *_steps(RecallViewer(trace.start.language), trace.events)))


def _steps(
    viewer: RecallViewer, events: Iterable[TraceEvent], without: Container[str] = ("call",)
) -> list[Html]:
    """Return the steps in order; a call is shown with its result."""
    views = [(event.kind, viewer.view_event(event)) for event in events]
    return [_step(view) for kind, view in views if kind not in without]


def _step(view: StepView) -> Html:
    options = " · ".join(view.options)
    match view.kind:
        case "warning":
            return warning(view.title, f": {view.text}" if view.text else "")
        case "thought" | "text":
            return tag("div", clip(view.text), style=f"{TEXT};font-style:italic")
        case "tool" | "handoff":
            parts = (view.subject, options, view.outcome, clip(view.text))
            title = tag("strong", view.title, style=CODE)
            head = tag("span", title, " ", clip(" · ".join(filter(None, parts))))
            body = [_item(view.items[0])] if len(view.items) == 1 else []
            return folded(head, *(body or [table(map(_hit, view.items))]))
    style = TITLE if view.kind == "start" else LINE
    return tag("div", clip(view.title), note(options), style=style)


def _hit(item: ItemView) -> list[Html]:
    return [
        score_cell(item.score),
        cell(item.time, f"{NARROW};{DIM}"),
        cell(tag("strong", item.label)),
        cell(single_line(item.text), WIDE),
    ]


def _item(item: ItemView) -> Html:
    score = [] if item.score is None else [f"{item.score:.2f}"]
    head = " · ".join(["", item.time, item.key, *score])
    return tag(
        "div",
        tag("div", tag("strong", item.label), tag("span", head, style=DIM), style=LINE),
        *map(_neighbor, item.before),
        tag("div", clip(item.text), style=TEXT),
        *map(_neighbor, item.after),
        *map(note, item.notes),
        style=QUOTE,
    )


def _neighbor(item: ItemView) -> Html:
    return note(f"{item.label}: {single_line(item.text, _MAX_NEIGHBOR)}")
