"""Pydantic AI: the toolset in real runs, and its messages."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.memory import Library
from memrecall.messages import parse_messages
from memrecall.testing import ScriptedClient, say, wait

from ..waiting import wait_until
from .frameworks import (
    AT_NOON,
    REQUEST,
    REQUEST_ZH,
    SEAT,
    answer_keys,
    block_keys,
    check_recall_arguments,
    recorded_and_replayed,
    require,
    run_example,
)

require("pydantic_ai")

from pydantic_ai import Agent, BinaryContent, ModelRequest, ModelResponse  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel  # noqa: E402

from memrecall.integrations.agent_memory import AgentMemory  # noqa: E402
from memrecall.integrations.pydantic_ai import MemoryToolset  # noqa: E402


def make_agent(
    memory: Any, name: str, *, settings: Mapping[str, Any] = MappingProxyType({}), **arguments: Any
) -> tuple[Agent[None, str], list[str]]:
    """Return an agent whose model calls one tool, and the list that gets the tool's answer."""
    answers: list[str] = []

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        assert [tool.name for tool in info.function_tools] == [
            *("remember", "recall", "correct", "forget")
        ]
        last = messages[-1].parts[-1]
        if not isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[ToolCallPart(name, arguments)])
        answers.append(str(last.content))
        return ModelResponse(parts=[TextPart("Done.")])

    async def stream(messages: list[Any], info: AgentInfo) -> Any:
        response = answer(messages, info)
        for part in response.parts:
            if isinstance(part, ToolCallPart):
                yield {0: DeltaToolCall(part.tool_name, json.dumps(part.args), tool_call_id="1")}
            else:
                yield part.content

    model = FunctionModel(answer, stream_function=stream)
    return Agent(model, toolsets=[MemoryToolset(memory, **settings)]), answers


async def test_recall(memory: AsyncMemory) -> None:
    agent, answers = make_agent(memory, "recall", query=REQUEST)
    assert (await agent.run("Set it up.")).output == "Done."
    assert "a1" in answer_keys(answers[0])


async def test_streamed_run(memory: AsyncMemory) -> None:
    agent, answers = make_agent(memory, "recall", query=REQUEST)
    async with agent.run_stream("Set it up.") as result:
        assert await result.get_output() == "Done."
    assert "a1" in answer_keys(answers[0])


async def test_remember_writes_for_the_bound_user(memory: AsyncMemory) -> None:
    agent, answers = make_agent(memory, "remember", text="林晓喝茉莉花茶")
    await agent.run("记一下")
    item = await memory.get(json.loads(answers[0])["memory_key"])
    assert item is not None
    assert (item["memory"], item["user_id"]) == ("林晓喝茉莉花茶", "ann")


async def test_no_argument_names_another_user(memory: AsyncMemory) -> None:
    agent, answers = make_agent(memory, "recall", query=REQUEST_ZH, user_id="lin")
    await agent.run("?")
    assert json.loads(answers[0])["error"] == "invalid_arguments"


async def test_failed_recall_does_not_fail_the_run(memory: AsyncMemory, library: Library) -> None:
    await library.store.owners.set_user_enabled("ann", False)
    agent, answers = make_agent(memory, "recall", query=REQUEST)
    assert (await agent.run("?")).output == "Done."
    assert "does not mean that nothing was found" in answers[0]


@pytest.mark.concurrent
async def test_cancelled_run_ends_the_recall(library: Library) -> None:
    slow = ScriptedClient([wait(600, then=say("too late"))])
    memory = AsyncMemory(library=library, user_id="ann", model_client=slow)
    agent, answers = make_agent(memory, "recall", query=REQUEST)
    running = asyncio.ensure_future(agent.run("?"))
    await wait_until(lambda: bool(slow.requests))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert answers == []


@pytest.mark.concurrent
async def test_sync_memory(sync_memory: Memory) -> None:
    agent, answers = make_agent(sync_memory, "recall", query=REQUEST)
    await agent.run("Set it up.")
    assert answer_keys(answers[0])


async def test_recall_can_be_replayed(library: Library, tmp_path: Path) -> None:
    found = []
    for memory in recorded_and_replayed(library, tmp_path / "cassette.jsonl"):
        agent, answers = make_agent(memory, "recall", settings={"options": AT_NOON}, query=REQUEST)
        await agent.run("Set it up.")
        found += answers
    assert found[0] == found[1]
    assert answer_keys(found[0]) == ["a1"]


async def test_times_and_observer(library: Library) -> None:
    async def toolset(memory: AsyncMemory, **arguments: Any) -> None:
        agent, _ = make_agent(memory, "recall", settings=arguments, query=REQUEST)
        await agent.run("Set it up.")

    await check_recall_arguments(library, toolset)


async def test_messages_are_read(memory: AsyncMemory) -> None:
    messages: list[Any] = [
        ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart("Hi")]),
        ModelResponse(parts=[ThinkingPart("hm"), ToolCallPart("recall", {"query": "tea"})]),
        ModelRequest(parts=[ToolReturnPart("recall", {"found": False}, "1")]),
        ModelResponse(parts=[TextPart("Hello")]),
        ModelRequest(parts=[UserPromptPart(["Look", BinaryContent(b"x", media_type="image/png")])]),
    ]
    parsed = parse_messages(messages)
    assert [(message.role.value, message.text) for message in parsed] == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("tool", '{"found":false}'),
        ("assistant", "Hello"),
        ("user", "Look\n[image]"),
    ]
    assert parsed[1].ts == messages[0].parts[1].timestamp
    await memory.add(messages, session_id="s", infer=False)
    stored = await memory.get_all(session_id="s", messages=True)
    assert len(stored["results"]) == 5


async def test_history_of_a_run_can_be_recalled_for(memory: AsyncMemory) -> None:
    agent, _ = make_agent(memory, "remember", text="tea")
    result = await agent.run("Hello!")
    messages = [*result.all_messages(), ModelRequest(parts=[UserPromptPart(REQUEST)])]
    assert "a1" in block_keys(await AgentMemory(memory).recall_block(messages))


@pytest.mark.concurrent
def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("pydantic_ai_agent.py", monkeypatch, capsys)
    assert lines == [f"tools: You said: “{SEAT}”"]
