"""Lists: their limits, and for the dashboard memories in any state."""

from collections.abc import Awaitable, Callable

import pytest

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Permission, Scope
from memrecall.store import MemoryQuery, Store
from memrecall.types import NewMemory, Origin

from ..cases import check_each_async
from .samples import ANN, BEN


async def test_limits_out_of_range_are_refused(store: Store) -> None:
    timeline, owners = store.timeline(ANN), store.owners
    lists: dict[str, tuple[Callable[[int], Awaitable[object]], int]] = {  # and the largest limit
        "page": (lambda limit: timeline.page(page_size=limit), 200),
        "before": (lambda limit: timeline.neighbors("m", before=limit), 200),
        "after": (lambda limit: timeline.neighbors("m", after=limit), 200),
        "thread": (lambda limit: timeline.thread(session_id="s", limit=limit), 1_000),
        "traces": (store.traces(ANN).page, 200),
        "agents": (lambda limit: owners.list_agents(limit=limit), 10_000),
        "users": (lambda limit: owners.list_users(limit=limit), 10_000),
    }

    async def refuse(name: str) -> None:
        read, largest = lists[name]
        for limit in (-1, largest + 1, *([] if name in ("before", "after") else [0])):
            with pytest.raises(InvalidArgument, match=f"{limit}.*out of range"):
                await read(limit)

    await check_each_async(lists, refuse)


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
