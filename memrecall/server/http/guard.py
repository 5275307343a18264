"""Before a request reaches the framework: who is it, and can its body be taken?

Bytes are counted as they arrive and time is counted from the first: a body too large or too slow
ends here, whatever its headers claim.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memrecall.server.auth import Doorkeeper
from memrecall.server.errors import Problem, Refused
from memrecall.server.http.wire import MEDIA_TYPE

PUBLIC = frozenset({"/healthz", "/openapi.json", "/docs"})
_ENCODED_SLASH = re.compile(rb"%2f", re.IGNORECASE)
_WRITES = re.compile(r"/v1/users/[^/]+/messages|/v1/memories")
_CLOSE = {"Connection": "close"}


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a body may cost."""

    bytes: int = 1024 * 1024
    bytes_of_writes: int = 8 * 1024 * 1024
    seconds: float = 15.0
    bytes_drained: int = 16 * 1024 * 1024  # read and dropped so that the refusal is heard
    seconds_drained: float = 2.0


class ClientGone(Exception):
    """Nobody is left to answer."""


class Guard:
    """Admits a request or refuses it; what it admits has its principal and its whole body."""

    def __init__(self, app: ASGIApp, doorkeeper: Doorkeeper, limits: BodyLimits) -> None:
        self._app = app
        self._doorkeeper = doorkeeper
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        keep_slashes(scope)
        if scope["path"] not in PUBLIC:
            principal = await self._doorkeeper.admit(headers, scope.get("client"))
            scope["state"]["principal"] = principal
        if scope["method"] in ("POST", "PATCH", "DELETE"):
            receive = await self._read(scope, headers, receive)
        await self._app(scope, receive, send)

    async def _read(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Receive:
        """The body, whole and of the right kind; afterwards only a hang-up can be received."""
        largest = self._limits.bytes
        if _WRITES.fullmatch(scope["path"]):
            largest = self._limits.bytes_of_writes
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > largest:
            if b"expect" not in headers:  # else it waits for our word before it sends
                await self._drain(receive)
            raise _too_large(largest)
        try:
            async with asyncio.timeout(self._limits.seconds):
                body, more = await self._collect(receive, largest)
        except TimeoutError:
            message = f"the body took longer than {self._limits.seconds:g} seconds"
            raise Refused(Problem("UNAVAILABLE", message, status=408, headers=_CLOSE)) from None
        if more:
            await self._drain(receive)
        if more or len(body) > largest:
            raise _too_large(largest)
        if body:
            _require_json(headers)
        return _replay(body, receive)

    async def _collect(self, receive: Receive, largest: int) -> tuple[bytes, bool]:
        """The body until it is too large, and whether more of it is coming."""
        parts: list[bytes] = []
        size, more = 0, True
        while more and size <= largest:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
        return b"".join(parts), more

    async def _drain(self, receive: Receive) -> None:
        """Let the client finish, within bounds: one that still sends does not hear the answer."""
        left = self._limits.bytes_drained
        try:
            async with asyncio.timeout(self._limits.seconds_drained):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            return


def _replay(body: bytes, receive: Receive) -> Receive:
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _require_json(headers: Mapping[bytes, bytes]) -> None:
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if kind != MEDIA_TYPE:
        message = f"the Content-Type must be {MEDIA_TYPE}"
        raise Refused(Problem("INVALID_ARGUMENT", message, status=415))
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        message = "a compressed body is not taken: send it without Content-Encoding"
        raise Refused(Problem("INVALID_ARGUMENT", message, status=415))


def _too_large(largest: int) -> Refused:
    message = f"the body is larger than {largest} bytes"
    return Refused(Problem("INVALID_ARGUMENT", message, status=413, headers=_CLOSE))


def keep_slashes(scope: Scope) -> None:
    """An encoded slash belongs to an id and must not divide the path: it travels as a NUL.

    No id contains a NUL, so nothing else can be meant by one; `PathId` turns it back.
    """
    raw: bytes = scope.get("raw_path") or b""
    if b"%00" in raw:
        raise Refused(Problem("INVALID_ARGUMENT", "the path contains a NUL character"))
    if b"%2f" in raw.lower():
        scope["path"] = unquote(_ENCODED_SLASH.sub(b"%00", raw).decode("ascii"))
