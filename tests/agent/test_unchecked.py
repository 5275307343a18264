"""Facts that their messages do not confirm: never sure, and shown with what was said."""

import json
from typing import Any

from autogen_core.models import FunctionExecutionResultMessage

from memrecall.agent import Certainty, Recaller, RecallResult, write_block
from memrecall.agent.blocks import write_parent_message, write_relevant_block
from memrecall.agent.tools.memories import RecallAnswer, RecallReply
from memrecall.chat.turn import memory_events
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..inert import assert_harmless
from .recall_helpers import (
    ANN,
    LANGUAGES,
    LIN,
    NOW,
    hand_off,
    in_both_languages,
    run_recall,
    search,
)

SURE, POSSIBLE = Certainty.SURE, Certainty.POSSIBLE
FACTS = {ANN: "The database config uses port 5999", LIN: "数据库配置用端口 5999"}
SAID = {ANN: "PostgreSQL on port 5433", LIN: "端口 5433"}  # in their source
NOTES = {ANN: "its messages do not confirm this", LIN: "来源消息未能证实"}


async def add_fact(library: Library, scope: Scope, *sources: str, **fields: Any) -> None:
    fields = {"memory_key": "fact", "content": FACTS[scope], "doubts": ("number",), **fields}
    memory = NewMemory(source_message_ids=sources, **fields)
    await library.add_memories(scope, [memory], origin=Origin.ASSISTANT, actor="extraction")


async def recall_fact(library: Library, scope: Scope, *keys: str) -> RecallResult:
    """Return a recall whose model is confident of the fact, after these other keys."""
    request, query, (source, _) = LANGUAGES[scope]
    await add_fact(library, scope, source)
    steps = [search(query, limit=10), hand_off(*keys, "fact", confidence=0.95)]
    return await run_recall(library, *steps, messages=request, scope=scope)


@in_both_languages
async def test_unchecked_fact_is_never_sure(library: Library, scope: Scope) -> None:
    result = await recall_fact(library, scope)
    (fact,) = result.memories
    assert result.confidence == 0.95
    assert (result.certainty, fact.certainty) == (POSSIBLE, POSSIBLE)
    assert (fact.checked, fact.doubts) == (False, ["number"])
    assert result.sure_memories() == []


@in_both_languages
async def test_unchecked_fact_is_possible_beside_what_is_sure(
    library: Library, scope: Scope
) -> None:
    source = LANGUAGES[scope][2][0]
    result = await recall_fact(library, scope, source)
    assert result.certainty is SURE
    assert [(each.memory_key, each.certainty) for each in result.memories] == [
        (source, SURE),
        ("fact", POSSIBLE),
    ]
    assert [memory.memory_key for memory in result.sure_memories()] == [source]


@in_both_languages
async def test_recall_without_a_model_is_not_sure_of_it(library: Library, scope: Scope) -> None:
    await add_fact(library, scope, LANGUAGES[scope][2][0])
    result = await Recaller(library, scope, clock=lambda: NOW).recall(FACTS[scope] + "?")
    facts = [each for each in result.memories or result.closest if each.memory_key == "fact"]
    assert [(each.checked, each.certainty) for each in facts] == [(False, POSSIBLE)]
    if result.memories[:1] == facts:
        assert result.certainty is POSSIBLE


@in_both_languages
async def test_session_of_an_unchecked_fact_does_not_make_it_sure(
    library: Library, scope: Scope
) -> None:
    result = await recall_fact(library, scope)
    (fact,) = result.memories
    likely = fact.model_copy(update={"probability": 0.99, "session_id": "talk"})
    result = result.model_copy(update={"memories": [likely]})
    assert result.sure_memories() == []
    assert write_relevant_block(result, 4_000, only_sure=True) == ""
    assert FACTS[scope] in write_relevant_block(result, 4_000, only_sure=False)


@in_both_languages
async def test_models_read_it_with_quotes(library: Library, scope: Scope) -> None:
    result = await recall_fact(library, scope)
    reply = RecallReply.from_result(result)
    for text in (write_block(result), write_parent_message(result, 4_000), reply.as_text()):
        (line,) = (line for line in text.splitlines() if '"memory_key":"fact"' in line)
        note = json.loads(line)["unchecked"]
        assert NOTES[scope] in note
        assert SAID[scope] in note
    (fact,) = reply.memories
    assert (fact["checked"], fact["doubts"]) == (False, ["number"])
    assert SAID[scope] in RecallAnswer.from_result(result).memories[0]["unchecked"]
    (event,) = memory_events(result.memories, LANGUAGES[scope][0], result.language)
    assert NOTES[scope] in event["unchecked"]
    assert SAID[scope] in event["unchecked"]


@in_both_languages
async def test_people_see_it_with_quotes(library: Library, scope: Scope) -> None:
    result = await recall_fact(library, scope)
    terminal = "".join(str(result).split())  # in English, and wrapped
    page = assert_harmless(result._repr_html_()).text
    assert NOTES[scope] in page
    assert SAID[scope] in page.partition(NOTES[scope])[2]
    assert "".join(NOTES[ANN].split()) in terminal
    assert "".join(SAID[scope].split()) in terminal.partition("theysay:")[2]


async def test_checked_items_have_no_note(library: Library) -> None:
    result = await run_recall(library, search(), hand_off("a1", confidence=0.4))
    (event,) = memory_events(result.memories, "config", result.language)
    for shown in (write_block(result), str(RecallAnswer.from_result(result)), str(event)):
        assert "unchecked" not in shown


async def test_search_of_the_agent_names_the_doubts(library: Library) -> None:
    await add_fact(library, ANN, "a1")
    client = ScriptedClient([search(limit=10), hand_off("fact")])
    await run_recall(library, client=client)
    (result,) = [
        message
        for message in client.requests[1].messages
        if isinstance(message, FunctionExecutionResultMessage)
    ]
    found = json.loads(result.content[0].content)["results"]
    doubts = {each["memory_key"]: each.get("doubts") for each in found}
    assert doubts["fact"] == ["number"]
    assert doubts["a1"] is None


async def test_quotes_are_few_and_short(library: Library) -> None:
    scope = Scope("ann", session_id="notes")
    messages = [
        NewMessage(message_id=f"n{n}", role=Role.USER, content=f"note {n} " + "pool " * 200, ts=NOW)
        for n in range(5)
    ]
    await library.add_messages(scope, messages)
    await add_fact(library, ANN, *(f"n{n}" for n in range(5)))
    (fact,) = (await run_recall(library, search(limit=10), hand_off("fact"))).memories
    note = fact.describe_doubts("en")["unchecked"]
    assert len(fact.sources) == 5
    assert note.count("“") == 3
    assert len(note) < 3 * 170 + 60


async def test_fact_without_messages_has_no_quote(library: Library) -> None:
    await add_fact(library, ANN, memory_key="bare", doubts=("source",))
    (fact,) = (await run_recall(library, search(limit=10), hand_off("bare"))).memories
    assert fact.certainty is POSSIBLE
    assert fact.describe_doubts("en")["unchecked"].endswith("they say: -")


@in_both_languages
async def test_closest_quotes_the_messages_of_its_doubts(library: Library, scope: Scope) -> None:
    request, query, (source, _) = LANGUAGES[scope]
    await add_fact(library, scope, source)
    steps = [search(query, limit=10), hand_off(confidence=0.1)]
    result = await run_recall(library, *steps, messages=request, scope=scope)
    assert "fact" in [memory.memory_key for memory in result.closest]
    (line,) = (line for line in write_block(result).splitlines() if FACTS[scope] in line)
    assert SAID[scope] in json.loads(line)["unchecked"]
    (quote,) = (text for text in RecallReply.from_result(result).closest if FACTS[scope] in text)
    assert SAID[scope] in quote.partition(NOTES[scope])[2]


async def test_stored_result_keeps_the_doubts(library: Library) -> None:
    result = await recall_fact(library, ANN)
    trace = await library.store.traces(ANN).get(result.trace.trace_id)
    stored = RecallResult.from_dict(trace.body)
    assert stored.memories == result.memories
    assert (stored.certainty, stored.memories[0].doubts) == (POSSIBLE, ["number"])
