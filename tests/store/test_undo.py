"""Undo walks back one change at a time, and never restores a memory beside its successor."""

from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from memrecall.errors import Conflict, NotFound
from memrecall.store import MemoryQuery, PlanStep, Store
from memrecall.types import NewMemory, Origin

from ..databases import Databases
from ..machines import LONG, AsyncMachine, run_machine
from .samples import ANN, add_memory

PLACES = ("Rome", "Paris", "Oslo", "北京")
KEYS = st.sampled_from([f"home{number}" for number in range(8)])


def home(key: str, place: str) -> NewMemory:
    return NewMemory(memory_key=key, content=place, subject="user", field="home")


async def move(store: Store, key: str, place: str, old: str) -> None:
    await store.changes(ANN).apply_plan([PlanStep("UPDATE", home(key, place), old)], actor="test")


async def current(store: Store) -> list[str]:
    page = await store.memories(ANN).page(MemoryQuery())
    return sorted(record.content for record in page.items)


async def undo(store: Store, key: str) -> list[str]:
    return await store.changes(ANN).undo(key, actor="test")


async def three_homes(store: Store) -> None:
    await store.memories(ANN).add([home("rome", "Rome")], origin=Origin.USER)
    await move(store, "paris", "Paris", "rome")
    await move(store, "oslo", "Oslo", "paris")


async def test_undo_of_the_last_memory_walks_back_to_the_first(store: Store) -> None:
    await three_homes(store)
    for expected in ("Paris", "Rome"):
        await undo(store, "oslo")
        assert await current(store) == [expected]
    for key in ("oslo", "paris", "rome", "oslo"):
        with pytest.raises(Conflict, match="no change to undo"):
            await undo(store, key)
        assert await current(store) == ["Rome"]


async def test_undo_after_another_move_takes_that_one_back(store: Store) -> None:
    await three_homes(store)
    await undo(store, "paris")
    await move(store, "bern", "Bern", "paris")
    assert await undo(store, "oslo") == ["paris", "bern"]
    assert await current(store) == ["Paris"]


async def test_undo_restores_beside_a_memory_that_never_replaced_it(store: Store) -> None:
    """Whether both can hold is for the user to say."""
    await store.memories(ANN).add([home("rome", "Rome")], origin=Origin.USER)
    await store.changes(ANN).delete(["rome"], actor="test")
    await store.memories(ANN).add([home("paris", "Paris")], origin=Origin.USER)
    await undo(store, "rome")
    assert await current(store) == ["Paris", "Rome"]


async def test_fact_that_ended_two_memories_is_undone_as_a_whole(store: Store) -> None:
    await add_memory(store, "job", "works at ACME")
    await add_memory(store, "boss", "reports to Ben")
    steps = [
        PlanStep("UPDATE", NewMemory(memory_key="new", content="retired"), "job", fact=0),
        PlanStep("DELETE", memory_key="boss", fact=0),
    ]
    await store.changes(ANN).apply_plan(steps, actor="test")
    assert await current(store) == ["retired"]
    assert sorted(await undo(store, "new")) == ["boss", "job", "new"]
    assert await current(store) == ["reports to Ben", "works at ACME"]


class Homes(AsyncMachine):
    """One user who moves, corrects, forgets and takes back."""

    def __init__(self, location: str) -> None:
        super().__init__()
        self._store = self._run(Store.open(location))
        self._changes = self._store.changes(ANN)
        self._keys: list[str] = []
        self._count = 0

    def _homes(self) -> list[Any]:
        if not self._keys:
            return []
        return list(self._run(self._store.memories(ANN).page(MemoryQuery())).items)

    @rule(place=st.sampled_from(PLACES))
    def move(self, place: str) -> None:
        key = f"home{self._count}"
        self._count += 1
        self._keys.append(key)
        old = next((record.memory_key for record in self._homes()), None)
        step = PlanStep("UPDATE" if old else "ADD", home(key, f"{place} {key}"), old)
        self._run(self._changes.apply_plan([step], actor="test"))

    @rule()
    def retract(self) -> None:
        for record in self._homes():
            step = PlanStep("DELETE", memory_key=record.memory_key)
            self._run(self._changes.apply_plan([step], actor="test"))

    @rule(key=KEYS, place=st.sampled_from(PLACES))
    def correct(self, key: str, place: str) -> None:
        self._try(self._changes.update(key, {"content": f"{place} {key}"}, actor="test"))

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self._try(self._changes.delete([key], actor="test"))

    @rule(key=KEYS)
    def purge(self, key: str) -> None:
        self._try(self._changes.purge([key]))

    @rule(key=KEYS)
    def undo(self, key: str) -> None:
        self._try(undo(self._store, key))

    @rule(key=KEYS)
    def undo_until_refused(self, key: str) -> None:
        for _ in range(200):  # far more steps than there can be changes
            if not self._try(undo(self._store, key)):
                break
            self.no_memory_holds_beside_its_successor()
        else:
            raise AssertionError("undo never refuses")

    def _try(self, work: Coroutine[Any, Any, object]) -> bool:
        try:
            self._run(work)
        except (Conflict, NotFound):
            return False
        return True

    @invariant()
    def no_memory_holds_beside_its_successor(self) -> None:
        homes = self._homes()
        holding = {home.memory_key for home in homes}
        assert not any(home.superseded_by in holding for home in homes)

    async def _close(self) -> None:
        await self._store.close()


@LONG
def test_no_home_holds_beside_its_successor_after_any_changes(
    databases: Databases, engine: str, is_long: bool
) -> None:
    examples = (100 if is_long else 8) // (1 if engine == "sqlite" else 2)
    steps = 30 if is_long else 16
    run_machine(lambda: Homes(databases.fresh()), examples, steps, derandomize=not is_long)
