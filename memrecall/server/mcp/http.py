"""MCP over streamable HTTP at `/mcp`, behind the keys of the service.

Every request stands alone and is admitted by its own key: there are no sessions to take over.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from memrecall.errors import InvalidArgument, NotFound, RunError
from memrecall.scope import Scope as UserScope
from memrecall.server.auth import Principal, is_allowed_origin
from memrecall.server.errors import Problem, RequestError
from memrecall.server.http.context import Service
from memrecall.server.mcp.server import Context, McpFace
from memrecall.server.mcp.tools import Guest
from memrecall.server.rpc import Code
from memrecall.server.rpc.http import bind_tools

PATH = "/mcp"
USER_HEADER = "memrecall-user"  # which of a key's users; set by trusted code, never by a model


class McpEndpoint:
    """The endpoint as an ASGI application."""

    def __init__(self, service: Service, origins: frozenset[str]) -> None:
        self._service = service
        self._origins = origins
        # Who is asking was settled before: by address, host, origin and key.
        self._manager = StreamableHTTPSessionManager(
            McpFace(self._guest_of).server(), json_response=True, stateless=True
        )
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._served = 0
        self._idle = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] != "POST":
            headers = {"Allow": "POST"}
            problem = Problem(
                "INVALID_ARGUMENT", "this endpoint takes POST", status=405, headers=headers
            )
            raise RequestError(problem)
        if not is_allowed_origin(dict(scope["headers"]), self._origins):
            raise RequestError(Problem("PERMISSION_DENIED", "this web page may not ask here"))
        await self._start()
        self._served += 1
        self._idle.clear()
        try:
            await self._manager.handle_request(scope, receive, send)
        finally:
            self._served -= 1
            if not self._served:
                self._idle.set()

    async def _start(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await self._ready.wait()

    async def _run(self) -> None:
        """Keep the SDK's machinery running until the service closes and all are answered."""
        async with self._manager.run():
            self._ready.set()
            await self._service.closing.wait()
            await self._idle.wait()

    async def _guest_of(self, context: Context) -> Guest:
        request: Any = context.request
        assert isinstance(request, Request)  # noqa: S101 -- over HTTP there always is one
        principal: Principal = request.scope["state"]["principal"]
        service = self._service
        return Guest(
            desk=bind_tools(service, principal),
            scope=_scope_of(principal, request.headers.get(USER_HEADER)),
            model_client=service.model_client,
            caches=service.caches,
            gate=lambda: _enter(service, principal.key_id),
        )


@asynccontextmanager
async def _enter(service: Service, key_id: str) -> AsyncIterator[None]:
    """One of the places that a key has for recalls."""
    try:
        async with service.limiter.slot(key_id):
            yield
    except RequestError as refused:
        raise RunError(refused.problem.message) from None


def _scope_of(principal: Principal, named: str | None) -> UserScope | None:
    """The user that a key opens, or that a header names among several; None: nobody is named."""
    if named is None and principal.users is not None and len(principal.users) == 1:
        (named,) = principal.users
    if named is None:
        return None
    try:
        return principal.scope(named)
    except (NotFound, InvalidArgument):
        raise MCPError(int(Code.PERMISSION_DENIED), "not this key's user") from None
