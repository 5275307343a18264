"""Server-sent events: one for each step, pings in between, one terminal event."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Response
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from memrecall.server.errors import SHUTTING_DOWN, RequestError, report_error
from memrecall.server.http.payloads import MEDIA_TYPE

Result = TypeVar("Result")

EVENT_STREAM, PLAIN_TEXT = "text/event-stream", "text/plain"
PING_SECONDS = 15.0
READ_SECONDS = 30.0  # added to the deadline for clients that read events slowly
_QUALITY = re.compile(r"[01](?:\.\d{0,3})?")
_PING = b": ping\n\n"


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


def prefers(accept: str, media_type: str) -> bool:
    """Return True if an Accept header names a media type and prefers JSON no more."""
    weights = dict(map(_parse_weight, accept.split(",")))
    weight = weights.get(media_type, 0.0)
    return weight > 0 and weight >= weights.get(MEDIA_TYPE, 0.0)


def _parse_weight(part: str) -> tuple[str, float]:
    """Return a media range and its q, which is 1 if it is missing or malformed."""
    media, *parameters = (word.strip().lower() for word in part.split(";"))
    qualities = [word[2:] for word in parameters if word.startswith("q=")]
    is_valid = bool(qualities) and _QUALITY.fullmatch(qualities[0])
    return media, float(qualities[0]) if is_valid else 1.0


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
