"""Running of one tool call of the recall loop.

Typed errors become answers that a model can act on. Any other error is a bug: the model gets a
failure, the log gets the traceback, and the recall continues.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any

from pydantic import BaseModel

from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import render
from memrecall.agent.state import RecallState, ToolRun
from memrecall.agent.tools import SEARCH
from memrecall.agent.tools.arguments import parse_arguments
from memrecall.agent.tools.definition import Interface, Tool
from memrecall.agent.tools.models import ToolErrorCode, ToolFailure
from memrecall.agent.tools.table import TOOLS, find_tool, tools_for
from memrecall.agent.trace_events import TextEvent, TraceEvent
from memrecall.errors import (
    CallerError,
    Disabled,
    EmbedderFailed,
    InvalidArgument,
    MemrecallError,
    NotFound,
    StorageError,
)
from memrecall.model import protocol
from memrecall.text.leaks import Leak, filter_leaks
from memrecall.timing.deadlines import deadline, seconds_left
from memrecall.types import Language

_log = logging.getLogger(__name__)

TOOL_SECONDS = 20.0
_MAX_TRACED_ITEMS = 100
_LOAD_SECONDS = 120.0  # for a local model, without a deadline
# functions.x, mcp__server__x, call=x, x:0 and x<|channel|>commentary all mean x.
_PART_END = re.compile(r"__|[^\w-]")
_SUFFIX = re.compile(r"(?:<\||\(|\s).*$", re.DOTALL)
_NO_LETTERS = re.compile(r"[\W\d_]+")
_NAMES = {name.replace("_", ""): name for name in TOOLS}
# Failures that say nothing about what is stored; other codes only refuse one call.
_FAILURE_CODES = frozenset({ToolErrorCode.STORAGE, ToolErrorCode.TIMEOUT, ToolErrorCode.INTERNAL})


def normalize_tool_name(name: str) -> str:
    """Return the name of the tool that a model means, by its letters; an unknown one as it is."""
    plain = _SUFFIX.sub("", name.strip())
    parts = (plain, *reversed(_PART_END.split(plain)))
    letters = (_NO_LETTERS.sub("", part).lower() for part in parts)
    return next((_NAMES[part] for part in letters if part in _NAMES), plain)


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
# Codes whose phrase, of the same name, says what to do next.
_EXPLAINED_CODES = frozenset(
    {ToolErrorCode.NO_PERMISSION, ToolErrorCode.EMBEDDER, ToolErrorCode.STORAGE}
)


async def run_tool(
    state: RecallState, call: protocol.FunctionCall, seconds: float = TOOL_SECONDS
) -> ToolRun:
    """Run a call; nothing but a cancellation escapes."""
    name = normalize_tool_name(call.name)
    started = time.monotonic()
    state.calls += 1
    fields: dict[str, Any] = {}
    output: BaseModel
    try:
        tool = require_tool(name, Interface.RECALL, state.language)
        arguments = parse_arguments(tool, call.arguments, lenient=True, language=state.language)
        fields = _arguments_for_trace(arguments)
        if name == SEARCH:
            async with asyncio.timeout(seconds_left(_LOAD_SECONDS)):
                await state.library.engine.load_embedder()  # once a process, not part of a search
        else:
            state.consecutive_searches = 0
        with deadline(seconds):
            async with asyncio.timeout(seconds):
                output = await _run_with_retry(state, tool, arguments)
    except (MemrecallError, TimeoutError) as error:
        output = _failure(state, name, error, seconds)
    except Exception as error:  # a bug in memrecall must not end the parent's run
        _log.exception("the tool %s failed", name)
        problem = type(error).__name__
        output = ToolFailure(
            error=ToolErrorCode.INTERNAL, message=state.say("internal", tool=name, problem=problem)
        )
    if isinstance(output, ToolFailure) and output.error in _FAILURE_CODES:
        state.failures.append(output.error)
    return ToolRun(name, fields, output, render(output, state.language), time.monotonic() - started)


def _arguments_for_trace(arguments: BaseModel) -> dict[str, Any]:
    """Return the validated arguments; a model can list more items than a trace should hold."""
    fields = arguments.model_dump(mode="json", exclude_none=True)
    return {
        name: value[:_MAX_TRACED_ITEMS] if isinstance(value, list) else value
        for name, value in fields.items()
    }


async def _run_with_retry(state: RecallState, tool: Tool, arguments: BaseModel) -> BaseModel:
    try:
        return await tool.run(state, arguments)
    except StorageError:
        return await tool.run(state, arguments)


def _failure(
    state: RecallState, tool: str, error: MemrecallError | TimeoutError, seconds: float
) -> ToolFailure:
    code = error_code(error)
    if isinstance(error, TimeoutError):
        message = state.say("timeout", tool=tool, seconds=seconds)
    elif code in _EXPLAINED_CODES:
        message = state.say(code, problem=error.message)
    else:
        message = str(error)
    return ToolFailure(error=code, message=message)


def error_code(error: MemrecallError | TimeoutError) -> ToolErrorCode:
    """Return the code of a failed call; an error of no other kind is one of the database."""
    codes = (code for kind, code in _ERROR_CODES if isinstance(error, kind))
    return next(codes, ToolErrorCode.STORAGE)


def has_leaked_call(text: str, model: str) -> bool:
    """Return True, and log it, if a model wrote a tool call as text.

    Such a call is never run: the text may quote a message or a memory.
    """
    leaks = _find_leaks(text)
    for leak in leaks:
        name = leak.name if leak.name and find_tool(leak.name, Interface.RECALL) else "a tool"
        _log.error("%s wrote a call of %s as text (%s); it was not run", model, name, leak.family)
    return bool(leaks)


def leaked_families(event: TraceEvent) -> list[str]:
    """Return the model families of the tool calls that an event contains as text."""
    if not isinstance(event, TextEvent):
        return []
    return [leak.family for leak in _find_leaks(event.text)]


def _find_leaks(text: str) -> list[Leak]:
    return filter_leaks(text, tools_for(Interface.RECALL), reasoning="strip").leaks
