"""LangGraph and LangChain: nodes that recall and remember, a retriever, and tools.

builder.add_node("recall", recall_node(memory))
builder.add_node("remember", remember_node(memory))
agent = create_agent(model, tools=memory_tools(memory))
"""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from pydantic import PrivateAttr

from memrecall.agent.result import RecalledMemory
from memrecall.agent.trace import Observer
from memrecall.integrations.agent_memory import (
    SOURCE,
    AgentArguments,
    AgentMemory,
    BlockArguments,
    BoundTool,
    MemorySource,
    RequestArguments,
    bind_tools,
    framework_of,
    is_block,
)
from memrecall.messages import parse_message
from memrecall.types import format_time

with framework_of("langgraph"):
    from langchain_core.documents import Document
    from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableConfig, RunnableLambda
    from langchain_core.tools import StructuredTool
    from langgraph.config import get_stream_writer


def recall_node(
    memory: MemorySource, *, messages_key: str = "messages", **arguments: Unpack[BlockArguments]
) -> RunnableLambda[Any, Any]:
    """Return a node that adds what the last user message refers to, as one message of data.

    It replaces the block of an earlier turn. Each step of the recall is written to the graph's
    stream (`stream_mode="custom"`). The thread of the graph is the session, unless one is bound. A
    function as `memory` gets the `RunnableConfig` of the run, here and in all of this module.
    """
    owner = AgentMemory(memory, place="after", **arguments)  # the reducer of a graph appends

    async def recall(state: Any, config: RunnableConfig) -> dict[str, Any]:
        messages = _messages_of(state, messages_key)
        block = await owner.of(config).recall_block(
            messages, _thread_of(config), _stream_observer()
        )
        return {messages_key: _replace_block(messages, block)}

    def recall_sync(state: Any, config: RunnableConfig) -> dict[str, Any]:
        messages = _messages_of(state, messages_key)
        block = owner.of(config).recall_block_sync(messages, _thread_of(config), _stream_observer())
        return {messages_key: _replace_block(messages, block)}

    return RunnableLambda(recall_sync, recall, name="recall")


def remember_node(
    memory: MemorySource, *, messages_key: str = "messages"
) -> RunnableLambda[Any, Any]:
    """Return a node that stores the last turn: the last user message and what followed it.

    A message that is already stored is not stored again.
    """
    owner = AgentMemory(memory)

    async def remember(state: Any, config: RunnableConfig) -> dict[str, Any]:
        turn = _last_turn(_messages_of(state, messages_key))
        await owner.of(config).remember(turn, _thread_of(config))
        return {}

    def remember_sync(state: Any, config: RunnableConfig) -> dict[str, Any]:
        turn = _last_turn(_messages_of(state, messages_key))
        owner.of(config).remember_sync(turn, _thread_of(config))
        return {}

    return RunnableLambda(remember_sync, remember, name="remember")


def memory_tools(memory: MemorySource, **arguments: Unpack[AgentArguments]) -> list[StructuredTool]:
    """Return tools to remember, recall, correct and forget for the user of the memory."""
    return [_structured_tool(tool) for tool in bind_tools(memory, **arguments)]


class RecallRetriever(BaseRetriever):
    """A retriever that recalls: one document for each memory or message that was meant.

    A failed recall is one document that says so: its metadata has `error`.
    """

    _memory: AgentMemory = PrivateAttr()

    def __init__(self, memory: MemorySource, **arguments: Unpack[RequestArguments]) -> None:
        super().__init__()
        self._memory = AgentMemory(memory, **arguments)

    def invoke(self, query: str, config: RunnableConfig | None = None, **options: Any) -> Any:
        """Recall; the configuration may decide for whom."""
        return super().invoke(query, config, **options, request=config or {})

    async def ainvoke(
        self, query: str, config: RunnableConfig | None = None, **options: Any
    ) -> Any:
        """Like `invoke`, from async code."""
        return await super().ainvoke(query, config, **options, request=config or {})

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any, request: Any
    ) -> list[Document]:
        return _documents(*self._memory.of(request).recall_sync(query))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any, request: Any
    ) -> list[Document]:
        return _documents(*await self._memory.of(request).recall(query))


def _messages_of(state: Any, key: str) -> list[BaseMessage]:
    return list(state[key] if isinstance(state, Mapping) else getattr(state, key))


def _thread_of(config: RunnableConfig) -> str | None:
    thread = config.get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)


def _stream_observer() -> Observer | None:
    try:
        write = get_stream_writer()
    except (KeyError, RuntimeError):  # the node runs outside of a graph
        return None
    return lambda event: write(event.as_dict())


def _replace_block(messages: Sequence[BaseMessage], block: str) -> list[BaseMessage]:
    old = [message for message in messages if is_block(parse_message(message))]
    removals = [RemoveMessage(id=message.id) for message in old if message.id]
    return [*removals, HumanMessage(block, name=SOURCE)] if block else [*removals]


def _last_turn(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    kept = [message for message in messages if not is_block(parse_message(message))]
    starts = [index for index, message in enumerate(kept) if isinstance(message, HumanMessage)]
    return kept[starts[-1] if starts else 0 :]


def _documents(memories: Sequence[RecalledMemory], problem: str) -> list[Document]:
    if problem:
        return [Document(problem, metadata={"error": True})]
    return [
        Document(
            memory.content,
            id=memory.memory_key,
            metadata={
                "memory_key": memory.memory_key,
                "kind": memory.kind,
                "memory_type": memory.memory_type,
                "score": memory.relevance_score,
                "certainty": memory.certainty.value,
                "speaker": memory.speaker or memory.role,
                "said_at": format_time(memory.ts),
            },
        )
        for memory in memories
    ]


def _structured_tool(tool: BoundTool) -> StructuredTool:
    async def call(config: RunnableConfig, **arguments: Any) -> str:
        return await tool.call(arguments, config)

    def call_sync(config: RunnableConfig, **arguments: Any) -> str:
        return tool.call_sync(arguments, config)

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.parameters,
        func=call_sync,
        coroutine=call,
    )
