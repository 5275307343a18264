"""Extraction by a model: its answers are checked, mended, or replaced by the rules."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from autogen_core.models import SystemMessage, UserMessage

from memrecall.agent.block import fence
from memrecall.memory.extraction import (
    EXTRACTION_RULES,
    RETRACTION,
    Decision,
    Fact,
    Known,
    ModelExtractor,
    RuleExtractor,
    Utterance,
    offline_client,
)
from memrecall.model.prompts import load_prompt
from memrecall.testing import Request, ScriptedClient, fail, say, silence, wait

from .conversations import CONVERSATIONS
from .talking import NOW, talk

PARIS = Known("k1", "User lives in Paris.", "user", "home", "user_profile")
BERLIN = Fact("User moved to Berlin.", "user", "user_profile", "home", ("m0",), NOW)
TEA = Fact("User likes tea.", "user", "user_preference", "likes", ("m0",), NOW)


def answer(**value: Any) -> Any:
    return say(json.dumps(value, ensure_ascii=False))


async def facts(
    step: Any, said: Sequence[Utterance], **more: Any
) -> tuple[list[tuple[str, str]], ScriptedClient]:
    client = ScriptedClient([step])
    found = await ModelExtractor(client).facts(said, now=NOW, zone=UTC, **more)
    assert (found.by, found.problem) == ("model", "")
    return [(fact.subject, fact.text) for fact in found.facts], client


def shown(request: Request) -> list[dict[str, Any]]:
    system, user = request.messages
    assert isinstance(system, SystemMessage)
    assert isinstance(user, UserMessage)
    assert isinstance(user.content, str)
    return [json.loads(line) for line in user.content.split("\n")]


async def test_the_model_is_shown_the_setting_and_what_people_said() -> None:
    said = talk(
        "I live in Rome.", "assistant| Nice!", "tool| {}", fence(["secret"]), "Ann| Hi\nall"
    )
    _, client = await facts(answer(facts=[]), said, prompt="only food")
    assert shown(client.requests[0]) == [
        {"now": "2026-03-10T12:00:00Z", "zone": "UTC", "guidance": "only food"},
        {"id": 1, "role": "user", "time": "2026-03-10T12:00:00Z", "text": "I live in Rome."},
        {"id": 2, "role": "assistant", "time": "2026-03-10T12:00:00Z", "text": "Nice!"},
        {
            "id": 5,
            "role": "user",
            "speaker": "Ann",
            "time": "2026-03-10T12:00:00Z",
            "text": "Hi\nall",
        },
    ]
    assert client.requests[0].messages[0].content == load_prompt("extract_facts", "en")


async def test_context_is_shown_as_such_and_chinese_gets_the_chinese_prompt() -> None:
    context = talk("assistant| 你住在哪里？")
    _, client = await facts(answer(facts=[]), talk("上海"), context=context)
    assert [line.get("context") for line in shown(client.requests[0])] == [None, True, None]
    assert client.requests[0].messages[0].content == load_prompt("extract_facts", "zh")


async def test_a_fact_of_the_model_gets_ids_a_type_a_slot_and_a_time() -> None:
    item = {
        "text": "User moved to Rome.",
        "about": "User",
        "type": "user_profile",
        "field": "Home",
        "sources": ["1", 9],
        "since": "2026-03-02",
        "negated": False,
    }
    client = ScriptedClient([answer(facts=[item])])
    (fact,) = (
        await ModelExtractor(client).facts(talk("I moved to Rome."), now=NOW, zone=UTC)
    ).facts
    assert fact == Fact(
        "User moved to Rome.",
        "user",
        "user_profile",
        "home",
        ("m0",),
        datetime(2026, 3, 2, tzinfo=UTC),
        keywords=fact.keywords,
    )
    assert "Rome" in fact.keywords


@pytest.mark.parametrize(
    "said",
    [
        '{"facts": [{"text": "User likes tea.", "sources": [1]}]}',
        '```json\n{"facts": [{"text": "User likes tea.", "sources": 1}]}\n```',
        '[{"text": "User likes tea."}]',
        '{"facts": ["User likes tea."]}',
        '{"text": "User likes tea.", "field": null, "since": "null", "type": "unheard of"}',
        '"{\\"facts\\": [\\"User likes tea.\\"]}"',
        'Here you are: {"facts": ["User likes tea.",]}',
    ],
)
async def test_answers_in_many_clothes_are_read(said: str) -> None:
    found, _ = await facts(say(said), talk("I like tea."))
    assert found == [("user", "User likes tea.")]


@pytest.mark.parametrize("said", ['{"facts": []}', "[]", '{"facts": [{"text": ""}]}'])
async def test_an_empty_answer_is_an_answer(said: str) -> None:
    found, _ = await facts(say(said), talk("Hello!"))
    assert found == []


async def test_facts_that_no_person_said_are_dropped() -> None:
    said = talk("What do you suggest?", "assistant| Move to Rome. You like tea.")
    items = [
        {"text": "User lives in Rome.", "sources": [2]},
        {"text": "User likes tea.", "sources": [7]},
        {"text": "Quantum foam is bubbly.", "sources": []},
        {"text": "User asked what to do.", "sources": [1]},
    ]
    found, _ = await facts(answer(facts=items), [*said, *talk("Fine by me, thanks")])
    assert found == [("user", "User asked what to do.")]


async def test_what_one_said_is_no_fact_about_another_unless_it_names_him() -> None:
    said = talk("Ann| I live in Rome.", "Bob| Ann hates olives.", "Bob| Cool.")
    items = [
        {"text": "Ann lives in Rome.", "about": "ann", "sources": [1]},
        {"text": "Bob lives in Rome.", "about": "Bob", "sources": [1]},
        {"text": "Ann hates olives.", "about": "Ann", "sources": [2]},
        {"text": "Ann is cool.", "about": "Ann", "sources": [3]},
        {"text": "Bob said cool.", "about": "user", "sources": [3]},
    ]
    found, _ = await facts(answer(facts=items), said)
    assert found == [
        ("Ann", "Ann lives in Rome."),
        ("Ann", "Ann hates olives."),
        ("Bob", "Bob said cool."),
    ]


async def test_nobody_speaking_asks_nobody() -> None:
    client = ScriptedClient([])
    said = talk("assistant| I live in Rome.", "tool| x", "```\ncode\n```")
    assert (await ModelExtractor(client).facts(said, now=NOW, zone=UTC)).facts == ()
    assert (await ModelExtractor(client).relations(said, now=NOW)).relations == ()


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([say("Sure!"), say("I like tea too.")], "not JSON"),
        ([silence(), silence()], "empty"),
        ([say('{"facts": 3}'), say('{"fact": []}')], "facts"),
        ([fail("timeout")], "timeout"),
        ([fail("unreachable")], "unreachable"),
        ([fail("overflow")], "overflow"),
    ],
)
async def test_a_useless_model_is_replaced_by_the_rules_and_the_result_says_so(
    steps: list[Any], problem: str
) -> None:
    said = talk("I like tea.")
    found = await ModelExtractor(ScriptedClient(steps)).facts(said, now=NOW, zone=UTC)
    by_rules = await RuleExtractor().facts(said, now=NOW, zone=UTC)
    assert (found.facts, found.by) == (by_rules.facts, "rules")
    assert problem in found.problem


async def test_an_unusable_answer_is_asked_for_once_more() -> None:
    client = ScriptedClient([say("Sure!"), answer(facts=["User likes tea."])])
    found = await ModelExtractor(client).facts(talk("I like tea."), now=NOW, zone=UTC)
    assert (found.by, [fact.text for fact in found.facts]) == ("model", ["User likes tea."])
    assert "cannot be used" in str(client.requests[1].messages[-1].content)


async def test_a_slow_model_is_not_waited_for() -> None:
    client = ScriptedClient([wait(60, silence())])
    found = await ModelExtractor(client, seconds=0.01).facts(talk("I like tea."), now=NOW, zone=UTC)
    assert found.by == "rules"
    assert "0.01 seconds" in found.problem


async def test_a_cancelled_extraction_is_cancelled() -> None:
    client = ScriptedClient([wait(60, silence())])
    task = asyncio.create_task(ModelExtractor(client).facts(talk("I like tea."), now=NOW, zone=UTC))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_failure_of_a_strange_client_is_a_problem_without_its_words() -> None:
    def explode(_request: Request) -> Any:
        raise RuntimeError("the user said: I like tea")

    found = await ModelExtractor(ScriptedClient([explode])).facts(
        talk("I like tea."), now=NOW, zone=UTC
    )
    assert (found.by, found.problem) == ("rules", "the model failed: RuntimeError")


async def test_a_long_conversation_is_asked_about_in_parts() -> None:
    said = talk(*(f"I like tea number {number}." for number in range(50)))
    steps = [answer(facts=[{"text": "User likes tea.", "sources": [3]}]), say("no"), say("no")]
    client = ScriptedClient(steps)
    found = await ModelExtractor(client).facts(said, now=NOW, zone=UTC)
    assert found.by == "model"
    assert found.problem.startswith("1 of 2 parts were read by rules")
    assert found.facts[0].source_ids == ("m2",)
    assert len(found.facts) == 1 + 10
    assert sum("context" in line for line in shown(client.requests[1])) == 6


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


@pytest.mark.parametrize(
    "verdicts",
    [
        [],
        [{"fact": 9, "event": "ADD"}],
        [{"fact": 0, "event": "UPDATE", "known": 9}],
        [{"fact": 0, "event": "UPDATE"}],
        [{"fact": 0, "event": "MERGE", "known": 1}],
        [{"fact": "first", "event": "ADD"}],
    ],
)
async def test_what_cannot_be_followed_is_left_to_the_rules(verdicts: list[dict[str, Any]]) -> None:
    assert [(one.event, one.memory_key) for one in await decide(verdicts, BERLIN)] == [
        ("UPDATE", "k1")
    ]


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
        "user": "thing",
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


def test_every_prompt_of_extraction_has_a_rule() -> None:
    assert set(EXTRACTION_RULES) == {"extract_facts", "decide", "extract_relations", "summarise"}


@pytest.mark.parametrize("case", CONVERSATIONS, ids=lambda case: case[1][0].text[:30])
async def test_the_offline_client_answers_as_the_rules_do(case: Any) -> None:
    _, said, _ = case
    asked, rules = ModelExtractor(offline_client()), RuleExtractor()
    found = await asked.facts(said, now=NOW, zone=UTC)
    by_rules = await rules.facts(said, now=NOW, zone=UTC)
    assert found.by == "rules"  # no model was asked, and the result does not claim one
    assert [bare(fact) for fact in found.facts] == [bare(fact) for fact in by_rules.facts]
    known = [PARIS, Known("k2", "用户住在北京。", "user", "home", "user_profile")]
    decided = await asked.decide(by_rules.facts, known)
    assert [(one.event, one.memory_key) for one in decided.decisions] == [
        (one.event, one.memory_key) for one in (await rules.decide(by_rules.facts, known)).decisions
    ]
    related = await asked.relations(said, now=NOW)
    assert related.relations == (await rules.relations(said, now=NOW)).relations
    assert (await asked.summarise(said, 80)).text == (await rules.summarise(said, 80)).text


def bare(fact: Fact) -> Fact:
    """A fact without its keywords, which are read from the finished sentence here."""
    return Fact(
        fact.text,
        fact.subject,
        fact.memory_type,
        fact.field,
        fact.source_ids,
        fact.valid_from,
        fact.negated,
    )
