"""Corrections by people: wrong relations, and changes that others made first."""

from typing import Any

import pytest

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.memory import AsyncMemory

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


async def triples(memory: AsyncMemory, entity: str) -> set[tuple[str, str, str]]:
    relations = (await memory.graph(entity, ANN))["relations"]
    return {(r["source"], r["relationship"], r["destination"]) for r in relations}


async def test_change_of_another_is_not_overwritten(memory: AsyncMemory) -> None:
    (key,) = await add_facts(memory, "likes tea")
    read = (await memory.get(key, user_id=ANN) or {})["updated_at"]
    await memory.update(key, "likes coffee", user_id=ANN, unchanged_since=read)
    with pytest.raises(Conflict, match="was changed at"):
        await memory.update(key, "likes water", user_id=ANN, unchanged_since=read)
    with pytest.raises(Conflict, match="was changed at"):
        await memory.undo(key, user_id=ANN, unchanged_since=read)
    assert await current(memory) == {"likes coffee"}
    read = (await memory.get(key, user_id=ANN) or {})["updated_at"]
    await memory.undo(key, user_id=ANN, unchanged_since=read)
    assert await current(memory) == {"likes tea"}


async def test_wrong_relation_is_corrected_and_keeps_its_sources(memory: AsyncMemory) -> None:
    (source,) = (await memory.add("Tom works_at Equinor 李明 studies_at 北京大学", ANN))["messages"]

    report = await memory.correct_relation(
        "tom", "works_at", "equinor", {"destination": "Statoil"}, ANN
    )

    assert (report["found"], report["message"]) == (1, "corrected")
    assert await triples(memory, "Tom") == {("Tom", "works_at", "Statoil")}
    (relation,) = (await memory.graph("Statoil", ANN))["relations"]
    assert relation["source_message_ids"] == [source]
    await memory.correct_relation("李明", "studies_at", "北京大学", None, ANN)
    assert await triples(memory, "李明") == set()
    names = {entity["name"] for entity in (await memory.graph(user_id=ANN))["entities"]}
    assert names == {"Tom", "Statoil"}


async def test_relation_that_changed_meanwhile_is_not_corrected(memory: AsyncMemory) -> None:
    await memory.extract("Tom works_at Equinor Tom knows Ann", ANN)
    wrong = ("Tom", "works_at", "Equinor")
    await memory.correct_relation(*wrong, {"relationship": "left"}, ANN)
    with pytest.raises(NotFound, match="no relation says"):
        await memory.correct_relation(*wrong, None, ANN)
    with pytest.raises(NotFound):
        await memory.correct_relation("Tom", "left", "Equinor", None, "ben")
    for correction in ({"destination": "Equinor"}, {"destination": " "}, {"colour": "red"}):
        with pytest.raises(InvalidArgument):
            await memory.correct_relation("Tom", "left", "Equinor", correction, ANN)
    # A correction that is known already leaves one relation.
    await memory.correct_relation(
        "Tom", "left", "Equinor", {"relationship": "knows", "destination": "Ann"}, ANN
    )
    assert await triples(memory, "Tom") == {("Tom", "knows", "Ann")}


async def test_correction_stays_with_the_agent_of_the_relation(memory: AsyncMemory) -> None:
    await memory.extract("Tom works_at Equinor", ANN, "helper")
    await memory.correct_relation("Tom", "works_at", "Equinor", {"source": "Tim"}, ANN)
    (relation,) = (await memory.graph("Tim", ANN, "helper"))["relations"]
    assert relation["agent_id"] == "helper"
    assert (await memory.graph("Tim", ANN, "default"))["relations"] == []


async def names(memory: AsyncMemory) -> set[str]:
    return {entity["name"] for entity in (await memory.graph(user_id=ANN))["entities"]}


async def test_corrected_and_removed_relations_are_restored_by_undo(memory: AsyncMemory) -> None:
    (source,) = (await memory.add("Tom works_at Equinor 李明 studies_at 北京大学", ANN))["messages"]
    correction = {"destination": "Statoil"}
    corrected = await memory.correct_relation("Tom", "works_at", "Equinor", correction, ANN)
    removed = await memory.correct_relation("李明", "studies_at", "北京大学", None, ANN)
    assert await names(memory) == {"Tom", "Statoil"}

    for report in (corrected, removed):
        (key,) = report["ids"]
        undone = await memory.undo(key, user_id=ANN)
        assert undone == {"id": key, "event": "UNDO", "message": "undone"}

    assert await triples(memory, "Tom") == {("Tom", "works_at", "Equinor")}
    (relation,) = (await memory.graph("李明", ANN))["relations"]
    assert (relation["destination"], relation["source_message_ids"]) == ("北京大学", [source])
    assert await names(memory) == {"Tom", "Equinor", "李明", "北京大学"}
    with pytest.raises(NotFound, match="no correction"):
        await memory.undo(key, user_id=ANN)
    with pytest.raises(NotFound, match="no correction"):
        await memory.undo(corrected["ids"][0], user_id="ben")


async def test_undo_keeps_what_was_known_or_said_since(memory: AsyncMemory) -> None:
    await memory.extract("Tom works_at Equinor Tom friend_of Ann", ANN)
    known = {"relationship": "friend_of", "destination": "Ann"}
    report = await memory.correct_relation("Tom", "works_at", "Equinor", known, ANN)
    await memory.extract("Tom works_at Equinor", ANN)  # said again
    await memory.undo(report["ids"][0], user_id=ANN)
    relations = (await memory.graph("Tom", ANN))["relations"]
    assert {r["destination"] for r in relations} == {"Equinor", "Ann"}
    assert len(relations) == 2
    report = await memory.correct_relation(
        "Tom", "works_at", "Equinor", {"destination": "Statoil"}, ANN
    )
    await memory.add("Tom works_at Statoil", ANN)
    await memory.undo(report["ids"][0], user_id=ANN)
    assert ("Tom", "works_at", "Statoil") in await triples(memory, "Tom")


async def test_withdrawn_relation_stays_hidden_while_its_memory_changes(
    memory: AsyncMemory,
) -> None:
    await memory.add("home: Oslo. user lives_in Oslo", ANN)
    (item,) = (await memory.get_all(ANN))["results"]
    report = await memory.correct_relation("user", "lives_in", "Oslo", None, ANN)
    await memory.update(item["id"], pinned=True, user_id=ANN)
    await memory.delete(item["id"], user_id=ANN)
    await memory.undo(item["id"], user_id=ANN)
    assert await triples(memory, "user") == set()
    await memory.undo(report["ids"][0], user_id=ANN)
    assert await triples(memory, "user") == {("user", "lives_in", "Oslo")}
    report = await memory.correct_relation("user", "lives_in", "Oslo", None, ANN)
    await memory.purge(item["id"], user_id=ANN, sources=True)
    with pytest.raises(NotFound, match="no correction"):
        await memory.undo(report["ids"][0], user_id=ANN)
