"""Server-sent events: one for each step, pings between, one terminal event."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Response
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from memrecall.errors import MemrecallError
from memrecall.server.errors import SHUTTING_DOWN, Problem, Refused, internal, problem_of
from memrecall.server.http.edge import log_bug, note_error
from memrecall.server.http.guard import ClientGone
from memrecall.server.http.wire import MEDIA_TYPE

Result = TypeVar("Result")


async def while_listened(
    work: Coroutine[Any, Any, Result], receive: Receive, closing: asyncio.Event
) -> Result:
    """The result of the work, which ends before this does in any case."""
    doing = asyncio.ensure_future(work)
    hang_up = asyncio.ensure_future(_hang_up(receive))
    shutdown = asyncio.ensure_future(closing.wait())
    tasks: tuple[asyncio.Future[Any], ...] = (doing, hang_up, shutdown)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise ClientGone if hang_up.done() else Refused(SHUTTING_DOWN)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


EVENT_STREAM = "text/event-stream"
PING_SECONDS = 15.0
_WEIGHT = re.compile(r"[01](?:\.\d{0,3})?")
_PING = b": ping\n\n"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event as it is sent: its name and its data, which is JSON."""

    name: str
    data: bytes
    is_last: bool = False


Events = AsyncGenerator[ServerEvent, None]


def wants_events(accept: str) -> bool:
    """Whether an Accept header asks for events: by name, and no less than for JSON."""
    weights = dict(map(_weight, accept.split(",")))
    events = weights.get(EVENT_STREAM, 0.0)
    return events > 0 and events >= weights.get(MEDIA_TYPE, 0.0)


def _weight(part: str) -> tuple[str, float]:
    """A media range and its q, which is 1 where it is not told or cannot be read."""
    media, *parameters = (word.strip().lower() for word in part.split(";"))
    told = [word[2:] for word in parameters if word.startswith("q=")]
    weight = float(told[0]) if told and _WEIGHT.fullmatch(told[0]) else 1.0
    return media, weight


class EventStream(Response):
    """Sends events as they come. What fails before the first is an ordinary error."""

    media_type = EVENT_STREAM

    def __init__(
        self,
        events: Callable[[], Events],
        closing: asyncio.Event,
        deadline: float,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._events = events
        self._closing = closing
        self._deadline = deadline
        self._begun = False
        self._ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream to one client."""
        try:
            await self._serve(receive, send)
        except (Refused, MemrecallError) as error:
            if not self._begun:
                raise
            await self._fail(send, _problem(error, scope["state"]), scope["state"]["notes"])
        except ClientGone:
            if not self._ended:  # else it hung up because all was said
                raise
        except Exception as error:  # as at the edge: the stream has begun, only it can tell
            if not self._begun:
                raise
            log_bug(error, scope["state"]["request_id"])
            problem = internal(scope["state"]["request_id"])
            await self._fail(send, problem, scope["state"]["notes"])

    async def _serve(self, receive: Receive, send: Send) -> None:
        deadline = asyncio.timeout(self._deadline)
        try:
            async with deadline:
                await while_listened(self._stream(send), receive, self._closing)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise ClientGone from None  # it no longer reads: nothing can be said

    async def _stream(self, send: Send) -> None:
        async with aclosing(self._events()) as events:
            coming = asyncio.ensure_future(anext(events))
            try:
                while True:
                    await asyncio.wait({coming}, timeout=PING_SECONDS)
                    if not coming.done():
                        await self._send(send, _PING)
                        continue
                    event = coming.result()
                    if event.is_last:
                        await self._end(send, _event(event.name, event.data))
                        break
                    await self._send(send, _event(event.name, event.data))
                    coming = asyncio.ensure_future(anext(events))
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        if not self._begun:
            self._begun = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _end(self, send: Send, body: bytes) -> None:
        """Send the terminal event: there is one, whatever happens."""
        if not self._ended:
            self._ended = True
            await self._send(send, body, more=False)

    async def _fail(self, send: Send, problem: Problem, notes: dict[str, Any]) -> None:
        notes.setdefault("error", problem.code)  # the status told 200 long ago
        await self._end(send, _event("error", to_json(problem.as_dict())))


def _event(name: str, data: bytes) -> bytes:
    """One event; JSON has no raw line breaks, so that its data is one line."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _problem(error: Refused | MemrecallError, state: Mapping[str, Any]) -> Problem:
    if isinstance(error, Refused):
        return error.problem
    note_error(state["notes"], error)
    return problem_of(error)
