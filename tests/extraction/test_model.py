"""Extraction by a model: its answers are checked, mended, or replaced by the rules."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from memrecall.agent.prompt_view import wrap_block
from memrecall.extraction import Fact, ModelExtractor, RuleExtractor, Utterance
from memrecall.model.prompts import load_prompt
from memrecall.testing import Request, ScriptedClient, fail, say, silence, wait
from tests.cases import check_each_async
from tests.waiting import wait_until

from .modelling import answer, shown
from .talking import NOW, talk


async def facts(
    step: Any, said: Sequence[Utterance], **more: Any
) -> tuple[list[tuple[str, str]], ScriptedClient]:
    client = ScriptedClient([step])
    found = await ModelExtractor(client).facts(said, now=NOW, zone=UTC, **more)
    assert (found.by, found.problem) == ("model", "")
    return [(fact.subject, fact.text) for fact in found.facts], client


async def test_the_model_is_shown_the_setting_and_what_people_said() -> None:
    said = talk(
        "I live in Rome.", "assistant| Nice!", "tool| {}", wrap_block(["secret"]), "Ann| Hi\nall"
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


ANSWERS: list[str] = [
    '{"facts": [{"text": "User likes tea.", "sources": [1]}]}',
    '```json\n{"facts": [{"text": "User likes tea.", "sources": 1}]}\n```',
    '[{"text": "User likes tea."}]',
    '{"facts": ["User likes tea."]}',
    '{"text": "User likes tea.", "field": null, "since": "null", "type": "unheard of"}',
    '"{\\"facts\\": [\\"User likes tea.\\"]}"',
    'Here you are: {"facts": ["User likes tea.",]}',
]


async def test_answers_in_many_clothes_are_read() -> None:
    async def check(said: str) -> None:
        found, _ = await facts(say(said), talk("I like tea."))
        assert found == [("user", "User likes tea.")]

    await check_each_async(ANSWERS, check)


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


USELESS: list[tuple[list[Any], str]] = [
    ([say("Sure!"), say("I like tea too.")], "not JSON"),
    ([silence(), silence()], "empty"),
    ([say('{"facts": 3}'), say('{"fact": []}')], "facts"),
    ([fail("timeout")], "timeout"),
    ([fail("unreachable")], "unreachable"),
    ([fail("overflow")], "overflow"),
]


async def test_a_useless_model_is_replaced_by_the_rules_and_the_result_says_so() -> None:
    async def check(case: tuple[list[Any], str]) -> None:
        steps, problem = case
        said = talk("I like tea.")
        found = await ModelExtractor(ScriptedClient(steps)).facts(said, now=NOW, zone=UTC)
        by_rules = await RuleExtractor().facts(said, now=NOW, zone=UTC)
        assert (found.facts, found.by) == (by_rules.facts, "rules")
        assert problem in found.problem

    await check_each_async(USELESS, check)


async def test_an_unusable_answer_is_asked_for_once_more() -> None:
    client = ScriptedClient([say("Sure!"), answer(facts=["User likes tea."])])
    found = await ModelExtractor(client).facts(talk("I like tea."), now=NOW, zone=UTC)
    assert (found.by, [fact.text for fact in found.facts]) == ("model", ["User likes tea."])
    assert "cannot be used" in str(client.requests[1].messages[-1].content)


@pytest.mark.concurrent
async def test_a_slow_model_is_not_waited_for() -> None:
    client = ScriptedClient([wait(600, silence())])
    found = await ModelExtractor(client, seconds=0.01).facts(talk("I like tea."), now=NOW, zone=UTC)
    assert found.by == "rules"
    assert "0.01 seconds" in found.problem


@pytest.mark.concurrent
async def test_a_cancelled_extraction_is_cancelled() -> None:
    client = ScriptedClient([wait(600, silence())])
    task = asyncio.create_task(ModelExtractor(client).facts(talk("I like tea."), now=NOW, zone=UTC))
    await wait_until(lambda: client.requests)
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
