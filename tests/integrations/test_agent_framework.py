"""Microsoft Agent Framework: the provider and the tools in real agents."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.agent import Recaller
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.testing import ScriptedClient, fail, say, wait

from ..waiting import wait_until
from .frameworks import (
    AT_NOON,
    PEANUTS,
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

require("agent_framework")

from agent_framework import (  # noqa: E402
    Agent,
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


class TestProvider:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_recalls_before_the_turn(self, memory: AsyncMemory, stream: bool) -> None:
        chat = ScriptedChat(Content.from_text("Port 5433."))
        agent = make_agent(chat, RecallProvider(memory))
        if stream:
            text = "".join([update.text async for update in agent.run(REQUEST, stream=True)])
        else:
            text = (await agent.run(REQUEST)).text
        assert text == "Port 5433."
        block, request = chat.request_texts()
        assert request == REQUEST
        assert "a1" in block_keys(block)
        assert [message.role for message in chat.requests[0]] == ["user", "user"]

    async def test_other_users_stay_unseen(self, memory: AsyncMemory) -> None:
        chat = ScriptedChat(Content.from_text("?"))
        await make_agent(chat, RecallProvider(memory)).run(f"lin: {REQUEST_ZH}")
        assert not {"l1", "l2"} & set(block_keys(chat.request_texts()[0]))

    async def test_small_talk_needs_no_recall(self, memory: AsyncMemory) -> None:
        chat = ScriptedChat(Content.from_text("Hello"))
        await make_agent(chat, RecallProvider(memory)).run("Hello!")
        assert chat.request_texts() == ["Hello!"]

    async def test_stores_the_turn_once(self, memory: AsyncMemory) -> None:
        chat = ScriptedChat(Content.from_text("Noted."), Content.from_text("Yes."))
        agent = make_agent(chat, RecallProvider(memory))
        session = agent.create_session()
        await agent.run("I always drink jasmine tea.", session=session)
        await agent.run("Really?", session=session)
        page = await memory.get_all(session_id=session.session_id, messages=True)
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

    async def test_failed_recall_does_not_fail_the_turn(
        self, memory: AsyncMemory, library: Library, caplog: pytest.LogCaptureFixture
    ) -> None:
        await library.store.owners.set_user_enabled("ann", False)
        chat = ScriptedChat(Content.from_text("I cannot look that up."))
        assert (await make_agent(chat, RecallProvider(memory)).run(REQUEST)).text
        block, request = chat.request_texts()
        assert (block_keys(block), request) == ([], REQUEST)
        assert "do not conclude" in block
        assert "no recall" in caplog.text
        assert "storing a turn failed" in caplog.text

    async def test_bug_does_not_fail_the_turn(
        self,
        memory: AsyncMemory,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(Recaller, "recall", None)
        chat = ScriptedChat(Content.from_text("I cannot look that up."))
        await make_agent(chat, RecallProvider(memory, remember=False)).run(REQUEST)
        assert "TypeError" in chat.request_texts()[0]
        assert "recall failed" in caplog.text

    @pytest.mark.concurrent
    async def test_cancelled_run_ends_the_recall(self, library: Library) -> None:
        slow = ScriptedClient([wait(600, then=say("too late"))])
        memory = AsyncMemory(library=library, user_id="ann", model_client=slow)
        chat = ScriptedChat(Content.from_text("unused"))
        running = asyncio.ensure_future(make_agent(chat, RecallProvider(memory)).run(REQUEST))
        await wait_until(lambda: bool(slow.requests))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert chat.requests == []

    @pytest.mark.concurrent
    async def test_sync_memory_serves_an_async_agent(self, sync_memory: Memory) -> None:
        chat = ScriptedChat(Content.from_text("Port 5433."))
        await make_agent(chat, RecallProvider(sync_memory)).run(REQUEST)
        assert block_keys(chat.request_texts()[0])

    async def test_recall_can_be_replayed(self, library: Library, tmp_path: Path) -> None:
        blocks = []
        for memory in recorded_and_replayed(library, tmp_path / "cassette.jsonl"):
            chat = ScriptedChat(Content.from_text("Port 5433."))
            provider = RecallProvider(memory, options=AT_NOON, remember=False)
            await make_agent(chat, provider).run(REQUEST)
            blocks.append(chat.request_texts()[0])
        assert blocks[0] == blocks[1]
        assert block_keys(blocks[0]) == ["a1"]


async def test_times_and_observer(library: Library) -> None:
    async def provider(memory: AsyncMemory, **arguments: Any) -> None:
        chat = ScriptedChat(Content.from_text("Port 5433."))
        await make_agent(chat, RecallProvider(memory, remember=False, **arguments)).run(REQUEST)

    async def tool(memory: AsyncMemory, **arguments: Any) -> None:
        await memory_tools(memory, **arguments)[1].invoke(arguments={"query": REQUEST})

    await check_recall_arguments(library, provider, tool)


class TestTools:
    async def test_recall(self, memory: AsyncMemory) -> None:
        chat = ScriptedChat(call("recall", query=REQUEST), Content.from_text("Port 5433."))
        agent = Agent(chat, tools=memory_tools(memory))
        assert (await agent.run("Set it up.")).text == "Port 5433."
        assert "a1" in answer_keys(tool_result(chat))

    async def test_remember_writes_for_the_bound_user(self, memory: AsyncMemory) -> None:
        chat = ScriptedChat(call("remember", text="林晓喝茉莉花茶"), Content.from_text("好"))
        agent = Agent(chat, tools=memory_tools(memory, language="zh"))
        await agent.run("记一下")
        item = await memory.get(json.loads(tool_result(chat))["memory_key"])
        assert item is not None
        assert (item["memory"], item["origin"]) == ("林晓喝茉莉花茶", "assistant")

    async def test_no_argument_names_another_user(self, memory: AsyncMemory) -> None:
        chat = ScriptedChat(
            call("recall", query=REQUEST_ZH, user_id="lin"), Content.from_text("No.")
        )
        assert (await Agent(chat, tools=memory_tools(memory)).run("?")).text == "No."
        assert "5433" not in tool_result(chat)

    async def test_schemas_are_those_of_the_table(self, memory: AsyncMemory) -> None:
        tools = memory_tools(memory, language="zh")
        assert [tool.name for tool in tools] == ["remember", "recall", "correct", "forget"]
        assert list(tools[1].parameters()["properties"]) == ["query", "context"]
        assert "记忆" in tools[1].description

    async def test_failed_model_falls_back_to_rules(self, library: Library) -> None:
        broken = ScriptedClient([fail("refused")] * 9)
        memory = AsyncMemory(library=library, user_id="ann", model_client=broken)
        chat = ScriptedChat(call("recall", query=REQUEST), Content.from_text("Port 5433."))
        await Agent(chat, tools=memory_tools(memory)).run("Set it up.")
        assert "a1" in answer_keys(tool_result(chat))


def test_unbound_memory_is_refused(library: Library) -> None:
    with pytest.raises(InvalidArgument, match="must be bound to a user"):
        RecallProvider(AsyncMemory(library=library))


@pytest.mark.concurrent
def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("agent_framework_agent.py", monkeypatch, capsys)
    assert lines == [f"provider: You said: “{PEANUTS}”", f"tools:    You said: “{SEAT}”"]
