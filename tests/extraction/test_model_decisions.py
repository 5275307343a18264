"""Decisions, relations and summaries by a model: followed as far as they can be."""

from collections.abc import Sequence
from typing import Any

import pytest

from memrecall.extraction import RETRACTION, Decision, Fact, Known, ModelExtractor
from memrecall.testing import ScriptedClient, fail, say
from tests.cases import check_each_async

from .modelling import BERLIN, PARIS, TEA, answer, shown
from .talking import NOW, talk


async def decide(
    verdicts: list[dict[str, Any]], *told: Fact, known: Sequence[Known] = (PARIS,)
) -> list[Decision]:
    client = ScriptedClient([answer(decisions=verdicts)])
    decided = await ModelExtractor(client).decide(told, known)
    assert decided.by == "model"
    return list(decided.decisions)


async def test_the_model_decides() -> None:
    update = {"fact": 0, "event": "update", "known": "1", "reason": "moved"}
    assert await decide([update], BERLIN) == [
        Decision("UPDATE", BERLIN, "k1", BERLIN.text, "moved")
    ]
    assert [one.event for one in await decide([{"fact": 0, "event": "NONE", "known": 1}], TEA)] == [
        "NONE"
    ]


async def test_deleting_alone_is_for_retractions() -> None:
    delete = {"fact": 0, "event": "DELETE", "known": 1}
    assert [(one.event, one.text) for one in await decide([delete], BERLIN)] == [
        ("UPDATE", BERLIN.text)
    ]
    forget = Fact("User lives in France.", "user", RETRACTION, "home")
    assert [(one.event, one.memory_key) for one in await decide([delete], forget)] == [
        ("DELETE", "k1")
    ]
    assert [one.event for one in await decide([{"fact": 0, "event": "ADD"}], forget)] == ["NONE"]


USELESS: list[list[dict[str, Any]]] = [
    [],
    [{"fact": 9, "event": "ADD"}],
    [{"fact": 0, "event": "UPDATE", "known": 9}],
    [{"fact": 0, "event": "UPDATE"}],
    [{"fact": 0, "event": "MERGE", "known": 1}],
    [{"fact": "first", "event": "ADD"}],
]


async def test_what_cannot_be_followed_is_left_to_the_rules() -> None:
    async def check(verdicts: list[dict[str, Any]]) -> None:
        assert [(one.event, one.memory_key) for one in await decide(verdicts, BERLIN)] == [
            ("UPDATE", "k1")
        ]

    await check_each_async(USELESS, check)


async def test_a_memory_of_somebody_else_is_out_of_reach() -> None:
    theirs = Known("k1", "Ann lives in Paris.", "Ann", "home", "user_profile")
    update = {"fact": 0, "event": "UPDATE", "known": 1}
    assert [one.event for one in await decide([update], BERLIN, known=[theirs])] == ["ADD"]


async def test_a_memory_is_superseded_once() -> None:
    verdicts = [
        {"fact": 0, "event": "UPDATE", "known": 1},
        {"fact": 1, "event": "UPDATE", "known": 1},
    ]
    assert [(one.event, one.memory_key) for one in await decide(verdicts, TEA, BERLIN)] == [
        ("UPDATE", "k1"),
        ("ADD", None),
    ]


async def test_what_needs_no_model_asks_none() -> None:
    extractor = ModelExtractor(ScriptedClient([]))
    same = Fact(PARIS.text, field="home", memory_type="user_profile")
    assert (await extractor.decide([], [PARIS])).decisions == ()
    assert [one.event for one in (await extractor.decide([same], [PARIS])).decisions] == ["NONE"]
    assert [one.event for one in (await extractor.decide([TEA], [])).decisions] == ["ADD"]


async def test_a_model_that_cannot_decide_leaves_it_to_the_rules() -> None:
    client = ScriptedClient([say("hm"), say("hm")])
    decided = await ModelExtractor(client).decide([BERLIN], [PARIS])
    assert (decided.by, [one.event for one in decided.decisions]) == ("rules", ["UPDATE"])
    assert "not JSON" in decided.problem


async def test_relations_of_a_model_must_be_in_what_was_said() -> None:
    items = [
        {"source": "user", "relationship": "Works At", "destination": "Siemens", "sources": [1]},
        {"source": "user", "relationship": "lives_in", "destination": "Rome", "sources": [1]},
        {"source": "user", "relationship": "likes", "destination": "Siemens", "sources": [2]},
        {"source": "user", "relationship": "", "destination": "Siemens"},
    ]
    entities = [{"name": "Siemens", "type": "organization"}, {"name": "Mars", "type": "place"}]
    client = ScriptedClient([answer(entities=entities, relations=items)])
    related = await ModelExtractor(client).relations(
        talk("I work at Siemens.", "assistant| Siemens is nice."), now=NOW
    )
    assert [(one.source, one.relationship, one.destination) for one in related.relations] == [
        ("user", "works_at", "Siemens")
    ]
    assert {one.name: one.type for one in related.entities} == {
        "user": "person",
        "Siemens": "organization",
    }
    assert related.relations[0].source_ids == ("m0",)


async def test_relations_fall_back_on_the_rules() -> None:
    client = ScriptedClient([say("no"), say("no")])
    related = await ModelExtractor(client).relations(talk("I work at Siemens."), now=NOW)
    assert (related.by, len(related.relations)) == ("rules", 1)


async def test_a_summary_of_a_model_keeps_to_the_limit() -> None:
    client = ScriptedClient([answer(summary="Ann moved. Bob stayed in Rome for a year.")])
    summary = await ModelExtractor(client).summarise(talk("Ann| I moved."), 12)
    assert (summary.text, summary.by) == ("Ann moved.", "model")
    assert shown(client.requests[0])[0] == {"limit": 12}


@pytest.mark.parametrize("step", [[answer(summary="")], [say("no"), say("no")], [fail("quota")]])
async def test_a_useless_summary_is_replaced(step: list[Any]) -> None:
    summary = await ModelExtractor(ScriptedClient(step)).summarise("I live in Rome.", 100)
    assert (summary.text, summary.by) == ("I live in Rome.", "rules")
    assert summary.problem


async def test_nothing_to_summarise_asks_nobody() -> None:
    assert (await ModelExtractor(ScriptedClient([])).summarise([], 100)).text == ""
    assert (await ModelExtractor(ScriptedClient([])).summarise("text", 0)).text == ""
