"""What all endpoints share, and how an endpoint learns who is asking."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from fastapi import Depends, Request

from memrecall.library.caches import Caches
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.server.auth import Principal
from memrecall.server.counters import Tally
from memrecall.server.errors import Problem, Refused
from memrecall.server.limits import RecallGate
from memrecall.server.live import LiveRecalls
from memrecall.server.metrics import Metrics


@dataclass(slots=True)
class Service:
    """One opened library and what is counted and limited around it."""

    library: Library
    metrics: Metrics
    gate: RecallGate
    remembering: AsyncMemory  # for anybody: endpoints bind it to who is asking
    model_client: Any = None  # None: the offline rules recall
    tally: Tally | None = None  # None: nobody looks at what is counted over time
    caches: Caches = field(default_factory=Caches)
    live: LiveRecalls = field(default_factory=LiveRecalls)
    closing: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Asking:
    """A request, as an endpoint sees it: the service, who asks, and what the log will say."""

    service: Service
    principal: Principal
    notes: dict[str, Any]

    @property
    def library(self) -> Library:
        """The service's library."""
        return self.service.library

    async def known(self, user_id: str) -> Scope:
        """The scope of a user who may be asked about and has something stored."""
        scope = self.principal.scope(user_id)
        await self.library.require_user(scope)
        return scope

    def memory(self, user_id: str | None = None, agent_id: str | None = None) -> AsyncMemory:
        """The memory of a user who may be asked about; without a name, of the key's only user."""
        return self._bound(self._own(user_id, agent_id))

    async def own_memory(
        self, user_id: str | None = None, agent_id: str | None = None
    ) -> AsyncMemory:
        """The same, unless the user or the agent is disabled.

        A user with nothing stored yet has an empty memory: every first conversation begins so.
        """
        scope = self._own(user_id, agent_id)
        store = self.library.store
        mark = await store.feed(scope.user_id).version()
        if mark is not None:
            await store.require_active(mark, scope)
        return self._bound(scope)

    def _own(self, user_id: str | None, agent_id: str | None) -> Scope:
        scope = self.principal.scope(self.principal.one_user(user_id))
        if agent_id is None:
            return scope
        if scope.agent_id not in (None, agent_id):
            raise _another_agent(scope.agent_id)
        return replace(scope, agent_id=agent_id)

    def _bound(self, scope: Scope) -> AsyncMemory:
        return self.service.remembering.bind(
            user_id=scope.user_id,
            agent_id=scope.agent_id,
            permissions=scope.permissions,
            actor=f"key {self.principal.key_id}",
        )


def _another_agent(own: str | None) -> Refused:
    why = f"is not {own!r}, which this key is for"
    fault = {"field": "agent_id", "message": why}
    return Refused(Problem("INVALID_ARGUMENT", f"agent_id: {why}", {"fields": [fault]}))


async def _asking(request: Request) -> Asking:
    state = request.scope["state"]
    return Asking(state["service"], state["principal"], state["notes"])


Asked = Annotated[Asking, Depends(_asking)]
