"""The audit log: every change by a caller leaves a line, and no content."""

import pytest

from memrecall.errors import Conflict, NotFound
from memrecall.scope import Scope
from memrecall.store import AuditEntry, Store
from memrecall.types import NewMemory, Origin

from .samples import ANN, BEN, add_memory, new_message, read_tables


async def lines(store: Store, scope: Scope = ANN) -> list[tuple[str, str, str | None, int]]:
    entries = (await store.audit(scope).page(limit=50)).items
    return [(e.action, e.actor, e.target, e.count) for e in reversed(entries)]


async def test_changes_are_logged_with_their_actor(store: Store) -> None:
    await store.timeline(ANN).add([new_message("m1"), new_message("m2")])
    for key in ("tea", "coffee", "milk"):
        await add_memory(store, key)
    changes = store.changes(ANN)
    await changes.update("tea", {"pinned": True}, actor="key k1")
    await changes.undo("tea", actor="key k2")
    await changes.delete(["tea", "coffee"], actor="key k2")
    await changes.purge(["milk"], actor="key k3")
    await changes.purge_message("m1", actor="key k3")
    assert await lines(store) == [
        ("update", "key k1", "tea", 1),
        ("undo", "key k2", "tea", 1),
        ("delete", "key k2", None, 2),
        ("purge", "key k3", "milk", 1),
        ("purge", "key k3", "m1", 1),
    ]
    assert await lines(store, BEN) == []


async def test_refused_and_empty_changes_leave_no_line(store: Store) -> None:
    await add_memory(store, "tea")
    record = await store.memories(ANN).get("tea")
    with pytest.raises(NotFound):
        await store.changes(ANN).update("none", {"pinned": True}, actor="x")
    with pytest.raises(Conflict, match="no change"):
        await store.changes(ANN).undo("tea", actor="x")
    await store.changes(ANN).update("tea", {"pinned": True}, actor="first")
    with pytest.raises(Conflict, match="was changed"):
        await store.changes(ANN).update(
            "tea", {"pinned": False}, actor="late", unchanged_since=record.updated_at
        )
    await store.changes(ANN).delete(["none"], actor="x")
    assert await lines(store) == [("update", "first", "tea", 1)]


async def test_log_has_pages_and_no_contents(store: Store) -> None:
    await store.memories(ANN).add(
        [NewMemory(memory_key="k", content="zqsecretzq")], origin=Origin.USER
    )
    for number in range(5):
        await store.changes(ANN).update("k", {"summary": f"zqsecretzq {number}"}, actor="x")
    log, after, seen = store.audit(ANN), None, []
    while True:
        page = await log.page(limit=2, after=after)
        seen += [entry.entry_id for entry in page.items]
        after = page.next_after
        if after is None:
            break
    assert len(seen) == 5
    assert seen == sorted(seen, reverse=True)
    assert "zqsecretzq" not in str((await read_tables(store.database))["audit_log"])


async def test_log_of_an_agent_is_read_by_that_agent(store: Store) -> None:
    await add_memory(store, "tea")
    await store.audit(Scope("ann", "helper")).add(AuditEntry("export", "key k1"))
    await store.audit(Scope("nobody")).add(AuditEntry("export", "key k1"))
    assert await lines(store, Scope("ann", "other")) == []
    assert await lines(store, Scope("ann", "helper")) == [("export", "key k1", None, 1)]
    assert await lines(store) == [("export", "key k1", None, 1)]
    assert await lines(store, Scope("nobody")) == []
