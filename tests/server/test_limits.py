"""What a request may cost before it is even understood."""

import asyncio
import contextlib
import json
import zlib
from typing import Any

import pytest

from memrecall.memory import Library
from memrecall.server.http.middleware import BodyLimits
from tests.cases import check_each_async
from tests.waiting import LIMIT

from .site import Site, error, said, serving, write

PATH = "/v1/users/ann/messages"
SEARCH = "/v1/messages/lexical_search"
JSON = {"Content-Type": "application/json"}
SMALL = BodyLimits(bytes=2_000, bulk_bytes=20_000, seconds=60.0, drain_seconds=0.1)
SHORT = BodyLimits(seconds=0.1)


async def talk(site: Site, said: bytes, drops: bytes = b"") -> bytes:
    """Say something by hand and hear all of the answer, until the server hangs up.

    Until then the drops are said again and again, each a moment after the other.
    """
    host, port = site.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    listening = asyncio.create_task(hear(reader))
    writer.write(said)
    async with asyncio.timeout(LIMIT):
        while drops and not listening.done():
            writer.write(drops)
            await asyncio.sleep(0.01)
        heard = await listening
    writer.close()
    return heard


async def hear(reader: asyncio.StreamReader) -> bytes:
    """All that is said until the connection ends, in whatever way."""
    heard = b""
    with contextlib.suppress(ConnectionError):  # it was still being spoken to when it hung up
        while part := await reader.read(65_536):
            heard += part
    return heard


def head(key: str, *lines: str, path: str = PATH) -> bytes:
    fixed = (f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}")
    return "\r\n".join([*fixed, "Content-Type: application/json", *lines, "", ""]).encode()


@pytest.mark.concurrent
async def test_body_size_is_limited_while_reading(lite_library: Library) -> None:
    async with serving(lite_library, body_limits=SMALL) as site:
        ann = await site.holder("ann")
        await write(ann, "ann", said(1, "x" * 5_000))  # writes may be longer
        text = json.dumps({"user_id": "ann", "query_text": "x" * 5_000})
        told = error(await ann.post(SEARCH, content=text, headers=JSON), 413, "INVALID_ARGUMENT")
        assert "2000 bytes" in told["message"]

        async def in_chunks() -> Any:  # no Content-Length tells beforehand
            for start in range(0, len(text), 500):
                yield text[start : start + 500].encode()

        chunked = await ann.post(SEARCH, content=in_chunks(), headers=JSON)
        error(chunked, 413, "INVALID_ARGUMENT")
        large = {"messages": [said(2, "x" * 30_000)]}
        error(await ann.post(PATH, json=large), 413, "INVALID_ARGUMENT")


@pytest.mark.concurrent
async def test_endless_body_is_cut_off(lite_library: Library) -> None:
    async with serving(lite_library, body_limits=SMALL) as site:
        key = await site.key("ann")
        claim = head(key, "Content-Length: 100000000000", path=SEARCH)
        heard = await talk(site, claim + b"x" * 100_000)
        assert heard.startswith(b"HTTP/1.1 413 ")


@pytest.mark.concurrent
async def test_slow_body_times_out(lite_library: Library) -> None:
    async with serving(lite_library, body_limits=SHORT) as site:
        key = await site.key("ann")
        slow = head(key, "Content-Length: 100000") + b'{"messages"'
        for drops in (b"", b" "):  # a byte now and then does not help
            heard = await talk(site, slow, drops)
            assert heard.startswith(b"HTTP/1.1 408 ")
            assert b"UNAVAILABLE" in heard


@pytest.mark.concurrent
async def test_unauthenticated_request_is_refused_before_its_body(lite_library: Library) -> None:
    async with serving(lite_library, body_limits=SMALL) as site:
        await site.key("ann")
        heard = await talk(site, head("wrong", "Content-Length: 100", "Connection: close"))
        assert heard.startswith(b"HTTP/1.1 401 ")


async def test_only_uncompressed_json_is_accepted(lite: Site) -> None:
    ann = await lite.holder("ann")
    body = json.dumps({"messages": [said(1)]}).encode()
    for headers in (
        {"Content-Type": "text/json"},
        {"Content-Type": "application/xml"},
        {},
        {**JSON, "Content-Encoding": "gzip"},
        {**JSON, "Content-Encoding": "deflate, identity"},
    ):
        content = zlib.compress(body) if "Content-Encoding" in headers else body
        error(await ann.post(PATH, content=content, headers=headers), 415, "INVALID_ARGUMENT")
    kind = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert (await ann.post(PATH, content=body, headers=kind)).status_code == 200


NOT_JSON = [
    b"{",
    b"",
    b"\xff\xfe",
    b"nul",
    b'{"messages": NaN}',
    b'{"messages": Infinity}',
    b"[" * 100_000,
    b'{"messages":' * 5_000,
    b"1" * 5_000,
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"messages": [{"role": "user", "content": "x"}]} trailing',
]


async def test_malformed_json_is_refused(lite: Site) -> None:
    ann = await lite.holder("ann")

    async def check(body: bytes) -> None:
        error(await ann.post(PATH, content=body, headers=JSON), 400, "INVALID_ARGUMENT")

    await check_each_async(NOT_JSON, check, lambda body: repr(body[:60]))


async def test_json_nesting_is_limited_to_64_levels(lite: Site) -> None:
    from memrecall.server.http.payloads import parse_json
    from memrecall.server.rpc.codec import MAX_DEPTH

    fits = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse_json(fits)
    with pytest.raises(json.JSONDecodeError, match="deeper than 64"):
        parse_json(b"[" + fits + b"]")
    wide = b"[" + b"[],{}," * 500 + b"1]"
    assert len(parse_json(wide)) == 1_001
    ann = await lite.holder("ann")
    told = error(
        await ann.post(PATH, content=b"[" * 65 + b"]" * 65, headers=JSON), 400, "INVALID_ARGUMENT"
    )
    assert "deeper than 64" in told["message"]
    deep: Any = 1
    for _ in range(40):
        deep = {"a": deep}
    body = {"messages": [said(1, metadata=deep)]}
    error(await ann.post(PATH, json=body), 400, "INVALID_ARGUMENT")


async def test_response_carries_request_id(lite: Site) -> None:
    client = lite.client()
    given = await client.get("/healthz", headers={"X-Request-Id": "trace-1.2:3_x"})
    assert given.headers["x-request-id"] == "trace-1.2:3_x"
    for unsound in ("a b", "x" * 129, "<script>", ""):
        answer = await client.get("/healthz", headers={"X-Request-Id": unsound})
        assert answer.headers["x-request-id"].startswith("r_")


async def test_too_many_concurrent_requests_are_refused(
    lite: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.server.http.middleware.MAX_REQUESTS", 0)
    answer = await lite.client().get("/healthz")
    error(answer, 503, "UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"
