"""The table of tools. Every interface renders its tools from it.

A new tool is an entry here, with its models and handler, and a section in `prompts/tools.*.md`.
"""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NotRequired, TypedDict

from pydantic import BaseModel

from memrecall.agent.conversation import Conversation
from memrecall.agent.state import RecallState, Window
from memrecall.agent.tools import chat, memories, models, service
from memrecall.agent.tools.control import expand_context_window, handoff
from memrecall.agent.tools.definition import Interface, Tool, Variant
from memrecall.agent.tools.detail import get_memory_detail
from memrecall.agent.tools.keywords import extract_search_keywords
from memrecall.agent.tools.search import search_memories
from memrecall.library.caches import Caches
from memrecall.library.library import Library
from memrecall.model.protocol import BaseTool, CancellationToken, ToolSchema
from memrecall.scope import Permission, Scope
from memrecall.store import UserVersion
from memrecall.text.language import language_of
from memrecall.types import Language

EXPANSION = "expand_context_window"
HANDOFF = "handoff"

_RECALL = frozenset({Interface.RECALL})
_PARENT = frozenset({Interface.AUTOGEN})
_CLIENTS = frozenset({Interface.RPC, Interface.MCP})
_GROUP = frozenset({Interface.GROUP_CHAT})

_recall_tool = partial(Tool, interfaces=_RECALL)
_memory_tool = partial(Tool, interfaces=_PARENT | {Interface.MCP}, prompt="memory_tools")
_service_tool = partial(
    Tool,
    interfaces=_CLIENTS,
    prompt="service_tools",
    permission=Permission.OPERATOR,
    needs_user=False,
)
_chat_tool = partial(Tool, interfaces=_GROUP, prompt="chat_tools", result=models.TextAnswer)


def _for_mcp(arguments: type[BaseModel], result: type[BaseModel]) -> dict[Interface, Variant]:
    return {Interface.MCP: Variant(arguments, result, "service_tools")}


_RECALL_TOOLS = (
    _recall_tool(
        name="search_memories",
        arguments=models.SearchMemoriesInput,
        result=models.SearchMemoriesOutput,
        handler=search_memories,
    ),
    _recall_tool(
        name="get_memory_detail",
        arguments=models.GetMemoryDetailInput,
        result=models.GetMemoryDetailOutput,
        handler=get_memory_detail,
    ),
    _recall_tool(
        name="extract_search_keywords",
        arguments=models.ExtractKeywordsInput,
        result=models.ExtractKeywordsOutput,
        handler=extract_search_keywords,
    ),
    _recall_tool(
        name=EXPANSION,
        arguments=models.ExpandContextWindowInput,
        result=models.ExpandContextWindowOutput,
        handler=expand_context_window,
    ),
    _recall_tool(
        name=HANDOFF,
        arguments=models.HandoffInput,
        result=models.HandoffOutput,
        handler=handoff,
    ),
)
_MEMORY_TOOLS = (
    _memory_tool(
        name="remember",
        title="Remember",
        arguments=memories.RememberArguments,
        result=memories.MemoryChange,
        handler=memories.remember,
        writes=True,
        variants=_for_mcp(memories.RememberParams, memories.McpMemory),
    ),
    _memory_tool(
        name="recall",
        title="Recall",
        arguments=memories.RecallToolArguments,
        result=memories.RecallAnswer,
        handler=memories.recall,
        variants=_for_mcp(memories.RecallParams, memories.RecallReply),
    ),
    _memory_tool(
        name="correct",
        arguments=memories.CorrectArguments,
        result=memories.MemoryChange,
        handler=memories.correct,
        interfaces=_PARENT,
        writes=True,
    ),
    _memory_tool(
        name="forget",
        title="Forget",
        arguments=memories.ForgetArguments,
        result=memories.MemoryChange,
        handler=memories.forget,
        writes=True,
        destroys=True,
        variants=_for_mcp(memories.ForgetParams, memories.Forgotten),
    ),
    Tool(
        name="search_messages",
        title="Search messages",
        arguments=memories.MessageSearchParams,
        result=memories.MessageHits,
        handler=memories.search_messages,
        interfaces=frozenset({Interface.MCP}),
        prompt="service_tools",
    ),
)
_SERVICE_TOOLS = (
    _service_tool(
        name="memory_init_workspace",
        title="Make a workspace",
        arguments=service.TaskParams,
        result=service.Workspace,
        handler=service.init_workspace,
        writes=True,
    ),
    _service_tool(
        name="memory_add",
        title="Add knowledge",
        arguments=service.AddParams,
        result=service.StoredEntry,
        handler=service.add_knowledge,
        permission=Permission.KNOWLEDGE,
        writes=True,
    ),
    _service_tool(
        name="memory_query",
        title="Query knowledge",
        arguments=service.QueryParams,
        result=service.EntryMatches,
        handler=service.query_knowledge,
        permission=None,
    ),
    _service_tool(
        name="memory_delete",
        title="Delete knowledge",
        arguments=service.DeleteParams,
        result=service.Deleted,
        handler=service.delete_knowledge,
        permission=Permission.KNOWLEDGE,
        writes=True,
        destroys=True,
    ),
    _service_tool(
        name="memory_cleanup",
        title="Remove a workspace",
        arguments=service.TaskParams,
        result=service.Cleaned,
        handler=service.cleanup,
        writes=True,
        destroys=True,
    ),
    _service_tool(
        name="memory_get_status",
        title="Status",
        arguments=service.NoParams,
        result=service.Status,
        handler=service.get_status,
        permission=None,
    ),
    _service_tool(
        name="memory_dump",
        title="Dump",
        arguments=service.DumpParams,
        result=service.Dump,
        handler=service.dump,
    ),
    _service_tool(
        name="memory_search",
        title="Search everywhere",
        arguments=service.SearchParams,
        result=service.ToolHits,
        handler=service.search,
        permission=None,
    ),
    _service_tool(
        name="memory_backup",
        title="Back up",
        arguments=service.NoParams,
        result=service.BackedUp,
        handler=service.backup,
        writes=True,
    ),
    _service_tool(
        name="memory_restore",
        title="Restore",
        arguments=service.RestoreParams,
        result=service.Restored,
        handler=service.restore,
        writes=True,
        destroys=True,
    ),
)
_CHAT_TOOLS = (
    _chat_tool(
        name=chat.RECALL_MEMORY,
        arguments=chat.ChatRecallArguments,
        handler=chat.recall_memory,
        interfaces=_GROUP | {Interface.CHAT},
    ),
    _chat_tool(
        name=chat.OTHER_MESSAGES,
        arguments=chat.NoArguments,
        handler=chat.get_other_members_messages,
    ),
    _chat_tool(name=chat.IS_MENTIONED, arguments=chat.NoArguments, handler=chat.is_mentioned),
)

TOOLS: dict[str, Tool] = {
    tool.name: tool for tool in (*_RECALL_TOOLS, *_MEMORY_TOOLS, *_SERVICE_TOOLS, *_CHAT_TOOLS)
}


def tools_for(interface: Interface) -> dict[str, Tool]:
    """Return the tools of an interface by name, in the order of the table."""
    return {
        name: tool.for_interface(interface)
        for name, tool in TOOLS.items()
        if interface in tool.interfaces
    }


def function_schemas(interface: Interface, language: Language) -> tuple[ToolSchema, ...]:
    """Return the schemas of an interface's tools for our own prompts, the same object each time."""
    return _function_schemas(tuple(tools_for(interface).values()), language)


@cache
def _function_schemas(tools: tuple[Tool, ...], language: Language) -> tuple[ToolSchema, ...]:
    return tuple(tool.function_schema(language) for tool in tools)


def count_schema_characters(language: Language) -> int:
    """Return how many characters of a request the schemas of the recall tools take."""
    schemas = function_schemas(Interface.RECALL, language)
    functions = [{"type": "function", "function": schema} for schema in schemas]
    return len(json.dumps(functions, ensure_ascii=False))


class SchemaTool(BaseTool[Any, Any]):
    """An entry of the table as an AutoGen tool: with the table's schema, not runnable by itself."""

    def __init__(self, tool: Tool, schema: ToolSchema) -> None:
        super().__init__(tool.arguments, tool.result, tool.name, schema.get("description", ""))
        self._schema = schema

    @property
    def schema(self) -> ToolSchema:
        """The schema for the model."""
        return self._schema

    async def run(self, args: Any, cancellation_token: CancellationToken) -> Any:
        """Refuse to run: a call needs the context of an interface."""
        raise NotImplementedError(f"{self.name} only names a tool; the recall loop runs it")


@cache
def forced_handoff(language: Language) -> SchemaTool:
    """Return the tool choice that allows a model nothing but a handoff."""
    schemas = function_schemas(Interface.RECALL, language)
    schema = next(schema for schema in schemas if schema["name"] == HANDOFF)
    return SchemaTool(TOOLS[HANDOFF], schema)


class ToolEntry(TypedDict):
    """A recall tool in the form of the specification.

    `await func(library, scope, arguments)` runs the tool once, outside of a recall, and returns the
    output model.
    """

    name: str
    description: str
    input_model: type[BaseModel]
    output_model: type[BaseModel]
    func: Callable[[Library, Scope, Any], Awaitable[BaseModel]]
    is_expansion: NotRequired[bool]
    is_handoff: NotRequired[bool]


def _entry(tool: Tool) -> ToolEntry:
    entry: ToolEntry = {
        "name": tool.name,
        "description": tool.texts("en").description,
        "input_model": tool.arguments,
        "output_model": tool.result,
        "func": partial(_run_once, tool),
    }
    if tool.name == EXPANSION:
        entry["is_expansion"] = True
    if tool.name == HANDOFF:
        entry["is_handoff"] = True
    return entry


async def _run_once(tool: Tool, library: Library, scope: Scope, arguments: BaseModel) -> BaseModel:
    """Run a recall tool with a new state; raises the typed errors of memrecall."""
    version = await library.store.feed(scope.user_id).version()
    if version is not None:
        await library.store.require_active(version, scope)
    texts = [value for value in arguments.model_dump().values() if isinstance(value, str)]
    state = RecallState(
        library=library,
        scope=scope,
        version=version or UserVersion("", 0, 1, "UTC"),
        conversation=Conversation((), library.store, scope),
        language=language_of("\n".join(texts)),
        now=datetime.now(UTC),
        window=Window(getattr(arguments, "current_size", 1)),
        caches=Caches(),
        checks_keys=False,
    )
    return await tool.run(state, arguments)


MEMRECALL_TOOLS: dict[str, ToolEntry] = {tool.name: _entry(tool) for tool in _RECALL_TOOLS}
