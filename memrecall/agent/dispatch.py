"""Running one tool call: named exceptions become answers that a model can act on.

One ladder serves all tools. What is not on it is a bug: the model is told that the tool failed, the
log gets the traceback, and the run goes on.
"""

import asyncio
import json
import logging
import re
import time
from dataclasses import dataclass
from typing import Any

from autogen_core import FunctionCall
from pydantic import BaseModel, ValidationError

from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import render
from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import ToolFailure
from memrecall.agent.tools.table import MEMRECALL_TOOLS, ToolEntry
from memrecall.errors import (
    CallerError,
    Disabled,
    EmbedderFailed,
    InvalidArgument,
    MemrecallError,
    NotFound,
    StorageError,
)
from memrecall.model.prompts import Language
from memrecall.telemetry import trace_tool

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


_log = logging.getLogger(__name__)

TOOL_SECONDS = 20.0  # the first search of a process also loads the embedder


class _UnknownTool(NotFound):
    """A name that is not in the registry."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A call that was run: its arguments as applied, the answer, and how a model sees it."""

    tool: str
    arguments: dict[str, Any]
    output: BaseModel
    text: str
    seconds: float

    @property
    def error(self) -> str | None:
        """The code of what went wrong, if anything did."""
        code: str | None = getattr(self.output, "error", None)
        return code


async def run_tool(desk: RecallState, call: FunctionCall, seconds: float = TOOL_SECONDS) -> ToolRun:
    """Run a call at the desk. Nothing but a cancellation escapes."""
    named = tool_name(call.name)
    # A name that is not ours is what a model wrote: a text like any other.
    with trace_tool(named if named in MEMRECALL_TOOLS else "unknown", call.id) as span:
        done = await _run(desk, call, seconds)
        if done.error is not None:
            span.fail(done.error)
        return done


async def _run(desk: RecallState, call: FunctionCall, seconds: float) -> ToolRun:
    started = time.monotonic()
    tool = tool_name(call.name)
    desk.notes.calls += 1
    arguments: dict[str, Any] = {}
    output: BaseModel
    try:
        entry = _entry(desk, tool)
        given = read_arguments(tool, call.arguments, entry["input_model"], desk.language)
        arguments = given.model_dump(mode="json", exclude_none=True)
        async with asyncio.timeout(seconds):
            output = await _run_twice_on_storage(desk, entry["func"], given)
    except (MemrecallError, TimeoutError) as error:
        output = _failure(desk, tool, error, seconds)
    except Exception as error:  # a bug of ours must not end the parent's run
        _log.exception("the tool %s failed", tool)
        problem = type(error).__name__
        output = ToolFailure(
            error="internal", message=say(desk.language, "internal", tool=tool, problem=problem)
        )
    if isinstance(output, ToolFailure) and output.error in ("storage", "timeout", "internal"):
        desk.notes.failures.append(output.error)
    return ToolRun(
        tool, arguments, output, render(output, desk.language), time.monotonic() - started
    )


def _entry(desk: RecallState, tool: str) -> ToolEntry:
    if tool not in MEMRECALL_TOOLS:
        tools = ", ".join(MEMRECALL_TOOLS)
        raise _UnknownTool(say(desk.language, "unknown_tool", tool=tool, tools=tools))
    return MEMRECALL_TOOLS[tool]


async def _run_twice_on_storage(desk: RecallState, func: Any, given: BaseModel) -> BaseModel:
    """A database may fail once and recover: one more try, then it is told."""
    try:
        return await func(desk, given)  # type: ignore[no-any-return]
    except StorageError:
        return await func(desk, given)  # type: ignore[no-any-return]


def _failure(desk: RecallState, tool: str, error: Exception, seconds: float) -> ToolFailure:
    language = desk.language
    match error:
        case TimeoutError():
            message = say(language, "timeout", tool=tool, seconds=seconds)
            return ToolFailure(error="timeout", message=message)
        case Disabled():
            message = say(language, "no_permission", problem=error.message)
            return ToolFailure(error="no_permission", message=message)
        case _UnknownTool():
            return ToolFailure(error="unknown_tool", message=error.message)
        case NotFound():
            return ToolFailure(error="not_found", message=str(error))
        case InvalidArgument():
            return ToolFailure(error="invalid_arguments", message=str(error))
        case EmbedderFailed():
            message = say(language, "embedder", problem=error.message)
            return ToolFailure(error="embedder", message=message)
        case CallerError():
            return ToolFailure(error="refused", message=str(error))
    problem = error.message if isinstance(error, MemrecallError) else str(error)
    return ToolFailure(error="storage", message=say(language, "storage", problem=problem))
