"""What the service tells of itself: metrics and logs, and what they never tell."""

import json
import logging
from typing import Any

import pytest

from memrecall.memory import Library
from memrecall.server.http.middleware import BodyLimits
from memrecall.server.runner import JsonLineFormatter

from .site import OPERATOR, Site, in_process, said, serving, write
from .test_limits import head, talk

SECRET = "zqsecretzq"


async def use(site: Site, client: Any) -> None:
    """A bit of everything, with words that nobody else must see."""
    await write(client, "ann", *(said(n, f"{SECRET} tea {n}") for n in range(3)))
    query = {"user_id": "ann", "query_text": f"{SECRET} tea"}
    await client.get("/v1/users/ann/messages")
    await client.get("/v1/users/ann/messages/m001/neighbors")
    await client.post("/v1/messages/lexical_search", json=query)
    await client.post("/v1/messages/semantic_search", json=query)
    await client.post("/v1/users/ann/recall", json={"query": f"which {SECRET} tea?"})
    await client.get(f"/v1/users/{SECRET}/messages")
    await client.post("/v1/messages/lexical_search", json={**query, "query_text": f"{SECRET} AND"})
    await client.get(f"/{SECRET}")
    await site.client(f"mr_{SECRET}_{SECRET}").get("/v1/users/ann/messages")


async def test_metrics_count_requests_and_recalls(lite: Site) -> None:
    client = await lite.holder("ann", permissions=OPERATOR)
    await use(lite, client)

    answer = await client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    told = answer.text
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
        "memrecall_recalls_refused_total 0.0",
    ]:
        assert line in told.splitlines(), line
    assert "memrecall_index_bytes" in told
    assert "_created" not in told
    assert SECRET not in told
    assert "ann" not in told.replace("cannot", "")


async def test_each_service_has_its_own_metrics(lite: Site) -> None:
    async with in_process(lite.library) as other:
        await lite.client().get("/healthz")
        key = await lite.key(permissions=OPERATOR)
        assert 'route="/healthz"' in (await lite.client(key).get("/metrics")).text
        assert 'route="/healthz"' not in (await other.client(key).get("/metrics")).text


async def test_logs_name_requests_without_their_content(
    lite: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "memrecall")
    client = await lite.holder("ann")
    await use(lite, client)

    lines = [json.loads(JsonLineFormatter().format(record)) for record in caplog.records]
    requests = [line for line in lines if line["event"] == "request"]

    assert SECRET not in json.dumps(lines)
    assert client.headers["authorization"].rpartition("_")[2] not in json.dumps(lines)
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


@pytest.mark.concurrent
async def test_refused_requests_are_counted_under_their_route(
    lite_library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "memrecall.server")
    path = "/v1/users/a%2Fb/messages"
    async with serving(lite_library, body_limits=BodyLimits(seconds=0.05)) as site:
        key = await site.key("a/b", permissions=OPERATOR)
        slow = await talk(site, head(key, "Content-Length: 90", path=path) + b"{")
        assert slow.startswith(b"HTTP/1.1 408 ")
        assert "unmatched" not in (await site.client(key).get("/metrics")).text
    async with serving(lite_library, body_limits=BodyLimits(bulk_bytes=100)) as site:
        client = site.client(key)
        answers = [
            await site.client("mr_x_y").get(path),
            await client.post(path, content=b"x" * 200),
            await client.post(path, content=b"{}", headers={"Content-Type": "text/plain"}),
            await client.put(path),
        ]

        assert [answer.status_code for answer in answers] == [401, 413, 415, 405]
        assert "unmatched" not in (await client.get("/metrics")).text
    lines = [record.__dict__["fields"] for record in caplog.records]
    told = [line["status"] for line in lines if line["route"] == "/v1/users/{user_id}/messages"]
    assert told == [408, 401, 413, 415, 405]


def test_exception_message_is_not_logged() -> None:
    failure = ValueError(SECRET)
    exc_info = (type(failure), failure, None)
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), exc_info)
    line = json.loads(JsonLineFormatter().format(record))
    assert line["error"] == "ValueError"
    assert SECRET not in json.dumps(line)
