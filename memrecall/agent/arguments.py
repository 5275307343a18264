"""What a model wrote as a call, read with good will: models leave traces of their templates."""

import json
import re
from typing import Any

from pydantic import BaseModel, ValidationError

from memrecall.agent.phrases import say
from memrecall.errors import InvalidArgument
from memrecall.model.prompts import Language

# functions.x, call=x, tool:x and x<|channel|>commentary all mean x.
_PREFIX = re.compile(r"^(?:functions?|tools?|call|name)[.:=/]\s*", re.IGNORECASE)
_SUFFIX = re.compile(r"(?:<\||\(|\s).*$", re.DOTALL)
_ABSENT = frozenset({"null", "none", "undefined", ""})
_SCOPE = frozenset({"user_id", "user", "agent_id", "session_id", "scope", "owner", "tenant_id"})
_TOLD = 3


def tool_name(written: str) -> str:
    """The name of a tool without what a template left around it."""
    return _SUFFIX.sub("", _PREFIX.sub("", written.strip())).strip("`'\" ")


def read_arguments(
    tool: str, written: str, model: type[BaseModel], language: Language
) -> BaseModel:
    """The arguments as the tool's model; what cannot be read is an error that says how to mend it.

    "null", "None" and "" count as absent; JSON inside a string is unwrapped; one word where a list
    is wanted is a list of one.
    """
    given = _load(tool, written, language)
    optional = {name for name, field in model.model_fields.items() if not field.is_required()}
    kept = {
        name: _listed(value, model, name)
        for name, value in given.items()
        if not (name in optional and _is_absent(value))
    }
    try:
        return model.model_validate(kept)
    except ValidationError as error:
        problem = "; ".join(_tell(fault, language) for fault in error.errors()[:_TOLD])
        raise _bad(tool, problem, language) from None


def _load(tool: str, written: str, language: Language) -> dict[str, Any]:
    value: Any = written
    for _ in range(2):  # an object, or a string that holds one
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError):
            break
    if not isinstance(value, dict):
        raise _bad(tool, say(language, "not_an_object"), language)
    return value


def _bad(tool: str, problem: str, language: Language) -> InvalidArgument:
    return InvalidArgument(say(language, "bad_arguments", tool=tool, problem=problem))


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT)


def _listed(value: Any, model: type[BaseModel], name: str) -> Any:
    field = model.model_fields.get(name)
    if field is None or not isinstance(value, str) or "list[" not in str(field.annotation).lower():
        return value
    try:
        inner = json.loads(value)
    except (ValueError, RecursionError):
        return [value]
    return inner if isinstance(inner, list) else [value]


def _tell(fault: Any, language: Language) -> str:
    name = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        phrase = "scope_is_bound" if name.lower() in _SCOPE else "unknown_argument"
        return say(language, phrase, name=name)
    return f"{name}: {fault['msg']}"
