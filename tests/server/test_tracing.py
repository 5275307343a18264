"""OpenTelemetry spans: one tree for each request, without user content."""

import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from memrecall.memory import Library
from memrecall.testing import ScriptedClient, call
from tests.test_telemetry import SpanRecorder
from tests.waiting import wait_until

from .http_service import HttpService, check_error, make_message, serve_in_process, write_messages
from .server_process import TIMEOUT, WITHOUT_DASHBOARD, run_command, run_server

SECRET = "zqsecretzq"
RECALL = "/v1/users/ann/recall"
HANDOFF = {"reason": SECRET, "search_summary": SECRET, "confidence": 0.9}


@pytest.fixture
def recorder() -> SpanRecorder:
    return SpanRecorder()


@pytest.fixture
async def traced(sqlite_library: Library, recorder: SpanRecorder) -> AsyncIterator[HttpService]:
    model = ScriptedClient(
        [
            call("search_memories", query=f"{SECRET} tea"),
            call(f"{SECRET}_tool"),
            call("handoff", relevant_memory_keys=["m001"], **HANDOFF),
        ],
        tokens=(700, 30),
    )
    async with serve_in_process(
        sqlite_library, model_client=model, tracer=recorder.tracer
    ) as service:
        yield service


async def with_tea(service: HttpService) -> httpx.AsyncClient:
    client = await service.client_with_key("ann")
    await write_messages(client, "ann", make_message(1, f"{SECRET} tea", speaker=SECRET))
    return client


async def last_span(recorder: SpanRecorder, name: str) -> ReadableSpan:
    """Return the last span of this name, which ends shortly after its response was read."""
    await wait_until(lambda: bool(recorder.spans) and recorder.spans[-1].name == name)
    return recorder.spans[-1]


def tree(spans: tuple[ReadableSpan, ...], root: ReadableSpan) -> Any:
    """Return the name of a span and the trees of its children, ordered by start."""
    assert root.context is not None
    below = [s for s in spans if s.parent and s.parent.span_id == root.context.span_id]
    below.sort(key=lambda span: span.start_time or 0)
    return (root.name, [tree(spans, span) for span in below]) if below else root.name


async def test_recall_is_one_span_tree(traced: HttpService, recorder: SpanRecorder) -> None:
    client = await with_tea(traced)
    answer = await client.post(RECALL, json={"query": f"which {SECRET} tea?"})
    assert answer.json()["stop_reason"] == "handoff", answer.text

    root = await last_span(recorder, "POST /v1/users/{user_id}/recall")
    spans = recorder.spans
    chat = "chat scripted"
    assert tree(spans, root) == (
        "POST /v1/users/{user_id}/recall",
        [
            (
                "invoke_agent memrecall",
                [
                    chat,
                    ("execute_tool search_memories", ["retrieval memrecall"]),
                    chat,
                    "execute_tool unknown",
                    chat,
                    "execute_tool handoff",
                ],
            )
        ],
    )
    assert root.context is not None
    request_spans = [s for s in spans if s.context and s.context.trace_id == root.context.trace_id]
    assert len(request_spans) == 9
    by_name: dict[str, Any] = {span.name: span.attributes for span in request_spans}
    assert by_name[chat]["gen_ai.operation.name"] == "chat"
    assert by_name[chat]["gen_ai.usage.input_tokens"] == 700
    assert by_name[chat]["gen_ai.usage.output_tokens"] == 30
    assert by_name["retrieval memrecall"]["memrecall.search.results"] == 1
    assert by_name["execute_tool unknown"]["error.type"] == "unknown_tool"
    assert by_name[root.name]["http.response.status_code"] == 200


async def test_streamed_recall_is_the_same_span_tree(
    traced: HttpService, recorder: SpanRecorder
) -> None:
    client = await with_tea(traced)
    stream = {"Accept": "text/event-stream"}
    answer = await client.post(RECALL, json={"query": f"which {SECRET} tea?"}, headers=stream)
    assert "event: done" in answer.text
    root = await last_span(recorder, "POST /v1/users/{user_id}/recall")
    [(recall, calls)] = tree(recorder.spans, root)[1]
    assert (recall, len(calls)) == ("invoke_agent memrecall", 6)


async def test_spans_contain_no_content_or_user(
    traced: HttpService, recorder: SpanRecorder
) -> None:
    client = await with_tea(traced)
    query = {"user_id": "ann", "query_text": f"{SECRET} tea"}
    await client.get("/v1/users/ann/messages")
    await client.get("/v1/users/ann/messages/m001/neighbors")
    await client.post("/v1/messages/lexical_search", json=query)
    await client.post("/v1/messages/lexical_search", json={**query, "query_text": f"{SECRET} AND"})
    await client.post("/v1/messages/semantic_search", json=query)
    await client.post(RECALL, json={"query": f"which {SECRET} tea?"})
    await client.get(f"/v1/users/{SECRET}/messages")
    await client.get(f"/{SECRET}")
    await client.request(SECRET.upper(), "/healthz")
    await traced.client(f"mr_{SECRET}_{SECRET}").get("/v1/users/ann/messages")

    await wait_until(lambda: sum(span.kind is SpanKind.SERVER for span in recorder.spans) == 11)
    spans = recorder.spans
    exported = json.dumps([json.loads(span.to_json()) for span in spans]).lower()
    assert SECRET not in exported
    assert "ann" not in exported
    assert client.headers["authorization"].split("_", 2)[2].lower() not in exported
    names = [span.name for span in spans]
    assert {name for name in names if name.startswith("GET")} == {
        "GET",
        "GET /v1/users/{user_id}/messages",
        "GET /v1/users/{user_id}/messages/{message_id}/neighbors",
    }
    modes = [(span.attributes or {}).get("memrecall.search.mode") for span in spans]
    assert modes.count("lexical") == 2
    assert modes.count("semantic") == 1


async def test_log_names_the_trace(
    traced: HttpService, recorder: SpanRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "memrecall")
    await traced.client().get("/healthz")
    span = await last_span(recorder, "GET /healthz")
    assert span.context is not None
    (line,) = [record for record in caplog.records if record.message == "request"]
    assert vars(line)["fields"]["trace_id"] == f"{span.context.trace_id:032x}"


async def test_bug_is_recorded_as_span_error(
    traced: HttpService, recorder: SpanRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await with_tea(traced)

    async def broken(*_: Any) -> None:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(traced.library, "find_messages", broken)
    body = {"user_id": "ann", "query_text": "tea"}
    check_error(await client.post("/v1/messages/lexical_search", json=body), 500, "INTERNAL")
    request = await last_span(recorder, "POST /v1/messages/lexical_search")
    assert (request.attributes or {})["error.type"] == "500"
    assert SECRET not in request.to_json()


class Collector(HTTPServer):
    """An OpenTelemetry collector that stores the received spans."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.batches: list[tuple[str, bytes]] = []

    def spans(self) -> Iterator[tuple[str, str]]:
        """Yield the service and the name of every received span."""
        for path, body in self.batches:
            assert path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = {item.key: item.value.string_value for item in resource.resource.attributes}
                for scope in resource.scope_spans:
                    yield from ((about["service.name"], span.name) for span in scope.spans)


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Collector)
        self.server.batches.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


@pytest.mark.service
@pytest.mark.concurrent
def test_spans_are_exported_before_shutdown(tmp_path: Path) -> None:
    with collecting() as collector:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
            "OTEL_SERVICE_NAME": "our-memory",
            "MEMRECALL_TELEMETRY": "1",
            **WITHOUT_DASHBOARD,
        }
        with run_server(tmp_path, "--db", tmp_path / "a.db", **variables) as server:
            assert httpx.get(f"{server.url}/healthz", timeout=TIMEOUT).status_code == 200
            assert server.stop() == 0
        assert list(collector.spans()) == [("our-memory", "GET /healthz")]


@pytest.mark.service
@pytest.mark.concurrent
def test_telemetry_is_off_by_default(tmp_path: Path) -> None:
    with collecting() as collector:
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "FASTAPI_OTEL_AUTO_CONFIGURE": "true",
            **WITHOUT_DASHBOARD,
        }
        with run_server(tmp_path, "--db", tmp_path / "a.db", **variables) as server:
            assert httpx.get(f"{server.url}/healthz", timeout=TIMEOUT).status_code == 200
            assert server.stop() == 0
        assert not collector.batches


@pytest.mark.service
@pytest.mark.concurrent
def test_missing_exporter_is_reported_at_start(tmp_path: Path) -> None:
    """Both the flag and the environment variable enable telemetry."""
    flags = ("serve", "--port", 0, "--telemetry", "--db", tmp_path / "a.db")
    completed = run_command(tmp_path, *flags, OTEL_TRACES_EXPORTER="jaeger", **WITHOUT_DASHBOARD)
    assert completed.returncode == 2
    assert "OTEL_TRACES_EXPORTER 'jaeger' is not known" in completed.stderr
