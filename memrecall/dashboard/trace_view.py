"""The view of a recall: timeline, steps, handoff and evidence."""

import json
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

from nicegui import ui

from memrecall.agent.result import StopReason, lacks_contents
from memrecall.agent.trace import IterationTimeline, TimelineStep, build_timeline, nest_steps
from memrecall.agent.trace_events import CallEvent, ModelEvent, ResultEvent, TraceEvent
from memrecall.chat import ToolCall, ToolResult
from memrecall.dashboard.page import WORDS, Page
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
_FAILURES = frozenset({StopReason.MODEL_FAILED, StopReason.STORAGE_FAILED})
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
        for iteration, step_panels in zip(iterations, panels, strict=True):
            _draw_steps(page, iteration, step_panels)


def _draw_steps(page: Page, iteration: IterationTimeline, panels: list["_StepPanel"]) -> None:
    """Draw the steps of an iteration, those of a turn within the turn's model call."""
    dim_label(page.text("iteration", number=iteration.iteration)).classes("mr-iteration")
    panel_of = {id(panel.step): panel for panel in panels}
    for parent, children in nest_steps(iteration.steps):
        outer = panel_of[id(parent)]
        is_open = parent.went_wrong or any(child.went_wrong for child in children)
        with outer.draw_panel(is_open=is_open):
            for child in children:
                panel_of[id(child)].draw_panel(is_open=child.went_wrong, parent=outer)


class _StepPanel:
    """A step's block in the timeline, and the panel with its details that the block opens."""

    def __init__(self, page: Page, step: TimelineStep) -> None:
        self.step = step
        self._page = page
        self._panel: ui.expansion | None = None
        self._parent: _StepPanel | None = None
        self._details: ui.element | None = None
        self._is_filled = False

    def draw_block(self) -> None:
        """Draw a block as wide as the step's duration, but wide enough for its name."""
        step = self.step
        classes = f"mr-step mr-{step.kind}" + (" mr-failed" if step.has_failed else "")
        with ui.element("button").classes(classes).props("type=button") as block:
            ui.icon(_icon(step))
            ui.label(_step_name(self._page, step)).classes("mr-span")
        block.style(f"flex: {max(step.seconds, 0.001):.4f} 1 auto")
        block.on("click", self._open)

    def draw_panel(self, *, is_open: bool, parent: "_StepPanel | None" = None) -> ui.element:
        """Draw the panel; return the container of the steps within it, below its details."""
        step, self._parent = self.step, parent
        panel = ui.expansion(
            _step_caption(self._page, step),
            icon=_icon(step),
            value=is_open,
            on_value_change=self._fill,
        )
        classes = "mr-expansion mr-failed" if step.has_failed else "mr-expansion"
        self._panel = panel.classes(classes).props("dense")
        with panel:
            self._details = ui.element("div").classes("mr-list mr-details")
            container = ui.element("div").classes("mr-list mr-nested")
        self._fill()
        return container

    def _open(self) -> None:
        if self._parent is not None and self._parent._panel is not None:
            self._parent._panel.open()
        if self._panel is not None:
            self._panel.open()
            ui.navigate.to(self._panel)

    def _fill(self) -> None:
        # Details are drawn when a panel is first opened, because most never are.
        is_open = self._panel is not None and self._panel.value
        if self._details is not None and is_open and not self._is_filled:
            self._is_filled = True
            with self._details:
                _draw_details(self._page, self.step)


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
                mark = ui.element("div").classes(f"mr-{step.kind}").style(position)
                if step.has_failed:
                    mark.classes("mr-failed")


def _icon(step: TimelineStep) -> str:
    return "error" if step.has_failed else _ICONS[step.kind]


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
    elif isinstance(event, ModelEvent):
        _draw_model_call(page, event)
    else:
        data = event.data
        text = data.pop("text", None)
        if isinstance(text, str):
            ui.label(truncate_text(text, _MAX_CHARS)).classes("mr-text")
        if data:
            _draw_json("", data)


def _draw_model_call(page: Page, event: ModelEvent) -> None:
    """Draw the sizes of the prompt and of the answer, or why there is no answer."""
    size = page.text("characters", count=f"{event.characters:,}")
    sent = [size, event.tool_choice and f"tool_choice {event.tool_choice}"]
    dim_label(f"{page.text('input')}: {' · '.join(filter(None, sent))}")
    if event.failed:
        ui.label(page.text("call_failed", problem=event.failed)).classes("mr-bad mr-text")
        return
    tokens = {"prompt": event.prompt_tokens, "completion": event.completion_tokens}
    dim_label(f"{page.text('output')}: {page.text('tokens', **tokens)}")


def _draw_tool_result(page: Page, event: ResultEvent) -> None:
    _draw_json(page.text("input"), event.arguments)
    results = (event.output or {}).get("results")
    if isinstance(results, list):
        dim_label(f"{page.text('output')}: {page.text('found', count=len(results))}")
        for item in results:
            _draw_result(page, item)
    else:
        _draw_json(page.text("output"), event.output or event.text)
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


def stop_text(page: Page, reason: str) -> str:
    """Return a stop reason in the language of the page; an unknown one as it is."""
    name = f"stop_{reason}"
    return page.text(name) if name in WORDS else reason


def stop_class(reason: str) -> str:
    """Return the class of a stop reason: a failure looks failed."""
    if reason in _FAILURES:
        return "mr-bad"
    return "" if reason == StopReason.HANDOFF else "mr-warn"


def draw_facts(page: Page, body: Mapping[str, Any]) -> None:
    """Draw the outcome and the cost of a recall."""
    usage = body["usage"]
    with row():
        classes = "mr-good" if body["confidence"] >= HIGH_CONFIDENCE else "mr-warn"
        show_fact(page.text("confidence"), f"{body['confidence']:.0%}", classes)
        reason = body["stop_reason"]
        show_fact(page.text("stop_reason"), stop_text(page, reason), stop_class(reason))
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
        if lacks_contents(memory["content"] for memory in body["memories"]):
            ui.label(page.text("contents_withheld")).classes("mr-warn mr-text").props("role=note")
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
