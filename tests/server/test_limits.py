"""Limits of request bodies, JSON and concurrent requests."""

import asyncio
import contextlib
import json
import zlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from memrecall.json_objects import MAX_DEPTH, MAX_VALUES, parse_json
from memrecall.memory import Library
from memrecall.server.http.app import BodyLimits
from memrecall.server.http.responses import items_response
from tests.cases import check_each_async
from tests.counting import Calls, counting_calls
from tests.waiting import LIMIT

from .http_service import HttpService, check_error, make_message, serve_on_socket, write_messages

PATH = "/v1/users/ann/messages"
SEARCH = "/v1/messages/lexical_search"
JSON = {"Content-Type": "application/json"}
SMALL = BodyLimits(bytes=2_000, bulk_bytes=20_000, seconds=60.0, drain_seconds=0.1)
SHORT = BodyLimits(seconds=0.1)


async def send_raw(service: HttpService, data: bytes, drops: bytes = b"") -> bytes:
    """Send raw bytes, then `drops` repeatedly, until the server closes; return the response."""
    host, port = service.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    response = asyncio.create_task(read_response(reader))
    writer.write(data)
    async with asyncio.timeout(LIMIT):
        while drops and not response.done():
            writer.write(drops)
            await asyncio.sleep(0.01)
        response_bytes = await response
    writer.close()
    return response_bytes


async def read_response(reader: asyncio.StreamReader) -> bytes:
    """Read until the connection ends or is reset."""
    response_bytes = b""
    with contextlib.suppress(ConnectionError):  # the server closed while data was being sent
        while part := await reader.read(65_536):
            response_bytes += part
    return response_bytes


def head(key: str, *lines: str, path: str = PATH) -> bytes:
    fixed = (f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}")
    return "\r\n".join([*fixed, "Content-Type: application/json", *lines, "", ""]).encode()


@pytest.mark.concurrent
async def test_body_size_is_limited_while_reading(sqlite_library: Library) -> None:
    async with serve_on_socket(sqlite_library, body_limits=SMALL) as service:
        ann = await service.client_with_key("ann")
        await write_messages(
            ann, "ann", make_message(1, "x" * 5_000)
        )  # the limit of writes is higher
        text = json.dumps({"user_id": "ann", "query_text": "x" * 5_000})
        detail = check_error(
            await ann.post(SEARCH, content=text, headers=JSON), 413, "INVALID_ARGUMENT"
        )
        assert "2000 bytes" in detail["message"]

        async def in_chunks() -> Any:  # sent without Content-Length
            for start in range(0, len(text), 500):
                yield text[start : start + 500].encode()

        chunked = await ann.post(SEARCH, content=in_chunks(), headers=JSON)
        check_error(chunked, 413, "INVALID_ARGUMENT")
        large = {"messages": [make_message(2, "x" * 30_000)]}
        check_error(await ann.post(PATH, json=large), 413, "INVALID_ARGUMENT")


@pytest.mark.concurrent
async def test_endless_body_is_cut_off(sqlite_library: Library) -> None:
    async with serve_on_socket(sqlite_library, body_limits=SMALL) as service:
        key = await service.create_key("ann")
        claim = head(key, "Content-Length: 100000000000", path=SEARCH)
        response_bytes = await send_raw(service, claim + b"x" * 100_000)
        assert response_bytes.startswith(b"HTTP/1.1 413 ")


@pytest.mark.concurrent
async def test_slow_body_times_out(sqlite_library: Library) -> None:
    async with serve_on_socket(sqlite_library, body_limits=SHORT) as service:
        key = await service.create_key("ann")
        slow = head(key, "Content-Length: 100000") + b'{"messages"'
        for drops in (b"", b" "):  # single bytes do not extend the time
            response_bytes = await send_raw(service, slow, drops)
            assert response_bytes.startswith(b"HTTP/1.1 408 ")
            assert b"UNAVAILABLE" in response_bytes


@pytest.mark.concurrent
async def test_unauthenticated_request_is_refused_before_its_body(sqlite_library: Library) -> None:
    async with serve_on_socket(sqlite_library, body_limits=SMALL) as service:
        await service.create_key("ann")
        response_bytes = await send_raw(
            service, head("wrong", "Content-Length: 100", "Connection: close")
        )
        assert response_bytes.startswith(b"HTTP/1.1 401 ")


async def test_only_uncompressed_json_is_accepted(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    body = json.dumps({"messages": [make_message(1)]}).encode()
    for headers in (
        {"Content-Type": "text/json"},
        {"Content-Type": "application/xml"},
        {},
        {**JSON, "Content-Encoding": "gzip"},
        {**JSON, "Content-Encoding": "deflate, identity"},
    ):
        content = zlib.compress(body) if "Content-Encoding" in headers else body
        check_error(await ann.post(PATH, content=content, headers=headers), 415, "INVALID_ARGUMENT")
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
    b'{"messages": [], "messages": [{"role": "user", "content": "x"}]}',
    b'{"messages": [{"role": "user", "content": "x", "content": "y"}]}',
    b'{"messages": [{"role": "user", "content": "x", "c\\u006fntent": "\\u0022\\u0022"}]}',
]


async def test_malformed_json_is_refused(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")

    async def check(body: bytes) -> None:
        check_error(await ann.post(PATH, content=body, headers=JSON), 400, "INVALID_ARGUMENT")

    await check_each_async(NOT_JSON, check, lambda body: repr(body[:60]))


def repeats_a_key(body: bytes) -> bool:
    """Return True if an object has a key twice, as a slow parser sees it."""
    found = False

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        found = found or len(dict(pairs)) < len(pairs)
        return dict(pairs)

    json.loads(body, object_pairs_hook=check)
    return found


STRINGS = st.text(alphabet='a"\\\\u02火', max_size=4)


def write_string(text: str, escapes: bool) -> str:
    quote = "\\u0022" if escapes else '\\"'
    return '"' + text.replace("\\", "\\\\").replace('"', quote) + '"'


JSON_STRINGS = st.builds(write_string, STRINGS, st.booleans())
JSON_TEXTS = st.recursive(
    JSON_STRINGS | st.sampled_from(["1", "-2.5e3", "null", "true", "[]", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(JSON_STRINGS, inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{name}: {value}" for name, value in pairs) + "}"
        )
    ),
    max_leaves=8,
)


@given(JSON_TEXTS)
def test_repeated_keys_are_found(text: str) -> None:
    body = text.encode()
    message = "an object has the same key twice"
    refusal = pytest.raises(json.JSONDecodeError, match=message)
    with refusal if repeats_a_key(body) else contextlib.nullcontext():
        assert parse_json(body) == json.loads(body)


def test_number_of_json_values_is_limited() -> None:
    fits = b"[" + b"1," * (MAX_VALUES - 2) + b'{"a": "' + b"," * 1_000 + b'"}]'
    assert len(parse_json(fits)) == MAX_VALUES - 1
    with pytest.raises(json.JSONDecodeError, match="more than 200,000 values"):
        parse_json(b"[" + fits + b"]")


async def test_json_nesting_is_limited_to_64_levels(sqlite_service: HttpService) -> None:
    fits = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse_json(fits)
    with pytest.raises(json.JSONDecodeError, match="deeper than 64"):
        parse_json(b"[" + fits + b"]")
    wide = b"[" + b"[],{}," * 500 + b"1]"
    assert len(parse_json(wide)) == 1_001
    ann = await sqlite_service.client_with_key("ann")
    detail = check_error(
        await ann.post(PATH, content=b"[" * 65 + b"]" * 65, headers=JSON), 400, "INVALID_ARGUMENT"
    )
    assert "deeper than 64" in detail["message"]
    deep: Any = 1
    for _ in range(40):
        deep = {"a": deep}
    body = {"messages": [make_message(1, metadata=deep)]}
    check_error(await ann.post(PATH, json=body), 400, "INVALID_ARGUMENT")


async def test_headers_that_decide_are_given_once(sqlite_service: HttpService) -> None:
    key = await sqlite_service.create_key("ann")
    client = sqlite_service.client(key)
    await write_messages(client, "ann", make_message(1))

    async def check(name: str) -> None:
        for values in (("a", "a"), (f"Bearer {key}", "b"), ("a", f"Bearer {key}")):
            headers = [("authorization", f"Bearer {key}"), *((name, value) for value in values)]
            answer = await sqlite_service.client().get(PATH, headers=headers)
            detail = check_error(answer, 400, "INVALID_ARGUMENT")
            assert "given more than once" in detail["message"]

    names = ("Authorization", "Content-Type", "Content-Encoding", "Origin", "X-Memrecall-User")
    await check_each_async(names, check)
    accept = [("authorization", f"Bearer {key}"), ("accept", "a/b"), ("accept", "*/*")]
    assert (await sqlite_service.client().get(PATH, headers=accept)).status_code == 200


async def test_response_carries_request_id(sqlite_service: HttpService) -> None:
    client = sqlite_service.client()
    response = await client.get("/healthz", headers={"X-Request-Id": "trace-1.2:3_x"})
    assert response.headers["x-request-id"] == "trace-1.2:3_x"
    for invalid_id in ("a b", "x" * 129, "<script>", ""):
        answer = await client.get("/healthz", headers={"X-Request-Id": invalid_id})
        assert answer.headers["x-request-id"].startswith("r_")


async def test_large_body_with_a_wrong_field_is_refused(sqlite_service: HttpService) -> None:
    client = await sqlite_service.client_with_key()
    message = make_message(1, "x" * 300_000)
    refused = await client.post(PATH, json={"messages": [{**message, "role": "boss"}]})
    detail = check_error(refused, 400, "INVALID_ARGUMENT")
    small = await client.post(PATH, json={"messages": [{**make_message(1), "role": "boss"}]})
    assert detail["details"] == check_error(small, 400, "INVALID_ARGUMENT")["details"]


async def test_large_response_lets_other_requests_run() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    response = await items_response((b'"%s"' % (b"x" * 300_000) for _ in range(5)), next=None)
    other.cancel()
    assert turns >= 5
    assert json.loads(bytes(response.body)) == {"items": ["x" * 300_000] * 5, "next": None}


async def test_work_for_a_filter_does_not_grow_with_its_conditions(
    sqlite_service: HttpService,
) -> None:
    """It is refused before anything is built from it; a large body is parsed in a thread."""
    ann = await sqlite_service.client_with_key("ann")

    async def count(filters: dict[str, Any]) -> int:
        text = json.dumps({"query": "tea", "filters": filters})
        assert 200_000 < len(text) < 1_000_000
        calls = Calls()
        with counting_calls(calls):
            answer = await ann.post("/v1/memories/search", content=text, headers=JSON)
        error = check_error(answer, 400, "INVALID_ARGUMENT")
        assert "more than 200 conditions" in error["message"]
        assert len(answer.content) < 1_000
        return calls.number

    await count({"a": list(range(40_000))})  # what only the first request does
    number = await count({"a": list(range(40_000))})
    large: list[dict[str, Any]] = [
        {"a": list(range(120_000))},
        {"OR": [{"a": 1}] * 60_000},
        {"AND": [{}] * 200_000},
        {f"k{n}": n for n in range(50_000)},
        {"NOT": [{"created_at": {"nin": ["2026-01-01"] * 99}}] * 500},
    ]
    for filters in large:
        assert await count(filters) < number + 10_000
