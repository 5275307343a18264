"""What all endpoints share, and how an endpoint learns who is asking."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from memrecall.agent.caches import Caches
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.server.auth import Principal
from memrecall.server.limits import RecallGate
from memrecall.server.live import LiveRecalls
from memrecall.server.metrics import Metrics
from memrecall.server.tally import Tally


@dataclass(slots=True)
class Service:
    """One opened library and what is counted and limited around it."""

    library: Library
    metrics: Metrics
    gate: RecallGate
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


async def _asking(request: Request) -> Asking:
    state = request.scope["state"]
    return Asking(state["service"], state["principal"], state["notes"])


Asked = Annotated[Asking, Depends(_asking)]
