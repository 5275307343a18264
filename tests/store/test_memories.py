"""Memories: stored once, with provenance, and hidden if sensitive."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest

from memrecall.errors import Conflict, Disabled, InvalidArgument, NotFound
from memrecall.scope import Permission, Scope
from memrecall.store import Store
from memrecall.types import MEMORY_BYTES, Keyword, NewMemory, Origin

from ..cases import check_each_async
from .samples import ANN, BEN, MORNING, add_memory, at, new_message, read_tables, user_rows

TRUSTED = Scope("ann", permissions=frozenset({Permission.SENSITIVE}))
FULL = NewMemory(
    content="Ann 不喝咖啡",
    summary="No coffee",
    memory_key="drinks",
    memory_type="preference",
    layer="short",
    keywords=(Keyword(keyword="咖啡", weight=0.5), Keyword(keyword="tea")),
    metadata={"n": [1, {"é": None}]},
    valid_from=MORNING,
    valid_to=at(60),
    source_message_ids=("m2", "m1"),
    doubts=("number",),
)


async def test_every_field_round_trips(store: Store) -> None:
    scope = Scope("ann", agent_id="helper", session_id="tea")
    await store.timeline(scope).add([new_message("m1"), new_message("m2")])

    before = datetime.now(UTC)
    result = await store.memories(scope).add([FULL], origin=Origin.ASSISTANT, actor="extractor")
    memory = await store.memories(scope).get("drinks")

    assert (result.ids, result.created) == (("drinks",), (True,))
    fields = set(NewMemory.model_fields) - {"conflicts_with", "doubts", "said_at"}
    assert memory.model_dump(include=fields) == FULL.model_dump(include=fields)
    provenance = memory.provenance
    assert (provenance.origin, provenance.actor) == (Origin.ASSISTANT, "extractor")
    assert (provenance.session_id, provenance.time) == ("tea", memory.created_at)
    assert provenance.sha256 == hashlib.sha256(FULL.content.encode()).hexdigest()
    assert provenance.conflicts_with == FULL.conflicts_with
    assert (provenance.doubts, memory.checked) == (FULL.doubts, False)
    assert (memory.user_id, memory.agent_id, memory.session_id) == ("ann", "helper", "tea")
    assert before <= memory.created_at == memory.updated_at <= datetime.now(UTC)
    assert memory.truncated is False


async def test_defaults(store: Store) -> None:
    result = await store.memories(ANN).add([NewMemory(content="likes tea")], origin=Origin.USER)

    memory = await store.memories(ANN).get(result.ids[0])

    assert (memory.memory_type, memory.layer, memory.sensitive) == ("general", "long", False)
    assert (memory.provenance.doubts, memory.checked) == ((), True)
    assert (memory.agent_id, memory.session_id) == ("default", None)
    assert (memory.provenance.actor, memory.provenance.session_id) == ("memrecall", None)
    assert (await store.count("ann"))["sessions"] == 0


async def test_equal_memory_is_not_stored_twice(store: Store) -> None:
    await add_memory(store, "k", "likes tea")
    before = user_rows(await read_tables(store.database), "ann")["memories"]

    repeated = NewMemory(memory_key="k", content="likes tea")
    fresh = NewMemory(memory_key="n", content="likes rain")
    result = await store.memories(ANN).add([repeated, fresh, fresh], origin=Origin.IMPORT)

    assert result.created == (False, True, False)
    after = user_rows(await read_tables(store.database), "ann")["memories"]
    assert [row for row in after if row["memory_key"] == "k"] == before


async def test_other_content_under_a_stored_key_refuses_the_batch(store: Store) -> None:
    await add_memory(store, "k", "likes tea")
    before = await read_tables(store.database)

    async def refuse(other: dict[str, Any]) -> None:
        changed = NewMemory.model_validate({"memory_key": "k", "content": "likes tea", **other})
        batch = [NewMemory(memory_key="new", content="new"), changed]
        with pytest.raises(Conflict, match="'k'") as conflict:
            await store.memories(ANN).add(batch, origin=Origin.USER)
        assert next(iter(other)) in str(conflict.value)
        assert await read_tables(store.database) == before

    others: list[dict[str, Any]] = [
        {"content": "hates tea"},
        {"summary": "tea!"},
        {"memory_type": "fact"},
        {"sensitive": True},
    ]
    await check_each_async(others, refuse)


async def test_memory_key_must_not_be_a_message_id(store: Store) -> None:
    await store.timeline(ANN).add([new_message("taken")])
    before = await read_tables(store.database)

    with pytest.raises(Conflict, match="'taken'"):
        await add_memory(store, "taken")

    assert await read_tables(store.database) == before
    await add_memory(store, "taken", scope=BEN)


async def test_source_must_be_a_message_of_the_user(store: Store) -> None:
    await store.timeline(BEN).add([new_message("theirs")])
    await store.timeline(ANN).add([new_message("mine")])
    before = await read_tables(store.database)

    with pytest.raises(InvalidArgument, match="'theirs'"):
        await add_memory(store, "k", source_message_ids=("mine", "theirs"))

    assert await read_tables(store.database) == before


async def test_long_memory_is_truncated_between_characters(store: Store) -> None:
    long = {
        "limit": ("x" * MEMORY_BYTES, MEMORY_BYTES),
        "one over": ("x" * (MEMORY_BYTES + 1), MEMORY_BYTES),
        "han": ("汉" * 40_000, MEMORY_BYTES // 3),
        "emoji": ("a" + "😀" * 30_000, 1 + (MEMORY_BYTES - 1) // 4),
    }

    async def keep(key: str) -> None:
        content, stored_length = long[key]
        await add_memory(store, key, content)
        memory = await store.memories(ANN).get(key)
        assert memory.content == content[:stored_length]
        assert len(memory.content.encode()) <= MEMORY_BYTES
        assert memory.truncated is (stored_length < len(content))
        assert memory.provenance.sha256 == hashlib.sha256(content.encode()).hexdigest()

    await check_each_async(long, keep)


async def test_truncated_memory_is_compared_by_its_whole_content(store: Store) -> None:
    long = "x" * MEMORY_BYTES
    await add_memory(store, "long", long + "one end")

    repeated = NewMemory(memory_key="long", content=long + "one end")
    result = await store.memories(ANN).add([repeated], origin=Origin.USER)

    assert result.stored == 0
    with pytest.raises(Conflict, match="'long'"):
        await add_memory(store, "long", long + "another end")


class TestSensitive:
    async def test_sensitive_memory_needs_the_permission(self, store: Store) -> None:
        await add_memory(store, "secret", sensitive=True)
        await add_memory(store, "plain")

        with pytest.raises(NotFound):
            await store.memories(ANN).get("secret")
        visible = await store.memories(ANN).get_many(["secret", "plain"])
        assert [memory.memory_key for memory in visible] == ["plain"]
        assert (await store.memories(TRUSTED).get("secret")).sensitive is True


async def test_memory_is_invisible_to_other_users_and_agents(store: Store) -> None:
    await add_memory(store, "k", scope=Scope("ann", agent_id="a1"))

    with pytest.raises(NotFound) as other_error:
        await store.memories(BEN).get("k")
    with pytest.raises(NotFound) as unknown_error:
        await store.memories(BEN).get("u")
    with pytest.raises(NotFound):
        await store.memories(Scope("ann", agent_id="a2")).get("k")

    assert str(other_error.value).replace("'k'", "'u'") == str(unknown_error.value)
    assert (await store.memories(ANN).get("k")).agent_id == "a1"


async def test_add_refuses_disabled_users_and_ended_sessions(store: Store) -> None:
    tea = Scope("ann", session_id="tea")
    await add_memory(store, "k", scope=tea)
    await store.owners.end_session("ann", "tea")

    with pytest.raises(Disabled, match="'tea'"):
        await add_memory(store, "n", scope=tea)
    await store.owners.set_user_enabled("ann", False)
    with pytest.raises(Disabled, match="'ann'"):
        await add_memory(store, "n")
    assert (await store.count("ann"))["memories"] == 1


async def test_delete_all_hides_memories_and_keeps_messages(store: Store) -> None:
    await store.timeline(ANN).add([new_message("m1", "tea")])
    await add_memory(store, "drinks")
    await add_memory(store, "secret", sensitive=True)
    await add_memory(store, "drinks", scope=BEN)
    before = await store.feed("ann").version()

    assert len((await store.changes(ANN).delete_all()).memories) == 1
    assert (await store.changes(ANN).delete_all()).memories == ()

    after = await store.feed("ann").version()
    assert before is not None
    assert after is not None
    assert after.version == before.version + 1
    assert await store.memories(ANN).get_many(["drinks"]) == []
    assert [m.memory_key for m in await store.memories(TRUSTED).get_many(["secret"])] == ["secret"]
    assert len(await store.memories(BEN).get_many(["drinks"])) == 1
    assert len((await store.timeline(ANN).page()).items) == 1
    with pytest.raises(NotFound):
        await store.changes(Scope("nobody")).delete_all()
