"""The knowledge graph: relations, aliases, validity and isolation."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.extraction import ModelExtractor
from memrecall.memory import AsyncMemory
from memrecall.scope import Scope
from memrecall.store import NewRelation, Store
from memrecall.testing import ScriptedClient, say
from tests.extractors import SentenceExtractor

from .conftest import make_settings
from .word_extractor import WordExtractor

RELATIONS_TEXT = (
    "李明 studies_at 北京大学 李明 studies_in 计算机科学"
    " 李明 advised_by 张教授 张教授 expert_in 人工智能"
)


def triples(relations: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(r["source"], r["relationship"], r["destination"]) for r in relations}


async def test_add_writes_relations_to_the_graph(memory: AsyncMemory) -> None:
    result = await memory.add(RELATIONS_TEXT, "ann")

    around = (await memory.graph("李明", "ann"))["relations"]
    assert triples(around) == {
        ("李明", "studies_at", "北京大学"),
        ("李明", "studies_in", "计算机科学"),
        ("李明", "advised_by", "张教授"),
    }
    assert around[0]["source_message_ids"] == result["messages"]
    assert len((await memory.graph("李明", "ann", depth=2))["relations"]) == 4
    assert len((await memory.graph(user_id="ann"))["entities"]) == 5
    assert (await memory.graph("李明", "ben"))["relations"] == []


async def test_depth_has_limits(memory: AsyncMemory) -> None:
    for depth in (-1, 7):
        with pytest.raises(InvalidArgument):
            await memory.graph("北京大学", "ann", depth=depth)


async def test_repeated_relation_is_stored_once(memory: AsyncMemory) -> None:
    await memory.extract("Ann works_at ACME", "ann")
    await memory.extract("ann works_at Ａcme", "ann")

    assert len((await memory.graph("ANN", "ann"))["relations"]) == 1
    assert len((await memory.graph(user_id="ann"))["entities"]) == 2


async def test_merged_names_share_an_entity(memory: AsyncMemory) -> None:
    await memory.extract("Robert works_at ACME", "ann")
    await memory.extract("Bob lives_in Oslo", "ann")

    await (await memory._open()).library.graph(Scope("ann")).merge("Robert", "Bob")
    await memory.extract("Bob plays_the flute", "ann")

    assert len((await memory.graph("bob", "ann"))["relations"]) == 3
    entities = (await memory.graph(user_id="ann"))["entities"]
    assert {"name": "Robert", "type": "person", "aliases": ["Bob", "Robert"]} in entities


async def test_speaker_is_one_entity_before_and_after_the_name(location: str) -> None:
    async with AsyncMemory(
        settings=make_settings(location), extractor=SentenceExtractor()
    ) as memory:
        for user, before, name, after in (
            ("ann", "我在腾讯上班。", "我叫李明。", "我住在上海。"),
            ("ben", "I work at Siemens.", "My name is Eve.", "I live in Rome."),
        ):
            await memory.add(before, user)
            stated = await memory.add(name, user)
            await memory.add(after, user)
            entities = (await memory.graph(user_id=user))["entities"]
            (speaker,) = [entity for entity in entities if "user" in entity["aliases"]]
            assert speaker["alias_sources"] == {speaker["name"]: stated["messages"]}
            assert len((await memory.graph(speaker["name"], user))["relations"]) == 2


async def test_forgotten_name_of_the_speaker_is_in_no_relation(location: str) -> None:
    removals: list[tuple[str, dict[str, bool]]] = [
        ("delete", {}),
        ("delete", {"sources": True}),
        ("purge", {}),
        ("purge", {"sources": True}),
    ]

    async def check(memory: AsyncMemory, verb: str, options: dict[str, bool]) -> None:
        user = f"{verb}-{len(options)}"
        key = (await memory.add("我叫李明。", user))["results"][0]["id"]
        await memory.add("我住在上海。", user)
        assert (await memory.graph("上海", user))["relations"][0]["source"] == "李明"
        await getattr(memory, verb)(key, user_id=user, **options)
        (home,) = (await memory.graph("上海", user))["relations"]
        entities = (await memory.graph(user_id=user))["entities"]
        assert home["source"] == "user"
        assert "李明" not in str(entities)
        if verb == "delete":
            await memory.undo(key, user_id=user)
            assert (await memory.graph("上海", user))["relations"][0]["source"] == "李明"

    async with AsyncMemory(
        settings=make_settings(location), extractor=SentenceExtractor()
    ) as memory:
        for verb, options in removals:
            await check(memory, verb, options)


async def test_stated_alias_merges_with_evidence(location: str) -> None:
    def answer(*relations: tuple[str, str], **fields: Any) -> Any:
        items = [
            {"source": "user", "relationship": verb, "destination": name}
            for verb, name in relations
        ]
        return say(json.dumps({"facts": [], "relations": items, **fields}))

    alias = {"name": "Robert", "type": "person", "aliases": ["Bob"]}
    client = ScriptedClient(
        [answer(("managed_by", "Robert"), ("neighbour_of", "Bob")), answer(entities=[alias])]
    )
    extractor = ModelExtractor(client)
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as memory:
        await memory.add("My boss is Robert. My neighbor is Bob.", "ann")
        stated = await memory.add("Robert, also known as Bob, called.", "ann")
        entities = (await memory.graph(user_id="ann"))["entities"]
        (merged,) = [entity for entity in entities if "Bob" in entity["aliases"]]
        assert merged["aliases"] == ["Bob", "Robert"]
        assert [*merged["alias_sources"].values()] == [stated["messages"]]
        relations = (await memory.graph("Robert", "ann"))["relations"]
    assert {item["relationship"] for item in relations} == {"managed_by", "neighbour_of"}


async def test_relations_have_validity(store: Store) -> None:
    graph = store.graph(Scope("ann"))
    earlier, later = datetime(2020, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
    await graph.add({}, [NewRelation("Ann", "works_at", "ACME", valid_from=earlier)])
    await graph.add({}, [NewRelation("Ann", "works_at", "ACME", valid_from=later, ended=True)])
    await graph.add({}, [NewRelation("Ann", "works_at", "Initech", valid_from=later)])
    (ann,) = await graph.entities(["ann"])

    async def employers(as_of: datetime | None) -> list[str]:
        return [r.destination for _, _, r in await graph.around([ann.entity_id], as_of)]

    assert await employers(None) == ["Initech"]
    assert await employers(datetime(2022, 1, 1, tzinfo=UTC)) == ["ACME"]
    assert await employers(datetime(2019, 1, 1, tzinfo=UTC)) == []


async def test_agents_do_not_share_a_graph(memory: AsyncMemory) -> None:
    await memory.extract("Ann works_at ACME", "ann", "a1")
    assert (await memory.graph("Ann", "ann", "a2"))["relations"] == []
    assert len((await memory.graph("Ann", "ann", "a1"))["relations"]) == 1


async def test_graph_expands_a_two_hop_query(location: str) -> None:
    """The second memory shares no name with the question."""
    settings = make_settings(location, trace_days=0)
    options: dict[str, Any] = {"settings": settings, "extractor": WordExtractor()}
    async with AsyncMemory(**options) as memory:
        for number in range(30):
            await memory.add(f"note {number} about gardens and weather", "ann", infer=False)
        await memory.add("Okonkwo teaches in Lagos", "ann", infer=False)
        query = "city of Mingzhu advisor"
        before = await memory.search(query, "ann", limit=3)
        await memory.extract("Mingzhu advised_by Okonkwo", "ann")

        after = await memory.search(query, "ann", limit=3)

    expected = "Okonkwo teaches in Lagos"
    assert after["results"][0]["memory"] == expected
    assert [i["score"] for i in before["results"] if i["memory"] == expected] < [
        after["results"][0]["score"]
    ]
