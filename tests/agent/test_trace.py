"""Typed trace events, their stored form, and the timeline drawn from them."""

import json
from pathlib import Path
from typing import Any

import pytest

from memrecall.agent.result import Recorder
from memrecall.agent.trace import (
    CallEvent,
    FallbackEvent,
    HandoffEvent,
    ModelEvent,
    ResultEvent,
    SteerEvent,
    TraceEvent,
    build_timeline,
)

from ..cases import check_each

TRACES = sorted((Path(__file__).parents[2] / "fixtures" / "cassettes").glob("*.trace.json"))
WINDOW_EXPANSION = next(path for path in TRACES if path.name == "window_expansion.trace.json")


def read_stored(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["events"]
    return events


def read_events(path: Path) -> list[TraceEvent]:
    return [TraceEvent.from_dict(event) for event in read_stored(path)]


def test_stored_events_load_and_are_written_back_unchanged() -> None:
    def check(path: Path) -> None:
        for stored, event in zip(read_stored(path), read_events(path), strict=True):
            times = {"seconds", "usage"}  # the fixtures are stored without them
            assert {k: v for k, v in event.as_dict().items() if k not in times} == stored

    check_each(TRACES, check, lambda path: path.name)


def test_events_without_contents_load() -> None:
    """Traces of sensitive recalls are stored without outputs, texts and summaries."""
    head = {"at": 0.1, "iteration": 1, "turn": 1}
    result = TraceEvent.from_dict({"kind": "result", "id": "1", "tool": "handoff", **head})
    thought = TraceEvent.from_dict({"kind": "thought", **head})
    handoff = TraceEvent.from_dict({"kind": "handoff", "keys": ["m1"], **head})
    assert isinstance(result, ResultEvent)
    assert result.output is None
    assert "output" not in result.as_dict()
    assert thought.data == {"text": ""}
    assert isinstance(handoff, HandoffEvent)
    assert (handoff.keys, handoff.summary) == (["m1"], "")


def test_fields_of_later_versions_are_ignored() -> None:
    head = {"at": 0.0, "iteration": 1, "turn": 0}
    event = TraceEvent.from_dict({"kind": "start", "asked": "tea?", "mood": "new", **head})
    assert event.data["asked"] == "tea?"
    assert "mood" not in event.as_dict()


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="dance"):
        TraceEvent.from_dict({"kind": "dance", "at": 0.0, "iteration": 1, "turn": 0})


def test_recorder_stamps_events_and_informs_the_observer() -> None:
    observed: list[TraceEvent] = []
    recorder = Recorder((None, observed.append))
    recorder.iteration, recorder.turn = 2, 5
    recorder.add(CallEvent(id="1", tool="handoff"))
    (event,) = recorder.finish().events
    assert observed == [event]
    assert (event.iteration, event.turn) == (2, 5)
    assert event.at > 0


def test_calls_become_finished_steps() -> None:
    def check(path: Path) -> None:
        events = read_events(path)
        iterations = build_timeline(events)
        tools = [
            step for iteration in iterations for step in iteration.steps if step.kind == "tool"
        ]
        assert [step.event.tool for step in tools if isinstance(step.event, ResultEvent)] == [
            event.tool for event in events if isinstance(event, CallEvent)
        ]
        assert not any(step.is_running for step in tools)
        assert len(iterations) == max(event.iteration for event in events)
        assert all(iteration.window for iteration in iterations)

    check_each(TRACES, check, lambda path: path.name)


def test_timeline_shows_growing_windows() -> None:
    iterations = build_timeline(read_events(WINDOW_EXPANSION))
    assert [(item.iteration, item.window, item.shown) for item in iterations] == [
        (1, 5, 5),
        (2, 10, 10),
    ]


def test_call_without_result_is_a_running_step() -> None:
    (iteration,) = build_timeline(read_events(WINDOW_EXPANSION)[:4])
    assert [(step.kind, step.is_running) for step in iteration.steps] == [
        ("model", False),
        ("tool", True),
    ]


def test_steps_that_went_wrong_are_marked() -> None:
    events = [
        ModelEvent(turn=1),
        CallEvent(turn=1, id="1", tool="search_memories"),
        ResultEvent(turn=1, id="1", tool="search_memories", error="no"),
        SteerEvent(turn=1),
        ModelEvent(turn=2, failed="quota exceeded"),
        FallbackEvent(turn=2),
        CallEvent(turn=3, id="2", tool="handoff"),
        HandoffEvent(turn=3),
    ]
    (iteration,) = build_timeline(events)
    wrong = [step.went_wrong for step in iteration.steps]
    assert wrong == [False, True, True, True, True, False, False]


def test_steps_have_times_and_failures() -> None:
    events = [
        ModelEvent(at=0.75, purpose="recall", seconds=0.5),
        CallEvent(at=1.0, id="1", tool="search_memories", arguments="{}"),
        ResultEvent(at=1.5, id="1", tool="search_memories", error="no"),
    ]
    (iteration,) = build_timeline(events)
    assert [(step.start, step.seconds) for step in iteration.steps] == [(0.25, 0.5), (1.0, 0.5)]
    assert [step.has_failed for step in iteration.steps] == [False, True]


def test_failed_model_call_is_a_failed_step() -> None:
    stored = {"kind": "model", "at": 1.0, "iteration": 1, "turn": 1, "failed": "quota exceeded"}
    (iteration,) = build_timeline([TraceEvent.from_dict(stored)])
    assert iteration.steps[0].has_failed
    assert TraceEvent.from_dict(stored).failure == "quota exceeded"
