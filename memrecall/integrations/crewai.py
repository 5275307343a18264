"""CrewAI: a memory for agents and crews, and tools.

    crew = Crew(agents=[…], tasks=[…], memory=CrewMemory(Memory(user_id="ann")))
    agent = Agent(…, tools=memory_tools(Memory(user_id="ann")))

CrewAI is sync: pass a `Memory`. It has no context of a request: a function as `memory` gets None,
and may read a context variable of yours.
"""

from typing import Any, NoReturn, Unpack

from pydantic import PrivateAttr

from memrecall.agent.result import RecalledMemory
from memrecall.errors import InvalidArgument
from memrecall.integrations.agent_memory import (
    AgentArguments,
    AgentMemory,
    BoundTool,
    MemorySource,
    RequestArguments,
    bind_tools,
    framework_of,
)
from memrecall.types import format_time

with framework_of("crewai"):
    import crewai
    from crewai.memory.types import MemoryMatch, MemoryRecord
    from crewai.tools import BaseTool


class _NoStorage:
    """Stands in for the storage that CrewAI's own memory would open."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise InvalidArgument(
            f"CrewMemory does not support {name!r}", hint="Use the methods of memrecall's Memory"
        )


class CrewMemory(crewai.Memory):
    """CrewAI's memory over that of one user: recall before a task, and storing of its result.

    A failed recall is one match that says so. Scopes and categories of CrewAI are ignored: the
    bound user, agent and session are the scope.
    """

    _owner: AgentMemory = PrivateAttr()

    def __init__(
        self,
        memory: MemorySource,
        *,
        read_only: bool = False,
        **arguments: Unpack[RequestArguments],
    ) -> None:
        super().__init__(storage=_NoStorage(), read_only=read_only)
        self._owner = AgentMemory(memory, **arguments)
        self._owner.check_sync()

    def recall(self, query: str, *_: Any, limit: int = 10, **__: Any) -> list[MemoryMatch]:
        """Return what the query refers to, the best first."""
        return _matches(*self._owner.of(None).recall_sync(query))[:limit]

    async def arecall(self, query: str, *_: Any, limit: int = 10, **__: Any) -> list[MemoryMatch]:
        """Like `recall`, from async code."""
        return _matches(*await self._owner.of(None).recall(query))[:limit]

    def extract_memories(self, content: str) -> list[str]:
        """Return the text as it is: memrecall extracts the facts when it stores it."""
        return [content] if content.strip() else []

    async def aextract_memories(self, content: str) -> list[str]:
        """Like `extract_memories`."""
        return self.extract_memories(content)

    def remember(self, content: str, *_: Any, **__: Any) -> MemoryRecord | None:
        """Store a text as written by the assistant, and the facts in it."""
        if self.read_only:
            return None
        self._owner.of(None).remember_sync({"role": "assistant", "content": content})
        return MemoryRecord(content=content)

    async def aremember(self, content: str, *_: Any, **__: Any) -> MemoryRecord | None:
        """Like `remember`, from async code."""
        if self.read_only:
            return None
        await self._owner.of(None).remember({"role": "assistant", "content": content})
        return MemoryRecord(content=content)

    def remember_many(self, contents: list[str], *_: Any, **__: Any) -> list[MemoryRecord]:
        """Store several texts."""
        return [record for content in contents if (record := self.remember(content))]

    async def aremember_many(self, contents: list[str], *_: Any, **__: Any) -> list[MemoryRecord]:
        """Like `remember_many`, from async code."""
        return [record for content in contents if (record := await self.aremember(content))]


class CrewTool(BaseTool):
    """A tool of the table, bound to one user."""

    _tool: BoundTool = PrivateAttr()

    def __init__(self, tool: BoundTool) -> None:
        super().__init__(
            name=tool.name, description=tool.description, args_schema=tool.tool.arguments
        )
        self._tool = tool

    def _run(self, **arguments: Any) -> str:
        return self._tool.call_sync(arguments)

    async def _arun(self, **arguments: Any) -> str:
        return await self._tool.call(arguments)


def memory_tools(memory: MemorySource, **arguments: Unpack[AgentArguments]) -> list[CrewTool]:
    """Return tools to remember, recall, correct and forget for the user of the memory."""
    return [CrewTool(tool) for tool in bind_tools(memory, **arguments)]


def _matches(memories: list[RecalledMemory], problem: str) -> list[MemoryMatch]:
    if problem:
        return [MemoryMatch(record=MemoryRecord(content=problem), score=0.0)]
    return [_match(memory) for memory in memories]


def _match(memory: RecalledMemory) -> MemoryMatch:
    metadata = {
        "said_at": format_time(memory.ts),
        "by": memory.speaker or memory.role,
        "certainty": memory.certainty.value,
    }
    record = MemoryRecord(id=memory.memory_key, content=memory.content, metadata=metadata)
    return MemoryMatch(record=record, score=memory.relevance_score or 0.0)
