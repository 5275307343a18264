"""Slow, ambiguous and too many connections, on real sockets."""

import asyncio
import contextlib
import logging
import re
from dataclasses import dataclass

import httpx
import pytest

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.server.http.app import BodyLimits
from memrecall.types import NewMessage, Role
from tests.cases import check_each_async
from tests.waiting import LIMIT, wait_until

from .http_service import HttpService, serve_on_socket
from .test_limits import head, send_raw

PATH = "/v1/users/ann/messages"


@dataclass
class RawClient:
    """A client that sends bytes on one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, service: HttpService) -> "RawClient":
        url = httpx.URL(service.url)
        return cls(*await asyncio.open_connection(url.host, url.port))

    async def get(self, key: str) -> bytes:
        """Send a request and return the response, which has a Content-Length."""
        self.writer.write(get_request(key))
        async with asyncio.timeout(LIMIT):
            response_head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(response_head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            return response_head + await self.reader.readexactly(length)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def get_request(key: str) -> bytes:
    return f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


async def make_user(service: HttpService) -> str:
    """Return the key of a user with a message."""
    message = NewMessage(role=Role.USER, content="green tea")
    await service.library.add_messages(Scope("ann"), [message])
    return await service.create_key("ann")


@pytest.mark.concurrent
async def test_headers_that_do_not_arrive_in_time_end_their_connection(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.server.runner.HEAD_SECONDS", 0.2)
    async with serve_on_socket(sqlite_library) as service:
        key = await make_user(service)
        slow_head = b"GET /healthz HTTP/1.1\r\n"

        async def check(case: tuple[bytes, bytes, list[bytes]]) -> None:
            data, drops, statuses = case
            response = await send_raw(service, data, drops)
            assert re.findall(rb"HTTP/1.1 (\d{3}) ", response) == statuses, response

        await check_each_async(
            [
                (b"", b"", []),
                (slow_head, b"", []),
                (slow_head, b"X-A: b\r\n", []),  # more headers do not extend the time
                (get_request(key), b"\r\n", [b"200"]),  # blank lines before the next request
            ],
            check,
        )
    # Headers that begin behind a whole request have the time of an idle connection.
    monkeypatch.setattr("memrecall.server.runner._IDLE_SECONDS", 0.2)
    async with serve_on_socket(sqlite_library) as service:
        await check((get_request(key) + slow_head, b"", [b"200"]))


@pytest.mark.concurrent
async def test_number_of_connections_is_limited(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.server.runner.MAX_CONNECTIONS", 2)
    async with serve_on_socket(sqlite_library) as service:
        key = await make_user(service)
        first, second = [await RawClient.connect(service) for _ in range(2)]
        assert (await first.get(key)).startswith(b"HTTP/1.1 503 ")
        for client in (first, second):
            await client.close()
        assert service.server is not None
        await wait_until(service.server.is_idle)
        third = await RawClient.connect(service)
        assert (await third.get(key)).startswith(b"HTTP/1.1 200 ")
        await third.close()


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
    assert 'status="500"' not in service.app.service.metrics.render().decode()


@pytest.mark.concurrent
async def test_ambiguous_framing_and_long_headers_close_the_connection(
    sqlite_server: HttpService,
) -> None:
    """The parser refuses them; what follows must not be served as a second request."""
    key = await sqlite_server.create_key("ann")
    rest = b"0\r\n\r\n" + get_request(key)

    async def check(lines: tuple[str, ...]) -> None:
        response = await send_raw(sqlite_server, head(key, *lines) + rest)
        assert re.findall(rb"HTTP/1.1 (\d{3}) ", response) == [b"400"]

    cases: list[tuple[str, ...]] = [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5, 6",),
        ("Content-Length: -5",),
        ("Content-Length: +5",),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
        ("Transfer-Encoding: gzip",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding: chunked\r\n\r\nzz",),
    ]
    await check_each_async(cases, check)
    for data in (b"\x16\x03\x01 TLS\r\n\r\n", head(key, "X: ")[:-4] + b"y" * 40_000):
        response = await send_raw(sqlite_server, data)
        assert re.findall(rb"HTTP/1.1 (\d{3}) ", response) == [b"400"]
