"""The table of tools. Every interface renders its tools from it.

A new tool is an entry here, with a handler annotated with the models of its arguments and result,
and a section in `prompts/tools.*.md`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NotRequired, TypedDict, get_type_hints

from pydantic import BaseModel

from memrecall import model
from memrecall.agent.conversation import Conversation
from memrecall.agent.phrases import say
from memrecall.agent.state import RecallState, Window, read_version
from memrecall.agent.tools import (
    DETAIL,
    EXPANSION,
    HANDOFF,
    IS_MENTIONED,
    KEYWORDS,
    OTHER_MESSAGES,
    RECALL,
    RECALL_MEMORY,
    SEARCH,
    knowledge,
    memories,
    recall,
    service,
)
from memrecall.agent.tools.context import get_other_members_messages, is_mentioned, recall_memory
from memrecall.agent.tools.control import expand_context_window, handoff
from memrecall.agent.tools.definition import Interface, Tool, Variant
from memrecall.agent.tools.detail import get_memory_detail, read_memory, search_messages
from memrecall.agent.tools.keywords import extract_search_keywords
from memrecall.agent.tools.models import ToolErrorCode
from memrecall.agent.tools.search import search_memories
from memrecall.errors import (
    CallerError,
    Disabled,
    EmbedderFailed,
    InvalidArgument,
    MemrecallError,
    NotFound,
)
from memrecall.library.library import Library
from memrecall.model import protocol
from memrecall.scope import Permission, Scope
from memrecall.text.language import language_of
from memrecall.types import Language

# functions.x, mcp__server__x, call=x, x:0 and x<|channel|>commentary all mean x.
_PART_END = re.compile(r"__|[^\w-]")
_SUFFIX = re.compile(r"(?:<\||\(|\s).*$", re.DOTALL)
_NO_LETTERS = re.compile(r"[\W\d_]+")

_PARENT = frozenset({Interface.AUTOGEN})
_CLIENTS = frozenset({Interface.RPC, Interface.MCP})
_GROUP = frozenset({Interface.GROUP_CHAT})


def _tool(handler: Callable[[Any, Any], Awaitable[Any]], name: str = "", **options: Any) -> Tool:
    """Return a tool; its models are the handler's annotations unless options name them."""
    _, arguments, result = get_type_hints(handler).values()
    models = {"arguments": arguments, "result": result}
    return Tool(name=name or handler.__name__, handler=handler, **(models | options))


_recall_tool = partial(_tool, interfaces=frozenset({Interface.RECALL}))
_memory_tool = partial(_tool, interfaces=_PARENT | {Interface.MCP}, prompt="memory_tools")
_service_tool = partial(
    _tool,
    interfaces=_CLIENTS,
    prompt="service_tools",
    permission=Permission.OPERATOR,
    needs_user=False,
)
_mcp_tool = partial(_tool, interfaces=frozenset({Interface.MCP}), prompt="service_tools")
_chat_tool = partial(_tool, interfaces=_GROUP, prompt="chat_tools")


def _knowledge_tool(
    handler: Callable[[Any, Any], Awaitable[Any]], name: str, title: str, **options: Any
) -> Tool:
    """Return a tool on knowledge; over MCP its name is that of the handler."""
    options = {"permission": Permission.KNOWLEDGE, **options}
    return _service_tool(handler, name, title=title, mcp_name=handler.__name__, **options)


def _for_mcp(arguments: type[BaseModel], result: type[BaseModel]) -> dict[Interface, Variant]:
    return {Interface.MCP: Variant(arguments, result, "service_tools")}


_RECALL_TOOLS = (
    _recall_tool(search_memories, SEARCH),
    _recall_tool(get_memory_detail, DETAIL),
    _recall_tool(extract_search_keywords, KEYWORDS),
    _recall_tool(expand_context_window, EXPANSION),
    _recall_tool(handoff, HANDOFF),
)
_MEMORY_TOOLS = (
    _memory_tool(
        memories.remember,
        title="Remember",
        arguments=memories.RememberArguments,
        writes=True,
        variants=_for_mcp(memories.RememberParams, memories.StoredMemory),
    ),
    _memory_tool(
        recall.recall,
        RECALL,
        title="Recall",
        arguments=recall.RecallToolArguments,
        result=recall.RecallAnswer,
        variants=_for_mcp(recall.RecallParams, recall.RecallReply),
    ),
    _memory_tool(memories.correct, title="Correct", writes=True),
    _memory_tool(memories.forget, title="Forget", writes=True, destroys=True),
    _mcp_tool(search_messages, title="Search messages"),
    _mcp_tool(read_memory, title="Read a memory"),
    _mcp_tool(memories.list_memories, title="List memories"),
)
_SERVICE_TOOLS = (
    _service_tool(
        service.init_workspace, "memory_init_workspace", title="Make a workspace", writes=True
    ),
    _knowledge_tool(knowledge.add_knowledge, "memory_add", "Add knowledge", writes=True),
    _knowledge_tool(knowledge.update_knowledge, "memory_update", "Change knowledge", writes=True),
    _knowledge_tool(
        knowledge.query_knowledge,
        "memory_query",
        "Query knowledge",
        permission=None,
        variants=_for_mcp(knowledge.QueryParams, knowledge.EntrySnippets),
    ),
    _knowledge_tool(knowledge.read_knowledge, "memory_read", "Read knowledge", permission=None),
    _knowledge_tool(
        knowledge.delete_knowledge,
        "memory_delete",
        "Delete knowledge",
        writes=True,
        destroys=True,
    ),
    _service_tool(
        service.cleanup, "memory_cleanup", title="Remove a workspace", writes=True, destroys=True
    ),
    _service_tool(service.get_status, "memory_get_status", title="Status", permission=None),
    _service_tool(service.dump, "memory_dump", title="Dump"),
    _service_tool(
        service.search,
        "memory_search",
        mcp_name="search_knowledge_and_files",
        title="Search knowledge and files",
        permission=None,
    ),
    _service_tool(service.backup, "memory_backup", title="Back up", writes=True),
    _service_tool(service.restore, "memory_restore", title="Restore", writes=True, destroys=True),
)
_CHAT_TOOLS = (
    _chat_tool(recall_memory, RECALL_MEMORY, interfaces=_GROUP | {Interface.CHAT}),
    _chat_tool(get_other_members_messages, OTHER_MESSAGES),
    _chat_tool(is_mentioned, IS_MENTIONED),
)

TOOLS: dict[str, Tool] = {
    tool.name: tool for tool in (*_RECALL_TOOLS, *_MEMORY_TOOLS, *_SERVICE_TOOLS, *_CHAT_TOOLS)
}


def tools_for(interface: Interface) -> dict[str, Tool]:
    """Return the tools of an interface by name, in the order of the table."""
    tools = [t.for_interface(interface) for t in TOOLS.values() if interface in t.interfaces]
    return {tool.name: tool for tool in tools}


def find_tool(name: str, interface: Interface) -> Tool | None:
    """Return a tool of an interface, or None.

    MCP clients of earlier versions call the tools of the knowledge base as JSON-RPC does.
    """
    tools = tools_for(interface)
    tool = TOOLS.get(name)
    return tools.get(name) or (tool and tools.get(tool.mcp_name))


def function_schemas(interface: Interface, language: Language) -> tuple[protocol.ToolSchema, ...]:
    """Return the schemas of an interface's tools for our own prompts, the same object each time."""
    return _function_schemas(tuple(tools_for(interface).values()), language)


@cache
def _function_schemas(
    tools: tuple[Tool, ...], language: Language
) -> tuple[protocol.ToolSchema, ...]:
    return tuple(tool.function_schema(language) for tool in tools)


@cache
def schema_text(language: Language) -> str:
    """Return the schemas of the recall tools as a request contains them."""
    schemas = function_schemas(Interface.RECALL, language)
    functions = [{"type": "function", "function": schema} for schema in schemas]
    return json.dumps(functions, ensure_ascii=False)


@cache
def forced_handoff(language: Language) -> model.SchemaTool:
    """Return the tool choice that allows a model nothing but a handoff."""
    schemas = function_schemas(Interface.RECALL, language)
    schema = next(schema for schema in schemas if schema["name"] == HANDOFF)
    return model.SchemaTool(schema, TOOLS[HANDOFF].arguments, TOOLS[HANDOFF].result)


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
    texts = [value for value in arguments.model_dump().values() if isinstance(value, str)]
    size = getattr(arguments, "current_size", 1)
    state = RecallState(
        library=library,
        scope=scope,
        version=await read_version(library, scope),
        conversation=Conversation((), library.store, scope),
        language=language_of("\n".join(texts)),
        now=datetime.now(UTC),
        window=Window(size, shown=size),
        caches=library.caches,
        checks_keys=False,
    )
    return await tool.run(state, arguments)


MEMRECALL_TOOLS: dict[str, ToolEntry] = {
    name: _entry(tool) for name, tool in tools_for(Interface.RECALL).items()
}


def normalize_tool_name(name: str) -> str:
    """Return the name of the tool that a model means, by its letters; an unknown one as it is."""
    plain = _SUFFIX.sub("", name.strip())
    parts = (plain, *reversed(_PART_END.split(plain)))
    letters = (_NO_LETTERS.sub("", part).lower() for part in parts)
    names = {name.replace("_", ""): name for name in TOOLS}
    return next((names[part] for part in letters if part in names), plain)


class UnknownTool(NotFound):
    """A call of a tool that does not exist."""


def require_tool(name: str, interface: Interface, language: Language) -> Tool:
    """Return a tool of an interface; raise UnknownTool if it has none of that name."""
    if (tool := find_tool(name, interface)) is None:
        tools = ", ".join(tools_for(interface))
        raise UnknownTool(say(language, "unknown_tool", tool=name, tools=tools))
    return tool


_ERROR_CODES: tuple[tuple[type[Exception], ToolErrorCode], ...] = (
    (TimeoutError, ToolErrorCode.TIMEOUT),
    (Disabled, ToolErrorCode.NO_PERMISSION),
    (UnknownTool, ToolErrorCode.UNKNOWN_TOOL),
    (NotFound, ToolErrorCode.NOT_FOUND),
    (InvalidArgument, ToolErrorCode.INVALID_ARGUMENTS),
    (EmbedderFailed, ToolErrorCode.EMBEDDER),
    (CallerError, ToolErrorCode.REFUSED),
)


def error_code(error: MemrecallError | TimeoutError) -> ToolErrorCode:
    """Return the code of a failed call; an error of no other kind is one of the database."""
    codes = (code for kind, code in _ERROR_CODES if isinstance(error, kind))
    return next(codes, ToolErrorCode.STORAGE)
