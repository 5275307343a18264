"""The five tools in one table: from here come the schemas, the checks and the calls."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, NotRequired, TypedDict

from autogen_core import CancellationToken
from autogen_core.tools import ParametersSchema, ToolSchema
from pydantic import BaseModel

from memrecall.agent.tools import models
from memrecall.agent.tools.detail import get_memory_detail
from memrecall.agent.tools.handoff import handoff
from memrecall.agent.tools.keywords import extract_search_keywords
from memrecall.agent.tools.search import search_memories
from memrecall.agent.tools.window import expand_context_window
from memrecall.errors import InvalidArgument
from memrecall.model.prompts import Language, load_prompt

_WRITTEN_BY_THE_DRIVER = frozenset({"iteration_used", "context_window_used"})
_HEADING = re.compile(r"^# (\w+)\n", re.MULTILINE)
_ARGUMENT = re.compile(r"^- (\w+): (.+)$", re.MULTILINE)


@cache
def descriptions(
    language: Language, prompt: str = "tools"
) -> dict[str, tuple[str, dict[str, str]]]:
    """For each tool what it does, and for each of its arguments what it means."""
    _, *parts = _HEADING.split(load_prompt(prompt, language))
    told = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        told[name] = (_ARGUMENT.sub("", text).strip(), dict(_ARGUMENT.findall(text)))
    return told


def make_schema(
    name: str, input_model: type[BaseModel], language: Language, *, prompt: str = "tools"
) -> ToolSchema:
    """One tool's schema in the words of a language; an argument without words is an error."""
    about, arguments = descriptions(language, prompt)[name]
    drawn = input_model.model_json_schema()
    wanted = [key for key in drawn["properties"] if key not in _WRITTEN_BY_THE_DRIVER]
    if wanted != list(arguments):
        raise InvalidArgument(
            f"the prompt `{prompt}` ({language}) describes other arguments of {name} than it has",
            hint=f"Describe {', '.join(wanted)}, in this order",
        )
    properties = {key: _slim(drawn["properties"][key], arguments[key]) for key in wanted}
    return ToolSchema(
        name=name,
        description=about,
        parameters=ParametersSchema(
            type="object",
            properties=properties,
            required=drawn.get("required", []),
            additionalProperties=False,
        ),
        strict=False,
    )


def _slim(drawn: dict[str, Any], description: str) -> dict[str, Any]:
    kinds = [kind for kind in drawn.get("anyOf", []) if kind.get("type") != "null"]
    kept = {**drawn, **(kinds[0] if kinds else {})}
    for name in ("title", "anyOf"):
        kept.pop(name, None)
    if kept.get("default", 0) in (None, []):
        del kept["default"]
    return {**kept, "description": description}


class ToolEntry(TypedDict):
    """One tool. `func` takes the desk of one recall, which is bound to a scope, and the input."""

    name: str
    description: str
    input_model: type[BaseModel]
    output_model: type[BaseModel]
    func: Callable[..., Awaitable[BaseModel]]
    is_expansion: NotRequired[bool]
    is_handoff: NotRequired[bool]


def _about(name: str) -> str:
    return descriptions("en")[name][0]


MEMRECALL_TOOLS: dict[str, ToolEntry] = {
    "search_memories": {
        "name": "search_memories",
        "description": _about("search_memories"),
        "input_model": models.SearchMemoriesInput,
        "output_model": models.SearchMemoriesOutput,
        "func": search_memories,
    },
    "get_memory_detail": {
        "name": "get_memory_detail",
        "description": _about("get_memory_detail"),
        "input_model": models.GetMemoryDetailInput,
        "output_model": models.GetMemoryDetailOutput,
        "func": get_memory_detail,
    },
    "extract_search_keywords": {
        "name": "extract_search_keywords",
        "description": _about("extract_search_keywords"),
        "input_model": models.ExtractKeywordsInput,
        "output_model": models.ExtractKeywordsOutput,
        "func": extract_search_keywords,
    },
    "expand_context_window": {
        "name": "expand_context_window",
        "description": _about("expand_context_window"),
        "input_model": models.ExpandContextWindowInput,
        "output_model": models.ExpandContextWindowOutput,
        "func": expand_context_window,
        "is_expansion": True,
    },
    "handoff": {
        "name": "handoff",
        "description": _about("handoff"),
        "input_model": models.HandoffInput,
        "output_model": models.HandoffOutput,
        "func": handoff,
        "is_handoff": True,
    },
}

EXPANSION = next(name for name, tool in MEMRECALL_TOOLS.items() if tool.get("is_expansion"))
HANDOFF = next(name for name, tool in MEMRECALL_TOOLS.items() if tool.get("is_handoff"))


@cache
def tool_schemas(language: Language) -> tuple[ToolSchema, ...]:
    """What a model is shown of all tools, the same object every time."""
    return tuple(
        make_schema(name, tool["input_model"], language) for name, tool in MEMRECALL_TOOLS.items()
    )


@cache
def schema_characters(language: Language) -> int:
    """How many characters of a request the tools take."""
    sent = [{"type": "function", "function": schema} for schema in tool_schemas(language)]
    return len(json.dumps(sent, ensure_ascii=False))


class NamedTool:
    """A tool as AutoGen wants it where a request forces one: a name with a schema, never run."""

    def __init__(self, schema: ToolSchema) -> None:
        self._schema = schema

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._schema["name"]

    @property
    def description(self) -> str:
        """What the model reads."""
        return self._schema.get("description", "")

    @property
    def schema(self) -> ToolSchema:
        """What the model is shown."""
        return self._schema

    def args_type(self) -> type[BaseModel]:
        """The input model."""
        return MEMRECALL_TOOLS[self.name]["input_model"]

    def return_type(self) -> type[Any]:
        """The output model."""
        return MEMRECALL_TOOLS[self.name]["output_model"]

    def state_type(self) -> type[BaseModel] | None:
        """Tools keep no state."""
        return None

    def return_value_as_string(self, value: Any) -> str:
        """The value as text."""
        return str(value)

    async def run_json(
        self,
        args: Mapping[str, Any],
        cancellation_token: CancellationToken,
        call_id: str | None = None,
    ) -> Any:
        """Refused: calls run at the desk of a recall, where the scope is bound."""
        raise NotImplementedError("a named tool only names; the desk of a recall runs it")

    async def save_state_json(self) -> Mapping[str, Any]:
        """Tools keep no state."""
        return {}

    async def load_state_json(self, state: Mapping[str, Any]) -> None:
        """Tools keep no state."""


@cache
def forced_handoff(language: Language) -> NamedTool:
    """The tool choice that leaves a model nothing but to hand off."""
    return NamedTool(next(s for s in tool_schemas(language) if s["name"] == HANDOFF))
