"""The ASGI application: routes behind middleware for ids, errors, logs, keys and request bodies.

The log names the route, never the path, because paths contain user ids. It has the length of a
query, never its text.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any
from urllib.parse import unquote

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memrecall import __version__
from memrecall.agent.tools.context import NO_USER, ToolContext
from memrecall.errors import DeadlineExceeded
from memrecall.memory import AsyncMemory, Library
from memrecall.memory.retention import SweepSchedule
from memrecall.scope import Permission
from memrecall.scope import Scope as UserScope
from memrecall.server.auth import SCOPE_HEADERS, Authenticator, Principal, SignInCode
from memrecall.server.errors import (
    LOADING,
    RETRY_AFTER,
    SHUTTING_DOWN,
    Problem,
    RequestError,
    new_request_id,
    problem_from_http,
    problem_from_validation,
    report_error,
)
from memrecall.server.http import chat, graph, hooks, memories, messages, recall, spaces, users
from memrecall.server.http.context import Context, Service
from memrecall.server.http.openapi import (
    ErrorBody,
    Health,
    ReadinessReport,
    complete_document,
    docs_page,
    route_options,
)
from memrecall.server.http.responses import (
    LINES_TYPES,
    MEDIA_TYPE,
    JsonResponse,
    problem_response,
    replay_body,
)
from memrecall.server.limits import DEADLINE_HEADER, RecallLimiter, RequestLimiter, RequestSeconds
from memrecall.server.metrics import Metrics
from memrecall.server.rpc import answer, dispatcher, report_bug
from memrecall.timing import RequestDeadline, bounded_by, run_within

log = logging.getLogger("memrecall.server")

PROBE_PATHS = frozenset({"/healthz", "/readyz"})
_PATHS_WHILE_LOADING = PROBE_PATHS | {"/metrics"}
PUBLIC_PATHS = frozenset({"/openapi.json", "/docs"})
UNMATCHED = "unmatched"
_SAFE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_ENCODED_SLASH = re.compile(rb"%2f", re.IGNORECASE)
_BULK_PATHS = re.compile(r"/v1/users/[^/]+/(?:messages|import)|/v1/memories")
_LINES_PATHS = re.compile(r"/v1/users/[^/]+/import")
_CLOSE = {"Connection": "close"}
_CLOSE_HEADER = (b"connection", b"close")
# A proxy may pick a different duplicate than we do.
_SINGLE_HEADERS = (
    "Authorization",
    "Content-Type",
    "Content-Encoding",
    "Origin",
    *SCOPE_HEADERS,
    DEADLINE_HEADER,
)
_DEADLINE_HEADER = DEADLINE_HEADER.lower().encode()

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
_ALLOWED_HEADERS = ("Authorization", "Content-Type", "X-Request-Id")
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


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of the size and duration of request bodies."""

    bytes: int = 1024 * 1024
    bulk_bytes: int = 8 * 1024 * 1024
    seconds: float = 15.0
    drain_bytes: int = 16 * 1024 * 1024  # read and dropped so that the client sees the refusal
    drain_seconds: float = 2.0


class ObservedRequest:
    """One request and its response, as the log and the metrics see them."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        body_seconds: float,
        is_ending: Callable[[], bool],
    ) -> None:
        self._receive = receive
        self._send = send
        self._is_ending = is_ending
        self._body_seconds = body_seconds
        self._body_deadline: float | None = None
        self._has_body = False
        self.limit: RequestDeadline | None = None
        self.is_late = False
        self._start = time.perf_counter()
        self.request_id = _request_id(scope)
        self.status = 0
        self.log_fields: dict[str, Any] = {}
        scope["state"].update(log_fields=self.log_fields, request_id=self.request_id)

    @property
    def seconds(self) -> float:
        """The time since the start of the request."""
        return time.perf_counter() - self._start

    async def receive(self) -> Message:
        """Receive a part of the body; raise RequestError if the whole body takes too long.

        After the body, wait for the client to disconnect.
        """
        if self._has_body:
            return await self._receive()
        if self._body_deadline is None:
            self._body_deadline = asyncio.get_running_loop().time() + self._body_seconds
        try:
            async with asyncio.timeout_at(self._body_deadline):
                message = await self._receive()
        except TimeoutError:
            reason = f"the body took longer than {self._body_seconds:g} seconds"
            problem = Problem("UNAVAILABLE", reason, status=408, headers=_CLOSE)
            raise RequestError(problem) from None
        self._has_body = not message.get("more_body", False)
        if self._has_body and self.limit is not None:
            self.limit.restart()  # The time that a body takes has a limit of its own.
        return message

    async def send_in_time(self, message: Message) -> None:
        """Send a part of the response, unless the deadline was reported instead."""
        if not self.is_late:
            await self.send(message)

    async def send(self, message: Message) -> None:
        """Send a part of the response, adding the common headers to its head."""
        if message["type"] == "http.response.start":
            if self.limit is not None:
                self.limit.is_answered = not self.is_late  # else nothing may be committed
            self.status = message["status"]
            names = {name for name, _ in message["headers"]}
            common = (*_HEADERS, _CLOSE_HEADER) if self._is_ending() else _HEADERS
            headers = [item for item in common if item[0] not in names]
            request_id = (b"x-request-id", self.request_id.encode())
            message = {**message, "headers": [*message["headers"], *headers, request_id]}
        await self._send(message)


@dataclass(slots=True)
class RequestMiddleware:
    """The outermost middleware: ids, error responses, metrics and logs."""

    app: ASGIApp
    metrics: Metrics
    find_route: Callable[[str], str | None]
    seconds: RequestSeconds
    body_seconds: float
    draining: asyncio.Event  # set when the server is going to shut down
    closing: asyncio.Event  # set when it shuts down

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        observed = ObservedRequest(
            scope, receive, send, body_seconds=self.body_seconds, is_ending=self._is_ending
        )
        try:
            with bounded_by(RequestDeadline(math.inf)):  # It counts changes.
                await self._serve(observed, scope)
        finally:
            self._report(observed, scope)

    def _is_ending(self) -> bool:
        """Return True if connections must close after their responses."""
        return self.draining.is_set() or self.closing.is_set()

    def _report(self, observed: ObservedRequest, scope: Scope) -> None:
        # The framework sets the route when it has matched the request; others were refused before.
        template = getattr(scope.get("route"), "path_format", None)
        route = template or self.find_route(scope["path"]) or UNMATCHED
        self.metrics.count_request(scope["method"], route, observed.status, observed.seconds)
        principal: Principal | None = scope["state"].get("principal")
        fields = {
            "request_id": observed.request_id,
            "method": scope["method"],
            "route": route,
            "status": observed.status,
            "ms": round(observed.seconds * 1000, 2),
            "key": principal.key_id if principal else None,
            **observed.log_fields,
        }
        log.info("request", extra={"fields": fields})

    async def _serve(self, observed: ObservedRequest, scope: Scope) -> None:
        problem = None
        try:
            self._admit(scope)
            header = dict(scope["headers"]).get(_DEADLINE_HEADER)
            limit = self.seconds.deadline_of(scope["method"], scope["path"], header)
            observed.limit = limit
            work = self.app(scope, observed.receive, observed.send_in_time)
            await (work if limit is None else run_within(limit, work))
        except ClientDisconnect:
            observed.log_fields["client_gone"] = True
            observed.status = 0  # even if a response had started
            return
        except asyncio.CancelledError:
            if not self.closing.is_set():
                raise
            problem = SHUTTING_DOWN  # the grace period is over
        except Exception as error:  # the outermost layer: nothing above could answer the client
            observed.is_late = isinstance(error, DeadlineExceeded)
            problem = report_error(error, observed.log_fields, observed.request_id)
        if problem is not None and not observed.status:  # else the response can only be cut off
            await problem_response(problem)(scope, observed.receive, observed.send)

    def _admit(self, scope: Scope) -> None:
        """Refuse a request while the server stops, or with ambiguous headers."""
        if self.closing.is_set():
            raise RequestError(SHUTTING_DOWN)
        names = [name for name, _ in scope["headers"]]
        if len(set(names)) == len(names):
            return
        for name in _SINGLE_HEADERS:
            if names.count(name.lower().encode()) > 1:
                message = f"the header {name} is given more than once"
                raise RequestError(Problem("INVALID_ARGUMENT", message))


def _request_id(scope: Scope) -> str:
    """Return the caller's own request id if it is safe to log, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SAFE_REQUEST_ID.fullmatch(value.decode("latin-1")):
            return str(value.decode())
    return new_request_id()


class AdmissionMiddleware:
    """Authenticates a request and reads its whole body before the framework sees it.

    While the service loads, it refuses requests at once: they would wait for longer than their
    callers do, and slow the loading down.
    Bytes are counted as the body arrives, whatever its headers claim.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator, limits: BodyLimits) -> None:
        self._app = app
        self._authenticator = authenticator
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["state"]["service"].is_loading and scope["path"] not in _PATHS_WHILE_LOADING:
            raise RequestError(LOADING)
        headers = dict(scope["headers"])
        preserve_encoded_slashes(scope)
        if scope["path"] in PUBLIC_PATHS:
            self._authenticator.admit_stranger(scope.get("client"))
        elif scope["path"] not in PROBE_PATHS:
            client = scope.get("client")
            scope["state"]["principal"] = await self._authenticator.authenticate(headers, client)
        if scope["method"] in ("POST", "PUT", "PATCH", "DELETE"):
            receive = await self._read_body(scope, headers, receive)
        await self._app(scope, receive, _log_reads(scope, send))

    async def _read_body(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Receive:
        """Read and check the body; return a `receive` that replays it."""
        is_bulk = _BULK_PATHS.fullmatch(scope["path"])
        is_lines = _LINES_PATHS.fullmatch(scope["path"])
        max_bytes = self._limits.bulk_bytes if is_bulk else self._limits.bytes
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > max_bytes:
            if b"expect" not in headers:  # else the client waits for us before it sends
                await self._drain(receive)
            raise _too_large(max_bytes)
        body, has_more = await _collect(receive, max_bytes)
        if has_more:
            await self._drain(receive)
        if has_more or len(body) > max_bytes:
            raise _too_large(max_bytes)
        if body:
            _require_type(headers, LINES_TYPES if is_lines else (MEDIA_TYPE,))
        return replay_body(body, receive)

    async def _drain(self, receive: Receive) -> None:
        """Read on within bounds: a client that is still sending does not read the response."""
        remaining = self._limits.drain_bytes
        try:
            async with asyncio.timeout(self._limits.drain_seconds):
                while remaining > 0:
                    message = await receive()
                    remaining -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            return


def _log_reads(scope: Scope, send: Send) -> Send:
    """Return a function that answers an admin after the reads are in the audit log."""
    state = scope["state"]
    principal: Principal | None = state.get("principal")
    reads = principal.reads if principal is not None else None
    if principal is None or reads is None:
        return send

    async def send_logged(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400:
            # The resource of the route, such as messages, without the ids that follow it.
            template = getattr(scope.get("route"), "path_format", None) or scope["path"]
            names = [name for name in template.split("/") if name and "{" not in name]
            await reads.log(state["service"].library.store, principal.actor, "".join(names[-1:]))
        await send(message)

    return send_logged


async def _collect(receive: Receive, max_bytes: int) -> tuple[bytes, bool]:
    """Return the body up to the limit, and whether there is more of it."""
    parts: list[bytes] = []
    size, has_more = 0, True
    while has_more and size <= max_bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        has_more = message.get("more_body", False)
    return b"".join(parts), has_more


def _require_type(headers: Mapping[bytes, bytes], media_types: Sequence[str]) -> None:
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if kind not in media_types:
        message = f"the Content-Type must be {' or '.join(media_types)}"
        raise RequestError(Problem("INVALID_ARGUMENT", message, status=415))
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        message = "compressed bodies are not supported: send it without Content-Encoding"
        raise RequestError(Problem("INVALID_ARGUMENT", message, status=415))


def _too_large(max_bytes: int) -> RequestError:
    message = f"the body is larger than {max_bytes} bytes"
    return RequestError(Problem("INVALID_ARGUMENT", message, status=413, headers=_CLOSE))


def preserve_encoded_slashes(scope: Scope) -> None:
    """Replace each encoded slash of the path by a NUL, because it is part of an id.

    No id contains a NUL, so the replacement is unambiguous; `PathId` reverts it.
    """
    raw: bytes = scope.get("raw_path") or b""
    if b"%00" in raw:
        raise RequestError(Problem("INVALID_ARGUMENT", "the path contains a NUL character"))
    if b"%2f" in raw.lower():
        scope["path"] = unquote(_ENCODED_SLASH.sub(b"%00", raw).decode("ascii"))


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
    # It is bound to no user: requests bind it to theirs.
    memory = AsyncMemory(library=library, model_client=model_client, permissions=Permission)
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
            allow_headers=[*_ALLOWED_HEADERS, *_MCP_HEADERS, *SCOPE_HEADERS, DEADLINE_HEADER],
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
    # Of all routes of the path: the framework knows one only.
    routes = _matching_routes(request.scope["path"])
    methods = sorted({method for route in routes for method in route.methods or ()})
    return problem_response(problem_from_http(error, ", ".join(methods)))


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
