"""AutoGen's messages as OpenAI's API writes them, and its answers as AutoGen's results. Pure."""

import json
from collections.abc import Sequence
from typing import Any, cast

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FinishReasons,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel, Field

from memrecall.errors import InvalidArgument
from memrecall.model.client import AnyTool, JsonOutput, Request, count_tool_calls, tool_schema

THINK, THOUGHT_ENDS = "<think>", "</think>"
FINISH_REASONS: dict[str, FinishReasons] = {
    "stop": "stop",
    "end_turn": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_calls": "function_calls",
    "function_call": "function_calls",
}
# What servers say when they stop in the middle: DeepSeek under load, vLLM and SGLang on an error.
INTERRUPTIONS = frozenset({"insufficient_system_resource", "abort", "error"})


class _Function(BaseModel):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class WireCall(BaseModel):
    """A tool call in an answer, or a piece of one in a stream."""

    index: int | None = None
    id: str | None = None
    function: _Function = Field(default_factory=_Function)


class WireMessage(BaseModel):
    """The message of an answer, or what a chunk adds to it.

    Reasoning has two names: DeepSeek's and the one of newer vLLM and Ollama.
    """

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[WireCall] | None = None


class _Choice(BaseModel):
    message: WireMessage = Field(default_factory=WireMessage)
    delta: WireMessage = Field(default_factory=WireMessage)
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class WireAnswer(BaseModel):
    """An answer, or one chunk of a stream."""

    choices: list[_Choice]
    usage: _Usage | None = None


class AnswerCollector:
    """An answer as it comes together, from one piece or from many."""

    def __init__(self, earlier_calls: int) -> None:
        self.text = ""
        self.reasoning = ""
        self._finish: str | None = None
        self._usage: _Usage | None = None
        self._calls: dict[int, FunctionCall] = {}
        self._earlier = earlier_calls

    @property
    def is_broken_off(self) -> bool:
        """Whether a stream ended before its answer did: nothing said that it was complete."""
        if self._finish is None:
            return self._usage is None
        return self._finish in INTERRUPTIONS

    def add(self, answer: WireAnswer) -> str:
        """Take in a piece; return the text that it brought."""
        self._usage = answer.usage or self._usage
        if not answer.choices:
            return ""
        choice = answer.choices[0]
        self._finish = choice.finish_reason or self._finish
        brought = ""
        for message in (choice.message, choice.delta):
            brought += message.content or ""
            self.reasoning += message.reasoning_content or message.reasoning or ""
            for place, call in enumerate(message.tool_calls or ()):
                self._add_call(place if call.index is None else call.index, call)
        self.text += brought
        return brought

    def _add_call(self, place: int, piece: WireCall) -> None:
        call = self._calls.setdefault(place, FunctionCall(id="", name="", arguments=""))
        call.id = call.id or piece.id or ""
        call.name += piece.function.name or ""
        arguments = piece.function.arguments or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call.arguments += arguments

    def result(self) -> CreateResult:
        """The whole answer. What was said beside calls, or reasoned, is its thought."""
        calls = [self._calls[place] for place in sorted(self._calls)]
        for number, call in enumerate(calls, self._earlier + 1):
            call.id = call.id or f"call_{number}"
        text, thoughts = self.text, [self.reasoning]
        if not self.reasoning:
            thought, text = split_thought(text)
            thoughts.append(thought)
        if calls:
            thoughts.append(text.strip())
        finish = FINISH_REASONS.get(self._finish or "", "unknown")
        used = self._usage or _Usage()
        return CreateResult(
            finish_reason="function_calls" if calls else finish,
            content=calls or text,
            usage=RequestUsage(used.prompt_tokens or 0, used.completion_tokens or 0),
            cached=False,
            thought="\n\n".join(filter(None, thoughts)) or None,
        )


def split_thought(text: str) -> tuple[str, str]:
    """Part a text that begins with its reasoning, as local models write it, from the reasoning."""
    stripped = text.lstrip()
    if not stripped.startswith(THINK):
        return "", text
    thought, _, rest = stripped[len(THINK) :].partition(THOUGHT_ENDS)
    return thought.strip(), rest.lstrip()


def write_request(request: Request, *, reasons: bool) -> dict[str, Any]:
    """The body of a request, without the model's name.

    `reasons` sends thoughts back in the field in which a reasoning model gave them.
    """
    body: dict[str, Any] = {"messages": write_messages(request.messages, reasons=reasons)}
    if request.tools:
        body["tools"] = [_write_tool(tool) for tool in request.tools]
        body["tool_choice"] = (
            request.tool_choice
            if request.forced is None
            else {"type": "function", "function": {"name": request.tool_choice}}
        )
    if request.json_output is not None:
        body["response_format"] = _write_format(request.json_output)
    return body | dict(request.options or {})


def write_messages(messages: Sequence[LLMMessage], *, reasons: bool) -> list[dict[str, Any]]:
    """The conversation with one system message at most: many servers accept only one.

    Those at the beginning are joined; a later one keeps its place as a user's message.
    """
    count = next(
        (i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages)
    )
    system = "\n\n".join(cast(str, message.content) for message in messages[:count])
    written = [{"role": "system", "content": system}] if count else []
    for message in messages[count:]:
        written += _write_message(message, reasons)
    return written


def _write_message(message: LLMMessage, reasons: bool) -> list[dict[str, Any]]:
    match message:
        case FunctionExecutionResultMessage():
            return [
                {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
                for result in message.content
            ]
        case AssistantMessage():
            return [_write_assistant(message, reasons)]
        case SystemMessage() | UserMessage():
            return [{"role": "user", "content": _text_only(message.content)}]


def _write_assistant(message: AssistantMessage, reasons: bool) -> dict[str, Any]:
    written: dict[str, Any]
    if isinstance(message.content, str):
        written = {"role": "assistant", "content": message.content}
        # Once a turn has calls in it, DeepSeek's thinking mode wants the field in every answer.
        return {**written, "reasoning_content": message.thought or ""} if reasons else written
    written = {"role": "assistant", "content": None}
    if reasons:
        written["reasoning_content"] = message.thought or ""
    elif message.thought:
        written["content"] = message.thought
    written["tool_calls"] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.content
    ]
    return written


def _text_only(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = cast(list[object], content)
    if not all(isinstance(part, str) for part in parts):
        raise InvalidArgument("a message holds an image", hint="Send text: models get no images")
    return "\n".join(cast(list[str], parts))


def _write_tool(tool: AnyTool) -> dict[str, Any]:
    schema = tool_schema(tool)
    function = {
        "name": schema["name"],
        "description": schema.get("description", ""),
        "parameters": schema.get("parameters", {"type": "object", "properties": {}}),
    }
    return {"type": "function", "function": function}


def _write_format(json_output: JsonOutput) -> dict[str, Any]:
    if isinstance(json_output, bool) or json_output is None:
        return {"type": "json_object" if json_output else "text"}
    schema = {"name": json_output.__name__, "schema": json_output.model_json_schema()}
    return {"type": "json_schema", "json_schema": schema}


def start_answer(request: Request) -> AnswerCollector:
    """An empty answer to that request."""
    return AnswerCollector(count_tool_calls(request.messages))
