"""A service to talk to, in the test's own event loop: in process, or on a real server on loopback.

What the network has no part in is asked `in_process`; hanging up, slow bodies and streams that are
read while they are written need `serving`.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from memrecall.memory import Library
from memrecall.scope import Permission
from memrecall.server import create_app
from memrecall.server.http.app import Application
from memrecall.server.runner import server_config
from memrecall.settings import Settings
from memrecall.store import Grant

NOON = datetime(2026, 1, 26, 12, 0, tzinfo=UTC)
# Nothing here is encrypted, and reading the certificates costs more than a request.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_PATIENCE = 60.0


class TestServer(uvicorn.Server):
    """A server that leaves the signals to pytest, and starts and stops without waiting."""

    __test__ = False

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready, self.stopping = asyncio.Event(), asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopping.wait()

    def is_idle(self) -> bool:
        """Whether nobody is connected and nothing is under way."""
        return not self.server_state.connections and not self.server_state.tasks


class Site:
    """A service under test."""

    def __init__(
        self,
        url: str,
        app: Application,
        library: Library,
        transport: httpx.AsyncBaseTransport | None = None,
        server: TestServer | None = None,
    ) -> None:
        self.url = url
        self.app = app
        self.library = library
        self.clients: list[httpx.AsyncClient] = []
        self.server = server
        self._transport = transport

    def client(self, key: str | None = None, **headers: str) -> httpx.AsyncClient:
        """A client with a key, or without."""
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        made = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=_PATIENCE,
            transport=self._transport,
            verify=_NO_CERTIFICATES,
        )
        self.clients.append(made)
        return made

    async def key(self, *users: str, **fields: Any) -> str:
        """A key for these users; without any, for all."""
        grant = Grant(frozenset(users) if users else None, **fields)
        return (await self.library.store.keys.create(grant))[1]

    async def holder(self, *users: str, **fields: Any) -> httpx.AsyncClient:
        """A client with such a key."""
        return self.client(await self.key(*users, **fields))

    async def hang_up(self) -> None:
        """Close all clients."""
        for client in self.clients:
            await client.aclose()


@asynccontextmanager
async def in_process(
    library: Library, *, allow_keyless: bool = True, **options: Any
) -> AsyncIterator[Site]:
    """Serve a library while the block runs, without a server between; `create_app` has options."""
    app = create_app(library, allow_keyless=allow_keyless, **options)
    site = Site("http://127.0.0.1:8765", app, library, httpx.ASGITransport(app))
    try:
        yield site
    finally:
        await site.hang_up()
        app.start_shutdown()
        await app.close()


@asynccontextmanager
async def serving(
    library: Library, *, allow_keyless: bool = True, **options: Any
) -> AsyncIterator[Site]:
    """Serve a library on a socket while the block runs; `create_app` has options."""
    app = create_app(library, allow_keyless=allow_keyless, **options)
    # With the protocol named, as the real one is: else asyncio leaves Nagle's algorithm on, and
    # every answer waits 40 ms for the client's system to acknowledge its head.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = TestServer(server_config(app))
    site = Site(f"http://127.0.0.1:{listener.getsockname()[1]}", app, library, server=server)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.ready.wait()
        yield site
    finally:
        await site.hang_up()
        app.start_shutdown()
        server.stopping.set()
        await running
        await app.close()


@asynccontextmanager
async def opened(location: str, folder: Path, **settings: Any) -> AsyncIterator[Library]:
    """A library on that database."""
    given = {"db": location, "embedder": "hash", "cache_dir": str(folder), "durability": "normal"}
    async with await Library.open(Settings(**{**given, **settings})) as library:
        yield library


def said(number: int, content: str = "", **fields: Any) -> dict[str, Any]:
    """A message, so many minutes after noon."""
    return {
        "message_id": f"m{number:03}",
        "ts": at(number),
        "role": "user" if number % 2 else "assistant",
        "content": content or f"message number {number}",
        **fields,
    }


def at(minutes: float) -> str:
    """So many minutes after noon, as JSON says it."""
    return (NOON + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


async def write(client: httpx.AsyncClient, user: str, *messages: dict[str, Any]) -> Any:
    """Store messages through the service."""
    answer = await client.post(f"/v1/users/{user}/messages", json={"messages": list(messages)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(answer: httpx.Response) -> list[str]:
    """The ids of an answer's items, in order."""
    assert answer.status_code == 200, answer.text
    return [item["message_id"] for item in answer.json()["items"]]


def error(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of an answer, which must be of that kind and of the one shape."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"code", "message", "details"}
    assert body["error"]["code"] == code, body
    assert body["error"]["message"]
    found: dict[str, Any] = body["error"]
    return found


OPERATOR = frozenset({Permission.OPERATOR})
