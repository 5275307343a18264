"""Certainty of recalls and of their items: where it comes from, and what models are told."""

import json
from datetime import timedelta
from typing import Any

from memrecall.agent import (
    Certainty,
    RecalledMemory,
    RecallMemory,
    RecallResult,
    write_block,
)
from memrecall.agent.blocks import write_parent_message, write_relevant_block
from memrecall.agent.tools.memories import RecallAnswer, RecallReply
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.store import PlanStep
from memrecall.testing import ScriptedClient
from memrecall.types import NewMemory, NewMessage, Role

from ..cases import check_each, check_each_async
from ..inert import assert_harmless
from .recall_helpers import (
    ANN,
    LANGUAGES,
    LIN,
    NOW,
    REQUEST,
    detail,
    hand_off,
    in_both_languages,
    run_recall,
    search,
)

SURE, POSSIBLE, NONE = Certainty.SURE, Certainty.POSSIBLE, Certainty.NONE
LABELS = {ANN: "possibly", LIN: "可能"}  # of what is only possible


async def recall_both(
    library: Library, scope: Scope, confidence: float = 0.9, **arguments: Any
) -> RecallResult:
    request, query, keys = LANGUAGES[scope]
    handoff = hand_off(*keys, confidence=confidence, **arguments)
    steps = [search(query), detail(keys[0]), handoff]
    return await run_recall(library, *steps, messages=request, scope=scope)


def set_certainties(result: RecallResult, *certainties: Certainty) -> RecallResult:
    pairs = zip(result.memories, certainties, strict=True)
    chances = {SURE: 0.9, POSSIBLE: 0.3}
    memories = [
        memory.model_copy(update={"certainty": each, "probability": chances[each]})
        for memory, each in pairs
    ]
    return result.model_copy(update={"memories": memories})


def test_probability_of_at_least_seven_tenths_is_sure() -> None:
    def check(case: tuple[float | None, Certainty]) -> None:
        assert Certainty.from_probability(case[0]) is case[1]

    cases = ((1.0, SURE), (0.7, SURE), (0.6999, POSSIBLE), (0.0, POSSIBLE), (None, POSSIBLE))
    check_each(cases, check)


@in_both_languages
async def test_recall_is_as_certain_as_its_confidence(library: Library, scope: Scope) -> None:
    async def check(case: tuple[float, Certainty]) -> None:
        result = await recall_both(library, scope, case[0])
        assert result.certainty is case[1]
        assert (result.memories[0].certainty is SURE) >= (result.certainty is SURE)

    await check_each_async(((0.9, SURE), (0.7, SURE), (0.69, POSSIBLE), (0.0, POSSIBLE)), check)
    request, query, _ = LANGUAGES[scope]
    nothing = [search(query), hand_off(confidence=0.9)]
    assert (await run_recall(library, *nothing, messages=request, scope=scope)).certainty is NONE


@in_both_languages
async def test_item_has_the_probability_of_the_first_search_that_returned_it(
    library: Library, scope: Scope
) -> None:
    request, query, (key, _) = LANGUAGES[scope]
    found: list[float | None] = []
    for queries in (["5433", query], ["5433"], [query]):
        steps = [*map(search, queries), hand_off(key, confidence=0.1)]
        (memory,) = (await run_recall(library, *steps, messages=request, scope=scope)).memories
        assert memory.certainty is Certainty.from_probability(memory.probability)
        found.append(memory.probability)
    both, first, second = found
    assert both == first != second


@in_both_languages
async def test_item_without_a_probability_is_possible(library: Library, scope: Scope) -> None:
    request, query, (key, neighbor) = LANGUAGES[scope]
    found = search(query, search_mode="keyword", limit=1)
    steps = [found, detail(key), hand_off(key, neighbor, confidence=0.6)]
    result = await run_recall(library, *steps, messages=request, scope=scope)
    assert [memory.memory_key for memory in result.memories] == [key, neighbor]
    assert [memory.probability for memory in result.memories] == [None, None]
    assert [memory.certainty for memory in result.memories] == [POSSIBLE, POSSIBLE]


async def test_result_stored_without_certainty_can_be_read(library: Library) -> None:
    fields = (await recall_both(library, ANN)).model_dump(mode="json")
    assert fields.pop("certainty") == "sure"
    for memory in fields["memories"]:
        del memory["certainty"], memory["probability"]
    result = RecallResult.from_dict(fields)
    assert result.certainty is SURE
    assert [memory.certainty for memory in result.memories] == [SURE, POSSIBLE]
    assert RecallResult.from_dict(result.model_dump(mode="json")) == result


def read_labels(block: str) -> list[str | None]:
    lines = [json.loads(line) for line in block.splitlines() if '"memory_key"' in line]
    return [line.get("certainty") for line in lines]


@in_both_languages
async def test_models_read_what_is_only_possible(library: Library, scope: Scope) -> None:
    label = LABELS[scope]
    result = set_certainties(await recall_both(library, scope), SURE, POSSIBLE)
    assert read_labels(write_block(result)) == [None, label]
    assert read_labels(write_parent_message(result, 4_000)) == [None, label]
    reply = RecallReply.from_result(result)
    assert read_labels(reply.as_text()) == [None, label]
    assert (reply.certainty, [each["certainty"] for each in reply.memories]) == (
        SURE,
        [SURE, POSSIBLE],
    )
    answer = RecallAnswer.from_result(result)
    assert answer.certainty is SURE
    assert [memory["certainty"] for memory in answer.memories] == ["sure", "possible"]


@in_both_languages
async def test_views_show_the_certainty(library: Library, scope: Scope) -> None:
    label = LABELS[scope]
    words = {ANN: ("sure: 2", "possible: 2"), LIN: ("确定：交接 2", "可能：交接 2")}[scope]
    recalled = await recall_both(library, scope)
    page = assert_harmless(set_certainties(recalled, SURE, SURE)._repr_html_())
    assert words[0] in page.text
    assert label not in page.text
    unsure = recalled.model_copy(update={"confidence": 0.5})
    page = assert_harmless(set_certainties(unsure, POSSIBLE, POSSIBLE)._repr_html_())
    assert words[1] in page.text
    assert label in page.text.replace(words[1], "")


@in_both_languages
async def test_block_for_a_hook_needs_something_sure(library: Library, scope: Scope) -> None:
    recalled = await recall_both(library, scope, search_summary="the summary")

    def write(*certainties: Certainty, min_confidence: float = 0.5) -> str:
        result = set_certainties(recalled, *certainties)
        return write_relevant_block(result, 4_000, min_confidence, only_sure=True)

    first, second = (memory.content for memory in recalled.memories)
    block = write(SURE, POSSIBLE)
    assert first in block
    # It may say what has changed since: a line that is sure alone would be taken for current.
    assert second in block
    assert LABELS[scope] in block
    assert write(POSSIBLE, POSSIBLE) == ""
    assert write(SURE, SURE, min_confidence=0.95) == ""


@in_both_languages
async def test_items_of_one_session_are_sure_together(library: Library, scope: Scope) -> None:
    recalled = await recall_both(library, scope)

    def share(session: str | None, *probabilities: float) -> list[str]:
        memories = [
            memory.model_copy(
                update={"certainty": POSSIBLE, "probability": probability, "session_id": session}
            )
            for memory, probability in zip(recalled.memories, probabilities, strict=True)
        ]
        memories[0] = memories[0].model_copy(update={"session_id": session and "s"})
        result = recalled.model_copy(update={"memories": memories, "confidence": 0.4})
        sure = [memory.memory_key for memory in result.sure_memories()]
        block = write_relevant_block(result, 4_000, 0.5, only_sure=True)
        assert all((memory.content in block) is bool(sure) for memory in memories)
        return sure

    assert share("s", 0.4, 0.35) == [memory.memory_key for memory in recalled.memories]
    assert share("s", 0.4, 0.25) == []
    assert share("t", 0.4, 0.35) == []
    assert share(None, 0.4, 0.35) == []  # Memories without a session have nothing in common.


@in_both_languages
async def test_what_has_ended_is_never_sure(library: Library, scope: Scope) -> None:
    recalled = await recall_both(library, scope)
    first, second = recalled.memories

    def end(item: RecalledMemory, *, after: timedelta) -> RecalledMemory:
        update = {"valid_to": NOW + after, "certainty": SURE, "probability": 0.78}
        return item.model_copy(update=update)

    def build(*memories: RecalledMemory, confidence: float) -> RecallResult:
        fields = {"memories": list(memories), "confidence": confidence}
        return RecallResult.model_validate({**dict(recalled), **fields})

    ended = end(first, after=-timedelta(hours=1))
    possible = second.model_copy(update={"certainty": POSSIBLE, "probability": 0.11})
    for result in (
        build(ended, confidence=0.9),
        build(possible, ended, confidence=0.11),
        recalled.model_copy(update={"memories": [possible, ended], "confidence": 0.11}),
    ):
        assert result.certainty is POSSIBLE
        assert result.sure_memories() == []
        assert write_relevant_block(result, 4_000, only_sure=True) == ""
        assert first.content in write_relevant_block(result, 4_000, only_sure=False)
    assert [each.certainty for each in build(possible, ended, confidence=0.11).memories] == [
        *(POSSIBLE, POSSIBLE)
    ]
    later = build(end(first, after=timedelta(hours=1)), possible, confidence=0.9)
    assert later.certainty is SURE
    assert [each.memory_key for each in later.sure_memories()] == [first.memory_key]
    assert first.content in write_relevant_block(later, 4_000, only_sure=True)


async def test_superseded_statement_starts_no_block(library: Library) -> None:
    """A model hands off the new line, and after it the old one, which its search found likely."""
    texts = {"old": "I work at Siemens", "new": "I got fired on Monday"}
    for key, content in texts.items():
        message = NewMessage(
            role=Role.USER, content=content, message_id=key, ts=NOW - timedelta(days=2)
        )
        await library.add_messages(Scope("ann", session_id=key), [message])
        fields = {"source_message_ids": (key,), "valid_from": NOW - timedelta(days=1)}
        memory = NewMemory(memory_key=f"mem_{key}", content=content, **fields)
        step = PlanStep("UPDATE", memory, "mem_old") if key == "new" else PlanStep("ADD", memory)
        await library.apply_plan(ANN, [step], actor="user")
    steps = [search("I work at Siemens", limit=10), hand_off("new", "old", confidence=0.11)]
    result = await run_recall(library, *steps, messages="Where do I work?")
    items = {memory.memory_key: memory for memory in result.memories}
    assert (items["old"].probability or 0) >= 0.7
    assert (result.certainty, items["old"].certainty) == (POSSIBLE, POSSIBLE)
    assert write_relevant_block(result, 4_000, only_sure=True) == ""


async def test_results_of_the_autogen_memory_have_their_certainty(library: Library) -> None:
    client = ScriptedClient([search(), hand_off("a1")])
    results = (await RecallMemory(library, ANN, model_client=client).query(REQUEST)).results
    assert [(content.metadata or {})["certainty"] for content in results] == ["sure"]
