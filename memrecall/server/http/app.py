"""The application: routes behind a guard behind an edge."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from memrecall import __version__
from memrecall.memory import AsyncMemory, Library, Policy
from memrecall.memory.base import make_extractor
from memrecall.scope import Permission
from memrecall.server.auth import Doorkeeper
from memrecall.server.counters import Tally
from memrecall.server.errors import problem_of_http, problem_of_validation
from memrecall.server.http import chat, memories, messages, recall
from memrecall.server.http.docs import docs_page
from memrecall.server.http.edge import EdgeMiddleware
from memrecall.server.http.guard import BodyLimits, Guard
from memrecall.server.http.message_models import Health
from memrecall.server.http.openapi import describe, documented
from memrecall.server.http.service import Asked, Service
from memrecall.server.http.wire import Json, problem_response
from memrecall.server.limits import RecallGate
from memrecall.server.metrics import MEDIA_TYPE as METRICS_TYPE
from memrecall.server.metrics import Metrics
from memrecall.server.rpc import http as rpc

log = logging.getLogger("memrecall.server")

_DESCRIPTION = """\
Messages and memories of users, searched, recalled and answered. Requests carry `Authorization:
Bearer KEY`; a key opens one user's data, or several users'. Times are RFC 3339 in UTC.
`X-Request-Id` is echoed.
"""

# The framework's own spans and logs would name users (in paths) and quote what they sent.
_NO_TELEMETRY: Any = {"auto_configure": False, "tracing": False, "metrics": False, "logs": False}

_MCP = "/mcp"
_MCP_HEADERS = ("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Memrecall-User")
_JOBS_SECONDS = 20.0
_SWEPT = ("users", "found", "removed", "reasons")
_ASSETS = "/_nicegui"  # files of the dashboard's library

about = APIRouter(tags=["service"])
_ROUTERS = (
    about,
    messages.router,
    memories.router,
    recall.router,
    chat.router,
    rpc.router,
)


class Application:
    """The service as an ASGI application."""

    def __init__(self, asgi: ASGIApp, service: Service) -> None:
        self._asgi = asgi
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        scope.setdefault("state", {})["service"] = self.service
        await self._asgi(scope, receive, send)

    def begin_closing(self) -> None:
        """End what would take long; what is being written is finished."""
        self.service.closing.set()

    async def begin_sweeping(self) -> None:
        """Forget by the policy of the settings, now and then, if they say so."""
        settings = self.service.library.settings
        if settings.sweep_hours:
            await self.service.remembering.schedule_sweeps(
                settings.sweep_hours * 3600,
                Policy.of(settings),
                purge=settings.sweep_purge,
                report=_log_sweep,
            )

    async def close(self) -> None:
        """Give background work some time to end, then end it. What was stored is stored."""
        await self.service.remembering.close(_JOBS_SECONDS)


def create_app(
    library: Library,
    *,
    may_be_open: bool,
    model_client: Any = None,
    body_limits: BodyLimits = BodyLimits(),  # noqa: B008 -- frozen
    tracer: Any = None,
    dashboard: bool = False,
) -> Application:
    """The service over an opened library, which stays the caller's to close.

    With `may_be_open`, local callers need no key as long as the database has none: only for a
    server that listens on the loopback address. A `tracer` of OpenTelemetry is told of requests.
    With `dashboard` there are pages for people, which must be kept `running` beside the service.
    """
    settings = library.settings
    days = settings.counter_days
    tally = Tally(library.store.counters, days) if dashboard and days else None
    metrics = Metrics(library.cache.nbytes, tally)
    gate = RecallGate(
        metrics,
        running=settings.recalls_per_key,
        waiting=settings.recall_queue,
        patience=settings.recall_patience,
    )
    service = Service(
        library, metrics, gate, _remembering(library, model_client), model_client, tally
    )
    origins = settings.allowed_origins()
    doorkeeper = Doorkeeper(library.store.keys, may_be_open=may_be_open, origins=origins)
    inner: ASGIApp = Guard(_WithMcp(_routes(), service, origins), doorkeeper, body_limits)
    if origins:
        inner = CORSMiddleware(
            inner,
            allow_origins=sorted(origins),
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id", *_MCP_HEADERS],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    if dashboard:
        inner = _with_dashboard(inner, doorkeeper)
    return Application(EdgeMiddleware(inner, metrics, _template, tracer), service)


def _log_sweep(told: dict[str, Any]) -> None:
    """Numbers alone: whose memories they were is nobody's business here."""
    log.info("sweep", extra={"fields": {name: told[name] for name in _SWEPT}})


def _remembering(library: Library, model_client: Any) -> AsyncMemory:
    """A memory for all users, which no request gets to see without being bound."""
    extractor = make_extractor(replace(library.settings, model=""), model_client)
    return AsyncMemory(library=library, extractor=extractor, permissions=Permission)


class _WithMcp:
    """The routes, and beside them the endpoint of MCP where its SDK is installed.

    The SDK takes a second to load, so that waits for the first who asks.
    """

    def __init__(self, routes: ASGIApp, service: Service, origins: frozenset[str]) -> None:
        self._routes = routes
        self._made_for = (service, origins)
        self._endpoint: ASGIApp | None = None
        self._is_installed = find_spec("mcp") is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        here = scope["type"] == "http" and scope["path"] == _MCP and self._is_installed
        if here and self._endpoint is None:
            module = await asyncio.to_thread(import_module, "memrecall.server.mcp.http")
            self._endpoint = self._endpoint or module.McpEndpoint(*self._made_for)
        served = self._endpoint if here and self._endpoint is not None else self._routes
        await served(scope, receive, send)


def _with_dashboard(api: ASGIApp, doorkeeper: Doorkeeper) -> ASGIApp:
    """The API, and the pages for people at the paths that are theirs."""
    from memrecall.dashboard.mounting import is_ours, make_door

    door = make_door(doorkeeper)

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        await (door if is_ours(scope["path"]) else api)(scope, receive, send)

    return choose


class _Api(FastAPI):
    """FastAPI without its own last resort: the edge is ours."""

    def build_middleware_stack(self) -> ASGIApp:
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware)  # noqa: S101 -- the outermost one
        return stack.app

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            self.openapi_schema = describe(self, super().openapi())
        return self.openapi_schema


@cache
def _routes() -> FastAPI:
    """The routes, which are the same for every service: whose they are, a request says."""
    app = _Api(
        title="memrecall",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        exception_handlers={
            RequestValidationError: _tell_validation,
            HTTPException: _tell_http,
        },
    )
    for router in _ROUTERS:
        app.include_router(router)
    return app


async def _tell_validation(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 -- as registered
    return problem_response(problem_of_validation(error))


async def _tell_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 -- as registered
    return problem_response(problem_of_http(error, _methods(request.scope["path"])))


def _methods(path: str) -> str:
    """What a path can be asked by: several routes may share it, and each knows its own alone."""
    return ", ".join(
        sorted({method for route in _matching(path) for method in route.methods or ()})
    )


def _template(path: str) -> str | None:
    """The template that a path fits, whatever the method."""
    if path.startswith(_ASSETS):
        return _ASSETS
    return _MCP if path == _MCP else next((route.path_format for route in _matching(path)), None)


def _matching(path: str) -> Iterator[APIRoute]:
    for router in _ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.path_regex.match(path):
                yield route


@about.get(
    "/healthz",
    operation_id="health",
    response_model=None,
    response_class=Json,
    responses={200: {"model": Health, "description": "The service answers."}},
)
async def health() -> Response:
    """Whether the service answers, and its version."""
    return Json({"status": "ok", "version": __version__})


@about.get("/metrics", **documented("metrics", None, also="text/plain"))
async def metrics(asked: Asked) -> Response:
    """Counters for Prometheus; for operators."""
    asked.principal.require_operator()
    return Response(asked.service.metrics.render(), media_type=METRICS_TYPE)


@about.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """This API, described."""
    return Json(request.app.openapi())


@about.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """This API, described for people."""
    return docs_page(request.app.openapi())
