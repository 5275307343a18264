"""The log of server processes, and OpenTelemetry spans of HTTP servers and generative AI.

Spans go to the tracer of the enclosing block (`with tracing(tracer): …`), or else to the global
provider if the application has set one. Otherwise nothing is recorded or imported, and a span costs
next to nothing.

A span contains names, numbers and codes, but no contents, queries, results or user ids: neither in
attributes nor as the message of an exception.
"""

import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from memrecall.errors import InvalidArgument, requires_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer, TracerProvider

_Kind = Literal["CLIENT", "INTERNAL", "SERVER"]

NAME = "memrecall"
_PROTOCOL = "http/protobuf"
_FIRST_SERVER_ERROR = 500
_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})

_to_json = json.JSONEncoder(ensure_ascii=False, default=str).encode
_tracer: ContextVar["Tracer | None"] = ContextVar("memrecall_tracer", default=None)


class ActiveSpan:
    """A span in progress; without a tracer it ignores everything."""

    __slots__ = ("_span",)

    def __init__(self, span: "Span | None") -> None:
        self._span = span

    @property
    def trace_id(self) -> str | None:
        """The id of the trace in hexadecimal digits."""
        return f"{self._span.get_span_context().trace_id:032x}" if self._span else None

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes."""
        if self._span is not None:
            self._span.set_attributes(attributes)

    def fail(self, kind: str) -> None:
        """Mark the span as failed, with a code or the name of an error type."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(StatusCode.ERROR)

    def answer(self, method: str, route: str, status: int) -> None:
        """Record the route and status of a response; status 0 means the client disconnected."""
        if self._span is None:
            return
        if route:
            self._span.update_name(f"{_standard_method(method, 'HTTP')} {route}")
            self._span.set_attribute("http.route", route)
        if status:
            self._span.set_attribute("http.response.status_code", status)
        if not status or status >= _FIRST_SERVER_ERROR:
            self.fail(str(status) if status else "client_gone")


_NO_SPAN = nullcontext(ActiveSpan(None))


@contextmanager
def tracing(tracer: "Tracer | None") -> Iterator[None]:
    """Record the spans of this block and of the tasks it starts with a tracer.

    None means the global provider's tracer.
    """
    token = _tracer.set(tracer)
    try:
        yield
    finally:
        _tracer.reset(token)


def _find_tracer() -> "Tracer | None":
    """Return the tracer of this block, else the global provider's, else None."""
    tracer = _tracer.get()
    # An application that has set a provider has imported the API.
    api = sys.modules.get("opentelemetry.trace")
    if tracer is not None or api is None:
        return tracer
    provider = api.get_tracer_provider()
    return None if isinstance(provider, api.ProxyTracerProvider) else _get_tracer(provider)


@lru_cache(maxsize=1)
def _get_tracer(provider: "TracerProvider") -> "Tracer":
    return provider.get_tracer(NAME)


def trace_request(
    method: str, headers: Iterable[tuple[bytes, bytes]]
) -> AbstractContextManager[ActiveSpan]:
    """Start the span of an HTTP request, within the caller's trace if its headers name one."""
    tracer = _find_tracer()
    if tracer is None:
        return _NO_SPAN
    from opentelemetry.propagate import extract

    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    attributes = {"http.request.method": _standard_method(method, "_OTHER"), "url.scheme": "http"}
    return _span(tracer, _standard_method(method, "HTTP"), "SERVER", attributes, extract(carrier))


def _standard_method(method: str, otherwise: str) -> str:
    return method if method in _METHODS else otherwise


def trace_search(mode: str, query: str, limit: int) -> AbstractContextManager[ActiveSpan]:
    """Start the span of a search; only the length of the query is recorded."""
    attributes = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": NAME,
        "gen_ai.request.top_k": limit,
        "memrecall.search.mode": mode,
        "memrecall.search.query_characters": len(query),
    }
    return _trace(f"retrieval {NAME}", "INTERNAL", attributes)


def trace_recall() -> AbstractContextManager[ActiveSpan]:
    """Start the span of a recall, the parent of its model calls and tool calls."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": NAME}
    return _trace(f"invoke_agent {NAME}", "INTERNAL", attributes)


def trace_model(model: str, provider: str, prompt: str) -> AbstractContextManager[ActiveSpan]:
    """Start the span of a model call with the prompt of that name."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.prompt.name": prompt,
    }
    return _trace(f"chat {model}", "CLIENT", attributes)


def trace_tool(tool: str, call_id: str) -> AbstractContextManager[ActiveSpan]:
    """Start the span of a tool call."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call_id,
    }
    return _trace(f"execute_tool {tool}", "INTERNAL", attributes)


def _trace(
    name: str, kind: _Kind, attributes: Mapping[str, Any]
) -> AbstractContextManager[ActiveSpan]:
    tracer = _find_tracer()
    return _NO_SPAN if tracer is None else _span(tracer, name, kind, attributes)


@contextmanager
def _span(
    tracer: "Tracer", name: str, kind: _Kind, attributes: Mapping[str, Any], parent: Any = None
) -> Iterator[ActiveSpan]:
    from opentelemetry.trace import SpanKind

    with tracer.start_as_current_span(
        name,
        context=parent,
        kind=SpanKind[kind],
        attributes=attributes,
        record_exception=False,  # The message may quote contents.
        set_status_on_exception=False,
    ) as span:
        active = ActiveSpan(span)
        try:
            yield active
        except BaseException as error:
            active.fail(type(error).__name__)
            raise


@contextmanager
def export_spans(version: str) -> Iterator["Tracer"]:
    """Yield a tracer that exports as the OTEL_ variables say; flush it at the end."""
    with requires_extra("telemetry", "telemetry", "opentelemetry"):
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporters = _exporters()
    resource = Resource.create({"service.name": NAME, "service.version": version})
    # Resource attributes from the environment take precedence.
    resource = resource.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer(NAME, version)
    finally:
        provider.shutdown()


def _exporters() -> Sequence["SpanExporter"]:
    name = os.environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if name == "none":
        return ()
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return (ConsoleSpanExporter(out=sys.stderr),)
    if name != "otlp":
        raise InvalidArgument(
            f"OTEL_TRACES_EXPORTER {name!r} is not known", hint="Use otlp, console or none"
        )
    variables = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next(filter(None, map(os.environ.get, variables)), _PROTOCOL)
    if protocol != _PROTOCOL:
        raise InvalidArgument(f"the protocol {protocol!r} is not known", hint=f"Use {_PROTOCOL}")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return (OTLPSpanExporter(),)


class JsonLineFormatter(logging.Formatter):
    """Formats a record as one line of JSON with time, level, logger, event and fields."""

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._fields = fields or {}  # of every line

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; of an exception only its type and place: its message may quote content.

        Further lines of a message are left out for the same reason: asyncio shows the exception of
        a task there, and Python the source of a warning.
        """
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage().partition("\n")[0],
            **self._fields,
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line |= describe_exception(record.exc_info[1])
        return _to_json(line)


def log_to_stderr(fields: Mapping[str, Any] | None = None) -> None:
    """Write all logs, warnings and uncaught exceptions to stderr as JSON lines.

    The fields are added to every line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLineFormatter(fields))
    levels = {
        "": logging.WARNING,  # all libraries
        "memrecall": logging.INFO,
        "asyncio": logging.ERROR,  # it warns of clients that have disconnected
        "nicegui": logging.CRITICAL,  # it quotes user content; the dashboard logs errors itself
    }
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().handlers = [handler]
    logging.captureWarnings(True)
    sys.excepthook = lambda _kind, error, _trace: _log_uncaught(error)
    threading.excepthook = lambda arguments: _log_uncaught(arguments.exc_value)
    sys.unraisablehook = lambda arguments: _log_uncaught(arguments.exc_value)


def _log_uncaught(error: BaseException | None) -> None:
    logging.getLogger("memrecall").error("uncaught exception", exc_info=error)


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Return the type of an exception and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    locations = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "at": locations}
