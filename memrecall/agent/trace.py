"""The trace of a recall: its events in order or as a stream, and the timeline drawn from them."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from memrecall.agent.trace_events import (
    CallEvent,
    FallbackEvent,
    HandoffEvent,
    IterationEvent,
    ModelEvent,
    ResultEvent,
    StartEvent,
    SteerEvent,
    StopEvent,
    TextEvent,
    ThoughtEvent,
    TraceEvent,
)
from memrecall.types import format_time


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of a finished recall."""

    trace_id: str
    started_at: datetime
    events: tuple[TraceEvent, ...]

    @property
    def start(self) -> StartEvent:
        """The start event; an empty one if the trace has none."""
        return next((e for e in self.events if isinstance(e, StartEvent)), StartEvent())

    def as_dict(self) -> dict[str, Any]:
        """Return the trace as one JSON object."""
        return {
            "trace_id": self.trace_id,
            "started_at": format_time(self.started_at),
            "events": [event.as_dict() for event in self.events],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Trace":
        """Return the trace of a stored object."""
        return cls(
            values["trace_id"],
            datetime.fromisoformat(values["started_at"]),
            tuple(TraceEvent.from_dict(event) for event in values["events"]),
        )

    def fixed(self) -> dict[str, Any]:
        """Return the trace without its id and times, which differ between equal runs."""
        events = [event.as_dict() for event in self.events]
        for event in events:
            event["at"] = 0.0
            for name in ("seconds", "usage"):
                event.pop(name, None)
        return {"events": events}

    def _repr_html_(self) -> str:
        from memrecall.agent.views.html import trace_html

        return trace_html(self)


Observer = Callable[[TraceEvent], None]
Result = TypeVar("Result")


@dataclass(slots=True)
class Recorder:
    """Records a trace while the recall runs, and passes each event to the observers."""

    observers: tuple[Observer | None, ...] = ()
    trace_id: str = field(default_factory=lambda: f"tr_{secrets.token_hex(8)}")
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    iteration: int = 1
    turn: int = 0
    _events: list[TraceEvent] = field(default_factory=list)
    _start: float = field(default_factory=time.monotonic)

    def add(self, event: TraceEvent) -> None:
        """Record an event with the current time, iteration and turn."""
        event.at = time.monotonic() - self._start
        event.iteration, event.turn = self.iteration, self.turn
        self._events.append(event)
        for observe in filter(None, self.observers):
            observe(event)

    def finish(self) -> Trace:
        """Return the trace of the events so far."""
        return Trace(self.trace_id, self.started_at, tuple(self._events))


async def stream_events(
    run: Callable[[Observer], Awaitable[Result]],
) -> AsyncGenerator[TraceEvent | Result, None]:
    """Run a function with an observer of trace events; yield the events, then its result."""
    events: asyncio.Queue[TraceEvent | None] = asyncio.Queue()
    task = asyncio.ensure_future(run(events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        yield await task
    finally:
        # The run ends when its consumer stops or is cancelled.
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(slots=True)
class TimelineStep:
    """A step of a recall, from `start` to `end` seconds after its start.

    `event` is the result of a tool call, or the call itself while it is running.
    """

    kind: str  # model, tool, note or end
    start: float
    end: float
    event: TraceEvent
    is_running: bool = False

    @property
    def seconds(self) -> float:
        """The duration."""
        return max(self.end - self.start, 0.0)

    @property
    def has_failed(self) -> bool:
        """Whether it is a model or tool call that failed."""
        return bool(self.event.failure)

    @property
    def went_wrong(self) -> bool:
        """Whether it failed, corrects the model, replaces it or ends the recall early."""
        return self.has_failed or isinstance(self.event, SteerEvent | FallbackEvent | StopEvent)


@dataclass(slots=True)
class IterationTimeline:
    """One iteration: its window and its steps in order."""

    iteration: int
    window: int = 0
    shown: int = 0
    steps: list[TimelineStep] = field(default_factory=list)


def build_timeline(events: Iterable[TraceEvent]) -> list[IterationTimeline]:
    """Return the steps of a trace by iteration; the trace may be unfinished."""
    iterations: dict[int, IterationTimeline] = {}
    calls: dict[str, TimelineStep] = {}
    for event in events:
        current = iterations.setdefault(event.iteration, IterationTimeline(event.iteration))
        if isinstance(event, IterationEvent):
            current.window, current.shown = event.window, event.shown
        elif isinstance(event, ResultEvent) and event.id in calls:
            step = calls.pop(event.id)
            step.end, step.event, step.is_running = event.at, event, False
        elif (new_step := _timeline_step(event)) is not None:
            current.steps.append(new_step)
            if isinstance(event, CallEvent):
                calls[event.id] = new_step
    return list(iterations.values())


def _timeline_step(event: TraceEvent) -> TimelineStep | None:
    match event:
        case ModelEvent():
            start = max(event.at - event.seconds, 0.0)
            return TimelineStep("model", start, event.at, event)
        case CallEvent() | ResultEvent():
            is_running = isinstance(event, CallEvent)
            return TimelineStep("tool", event.at, event.at, event, is_running)
        case ThoughtEvent() | TextEvent() | SteerEvent() | FallbackEvent():
            return TimelineStep("note", event.at, event.at, event)
        case StopEvent() | HandoffEvent():
            return TimelineStep("end", event.at, event.at, event)
    return None
