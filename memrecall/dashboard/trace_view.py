"""A recall, drawn: lanes with their calls, each behind a fold, the handoff and its evidence."""

import json
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

from nicegui import ui

from memrecall.agent.trace import (
    CallEvent,
    IterationTimeline,
    ResultEvent,
    TimelineStep,
    TraceEvent,
    build_timeline,
)
from memrecall.chat import ToolCall, ToolResult
from memrecall.dashboard.session import Visit
from memrecall.dashboard.widgets import card, dim, fact, milliseconds, moment, note, row

_LONGEST = 6_000


def draw_call(visit: Visit, call: ToolCall, result: ToolResult) -> None:
    """The call behind a fold; one that the turn made itself says so."""
    made_by = visit.say("forged") if call.forged else visit.say("by_model")
    with ui.expansion(f"{call.name} · {made_by}", icon="build") as fold:
        fold.classes("mr-expansion").props("dense")
        dim(visit.say("arguments"))
        ui.label(_pretty(call.arguments)).classes("mr-code")
        dim(visit.say("result"))
        look = "mr-code mr-bad" if result.is_error else "mr-code"
        ui.label(_pretty(result.content)).classes(look)


def _pretty(text: str) -> str:
    """JSON with its lines, anything else as it is."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text[:_LONGEST]
    return json.dumps(value, ensure_ascii=False, indent=1)[:_LONGEST]


_ICONS = {"model": "psychology", "tool": "build", "note": "chat_bubble_outline", "end": "flag"}

_SHARE = {True: "mr-good", False: "mr-warn"}
SURE = 0.6


def key_link(visit: Visit, key: str, kind: str | None) -> str:
    """Where a memory or a message is shown."""
    if kind == "message" or (kind is None and not key.startswith("mem_")):
        return visit.link("/explorer", user=visit.user, around=key)
    return visit.link("/explorer/memory", user=visit.user, key=key)


def draw_trace(visit: Visit, events: list[TraceEvent]) -> None:
    """The lanes, and below them every step."""
    lanes = build_timeline(events)
    with card(visit.say("timeline")):
        largest = max((lane.window for lane in lanes), default=1)
        folds = [(lane, [_Fold(step) for step in lane.steps]) for lane in lanes]
        whole = max((step.end for lane in lanes for step in lane.steps), default=0.0)
        for lane, steps in folds:
            _draw_lane(visit, lane, steps, largest, whole)
    with card(visit.say("steps")):
        for _, steps in folds:
            for fold in steps:
                fold.draw(visit)


class _Fold:
    """A step twice: its block in the lane, and the fold that the block opens."""

    def __init__(self, step: TimelineStep) -> None:
        self.step = step
        self._fold: ui.expansion | None = None
        self._is_filled = False

    def open(self) -> None:
        if self._fold is not None:
            self._fold.open()
            ui.navigate.to(self._fold)

    def _fill(self, visit: Visit) -> None:
        """Draw what is inside when it is first opened: most folds never are."""
        if self._fold is not None and self._fold.value and not self._is_filled:
            self._is_filled = True
            with self._fold:
                _draw_details(visit, self.step)

    def draw(self, visit: Visit) -> None:
        step = self.step
        fold = ui.expansion(
            _caption(visit, step),
            icon=_ICONS[step.kind],
            on_value_change=lambda: self._fill(visit),
        )
        self._fold = fold.classes("mr-expansion").props("dense")


def _draw_lane(
    visit: Visit, lane: IterationTimeline, folds: list[_Fold], largest: int, whole: float
) -> None:
    """What the iteration was shown, what it did, and when."""
    with ui.element("div").classes("mr-lane"):
        with ui.element("div"):
            ui.label(visit.say("iteration", number=lane.iteration))
            dim(visit.say("window", size=lane.window, shown=lane.shown))
            share = 100 * lane.window / max(largest, 1)
            ui.element("div").classes("mr-window").style(f"width: {share:.0f}%")
        with ui.element("div"):
            with ui.element("div").classes("mr-steps"):
                for fold in folds:
                    _draw_block(visit, fold)
            _draw_strip(lane, whole)


def _draw_strip(lane: IterationTimeline, whole: float) -> None:
    """When the calls of an iteration ran, on the time axis of the whole recall."""
    with ui.element("div").classes("mr-strip").props("aria-hidden=true"):
        for step in lane.steps:
            if step.kind in ("model", "tool") and whole > 0:
                left, width = 100 * step.start / whole, 100 * step.seconds / whole
                place = f"left: {left:.2f}%; width: {width:.2f}%"
                ui.element("div").classes(f"mr-{step.kind}").style(place)


def _draw_block(visit: Visit, fold: _Fold) -> None:
    """A block as wide as its step took long, but never too small for its name."""
    step = fold.step
    look = f"mr-step mr-{step.kind}" + (" mr-failed" if step.has_failed else "")
    with ui.element("button").classes(look).props("type=button") as block:
        ui.icon(_ICONS[step.kind])
        ui.label(_short(visit, step)).classes("mr-span")
    block.style(f"flex: {max(step.seconds, 0.001):.4f} 1 auto")
    block.on("click", fold.open)


def _short(visit: Visit, step: TimelineStep) -> str:
    took = visit.say("running") if step.is_running else milliseconds(step.seconds)
    if step.kind == "tool":
        return f"{step.name} · {took}"
    if step.kind == "model":
        return f"{visit.say('model')} · {took}"
    return visit.say(f"step_{step.name}")


def _caption(visit: Visit, step: TimelineStep) -> str:
    label = _short(visit, step)
    if step.has_failed:
        return f"{label} → {visit.say('error')}"
    output = step.event.output if isinstance(step.event, ResultEvent) else None
    if output and "total_found" in output:
        return f"{label} → {visit.say('found', count=output['total_found'])}"
    return label


def _draw_details(visit: Visit, step: TimelineStep) -> None:
    event = step.event
    if isinstance(event, CallEvent):
        _draw_json(visit.say("arguments"), _parse_arguments(event.arguments))
    elif isinstance(event, ResultEvent):
        _draw_tool_result(visit, event)
    else:
        data = event.data
        text = data.pop("text", None)
        if isinstance(text, str):
            ui.label(text[:_LONGEST]).classes("mr-text")
        if data:
            _draw_json("", data)


def _draw_tool_result(visit: Visit, event: ResultEvent) -> None:
    _draw_json(visit.say("arguments"), event.arguments)
    results = (event.output or {}).get("results")
    if isinstance(results, list):
        for item in results:
            _draw_result(visit, item)
    else:
        _draw_json(visit.say("result"), event.output or event.text)
    if event.error:
        ui.label(event.error).classes("mr-bad mr-text")


def _parse_arguments(arguments: str) -> Any:
    """Return the arguments of a running call as JSON, or as text if they are not JSON."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _draw_json(name: str, value: Any) -> None:
    if name:
        dim(name)
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    ui.label(shown[:_LONGEST]).classes("mr-code")


def _draw_result(visit: Visit, item: Mapping[str, Any]) -> None:
    key = str(item.get("memory_key", ""))
    with ui.element("div").classes("mr-item"):
        shown = str(
            item.get("content_preview") or item.get("summary") or item.get("content") or key
        )
        ui.link(shown[:300], key_link(visit, key, item.get("kind")))
        if item.get("relevance_score") is not None:
            dim(f"{item['relevance_score']:.2f}")
        dim(str(item.get("memory_type", "")))


def draw_facts(visit: Visit, body: Mapping[str, Any]) -> None:
    """What a recall came to, in figures."""
    usage = body["usage"]
    with row():
        look = _SHARE[body["confidence"] >= SURE]
        fact(visit.say("confidence"), f"{body['confidence']:.0%}", look)
        fact(visit.say("stop_reason"), body["stop_reason"])
        fact(visit.say("windows"), " → ".join(map(str, body["windows"])))
        fact(visit.say("model_calls"), str(usage["model_calls"]))
        fact(visit.say("tool_calls"), str(usage["tool_calls"]))
        fact(visit.say("took"), milliseconds(float(usage["seconds"])))
        fact(visit.say("model"), body["model"])


def draw_handoff(visit: Visit, body: Mapping[str, Any], zone: tzinfo) -> None:
    """The handoff with its evidence, each linked to where it was said."""
    handoff = body["handoff"]
    with card(visit.say("handoff")):
        if body["abstained"]:
            ui.label(visit.say("abstained")).classes("mr-warn")
        ui.label(handoff["search_summary"][:_LONGEST]).classes("mr-text")
        if handoff["follow_up_question"]:
            ui.label(handoff["follow_up_question"]).classes("mr-text mr-warn")
        if handoff["reasoning"]:
            dim(handoff["reasoning"]).classes("mr-text")
        if body["problem"]:
            ui.label(body["problem"]).classes("mr-bad mr-text")
        for memory in body["memories"]:
            _draw_evidence(visit, memory, zone)
        if not body["memories"]:
            note(visit.say("no_evidence"))
        if body["keys_dropped"]:
            dim(visit.say("dropped", keys=", ".join(body["keys_dropped"])))


def _draw_evidence(visit: Visit, memory: Mapping[str, Any], zone: tzinfo) -> None:
    key, kind = memory["memory_key"], memory["kind"]
    with ui.element("div").classes("mr-evidence"):
        for near in memory["before"]:
            _draw_nearby(visit, near, zone)
        ui.link((memory["content"] or key)[:_LONGEST], key_link(visit, key, kind)).classes(
            "mr-text"
        )
        told = [memory["memory_type"], memory["speaker"] or memory["role"] or ""]
        told.append(moment(datetime.fromisoformat(memory["ts"]), zone))
        if memory["relevance_score"] is not None:
            told.append(visit.say("relevance", score=f"{memory['relevance_score']:.2f}"))
        dim(" · ".join(filter(None, told)))
        for near in (*memory["after"], *memory["sources"]):
            _draw_nearby(visit, near, zone)


def _draw_nearby(visit: Visit, near: Mapping[str, Any], zone: tzinfo) -> None:
    at = moment(datetime.fromisoformat(near["ts"]), zone)
    text = f"{near['speaker']}, {at}: {near['content'][:400]}"
    target = key_link(visit, near["memory_key"], "message")
    ui.link(text, target).classes("mr-small mr-dim mr-text")
