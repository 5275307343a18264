"""Usage counters: histogram labels, percentiles and periodic writes."""

import math
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from memrecall.errors import StorageBusy
from memrecall.server import metrics as metrics_module
from memrecall.server.metrics import (
    BOUNDS,
    CounterBuffer,
    confidence_label,
    estimate_percentile,
    latency_label,
)
from memrecall.store import Store
from memrecall.store.counters import HOUR

times = st.lists(st.floats(0.0, 119.0), min_size=1, max_size=60)


@given(times, st.sampled_from([0.5, 0.95, 0.99]))
def test_estimated_percentile_is_in_the_right_bucket(seconds: list[float], share: float) -> None:
    counts: dict[str, int] = {}
    for duration in seconds:
        counts[latency_label(duration)] = counts.get(latency_label(duration), 0) + 1
    true = sorted(seconds)[max(math.ceil(share * len(seconds)) - 1, 0)]
    estimate = estimate_percentile(counts, share)
    assert estimate is not None
    upper = float(latency_label(true))
    lower = max([0.0, *(bound for bound in BOUNDS if bound < upper)])
    assert lower <= estimate <= upper


def test_percentiles_of_empty_and_extreme_counts() -> None:
    assert estimate_percentile({}, 0.5) is None
    assert estimate_percentile({latency_label(1e6): 3}, 0.5) == BOUNDS[-1]


@given(st.floats(0.0, 1.0))
def test_confidence_label_is_its_tenth(value: float) -> None:
    low = float(confidence_label(value))
    assert low - 1e-6 <= value <= low + 0.1 + 1e-6
    assert low <= 0.9


async def test_flush_writes_pending_counts(store: Store) -> None:
    buffer = CounterBuffer(store.counters, 30)
    buffer.add("searches", "lexical")
    buffer.add("searches", "lexical")
    buffer.add("recall_seconds", latency_label(0.3), total=0.3)
    await buffer.flush()
    await buffer.flush()
    rows = await store.counters.read(HOUR, datetime.now(UTC) - timedelta(hours=2))
    assert [(row.name, row.label, row.count, row.total) for row in rows] == [
        ("recall_seconds", "0.5", 1, 0.3),
        ("searches", "lexical", 2, 0.0),
    ]


async def test_failed_flush_keeps_pending_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = CounterBuffer(store.counters, 30)
    buffer.add("searches", "lexical")

    async def busy(*_: object) -> None:
        raise StorageBusy("locked")

    with monkeypatch.context() as patched:
        patched.setattr(store.counters, "add", busy)
        await buffer.flush()
    buffer.add("searches", "lexical")
    await buffer.flush()
    rows = await store.counters.read(HOUR, datetime.now(UTC) - timedelta(hours=2))
    assert [row.count for row in rows] == [2]


async def test_running_buffer_flushes_and_measures_levels(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "FLUSH_SECONDS", 60.0)
    buffer = CounterBuffer(store.counters, 30)
    async with buffer.running():
        buffer.add("recalls", "handoff")
    rows = await store.counters.read(HOUR, datetime.now(UTC) - timedelta(hours=2))
    assert ("recalls", "handoff") in {(row.name, row.label) for row in rows}
