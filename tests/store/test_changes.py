"""Changes of memories: one lock, one history entry and one vector for each."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.library.library import Library
from memrecall.store import EDITABLE_FIELDS, PlanStep, Store
from memrecall.store.database.dialects import POSTGRESQL
from memrecall.types import Keyword, NewMemory, Origin

from ..counting import recorded_statements
from .backup_samples import AGENT
from .contention import open_transaction, wait_for_blocked
from .samples import ANN, add_memory, at, new_message

TEA = NewMemory(memory_key="new", content="drinks green tea")


@contextmanager
def record_user_locks() -> Iterator[list[str]]:
    """Collect the statements of the block that read users' rows in order to lock them."""
    locks: list[str] = []
    with recorded_statements() as statements:
        yield locks
    locks += [each for each in statements if re.match(r"(?s)SELECT .*\bFROM users\b", each)]


async def write_turn(store: Store) -> None:
    messages = [new_message("m1"), new_message("m2")]
    memories = [(NewMemory(content="one"), Origin.USER), (NewMemory(content="two"), Origin.USER)]
    await store.changes(ANN).write_turn(messages, memories, actor="test")


async def apply_plan(store: Store) -> None:
    steps = [
        PlanStep("ADD", NewMemory(content="likes jazz")),
        PlanStep("UPDATE", TEA, "tea"),
        PlanStep("DELETE", memory_key="home"),
        PlanStep("NONE", memory_key="home"),
    ]
    outcomes = await store.changes(ANN).apply_plan(steps, actor="test")
    assert [outcome.event for outcome in outcomes] == ["ADD", "UPDATE", "DELETE", "NONE"]


async def apply_step(store: Store, step: PlanStep) -> None:
    (outcome,) = await store.changes(ANN).apply_plan([step], actor="test")
    assert outcome.event == step.event


OPERATIONS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "update": lambda s: s.changes(ANN).update("tea", {"content": "x"}, actor="test"),
    "supersede": lambda s: apply_step(s, PlanStep("UPDATE", TEA, "tea")),
    "end": lambda s: apply_step(s, PlanStep("DELETE", memory_key="tea")),
    "delete": lambda s: s.changes(ANN).delete(["tea", "home"], actor="test"),
    "delete_all": lambda s: s.changes(ANN).delete_all(),
    "undo": lambda s: s.changes(ANN).undo("tea", actor="test"),
    "undo of a supersession": lambda s: s.changes(ANN).undo("work", actor="test"),
    "purge": lambda s: s.changes(ANN).purge(["tea", "home"]),
    "add": lambda s: s.memories(ANN).add([TEA], origin=Origin.USER),
    "plan": apply_plan,
    "turn": write_turn,
}


async def test_every_write_locks_its_user_once(store: Store) -> None:
    await add_memory(store, "tea", "drinks tea")
    await store.changes(ANN).update("tea", {"pinned": True}, actor="test")
    await add_memory(store, "home", "lives in Oslo")
    await add_memory(store, "job", "works at a school")
    work = NewMemory(memory_key="work", content="works at a bank")
    await apply_step(store, PlanStep("UPDATE", work, "job"))

    for name in ("undo", "undo of a supersession", "update", "plan", "add", "turn", "delete"):
        with record_user_locks() as locks:
            await OPERATIONS[name](store)
        assert len(locks) == 1, (name, locks)
        assert ("FOR UPDATE" in locks[0]) is (store.database.dialect is POSTGRESQL)

    await add_memory(store, "tea2", "drinks tea")
    for name in ("delete_all", "purge"):
        with record_user_locks() as locks:
            await OPERATIONS[name](store)
        assert len(locks) == 1, (name, locks)


@pytest.mark.parametrize("name", ["supersede", "end"])
async def test_supersede_and_end_lock_their_user_once(store: Store, name: str) -> None:
    await add_memory(store, "tea", "drinks tea")

    with record_user_locks() as locks:
        await OPERATIONS[name](store)

    assert len(locks) == 1, locks


NEW_VALUES: dict[str, Any] = {
    "content": "other content",
    "summary": "other summary",
    "memory_type": "other",
    "layer": "short",
    "keywords": (Keyword(keyword="word"),),
    "metadata": {"other": 1},
    "sensitive": False,
    "valid_from": at(1),
    "valid_to": None,
    "subject": "Ben",
    "speaker": "Ben",
    "field": "name",
    "pinned": True,
    "expires_at": None,
}


async def test_update_changes_every_editable_field_and_undo_restores_it(store: Store) -> None:
    assert set(NEW_VALUES) == set(EDITABLE_FIELDS)
    await add_memory(store, "tea", "drinks tea", valid_to=at(10**8), expires_at=at(10**8))
    before = await store.memories(ANN).get("tea")

    await store.changes(ANN).update("tea", NEW_VALUES, actor="test")

    changed = await store.memories(ANN).get("tea")
    assert {name: getattr(changed, name) for name in EDITABLE_FIELDS} == NEW_VALUES
    await store.changes(ANN).undo("tea", actor="test")
    restored = await store.memories(ANN).get("tea")
    assert restored.model_copy(update={"updated_at": before.updated_at}) == before
    events = [entry.event for entry in await store.memories(ANN).history("tea")]
    assert events == ["ADD", "UPDATE", "UNDO"]


async def test_update_of_an_unknown_field_names_the_editable_ones(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="'change_no'") as refusal:
        await store.changes(ANN).update("tea", {"change_no": 1}, actor="test")

    assert "content, summary" in refusal.value.hint


async def test_plan_embeds_each_memory_once(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library.embedder is not None
    embed, texts = library.embedder.embed, []

    async def record(batch: list[str]) -> Any:
        texts.extend(batch)
        return await embed(batch)

    monkeypatch.setattr(library.embedder, "embed", record)
    long = NewMemory(content="茶" * 50_000, summary="long")
    steps = [PlanStep("ADD", NewMemory(content="drinks tea", summary="tea")), PlanStep("ADD", long)]

    await library.apply_plan(ANN, steps, actor="test")
    await library.vectors.settle()

    assert len(texts) == 2
    assert "tea\ndrinks tea" in texts
    assert await library.store.vectors(library.embedder.model).count("ann") == 2


@pytest.mark.concurrent
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
async def test_restore_state_waits_for_an_open_restore(
    store: Store, location: str, commit: bool, is_first: bool
) -> None:
    knowledge = store.knowledge(AGENT)
    if not is_first:
        await knowledge.replace([], "earlier")

    async with open_transaction(
        location, lambda connection: knowledge._replace(connection, [], "r1", None), commit=commit
    ):
        answer = asyncio.create_task(knowledge.was_restored("r1"))
        await wait_for_blocked(store, 1)
        assert not answer.done()

    assert await answer is commit


async def test_memory_ends_when_the_fact_that_ended_it_began(store: Store) -> None:
    await store.memories(ANN).add(
        [NewMemory(memory_key=key, content=key, valid_from=at(1)) for key in ("tea", "home")],
        origin=Origin.USER,
    )
    steps = [
        PlanStep("DELETE", memory_key="tea", ended_at=at(5)),
        PlanStep("DELETE", memory_key="home", ended_at=at(0)),
    ]
    await store.changes(ANN).apply_plan(steps, actor="test")
    ends = {m.memory_key: m.valid_to for m in await store.memories(ANN).get_many(["tea", "home"])}
    assert ends == {"tea": at(5), "home": at(1)}  # not before it began itself
