"""Strict JSON requests, JSON responses, and streams of server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Scope, Send

from memrecall.json_objects import parse_json
from memrecall.server.errors import (
    SHUTTING_DOWN,
    Problem,
    RequestError,
    invalid_field,
    report_error,
)
from memrecall.timing import allow_seconds
from memrecall.types import Message
from memrecall.workers import in_process, in_thread

MEDIA_TYPE = "application/json"
_NO_BODY = (b"", b"{}", b"null")  # what clients send that always send JSON
_LARGE_BODY = 200_000  # bytes, which take 2 ms to parse
_LARGEST_IN_THREAD = 1024 * 1024
LINES_TYPE = "application/x-ndjson"  # one JSON object per line
LINES_TYPES = (LINES_TYPE, "application/octet-stream")  # of bodies: generators know the latter
EVENT_STREAM = "text/event-stream"
PLAIN_TEXT = "text/plain"
PING_SECONDS = 15.0
READ_SECONDS = 30.0  # added to the deadline for clients that read events slowly
_PING = b": ping\n\n"

Result = TypeVar("Result")


class JsonResponse(JSONResponse):
    """A JSON response; times are RFC 3339 in UTC."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return to_json(content)


async def items_response(items: Iterable[bytes], **extra: Any) -> Response:
    """Return a response with `items`, which are JSON, and `extra` values.

    A page has megabytes: other requests are served between its parts.
    """
    parts: list[bytes] = []
    size = 0
    for item in items:
        parts.append(item)
        size += len(item)
        if size > _LARGE_BODY:
            await asyncio.sleep(0)
            size = 0
    end = b"," + to_json(extra)[1:] if extra else b"}"
    return Response(b'{"items":[' + b",".join(parts) + b"]" + end, media_type=MEDIA_TYPE)


async def page_response(
    messages: Iterable[Message], fields: Collection[str], **extra: Any
) -> Response:
    """Return a response with these fields of the messages as `items`, and `extra` values."""
    # Serialized straight from the models: dicts in between would take twice the time.
    include = set(fields)
    return await items_response((to_json(item, include=include) for item in messages), **extra)


def problem_response(problem: Problem) -> JsonResponse:
    """Return the response that reports a problem."""
    return JsonResponse(problem.as_dict(), problem.http_status, dict(problem.headers))


class StrictRequest(Request):
    """A request that parses JSON with `parse_json`, because Python's own parser has no bounds."""

    _json: Any  # where the framework keeps the parsed body

    async def json(self) -> Any:
        """Return the parsed body."""
        if not hasattr(self, "_json"):
            body = await self.body()
            if len(body) > _LARGEST_IN_THREAD:  # A parser holds up all threads.
                self._json = await in_process(len(body), parse_json, body)
            elif len(body) > _LARGE_BODY:
                self._json = await in_thread(parse_json, body)
            else:
                self._json = parse_json(body)
        return self._json


class JsonRoute(APIRoute):
    """A route that parses JSON strictly, and refuses parameters and a body that nobody reads."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the framework's handler behind these checks."""
        handle = super().get_route_handler()
        has_parameters = bool(self.dependant.query_params)
        reads_body = self.body_field is not None or self.dependant.request_param_name is not None

        async def respond(request: Request) -> Response:
            names = []
            if request.scope["query_string"]:
                names = [name for name, _ in request.query_params.multi_items()]
            for name in names:
                if not has_parameters:
                    reason = "is not a known parameter; this endpoint has none"
                    raise invalid_field(name[:80], reason)
                if names.count(name) > 1:
                    raise invalid_field(name[:80], "is given more than once")
            # With filters in a body that nobody reads, a DELETE would delete more than intended,
            # with `sources` a purge less.
            is_unread = request.method in ("POST", "DELETE") and not reads_body
            if is_unread and await request.body() not in _NO_BODY:
                message = "this endpoint takes no body: pass its options as query parameters"
                raise RequestError(Problem("INVALID_ARGUMENT", message))
            return await handle(StrictRequest(request.scope, request.receive))

        return respond


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body which was read already, then what comes after it."""
    messages: list[AsgiMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> AsgiMessage:
        return messages.pop() if messages else await receive()

    return replay


async def run_while_connected(
    work: Coroutine[Any, Any, Result], receive: Receive, closing: asyncio.Event
) -> Result:
    """Return the result of the work; cancel it if the client disconnects or the server closes."""
    task = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
    shutdown = asyncio.ensure_future(closing.wait())
    tasks: tuple[asyncio.Future[Any], ...] = (task, disconnect, shutdown)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect if disconnect.done() else RequestError(SHUTTING_DOWN)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """A server-sent event: its name and its data, which is JSON."""

    name: str
    data: bytes
    is_last: bool = False

    def encode(self) -> bytes:
        """Return the event as it is sent; JSON has no raw line breaks, so data is one line."""
        return b"event: " + self.name.encode() + b"\ndata: " + self.data + b"\n\n"


_Events = AsyncGenerator[ServerEvent, None]


def accepts(accept: str, media_type: str) -> bool:
    """Return True if an Accept header names a media type."""
    return media_type in (part.partition(";")[0].strip().lower() for part in accept.split(","))


class EventStream(Response):
    """A response that sends events as they come.

    An error before the first event is an ordinary error response, a later one an `error` event. A
    client that still reads `READ_SECONDS` after the deadline of the work is cut off.
    """

    media_type = EVENT_STREAM

    def __init__(
        self,
        events: Callable[[], _Events],
        closing: asyncio.Event,
        deadline: float,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._events = events
        self._closing = closing
        self._deadline = deadline + READ_SECONDS
        allow_seconds(self._deadline)
        self._has_started = False
        self._has_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream to one client."""
        state = scope["state"]
        try:
            await self._serve(receive, send)
        except ClientDisconnect:
            if not self._has_ended:  # else the client left because it had received everything
                raise
        except Exception as error:  # RequestMiddleware can respond only before the start
            if not self._has_started:
                raise
            log_fields = state["log_fields"]
            problem = report_error(error, log_fields, state["request_id"])
            log_fields.setdefault("error", problem.code)  # the status 200 was sent long ago
            await self._end(send, ServerEvent("error", to_json(problem.as_dict())))

    async def _serve(self, receive: Receive, send: Send) -> None:
        deadline = asyncio.timeout(self._deadline)
        try:
            async with deadline:
                await run_while_connected(self._stream(send), receive, self._closing)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise ClientDisconnect from None  # it no longer reads what is sent

    async def _stream(self, send: Send) -> None:
        async with aclosing(self._events()) as events:
            pending = asyncio.ensure_future(anext(events))
            try:
                while True:
                    await asyncio.wait({pending}, timeout=PING_SECONDS)
                    if not pending.done():
                        await self._send(send, _PING)
                        continue
                    event = pending.result()
                    if event.is_last:
                        await self._end(send, event)
                        break
                    await self._send(send, event.encode())
                    pending = asyncio.ensure_future(anext(events))
            finally:
                pending.cancel()
                await asyncio.gather(pending, return_exceptions=True)

    async def _send(self, send: Send, body: bytes, *, has_more: bool = True) -> None:
        if not self._has_started:
            self._has_started = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": body, "more_body": has_more})

    async def _end(self, send: Send, event: ServerEvent) -> None:
        """Send the terminal event, of which there is exactly one."""
        if not self._has_ended:
            self._has_ended = True
            await self._send(send, event.encode(), has_more=False)
