"""Running recalls and their events so far, for the live view of the dashboard."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from memrecall.agent import RecallResult
from memrecall.agent.trace_events import TraceEvent
from memrecall.scope import Scope

MAX_ENDED = 50  # ended recalls that stay available to whoever is watching them
_QUERY_LENGTH = 300


@dataclass(slots=True)
class LiveRecall:
    """One running recall."""

    scope: Scope
    query: str
    live_id: str = field(default_factory=lambda: f"live_{secrets.token_hex(8)}")
    events: list[TraceEvent] = field(default_factory=list)
    result: RecallResult | None = None
    has_ended: bool = False
    problem: str = ""

    def record(self, event: TraceEvent | RecallResult) -> None:
        """Add an event, or set the result."""
        if isinstance(event, RecallResult):
            self.result = event
        else:
            self.events.append(event)

    def is_visible_to(self, scope: Scope) -> bool:
        """Return True if `scope` may see everything that this recall may see."""
        same_agent = scope.agent_id in (None, self.scope.agent_id)
        same_user = scope.user_id == self.scope.user_id
        return same_user and same_agent and self.scope.permissions <= scope.permissions


class LiveRecalls:
    """The running recalls, and the last few that have ended."""

    def __init__(self) -> None:
        self._recalls: dict[str, LiveRecall] = {}

    def start(self, scope: Scope, query: str) -> LiveRecall:
        """Register a recall."""
        live = LiveRecall(scope, query[:_QUERY_LENGTH])
        self._recalls[live.live_id] = live
        return live

    @contextmanager
    def track(self, live: LiveRecall) -> Iterator[LiveRecall]:
        """Mark a recall as ended when the block ends."""
        try:
            yield live
        finally:
            live.has_ended = True
            self._drop_old()

    def running(self, scope: Scope) -> list[LiveRecall]:
        """Return the running recalls that a scope may see, the latest first."""
        return [
            live
            for live in reversed(self._recalls.values())
            if not live.has_ended and live.is_visible_to(scope)
        ]

    def find(self, scope: Scope, live_id: str) -> LiveRecall | None:
        """Return the recall with this id if the scope may see it."""
        live = self._recalls.get(live_id)
        return live if live is not None and live.is_visible_to(scope) else None

    def _drop_old(self) -> None:
        ended = [live_id for live_id, live in self._recalls.items() if live.has_ended]
        for live_id in ended[:-MAX_ENDED]:
            del self._recalls[live_id]
