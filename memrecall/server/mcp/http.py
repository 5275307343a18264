"""MCP over streamable HTTP at `/mcp`, behind the keys of the service.

Every request is authenticated by its own key: there are no sessions that could be hijacked.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import product
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from memrecall.agent.tools.context import NO_USER, ToolContext
from memrecall.errors import Forbidden, InvalidArgument, RunError
from memrecall.json_objects import has_repeated_keys
from memrecall.scope import Scope as UserScope
from memrecall.scope import parse_spaces
from memrecall.server.auth import Principal, is_allowed_origin
from memrecall.server.errors import Problem, RequestError, wrong_method
from memrecall.server.http.context import Service
from memrecall.server.http.responses import replay_body
from memrecall.server.mcp.server import (
    JSON_TYPE,
    McpHandlers,
    McpRequest,
    make_context,
    make_ingestor,
    refuse_call,
)
from memrecall.server.rpc import Code, answer, report_bug

_PROGRESS = b'"progressToken"'


class McpEndpoint:
    """The endpoint as an ASGI application."""

    def __init__(self, service: Service, origins: frozenset[str]) -> None:
        self._service = service
        self._origins = origins
        # The application has checked address, host, origin and key before.
        handlers = McpHandlers(self._context_of)
        self._managers = {
            (can_write, is_plain): StreamableHTTPSessionManager(
                handlers.make_server(can_write=can_write), json_response=is_plain, stateless=True
            )
            for can_write, is_plain in product((True, False), repeat=2)
        }
        self._ingestor = make_ingestor(service.library, service.model_client)
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._active_requests = 0
        self._idle = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] != "POST":
            raise RequestError(wrong_method("POST"))
        if not is_allowed_origin(dict(scope["headers"]), self._origins):
            raise RequestError(
                Problem("PERMISSION_DENIED", "requests from this web page are not allowed")
            )
        await self._start()
        self._active_requests += 1
        self._idle.clear()
        try:
            body = await Request(scope, receive).body()
            if (reply := await _check_json(body)) is not None:
                await Response(reply, 400, media_type=JSON_TYPE)(scope, receive, send)
                return
            can_write = not scope["state"]["principal"].read_only
            # Progress needs a stream of events; everything else is answered with plain JSON.
            manager = self._managers[can_write, _PROGRESS not in body]
            await manager.handle_request(scope, replay_body(body, receive), send)
        finally:
            self._active_requests -= 1
            if not self._active_requests:
                self._idle.set()

    async def _start(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await self._ready.wait()

    async def _run(self) -> None:
        """Keep the SDK's session managers running until the service closes and is idle."""
        async with AsyncExitStack() as stack:
            for manager in self._managers.values():
                await stack.enter_async_context(manager.run())
            self._ready.set()
            await self._service.closing.wait()
            await self._idle.wait()

    async def _context_of(self, context: McpRequest) -> ToolContext:
        request: Any = context.request
        assert isinstance(request, Request)  # noqa: S101 -- HTTP always has one
        principal, scope = _bind(request)
        spaces, writable = parse_spaces(scope.spaces if scope else ())
        scope = scope and replace(scope, spaces=spaces)
        service = self._service
        return make_context(
            service.library,
            scope or UserScope(NO_USER, principal.agent_id, permissions=principal.permissions),
            service.model_client,
            request=context,
            ingestor=self._ingestor,
            has_user=scope is not None,
            can_write=not principal.read_only,
            write_spaces=writable,
            limiter=lambda: _limit(service, principal),
            check=lambda: _require_valid(service, principal),
        )


async def _check_json(body: bytes) -> bytes | None:
    """Return the reply to a body that is not JSON, which the SDK would not explain, else None.

    Repeated keys, of which the SDK would take the last, are refused.
    """
    try:
        value = from_json(body)
    except ValueError:
        return await answer(body, refuse_call, report_bug)
    if has_repeated_keys(body, value):
        message = "not JSON: an object has the same key twice"
        raise RequestError(Problem("INVALID_ARGUMENT", message))
    return None


@asynccontextmanager
async def _limit(service: Service, principal: Principal) -> AsyncIterator[None]:
    """Hold one of the recalls that a key may run at once."""
    try:
        async with service.recall_slot(principal):
            yield
    except RequestError as error:
        raise RunError(error.problem.message) from None


async def _require_valid(service: Service, principal: Principal) -> None:
    """Raise Forbidden if the key has been revoked, or has expired, during a recall."""
    try:
        await principal.require_valid(service.library.store.keys)
    except RequestError as error:
        raise Forbidden(error.problem.message) from None


def _bind(request: Request) -> tuple[Principal, UserScope | None]:
    """Return whose request it is; its client shows messages of MCP only, not of HTTP."""
    principal: Principal = request.scope["state"]["principal"]
    try:
        principal = principal.bind(dict(request.scope["headers"]))
        return principal, principal.bound_scope()
    except (RequestError, InvalidArgument) as error:
        raise MCPError(int(Code.PERMISSION_DENIED), str(error)) from None
