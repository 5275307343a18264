"""The view of a recall: timeline, steps, handoff and evidence."""

import json
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

from nicegui import ui

from memrecall.agent.trace import IterationTimeline, TimelineStep, build_timeline
from memrecall.agent.trace_events import CallEvent, ResultEvent, TraceEvent
from memrecall.chat import ToolCall, ToolResult
from memrecall.dashboard.page import Page
from memrecall.dashboard.widgets import (
    card,
    dim_label,
    format_duration,
    row,
    show_empty,
    show_fact,
)
from memrecall.text_length import truncate_text
from memrecall.types import format_minute

HIGH_CONFIDENCE = 0.6
_MAX_CHARS = 6_000
_ICONS = {"model": "psychology", "tool": "build", "note": "chat_bubble_outline", "end": "flag"}


def draw_call(page: Page, call: ToolCall, result: ToolResult) -> None:
    """Draw a tool call of a chat turn, collapsed, with the side that made it."""
    caller = page.text("forged") if call.forged else page.text("by_model")
    with ui.expansion(f"{call.name} · {caller}", icon="build") as panel:
        panel.classes("mr-expansion").props("dense")
        _draw_json(page.text("arguments"), _parse_json(call.arguments))
        element = _draw_json(page.text("result"), _parse_json(result.content))
        if result.is_error:
            element.classes("mr-bad")


def _parse_json(text: str) -> Any:
    """Return parsed JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _draw_json(name: str, value: Any) -> ui.label:
    if name:
        dim_label(name)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return ui.label(truncate_text(text, _MAX_CHARS)).classes("mr-code")


def key_link(page: Page, key: str, kind: str | None) -> str:
    """Return the address of a memory or a message."""
    if kind == "message" or (kind is None and not key.startswith("mem_")):
        return page.user_link("/explorer", around=key)
    return page.user_link("/explorer/memory", key=key)


def draw_trace(page: Page, events: list[TraceEvent]) -> None:
    """Draw the timeline of each iteration, and below it every step."""
    iterations = build_timeline(events)
    panels = [[_StepPanel(page, step) for step in iteration.steps] for iteration in iterations]
    with card(page.text("timeline")):
        max_window = max((iteration.window for iteration in iterations), default=1)
        duration = max(
            (step.end for iteration in iterations for step in iteration.steps), default=0.0
        )
        for iteration, step_panels in zip(iterations, panels, strict=True):
            _draw_iteration(page, iteration, step_panels, max_window, duration)
    with card(page.text("steps")):
        for step_panels in panels:
            for panel in step_panels:
                panel.draw_panel()


class _StepPanel:
    """A step's block in the timeline, and the panel with its details that the block opens."""

    def __init__(self, page: Page, step: TimelineStep) -> None:
        self._page = page
        self._step = step
        self._panel: ui.expansion | None = None
        self._is_filled = False

    def draw_block(self) -> None:
        """Draw a block as wide as the step's duration, but wide enough for its name."""
        step = self._step
        classes = f"mr-step mr-{step.kind}" + (" mr-failed" if step.has_failed else "")
        with ui.element("button").classes(classes).props("type=button") as block:
            ui.icon(_ICONS[step.kind])
            ui.label(_step_name(self._page, step)).classes("mr-span")
        block.style(f"flex: {max(step.seconds, 0.001):.4f} 1 auto")
        block.on("click", self._open)

    def draw_panel(self) -> None:
        """Draw the collapsed panel."""
        panel = ui.expansion(
            _step_caption(self._page, self._step),
            icon=_ICONS[self._step.kind],
            on_value_change=self._fill,
        )
        self._panel = panel.classes("mr-expansion").props("dense")

    def _open(self) -> None:
        if self._panel is not None:
            self._panel.open()
            ui.navigate.to(self._panel)

    def _fill(self) -> None:
        # Details are drawn when a panel is first opened, because most never are.
        if self._panel is not None and self._panel.value and not self._is_filled:
            self._is_filled = True
            with self._panel:
                _draw_details(self._page, self._step)


def _draw_iteration(
    page: Page,
    iteration: IterationTimeline,
    panels: list[_StepPanel],
    max_window: int,
    duration: float,
) -> None:
    """Draw an iteration: its window, its steps and their times."""
    with ui.element("div").classes("mr-lane"):
        with ui.element("div"):
            ui.label(page.text("iteration", number=iteration.iteration))
            dim_label(page.text("window", size=iteration.window, shown=iteration.shown))
            share = 100 * iteration.window / max(max_window, 1)
            ui.element("div").classes("mr-window").style(f"width: {share:.0f}%")
        with ui.element("div"):
            with ui.element("div").classes("mr-steps"):
                for panel in panels:
                    panel.draw_block()
            _draw_strip(iteration, duration)


def _draw_strip(iteration: IterationTimeline, duration: float) -> None:
    """Draw the times of an iteration's calls on the time axis of the whole recall."""
    with ui.element("div").classes("mr-strip").props("aria-hidden=true"):
        for step in iteration.steps:
            if step.kind in ("model", "tool") and duration > 0:
                start, width = 100 * step.start / duration, 100 * step.seconds / duration
                position = f"left: {start:.2f}%; width: {width:.2f}%"
                ui.element("div").classes(f"mr-{step.kind}").style(position)


def _step_name(page: Page, step: TimelineStep) -> str:
    duration = page.text("running") if step.is_running else format_duration(step.seconds)
    if step.kind == "tool":
        return f"{step.name} · {duration}"
    if step.kind == "model":
        return f"{page.text('model')} · {duration}"
    return page.text(f"step_{step.name}")


def _step_caption(page: Page, step: TimelineStep) -> str:
    name = _step_name(page, step)
    if step.has_failed:
        return f"{name} → {page.text('error')}"
    output = step.event.output if isinstance(step.event, ResultEvent) else None
    if output and "total_found" in output:
        return f"{name} → {page.text('found', count=output['total_found'])}"
    return name


def _draw_details(page: Page, step: TimelineStep) -> None:
    event = step.event
    if isinstance(event, CallEvent):
        _draw_json(page.text("arguments"), _parse_json(event.arguments))
    elif isinstance(event, ResultEvent):
        _draw_tool_result(page, event)
    else:
        data = event.data
        text = data.pop("text", None)
        if isinstance(text, str):
            ui.label(truncate_text(text, _MAX_CHARS)).classes("mr-text")
        if data:
            _draw_json("", data)


def _draw_tool_result(page: Page, event: ResultEvent) -> None:
    _draw_json(page.text("arguments"), event.arguments)
    results = (event.output or {}).get("results")
    if isinstance(results, list):
        for item in results:
            _draw_result(page, item)
    else:
        _draw_json(page.text("result"), event.output or event.text)
    if event.error:
        ui.label(event.error).classes("mr-bad mr-text")


def _draw_result(page: Page, item: Mapping[str, Any]) -> None:
    key = str(item.get("memory_key", ""))
    texts = (item.get(name) for name in ("content_preview", "summary", "content"))
    with ui.element("div").classes("mr-item"):
        text = str(next(filter(None, texts), key))
        ui.link(truncate_text(text, 300), key_link(page, key, item.get("kind")))
        if item.get("relevance_score") is not None:
            dim_label(f"{item['relevance_score']:.2f}")
        dim_label(str(item.get("memory_type", "")))


def draw_facts(page: Page, body: Mapping[str, Any]) -> None:
    """Draw the outcome and the cost of a recall."""
    usage = body["usage"]
    with row():
        classes = "mr-good" if body["confidence"] >= HIGH_CONFIDENCE else "mr-warn"
        show_fact(page.text("confidence"), f"{body['confidence']:.0%}", classes)
        show_fact(page.text("stop_reason"), page.term("stop_reason", body["stop_reason"]))
        show_fact(page.text("windows"), " → ".join(map(str, body["windows"])))
        show_fact(page.text("model_calls"), str(usage["model_calls"]))
        show_fact(page.text("tool_calls"), str(usage["tool_calls"]))
        show_fact(page.text("took"), format_duration(float(usage["seconds"])))
        show_fact(page.text("model"), body["model"])


def draw_handoff(page: Page, body: Mapping[str, Any], zone: tzinfo) -> None:
    """Draw the handoff and its evidence, each item linked to its source."""
    handoff = body["handoff"]
    with card(page.text("handoff")):
        if body["abstained"]:
            ui.label(page.text("abstained")).classes("mr-warn")
        ui.label(truncate_text(handoff["search_summary"], _MAX_CHARS)).classes("mr-text")
        if handoff["follow_up_question"]:
            ui.label(handoff["follow_up_question"]).classes("mr-text mr-warn")
        if handoff["reasoning"]:
            dim_label(handoff["reasoning"]).classes("mr-text")
        if body["problem"]:
            ui.label(body["problem"]).classes("mr-bad mr-text")
        for memory in body["memories"]:
            _draw_evidence(page, memory, zone)
        if not body["memories"]:
            show_empty(page.text("no_evidence"))
        if body["keys_dropped"]:
            dim_label(page.text("dropped", keys=", ".join(body["keys_dropped"])))


def _draw_evidence(page: Page, memory: Mapping[str, Any], zone: tzinfo) -> None:
    key, kind = memory["memory_key"], memory["kind"]
    with ui.element("div").classes("mr-evidence"):
        for message in memory["before"]:
            _draw_neighbor(page, message, zone)
        text = truncate_text(memory["content"] or key, _MAX_CHARS)
        ui.link(text, key_link(page, key, kind)).classes("mr-text")
        facts = [memory["memory_type"], memory["speaker"] or memory["role"] or ""]
        facts.append(format_minute(datetime.fromisoformat(memory["ts"]), zone))
        if memory["relevance_score"] is not None:
            facts.append(page.text("relevance", score=f"{memory['relevance_score']:.2f}"))
        dim_label(" · ".join(filter(None, facts)))
        for message in (*memory["after"], *memory["sources"]):
            _draw_neighbor(page, message, zone)


def _draw_neighbor(page: Page, message: Mapping[str, Any], zone: tzinfo) -> None:
    time = format_minute(datetime.fromisoformat(message["ts"]), zone)
    text = f"{message['speaker']}, {time}: {truncate_text(message['content'], 400)}"
    target = key_link(page, message["memory_key"], "message")
    ui.link(text, target).classes("mr-small mr-dim mr-text")
