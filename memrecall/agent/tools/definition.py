"""What a tool is: its texts, models, handler and rights, and its schemas for each interface."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic import BaseModel

from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import ToolOutput
from memrecall.errors import Disabled, InvalidArgument
from memrecall.model import protocol
from memrecall.model.prompts import load_prompt
from memrecall.scope import Permission
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
