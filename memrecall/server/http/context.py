"""The state that all endpoints share, and the context of one request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from fastapi import Depends, Request

from memrecall.errors import NotFound
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.server.auth import Principal
from memrecall.server.errors import invalid_field
from memrecall.server.limits import RecallLimiter
from memrecall.server.live import LiveRecalls
from memrecall.server.metrics import CounterBuffer, Metrics


@dataclass(slots=True)
class Service:
    """An opened library with its metrics and limits."""

    library: Library
    metrics: Metrics
    limiter: RecallLimiter
    memory: AsyncMemory  # of all users; endpoints bind it to the user of the request
    model_client: Any = None  # None: recalls follow the offline rules
    counters: CounterBuffer | None = None  # None: no usage is stored
    live: LiveRecalls = field(default_factory=LiveRecalls)
    # When it is set, recalls and chat turns are cancelled; writes that have started are finished.
    closing: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What an endpoint needs: the service, the principal and the fields of the log line."""

    service: Service
    principal: Principal
    log_fields: dict[str, Any]

    @property
    def library(self) -> Library:
        """The service's library."""
        return self.service.library

    async def readable_scope(self, user_id: str) -> Scope:
        """Return the scope of a user; raise NotFound if the user is unknown, unless the key names
        them: then they may store something later.
        """
        scope = self.principal.scope(user_id)
        async with self.tolerate_new_user():
            await self.library.require_user(scope)
        return scope

    @asynccontextmanager
    async def tolerate_new_user(self) -> AsyncIterator[None]:
        """Ignore NotFound in the block if the key names its users, who may have no data yet."""
        try:
            yield
        except NotFound:
            if self.principal.users is None:
                raise

    def memory(self, user_id: str | None = None, agent_id: str | None = None) -> AsyncMemory:
        """Return the memory of a user, by default of the key's only user."""
        return self._bind(self._scope(user_id, agent_id))

    async def active_memory(
        self, user_id: str | None = None, agent_id: str | None = None
    ) -> AsyncMemory:
        """Return the memory of a user; raise Disabled if the user or the agent is disabled.

        A user with nothing stored has an empty memory: that is how a first conversation starts.
        """
        scope = self._scope(user_id, agent_id)
        store = self.library.store
        version = await store.feed(scope.user_id).version()
        if version is not None:
            await store.require_active(version, scope)
        return self._bind(scope)

    async def writable_memory(
        self, user_id: str | None, agent_id: str | None = None
    ) -> AsyncMemory:
        """Return the memory of a user for a request that writes."""
        self.principal.require_write()
        return await self.active_memory(user_id, agent_id)

    def _scope(self, user_id: str | None, agent_id: str | None) -> Scope:
        scope = self.principal.scope(self.principal.resolve_user(user_id))
        if agent_id is None:
            return scope
        if scope.agent_id not in (None, agent_id):
            raise invalid_field("agent_id", f"must be {scope.agent_id!r}, the agent of this key")
        return replace(scope, agent_id=agent_id)

    def _bind(self, scope: Scope) -> AsyncMemory:
        return self.service.memory.bind(
            user_id=scope.user_id,
            agent_id=scope.agent_id,
            permissions=scope.permissions,
            actor=f"key {self.principal.key_id}",
        )


async def _request_context(request: Request) -> RequestContext:
    state = request.scope["state"]
    return RequestContext(state["service"], state["principal"], state["log_fields"])


Context = Annotated[RequestContext, Depends(_request_context)]
