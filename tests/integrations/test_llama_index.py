"""LlamaIndex: memory block, retriever and tools with the real package."""

import gc
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from pydantic import Field

from memrecall import AsyncMemory, Memory
from memrecall.memory import Library
from memrecall.messages import parse_messages
from memrecall.scope import Scope

from .contract import (
    PEANUTS,
    REQUEST,
    SEAT,
    RecallContract,
    ToolContract,
    Turn,
    TurnContract,
    answer_keys,
    block_keys,
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

USER: ContextVar[str | None] = ContextVar("user", default=None)


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


@asynccontextmanager
async def open_chat(*blocks: RecallBlock, **options: Any) -> AsyncIterator[ChatMemory]:
    """Yield a chat memory with the blocks; its database is closed at the end."""
    options = {"session_id": "chat-1", "tokenizer_fn": str.split, **options}
    chat = ChatMemory.from_defaults(memory_blocks=list(blocks), **options)
    try:
        yield chat
    finally:
        engine = chat.sql_store._async_engine
        if engine is not None:
            await engine.dispose()


def make_agent(*answers: Any, tools: Any = ()) -> tuple[FunctionAgent, ScriptedLLM]:
    model = ScriptedLLM()
    model.answers = list(answers)
    return FunctionAgent(llm=model, tools=list(tools)), model


class TestBlock(TurnContract):
    def user_of(self, context: Any) -> str:
        return str(context)

    async def run_turn(
        self, memory: Any, request: str, *, stream: bool = False, **arguments: Any
    ) -> Turn:
        user = arguments.pop("user", None)
        agent, model = make_agent("Port 5433.")
        session = user or "chat-1"
        async with open_chat(RecallBlock(memory, **arguments), session_id=session) as chat:
            handler = agent.run(request, memory=chat)
            events = [event async for event in handler.stream_events() if hasattr(event, "delta")]
            answer = str(await handler)
        assert not stream or "".join(event.delta for event in events) == answer
        return Turn([str(message.content) for message in model.requests[0]], answer)

    async def test_one_recall_for_the_steps_of_a_run(
        self, memory: AsyncMemory, library: Library
    ) -> None:
        agent, model = make_agent(call("recall", query="tea"), "Done.", tools=memory_tools(memory))
        before = await library.store.traces(Scope("ann")).page()
        async with open_chat(RecallBlock(memory)) as chat:
            await agent.run(REQUEST, memory=chat)
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

    async def test_messages_that_leave_the_history_are_stored(self, memory: AsyncMemory) -> None:
        async with open_chat(RecallBlock(memory), token_limit=8, token_flush_size=4) as chat:
            for number in range(4):
                await chat.aput(ChatMessage(f"I drink tea number {number}"))
                await chat.aput(ChatMessage("Noted", role="assistant"))
        page = await memory.get_all(session_id="chat-1", kinds="messages")
        assert "I drink tea number 0" in [item["memory"] for item in page["results"]]

    @pytest.mark.concurrent
    async def test_cancelled_run_ends_the_recall(self, library: Library) -> None:
        """A workflow ends its steps by itself: the block alone is cancelled here."""

        async def get_block(memory: Any, request: str = REQUEST, **_: Any) -> str:
            return str(await RecallBlock(memory).aget([ChatMessage(request)]))

        self.recall = get_block  # type: ignore[method-assign]
        await super().test_cancelled_run_ends_the_recall(library)


class TestRetriever(RecallContract):
    def user_of(self, context: Any) -> str:
        assert context is None
        return str(USER.get())

    def keys(self, text: str) -> list[str]:
        return list(json.loads(text))

    async def recall(self, memory: Any, request: str = REQUEST, **arguments: Any) -> str:
        user = arguments.pop("user", None)
        USER.set(user)
        nodes = await RecallNodeRetriever(memory, **arguments).aretrieve(request)
        return json.dumps([node.node_id for node in nodes])

    async def test_nodes_have_text_and_score(self, memory: AsyncMemory) -> None:
        nodes = await RecallNodeRetriever(memory).aretrieve(REQUEST)
        assert "5433" in nodes[0].text
        assert nodes[0].score is not None
        assert nodes[0].metadata["certainty"] in ("sure", "possible")

    async def test_nothing_and_failure_differ(self, memory: AsyncMemory, library: Library) -> None:
        retriever = RecallNodeRetriever(memory)
        assert await retriever.aretrieve("What did I say about zebras?") == []
        await library.store.owners.set_user_enabled("ann", False)
        (node,) = await retriever.aretrieve(REQUEST)
        assert node.metadata == {"error": True}

    @pytest.mark.concurrent
    def test_sync(self, sync_memory: Memory) -> None:
        assert "5433" in RecallNodeRetriever(sync_memory).retrieve(REQUEST)[0].text


class TestTools(ToolContract):
    def user_of(self, context: Any) -> str:
        return str(context)

    async def call_tool(
        self, memory: Any, name: str, arguments: dict[str, Any], **settings: Any
    ) -> str:
        user = settings.pop("user", None)
        agent, _ = make_agent(
            call(name, **arguments), "Done.", tools=memory_tools(memory, **settings)
        )
        async with open_chat(session_id=user or "chat-1") as chat:
            (tool_call,) = (await agent.run("Go.", memory=chat)).tool_calls
        return str(tool_call.tool_output.content)

    async def test_schema_is_that_of_the_table(self, memory: AsyncMemory) -> None:
        schema = memory_tools(memory, language="zh")[1].metadata.to_openai_tool()["function"]
        assert list(schema["parameters"]["properties"]) == ["query", "context", "time"]
        assert "记忆" in schema["description"]

    @pytest.mark.concurrent
    def test_sync(self, sync_memory: Memory) -> None:
        assert answer_keys(memory_tools(sync_memory)[1].call(query=REQUEST).content)


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
