"""LlamaIndex: memory block, retriever and tools with the real package."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from memrecall import AsyncMemory, Memory
from memrecall.memory import Library
from memrecall.messages import parse_messages
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient, say, wait

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

require("llama_index.core")
# LlamaIndex itself uses what pydantic deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

from llama_index.core.agent.workflow import FunctionAgent  # noqa: E402
from llama_index.core.base.llms.types import (  # noqa: E402
    ChatMessage,
    ChatResponse,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
)
from llama_index.core.llms import LLMMetadata, MockLLM  # noqa: E402
from llama_index.core.llms.function_calling import FunctionCallingLLM  # noqa: E402
from llama_index.core.llms.llm import ToolSelection  # noqa: E402
from llama_index.core.memory import Memory as ChatMemory  # noqa: E402

from memrecall.integrations.llama_index import (  # noqa: E402
    RecallBlock,
    RecallNodeRetriever,
    memory_tools,
)


class ScriptedLLM(MockLLM, FunctionCallingLLM):
    """A model that plays a script and records its requests."""

    answers: list[Any] = Field(default_factory=list)
    requests: list[list[ChatMessage]] = Field(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True)

    def _prepare_chat_with_tools(
        self, tools: Any, user_msg: Any = None, chat_history: Any = None, **_: Any
    ) -> dict[str, Any]:
        return {"messages": list(chat_history or [])}

    async def astream_chat(self, messages: Sequence[ChatMessage], **_: Any) -> Any:
        self.requests.append(list(messages))
        answer = self.answers.pop(0)

        async def chunks() -> AsyncIterator[ChatResponse]:
            text = answer if isinstance(answer, str) else ""
            message = ChatMessage(role="assistant", content=text)
            yield ChatResponse(message=message, delta=text, raw=answer)

        return chunks()

    def get_tool_calls_from_response(self, response: ChatResponse, **_: Any) -> list[Any]:
        return [response.raw] if isinstance(response.raw, ToolSelection) else []


def call(name: str, **arguments: Any) -> ToolSelection:
    return ToolSelection(tool_id="1", tool_name=name, tool_kwargs=arguments)


@pytest.fixture
async def chat_memory(memory: AsyncMemory) -> AsyncIterator[Callable[..., ChatMemory]]:
    """A function that makes chat memories, whose databases are closed at the end."""
    memories: list[ChatMemory] = []

    def make(**options: Any) -> ChatMemory:
        blocks = [RecallBlock(memory)]
        chat = ChatMemory.from_defaults(
            session_id="chat-1", memory_blocks=blocks, tokenizer_fn=str.split, **options
        )
        memories.append(chat)
        return chat

    yield make
    for chat in memories:
        engine = chat.sql_store._async_engine
        if engine is not None:
            await engine.dispose()


def make_agent(*answers: Any, tools: Any = ()) -> tuple[FunctionAgent, ScriptedLLM]:
    model = ScriptedLLM()
    model.answers = list(answers)
    return FunctionAgent(llm=model, tools=list(tools)), model


class TestBlock:
    async def test_recalls_before_the_turn(self, chat_memory: Callable[..., ChatMemory]) -> None:
        agent, model = make_agent("Port 5433.")
        handler = agent.run(REQUEST, memory=chat_memory())
        deltas = [event.delta async for event in handler.stream_events() if hasattr(event, "delta")]
        assert str(await handler) == "".join(deltas) == "Port 5433."
        block, request = model.requests[0]
        assert (block.role, request.content) == (MessageRole.USER, REQUEST)
        assert "a1" in block_keys(str(block.content))

    async def test_one_recall_for_the_steps_of_a_run(
        self, memory: AsyncMemory, library: Library, chat_memory: Callable[..., ChatMemory]
    ) -> None:
        agent, model = make_agent(call("recall", query="tea"), "Done.", tools=memory_tools(memory))
        before = await library.store.traces(Scope("ann")).page()
        await agent.run(REQUEST, memory=chat_memory())
        assert [block_keys(str(request[0].content)) != [] for request in model.requests] == [
            *(True, True)
        ]
        after = await library.store.traces(Scope("ann")).page()
        assert len(after.items) - len(before.items) == 2  # the block's and the tool's

    async def test_what_was_just_stored_is_seen(self, memory: AsyncMemory) -> None:
        block = RecallBlock(memory)
        question = [ChatMessage("What is my boat called?")]
        first = await block.aget(question)
        await memory.add("My boat is called Petunia.", infer=False)
        (second,) = await block.aget(question)
        assert not first or "Petunia" not in str(first[0].content)
        assert "Petunia" in str(second.content)

    async def test_messages_that_leave_the_history_are_stored(
        self, memory: AsyncMemory, chat_memory: Callable[..., ChatMemory]
    ) -> None:
        chat = chat_memory(token_limit=8, token_flush_size=4)
        for number in range(4):
            await chat.aput(ChatMessage(f"I drink tea number {number}"))
            await chat.aput(ChatMessage("Noted", role="assistant"))
        page = await memory.get_all(session_id="chat-1", messages=True)
        assert "I drink tea number 0" in [item["memory"] for item in page["results"]]

    async def test_failed_recall_does_not_fail_the_turn(
        self, library: Library, chat_memory: Callable[..., ChatMemory]
    ) -> None:
        await library.store.owners.set_user_enabled("ann", False)
        agent, model = make_agent("I cannot.")
        assert str(await agent.run(REQUEST, memory=chat_memory())) == "I cannot."
        assert "do not conclude" in str(model.requests[0][0].content)

    @pytest.mark.concurrent
    async def test_cancelled_run_ends_the_recall(self, library: Library) -> None:
        slow = ScriptedClient([wait(600, then=say("too late"))])
        memory = AsyncMemory(library=library, user_id="ann", model_client=slow)
        getting = asyncio.ensure_future(RecallBlock(memory).aget([ChatMessage(REQUEST)]))
        await wait_until(lambda: bool(slow.requests))
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting

    async def test_recall_can_be_replayed(self, library: Library, tmp_path: Path) -> None:
        blocks = []
        for memory in recorded_and_replayed(library, tmp_path / "cassette.jsonl"):
            (block,) = await RecallBlock(memory, options=AT_NOON).aget([ChatMessage(REQUEST)])
            blocks.append(str(block.content))
        assert blocks[0] == blocks[1]
        assert block_keys(blocks[0]) == ["a1"]


class TestRetriever:
    async def test_nodes_are_the_evidence(self, memory: AsyncMemory) -> None:
        nodes = await RecallNodeRetriever(memory).aretrieve(REQUEST)
        assert (nodes[0].node_id, "5433" in nodes[0].text) == ("a1", True)
        assert nodes[0].score is not None

    async def test_nothing_and_failure_differ(self, memory: AsyncMemory, library: Library) -> None:
        retriever = RecallNodeRetriever(memory)
        assert await retriever.aretrieve("What did I say about zebras?") == []
        await library.store.owners.set_user_enabled("ann", False)
        (node,) = await retriever.aretrieve(REQUEST)
        assert node.metadata == {"error": True}

    @pytest.mark.concurrent
    def test_sync(self, sync_memory: Memory) -> None:
        assert "5433" in RecallNodeRetriever(sync_memory).retrieve(REQUEST)[0].text


class TestTools:
    async def test_recall(self, memory: AsyncMemory) -> None:
        answer = await run_tool(memory, "recall", query=REQUEST)
        assert "a1" in answer_keys(answer)

    async def test_remember_in_chinese(self, memory: AsyncMemory) -> None:
        answer = json.loads(await run_tool(memory, "remember", text="林晓喝茉莉花茶"))
        item = await memory.get(answer["memory_key"])
        assert item is not None
        assert (item["memory"], item["user_id"]) == ("林晓喝茉莉花茶", "ann")

    async def test_no_argument_names_another_user(self, memory: AsyncMemory) -> None:
        answer = await run_tool(memory, "recall", query=REQUEST_ZH, user_id="lin")
        assert json.loads(answer)["error"] == "invalid_arguments"

    async def test_schema_is_that_of_the_table(self, memory: AsyncMemory) -> None:
        schema = memory_tools(memory, language="zh")[1].metadata.to_openai_tool()["function"]
        assert list(schema["parameters"]["properties"]) == ["query", "context"]
        assert "记忆" in schema["description"]

    @pytest.mark.concurrent
    def test_sync(self, sync_memory: Memory) -> None:
        assert answer_keys(memory_tools(sync_memory)[1].call(query=REQUEST).content)


async def test_times_and_observer(library: Library) -> None:
    async def block(memory: AsyncMemory, **arguments: Any) -> None:
        await RecallBlock(memory, **arguments).aget([ChatMessage(REQUEST)])

    async def retriever(memory: AsyncMemory, **arguments: Any) -> None:
        await RecallNodeRetriever(memory, **arguments).aretrieve(REQUEST)

    async def tool(memory: AsyncMemory, **arguments: Any) -> None:
        await memory_tools(memory, **arguments)[1].acall(query=REQUEST)

    await check_recall_arguments(library, block, retriever, tool)


async def run_tool(memory: AsyncMemory, name: str, **arguments: Any) -> str:
    """Return what a tool answers in a run."""
    agent, _ = make_agent(call(name, **arguments), "Done.", tools=memory_tools(memory))
    result = await agent.run("Go.")
    (tool_call,) = result.tool_calls
    return str(tool_call.tool_output.content)


def test_messages_are_read() -> None:
    messages = [
        ChatMessage("Be brief.", role=MessageRole.DEVELOPER),
        ChatMessage("Hi"),
        ChatMessage(
            role="assistant", blocks=[ThinkingBlock(content="hm"), TextBlock(text="Hello")]
        ),
        ChatMessage("[]", role=MessageRole.TOOL, additional_kwargs={"tool_call_id": "1"}),
        ChatMessage("Yes", role=MessageRole.CHATBOT),
        ChatMessage(role="user", blocks=[ImageBlock(url="http://localhost/x.png")]),
    ]
    assert [(m.role.value, m.text, m.content_type) for m in parse_messages(messages)] == [
        ("system", "Be brief.", "text"),
        ("user", "Hi", "text"),
        ("assistant", "Hello", "text"),
        ("tool", "[]", "text"),
        ("assistant", "Yes", "text"),
        ("user", "[image]", "image"),
    ]


# The default chat store of LlamaIndex never closes its connection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.concurrent
def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_example("llama_index_agent.py", monkeypatch, capsys)
    gc.collect()  # while the warning is ignored
    assert lines == [f"block:     You said: “{PEANUTS}”", f"retriever: {SEAT}"]
