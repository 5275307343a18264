"""Spans: names, attributes, propagation, and no cost without a tracer."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from memrecall.errors import InvalidArgument
from memrecall.memory import recall
from memrecall.telemetry import (
    export_spans,
    trace_model,
    trace_request,
    trace_search,
    trace_tool,
    tracing,
)
from memrecall.testing import ScriptedClient, call, open_library

SECRET = "zqsecretzq"


class SpanRecorder:
    """A tracer and the spans it has recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("tests")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()


@pytest.fixture
def recorder() -> SpanRecorder:
    return SpanRecorder()


def test_spans_without_tracer_are_one_inert_span() -> None:
    spans = [
        trace_request("GET", []),
        trace_search("hybrid", SECRET, 10),
        trace_model("m", "openai", "recall"),
        trace_tool("handoff", "c1"),
    ]
    assert len(set(map(id, spans))) == 1
    with spans[0] as span:
        span.set({"a": 1})
        span.fail("x")
        span.answer("GET", "/", 200)
        assert span.trace_id is None


def test_span_names_and_attributes_follow_conventions(recorder: SpanRecorder) -> None:
    with tracing(recorder.tracer), trace_request("POST", []) as request:
        with trace_model("gpt", "openai", "recall") as model:
            model.set({"gen_ai.usage.input_tokens": 3})
        with trace_tool("search_memories", "c1"), trace_search("hybrid", SECRET, 10) as search:
            search.set({"memrecall.search.results": 2})
        request.answer("POST", "/v1/users/{user_id}/recall", 200)

    chat, retrieval, tool, server = recorder.spans
    assert (chat.name, chat.kind) == ("chat gpt", SpanKind.CLIENT)
    assert dict(chat.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt",
        "gen_ai.prompt.name": "recall",
        "gen_ai.usage.input_tokens": 3,
    }
    assert (tool.name, tool.kind) == ("execute_tool search_memories", SpanKind.INTERNAL)
    assert dict(tool.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search_memories",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
    }
    assert retrieval.name == "retrieval memrecall"
    assert dict(retrieval.attributes or {}) == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": "memrecall",
        "gen_ai.request.top_k": 10,
        "memrecall.search.mode": "hybrid",
        "memrecall.search.query_characters": len(SECRET),
        "memrecall.search.results": 2,
    }
    assert (server.name, server.kind) == ("POST /v1/users/{user_id}/recall", SpanKind.SERVER)
    assert dict(server.attributes or {}) == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "http.route": "/v1/users/{user_id}/recall",
        "http.response.status_code": 200,
    }


def test_failed_span_has_error_type_without_message(recorder: SpanRecorder) -> None:
    with (
        pytest.raises(ValueError, match=SECRET),
        tracing(recorder.tracer),
        trace_tool("handoff", "c1"),
    ):
        raise ValueError(SECRET)
    (span,) = recorder.spans
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert not span.events
    assert SECRET not in span.to_json()


@pytest.mark.parametrize(
    ("status", "error"), [(200, None), (404, None), (500, "500"), (503, "503"), (0, "client_gone")]
)
def test_request_span_fails_on_server_errors_only(
    recorder: SpanRecorder, status: int, error: str | None
) -> None:
    with tracing(recorder.tracer), trace_request("GET", []) as span:
        span.answer("GET", "", status)
    (request,) = recorder.spans
    assert request.name == "GET"
    assert (request.attributes or {}).get("error.type") == error
    assert (request.status.status_code is StatusCode.ERROR) == (error is not None)


def test_unknown_http_method_is_replaced(recorder: SpanRecorder) -> None:
    with tracing(recorder.tracer), trace_request(SECRET, []) as span:
        span.answer(SECRET, "/healthz", 405)
    (request,) = recorder.spans
    assert request.name == "HTTP /healthz"
    assert (request.attributes or {})["http.request.method"] == "_OTHER"
    assert SECRET not in request.to_json()


def test_request_span_continues_trace_of_caller(recorder: SpanRecorder) -> None:
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = [(b"traceparent", f"00-{trace_id}-{span_id}-01".encode()), (b"x", b"\xff")]
    with tracing(recorder.tracer), trace_request("GET", headers) as span:
        assert span.trace_id == trace_id
    (request,) = recorder.spans
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == span_id


def test_unsampled_spans_work() -> None:
    tracer = TracerProvider(sampler=ALWAYS_OFF).get_tracer("tests")
    with tracing(tracer), trace_request("GET", []) as span:
        span.set({"a": 1})
        span.answer("GET", "/x", 500)


@pytest.mark.concurrent
async def test_tasks_and_threads_inherit_tracer(recorder: SpanRecorder) -> None:
    async def search() -> None:
        with trace_search("keyword", "x", 1):
            await asyncio.sleep(0)

    def search_in_a_thread() -> None:
        with trace_search("keyword", "x", 1):
            pass

    with tracing(recorder.tracer), trace_tool("search_memories", "c1"):
        await asyncio.gather(search(), search(), asyncio.to_thread(search_in_a_thread))
    with trace_search("keyword", "nobody listens any more", 1):
        pass

    *searches, tool = recorder.spans
    assert len(searches) == 3
    assert tool.context is not None
    assert all(span.parent and span.parent.span_id == tool.context.span_id for span in searches)


async def test_global_provider_gets_the_spans_of_a_recall(
    recorder: SpanRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process can set its provider only once, so that the test replaces what the setter sets.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", recorder.provider)
    async with open_library(messages=["My tea is oolong"]) as library:
        done = {"reason": "done", "search_summary": "tea", "confidence": 0.0}
        model = ScriptedClient([call("search_memories", query="tea"), call("handoff", **done)])
        request = "Which tea did I mention before?"
        await recall(request, user_id="user", library=library, model_client=model)
    roots = [span.name for span in recorder.spans if span.parent is None]
    assert roots == ["invoke_agent memrecall"]  # one trace for all of a recall
    names = {span.name for span in recorder.spans}
    assert {"execute_tool search_memories", "retrieval memrecall"} <= names
    assert any(name.startswith("chat ") for name in names)
    scopes = {span.instrumentation_scope for span in recorder.spans}
    assert "memrecall" in {scope.name for scope in scopes if scope}
    count = len(recorder.spans)
    with tracing(SpanRecorder().tracer), trace_tool("handoff", "c1"):
        pass  # a block's tracer comes first
    assert len(recorder.spans) == count


@pytest.mark.service
@pytest.mark.concurrent
def test_opentelemetry_is_not_imported_without_tracer(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from memrecall import Library, NewMessage, Scope, SearchRequest, Settings

def loaded(name):
    return sorted(module for module in sys.modules if module.startswith(name))

async def main():
    async with await Library.open(Settings(db=sys.argv[1], embedder="hash")) as library:
        await library.add_messages(Scope("a"), [NewMessage(role="user", content="tea")])
        assert (await library.search(Scope("a"), SearchRequest("tea"))).results
    assert not loaded("opentelemetry"), loaded("opentelemetry")
    import memrecall.server  # its framework imports the API, but not the SDK
    assert not loaded("opentelemetry.sdk") + loaded("opentelemetry.exporter")

asyncio.run(main())
"""
    call = [sys.executable, "-c", program, str(tmp_path / "a.db")]
    process = subprocess.run(call, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_TRACES_EXPORTER", "jaeger"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
)
def test_unknown_exporter_is_rejected(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidArgument, match=f"{value!r} is not known"), export_spans("1"):
        pass


def test_missing_telemetry_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    hint = r"pip install 'memrecall-agent\[telemetry\]'"
    with pytest.raises(InvalidArgument, match=hint), export_spans("1"):
        pass


def test_environment_overrides_service_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    for name, expected in (("", "memrecall"), ("our-memory", "our-memory")):
        monkeypatch.setenv("OTEL_SERVICE_NAME", name)
        with export_spans("1.2.3") as tracer, tracer.start_as_current_span("x") as span:
            assert isinstance(span, ReadableSpan)
            assert span.resource.attributes["service.name"] == expected
            assert span.resource.attributes["service.version"] == "1.2.3"
