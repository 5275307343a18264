"""Recall from the knowledge base of the agent, marked as what nobody said."""

from datetime import timedelta

from memrecall.agent import Recaller, RecallResult, StopReason, write_block
from memrecall.library.knowledge import KnowledgeBase
from memrecall.memory import Library, recall
from memrecall.scope import Permission, Scope
from memrecall.store import NewKnowledge

from .recall_helpers import detail, hand_off, on_both_engines, run_recall, search, tool_results

CLERK = Scope("ann", "clerk", permissions=frozenset({Permission.KNOWLEDGE}))
LEAVE = NewKnowledge("Employees get 25 days of paid leave a year.", "Vacation policy", key="kb-1")
RETURNS = NewKnowledge("商品签收后七天内可以无理由退货。", "退货政策", key="kb-2")


async def add_knowledge(library: Library) -> None:
    base = KnowledgeBase(library, CLERK)
    for entry in (LEAVE, RETURNS):
        await base.add(entry)


async def ask(library: Library, question: str, scope: Scope = CLERK) -> RecallResult:
    return await Recaller(library, scope).recall(question)


@on_both_engines
async def test_rules_answer_from_the_knowledge_base(library: Library) -> None:
    await add_knowledge(library)
    for question, key, source in (
        ("What did the vacation policy say about paid leave?", "kb-1", "knowledge base"),
        ("之前那个退货政策是怎么说的？", "kb-2", "知识库"),
    ):
        result = await ask(library, question, CLERK)
        assert result.handoff.relevant_memory_keys == [key], result.handoff
        assert [memory.kind for memory in result.memories] == ["knowledge"]
        assert source in result.handoff.search_summary
        assert "knowledge" in write_block(result)


async def test_knowledge_of_another_agent_is_not_found(library: Library) -> None:
    await add_knowledge(library)
    cook = Scope("ann", "cook")
    result = await ask(library, "What did the vacation policy say?", cook)
    assert "kb-1" not in result.handoff.relevant_memory_keys


async def test_model_sees_entries_marked_and_can_read_them(library: Library) -> None:
    await add_knowledge(library)
    steps = search("vacation policy"), detail("kb-1"), hand_off("kb-1")
    result = await run_recall(library, *steps, messages="vacation policy?", scope=CLERK)
    found, read, *_ = (event["output"] for event in tool_results(result))
    assert [row["kind"] for row in found["results"] if row["memory_key"] == "kb-1"] == ["knowledge"]
    assert "knowledge base" in found["message"]
    assert read["content"] == LEAVE.content
    assert [memory.content for memory in result.memories] == [LEAVE.content]
    assert result.keys_dropped == []


async def test_filters_on_what_was_said_leave_entries_out(library: Library) -> None:
    await add_knowledge(library)
    for filters in ({"since": "2020-01-01"}, {"role": "user"}, {"memory_types": ["general"]}):
        steps = search("vacation policy", **filters), hand_off()
        result = await run_recall(library, *steps, scope=CLERK)
        rows = tool_results(result)[0]["output"].get("results", [])
        assert "kb-1" not in [row["memory_key"] for row in rows], filters


async def test_entry_is_not_seen_before_it_was_written(library: Library) -> None:
    await add_knowledge(library)
    entry = await library.store.knowledge(CLERK).get("kb-1")
    question = "What did the vacation policy say about paid leave?"
    for moment, keys in ((timedelta(minutes=-1), []), (timedelta(minutes=1), ["kb-1"])):
        result = await recall(
            question, user_id="ann", agent_id="clerk", library=library,
            as_of=entry.updated_at + moment,
        )  # fmt: skip
        assert result.handoff.relevant_memory_keys == keys


async def test_user_without_messages_can_ask_the_knowledge_base(library: Library) -> None:
    await add_knowledge(library)
    nobody = Scope("nobody", "clerk")
    result = await ask(library, "What did the vacation policy say?", nobody)
    assert result.handoff.relevant_memory_keys == ["kb-1"]
    result = await ask(library, "What did the vacation policy say?", Scope("nobody"))
    assert result.stop_reason is StopReason.NOTHING_STORED
    assert await library.store.feed("nobody").version() is None
