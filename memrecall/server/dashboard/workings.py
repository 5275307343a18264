"""A tool call of a chat turn and what it brought."""

import json
from typing import Any

from nicegui import ui

from memrecall.chat import ToolCall, ToolResult
from memrecall.server.dashboard.parts import dim
from memrecall.server.dashboard.visit import Visit

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
