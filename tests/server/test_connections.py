"""Slow, idle, ambiguous and too many connections, on real sockets."""

import asyncio
import contextlib
import json
import logging
import re
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import cycle, pairwise

import h11
import httpx
import hypothesis.strategies as st
import pytest
from hypothesis import given

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.server.connections import ConnectionLimits, StrictConnection
from memrecall.server.http.middleware import BodyLimits
from memrecall.types import NewMessage, Role
from tests.cases import check_each_async
from tests.waiting import LIMIT, wait_until

from .http_service import HttpService, serve_on_socket
from .test_limits import head, read_response, send_raw

PATH = "/v1/users/ann/messages"
PATIENT = ConnectionLimits(
    head_seconds=LIMIT, body_seconds=LIMIT, reader_seconds=LIMIT, shutdown_seconds=LIMIT
)
FLOOD = min(1_200, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


@dataclass
class RawClient:
    """A client that sends bytes on one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, service: HttpService, address: str = "127.0.0.1") -> "RawClient":
        url = httpx.URL(service.url)
        return cls(*await asyncio.open_connection(url.host, url.port, local_addr=(address, 0)))

    async def get(self, key: str, path: str = PATH) -> bytes:
        """Send a request and return the response, which has a Content-Length."""
        return await self.ask(get_request(key, path))

    async def ask(self, request: bytes) -> bytes:
        self.writer.write(request)
        async with asyncio.timeout(LIMIT):
            response_head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(response_head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            return response_head + await self.reader.readexactly(length)

    async def read_all(self) -> bytes:
        """Return everything until the server closes the connection."""
        async with asyncio.timeout(LIMIT):
            return await read_response(self.reader)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def get_request(key: str, path: str = PATH) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


@contextlib.asynccontextmanager
async def connections(
    service: HttpService, count: int, address: str = "127.0.0.1"
) -> AsyncIterator[list[RawClient]]:
    """Open connections, and close them at the end."""
    clients = [await RawClient.connect(service, address) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


async def make_user(service: HttpService) -> str:
    """Return the key of a user with a message."""
    message = NewMessage(role=Role.USER, content="green tea")
    await service.library.add_messages(Scope("ann"), [message])
    return await service.create_key("ann")


@pytest.mark.concurrent
async def test_request_that_does_not_arrive_in_time_ends_its_connection(
    sqlite_library: Library,
) -> None:
    limits = replace(PATIENT, head_seconds=0.2, body_seconds=1.0)
    async with serve_on_socket(sqlite_library, connection_limits=limits) as service:
        key = await make_user(service)
        slow_head = b"GET /healthz HTTP/1.1\r\n"
        unread_body = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
        refused_body = head("wrong", "Content-Length: 100000")

        async def check(case: tuple[bytes, bytes, list[bytes]]) -> None:
            data, drops, statuses = case
            response = await send_raw(service, data, drops)
            assert re.findall(rb"HTTP/1.1 (\d{3}) ", response) == statuses, response

        await check_each_async(
            [
                (b"", b"", []),
                (slow_head, b"", [b"408"]),
                (slow_head, b"X-A: b\r\n", [b"408"]),  # more headers do not extend the time
                (get_request(key) + slow_head, b"", [b"200", b"408"]),
                (unread_body, b"x", [b"200"]),
                (refused_body, b"x", [b"401"]),
            ],
            check,
        )


@pytest.mark.concurrent
async def test_body_deadline_holds_for_every_method_and_path(sqlite_library: Library) -> None:
    pytest.importorskip("nicegui")
    limits = BodyLimits(seconds=0.05)
    async with serve_on_socket(sqlite_library, body_limits=limits, dashboard=True) as service:
        key = await make_user(service)

        async def check(path: str) -> None:
            lines = ("Content-Length: 50",)
            response = await send_raw(service, head(key, *lines, path=path) + b"ab", b"c")
            assert response.startswith(b"HTTP/1.1 408 ")
            assert b"0.05 seconds" in response

        await check_each_async([PATH, "/v1/messages/lexical_search", "/rpc", "/mcp"], check)
        slow_form = head(key, "Content-Length: 5000", path="/sign-in") + b"key=abc"
        assert (await send_raw(service, slow_form)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.concurrent
async def test_client_that_does_not_read_is_disconnected(sqlite_library: Library) -> None:
    limits = replace(PATIENT, reader_seconds=0.05)
    async with serve_on_socket(sqlite_library, connection_limits=limits) as service:
        key = await make_user(service)
        large = [NewMessage(role=Role.USER, content="x" * 1_000_000) for _ in range(12)]
        await sqlite_library.add_messages(Scope("ann"), large)  # more than both sockets buffer
        url = httpx.URL(service.url)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, (url.host, url.port))
            await loop.sock_sendall(client, get_request(key))
            assert service.server is not None
            await wait_until(lambda: service.server.server_state.total_requests)  # type: ignore[union-attr]
            await wait_until(service.server.is_idle)


@pytest.mark.concurrent
async def test_idle_connections_make_room_for_new_ones(sqlite_library: Library) -> None:
    limits = replace(PATIENT, connections=10)
    async with serve_on_socket(sqlite_library, connection_limits=limits) as service:
        key = await make_user(service)
        known = await RawClient.connect(service)
        assert (await known.get(key)).startswith(b"HTTP/1.1 200 ")
        async with (
            connections(service, 1, "127.0.0.3") as (neighbor,),
            connections(service, 30, "127.0.0.2") as strangers,
        ):
            # Each of them was admitted, and evicted an older one of the same address.
            assert (await strangers[-1].get(key)).startswith(b"HTTP/1.1 200 ")
            assert await strangers[0].read_all() == b""
            assert (await neighbor.get(key)).startswith(b"HTTP/1.1 200 ")
            assert (await known.get(key)).startswith(b"HTTP/1.1 200 ")
        await known.close()
        metrics = service.app.service.metrics.render().decode()
        (line,) = [x for x in metrics.splitlines() if x.startswith("memrecall_connections_evicted")]
        assert float(line.split()[1]) == 22


@pytest.mark.concurrent
async def test_connection_is_refused_if_all_others_are_busy(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    limits = replace(PATIENT, connections=1)
    async with serve_on_socket(sqlite_library, connection_limits=limits) as service:
        key = await make_user(service)
        assert service.server is not None
        await wait_until(service.server.is_idle)
        monkeypatch.setattr(sqlite_library, "require_user", blocking(started, release))
        running = await RawClient.connect(service)
        answer = asyncio.create_task(running.get(key))
        await started.wait()
        refused = await RawClient.connect(service)
        response = await refused.read_all()
        assert response.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in response
        assert json.loads(response.partition(b"\r\n\r\n")[2])["error"]["code"] == "UNAVAILABLE"
        release.set()
        assert (await answer).startswith(b"HTTP/1.1 200 ")
        await running.close()
        await refused.close()


@pytest.mark.concurrent
async def test_websockets_leave_half_of_the_connections_to_requests(
    sqlite_library: Library,
) -> None:
    """With a limit of one connection there is room for none."""
    limits = replace(PATIENT, connections=1)
    async with serve_on_socket(
        sqlite_library, connection_limits=limits, websockets=True
    ) as service:
        key = await make_user(service)
        client = await RawClient.connect(service)
        client.writer.write(
            b"GET /_nicegui_ws/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n"
        )
        assert (await client.read_all()).startswith(b"HTTP/1.1 503 ")
        await client.close()
        other = await RawClient.connect(service)
        assert (await other.get(key)).startswith(b"HTTP/1.1 200 ")
        await other.close()


def blocking(started: asyncio.Event, release: asyncio.Event) -> Callable[..., Awaitable[None]]:
    """Return a function that tells when it is called, and returns when it is released."""

    async def wait(*_: object) -> None:
        started.set()
        await release.wait()

    return wait


@pytest.mark.concurrent
async def test_known_key_is_served_during_an_attack(
    sqlite_library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    """Sockets that are silent, slow in headers or bodies, half-closed or closed at once."""
    caplog.set_level(logging.WARNING)
    pytest.importorskip("nicegui")
    limits = replace(PATIENT, connections=FLOOD // 2)
    async with serve_on_socket(sqlite_library, connection_limits=limits, dashboard=True) as service:
        key = await make_user(service)
        known = await RawClient.connect(service)
        await known.get(key)
        sign_in = b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n"
        attacks = [
            b"",
            b"GET / HT",
            b"GET / HTTP/1.1\r\nX: ",
            sign_in,
            head("x", "Content-Length: 9"),
        ]
        async with connections(service, FLOOD) as strangers:
            for number, (stranger, data) in enumerate(zip(strangers, cycle(attacks), strict=False)):
                with contextlib.suppress(OSError):
                    stranger.writer.write(data)
                    if number % 3 == 0:
                        stranger.writer.write_eof()
                if number % (FLOOD // 5) == 0:
                    newcomer = await RawClient.connect(service)
                    assert (await newcomer.get(key)).startswith(b"HTTP/1.1 200 ")
                    await newcomer.close()
            assert (await known.get(key)).startswith(b"HTTP/1.1 200 ")
        await known.close()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.concurrent
async def test_client_that_disconnects_is_no_error(
    sqlite_library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("nicegui")
    caplog.set_level(logging.INFO)
    async with serve_on_socket(sqlite_library, dashboard=True) as service:
        key = await make_user(service)
        assert service.server is not None
        for path in (PATH, "/sign-in", "/mcp", "/rpc"):
            client = await RawClient.connect(service)
            client.writer.write(head(key, "Content-Length: 50", path=path) + b"ab")
            await wait_until(lambda: service.server.server_state.tasks)  # type: ignore[union-attr]
            await client.close()
            await wait_until(service.server.is_idle)
    requests = [record.__dict__["fields"] for record in caplog.records if record.msg == "request"]
    assert [fields["status"] for fields in requests] == [0] * 4
    assert {record.levelname for record in caplog.records} == {"INFO"}
    metrics = service.app.service.metrics.render().decode()
    assert 'status="500"' not in metrics


@pytest.mark.concurrent
async def test_shutdown_answers_requests_that_were_on_their_way(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    async with serve_on_socket(sqlite_library, connection_limits=PATIENT) as service:
        key = await make_user(service)
        running, idle, silent = [await RawClient.connect(service) for _ in range(3)]
        await idle.get(key)
        monkeypatch.setattr(sqlite_library, "require_user", blocking(started, release))
        answer = asyncio.create_task(running.get(key))
        await started.wait()
        assert service.server is not None
        service.app.service.closing.set()
        service.server.stopping.set()
        for client in (idle, silent):
            response = await client.get(key)
            assert response.startswith(b"HTTP/1.1 503 ")
            assert b"connection: close" in response
            assert await client.read_all() == b""
        release.set()
        response = await answer
        assert response.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in response
        for client in (running, idle, silent):
            await client.close()


FRAMING = [
    ("Content-Length: 5",),
    ("Content-Length: 5", "Content-Length: 5"),
    ("Content-Length: 5", "Content-Length: 6"),
    ("Content-Length: 5, 6",),
    ("Content-Length: -5",),
    ("Content-Length: +5",),
    ("Content-Length: 5 5",),
    ("Transfer-Encoding: chunked",),
    ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: gzip, chunked",),
    ("Transfer-Encoding: identity",),
    ("Transfer-Encoding : chunked",),
    ("Content-Length: 5", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Content-Length: 5"),
    ("transfer-encoding: Chunked", "CONTENT-LENGTH: 0"),
    ("Host: a", "Host: b"),
]
ACCEPTED = {FRAMING[0], FRAMING[1], FRAMING[7]}


def parse(data: bytes, cuts: list[int]) -> list[object]:
    """Return the events of a request that arrives in parts; None if it is refused."""
    connection = StrictConnection(PATIENT.head_bytes)
    events: list[object] = []
    starts = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    try:
        for start, end in pairwise(starts):
            connection.receive_data(data[start:end])
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                events.append(type(event).__name__)
    except h11.RemoteProtocolError:
        assert connection.refusal.http_status in (400, 431, 501)
        return [None]
    return events


@given(
    st.sampled_from(FRAMING),
    st.sampled_from(["1.0", "1.1"]),
    st.lists(st.sampled_from(["Accept: a", "X-B: c", "Cookie: d=e"]), max_size=3),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_ambiguous_framing_is_refused_however_it_arrives(
    framing: tuple[str, ...], version: str, others: list[str], cuts: list[int]
) -> None:
    host = [] if framing[0].startswith("Host") else ["Host: x"]
    body = b"5\r\nhello\r\n0\r\n\r\n" if framing == FRAMING[7] else b"hello"
    lines = [f"POST / HTTP/{version}", *host, *others, *framing, "", ""]
    events = parse("\r\n".join(lines).encode() + body, cuts)
    is_accepted = framing in ACCEPTED and (framing != FRAMING[7] or version == "1.1")
    if is_accepted:
        assert events[0] == "Request"
        assert events[-1] == "EndOfMessage"
        assert set(events[1:-1]) == {"Data"}
    else:
        assert events == [None]


@pytest.mark.concurrent
async def test_refused_framing_closes_the_connection(sqlite_server: HttpService) -> None:
    key = await sqlite_server.create_key("ann")
    chunks = b"0\r\n\r\n" + get_request(key)  # the second request must not be served

    async def check(case: tuple[bytes, bytes]) -> None:
        data, status = case
        response = await send_raw(sqlite_server, data)
        assert re.findall(rb"HTTP/1.1 (\d{3}) ", response) == [status]
        assert json.loads(response.partition(b"\r\n\r\n")[2])["error"]["code"] == "INVALID_ARGUMENT"

    await check_each_async(
        [
            (head(key, "Content-Length: 5", "Transfer-Encoding: chunked") + chunks, b"400"),
            (head(key, "Transfer-Encoding: chunked", "Content-Length: 5") + chunks, b"400"),
            (head(key, "Transfer-Encoding: chunked") + b"zz\r\n" + get_request(key), b"400"),
            (head(key, "Transfer-Encoding: gzip") + chunks, b"501"),
            (head(key, "X: " + "y" * 40_000), b"431"),
            (b"\x16\x03\x01 TLS\r\n\r\n", b"400"),
        ],
        check,
    )
