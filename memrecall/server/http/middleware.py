"""ASGI middleware: request ids, errors, metrics and logs; authentication and request bodies.

The log names the route, never the path, because paths contain user ids. It has the length of a
query, never its text.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memrecall.errors import DeadlineExceeded
from memrecall.server.auth import SCOPE_HEADERS, Authenticator, Principal
from memrecall.server.deadlines import DEADLINE_HEADER, RequestSeconds
from memrecall.server.errors import (
    LOADING,
    SHUTTING_DOWN,
    Problem,
    RequestError,
    new_request_id,
    report_error,
)
from memrecall.server.http.responses import LINES_TYPES, MEDIA_TYPE, problem_response
from memrecall.server.metrics import Metrics
from memrecall.timing.deadlines import RequestDeadline, bounded_by, run_within

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
    *("Authorization", "Content-Type", "Content-Encoding", "Origin"),
    *(*SCOPE_HEADERS, DEADLINE_HEADER),
)
_DEADLINE_HEADER = DEADLINE_HEADER.lower().encode()


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
        self._scope = scope
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

    @property
    def key_id(self) -> str | None:
        """The id of the key that authenticated the request."""
        principal: Principal | None = self._scope["state"].get("principal")
        return principal.key_id if principal else None

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

    def write_log(self, route: str) -> None:
        """Log the request."""
        fields = {
            "request_id": self.request_id,
            "method": self._scope["method"],
            "route": route,
            "status": self.status,
            "ms": round(self.seconds * 1000, 2),
            "key": self.key_id,
            **self.log_fields,
        }
        log.info("request", extra={"fields": fields})


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
        observed.write_log(route)

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
        if len(set(names)) < len(names):
            _require_single(names)


def _require_single(names: Sequence[bytes]) -> None:
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


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body which was read already, then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


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
