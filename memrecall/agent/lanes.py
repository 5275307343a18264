"""A trace as it can be drawn: a lane for each iteration, in it the calls with their times."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from memrecall.agent.trace import EventKind, TraceEvent

_NOTES = frozenset({EventKind.THOUGHT, EventKind.TEXT, EventKind.STEER, EventKind.FALLBACK})
_ENDS = frozenset({EventKind.STOP, EventKind.HANDOFF})


@dataclass(slots=True)
class Step:
    """Something that a recall did, from `start` to `end` seconds after its own start."""

    kind: str  # model, tool, note or end
    name: str
    start: float
    end: float
    data: dict[str, Any]
    is_running: bool = False

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(self.end - self.start, 0.0)

    @property
    def has_failed(self) -> bool:
        """Whether it told an error."""
        return bool(self.data.get("error") or self.data.get("failure"))


@dataclass(slots=True)
class Lane:
    """One iteration: the window it was given, and its steps in order."""

    iteration: int
    window: int = 0
    shown: int = 0
    steps: list[Step] = field(default_factory=list)


def draw_lanes(events: Iterable[TraceEvent]) -> list[Lane]:
    """The lanes of a trace, also of one that is still being written."""
    lanes: dict[int, Lane] = {}
    calls: dict[str, Step] = {}
    for event in events:
        lane = lanes.setdefault(event.iteration, Lane(event.iteration))
        if event.kind is EventKind.ITERATION:
            lane.window, lane.shown = event.data["window"], event.data["shown"]
        elif event.kind is EventKind.RESULT and event.data["id"] in calls:
            _finish(calls.pop(event.data["id"]), event)
        elif (step := _step(event)) is not None:
            lane.steps.append(step)
            if event.kind is EventKind.CALL:
                calls[event.data["id"]] = step
    return list(lanes.values())


def _finish(step: Step, event: TraceEvent) -> None:
    step.end = event.at
    step.data = {**step.data, **event.data}
    step.is_running = False


def _step(event: TraceEvent) -> Step | None:
    data = event.data
    if event.kind is EventKind.MODEL:
        start = event.at - float(data.get("seconds", 0.0))
        return Step("model", str(data.get("purpose", "model")), max(start, 0.0), event.at, data)
    if event.kind in (EventKind.CALL, EventKind.RESULT):
        is_open = event.kind is EventKind.CALL
        return Step("tool", data["tool"], event.at, event.at, data, is_running=is_open)
    if event.kind in _NOTES:
        return Step("note", event.kind.value, event.at, event.at, data)
    if event.kind in _ENDS:
        return Step("end", event.kind.value, event.at, event.at, data)
    return None
