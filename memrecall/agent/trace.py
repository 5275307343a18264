"""The trace of a recall: its events in order, enough to draw it, replay it and judge it."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from memrecall.types import format_time


class EventKind(StrEnum):
    """What an event tells."""

    START = "start"  # what was asked, by what model, within which limits
    ITERATION = "iteration"  # a window was opened
    MODEL = "model"  # the model was called: tokens, characters, tool choice, failure
    THOUGHT = "thought"  # what the model said beside its calls
    TEXT = "text"  # what the model said instead of a call
    CALL = "call"  # a tool call as applied
    RESULT = "result"  # what it brought
    STEER = "steer"  # the model strayed and was told so
    FALLBACK = "fallback"  # the rules went on in the model's place
    STOP = "stop"  # a limit or a failure ended the run
    HANDOFF = "handoff"  # the end


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One thing that happened, `at` seconds after the start."""

    kind: EventKind
    at: float
    iteration: int
    turn: int
    data: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The event as one flat JSON object."""
        head = {"kind": self.kind.value, "at": round(self.at, 4)}
        return {**head, "iteration": self.iteration, "turn": self.turn, **self.data}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "TraceEvent":
        """The inverse of `as_dict`."""
        data = dict(fields)
        head = [data.pop(name) for name in ("kind", "at", "iteration", "turn")]
        return cls(EventKind(head[0]), head[1], head[2], head[3], data)


@dataclass(frozen=True, slots=True)
class Trace:
    """A finished recall, event by event."""

    trace_id: str
    started_at: datetime
    events: tuple[TraceEvent, ...]

    def as_dict(self) -> dict[str, Any]:
        """The trace as one JSON object."""
        return {
            "trace_id": self.trace_id,
            "started_at": format_time(self.started_at),
            "events": [event.as_dict() for event in self.events],
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Trace":
        """The inverse of `as_dict`."""
        return cls(
            fields["trace_id"],
            datetime.fromisoformat(fields["started_at"]),
            tuple(TraceEvent.from_dict(event) for event in fields["events"]),
        )

    def fixed(self) -> dict[str, Any]:
        """The trace without what differs between two equal runs: its id and all times."""
        told = [event.as_dict() for event in self.events]
        for event in told:
            event["at"] = 0.0
            for name in ("seconds", "usage"):
                event.pop(name, None)
        return {"events": told}

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from memrecall.agent.display import trace_html

        return trace_html(self)


Observer = Callable[[TraceEvent], None]


@dataclass(slots=True)
class Recorder:
    """Writes a trace while the recall runs, and tells an observer at once."""

    observer: Observer | None = None
    trace_id: str = field(default_factory=lambda: f"tr_{secrets.token_hex(8)}")
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    iteration: int = 1
    turn: int = 0
    _events: list[TraceEvent] = field(default_factory=list)
    _start: float = field(default_factory=time.monotonic)

    def add(self, kind: EventKind, **data: Any) -> None:
        """Write down what happened now."""
        at = time.monotonic() - self._start
        event = TraceEvent(kind, at, self.iteration, self.turn, data)
        self._events.append(event)
        if self.observer is not None:
            self.observer(event)

    def finish(self) -> Trace:
        """The trace as it stands."""
        return Trace(self.trace_id, self.started_at, tuple(self._events))
