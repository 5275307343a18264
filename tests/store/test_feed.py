"""The change feed returns every row, in order, for any number of writers."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.scope import Scope
from memrecall.store import RowKey, ScopedMessage, Store
from memrecall.store.database.statements import new_id
from memrecall.store.messages import write_messages
from memrecall.types import NewMemory, Origin
from tests.counting import recorded_statements

from .samples import ANN, BEN, add_memory, new_message, numbered_messages, pending

MODEL = "embedder-1"
Change = tuple[int, str, str]


async def version(store: Store, user_id: str = "ann") -> int:
    user_version = await store.feed(user_id).version()
    return 0 if user_version is None else user_version.version


async def changes(
    store: Store, after: int, last_number: int, user_id: str = "ann", model: str | None = MODEL
) -> list[Change]:
    """Return the changes of a range as (number, kind, key), ordered by number."""
    result: list[Change] = []
    last = after
    async for part in store.feed(user_id).changes(after, last_number, model):
        rows = [(row.change_no, "message", row.key) for row in part.messages]
        rows += [(row.change_no, "memory", row.key) for row in part.memories]
        rows += [(row.change_no, "vector", row.key) for row in part.vectors]
        assert all(last < number <= part.through for number, _, _ in rows)
        last = part.through
        result += sorted(rows)
    assert last == max(after, last_number)
    return result


async def embed(store: Store, *rows: RowKey, model: str = MODEL) -> None:
    await store.vectors(model).set_model(2)
    await store.vectors(model).write(pending(*rows), np.ones((len(rows), 2), np.float32))


async def test_version_of_an_unknown_user_is_none(store: Store) -> None:
    assert await store.feed("nobody").version() is None


async def test_new_user_is_enabled_and_in_utc(store: Store) -> None:
    await store.timeline(ANN).add([new_message("m")])

    user_version = await store.feed("ann").version()

    assert user_version is not None
    assert (user_version.version, user_version.status, user_version.time_zone) == (1, 1, "UTC")


async def test_every_kind_of_change_takes_the_next_number(store: Store) -> None:
    await store.timeline(ANN).add(numbered_messages("m", 2))
    await add_memory(store, "k")
    await embed(store, RowKey("ann", "message", "m0"))
    await store.timeline(ANN).add(numbered_messages("m", 3))

    assert await changes(store, 0, await version(store)) == [
        (1, "message", "m0"),
        (2, "message", "m1"),
        (3, "memory", "k"),
        (4, "vector", "m0"),
        (5, "message", "m2"),
    ]


async def test_what_was_erased_before_the_first_read_is_not_read(store: Store) -> None:
    await store.timeline(ANN).add(numbered_messages("m", 2))
    await store.changes(ANN).purge_message("m0")
    last = await version(store)
    with recorded_statements() as statements:
        (first,) = [part async for part in store.feed("ann").changes(0, last, MODEL)]
    (later,) = [part async for part in store.feed("ann").changes(1, last, MODEL)]
    assert len(statements) == 3  # messages, memories, vectors
    assert ([row.key for row in first.messages], first.tombstones) == (["m1"], [])
    assert [row.key for row in later.tombstones] == ["m0"]


async def test_replaced_vector_is_a_new_change(store: Store) -> None:
    await store.timeline(ANN).add([new_message("m")])
    await embed(store, RowKey("ann", "message", "m"))
    numbers = await version(store)
    await embed(store, RowKey("ann", "message", "m"), model="embedder-2")

    found = await changes(store, numbers, await version(store), model="embedder-2")
    assert found == [(3, "vector", "m")]


async def test_rows_beyond_the_range_count_as_its_last_change(store: Store) -> None:
    await store.timeline(ANN).add(numbered_messages("m", 9))

    for after in range(10):
        for last in range(after + 1, 10):
            rows = await changes(store, after, last)
            assert [number for number, _, _ in rows] == [min(n, last) for n in range(after + 1, 10)]
        assert await changes(store, after, after) == []


async def test_row_that_changes_while_the_feed_is_read_is_not_missing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.store.feed.CHANGES_PER_READ", 1)
    for key in ("first", "second", "third"):
        await add_memory(store, key)
    feed = store.feed("ann").changes(0, await version(store), None)
    parts = [await anext(feed)]
    await store.changes(ANN).update("second", {"pinned": True}, actor="test")
    parts += [part async for part in feed]

    keys = [[row.key for row in part.memories] for part in parts]
    assert keys == [["first"], [], ["third", "second"]]
    assert await changes(store, 3, 4) == [(4, "memory", "second")]


async def test_changes_are_those_of_the_user_only(store: Store) -> None:
    await store.timeline(ANN).add(numbered_messages("a", 3))
    await store.timeline(BEN).add(numbered_messages("b", 2))

    assert {key for _, _, key in await changes(store, 0, 99)} == {"a0", "a1", "a2"}
    assert {key for _, _, key in await changes(store, 0, 99, "ben")} == {"b0", "b1"}


async def test_changes_include_only_vectors_of_the_model(store: Store) -> None:
    await store.timeline(ANN).add([new_message("m")])
    await embed(store, RowKey("ann", "message", "m"))

    assert len(await changes(store, 1, 2)) == 1
    assert await changes(store, 1, 2, model="embedder-2") == []
    assert await changes(store, 1, 2, model=None) == []


async def test_has_accepts_the_change_number_or_a_later_one(store: Store) -> None:
    await store.timeline(ANN).add(numbered_messages("m", 2))
    await add_memory(store, "k")
    feed = store.feed("ann")

    assert await feed.has("message", "m1", 2) is True
    assert await feed.has("message", "m1", 1) is True
    assert await feed.has("message", "m1", 3) is False
    assert await feed.has("memory", "k", 3) is True
    assert await feed.has("memory", "m1", 1) is False
    assert await store.feed("ben").has("message", "m1", 1) is False


STEPS = st.lists(
    st.sampled_from(["message", "batch", "memory", "vectors", "read", "repeat"]), max_size=12
)


@given(STEPS)
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_every_write_appears_exactly_once(store: Store, steps: list[str]) -> None:
    reader = FeedReader(store, Scope(new_id("user")))
    for step in [*steps, "read"]:
        await reader.take(step)

    assert Counter(reader.reports) == Counter(reader.written)
    assert reader.numbers == list(range(1, len(reader.written) + 1))


class FeedReader:
    """Runs generated steps: writes rows, or reads the new changes."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._names: list[str] = []
        self.written: list[str] = []
        self.reports: list[str] = []
        self.numbers: list[int] = []

    async def take(self, step: str) -> None:
        """Run one step."""
        if step == "read":
            await self._read()
        elif step == "vectors":
            await self._embed()
        elif step == "memory":
            memory = NewMemory(memory_key=new_id("k"), content="x")
            await self._store.memories(self._scope).add([memory], origin=Origin.USER)
            self.written.append(str(memory.memory_key))
        else:
            fresh = [new_id("m") for _ in range({"message": 1, "batch": 3, "repeat": 0}[step])]
            names = fresh or self._names[-2:]
            await self._store.timeline(self._scope).add([new_message(name) for name in names])
            self._names += fresh
            self.written += fresh

    async def _embed(self) -> None:
        rows = [RowKey(self._scope.user_id, "message", name) for name in self._names]
        missing, _ = await self._store.vectors(MODEL).pending(self._scope.user_id, 99)
        fresh = [row for row in rows if row in {item.row for item in missing}]
        if fresh:
            await embed(self._store, *fresh)
            self.written += [f"vector {row.key}" for row in fresh]

    async def _read(self) -> None:
        user = self._scope.user_id
        latest = await version(self._store, user)
        for number, kind, key in await changes(self._store, len(self.numbers), latest, user):
            self.numbers.append(number)
            self.reports.append(f"vector {key}" if kind == "vector" else key)


async def test_long_feeds_are_read_in_batches(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.store.feed.CHANGES_PER_READ", 3)
    await store.timeline(ANN).add(numbered_messages("m", 10))

    parts = [part async for part in store.feed("ann").changes(0, 10, None)]

    assert [part.through for part in parts] == [3, 6, 9, 10]
    assert [len(part.messages) for part in parts] == [3, 3, 3, 1]
    assert len(await changes(store, 0, 10)) == 10


@pytest.mark.concurrent
async def test_reader_misses_no_change_of_eight_writers(store: Store) -> None:
    read: list[Change] = []
    writing = True

    async def write(name: str) -> None:
        for number in range(6):
            messages = [
                ScopedMessage(scope, new_message(f"{name}-{number}")) for scope in (ANN, BEN)
            ]
            await write_messages(store.database, messages)
            await add_memory(store, f"{name}-{number}-memory")

    async def poll() -> None:
        last = 0
        while writing or last < await version(store):
            latest = await version(store)
            if latest > last:
                read.extend(await changes(store, last, latest))
                last = latest
            await asyncio.sleep(0)

    reader = asyncio.create_task(poll())
    await asyncio.gather(*(write(f"w{n}") for n in range(8)))
    writing = False
    await reader

    assert {number for number, _, _ in read} == set(range(1, 8 * 6 * 2 + 1))
    assert len({key for _, _, key in read}) == 8 * 6 * 2
