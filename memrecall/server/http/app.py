"""The ASGI application: routes behind authentication and the request middleware."""

import asyncio
import logging
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from memrecall import __version__
from memrecall.agent.tools.context import NO_USER, ToolContext
from memrecall.memory import AsyncMemory, Library
from memrecall.memory.retention import SweepSchedule
from memrecall.scope import Permission
from memrecall.scope import Scope as UserScope
from memrecall.server.auth import SCOPE_HEADERS, Authenticator, SignInCode
from memrecall.server.deadlines import DEADLINE_HEADER, RequestSeconds
from memrecall.server.errors import (
    LOADING,
    RETRY_AFTER,
    SHUTTING_DOWN,
    Problem,
    problem_from_http,
    problem_from_validation,
)
from memrecall.server.http import chat, graph, hooks, memories, messages, recall, spaces, users
from memrecall.server.http.context import Context, Service
from memrecall.server.http.middleware import AdmissionMiddleware, BodyLimits, RequestMiddleware
from memrecall.server.http.openapi import (
    ErrorBody,
    Health,
    ReadinessReport,
    complete_document,
    docs_page,
    route_options,
)
from memrecall.server.http.responses import MEDIA_TYPE, JsonResponse, problem_response
from memrecall.server.limits import RecallLimiter, RequestLimiter
from memrecall.server.metrics import Metrics
from memrecall.server.rpc.codec import answer, dispatcher, report_bug

log = logging.getLogger("memrecall.server")

_DESCRIPTION = """\
Search, recall and chat over the messages and memories of users. Requests carry `Authorization:
Bearer KEY`; a key gives access to the data of one or several users. Times are RFC 3339 in UTC.
`space:` and the id of a space stand for a `user_id` where the role in the space suffices; with
`X-Memrecall-Spaces: team-x,team-y`, searches, recalls and chat cover these spaces too.
Responses repeat the `X-Request-Id` of their request.
"""

# The framework's own spans and logs would name users (in paths) and quote request bodies.
_NO_TELEMETRY: Any = {"auto_configure": False, "tracing": False, "metrics": False, "logs": False}

_MCP_PATH = "/mcp"
_HEADERS = ("Authorization", "Content-Type", "X-Request-Id")
_MCP_HEADERS = ("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name")
MAX_WAITING_RECALLS = 16  # per key
RECALL_WAIT_SECONDS = 30.0
_JOB_SECONDS = 20.0
_SWEEP_FIELDS = ("users", "found", "removed", "reasons")
_DASHBOARD_ASSETS = "/_nicegui"
# The framework caches the document before it is complete, and two threads may ask for it.
_DOCUMENT_LOCK = Lock()

service_routes = APIRouter(tags=["service"])
_ROUTERS = (
    service_routes,
    *(family.router for family in (messages, memories, graph, recall, hooks, chat, users, spaces)),
    spaces.invitations,
)


class Application:
    """The service as an ASGI application."""

    def __init__(self, asgi: ASGIApp, service: Service) -> None:
        self._asgi = asgi
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        scope.setdefault("state", {})["service"] = self.service
        self.service.requests += 1
        await self._asgi(scope, receive, send)

    async def start_sweeps(self) -> None:
        """Start the periodic sweeps of the retention policy if the settings enable them."""
        schedule = SweepSchedule.of(self.service.library.settings)
        if schedule:
            await self.service.memory.schedule_sweeps(
                schedule.hours * 3600, schedule.policy, purge=schedule.purge, report=_log_sweep
            )

    async def close(self) -> None:
        """Wait for background jobs for some seconds, then cancel them."""
        await self.service.memory.close(_JOB_SECONDS)


def create_app(
    library: Library,
    *,
    allow_keyless: bool,
    model_client: Any = None,
    body_limits: BodyLimits = BodyLimits(),  # noqa: B008 -- frozen
    dashboard: bool = False,
    sign_in: SignInCode | None = None,
    private_key: str = "",
) -> Application:
    """Return the service over an opened library, which the caller closes.

    With `allow_keyless`, local callers need no key while the database has none: use it only for a
    server that listens on the loopback address. With `dashboard` the service includes a web
    dashboard, which needs a running `run_dashboard`; `sign_in` signs one browser in. With a
    `private_key`, no other key is accepted.
    """
    settings = library.settings
    metrics = Metrics(library.cache.nbytes, lambda: library.vectors.backlogs)
    limiter = RecallLimiter(
        metrics,
        max_running=settings.recalls_per_key,
        max_waiting=MAX_WAITING_RECALLS,
        wait_seconds=RECALL_WAIT_SECONDS,
    )
    memory = _create_memory(library, model_client)
    service = Service(library, metrics, limiter, memory, model_client)
    origins = settings.allowed_origins()
    request_limiter = RequestLimiter(
        metrics, key_rate=settings.key_rate, address_rate=settings.address_rate
    )
    authenticator = Authenticator(
        library.store.keys,
        request_limiter,
        allow_keyless=allow_keyless,
        origins=origins,
        read_only=settings.read_only,
        private_key=private_key,
    )
    routes = _McpSwitch(_routes(), service, origins)
    asgi: ASGIApp = AdmissionMiddleware(routes, authenticator, body_limits)
    if origins:
        asgi = CORSMiddleware(
            asgi,
            allow_origins=sorted(origins),
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=[*_HEADERS, *_MCP_HEADERS, *SCOPE_HEADERS, DEADLINE_HEADER],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    if dashboard:
        asgi = _add_dashboard(asgi, authenticator, sign_in)
    observed = RequestMiddleware(
        asgi,
        metrics,
        _find_route,
        RequestSeconds(settings.max_seconds, settings.model_timeout if model_client else 0.0),
        body_limits.seconds,
        service.draining,
        service.closing,
    )
    return Application(observed, service)


def _log_sweep(report: dict[str, Any]) -> None:
    # Numbers only: the log does not name users.
    log.info("sweep", extra={"fields": {name: report[name] for name in _SWEEP_FIELDS}})


def _create_memory(library: Library, model_client: Any) -> AsyncMemory:
    """Return an unbound memory, which requests only get bound to their user."""
    return AsyncMemory(library=library, model_client=model_client, permissions=Permission)


class _McpSwitch:
    """Sends `/mcp` to the MCP endpoint if its SDK is installed, everything else to the routes.

    The SDK takes a second to load, so it is loaded by the first request.
    """

    def __init__(self, routes: ASGIApp, service: Service, origins: frozenset[str]) -> None:
        self._routes = routes
        self._arguments = (service, origins)
        self._endpoint: ASGIApp | None = None
        self._is_installed = find_spec("mcp") is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] == _MCP_PATH and self._is_installed:
            if self._endpoint is None:
                module = await asyncio.to_thread(import_module, "memrecall.server.mcp.http")
                self._endpoint = self._endpoint or module.McpEndpoint(*self._arguments)
            await self._endpoint(scope, receive, send)
        else:
            await self._routes(scope, receive, send)


def _add_dashboard(
    api: ASGIApp, authenticator: Authenticator, sign_in: SignInCode | None
) -> ASGIApp:
    from memrecall.dashboard.application import create_dashboard, expects_page, is_dashboard_path

    dashboard = create_dashboard(authenticator, sign_in)

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        # A browser at an unknown address gets a page that says so, everyone else the API's error.
        is_missing = _find_route(path) is None and expects_page(scope)
        is_page = is_dashboard_path(path) or is_missing
        await (dashboard if is_page else api)(scope, receive, send)

    return dispatch


class _Api(FastAPI):
    """FastAPI without its outermost error handler, which `RequestMiddleware` replaces."""

    def build_middleware_stack(self) -> ASGIApp:
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware)  # noqa: S101 -- the outermost one
        return stack.app

    def openapi(self) -> dict[str, Any]:
        with _DOCUMENT_LOCK:
            if not self.openapi_schema:
                self.openapi_schema = complete_document(super().openapi(), self.description)
            return self.openapi_schema


@cache
def _routes() -> FastAPI:
    """Return the routes, which all services share: each request carries its service."""
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
            RequestValidationError: _handle_validation_error,
            HTTPException: _handle_http_exception,
        },
    )
    for router in _ROUTERS:
        app.include_router(router)
    return app


def describe_api() -> dict[str, Any]:
    """Return the OpenAPI document, and build what the framework would build at first requests."""
    return _routes().openapi()


async def _handle_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 -- as registered
    inputs = request.scope["route"].dependant
    models = [each.field_info.annotation for each in (*inputs.body_params, *inputs.query_params)]
    known = [name for each in models for name in getattr(each, "model_fields", ())]
    return problem_response(problem_from_validation(error, known))


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 -- as registered
    return problem_response(problem_from_http(error, _allowed_methods(request.scope["path"])))


def _allowed_methods(path: str) -> str:
    """Return the methods of all routes of a path; the framework knows one route only."""
    return ", ".join(
        sorted({method for route in _matching_routes(path) for method in route.methods or ()})
    )


def _find_route(path: str) -> str | None:
    """Return the route template that matches a path, whatever the method."""
    if path.startswith(_DASHBOARD_ASSETS):
        return _DASHBOARD_ASSETS
    if path == _MCP_PATH:
        return _MCP_PATH
    return next((route.path_format for route in _matching_routes(path)), None)


def _matching_routes(path: str) -> Iterator[APIRoute]:
    for router in _ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.path_regex.match(path):
                yield route


@service_routes.get(
    "/healthz",
    operation_id="read_health",
    response_model=None,
    response_class=JsonResponse,
    responses={200: {"model": Health, "description": "The service is healthy."}},
)
async def read_health() -> Response:
    """Check that the service is running, and return its version."""
    return JsonResponse({"status": "ok", "version": __version__})


@service_routes.get(
    "/readyz",
    operation_id="read_readiness",
    response_model=None,
    response_class=JsonResponse,
    responses={
        200: {"model": ReadinessReport, "description": "The service answers requests, or reads."},
        503: {"model": ErrorBody, "description": "UNAVAILABLE: `details.checks` says what fails."},
    },
)
async def read_readiness(request: Request) -> Response:
    """Check that the database, the embedder and whatever else requests need respond.

    `read-only` and its `reason` say that reads are answered and writes fail.
    """
    service: Service = request.scope["state"]["service"]
    if service.draining.is_set():
        return problem_response(SHUTTING_DOWN)
    if service.is_loading:
        return problem_response(LOADING)
    outcomes = await service.readiness.outcomes()
    checks = {name: "ok" if is_ready else "failed" for name, is_ready in outcomes.items()}
    reason = service.library.store.database.write_problem
    if not service.readiness.has_failed:
        status = {"status": "read-only", "reason": reason} if reason else {"status": "ready"}
        return JsonResponse({**status, "checks": checks})
    failed = ", ".join(name for name, is_ready in outcomes.items() if not is_ready)
    details = {"checks": checks, **({"reason": reason} if reason else {})}
    return problem_response(
        Problem("UNAVAILABLE", f"not ready: {failed}", details, headers=RETRY_AFTER)
    )


@service_routes.get("/metrics", **route_options("read_metrics", None, also=("text/plain",)))
async def read_metrics(context: Context) -> Response:
    """Return metrics for Prometheus; requires an operator key."""
    context.principal.require_operator()
    await context.service.readiness.outcomes(only_required=True)
    context.service.measure()
    return Response(context.service.metrics.render(), media_type=CONTENT_TYPE_LATEST)


@service_routes.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return JsonResponse(await asyncio.to_thread(request.app.openapi))


@service_routes.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Return the OpenAPI document as an HTML page."""
    return docs_page(await asyncio.to_thread(request.app.openapi))


@service_routes.post("/rpc", include_in_schema=False)  # OpenAPI cannot describe its messages
async def rpc(request: Request, context: Context) -> Response:
    """Answer a JSON-RPC call or a batch; 204 without a body if it has notifications only."""
    principal = context.principal
    scope = principal.bound_scope()
    tool_context = ToolContext(
        library=context.library,
        scope=scope or UserScope(NO_USER, principal.agent_id, permissions=principal.permissions),
        has_user=scope is not None,
        can_write=not principal.read_only,
    )
    reply = await answer(await request.body(), dispatcher(tool_context), report_bug)
    if reply is None:
        return Response(status_code=204)
    return Response(reply, media_type=MEDIA_TYPE)
