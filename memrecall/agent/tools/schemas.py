"""The schemas that a model is shown: made once a language, from the input models and the prompts.

Smaller than pydantic's own: no titles, no nulls beside a type, no defaults of nothing. What a model
need not write (the driver's fields of `handoff`) is left out.
"""

import re
from functools import cache
from typing import Any

from autogen_core.tools import ParametersSchema, ToolSchema
from pydantic import BaseModel

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
