"""Reads of the dashboard: bounded parts of a graph, and memories in any state."""

import pytest

from memrecall.errors import NotFound
from memrecall.scope import Permission, Scope
from memrecall.store import MemoryQuery, NewRelation, Store
from memrecall.types import NewMemory, Origin

from .samples import ANN, BEN


async def test_latest_returns_newest_relations_within_the_limit(store: Store) -> None:
    graph = store.graph(ANN)
    await graph.add({}, [NewRelation("Ann", "lives_in", "Oslo")])
    await graph.add({}, [NewRelation("Ann", "knows", "Tom")])
    await graph.add({}, [NewRelation("Tom", "works_at", "Equinor")])
    await graph.add({}, [NewRelation("Ann", "lives_in", "Oslo", ended=True)])
    await store.graph(BEN).add({}, [NewRelation("Ben", "knows", "Tom")])

    async def pairs(limit: int) -> list[tuple[str, str]]:
        return [(r.source, r.destination) for r in await graph.latest(limit)]

    assert await pairs(9) == [("Tom", "Equinor"), ("Ann", "Tom")]
    assert await pairs(1) == [("Tom", "Equinor")]


async def test_around_respects_the_limit(store: Store) -> None:
    graph = store.graph(ANN)
    await graph.add({}, [NewRelation("Ann", "knows", name) for name in ("Tom", "Kim", "Lee")])
    (ann,) = await graph.entities(["ann"])
    assert len(await graph.around([ann.entity_id])) == 3
    assert len(await graph.around([ann.entity_id], limit=2)) == 2


async def test_get_any_returns_deleted_and_superseded_memories(store: Store) -> None:
    await store.memories(ANN).add(
        [
            NewMemory(memory_key="k", content="tea"),
            NewMemory(memory_key="s", content="tea", sensitive=True),
        ],
        origin=Origin.USER,
        actor="test",
    )
    memories = store.memories(ANN)
    assert (await memories.get_any("k")).deleted_at is None
    await store.changes(ANN).delete(["k"], actor="test")
    assert (await memories.get_any("k")).deleted_at is not None
    for scope, key in ((ANN, "other"), (BEN, "k"), (ANN, "s")):
        with pytest.raises(NotFound):
            await store.memories(scope).get_any(key)
    allowed = Scope(ANN.user_id, ANN.agent_id, permissions=frozenset({Permission.SENSITIVE}))
    assert (await store.memories(allowed).get_any("s")).sensitive
    assert [item.memory_key for item in (await memories.page(MemoryQuery(deleted=True))).items] == [
        "k"
    ]
