"""Pydantic AI: the toolset in real runs, and its messages."""

from typing import Any

import pytest

from memrecall import AsyncMemory
from memrecall.memory import Library
from memrecall.messages import parse_messages
from memrecall.scope import Scope

from .contract import (
    PEANUTS,
    REQUEST,
    SEAT,
    ToolContract,
    Turn,
    TurnContract,
    block_keys,
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
from pydantic_ai.models.function import AgentInfo, FunctionModel  # noqa: E402

from memrecall.integrations.pydantic_ai import MemoryToolset, RecallCapability  # noqa: E402


class QuotingModel:
    """A model that plays its calls, then answers; it records the texts of its requests."""

    def __init__(self, *calls: ToolCallPart) -> None:
        self.calls = list(calls)
        self.texts: list[list[str]] = []

    def function_model(self) -> FunctionModel:
        return FunctionModel(self.answer, stream_function=self.stream)

    def answer(self, messages: list[Any], info: AgentInfo) -> ModelResponse:
        self.tools = [tool.name for tool in info.function_tools]
        self.texts.append([message.text for message in parse_messages(messages)])
        return ModelResponse(parts=[self.calls.pop() if self.calls else TextPart("Port 5433.")])

    async def stream(self, messages: list[Any], info: AgentInfo) -> Any:
        yield self.answer(messages, info).parts[0].content


class TestCapability(TurnContract):
    def user_of(self, context: Any) -> str:
        return str(context.deps)

    async def run_turn(
        self, memory: Any, request: str, *, stream: bool = False, **arguments: Any
    ) -> Turn:
        user = arguments.pop("user", None)
        model = QuotingModel()
        capability = RecallCapability(memory, remember=False, **arguments)
        agent: Agent[Any, str] = Agent(model.function_model(), capabilities=[capability])
        if stream:
            async with agent.run_stream(request, deps=user) as result:
                answer = await result.get_output()
            history = result.all_messages()
        else:
            outcome = await agent.run(request, deps=user)
            answer, history = outcome.output, outcome.all_messages()
        texts = [message.text for message in parse_messages(history)]
        assert texts == [request, answer]  # the history does not get the block
        return Turn(model.texts[-1], answer)

    async def test_requests_of_a_run_share_one_recall_and_the_turn_is_stored(
        self, memory: AsyncMemory, library: Library
    ) -> None:
        model = QuotingModel(ToolCallPart("remember", {"text": "tea"}))
        agent = Agent(
            model.function_model(),
            capabilities=[RecallCapability(memory)],
            toolsets=[MemoryToolset(memory)],
        )
        await agent.run(REQUEST, conversation_id="chat-9")
        first, second = model.texts
        assert first == second[: len(first)]
        assert "a1" in block_keys(first[0])
        assert len((await library.store.traces(Scope("ann")).page()).items) == 1
        page = await memory.get_all(session_id="chat-9", kinds="messages")
        texts = [item["memory"] for item in page["results"] if item["role"] != "tool"]
        assert sorted(texts) == sorted([REQUEST, "Port 5433."])


class TestToolset(ToolContract):
    def user_of(self, context: Any) -> str:
        return str(context.deps)

    async def call_tool(
        self, memory: Any, name: str, arguments: dict[str, Any], **settings: Any
    ) -> str:
        user, model = settings.pop("user", None), QuotingModel(ToolCallPart(name, arguments))
        toolset = MemoryToolset(memory, **settings)
        agent: Agent[Any, str] = Agent(model.function_model(), toolsets=[toolset])
        assert (await agent.run("Go.", deps=user)).output == "Port 5433."
        assert model.tools == ["remember", "recall", "correct", "forget"]
        return model.texts[-1][-1]


async def test_messages_are_read(memory: AsyncMemory) -> None:
    messages: list[Any] = [
        ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart("Hi")]),
        ModelResponse(parts=[ThinkingPart("hm"), ToolCallPart("recall", {"query": "tea"})]),
        ModelRequest(parts=[ToolReturnPart("recall", {"found": False}, "1")]),
        ModelResponse(parts=[TextPart("Hello")]),
        ModelRequest(
            parts=[UserPromptPart(["Look", BinaryContent(b"GIF89a;", media_type="image/png")])]
        ),
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
    assert len((await memory.get_all(session_id="s", kinds="messages"))["results"]) == 5


@pytest.mark.concurrent
def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("pydantic_ai_agent.py", monkeypatch, capsys)
    assert lines == [f"recall: You said: “{PEANUTS}”", f"tools:  You said: “{SEAT}”"]
