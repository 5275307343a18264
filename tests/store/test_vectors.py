"""Vectors: one model, replaceable, and only for existing rows."""

import asyncio

import numpy as np
import numpy.typing as npt
import pytest

from memrecall.errors import EmbeddingModelMismatch
from memrecall.store import VECTOR_DTYPE, PendingText, RowKey, Store
from memrecall.store.texts import rebuild_search_text

from .samples import ANN, BEN, add_memory, new_message, numbered_messages, pending, read_tables

MODEL = "embedder-1"
HELLO = RowKey("ann", "message", "m")


def matrix(*rows: list[float]) -> npt.NDArray[np.float32]:
    return np.array(rows, dtype=np.float32)


async def read_vectors(
    store: Store, user_id: str = "ann", model: str = MODEL
) -> dict[str, list[float]]:
    """Return the vectors of a user from the change feed."""
    version = await store.feed(user_id).version()
    assert version is not None
    vectors: dict[str, list[float]] = {}
    async for changes in store.feed(user_id).changes(0, version.version, model):
        for row in changes.vectors:
            vectors[f"{row.kind} {row.key}"] = np.frombuffer(row.vector, VECTOR_DTYPE).tolist()
    return vectors


async def versions(store: Store) -> int:
    version = await store.feed("ann").version()
    assert version is not None
    return version.version


class TestModel:
    async def test_ensure_model_sets_the_first_model_and_check_none(self, store: Store) -> None:
        before = await read_tables(store.database)
        await store.vectors("embedder-2").check_model()
        assert await read_tables(store.database) == before
        await store.vectors(MODEL).ensure_model()
        await store.vectors(MODEL).ensure_model()

        async with await Store.open(get_location(store)) as reopened:
            assert reopened.facts.embedding_model == MODEL

    async def test_other_model_is_refused_with_a_hint(self, store: Store) -> None:
        await store.vectors(MODEL).ensure_model()
        other = store.vectors("embedder-2")

        for attempt in (other.check_model, other.ensure_model):
            with pytest.raises(EmbeddingModelMismatch) as refusal:
                await attempt()
            for words in (MODEL, "embedder-2", "`memrecall reindex`", store.location):
                assert words in str(refusal.value)
        await store.vectors(MODEL).check_model()

    async def test_set_model_replaces_the_old_model(self, store: Store) -> None:
        await store.vectors(MODEL).set_model(2)
        await store.vectors("embedder-2").set_model(2)

        await store.vectors("embedder-2").check_model()
        with pytest.raises(EmbeddingModelMismatch):
            await store.vectors(MODEL).check_model()

    async def test_vectors_of_another_size_are_refused(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m"), new_message("n")])
        vectors = store.vectors(MODEL)
        await vectors.ensure_model()
        assert await vectors.check_model(3) is None  # not known yet
        await vectors.write(pending(HELLO), matrix([1.0, 0.0]))
        assert await vectors.check_model() == 2
        other = RowKey("ann", "message", "n")

        for attempt in (
            lambda: vectors.write(pending(other), matrix([1.0, 0.0, 0.0])),
            lambda: vectors.check_model(3),
        ):
            with pytest.raises(
                EmbeddingModelMismatch, match=r"vectors of 2 .* now returns 3"
            ) as no:
                await attempt()
            assert "`memrecall reindex`" in str(no.value)
        assert await read_vectors(store) == {"message m": [1.0, 0.0]}

    async def test_set_model_removes_vectors_of_another_size(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        vectors = store.vectors(MODEL)
        await vectors.ensure_model()
        await vectors.write(pending(HELLO), matrix([1.0, 0.0]))
        assert not await vectors.set_model(2)
        assert await vectors.count_pending() == 0
        assert await vectors.set_model(3)
        assert await vectors.count_pending() == 1
        await vectors.write(pending(HELLO), matrix([1.0, 0.0, 0.0]))
        assert await read_vectors(store) == {"message m": [1.0, 0.0, 0.0]}

    async def test_database_with_vectors_of_several_sizes_keeps_most(self, store: Store) -> None:
        """An earlier version stored them without a question."""
        rows = [RowKey("ann", "message", name) for name in "mno"]
        await store.timeline(ANN).add([new_message(row.key) for row in rows])
        vectors = store.vectors(MODEL)
        await vectors.write(pending(*rows[:2]), matrix([1.0, 0.0], [0.0, 1.0]))
        await vectors.write(pending(rows[2]), matrix([1.0, 0.0, 0.0]))
        await vectors.ensure_model()
        assert await vectors.check_model() == 2
        assert set(await read_vectors(store)) == {"message m", "message n"}
        assert await vectors.count_pending() == 1

    @pytest.mark.concurrent
    async def test_concurrent_ensure_model_accepts_one(self, store: Store) -> None:
        outcomes = await asyncio.gather(
            *(store.vectors(f"embedder-{n}").ensure_model() for n in range(4)),
            return_exceptions=True,
        )

        assert sum(outcome is None for outcome in outcomes) == 1
        refusals = [outcome for outcome in outcomes if outcome is not None]
        assert {type(outcome) for outcome in refusals} == {EmbeddingModelMismatch}


def get_location(store: Store) -> str:
    """Return the location of an open store, with its password."""
    url = store.database._engine.url
    return str(store.file) if store.file else url.render_as_string(hide_password=False)


class TestWriting:
    async def test_vector_is_stored_in_half_precision(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])

        await store.vectors(MODEL).write(pending(HELLO), matrix([0.1, -0.5, 1.0]))

        remaining = (await read_vectors(store))["message m"]
        assert remaining == np.array([0.1, -0.5, 1.0], VECTOR_DTYPE).tolist()

    async def test_second_vector_replaces_the_first(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        await store.vectors(MODEL).write(pending(HELLO), matrix([1.0, 0.0]))
        before = await versions(store)

        await store.vectors("embedder-2").write(pending(HELLO), matrix([0.0, 1.0, 0.5]))

        assert await read_vectors(store) == {}
        assert await read_vectors(store, model="embedder-2") == {"message m": [0.0, 1.0, 0.5]}
        (row,) = (await read_tables(store.database))["vectors"]
        assert (row["model"], row["dimensions"]) == ("embedder-2", 3)
        assert await versions(store) == before + 1

    async def test_batch_may_mix_users_messages_and_memories(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        await store.timeline(BEN).add([new_message("m")])
        await add_memory(store, "k")
        rows = [RowKey("ben", "message", "m"), RowKey("ann", "memory", "k"), HELLO]

        await store.vectors(MODEL).write(pending(*rows), matrix([1.0], [2.0], [3.0]))

        assert await read_vectors(store) == {"memory k": [2.0], "message m": [3.0]}
        assert await read_vectors(store, "ben") == {"message m": [1.0]}

    async def test_erased_row_gets_no_vector(self, store: Store) -> None:
        await store.timeline(ANN.with_session("gone")).add([new_message("erased")])
        await store.timeline(ANN).add([new_message("m")])
        await store.owners.erase_session("ann", "gone")
        before = await read_tables(store.database)
        await store.vectors(MODEL).write(pending(RowKey("ann", "message", "erased")), matrix([1.0]))
        await store.vectors(MODEL).write([], matrix())
        assert await read_tables(store.database) == before
        rows = [
            RowKey("ann", "message", "erased"),
            RowKey("ann", "memory", "m"),
            RowKey("nobody", "message", "m"),
            HELLO,
        ]

        await store.vectors(MODEL).write(pending(*rows), matrix([1.0], [2.0], [3.0], [4.0]))

        assert await read_vectors(store) == {"message m": [4.0]}
        assert (await store.count())["vectors"] == 1

    async def test_changed_row_stays_pending(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        await add_memory(store, "k", "likes tea")
        await add_memory(store, "same", "likes tea")
        await store.changes(ANN).update("k", {"content": "likes coffee"}, actor="test")
        row, unchanged = RowKey("ann", "memory", "k"), RowKey("ann", "memory", "same")

        await store.vectors(MODEL).write(pending(row, unchanged, HELLO), matrix(*[[1.0]] * 3))

        assert await read_vectors(store) == {"memory same": [1.0], "message m": [1.0]}
        missing, _ = await store.vectors(MODEL).pending("ann", 9)
        assert missing == [PendingText(row, "likes coffee")]

    async def test_writing_vectors_does_not_update_activity(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        (before,) = (await store.owners.list_users()).items

        await store.vectors(MODEL).write(pending(HELLO), matrix([1.0]))

        assert (await store.owners.list_users()).items == (before,)


class TestPending:
    async def test_pending_returns_rows_without_a_vector(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m", "  hello  "), new_message("n", "bye")])
        await add_memory(store, "k", "likes tea", summary="Tea")
        vectors = store.vectors(MODEL)

        rows, through = await vectors.pending("ann", 10)

        assert rows == [
            PendingText(HELLO, "hello"),
            PendingText(RowKey("ann", "message", "n"), "bye"),
            PendingText(RowKey("ann", "memory", "k"), "Tea\nlikes tea"),
        ]
        assert through == await versions(store)
        assert await vectors.count_pending() == 3

    async def test_written_row_is_pending_again_for_another_model(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        await store.vectors(MODEL).write(pending(HELLO), matrix([1.0]))

        assert await store.vectors(MODEL).pending("ann", 10) == ([], await versions(store))
        assert await store.vectors(MODEL).count_pending() == 0
        rows, _ = await store.vectors("embedder-2").pending("ann", 10)
        assert rows == [PendingText(HELLO, "hello")]

    async def test_pending_reads_one_users_rows_part_by_part(self, store: Store) -> None:
        await store.timeline(ANN).add(numbered_messages("a", 5))
        await add_memory(store, "k")
        await store.timeline(BEN).add(numbered_messages("b", 2))
        vectors = store.vectors(MODEL)

        first, through = await vectors.pending("ann", 4)
        rest, end = await vectors.pending("ann", 4, through)

        assert [item.row.key for item in first + rest] == ["a0", "a1", "a2", "a3", "a4", "k"]
        assert through == first[-1].change_no
        assert end == await versions(store)
        assert await vectors.pending("nobody", 4) == ([], 0)
        assert await vectors.count_pending() == 8
        assert await vectors.count_pending("ben") == 2


class TestClaim:
    @pytest.mark.one_server  # in a distributed database every process embeds
    async def test_one_process_embeds_and_learns_of_the_users_of_others(self, store: Store) -> None:
        vectors = store.vectors(MODEL)

        assert await vectors.claim("a", 60, ["ann"]) == []
        assert await vectors.claim("b", 60, ["ben"]) is None
        assert await vectors.claim("c", 60, ["ben", "cy"]) is None
        assert await vectors.claim("a", 60, ["ann"]) == ["ben", "cy"]
        assert await vectors.claim("a", 60, []) == []

    @pytest.mark.one_server
    async def test_lease_that_has_ended_is_free(self, store: Store) -> None:
        vectors = store.vectors(MODEL)
        await vectors.claim("a", 0, [])
        assert await vectors.claim("b", 60, []) == []
        assert await vectors.claim("a", 60, []) is None

    async def test_erased_user_is_not_named(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        await store.vectors(MODEL).claim("a", 60, [])
        await store.vectors(MODEL).claim("b", 60, ["ann"])
        await store.owners.erase_user("ann")
        assert "ann" not in str((await read_tables(store.database))["memrecall_meta"])


async def test_rebuild_search_text_changes_the_epoch(store: Store) -> None:
    await store.timeline(ANN).add([new_message("m", "Coffee beans")])
    await add_memory(store, "k", "likes tea")
    before = await read_tables(store.database)
    version = await store.feed("ann").version()

    counts = [count async for count in rebuild_search_text(store.database)]

    assert sum(counts) == 2
    after = await read_tables(store.database)
    assert after["messages"] == before["messages"]
    assert after["memories"] == before["memories"]
    assert (await store.feed("ann").version()) != version
