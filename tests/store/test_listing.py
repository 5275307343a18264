"""Reads of the dashboard: memories in any state."""

import pytest

from memrecall.errors import NotFound
from memrecall.scope import Permission, Scope
from memrecall.store import MemoryQuery, Store
from memrecall.types import NewMemory, Origin

from .samples import ANN, BEN


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
