"""Corrections by people: changes that others made first."""

from typing import Any, cast

import pytest

from memrecall.errors import Conflict
from memrecall.memory import AsyncMemory
from memrecall.memory.results import StoredItem

ANN = "ann"


async def add_facts(memory: AsyncMemory, *texts: str, **options: Any) -> list[str]:
    """Store each text as a memory, and return their ids."""
    ids = []
    for text in texts:
        added = await memory.add(text, ANN, infer=False, **options)
        ids.append(added["results"][0]["id"])
    return ids


async def current(memory: AsyncMemory) -> set[str]:
    return {item["memory"] for item in (await memory.get_all(ANN))["results"]}


async def test_change_of_another_is_not_overwritten(memory: AsyncMemory) -> None:
    (key,) = await add_facts(memory, "likes tea")
    read = cast(StoredItem, await memory.get(key, user_id=ANN))["updated_at"]
    await memory.update(key, "likes coffee", user_id=ANN, unchanged_since=read)
    with pytest.raises(Conflict, match="was changed at"):
        await memory.update(key, "likes water", user_id=ANN, unchanged_since=read)
    with pytest.raises(Conflict, match="was changed at"):
        await memory.undo(key, user_id=ANN, unchanged_since=read)
    assert await current(memory) == {"likes coffee"}
    read = cast(StoredItem, await memory.get(key, user_id=ANN))["updated_at"]
    await memory.undo(key, user_id=ANN, unchanged_since=read)
    assert await current(memory) == {"likes tea"}
