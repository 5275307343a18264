"""Prometheus metrics.

Each application has its own registry: nothing is global.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from memrecall.agent import RecallResult

STATES = ("ready", "read-only", "unavailable")  # of a service
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # where several workers write their values
_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})


disable_created_metrics()  # type: ignore[no-untyped-call]  # They only double the series.


class Metrics:
    """Counters and histograms of one application."""

    def __init__(
        self, index_bytes: Callable[[], float], rows_to_embed: Callable[[], tuple[int, int]]
    ) -> None:
        self._index_bytes = index_bytes
        self._rows_to_embed = rows_to_embed
        self._registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        # The environment decides whether the values are in files that all workers read.
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livesum")
        histogram = partial(Histogram, registry=registry)
        ProcessCollector(registry=registry)
        self._requests = counter(
            "memrecall_http_requests",
            "Requests by route and status (0: the client disconnected).",
            ["method", "route", "status"],
        )
        self._latency = histogram(
            "memrecall_http_request_seconds",
            "Time from the head of a request to the end of its response.",
            ["route"],
            buckets=_FAST,
        )
        self.searches = counter("memrecall_searches", "Searches of messages.", ["kind"])
        self.stored = counter("memrecall_messages_stored", "New messages stored.")
        self._recalls = counter("memrecall_recalls", "Recalls by stop reason.", ["stop_reason"])
        self._recall_seconds = histogram(
            "memrecall_recall_seconds", "Duration of a recall.", buckets=_SLOW
        )
        self.refused = counter("memrecall_recalls_refused", "Recalls refused by a full queue.")
        self.limited = counter(
            "memrecall_requests_limited", "Requests refused by a rate limit.", ["by"]
        )
        self._leaks = counter(
            "memrecall_leaks", "Tool calls that a model wrote as text, by their form.", ["family"]
        )
        self.running = gauge("memrecall_recalls_running", "Running recalls and chat turns.")
        self._turns = counter("memrecall_chat_turns", "Chat turns by outcome.", ["outcome"])
        self._turn_seconds = histogram(
            "memrecall_chat_turn_seconds", "Duration of a chat turn.", buckets=_SLOW
        )
        self._indexes = gauge("memrecall_index_bytes", "Memory of the users' indexes.")
        self._backlog = gauge("memrecall_rows_to_embed", "Stored rows that wait for their vectors.")
        self._largest_backlog = gauge(
            "memrecall_rows_to_embed_largest",
            "The same, of the user with the most of them.",
            multiprocess_mode="livemax",
        )
        self._states = gauge("memrecall_state", "Processes that are in this state.", ["state"])

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        label = method if method in _METHODS else "other"
        self._requests.labels(label, route, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def count_recall(self, stop_reason: str, result: RecallResult | None = None) -> None:
        """Count a finished recall and its duration; a cancelled one has no result."""
        self._recalls.labels(stop_reason).inc()
        if result is not None:
            self._recall_seconds.observe(float(result.usage["seconds"]))

    def count_turn(self, outcome: str, seconds: float) -> None:
        """Count a finished chat turn."""
        self._turns.labels(outcome).inc()
        self._turn_seconds.observe(seconds)

    def count_leak(self, family: str) -> None:
        """Count a tool call that a model wrote as text."""
        self._leaks.labels(family).inc()

    def measure(self, state: str) -> None:
        """Refresh the gauges."""
        self._indexes.set(self._index_bytes())
        total, largest = self._rows_to_embed()
        self._backlog.set(total)
        self._largest_backlog.set(largest)
        for name in STATES:
            self._states.labels(name).set(name == state)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus, summed over the workers."""
        registry = self._registry
        if _FOLDER_VARIABLE in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        text: Any = generate_latest(registry)
        return bytes(text)
