"""Metrics and logs, and what they must not contain."""

import json
import logging
from typing import Any

import pytest
from opentelemetry import trace

from memrecall.logs import JsonLineFormatter
from memrecall.memory import Library
from memrecall.server.http.app import BodyLimits

from .http_service import (
    OPERATOR,
    HttpService,
    make_message,
    serve_in_process,
    serve_on_socket,
    write_messages,
)
from .test_limits import head, send_raw

SECRET = "zqsecretzq"


async def send_requests(service: HttpService, client: Any) -> None:
    """Send requests of several kinds that contain secret words."""
    await write_messages(client, "ann", *(make_message(n, f"{SECRET} tea {n}") for n in range(3)))
    query = {"user_id": "ann", "query_text": f"{SECRET} tea"}
    await client.get("/v1/users/ann/messages")
    await client.get("/v1/users/ann/messages/m001/neighbors")
    await client.post("/v1/messages/lexical_search", json=query)
    await client.post("/v1/messages/semantic_search", json=query)
    await client.post("/v1/users/ann/recall", json={"query": f"which {SECRET} tea?"})
    await client.get(f"/v1/users/{SECRET}/messages")
    await client.post("/v1/messages/lexical_search", json={**query, "query_text": f"{SECRET} AND"})
    await client.get(f"/{SECRET}")
    await service.client(f"mr_{SECRET}_{SECRET}").get("/v1/users/ann/messages")


async def test_metrics_count_requests_and_recalls(sqlite_service: HttpService) -> None:
    client = await sqlite_service.client_with_key("ann", permissions=OPERATOR)
    await send_requests(sqlite_service, client)

    answer = await client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    metrics_text = answer.text
    route = "/v1/users/{user_id}/messages"
    for line in [
        f'memrecall_http_requests_total{{method="GET",route="{route}",status="200"}} 1.0',
        f'memrecall_http_requests_total{{method="GET",route="{route}",status="404"}} 1.0',
        f'memrecall_http_requests_total{{method="POST",route="{route}",status="200"}} 1.0',
        f'memrecall_http_requests_total{{method="GET",route="{route}",status="401"}} 1.0',
        'memrecall_http_requests_total{method="GET",route="unmatched",status="404"} 1.0',
        f'memrecall_http_request_seconds_count{{route="{route}"}} 4.0',
        'memrecall_searches_total{kind="lexical"} 1.0',
        'memrecall_searches_total{kind="semantic"} 1.0',
        'memrecall_searches_total{kind="neighbors"} 1.0',
        'memrecall_searches_total{kind="range"} 1.0',
        "memrecall_messages_stored_total 3.0",
        'memrecall_recalls_total{stop_reason="handoff"} 1.0',
        "memrecall_recall_seconds_count 1.0",
        "memrecall_recalls_running 0.0",
        'memrecall_state{state="ready"} 1.0',
        "memrecall_recalls_refused_total 0.0",
    ]:
        assert line in metrics_text.splitlines(), line
    assert "memrecall_index_bytes" in metrics_text
    assert "_created" not in metrics_text
    assert SECRET not in metrics_text
    assert "ann" not in metrics_text.replace("cannot", "")


async def test_each_service_has_its_own_metrics(sqlite_service: HttpService) -> None:
    async with serve_in_process(sqlite_service.library) as other:
        await sqlite_service.client().get("/healthz")
        key = await sqlite_service.create_key(permissions=OPERATOR)
        assert 'route="/healthz"' in (await sqlite_service.client(key).get("/metrics")).text
        assert 'route="/healthz"' not in (await other.client(key).get("/metrics")).text


async def test_logs_name_requests_without_their_content(
    sqlite_service: HttpService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "memrecall")
    client = await sqlite_service.client_with_key("ann")
    await send_requests(sqlite_service, client)

    lines = [json.loads(JsonLineFormatter().format(record)) for record in caplog.records]
    requests = [line for line in lines if line["event"] == "request"]

    assert SECRET not in json.dumps(lines)
    assert client.headers["authorization"].split("_", 2)[2] not in json.dumps(lines)
    assert "/ann/" not in json.dumps(lines)
    by_route = {(line["method"], line["route"], line["status"]): line for line in requests}
    search = by_route["POST", "/v1/messages/lexical_search", 200]
    assert search["query_chars"] == len(f"{SECRET} tea")
    assert search["ms"] > 0
    assert search["key"] == client.headers["authorization"].split("_")[1]
    assert search["request_id"].startswith("r_")
    recall = by_route["POST", "/v1/users/{user_id}/recall", 200]
    assert recall["tools"][0] == "search_memories"
    assert recall["tools"][-1] == "handoff"
    assert recall["stop_reason"] == "handoff"
    assert by_route["POST", "/v1/users/{user_id}/messages", 200]["messages"] == 3
    assert by_route["GET", "/v1/users/{user_id}/messages", 401]["key"] is None


async def test_framework_sends_no_spans_to_a_global_provider(
    sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    class Provider(trace.TracerProvider):
        def get_tracer(self, *arguments: Any, **_: Any) -> trace.Tracer:
            used.append(arguments[0])
            return trace.NoOpTracer()

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", Provider())
    await (await sqlite_service.client_with_key("ann")).get("/v1/users/ann/messages")
    assert used == []


@pytest.mark.concurrent
async def test_refused_requests_are_counted_under_their_route(
    sqlite_library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "memrecall.server")
    path = "/v1/users/a%2Fb/messages"
    async with serve_on_socket(sqlite_library, body_limits=BodyLimits(seconds=0.05)) as service:
        key = await service.create_key("a/b", permissions=OPERATOR)
        slow = await send_raw(service, head(key, "Content-Length: 90", path=path) + b"{")
        assert slow.startswith(b"HTTP/1.1 408 ")
        assert "unmatched" not in (await service.client(key).get("/metrics")).text
    async with serve_on_socket(sqlite_library, body_limits=BodyLimits(bulk_bytes=100)) as service:
        client = service.client(key)
        answers = [
            await service.client("mr_x_y").get(path),
            await client.post(path, content=b"x" * 200),
            await client.post(path, content=b"{}", headers={"Content-Type": "text/plain"}),
            await client.put(path),
        ]

        assert [answer.status_code for answer in answers] == [401, 413, 415, 405]
        assert "unmatched" not in (await client.get("/metrics")).text
    lines = [record.__dict__["fields"] for record in caplog.records]
    statuses = [line["status"] for line in lines if line["route"] == "/v1/users/{user_id}/messages"]
    assert statuses == [408, 401, 413, 415, 405]


def test_exception_message_is_not_logged() -> None:
    failure = ValueError(SECRET)
    exc_info = (type(failure), failure, None)
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), exc_info)
    line = json.loads(JsonLineFormatter().format(record))
    assert line["error"] == "ValueError"
    assert SECRET not in json.dumps(line)
