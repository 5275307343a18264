"""The table of tools, from which every interface renders its own.

A new tool is an entry here, with a handler annotated with the models of its arguments and result,
and a section in `prompts/tools.*.md`. The server and the chat add the tools that only they offer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, partial
from typing import Any, NotRequired, TypedDict, get_type_hints

from pydantic import BaseModel, ValidationError

from memrecall import model
from memrecall.agent.conversation import Conversation
from memrecall.agent.phrases import say
from memrecall.agent.state import RecallState, Window, read_version
from memrecall.agent.tools import (
    DETAIL,
    EXPANSION,
    HANDOFF,
    KEYWORDS,
    RECALL,
    SEARCH,
    memories,
)
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.control import expand_context_window, handoff
from memrecall.agent.tools.detail import get_memory_detail
from memrecall.agent.tools.models import ToolErrorCode, ToolOutput
from memrecall.agent.tools.search import extract_search_keywords, search_memories
from memrecall.errors import (
    CallerError,
    Disabled,
    EmbedderFailed,
    InvalidArgument,
    MemrecallError,
    NotFound,
    describe_validation_problem,
)
from memrecall.json_objects import make_storable
from memrecall.library.library import Library
from memrecall.model import protocol
from memrecall.model.prompts import load_prompt
from memrecall.scope import Permission, Scope
from memrecall.text.language import language_of
from memrecall.text_length import single_line
from memrecall.types import Language

# The driver sets these fields of `handoff`; models do not see them.
_HIDDEN_ARGUMENTS = frozenset({"iteration_used", "context_window_used"})
_HEADING = re.compile(r"^# (\w+)\n", re.MULTILINE)
_ARGUMENT = re.compile(r"^- (\w+): (.+)$", re.MULTILINE)


class Interface(StrEnum):
    """An interface that offers tools."""

    RECALL = "recall"  # the recall agent's own loop
    AUTOGEN = "autogen"  # `memory_tools` of a parent agent
    RPC = "rpc"
    MCP = "mcp"
    CHAT = "chat"
    GROUP_CHAT = "group_chat"


@dataclass(frozen=True, slots=True)
class ToolTexts:
    """The description of a tool and of each of its arguments, in one language."""

    description: str
    arguments: dict[str, str]


# Aliases cannot replace it: MCP clients and AutoGen parents depend on different results (`memories`
# of `recall` has other fields) and bounds (`text` of `remember` has 4,000 characters at most).
@dataclass(frozen=True, slots=True)
class Variant:
    """The arguments, result and texts of a tool at an interface where they differ."""

    arguments: type[BaseModel]
    result: type[BaseModel]
    prompt: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Tool:
    """A tool. Its texts are a section of the prompt file `prompt`.

    The handler takes the context of the interface (`RecallState` in the recall loop, `TurnContext`
    in chat turns, `ToolContext` elsewhere; all of them are a `ToolContext`) and the arguments.
    """

    name: str
    mcp_name: str = ""  # if the name of the specification is too similar to another one
    arguments: type[BaseModel]
    result: type[BaseModel]
    handler: Callable[[Any, Any], Awaitable[BaseModel]]
    interfaces: frozenset[Interface] = frozenset(Interface)
    prompt: str = "tools"
    title: str = ""
    permission: Permission | None = None
    needs_user: bool = True
    writes: bool = False
    destroys: bool = False
    variants: Mapping[Interface, Variant] = field(default_factory=dict)

    def for_interface(self, interface: Interface) -> Tool:
        """Return the tool with the models and texts of an interface, the same object each time."""
        is_renamed = interface is Interface.MCP and self.mcp_name
        return _resolve(self, interface) if is_renamed or interface in self.variants else self

    def refusal(self, context: ToolContext) -> Disabled | None:
        """Return why a caller may not use the tool, or None."""
        if self.needs_user and not context.has_user:
            hint = "Use a key of one user, or name the user in a header"
            return Disabled(f"{self.name} needs a user, but no user is bound", hint=hint)
        if self.writes and not context.can_write:
            return Disabled(f"{self.name} writes, but this key is read-only")
        if self.permission is not None and not context.allows(self.permission):
            return Disabled(f"{self.name} needs the permission `{self.permission.value}`")
        return None

    async def run(self, context: ToolContext, arguments: BaseModel) -> BaseModel:
        """Run the handler if the caller may use the tool, and return the tool's result model."""
        refusal = self.refusal(context)
        if refusal is not None:
            raise refusal
        result = await self.handler(context, arguments)
        if isinstance(result, self.result) or not issubclass(self.result, ToolOutput):
            return result
        return self.result.from_result(result)

    def texts(self, language: Language) -> ToolTexts:
        """Return the texts in a language; they must describe exactly the arguments of the model."""
        texts = _parse_texts(load_prompt(self.prompt, language)).get(self.mcp_name or self.name)
        names = [name for name in self.arguments.model_fields if name not in _HIDDEN_ARGUMENTS]
        if texts is None or list(texts.arguments) != names:
            raise InvalidArgument(
                f"the prompt `{self.prompt}` ({language}) does not describe the arguments of"
                f" {self.name}",
                hint=f"Describe {', '.join(names) or 'the tool'}, in this order",
            )
        return texts

    def result_schema(self) -> dict[str, Any]:
        """Return the fields of the result with their types, as short as a client needs it."""
        schema = self.result.model_json_schema(mode="serialization")
        parts = schema.get("$defs", {})
        fields = {name: _plain_type(f, parts) for name, f in schema["properties"].items()}
        return {"type": "object", "properties": fields}

    def function_schema(self, language: Language) -> protocol.ToolSchema:
        """Return the schema of a call, as short as a model needs it."""
        texts, schema = self.texts(language), self.arguments.model_json_schema()
        fields = {
            name: {**_shorten(schema["properties"][name]), "description": description}
            for name, description in texts.arguments.items()
        }
        return {
            "name": self.name,
            "description": texts.description,
            "parameters": {
                "type": "object",
                "properties": fields,
                "required": schema.get("required", []),
                "additionalProperties": False,
            },
            "strict": False,
        }


@cache
def _resolve(tool: Tool, interface: Interface) -> Tool:
    changes: dict[str, Any] = {}
    if interface is Interface.MCP and tool.mcp_name:
        changes["name"] = tool.mcp_name
    if variant := tool.variants.get(interface):
        changes |= {"arguments": variant.arguments, "result": variant.result}
        changes |= {"prompt": variant.prompt, "variants": {}}
    return replace(tool, **changes)


@cache
def _parse_texts(text: str) -> dict[str, ToolTexts]:
    """Parse a prompt file: a heading for each tool, a line `- name: …` for each argument."""
    _, *parts = _HEADING.split(text)
    return {
        name: ToolTexts(_ARGUMENT.sub("", body).strip(), dict(_ARGUMENT.findall(body)))
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _plain_type(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON type of a field, without the items or fields inside of it."""
    schema = parts.get(schema.get("$ref", "").rpartition("/")[2], schema)
    if options := schema.get("anyOf"):
        return {"type": [_plain_type(option, parts)["type"] for option in options]}
    return {name: schema[name] for name in ("type", "enum") if name in schema}


def _shorten(schema: dict[str, Any]) -> dict[str, Any]:
    types = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    short = {**schema, **(types[0] if types else {})}
    for name in ("title", "anyOf"):
        short.pop(name, None)
    if short.get("default", 0) in (None, []):
        del short["default"]
    return short


_PERCENTAGE = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*([%％]?)\s*")
_ABSENT_VALUES = frozenset({"null", "none", "undefined", ""})
_SCOPE_ARGUMENTS = frozenset(
    {"user_id", "user", "agent_id", "session_id", "scope", "owner", "tenant_id", "project"}
)
_MAX_PROBLEMS = 3
_LARGEST_VALUE = 4_000  # characters or items of a value that a model wrote
_MAX_PROBLEM = 200  # characters
_MAX_NAME = 60  # characters of an unknown argument's name
_UNKNOWN = "extra_forbidden"


def parse_arguments(
    tool: Tool, value: object, *, lenient: bool = False, language: Language = "en"
) -> BaseModel:
    """Return the arguments of a call as the tool's model, or raise InvalidArgument.

    `value` is a JSON object, or a list of positional values, or None. With `lenient` it is the text
    that a model wrote: "null", "None" and "" count as absent, JSON inside a string is unwrapped, a
    single value where a list is expected becomes a list of one, and an error says in `language`
    what to correct.
    """
    model = tool.arguments
    try:
        if lenient:
            return model.model_validate(_repair(_load_object(tool.name, value, language), model))
        if isinstance(value, list):
            names = list(model.model_fields)
            if len(value) > len(names):
                count = len(names)
                raise InvalidArgument(
                    f"{tool.name} takes up to {count} parameters, not {len(value)}"
                )
            value = dict(zip(names, value, strict=False))
        return model.model_validate(value or {})
    except ValidationError as error:
        # An unknown name comes before what it leaves missing.
        items = sorted(error.errors(), key=lambda item: item["type"] != _UNKNOWN)[:_MAX_PROBLEMS]
        problem = "; ".join(single_line(_explain(i, model, language), _MAX_PROBLEM) for i in items)
        if lenient:
            problem = say(language, "bad_arguments", tool=tool.name, problem=problem)
        raise InvalidArgument(problem) from None


def _load_object(tool: str, value: object, language: Language) -> dict[str, Any]:
    for _ in range(2):  # an object, or a string that contains one
        if not isinstance(value, str):
            break
        try:
            value = make_storable(json.loads(value or "{}"), _LARGEST_VALUE)
        except (ValueError, RecursionError):
            break
    if not isinstance(value, dict):
        problem = say(language, "not_an_object")
        raise InvalidArgument(say(language, "bad_arguments", tool=tool, problem=problem))
    return value


def _repair(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return the values without absent ones, with lists and fractions where the model has them."""
    fields = model.model_fields
    repaired = {}
    for name, value in values.items():
        text = value.strip().lower() if isinstance(value, str) else value
        is_absent = text is None or (isinstance(text, str) and text in _ABSENT_VALUES)
        if not is_absent or name not in fields or fields[name].is_required():
            repaired[name] = _fit(value, model, name)
    return repaired


def _fit(value: Any, model: type[BaseModel], name: str) -> Any:
    """Return a value as the fraction (90 and "90%" are 0.9) or the list that the model has."""
    field = model.model_fields.get(name)
    if field is None:
        return value
    if field.annotation is float and (match := _PERCENTAGE.fullmatch(str(value))):
        number = float(match[1])
        # Less than 10 without a sign may be on a scale of ten: the model has to correct it.
        return number / 100 if match[2] or number >= 10 else number
    if not isinstance(value, str) or "list[" not in str(field.annotation).lower():
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return [value]
    return parsed if isinstance(parsed, list) else [value]


def _explain(problem: Any, model: type[BaseModel], language: Language) -> str:
    if problem["type"] != _UNKNOWN:
        return describe_validation_problem(problem)
    name = single_line(".".join(map(str, problem["loc"])), _MAX_NAME)
    if name.lower() in _SCOPE_ARGUMENTS:
        return say(language, "scope_is_bound", name=name)
    names = ", ".join(model.model_fields) or say(language, "no_arguments")
    return say(language, "unknown_argument", name=name, names=names)


# functions.x, mcp__server__x, call=x, x:0 and x<|channel|>commentary all mean x.
_PART_END = re.compile(r"__|[^\w-]")
_SUFFIX = re.compile(r"(?:<\||\(|\s).*$", re.DOTALL)
_NO_LETTERS = re.compile(r"[\W\d_]+")


def make_tool(
    handler: Callable[[Any, Any], Awaitable[Any]], name: str = "", **options: Any
) -> Tool:
    """Return a tool; its models are the handler's annotations unless options name them."""
    _, arguments, result = get_type_hints(handler).values()
    models = {"arguments": arguments, "result": result}
    return Tool(name=name or handler.__name__, handler=handler, **(models | options))


_recall_tool = partial(make_tool, interfaces=frozenset({Interface.RECALL}))
_memory_tool = partial(
    make_tool, interfaces=frozenset({Interface.AUTOGEN, Interface.MCP}), prompt="memory_tools"
)
TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        _recall_tool(search_memories, SEARCH),
        _recall_tool(get_memory_detail, DETAIL),
        _recall_tool(extract_search_keywords, KEYWORDS),
        _recall_tool(expand_context_window, EXPANSION),
        _recall_tool(handoff, HANDOFF),
        _memory_tool(
            memories.remember,
            title="Remember",
            arguments=memories.RememberArguments,
            writes=True,
            variants={
                Interface.MCP: Variant(
                    memories.RememberParams, memories.StoredMemory, "service_tools"
                )
            },
        ),
        _memory_tool(
            memories.recall,
            RECALL,
            title="Recall",
            arguments=memories.RecallToolArguments,
            result=memories.RecallAnswer,
            variants={
                Interface.MCP: Variant(memories.RecallParams, memories.RecallReply, "service_tools")
            },
        ),
        _memory_tool(memories.correct, title="Correct", writes=True),
        _memory_tool(memories.forget, title="Forget", writes=True, destroys=True),
    )
}


def add_tools(*tools: Tool) -> None:
    """Add the tools of a package above this one, when it is imported."""
    TOOLS.update({tool.name: tool for tool in tools})


def tools_for(interface: Interface) -> dict[str, Tool]:
    """Return the tools of an interface by name, in the order of the table."""
    tools = [t.for_interface(interface) for t in TOOLS.values() if interface in t.interfaces]
    return {tool.name: tool for tool in tools}


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
    tools = tools_for(interface)
    if name not in tools:
        raise UnknownTool(say(language, "unknown_tool", tool=name, tools=", ".join(tools)))
    return tools[name]


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
