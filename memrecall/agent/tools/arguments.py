"""The one parser of tool arguments, for clients that send JSON and for models that write it."""

import json
import re
from typing import Any

from pydantic import BaseModel, ValidationError

from memrecall.agent.phrases import say
from memrecall.agent.tools.definition import Tool
from memrecall.errors import InvalidArgument, describe_validation_problem
from memrecall.json_objects import make_storable
from memrecall.text_length import single_line
from memrecall.types import Language

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
        return model.model_validate(_name_values(tool, value))
    except ValidationError as error:
        if not lenient:
            raise InvalidArgument(_describe(error, model, language)) from None
        raise _invalid(tool.name, _describe(error, model, language), language) from None


def _name_values(tool: Tool, value: object) -> Any:
    """Return positional values by the names of the arguments, other values as they are."""
    if not isinstance(value, list):
        return value or {}
    names = list(tool.arguments.model_fields)
    if len(value) > len(names):
        raise InvalidArgument(f"{tool.name} takes up to {len(names)} parameters, not {len(value)}")
    return dict(zip(names, value, strict=False))


def _load_object(tool: str, value: object, language: Language) -> dict[str, Any]:
    for _ in range(2):  # an object, or a string that contains one
        if not isinstance(value, str):
            break
        try:
            value = make_storable(json.loads(value or "{}"), _LARGEST_VALUE)
        except (ValueError, RecursionError):
            break
    if not isinstance(value, dict):
        raise _invalid(tool, say(language, "not_an_object"), language)
    return value


def _repair(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return the values without absent ones, with lists and fractions where the model has them."""
    optional = {name for name, field in model.model_fields.items() if not field.is_required()}
    return {
        name: _fit(value, model, name)
        for name, value in values.items()
        if not (name in optional and _is_absent(value))
    }


def _invalid(tool: str, problem: str, language: Language) -> InvalidArgument:
    return InvalidArgument(say(language, "bad_arguments", tool=tool, problem=problem))


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT_VALUES)


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


def _describe(error: ValidationError, model: type[BaseModel], language: Language) -> str:
    """Return the first problems; an unknown name comes before what it leaves missing."""
    items = sorted(error.errors(), key=lambda item: item["type"] != _UNKNOWN)[:_MAX_PROBLEMS]
    problems = [single_line(_explain(item, model, language), _MAX_PROBLEM) for item in items]
    return "; ".join(problems)


def _explain(problem: Any, model: type[BaseModel], language: Language) -> str:
    if problem["type"] != _UNKNOWN:
        return describe_validation_problem(problem)
    name = single_line(".".join(map(str, problem["loc"])), _MAX_NAME)
    if name.lower() in _SCOPE_ARGUMENTS:
        return say(language, "scope_is_bound", name=name)
    names = ", ".join(model.model_fields) or say(language, "no_arguments")
    return say(language, "unknown_argument", name=name, names=names)
