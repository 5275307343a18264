"""Decisions, relations and summaries by a model, and the rules that check them."""

from collections.abc import Sequence
from typing import Any

import pytest

from memrecall.extraction import Fact, KnownMemory, ModelExtractor
from memrecall.extraction.protocol import RETRACTION, Decision
from memrecall.testing import ScriptedClient, fail, say
from tests.cases import check_each_async

from .helpers import BERLIN, PARIS, TEA, answer, prompt_lines
from .transcripts import NOW, parse_turns


async def decide(
    verdicts: list[dict[str, Any]], *new_facts: Fact, known: Sequence[KnownMemory] = (PARIS,)
) -> list[Decision]:
    client = ScriptedClient([answer(decisions=verdicts)])
    result = await ModelExtractor(client).decide(new_facts, known)
    assert result.by == "model"
    return list(result.decisions)


async def test_model_decisions_are_used() -> None:
    update = {"fact": 0, "event": "update", "known": "1", "reason": "moved"}
    assert await decide([update], BERLIN) == [
        Decision("UPDATE", BERLIN, "k1", BERLIN.text, "moved")
    ]
    assert [
        item.event for item in await decide([{"fact": 0, "event": "NONE", "known": 1}], TEA)
    ] == ["NONE"]


async def test_only_retractions_delete() -> None:
    delete = {"fact": 0, "event": "DELETE", "known": 1}
    assert [(item.event, item.text) for item in await decide([delete], BERLIN)] == [
        ("UPDATE", BERLIN.text)
    ]
    retraction = Fact("User lives in France.", "user", RETRACTION, "home")
    assert [(item.event, item.memory_key) for item in await decide([delete], retraction)] == [
        ("DELETE", "k1")
    ]
    assert [item.event for item in await decide([{"fact": 0, "event": "ADD"}], retraction)] == [
        "NONE"
    ]


UNUSABLE: list[list[dict[str, Any]]] = [
    [],
    [{"fact": 9, "event": "ADD"}],
    [{"fact": 0, "event": "UPDATE", "known": 9}],
    [{"fact": 0, "event": "UPDATE"}],
    [{"fact": 0, "event": "MERGE", "known": 1}],
    [{"fact": "first", "event": "ADD"}],
]


async def test_invalid_verdicts_fall_back_to_rules() -> None:
    async def check(verdicts: list[dict[str, Any]]) -> None:
        assert [(item.event, item.memory_key) for item in await decide(verdicts, BERLIN)] == [
            ("UPDATE", "k1")
        ]

    await check_each_async(UNUSABLE, check)


async def test_new_value_of_a_slot_replaces_the_old_one_whatever_the_model_says() -> None:
    for verdict in ({"event": "ADD"}, {"event": "NONE", "known": 1}):
        decisions = await decide([{"fact": 0, **verdict}], BERLIN)
        assert [(item.event, item.memory_key) for item in decisions] == [("UPDATE", "k1")]
    coffee = KnownMemory("k1", "User likes coffee.", "user", "likes", "user_preference")
    decisions = await decide([{"fact": 0, "event": "ADD"}], TEA, known=[coffee])
    assert [(item.event, item.memory_key) for item in decisions] == [("ADD", None)]


async def test_model_cannot_change_memory_of_another_subject() -> None:
    memory = KnownMemory("k1", "Ann lives in Paris.", "Ann", "home", "user_profile")
    update = {"fact": 0, "event": "UPDATE", "known": 1}
    assert [item.event for item in await decide([update], BERLIN, known=[memory])] == ["ADD"]


async def test_memory_is_superseded_once() -> None:
    verdicts = [
        {"fact": 0, "event": "UPDATE", "known": 1},
        {"fact": 1, "event": "UPDATE", "known": 1},
    ]
    assert [(item.event, item.memory_key) for item in await decide(verdicts, TEA, BERLIN)] == [
        ("UPDATE", "k1"),
        ("ADD", None),
    ]


async def test_model_is_not_asked_about_certain_decisions() -> None:
    extractor = ModelExtractor(ScriptedClient([]))
    repeated = Fact(PARIS.text, field="home", memory_type="user_profile")
    assert (await extractor.decide([], [PARIS])).decisions == ()
    assert [item.event for item in (await extractor.decide([repeated], [PARIS])).decisions] == [
        "NONE"
    ]
    assert [item.event for item in (await extractor.decide([TEA], [])).decisions] == ["ADD"]


async def test_ended_relation_needs_only_its_successor_in_messages() -> None:
    porto = {"source": "user", "relationship": "lives_in", "destination": "Porto", "sources": [1]}
    ended = {**porto, "ended": True}
    faro = {**porto, "destination": "Faro"}

    async def related(text: str, *items: dict[str, Any]) -> list[tuple[str, bool]]:
        client = ScriptedClient([answer(relations=list(items))])
        result = await ModelExtractor(client).relations(parse_turns(text), now=NOW)
        return [(relation.destination, relation.ended) for relation in result.relations]

    assert await related("I moved to Faro.", ended, faro) == [("Porto", True), ("Faro", False)]
    assert await related("I moved.", ended, faro) == []
    assert await related("I moved to Faro.", porto, faro) == [("Faro", False)]


async def test_unusable_decisions_fall_back_to_rules() -> None:
    client = ScriptedClient([say("hm"), say("hm")])
    result = await ModelExtractor(client).decide([BERLIN], [PARIS])
    assert (result.by, [item.event for item in result.decisions]) == ("rules", ["UPDATE"])
    assert "not JSON" in result.problem


async def test_model_relations_need_both_names_in_messages() -> None:
    items = [
        {"source": "user", "relationship": "Works At", "destination": "Siemens", "sources": [1]},
        {"source": "user", "relationship": "lives_in", "destination": "Rome", "sources": [1]},
        {"source": "user", "relationship": "likes", "destination": "Siemens", "sources": [2]},
        {"source": "user", "relationship": "", "destination": "Siemens"},
    ]
    entities = [{"name": "Siemens", "type": "organization"}, {"name": "Mars", "type": "place"}]
    client = ScriptedClient([answer(entities=entities, relations=items)])
    related = await ModelExtractor(client).relations(
        parse_turns("I work at Siemens.", "assistant| Siemens is nice."), now=NOW
    )
    assert [(item.source, item.relationship, item.destination) for item in related.relations] == [
        ("user", "works_at", "Siemens")
    ]
    assert {item.name: item.type for item in related.entities} == {
        "user": "person",
        "Siemens": "organization",
    }
    assert related.relations[0].source_ids == ("m0",)


async def test_unusable_relations_fall_back_to_rules() -> None:
    client = ScriptedClient([say("no"), say("no")])
    related = await ModelExtractor(client).relations(parse_turns("I work at Siemens."), now=NOW)
    assert (related.by, len(related.relations)) == ("rules", 1)


async def test_model_summary_is_cut_to_limit() -> None:
    client = ScriptedClient([answer(summary="Ann moved. Bob stayed in Rome for a year.")])
    summary = await ModelExtractor(client).summarise(parse_turns("Ann| I moved."), 12)
    assert (summary.text, summary.by) == ("Ann moved.", "model")
    assert prompt_lines(client.requests[0])[0] == {"limit": 12}


@pytest.mark.parametrize("step", [[answer(summary="")], [say("no"), say("no")], [fail("quota")]])
async def test_unusable_summary_falls_back_to_rules(step: list[Any]) -> None:
    summary = await ModelExtractor(ScriptedClient(step)).summarise("I live in Rome.", 100)
    assert (summary.text, summary.by) == ("I live in Rome.", "rules")
    assert summary.problem


async def test_model_is_not_asked_to_summarise_nothing() -> None:
    assert (await ModelExtractor(ScriptedClient([])).summarise([], 100)).text == ""
    assert (await ModelExtractor(ScriptedClient([])).summarise("text", 0)).text == ""
