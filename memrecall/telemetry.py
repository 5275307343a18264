"""Spans for OpenTelemetry, by its conventions for HTTP servers and for generative AI.

Work is told to the tracer of the block that it runs in (`with tracing(tracer): …`). Outside of such
a block nothing is told, nothing is imported, and a span costs a look at a variable.

A span has names, numbers and codes. What was said, asked, found or stored is in none, nor is whose
it was: not in attributes, not as the message of an exception.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from memrecall.errors import InvalidArgument

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

NAME = "memrecall"
_PROTOCOL = "http/protobuf"
_LEAST_SERVER_ERROR = 500
_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})

_tracer: ContextVar["Tracer | None"] = ContextVar("memrecall_tracer", default=None)


class ActiveSpan:
    """A span under way. The one that nobody listens to takes everything and keeps nothing."""

    __slots__ = ("_span",)

    def __init__(self, span: "Span | None") -> None:
        self._span = span

    @property
    def trace_id(self) -> str | None:
        """The id of the whole trace, as other tools write it."""
        return f"{self._span.get_span_context().trace_id:032x}" if self._span else None

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes."""
        if self._span is not None:
            self._span.set_attributes(attributes)

    def fail(self, kind: str) -> None:
        """Say that it went wrong, by a code or the name of a type."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(StatusCode.ERROR)

    def answer(self, method: str, route: str, status: int) -> None:
        """Say by which route a request was answered, if any, and how; 0: nobody waited for it."""
        if self._span is None:
            return
        if route:
            self._span.update_name(f"{_known(method, 'HTTP')} {route}")
            self._span.set_attribute("http.route", route)
        if status:
            self._span.set_attribute("http.response.status_code", status)
        if not status or status >= _LEAST_SERVER_ERROR:
            self.fail(str(status) if status else "client_gone")


class _Nobody(AbstractContextManager[ActiveSpan]):
    """Stands where a span would."""

    _told = ActiveSpan(None)

    def __enter__(self) -> ActiveSpan:
        return self._told

    def __exit__(self, *_: object) -> None:
        return None


_NOBODY = _Nobody()


@contextmanager
def tracing(tracer: "Tracer | None") -> Iterator[None]:
    """Tell the work of this block, and of the tasks it starts, to a tracer (None: to nobody)."""
    token = _tracer.set(tracer)
    try:
        yield
    finally:
        _tracer.reset(token)


def trace_request(
    method: str, headers: Iterable[tuple[bytes, bytes]]
) -> AbstractContextManager[ActiveSpan]:
    """A request to the service, as a part of its caller's trace if it says so."""
    tracer = _tracer.get()
    if tracer is None:
        return _NOBODY
    from opentelemetry.propagate import extract

    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    attributes = {"http.request.method": _known(method, "_OTHER"), "url.scheme": "http"}
    return _span(tracer, _known(method, "HTTP"), "SERVER", attributes, extract(carrier))


def _known(method: str, otherwise: str) -> str:
    """A request's method, unless somebody made it up."""
    return method if method in _METHODS else otherwise


def trace_search(mode: str, query: str, most: int) -> AbstractContextManager[ActiveSpan]:
    """A search for at most so many rows; of the query its length alone is told."""
    tracer = _tracer.get()
    if tracer is None:
        return _NOBODY
    attributes = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": NAME,
        "gen_ai.request.top_k": most,
        "memrecall.search.mode": mode,
        "memrecall.search.query_characters": len(query),
    }
    return _span(tracer, f"retrieval {NAME}", "INTERNAL", attributes)


def trace_model(model: str, provider: str, prompt: str) -> AbstractContextManager[ActiveSpan]:
    """A call of a model with the prompt of that name."""
    tracer = _tracer.get()
    if tracer is None:
        return _NOBODY
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.prompt.name": prompt,
    }
    return _span(tracer, f"chat {model}", "CLIENT", attributes)


def trace_tool(tool: str, call_id: str) -> AbstractContextManager[ActiveSpan]:
    """A call of a tool."""
    tracer = _tracer.get()
    if tracer is None:
        return _NOBODY
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call_id,
    }
    return _span(tracer, f"execute_tool {tool}", "INTERNAL", attributes)


@contextmanager
def _span(
    tracer: "Tracer",
    name: str,
    kind: Literal["CLIENT", "INTERNAL", "SERVER"],
    attributes: Mapping[str, Any],
    parent: Any = None,
) -> Iterator[ActiveSpan]:
    from opentelemetry.trace import SpanKind

    with tracer.start_as_current_span(
        name,
        context=parent,
        kind=SpanKind[kind],
        attributes=attributes,
        record_exception=False,  # its message may quote contents
        set_status_on_exception=False,
    ) as span:
        told = ActiveSpan(span)
        try:
            yield told
        except BaseException as error:
            told.fail(type(error).__name__)
            raise


@contextmanager
def exporting(version: str) -> Iterator["Tracer"]:
    """A tracer whose spans go where the OTEL_ variables say, the last ones at the block's end."""
    try:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporters = _exporters()
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        raise InvalidArgument(
            f"telemetry needs {error.name}, which is not installed",
            hint="pip install 'memrecall[telemetry]'",
        ) from None
    about = Resource.create({"service.name": NAME, "service.version": version})
    about = about.merge(OTELResourceDetector().detect())  # which knows a service better than we do
    provider = TracerProvider(resource=about, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer(NAME, version)
    finally:
        provider.shutdown()


def _exporters() -> Sequence["SpanExporter"]:
    named = os.environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if named == "none":
        return ()
    if named == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return (ConsoleSpanExporter(out=sys.stderr),)
    if named != "otlp":
        raise InvalidArgument(
            f"OTEL_TRACES_EXPORTER {named!r} is not known", hint="Use otlp, console or none"
        )
    both = (os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL") for signal in ("TRACES_", ""))
    protocol = next(filter(None, both), _PROTOCOL)
    if protocol != _PROTOCOL:
        raise InvalidArgument(f"the protocol {protocol!r} is not known", hint=f"Use {_PROTOCOL}")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return (OTLPSpanExporter(),)
