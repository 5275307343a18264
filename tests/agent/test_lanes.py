"""Traces drawn as lanes."""

import json
from pathlib import Path

from memrecall.agent.display import draw_lanes
from memrecall.agent.trace import EventKind, TraceEvent

from ..cases import check_each

TRACES = sorted((Path(__file__).parents[2] / "fixtures" / "cassettes").glob("*.trace.json"))


def read(path: Path) -> list[TraceEvent]:
    told = json.loads(path.read_text("utf-8"))["events"]
    return [TraceEvent.from_dict(event) for event in told]


def test_every_call_of_a_trace_is_a_step_that_ended() -> None:
    def check(path: Path) -> None:
        events = read(path)
        lanes = draw_lanes(events)
        tools = [step for lane in lanes for step in lane.steps if step.kind == "tool"]
        assert [step.name for step in tools] == [
            event.data["tool"] for event in events if event.kind is EventKind.CALL
        ]
        assert all("text" in step.data and not step.is_running for step in tools)
        assert len(lanes) == max(event.iteration for event in events)
        assert all(lane.window for lane in lanes)

    check_each(TRACES, check, lambda path: path.name)


def test_windows_grow_from_lane_to_lane() -> None:
    path = next(path for path in TRACES if path.name == "window_expansion.trace.json")
    assert [(lane.iteration, lane.window, lane.shown) for lane in draw_lanes(read(path))] == [
        (1, 5, 5),
        (2, 10, 10),
    ]


def test_a_call_without_its_result_is_running() -> None:
    path = next(path for path in TRACES if path.name == "window_expansion.trace.json")
    so_far = read(path)[:4]
    (lane,) = draw_lanes(so_far)
    assert [(step.kind, step.is_running) for step in lane.steps] == [
        ("model", False),
        ("tool", True),
    ]


def test_times_of_steps() -> None:
    model = {"purpose": "recall", "seconds": 0.5}
    call = {"id": "1", "tool": "search_memories", "arguments": "{}"}
    events = [
        TraceEvent(EventKind.MODEL, 0.75, 1, 1, model),
        TraceEvent(EventKind.CALL, 1.0, 1, 1, call),
        TraceEvent(EventKind.RESULT, 1.5, 1, 1, {**call, "text": "", "error": "no"}),
    ]
    (lane,) = draw_lanes(events)
    assert [(step.start, step.seconds) for step in lane.steps] == [(0.25, 0.5), (1.0, 0.5)]
    assert [step.has_failed for step in lane.steps] == [False, True]
