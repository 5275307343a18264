"""Counters: summed in time buckets by all processes, and their expiry."""

from datetime import UTC, datetime, timedelta

import pytest

from memrecall.errors import InvalidArgument
from memrecall.scope import Permission, Scope
from memrecall.store import NewKnowledge, Store
from memrecall.store.counters import HOUR, MINUTE, QUARTER

from .samples import ANN, new_message

NOW = datetime(2026, 5, 4, 10, 20, 30, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=900)


async def test_add_sums_counts_of_one_bucket(store: Store) -> None:
    await store.counters.add({("searches", "lexical"): (2, 0.5)}, NOW, 30)
    await store.counters.add({("searches", "lexical"): (1, 0.25)}, NOW + timedelta(minutes=1), 30)
    for resolution, buckets in ((MINUTE, 2), (QUARTER, 1), (HOUR, 1)):
        rows = await store.counters.read(resolution, LONG_AGO)
        assert [row.bucket for row in rows] == sorted(row.bucket for row in rows)
        assert len(rows) == buckets
        assert (sum(row.count for row in rows), sum(row.total for row in rows)) == (3, 0.75)
    assert rows[0].bucket == datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


async def test_set_levels_replaces_the_previous_level(store: Store) -> None:
    for users in (3, 5):
        await store.counters.set_levels({"users": users}, NOW, 30)
    rows = await store.counters.read(HOUR, LONG_AGO)
    assert [(row.name, row.label, row.count) for row in rows] == [("users", "level", 5)]


async def test_old_buckets_are_dropped_by_resolution(store: Store) -> None:
    counts = {("recalls", "handoff"): (1, 0.0)}
    for age in (timedelta(days=31), timedelta(days=4), timedelta(hours=5), timedelta(0)):
        await store.counters.add(counts, NOW - age, 30)
    await store.counters.add(counts, NOW, 30)

    async def read_counts(resolution: int) -> int:
        return len(await store.counters.read(resolution, LONG_AGO))

    assert [await read_counts(resolution) for resolution in (MINUTE, QUARTER, HOUR)] == [1, 2, 3]
    assert len(await store.counters.read(HOUR, NOW - timedelta(hours=2))) == 1


async def test_add_accepts_no_counts_and_truncates_long_labels(store: Store) -> None:
    await store.counters.add({}, NOW, 1)
    await store.counters.add({("leaks", "长" * 200): (1, 0.0)}, NOW, 1)
    (row,) = await store.counters.read(MINUTE, NOW - timedelta(minutes=5))
    assert row.label == "长" * 64
    with pytest.raises(InvalidArgument, match="keep_days 0"):
        await store.counters.add({}, NOW, 0)


async def test_measure_levels_counts_rows(store: Store) -> None:
    await store.timeline(ANN).add([new_message("a"), new_message("b")])
    allowed = Scope(ANN.user_id, ANN.agent_id, permissions=frozenset({Permission.KNOWLEDGE}))
    await store.knowledge(allowed).add(NewKnowledge("twice a day"))
    assert await store.counters.measure_levels() == {
        "users": 1,
        "messages": 2,
        "memories": 0,
        "knowledge": 1,
    }
