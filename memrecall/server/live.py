"""The recalls that run now: their events so far, for whoever may look at their user."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from memrecall.agent import RecallResult
from memrecall.agent.trace import TraceEvent
from memrecall.scope import Scope

ENDED_KEPT = 50  # so that whoever watched one to its end still finds it
_LONGEST_QUERY = 300


@dataclass(slots=True)
class LiveRecall:
    """A recall under way."""

    scope: Scope
    query: str
    live_id: str = field(default_factory=lambda: f"live_{secrets.token_hex(8)}")
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    events: list[TraceEvent] = field(default_factory=list)
    result: RecallResult | None = None
    has_ended: bool = False
    problem: str = ""

    def note(self, event: TraceEvent | RecallResult) -> None:
        """Something happened."""
        if isinstance(event, RecallResult):
            self.result = event
        else:
            self.events.append(event)

    def may_be_seen_by(self, scope: Scope) -> bool:
        """Whether a scope sees all that this recall sees."""
        same_agent = scope.agent_id in (None, self.scope.agent_id)
        same_user = scope.user_id == self.scope.user_id
        return same_user and same_agent and self.scope.permissions <= scope.permissions


class LiveRecalls:
    """What runs now, and the last few that have ended."""

    def __init__(self) -> None:
        self._recalls: dict[str, LiveRecall] = {}

    def begin(self, scope: Scope, query: str) -> LiveRecall:
        """Announce a recall."""
        live = LiveRecall(scope, query[:_LONGEST_QUERY])
        self._recalls[live.live_id] = live
        return live

    @contextmanager
    def following(self, live: LiveRecall) -> Iterator[LiveRecall]:
        """A recall is under way while the block runs."""
        try:
            yield live
        finally:
            live.has_ended = True
            self._drop_old()

    def running(self, scope: Scope) -> list[LiveRecall]:
        """Those that run and that a scope may see, the latest first."""
        seen = [live for live in self._recalls.values() if live.may_be_seen_by(scope)]
        return [live for live in reversed(seen) if not live.has_ended]

    def find(self, scope: Scope, live_id: str) -> LiveRecall | None:
        """The recall of that id, if a scope may see it."""
        live = self._recalls.get(live_id)
        return live if live is not None and live.may_be_seen_by(scope) else None

    def _drop_old(self) -> None:
        ended = [live_id for live_id, live in self._recalls.items() if live.has_ended]
        for live_id in ended[:-ENDED_KEPT]:
            del self._recalls[live_id]
