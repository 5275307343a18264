"""What the service counts, for Prometheus. One registry an application: nothing is global."""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from memrecall.agent import RecallResult
from memrecall.server.counters import Tally

MEDIA_TYPE = CONTENT_TYPE_LATEST
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)
_SEARCHES = frozenset({"/v1/messages/lexical_search", "/v1/messages/semantic_search"})
_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})


class Metrics:
    """Counters and histograms of one application."""

    def __init__(self, index_bytes: Callable[[], float], tally: Tally | None = None) -> None:
        self._tally = tally
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "memrecall_http_requests",
            "Requests by route and status (0: the client went away).",
            ["method", "route", "status"],
            registry=registry,
        )
        self._latency = Histogram(
            "memrecall_http_request_seconds",
            "Time from a request's head to the end of its answer.",
            ["route"],
            buckets=_FAST,
            registry=registry,
        )
        self._searches = Counter(
            "memrecall_searches", "Searches of messages.", ["kind"], registry=registry
        )
        self._stored = Counter(
            "memrecall_messages_stored", "Messages that were new.", registry=registry
        )
        self._make_recall_metrics(registry)
        indexes = Gauge("memrecall_index_bytes", "Memory of the users' indexes.", registry=registry)
        indexes.set_function(index_bytes)

    def _make_recall_metrics(self, registry: CollectorRegistry) -> None:
        self._recalls = Counter(
            "memrecall_recalls", "Recalls by how they ended.", ["stop_reason"], registry=registry
        )
        self._recall_seconds = Histogram(
            "memrecall_recall_seconds", "Time of a recall.", buckets=_SLOW, registry=registry
        )
        self._refused = Counter(
            "memrecall_recalls_refused", "Recalls that found the queue full.", registry=registry
        )
        self._leaks = Counter(
            "memrecall_leaks",
            "Tool calls that a model wrote as text, by their form.",
            ["family"],
            registry=registry,
        )
        self.running = Gauge(
            "memrecall_recalls_running", "Recalls and chat turns under way.", registry=registry
        )
        self._turns = Counter(
            "memrecall_chat_turns", "Chat turns by how they ended.", ["outcome"], registry=registry
        )
        self._turn_seconds = Histogram(
            "memrecall_chat_turn_seconds", "Time of a chat turn.", buckets=_SLOW, registry=registry
        )

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request is over."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._latency.labels(route).observe(seconds)
        if self._tally is not None:
            if route in _SEARCHES:
                self._tally.add_time("search_seconds", seconds)
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                self._tally.add("errors", str(status))

    def count_search(self, kind: str) -> None:
        """Messages were searched for."""
        self._searches.labels(kind).inc()
        self._note("searches", kind)

    def count_stored(self, messages: int) -> None:
        """Messages were written."""
        self._stored.inc(messages)

    def count_recall(self, stop_reason: str, seconds: float | None = None) -> None:
        """A recall is over; one that was cancelled has no time of its own."""
        self._recalls.labels(stop_reason).inc()
        self._note("recalls", stop_reason)
        if seconds is not None:
            self._recall_seconds.observe(seconds)
            if self._tally is not None:
                self._tally.add_time("recall_seconds", seconds)

    def count_result(self, result: RecallResult) -> None:
        """What a recall came to."""
        if self._tally is not None:
            self._tally.add_recall(result)

    def count_turn(self, outcome: str, seconds: float) -> None:
        """A chat turn is over."""
        self._turns.labels(outcome).inc()
        self._note("turns", outcome)
        self._turn_seconds.observe(seconds)

    def count_refusal(self) -> None:
        """A recall was turned away."""
        self._refused.inc()

    def count_leak(self, family: str) -> None:
        """A model wrote a tool call as text."""
        self._leaks.labels(family).inc()
        self._note("leaks", family)

    def _note(self, name: str, label: str) -> None:
        if self._tally is not None:
            self._tally.add(name, label)

    def render(self) -> bytes:
        """All of it in Prometheus's text format."""
        text: Any = generate_latest(_Plain(self._registry))
        return bytes(text)


class _Plain(Collector):
    """A registry's metrics without the `_created` series, which only double their number."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric
