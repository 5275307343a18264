"""The memory tools of a parent agent: remember, recall, correct and forget."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_core import CancellationToken
from autogen_core.tools import BaseTool

from memrecall import memory_tools
from memrecall.agent.autogen import MemoryTool
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.memories import ForgetArguments, MemoryChange
from memrecall.agent.tools.table import TOOLS
from memrecall.memory import Library
from memrecall.model.client import Request
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient, Step, call, say
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..databases import Databases
from .recall_helpers import run_tool

ANN, BEN = Scope("ann"), Scope("ben")
NAMES = ["remember", "recall", "correct", "forget"]


@pytest.fixture
def location(databases: Databases) -> str:
    """A database without the history of the other tests."""
    return databases.fresh()


async def call_tool(
    library: Library, name: str, scope: Scope = ANN, **arguments: Any
) -> dict[str, Any]:
    """Call a tool and return the JSON that the parent's model reads."""
    return await run_tool(make_tools(library, scope)[name], **arguments)


def make_tools(
    library: Library, scope: Scope = ANN, **options: Any
) -> dict[str, BaseTool[Any, Any]]:
    return {tool.name: tool for tool in memory_tools(library, scope, **options)}


async def add_memory(library: Library, text: str, **fields: Any) -> str:
    """Store a memory and return its key."""
    new = NewMemory(content=text, **fields)
    result = await library.add_memories(ANN, [new], origin=Origin.USER, actor="test")
    return result.ids[0]


class TestSingleTools:
    async def test_remember_records_the_assistant_as_origin(self, library: Library) -> None:
        answer = await call_tool(
            library, "remember", text="Ann likes tea", memory_type="user_preference"
        )

        assert answer["done"]
        record = await library.store.memories(ANN).get(answer["memory_key"])
        assert (record.content, record.memory_type) == ("Ann likes tea", "user_preference")
        assert record.provenance.origin is Origin.ASSISTANT
        assert record.provenance.actor == "assistant"
        repeated = await call_tool(library, "remember", text="Ann likes tea")
        assert repeated == {**repeated, "memory_key": answer["memory_key"], "done": True}
        assert (await library.store.count("ann"))["memories"] == 1

    async def test_remember_returns_similar_memories(self, library: Library) -> None:
        key = await add_memory(library, "Ann lives in Paris")
        answer = await call_tool(library, "remember", text="Ann lives in Rome")
        assert answer["similar"] == [{"memory_key": key, "content": "Ann lives in Paris"}]
        assert answer["memory_key"] != key

    async def test_correct_supersedes_the_old_memory(self, library: Library) -> None:
        fields = {"subject": "user", "field": "home", "metadata": {"a": 1}}
        old_memory = NewMemory(content="Ann lives in Paris", **fields)
        added = await library.add_memories(
            ANN, [old_memory], origin=Origin.ASSISTANT, actor="assistant"
        )
        (key,) = added.ids
        answer = await call_tool(
            library, "correct", memory_key=key, text="Ann lives in Rome", reason="she moved"
        )

        assert answer["done"]
        new = await library.store.memories(ANN).get(answer["memory_key"])
        assert (new.content, new.field, new.metadata) == ("Ann lives in Rome", "home", {"a": 1})
        assert new.provenance.origin is Origin.ASSISTANT
        old = await library.store.memories(ANN).get(key)
        assert (old.content, old.superseded_by) == ("Ann lives in Paris", new.memory_key)
        assert old.superseded_reason == "she moved"
        second = await call_tool(library, "correct", memory_key=key, text="Ann lives in Oslo")
        assert (second.get("done", False), second["memory_key"]) == (False, new.memory_key)

    async def test_correct_leaves_what_the_user_said(self, library: Library) -> None:
        key = await add_memory(library, "Ann lives in Paris", subject="user", field="home")
        answer = await call_tool(library, "correct", memory_key=key, text="Ann lives in Rome")

        assert not answer.get("done", False)
        assert f"conflicts with {key}" in answer["note"]
        old = await library.store.memories(ANN).get(key)
        assert (old.superseded_by, old.valid_to) == (None, None)
        claim = await library.store.memories(ANN).get(answer["memory_key"])
        assert (claim.content, claim.field, claim.supersedes) == ("Ann lives in Rome", None, None)
        assert claim.provenance.origin is Origin.ASSISTANT
        assert claim.provenance.conflicts_with == (key,)

    async def test_forgotten_memory_can_be_restored(self, library: Library) -> None:
        key = await add_memory(library, "Ann likes coffee")
        assert (await call_tool(library, "forget", memory_key=key, reason="she asked"))["done"]
        assert await library.store.memories(ANN).get_many([key]) == []
        *_, last = await library.store.memories(ANN).history(key)
        assert (last.event, last.actor, last.reason) == ("DELETE", "assistant", "she asked")
        await library.store.changes(ANN).undo(key, actor="ann")
        assert (await library.store.memories(ANN).get(key)).content == "Ann likes coffee"

    async def test_memory_is_forgotten_with_its_messages(self, library: Library) -> None:
        message = NewMessage(message_id="m1", role=Role.USER, content="I like coffee")
        await library.add_messages(ANN, [message])
        key = await add_memory(library, "Ann likes coffee", source_message_ids=("m1",))
        assert (await call_tool(library, "forget", memory_key=key))["done"]
        assert await library.store.timeline(ANN).get_many(["m1"]) == []
        await library.changes(ANN).undo(key, actor="ann")
        assert (await library.store.timeline(ANN).get("m1")).content == "I like coffee"

    async def test_message_is_hidden_until_undo(self, library: Library) -> None:
        batch = [NewMessage(message_id="m1", role=Role.USER, content="I like coffee")]
        for user in (ANN, BEN):
            await library.add_messages(user, batch)
        assert (await call_tool(library, "forget", memory_key="m1"))["done"]
        assert await library.store.timeline(ANN).get_many(["m1"]) == []
        assert await library.store.timeline(BEN).get_many(["m1"])
        await library.changes(ANN).undo_message("m1", actor="ann")
        assert await library.store.timeline(ANN).get_many(["m1"])


class TestRefusals:
    async def test_failed_read_does_not_report_a_change(self, library: Library) -> None:
        async def read(context: ToolContext, arguments: ForgetArguments) -> MemoryChange:
            await context.library.store.memories(context.scope).get(arguments.memory_key)
            return MemoryChange(done=True)

        context = ToolContext(library=library, scope=ANN)
        for writes in (False, True):
            entry = replace(TOOLS["forget"], handler=read, writes=writes)
            tool = MemoryTool(entry, context)
            value = await tool.run_json({"memory_key": "none"}, CancellationToken())
            answer = json.loads(tool.return_value_as_string(value))
            if writes:
                assert answer.keys() == {"done", "note"}
            else:
                assert answer.keys() == {"success", "error", "message"}
                assert (answer["success"], answer["error"]) == (False, "not_found")

    async def test_memory_of_another_user_is_not_found(self, library: Library) -> None:
        key = await add_memory(library, "Ann's own")
        for name, arguments in (("correct", {"text": "Ben's"}), ("forget", {})):
            answer = await call_tool(library, name, BEN, memory_key=key, **arguments)
            assert not answer.get("done", False)
            assert "no such memory" in answer["note"]
        assert (await library.store.memories(ANN).get(key)).content == "Ann's own"

    async def test_sensitive_memory_is_not_found_without_permission(self, library: Library) -> None:
        key = await add_memory(library, "a secret", sensitive=True)
        assert "no such memory" in (await call_tool(library, "forget", memory_key=key))["note"]

    async def test_messages_cannot_be_changed(self, library: Library) -> None:
        message = NewMessage(message_id="m1", role=Role.USER, content="I like tea")
        await library.add_messages(ANN, [message])
        answer = await call_tool(library, "correct", memory_key="m1", text="I like coffee")
        assert "no such memory" in answer["note"]
        (record,) = await library.store.timeline(ANN).get_many(["m1"])
        assert record.content == "I like tea"

    @pytest.mark.parametrize("text", ["   ", "a\0b"])
    async def test_unstorable_text_returns_a_note(self, library: Library, text: str) -> None:
        answer = await call_tool(library, "remember", text=text)
        assert not answer.get("done", False)
        assert answer["note"].startswith("Nothing was changed")


def key_of_last_answer(request: Request) -> str:
    results = [m.content for m in request.messages if m.type == "FunctionExecutionResultMessage"]
    answer = json.loads(results[-1][0].content)
    memory_fields = answer["memories"][0] if "memories" in answer else answer
    return str(memory_fields["memory_key"])


async def test_assistant_agent_uses_memory_tools(library: Library) -> None:
    """Remember, recall, correct and forget in four turns of one conversation."""

    def correct(request: Request) -> Step:
        return call(
            "correct", memory_key=key_of_last_answer(request), text="Ann's desk is number 12"
        )

    def forget_last(request: Request) -> Step:
        return call("forget", memory_key=key_of_last_answer(request))

    script: list[Step | Callable[[Request], Step]] = [
        call("remember", text="Ann's desk is number 7"),
        say("Kept."),
        call("recall", query="Which desk number do I have?"),
        say("Number 7."),
        correct,
        say("Changed."),
        forget_last,
        say("Forgotten."),
    ]
    assistant = AssistantAgent(
        "assistant",
        model_client=ScriptedClient(script),
        tools=memory_tools(library, ANN),
        max_tool_iterations=2,
    )
    answers = []
    for task in ("Remember: desk 7", "Which desk?", "No, 12", "Forget it"):
        result = await assistant.run(task=task)
        answers.append(result.messages[-1].to_text())
        for event in result.messages:
            if isinstance(event, ToolCallExecutionEvent) and event.source == "assistant":
                assert not any(answer.is_error for answer in event.content)

    assert answers == ["Kept.", "Number 7.", "Changed.", "Forgotten."]
    listing = library.store.memories(ANN)
    assert [record.content for record in (await listing.page()).items] == []
    rows = (await library.store.count("ann"))["memories"]
    assert rows == 2  # the old memory and its replacement are both in the history
