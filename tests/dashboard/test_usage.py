"""Usage over time, from counters and traces."""

from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
from hypothesis import given

from memrecall.dashboard.pages.overview import PERIODS, UsageHistory, usage_of_recalls
from memrecall.store import CounterRow, TraceSummary
from memrecall.store.counters import bucket_of

NOW = datetime(2026, 5, 4, 10, 20, 30, tzinfo=UTC)


def make_recall(minutes: float, **fields: object) -> TraceSummary:
    facts: dict[str, object] = {
        "trace_id": "t", "agent_id": "a", "session_id": None, "query": "q",
        "stop_reason": "handoff", "confidence": 0.85, "abstained": False, "iterations": 1,
        "model_calls": 1, "tool_calls": 1, "seconds": 0.2, "model": "",
        "created_at": NOW - timedelta(minutes=minutes),
    }  # fmt: skip
    return TraceSummary(**{**facts, **fields})  # type: ignore[arg-type]  # as above


@given(st.sampled_from(sorted(PERIODS)), st.floats(1.5e9, 2.5e9))
def test_period_ends_in_current_bucket(name: str, at: float) -> None:
    now = datetime.fromtimestamp(at, UTC)
    period = PERIODS[name]
    buckets = period.buckets(now)
    assert buckets[-1] == bucket_of(now, period.resolution)
    assert buckets[0] == period.start(now)
    assert buckets == sorted(set(buckets))


def test_usage_has_counts_levels_and_percentiles() -> None:
    buckets = PERIODS["hour"].buckets(NOW)
    rows = [
        CounterRow(buckets[0], "searches", "lexical", 3, 0.0),
        CounterRow(buckets[1], "searches", "semantic", 2, 0.0),
        CounterRow(buckets[0], "users", "level", 7, 0.0),
        CounterRow(buckets[2], "users", "level", 9, 0.0),
        CounterRow(buckets[2], "recall_seconds", "0.25", 4, 0.8),
    ]
    usage = UsageHistory(buckets)
    for row in rows:
        usage.add(row.bucket, row.name, row.label, row.count)
    assert usage.over_time("searches")[:3] == [3, 2, 0]
    assert usage.by_label("searches") == {"lexical": 3, "semantic": 2}
    assert usage.levels("users")[:3] == [7, None, 9]
    assert usage.percentiles("recall_seconds", 0.5)[:3] == [None, None, 0.175]


def test_usage_of_recalls_counts_outcomes() -> None:
    recalls = [
        make_recall(1),
        make_recall(5, stop_reason="seconds", abstained=True, confidence=0.1),
    ]
    usage = usage_of_recalls(recalls, PERIODS["hour"], NOW)
    assert usage.by_label("recalls") == {"handoff": 1, "seconds": 1}
    assert usage.by_label("confidence") == {"0.8": 1, "0.1": 1}
    assert usage.by_label("abstained") == {"no": 1, "yes": 1}
    assert sum(usage.over_time("recalls")) == 2
