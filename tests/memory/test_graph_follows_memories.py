"""One truth: a relation holds exactly as long as a memory that states it."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from memrecall.errors import Conflict
from memrecall.extraction.model import ModelExtractor
from memrecall.memory import AsyncMemory, Policy
from memrecall.testing import ScriptedClient, say
from tests.cases import read_rows
from tests.extractors import SentenceExtractor

from .conftest import make_settings

Triple = tuple[str, str, str]


@pytest.fixture
async def memory(location: str) -> AsyncIterator[AsyncMemory]:
    settings, extractor = make_settings(location), SentenceExtractor()
    async with AsyncMemory(settings=settings, extractor=extractor) as created:
        yield created


async def relations(memory: AsyncMemory, user: str = "ann", **options: Any) -> set[Triple]:
    """Return all relations of a user that hold."""
    entities = (await memory.graph(user_id=user))["entities"]
    found = [(await memory.graph(e["name"], user, **options))["relations"] for e in entities]
    return {(r["source"], r["relationship"], r["destination"]) for rs in found for r in rs}


async def texts(memory: AsyncMemory, user: str = "ann", **options: Any) -> list[str]:
    return sorted(item["memory"] for item in (await memory.get_all(user, **options))["results"])


async def add(memory: AsyncMemory, *messages: str, user: str = "ann") -> list[str]:
    """Add messages one by one and return the ids of the memories that they made."""
    keys = []
    for message in messages:
        results = (await memory.add(message, user))["results"]
        keys += [item["id"] for item in results if item["event"] != "DELETE"]
    return keys


async def test_change_of_a_fact_ends_the_old_relation(memory: AsyncMemory) -> None:
    await add(memory, "I live in Rome.", "I moved to Paris.", "I moved to Oslo.")
    await add(memory, "我住在北京。", "我搬到上海了。", user="李明")
    assert await relations(memory) == {("user", "lives_in", "Oslo")}
    assert await relations(memory, "李明") == {("user", "lives_in", "上海")}


async def test_undo_restores_memory_and_relation_step_by_step(memory: AsyncMemory) -> None:
    *_, last = await add(memory, "I live in Rome.", "I moved to Paris.", "I moved to Oslo.")
    for place in ("Paris", "Rome"):
        await memory.undo(last)
        assert await relations(memory) == {("user", "lives_in", place)}
        assert [place in text for text in await texts(memory)] == [True]
    with pytest.raises(Conflict):
        await memory.undo(last)
    assert await relations(memory) == {("user", "lives_in", "Rome")}


async def test_as_of_agrees_for_memories_and_relations(memory: AsyncMemory) -> None:
    for day, text in ((1, "我住在北京。"), (11, "我搬到上海了。"), (21, "我搬到杭州了。")):
        message = {"role": "user", "content": text, "timestamp": f"2026-01-{day:02}T09:00:00Z"}
        await memory.add([message], "ann")
    for day, place in ((5, "北京"), (15, "上海"), (25, "杭州")):
        moment = f"2026-01-{day:02}T09:00:00Z"
        assert await relations(memory, as_of=moment) == {("user", "lives_in", place)}
        (text,) = await texts(memory, as_of=moment)
        assert place in text


async def test_deleted_memory_hides_its_relation_at_all_times(memory: AsyncMemory) -> None:
    (home,) = await add(memory, "I live in Rome.")
    await add(memory, "I like tea.")
    await memory.delete(home)
    assert await relations(memory) == {("user", "likes", "tea")}
    assert await relations(memory, as_of="2999-01-01T00:00:00Z") == {("user", "likes", "tea")}
    await memory.undo(home)
    assert ("user", "lives_in", "Rome") in await relations(memory)
    await memory.delete_all("ann")
    assert await relations(memory) == set()


async def test_corrected_memory_states_another_relation(memory: AsyncMemory) -> None:
    for user, said, corrected, old, new in (
        ("ann", "I live in Rome.", "User lives in Bern.", "Rome", "Bern"),
        ("李明", "我住在北京。", "用户住在上海。", "北京", "上海"),
    ):
        (home,) = await add(memory, said, user=user)
        await memory.update(home, corrected)
        assert await relations(memory, user) == {("user", "lives_in", new)}
        await memory.update(home, metadata={"checked": True})
        assert await relations(memory, user) == {("user", "lives_in", new)}
        await memory.undo(home)
        await memory.undo(home)
        assert await relations(memory, user) == {("user", "lives_in", old)}


async def test_corrected_memory_that_has_ended_states_no_current_relation(
    memory: AsyncMemory,
) -> None:
    rome, _ = await add(memory, "I live in Rome.", "I moved to Oslo.")
    await memory.update(rome, "User lives in Bern.")
    assert await relations(memory) == {("user", "lives_in", "Oslo")}
    await memory.delete(rome)
    await memory.purge(rome)
    entities = (await memory.graph(user_id="ann"))["entities"]
    assert {entity["name"] for entity in entities} == {"user", "Oslo"}


async def test_relation_stays_while_another_memory_states_it(memory: AsyncMemory) -> None:
    first, second = await add(
        memory, "My sister Clara lives in Oslo.", "My sister Clara is a nurse."
    )
    sister = ("user", "sibling_of", "Clara")
    await memory.delete(second)
    assert sister in await relations(memory)
    await memory.delete(first)
    assert await relations(memory) == set()


@pytest.mark.parametrize("by", ["purge", "sweep"])
async def test_purged_memory_takes_relation_and_names_with_it(memory: AsyncMemory, by: str) -> None:
    rome, _ = await add(memory, "I live in Rome.", "I moved to Paris.")
    if by == "purge":
        await memory.purge(rome, user_id="ann")
    else:
        policy = Policy(superseded_days=0)
        await memory.sweep(policy, user_id="ann", dry_run=False, purge=True)
    entities = (await memory.graph(user_id="ann"))["entities"]
    assert {entity["name"] for entity in entities} == {"user", "Paris"}
    assert await relations(memory) == {("user", "lives_in", "Paris")}


def answer(said: Sequence[str], **fields: Any) -> Any:
    """Return a model's step with the fact and the relation of a row of the table."""
    _, text, relationship, destination = said
    fact = {"text": text, "about": "user", **fields}
    relation = {"source": "user", "relationship": relationship, "destination": destination}
    return say(json.dumps({"facts": [fact], "relations": [relation]}))


BY_MODEL: list[tuple[str, list[tuple[str, str, str, str]]]] = read_rows(
    "changes", "relations by a model"
)


async def test_change_by_a_model_ends_the_old_relation_and_undo_restores_it(location: str) -> None:
    for number, (field, steps) in enumerate(BY_MODEL):
        user = f"user {number}"
        (said, _, verb, thing), (changed, _, _, new_thing) = steps
        script = [answer(steps[0], field=field), answer(steps[1], field=field, replaces=[1])]
        client = ScriptedClient(script)
        settings = make_settings(location)
        async with AsyncMemory(settings=settings, extractor=ModelExtractor(client)) as memory:
            await memory.add(said, user)
            result = await memory.add(changed, user)
            assert [item["event"] for item in result["results"]] == ["UPDATE"], result
            (edge,) = (await memory.graph(thing if thing == new_thing else "user", user))[
                "relations"
            ]
            assert edge["source_message_ids"] == result["messages"]
            await memory.undo(result["results"][0]["id"])
            assert await relations(memory, user) == {("user", verb, thing)}
            (edge,) = (await memory.graph(thing, user))["relations"]
            assert edge["source_message_ids"] != result["messages"]
