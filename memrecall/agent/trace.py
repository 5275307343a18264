"""The events of a recall: their kinds, a stream of them, and the timeline drawn from them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict

_OMIT_NONE = {"omit_none": True}  # metadata of fields that are not stored while they are None


class EventKind(StrEnum):
    """The kind of a trace event, as it is stored."""

    START = "start"
    ITERATION = "iteration"
    MODEL = "model"
    THOUGHT = "thought"
    TEXT = "text"
    CALL = "call"
    RESULT = "result"
    STEER = "steer"
    FALLBACK = "fallback"
    STOP = "stop"
    HANDOFF = "handoff"


_event_types: dict[EventKind, type["TraceEvent"]] = {}


def _complete_schema(schema: dict[str, Any]) -> None:
    """Describe the object of `TraceEvent.as_dict`, which always has the common fields."""
    for item in schema["properties"].values():
        item.pop("default", None)
    schema.update(required=list(schema["properties"]), additionalProperties=True)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
@dataclass(kw_only=True)
class TraceEvent:
    """One event of a recall, `at` seconds after the start, with the fields of its kind."""

    # Each subclass is a dataclass for one kind. Its fields have defaults, because traces are stored
    # without the contents of sensitive memories and very large ones without tool outputs. The
    # recorder sets the common fields, except for the kind, which every subclass replaces.
    __pydantic_config__ = ConfigDict(json_schema_extra=_complete_schema)

    kind: EventKind = field(default=EventKind.START, init=False)
    at: float = 0.0
    iteration: int = 1
    turn: int = 0

    def __init_subclass__(cls, kind: EventKind) -> None:
        cls.kind = kind
        _event_types[kind] = dataclass(kw_only=True)(cls)

    @property
    def data(self) -> dict[str, Any]:
        """The fields of this kind of event, as they are stored."""
        return {
            item.name: value
            for item in fields(self)[len(fields(TraceEvent)) :]
            if (value := getattr(self, item.name)) is not None or not item.metadata.get("omit_none")
        }

    @property
    def failure(self) -> str | None:
        """The error of a failed model or tool call; None for every other event."""
        match self:
            case ModelEvent(failed=problem) | ResultEvent(error=problem):
                return problem
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return the event as one flat JSON object."""
        head = {"kind": self.kind.value, "at": round(self.at, 4)}
        return {**head, "iteration": self.iteration, "turn": self.turn, **self.data}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "TraceEvent":
        """Return the event of a stored object; unknown fields are ignored."""
        event_type = _event_types[EventKind(values["kind"])]
        names = {item.name for item in fields(event_type) if item.init}
        return event_type(**{name: value for name, value in values.items() if name in names})


class StartEvent(TraceEvent, kind=EventKind.START):
    """The start: the request, the model, the language and the time."""

    asked: str = ""
    given: int = 0
    model: str = ""
    language: str = "en"
    now: str = ""
    time_zone: str | None = field(default=None, metadata=_OMIT_NONE)


class IterationEvent(TraceEvent, kind=EventKind.ITERATION):
    """A window of messages opened for one iteration."""

    window: int = 0
    shown: int = 0


class ModelEvent(TraceEvent, kind=EventKind.MODEL):
    """A model call; `failed` holds the error of one that failed."""

    purpose: str = "model"
    tool_choice: str = ""
    characters: int = 0
    failed: str | None = field(default=None, metadata=_OMIT_NONE)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated_tokens: int | None = field(default=None, metadata=_OMIT_NONE)
    seconds: float = 0.0


class ThoughtEvent(TraceEvent, kind=EventKind.THOUGHT):
    """Reasoning that the model sent with its tool calls."""

    text: str = ""


class TextEvent(TraceEvent, kind=EventKind.TEXT):
    """Text that the model sent instead of a tool call."""

    text: str = ""


class CallEvent(TraceEvent, kind=EventKind.CALL):
    """A tool call as the model wrote it."""

    id: str = ""
    tool: str = ""
    arguments: str = ""


class ResultEvent(TraceEvent, kind=EventKind.RESULT):
    """The result of a tool call, with the arguments after validation."""

    id: str = ""
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] | None = field(default=None, metadata=_OMIT_NONE)
    text: str = ""
    error: str | None = None
    seconds: float | None = field(default=None, metadata=_OMIT_NONE)


class SteerEvent(TraceEvent, kind=EventKind.STEER):
    """A correction sent to the model."""

    reason: str = ""
    text: str = ""


class FallbackEvent(TraceEvent, kind=EventKind.FALLBACK):
    """The offline policy replaced a model that cannot do the recall."""

    reason: str = ""
    problem: str = ""


class StopEvent(TraceEvent, kind=EventKind.STOP):
    """A limit or a failure ended the recall."""

    reason: str = ""
    problem: str = ""


class HandoffEvent(TraceEvent, kind=EventKind.HANDOFF):
    """The end of the recall: its handoff and its usage."""

    stop_reason: str = ""
    confidence: float = 0.0
    keys: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    summary: str = ""
    question: str | None = None
    usage: dict[str, int | float] = field(default_factory=dict)


Observer = Callable[[TraceEvent], None]
Result = TypeVar("Result")


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
