"""The outermost layer: every request has an id, ends in one answer, is counted and logged.

The log names the route, never the path: paths contain user ids. It tells how long a query was,
never what it said.
"""

import logging
import re
import secrets
import time
import traceback
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memrecall.errors import MemrecallError, RunError
from memrecall.server.auth import Principal
from memrecall.server.errors import Problem, Refused, internal, problem_of
from memrecall.server.http.guard import ClientGone
from memrecall.server.http.wire import problem_response
from memrecall.server.metrics import Metrics
from memrecall.telemetry import ActiveSpan, trace_request, tracing

log = logging.getLogger("memrecall.server")

MOST_REQUESTS = 1_000  # at once, in one process
UNMATCHED = "unmatched"
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)


class Exchange:
    """One request and its answer, as the log and the metrics see them."""

    def __init__(self, scope: Scope, send: Send, template: Callable[[str], str | None]) -> None:
        self._scope = scope
        self._template = template
        self._send = send
        self._begun = time.perf_counter()
        self.request_id = _request_id(scope)
        self.status = 0
        self.notes: dict[str, Any] = {}
        scope["state"].update(notes=self.notes, request_id=self.request_id)

    @property
    def route(self) -> str:
        """The template of the path, without what is in it; also of what was refused at the door."""
        route = self._scope.get("route")  # set by the framework, for what got as far
        known = getattr(route, "path_format", None)
        return known or self._template(self._scope["path"]) or UNMATCHED

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.perf_counter() - self._begun

    @property
    def key_id(self) -> str | None:
        """The id of the key it came with."""
        principal: Principal | None = self._scope["state"].get("principal")
        return principal.key_id if principal else None

    async def send(self, message: Message) -> None:
        """Send a part of the answer, its head with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            named = {name for name, _ in message["headers"]}
            headers = [item for item in _HEADERS if item[0] not in named]
            identified = (b"x-request-id", self.request_id.encode())
            message = {**message, "headers": [*message["headers"], *headers, identified]}
        await self._send(message)


class EdgeMiddleware:
    """Wraps the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        template: Callable[[str], str | None],
        tracer: Any = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._template = template
        self._tracer = tracer
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request to its end."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with tracing(self._tracer), trace_request(scope["method"], scope["headers"]) as span:
            await self._exchange(span, scope, receive, send)

    async def _exchange(self, span: ActiveSpan, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, send, self._template)
        if span.trace_id is not None:
            exchange.notes["trace_id"] = span.trace_id
        self._running += 1
        try:
            await self._serve(exchange, scope, receive)
        finally:
            self._running -= 1
            self._metrics.count_request(
                scope["method"], exchange.route, exchange.status, exchange.seconds
            )
            _log_request(exchange, scope["method"])
            route = "" if exchange.route == UNMATCHED else exchange.route
            span.answer(scope["method"], route, exchange.status)

    async def _serve(self, exchange: Exchange, scope: Scope, receive: Receive) -> None:
        try:
            if self._running > MOST_REQUESTS:
                raise Refused(_TOO_MANY)  # noqa: TRY301 -- one place sends what is refused
            await self._app(scope, receive, exchange.send)
        except ClientGone:
            exchange.notes["client_gone"] = True
            exchange.status = 0  # also where an answer had begun
        except Refused as refused:
            await _answer(exchange, scope, receive, refused.problem)
        except MemrecallError as error:
            note_error(exchange.notes, error)
            await _answer(exchange, scope, receive, problem_of(error))
        except Exception as error:  # the outer edge: nobody above could tell the client
            log_bug(error, exchange.request_id)
            exchange.notes["error"] = type(error).__name__
            await _answer(exchange, scope, receive, internal(exchange.request_id))


_TOO_MANY = Problem("UNAVAILABLE", "too many requests at once", headers={"Retry-After": "1"})


async def _answer(exchange: Exchange, scope: Scope, receive: Receive, problem: Problem) -> None:
    """Tell the problem, unless the answer has begun already and can only be cut off."""
    if not exchange.status:
        await problem_response(problem)(scope, receive, exchange.send)


def note_error(notes: dict[str, Any], error: MemrecallError) -> None:
    """Put into the log line what the caller is not told of the world's faults."""
    notes["error"] = type(error).__name__
    if isinstance(error, RunError):
        notes["cause"] = error.message


def log_bug(error: BaseException, request_id: str) -> None:
    """Log where something failed: the places alone, for messages may quote contents."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    fields = {"request_id": request_id, "error": type(error).__name__, "at": places}
    log.error("failed", extra={"fields": fields})


def _log_request(exchange: Exchange, method: str) -> None:
    fields = {
        "request_id": exchange.request_id,
        "method": method,
        "route": exchange.route,
        "status": exchange.status,
        "ms": round(exchange.seconds * 1000, 2),
        "key": exchange.key_id,
        **exchange.notes,
    }
    log.info("request", extra={"fields": fields})


def _request_id(scope: Scope) -> str:
    """The caller's own id if it is harmless, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value.decode("latin-1")):
            return str(value.decode())
    return f"r_{secrets.token_hex(8)}"
