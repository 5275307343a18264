"""LlamaIndex: a memory block that recalls, a retriever, and tools.

memory = Memory.from_defaults(memory_blocks=[RecallBlock(AsyncMemory(user_id="ann"))])
await agent.run("…", memory=memory)
"""

from collections.abc import Sequence
from typing import Any, Unpack

from pydantic import PrivateAttr

from memrecall.agent.result import RecalledMemory
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
)
from memrecall.types import format_time

with framework_of("llama-index"):
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import BaseMemoryBlock
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput
    from llama_index.core.workflow import Context


class RecallBlock(BaseMemoryBlock[list[ChatMessage]]):
    """Adds what the last user message refers to, as one message of data before the history.

    Messages that leave the short-term memory are stored, with the facts in them. The session of the
    memory labels them, unless one is bound. A step of an agent that follows the same message reads
    the block again; it is recalled again once something was stored. A function as `memory` gets the
    session id of LlamaIndex's `Memory`, here and in the tools.
    """

    _memory: AgentMemory = PrivateAttr()
    _last: tuple[object, str] = PrivateAttr(default=(None, ""))

    def __init__(
        self,
        memory: MemorySource,
        *,
        name: str = SOURCE,
        priority: int = 0,
        **arguments: Unpack[BlockArguments],
    ) -> None:
        super().__init__(name=name, priority=priority)
        self._memory = AgentMemory(memory, **arguments)

    async def _aget(
        self, messages: list[ChatMessage] | None = None, **options: Any
    ) -> list[ChatMessage]:
        session, messages = options.get("session_id"), _without_repeat(messages or [])
        texts = tuple((message.role.value, message.content) for message in messages)
        owner = self._memory.of(session)
        key = (await owner.read_version(), session, texts)
        if key[0] is None or key != self._last[0]:
            self._last = key, await owner.recall_block(messages, session)
        block = self._last[1]
        return [ChatMessage(role="user", content=block)] if block else []

    async def _aput(self, messages: list[ChatMessage]) -> None:
        sessions = {message.additional_kwargs.get("session_id") for message in messages}
        for session in sessions:
            part = [m for m in messages if m.additional_kwargs.get("session_id") == session]
            await self._memory.of(session).remember(part, session)


class RecallNodeRetriever(BaseRetriever):
    """A retriever that recalls: one node for each memory or message that was meant.

    A failed recall is one node that says so: its metadata has `error`. LlamaIndex has no context of
    a query: a function as `memory` gets None, and may read a context variable of yours.
    """

    def __init__(self, memory: MemorySource, **arguments: Unpack[RequestArguments]) -> None:
        super().__init__()
        self._memory = AgentMemory(memory, **arguments)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(*self._memory.of(None).recall_sync(query_bundle.query_str))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(*await self._memory.of(None).recall(query_bundle.query_str))


class TableTool(FunctionTool):
    """A tool of the table; an error is an answer too."""

    def __init__(self, tool: BoundTool) -> None:
        async def run(ctx: Context, **arguments: Any) -> str:
            return await tool.call(arguments, await _session_of(ctx))

        def run_sync(ctx: Context, **arguments: Any) -> str:
            return tool.call_sync(arguments)

        super().__init__(run_sync, _TableMetadata(tool), run)

    def call(self, *_: Any, **arguments: Any) -> ToolOutput:
        """Run the tool; only agents have a context."""
        return super().call(**{"ctx": None, **arguments})

    async def acall(self, *_: Any, **arguments: Any) -> ToolOutput:
        """Like `call`, from async code."""
        return await super().acall(**{"ctx": None, **arguments})


async def _session_of(context: object) -> str | None:
    """Return the session of an agent's memory; a model cannot write a context."""
    if not isinstance(context, Context):
        return None
    return getattr(await context.store.get("memory", default=None), "session_id", None)


class _TableMetadata(ToolMetadata):
    """Metadata with the schema of the table instead of that of a function."""

    def __init__(self, tool: BoundTool) -> None:
        super().__init__(
            description=tool.description, name=tool.name, fn_schema=tool.tool.arguments
        )
        self._parameters = tool.parameters

    def get_parameters_dict(self) -> dict[str, Any]:
        return self._parameters


def memory_tools(memory: MemorySource, **arguments: Unpack[AgentArguments]) -> list[TableTool]:
    """Return tools to remember, recall, correct and forget for the user of the memory."""
    return [TableTool(tool) for tool in bind_tools(memory, **arguments)]


def _without_repeat(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Return the messages without the last one if it repeats the one before it.

    A step of an agent passes the user's message, which is in the history already, as input.
    """
    texts = [(message.role, message.content) for message in messages[-2:]]
    return messages[:-1] if len(texts) == 2 and texts[0] == texts[1] else messages


def _nodes(memories: Sequence[RecalledMemory], problem: str) -> list[NodeWithScore]:
    if problem:
        return [NodeWithScore(node=TextNode(text=problem, metadata={"error": True}))]
    return [_node(memory) for memory in memories]


def _node(memory: RecalledMemory) -> NodeWithScore:
    metadata = {
        "kind": memory.kind,
        "memory_type": memory.memory_type,
        "speaker": memory.speaker or memory.role,
        "said_at": format_time(memory.ts),
        "certainty": memory.certainty.value,
    }
    node = TextNode(id_=memory.memory_key, text=memory.content, metadata=metadata)
    return NodeWithScore(node=node, score=memory.relevance_score)
