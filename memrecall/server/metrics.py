"""Prometheus metrics, and usage counters that are stored for the dashboard.

Each application has its own registry: nothing is global.
"""

import asyncio
import logging
import os
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
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
from memrecall.errors import MemrecallError
from memrecall.store import Counters, TraceSummary

log = logging.getLogger("memrecall.server")

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
BEYOND = "more"
FLUSH_SECONDS = 5.0
LEVEL_SECONDS = 300.0
STATES = ("ready", "read-only", "unavailable")  # of a service
_LABELS = tuple(f"{bound:g}" for bound in BOUNDS)
_TENTHS = tuple(f"{tenth / 10:.1f}" for tenth in range(11))
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)
_SEARCHES = frozenset({"/v1/messages/lexical_search", "/v1/messages/semantic_search"})
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # where several workers write their values
_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})


disable_created_metrics()  # type: ignore[no-untyped-call]  # They only double the series.


def latency_label(seconds: float) -> str:
    """Return the label of a duration's histogram bucket: its upper bound."""
    position = bisect_left(BOUNDS, seconds)
    return _LABELS[position] if position < len(BOUNDS) else BEYOND


def confidence_label(confidence: float) -> str:
    """Return the label of a confidence's histogram bucket: its lower bound in tenths."""
    return _TENTHS[min(int(confidence * 10 + 1e-9), 9)]


def recall_labels(recall: RecallResult | TraceSummary) -> dict[str, str]:
    """Return the labels under which the outcome of a recall is counted, by counter."""
    return {
        "iterations": str(recall.iterations),
        "confidence": confidence_label(recall.confidence),
        "abstained": "yes" if recall.abstained else "no",
    }


def estimate_percentile(counts: Mapping[str, int], share: float) -> float | None:
    """Return a percentile in seconds, interpolated within its bucket; None without counts."""
    total = sum(counts.values())
    if not total:
        return None
    rank = share * total
    below = 0
    low = 0.0
    for label, bound in zip(_LABELS, BOUNDS, strict=True):
        inside = counts.get(label, 0)
        if inside and below + inside >= rank:
            return low + (bound - low) * max(rank - below, 0.0) / inside
        below += inside
        low = bound
    return BOUNDS[-1]


class CounterBuffer:
    """Counts in memory and writes them to the store from time to time."""

    def __init__(self, counters: Counters, keep_days: int) -> None:
        self._counters = counters
        self._keep_days = keep_days
        self._pending: dict[tuple[str, str], tuple[int, float]] = {}

    def add(self, name: str, label: str = "", count: int = 1, total: float = 0.0) -> None:
        """Count an event."""
        before = self._pending.get((name, label), (0, 0.0))
        self._pending[name, label] = (before[0] + count, before[1] + total)

    async def flush(self) -> None:
        """Write the pending counts; keep them for the next flush if that fails."""
        pending, self._pending = self._pending, {}
        if not pending:
            return
        try:
            await self._counters.add(pending, datetime.now(UTC), self._keep_days)
        except MemrecallError as error:
            log.warning("counters not written", extra={"fields": {"error": type(error).__name__}})
            for (name, label), (count, total) in pending.items():
                self.add(name, label, count, total)

    async def measure_levels(self) -> None:
        """Write how many users, messages and memories are stored now."""
        try:
            levels = await self._counters.measure_levels()
            await self._counters.set_levels(levels, datetime.now(UTC), self._keep_days)
        except MemrecallError as error:
            log.warning("gauges not updated", extra={"fields": {"error": type(error).__name__}})

    @asynccontextmanager
    async def running(self, *, with_levels: bool = True) -> AsyncIterator[None]:
        """Flush periodically while the block runs, and once at its end; measure levels if asked."""
        task = asyncio.ensure_future(self._run(with_levels))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self.flush()

    async def _run(self, with_levels: bool) -> None:
        seconds_to_measurement = 0.0
        while True:
            if with_levels and seconds_to_measurement <= 0:
                await self.measure_levels()
                seconds_to_measurement = LEVEL_SECONDS
            await asyncio.sleep(FLUSH_SECONDS)
            seconds_to_measurement -= FLUSH_SECONDS
            await self.flush()


class Metrics:
    """Counters and histograms of one application."""

    def __init__(
        self,
        index_bytes: Callable[[], float],
        rows_to_embed: Callable[[], tuple[int, int]],
        counters: CounterBuffer | None = None,
    ) -> None:
        self._counters = counters
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
        self._searches = counter("memrecall_searches", "Searches of messages.", ["kind"])
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
        if route in _SEARCHES:
            self._store_duration("search_seconds", seconds)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._store("errors", str(status))

    def count_search(self, kind: str) -> None:
        """Count a search of messages or memories."""
        self._searches.labels(kind).inc()
        self._store("searches", kind)

    def count_recall(self, stop_reason: str, result: RecallResult | None = None) -> None:
        """Count a finished recall and its outcome; a cancelled one has no result."""
        self._recalls.labels(stop_reason).inc()
        self._store("recalls", stop_reason)
        if result is None:
            return
        seconds = float(result.usage["seconds"])
        self._recall_seconds.observe(seconds)
        self._store_duration("recall_seconds", seconds)
        for name, label in recall_labels(result).items():
            self._store(name, label)
        self._store("windows", str(max(result.windows)))

    def count_turn(self, outcome: str, seconds: float) -> None:
        """Count a finished chat turn."""
        self._turns.labels(outcome).inc()
        self._store("turns", outcome)
        self._turn_seconds.observe(seconds)

    def count_leak(self, family: str) -> None:
        """Count a tool call that a model wrote as text."""
        self._leaks.labels(family).inc()
        self._store("leaks", family)

    def _store(self, name: str, label: str) -> None:
        if self._counters is not None:
            self._counters.add(name, label)

    def _store_duration(self, name: str, seconds: float) -> None:
        if self._counters is not None:
            self._counters.add(name, latency_label(seconds), total=seconds)

    def measure(self, state: str) -> None:
        """Update what is not counted when it happens."""
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
