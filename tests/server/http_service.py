"""HTTP services for tests, in the event loop of the test: in process or on a loopback socket.

Disconnects, slow bodies and streams that are read while they are written need `serve_on_socket`;
for everything else `serve_in_process` is faster.
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
# The tests use no TLS, and loading the certificates takes longer than a request.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_TIMEOUT = 60.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class TestServer(uvicorn.Server):
    """A server without signal handlers that starts and stops at once."""

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
        """Return True if there are no connections and no running requests."""
        return not self.server_state.connections and not self.server_state.tasks


class HttpService:
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
        """Return a client with this key, or without a key."""
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        client = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=_TIMEOUT,
            transport=self._transport,
            verify=_NO_CERTIFICATES,
        )
        self.clients.append(client)
        return client

    async def create_key(self, *users: str, **fields: Any) -> str:
        """Create a key for these users, by default for all users."""
        grant = Grant(frozenset(users) if users else None, **fields)
        return (await self.library.store.keys.create(grant))[1]

    async def client_with_key(self, *users: str, **fields: Any) -> httpx.AsyncClient:
        """Return a client with a new key; see `create_key`."""
        return self.client(await self.create_key(*users, **fields))

    async def client_with_chat(self) -> httpx.AsyncClient:
        """Return a client of the user ann, who has written `CHAT`."""
        client = await self.client_with_key("ann")
        await write_messages(client, "ann", *CHAT)
        return client

    async def close_clients(self) -> None:
        """Close all clients."""
        for client in self.clients:
            await client.aclose()


@asynccontextmanager
async def serve_in_process(
    library: Library, *, allow_keyless: bool = True, **options: Any
) -> AsyncIterator[HttpService]:
    """Serve a library without a network; the options are those of `create_app`."""
    app = create_app(library, allow_keyless=allow_keyless, **options)
    service = HttpService("http://127.0.0.1:8765", app, library, httpx.ASGITransport(app))
    try:
        yield service
    finally:
        await service.close_clients()
        app.service.closing.set()
        await app.close()


@asynccontextmanager
async def serve_on_socket(
    library: Library, *, allow_keyless: bool = True, websockets: bool = False, **options: Any
) -> AsyncIterator[HttpService]:
    """Serve a library on a socket; the other options are those of `create_app`."""
    app = create_app(library, allow_keyless=allow_keyless, **options)
    # With an explicit protocol, as in the runner, asyncio turns Nagle's algorithm off, which would
    # delay every response by 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = TestServer(server_config(app, websockets=websockets))
    service = HttpService(
        f"http://127.0.0.1:{listener.getsockname()[1]}", app, library, server=server
    )
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.ready.wait()
        yield service
    finally:
        await service.close_clients()
        app.service.closing.set()
        server.stopping.set()
        await running
        await app.close()


@asynccontextmanager
async def open_library(location: str, folder: Path, **settings: Any) -> AsyncIterator[Library]:
    """Open a library on this database, with the hash embedder by default."""
    defaults = {
        "db": location,
        "embedder": "hash",
        "cache_dir": str(folder),
        "durability": "normal",
    }
    async with await Library.open(Settings(**{**defaults, **settings})) as library:
        yield library


def make_message(number: int, content: str = "", **fields: Any) -> dict[str, Any]:
    """Return a message with a numbered id, sent that many minutes after noon."""
    return {
        "message_id": f"m{number:03}",
        "ts": timestamp(number),
        "role": "user" if number % 2 else "assistant",
        "content": content or f"message number {number}",
        **fields,
    }


def timestamp(minutes: float) -> str:
    """Return the time that many minutes after noon in RFC 3339 format."""
    return (NOON + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


async def write_messages(client: httpx.AsyncClient, user: str, *messages: dict[str, Any]) -> Any:
    """Store messages and return the response body."""
    answer = await client.post(f"/v1/users/{user}/messages", json={"messages": list(messages)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def message_ids(answer: httpx.Response) -> list[str]:
    """Return the message ids of the items of a successful response."""
    assert answer.status_code == 200, answer.text
    return [item["message_id"] for item in answer.json()["items"]]


def check_error(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check the status, code and shape of an error response, and return its error."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"code", "message", "details"}
    assert body["error"]["code"] == code, body
    assert body["error"]["message"]
    detail: dict[str, Any] = body["error"]
    return detail


OPERATOR = frozenset({Permission.OPERATOR})


CHAT = [
    make_message(1, "我不吃辣，火锅要清汤"),
    make_message(2, "好的"),
    make_message(3, "My sister lives in Lisbon"),
]
