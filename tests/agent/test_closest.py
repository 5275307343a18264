"""What came closest: shown if a recall hands off nothing, in every form of its result."""

import asyncio
import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.agent import RecalledMemory, Recaller, RecallResult, write_block
from memrecall.agent.blocks import BLOCK_END, BLOCK_START
from memrecall.agent.tools.memories import RecallAnswer, RecallReply
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Permission, Scope
from memrecall.types import NewMemory, Origin

from .clients import BlockingClient, fail_if_blocked
from .recall_helpers import (
    ANN,
    LANGUAGES,
    LIN,
    NOW,
    hand_off,
    in_both_languages,
    make_result,
    recalled_memory,
    run_recall,
    search,
)

QUESTION = {ANN: "Which one?", LIN: "哪一个？"}


async def recall_nothing(
    library: Library, scope: Scope = ANN, *steps: Any, as_scope: Scope | None = None
) -> RecallResult:
    """Return a recall whose model searched, and hands off nothing."""
    request, query, _ = LANGUAGES[scope]
    question = {"needs_more_info": True, "follow_up_question": QUESTION[scope]}
    script = [search(query), *steps, hand_off(confidence=0.1, **question)]
    return await run_recall(library, *script, messages=request, scope=as_scope or scope)


def closest_lines(block: str) -> list[str]:
    lines = [json.loads(line) for line in block.splitlines() if line.startswith('{"closest"')]
    return [line["closest"] for line in lines]


@in_both_languages
async def test_result_has_the_likeliest_three_hits(library: Library, scope: Scope) -> None:
    result = await recall_nothing(library, scope)
    assert result.memories == []
    assert result.certainty == "none"
    assert result.closest[0].memory_key in LANGUAGES[scope][2]
    assert len(result.closest) == min(3, len(result.queries[0].keys))
    chances = [memory.probability or 0 for memory in result.closest]
    assert chances == sorted(chances, reverse=True)


@in_both_languages
async def test_nothing_is_closest_beside_what_is_handed_off(library: Library, scope: Scope) -> None:
    request, query, keys = LANGUAGES[scope]
    result = await run_recall(
        library, search(query), hand_off(keys[0]), messages=request, scope=scope
    )
    assert result.memories
    assert result.closest == []
    assert closest_lines(write_block(result)) == []
    assert RecallAnswer.from_result(result).closest is None
    assert RecallReply.from_result(result).closest == []


async def test_greeting_and_empty_search_have_nothing_closest(library: Library) -> None:
    greeting = await Recaller(library, ANN, clock=lambda: NOW).recall("Thanks!")
    nothing = await run_recall(
        library, search("x", role="assistant", since="2027-01-01"), hand_off()
    )
    assert (greeting.closest, nothing.closest) == ([], [])


@in_both_languages
async def test_block_for_a_parent_quotes_what_is_closest(library: Library, scope: Scope) -> None:
    result = await recall_nothing(library, scope)
    block = write_block(result)
    assert closest_lines(block) == [memory.content for memory in result.closest]
    assert QUESTION[scope] in block.splitlines()[-2]
    assert closest_lines(RecallReply.from_result(result).as_text()) == closest_lines(block)


@in_both_languages
async def test_answers_of_tools_quote_what_is_closest(library: Library, scope: Scope) -> None:
    result = await recall_nothing(library, scope)
    contents = [memory.content for memory in result.closest]
    assert RecallAnswer.from_result(result).closest == contents
    assert RecallReply.from_result(result).as_json()["closest"] == contents


async def test_long_content_is_cut_in_blocks_and_answers(library: Library) -> None:
    long = NewMemory(memory_key="long", content="My database config: " + "pool " * 2_000)
    await library.add_memories(ANN, [long], origin=Origin.USER, actor="test")
    result = await recall_nothing(library)
    assert "long" in [memory.memory_key for memory in result.closest]
    assert len(write_block(result)) < 4_000
    assert len(str(RecallAnswer.from_result(result).closest)) < 2_500


@in_both_languages
async def test_stored_trace_has_what_was_closest(library: Library, scope: Scope) -> None:
    result = await recall_nothing(library, scope)
    trace = await library.store.traces(scope).get(result.trace.trace_id)
    stored = RecallResult.from_dict(trace.body)
    assert stored.closest == result.closest
    assert stored.model_dump(mode="json") == result.model_dump(mode="json")


async def test_result_stored_without_closest_can_be_read(library: Library) -> None:
    fields = (await recall_nothing(library)).model_dump(mode="json")
    del fields["closest"]
    assert RecallResult.from_dict(fields).closest == []


async def test_trace_of_a_recall_with_sensitive_contents_has_none(library: Library) -> None:
    scope = replace(ANN, permissions=frozenset({Permission.SENSITIVE}))
    result = await recall_nothing(library, as_scope=scope)
    trace = await library.store.traces(ANN).get(result.trace.trace_id)
    stored = RecallResult.from_dict(trace.body)
    assert [memory.memory_key for memory in stored.closest] == [
        memory.memory_key for memory in result.closest
    ]
    assert all(memory.content for memory in result.closest)
    assert not any(memory.content or memory.summary for memory in stored.closest)


async def test_sensitive_memory_is_not_closest_without_permission(library: Library) -> None:
    result = await recall_nothing(library)
    assert "hunter2" not in result.model_dump_json()


@in_both_languages
async def test_message_that_is_deleted_meanwhile_is_not_closest(
    library: Library, scope: Scope
) -> None:
    request, query, _ = LANGUAGES[scope]
    client = BlockingClient(search(query), hand_off(confidence=0.1), free=1)
    recall = asyncio.create_task(run_recall(library, messages=request, scope=scope, client=client))
    async with fail_if_blocked():
        await client.called.wait()
        key = (await recall_nothing(library, scope)).closest[0].memory_key
        await AsyncMemory(library=library).delete_message(key, user_id=scope.user_id)
        client.released.set()
        result = await recall
    assert key in result.queries[0].keys
    assert key not in [memory.memory_key for memory in result.closest]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=2_000)


@settings(deadline=None)
@given(
    contents=st.lists(texts, max_size=3),
    summary=texts,
    question=texts,
    characters=st.integers(700, 5_000),
    success=st.booleans(),
)
def test_any_content_stays_inside_the_block(
    contents: list[str], summary: str, question: str, characters: int, success: bool
) -> None:
    closest: list[RecalledMemory] = [recalled_memory(n, text) for n, text in enumerate(contents)]
    result = make_result([], summary, question)
    handoff = result.handoff.model_copy(update={"success": success})
    result = result.model_copy(update={"closest": closest, "handoff": handoff})
    block = write_block(result, characters)
    assert len(block) <= characters
    assert (block.count(BLOCK_START), block.count(BLOCK_END)) == (1, 1)
    assert len(closest_lines(block)) == len(contents)
