"""Microsoft Agent Framework: the provider and the tools in real agents."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from memrecall import AsyncMemory
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.testing import ScriptedClient, fail

from .contract import (
    PEANUTS,
    REQUEST,
    SEAT,
    ToolContract,
    Turn,
    TurnContract,
    answer_keys,
    require,
    run_example,
)

require("agent_framework")

from agent_framework import (  # noqa: E402
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
)

from memrecall.integrations.agent_framework import RecallProvider, memory_tools  # noqa: E402


class ScriptedChat(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A chat client that plays a script and records its requests."""

    def __init__(self, *answers: Content) -> None:
        super().__init__()
        self.answers = list(answers)
        self.requests: list[list[Message]] = []

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **_: Any
    ) -> Any:
        self.requests.append(list(messages))
        answer = self.answers.pop(0)

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            yield ChatResponseUpdate(role="assistant", contents=[answer])

        async def respond() -> ChatResponse[Any]:
            return ChatResponse(messages=Message("assistant", [answer]))

        return self._build_response_stream(updates()) if stream else respond()

    def request_texts(self) -> list[str]:
        """Return the texts of the last request."""
        return [message.text for message in self.requests[-1]]


def call(name: str, **arguments: Any) -> Content:
    return Content.from_function_call("call-1", name, arguments=json.dumps(arguments))


def tool_result(chat: ScriptedChat) -> str:
    """Return the tool result in the last request."""
    contents = [content for message in chat.requests[-1] for content in message.contents]
    (result,) = [content for content in contents if content.type == "function_result"]
    return str(result.result)


def make_agent(chat: ScriptedChat, provider: RecallProvider) -> Agent[Any]:
    return Agent(chat, context_providers=[provider])


def session_of(user: str | None) -> AgentSession:
    session = AgentSession()
    session.state["user"] = user
    return session


class TestProvider(TurnContract):
    def user_of(self, context: Any) -> str:
        return str(context.state["user"])

    async def run_turn(
        self, memory: Any, request: str, *, stream: bool = False, **arguments: Any
    ) -> Turn:
        user = arguments.pop("user", None)
        chat = ScriptedChat(Content.from_text("Port 5433."))
        agent = make_agent(chat, RecallProvider(memory, remember=False, **arguments))
        if stream:
            answer = "".join([update.text async for update in agent.run(request, stream=True)])
        else:
            answer = (await agent.run(request, session=session_of(user))).text
        assert {message.role for message in chat.requests[0]} == {"user"}
        return Turn(chat.request_texts(), answer)

    async def test_stores_the_turn_once(self, memory: AsyncMemory) -> None:
        chat = ScriptedChat(Content.from_text("Noted."), Content.from_text("Yes."))
        agent = make_agent(chat, RecallProvider(memory))
        session = agent.create_session()
        await agent.run("I always drink jasmine tea.", session=session)
        await agent.run("Really?", session=session)
        page = await memory.get_all(session_id=session.session_id, kinds="messages")
        assert sorted((item["role"], item["memory"]) for item in page["results"]) == [
            ("assistant", "Noted."),
            ("assistant", "Yes."),
            ("user", "I always drink jasmine tea."),
            ("user", "Really?"),
        ]

    async def test_remember_can_be_off(self, memory: AsyncMemory, library: Library) -> None:
        before = (await library.store.count("ann"))["messages"]
        chat = ScriptedChat(Content.from_text("Noted."))
        await make_agent(chat, RecallProvider(memory, remember=False)).run("I drink tea.")
        assert (await library.store.count("ann"))["messages"] == before

    async def test_block_of_an_earlier_turn_is_not_asked_about(self, memory: AsyncMemory) -> None:
        chat = ScriptedChat(Content.from_text("Port 5433."), Content.from_text("Sure."))
        agent = make_agent(chat, RecallProvider(memory))
        session = agent.create_session()
        await agent.run(REQUEST, session=session)
        await agent.run("Hello!", session=session)
        assert chat.request_texts() == [REQUEST, "Port 5433.", "Hello!"]


class TestTools(ToolContract):
    def user_of(self, context: Any) -> str:
        return str(context.state["user"])

    async def call_tool(
        self, memory: Any, name: str, arguments: dict[str, Any], **settings: Any
    ) -> str:
        user = settings.pop("user", None)
        chat = ScriptedChat(call(name, **arguments), Content.from_text("Done."))
        agent = Agent(chat, tools=memory_tools(memory, **settings))
        assert (await agent.run("Go.", session=session_of(user))).text == "Done."
        return tool_result(chat)

    async def test_schemas_are_those_of_the_table(self, memory: AsyncMemory) -> None:
        tools = memory_tools(memory, language="zh")
        assert [tool.name for tool in tools] == ["remember", "recall", "correct", "forget"]
        assert list(tools[1].parameters()["properties"]) == ["query", "context", "time"]
        assert "记忆" in tools[1].description

    async def test_failed_model_falls_back_to_rules(self, library: Library) -> None:
        broken = ScriptedClient([fail("refused")] * 9)
        memory = AsyncMemory(library=library, user_id="ann", model_client=broken)
        assert "a1" in answer_keys(await self.recall(memory))


def test_unbound_memory_is_refused(library: Library) -> None:
    with pytest.raises(InvalidArgument, match="must be bound to a user"):
        RecallProvider(AsyncMemory(library=library))


@pytest.mark.concurrent
def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("agent_framework_agent.py", monkeypatch, capsys)
    assert lines == [f"provider: You said: “{PEANUTS}”", f"tools:    You said: “{SEAT}”"]
