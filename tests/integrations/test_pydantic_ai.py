"""Pydantic AI: the toolset in real runs, and its messages."""

import json
from typing import Any

import pytest

from memrecall import AsyncMemory
from memrecall.messages import parse_messages

from .contract import REQUEST, SEAT, ToolContract, answer_keys, block_keys, require, run_example

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
    memory: Any, name: str, arguments: dict[str, Any], **settings: Any
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


class TestToolset(ToolContract):
    async def call_tool(
        self, memory: Any, name: str, arguments: dict[str, Any], **settings: Any
    ) -> str:
        agent, answers = make_agent(memory, name, arguments, **settings)
        assert (await agent.run("Go.")).output == "Done."
        return answers[0]

    async def test_streamed_run(self, memory: AsyncMemory) -> None:
        agent, answers = make_agent(memory, "recall", {"query": REQUEST})
        async with agent.run_stream("Set it up.") as result:
            assert await result.get_output() == "Done."
        assert "a1" in answer_keys(answers[0])


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
    agent, _ = make_agent(memory, "remember", {"text": "tea"})
    result = await agent.run("Hello!")
    messages = [*result.all_messages(), ModelRequest(parts=[UserPromptPart(REQUEST)])]
    assert "a1" in block_keys(await AgentMemory(memory).recall_block(messages))


@pytest.mark.concurrent
def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("pydantic_ai_agent.py", monkeypatch, capsys)
    assert lines == [f"tools: You said: “{SEAT}”"]
