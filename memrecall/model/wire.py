"""Conversion between AutoGen's messages and OpenAI's API, without I/O of its own."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Annotated, Any, Literal, cast

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
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from memrecall.errors import InvalidArgument
from memrecall.model.client import AnyTool, JsonOutput, Request, tool_schema
from memrecall.model.failures import read_error

_REASONING_START, _REASONING_END = "<think>", "</think>"
STREAM_END = b"[DONE]"
_EVENT_END = re.compile(rb"\r?\n\r?\n")
_EVENT_DATA = re.compile(rb"^data: ?(.*?)\r?$", re.MULTILINE)
_MOST_TOKENS = 10**9  # of one call that a server can report
# What the reasons of all providers mean, in lower case.
_FINISH_REASONS: dict[str, FinishReasons | Literal["interrupted"]] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "eos"), "stop"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "function_calls"),
    **dict.fromkeys(("length", "max_tokens", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("content_filter", "refusal", "sensitive", "safety"), "content_filter"),
    **dict.fromkeys(
        ("error", "abort", "network_error", "insufficient_system_resource"), "interrupted"
    ),
}


class _Function(BaseModel):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class WireCall(BaseModel):
    """A tool call in an answer, or a piece of one in a stream."""

    index: int | None = None
    id: str | None = None
    function: _Function = Field(default_factory=_Function)


class WireMessage(BaseModel):
    """The message of an answer, or the delta of a chunk.

    Reasoning has two names: that of DeepSeek, and that of newer vLLM and Ollama.
    """

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[WireCall] | None = None

    @model_validator(mode="before")
    @classmethod
    def _join_content(cls, value: Any) -> Any:
        """Join a content that is a list of parts; thoughts and images are no text."""
        if not isinstance(value, dict) or not isinstance(value.get("content"), list):
            return value
        texts = {"content": "", "refusal": value.get("refusal") or ""}
        for part in value["content"]:
            fields = part if isinstance(part, dict) else {"text": part}
            for name, kind in (("content", "text"), ("refusal", "refusal")):
                texts[name] += fields[kind] if isinstance(fields.get(kind), str) else ""
        return value | texts


class _Choice(BaseModel):
    message: WireMessage = Field(default_factory=WireMessage)
    delta: WireMessage = Field(default_factory=WireMessage)
    finish_reason: str | None = None
    error: Any = None  # OpenRouter: why the provider interrupted the answer


def _parse_tokens(value: Any) -> int:
    """Return a number of tokens; what a server reports must not make its answer unusable."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0
    return int(number) if 0 < number < _MOST_TOKENS else 0


_Tokens = Annotated[int, BeforeValidator(_parse_tokens)]


class _Usage(BaseModel):
    prompt_tokens: _Tokens = 0
    completion_tokens: _Tokens = 0


class WireAnswer(BaseModel):
    """An answer, or one chunk of a stream; `error` if a server reports one with status 200."""

    choices: Annotated[list[_Choice], BeforeValidator(lambda value: value or [])] = []
    usage: _Usage | None = None
    error: Any = None

    @model_validator(mode="before")
    @classmethod
    def _find_error(cls, value: Any) -> Any:
        """Set `error` for an answer without choices that is an error in a provider's own form."""
        if isinstance(value, dict) and value.get("choices"):
            return value
        code, message = read_error(value)
        is_error = message and code.lower() not in ("0", "200", "ok", "success")
        return {"error": {"code": code, "message": message}} if is_error else value


class AnswerCollector:
    """The answer to a request, assembled from one or many pieces."""

    def __init__(self, request: Request) -> None:
        self.text = ""
        self.reasoning = ""
        self.error: Any = None
        self.is_interrupted = False  # by an error of the server
        self.is_done = False  # whether a stream has sent its end marker
        self._refusal = ""
        self._finish: FinishReasons | None = None
        self._usage: _Usage | None = None
        self._calls: dict[int, FunctionCall] = {}
        self._earlier_calls = sum(
            len(message.content)
            for message in request.messages
            if isinstance(message, AssistantMessage) and not isinstance(message.content, str)
        )

    @property
    def is_cut(self) -> bool:
        """Whether a stream ended before its answer was complete."""
        has_content = bool(self.text or self._calls or self._refusal)
        return self._finish is None and self._usage is None and not (self.is_done and has_content)

    def add(self, answer: WireAnswer) -> str:
        """Add a piece, and return its text."""
        self._usage = answer.usage or self._usage
        choice = answer.choices[0] if answer.choices else _Choice()
        self.error = choice.error or answer.error or self.error
        meaning = _FINISH_REASONS.get((choice.finish_reason or "").lower(), "unknown")
        if self.error or meaning == "interrupted":
            self.is_interrupted = True
        elif choice.finish_reason:
            self._finish = meaning
        text = ""
        for message in (choice.message, choice.delta):
            text += message.content or ""
            self.reasoning += message.reasoning_content or message.reasoning or ""
            self._refusal += message.refusal or ""
            for index, call in enumerate(message.tool_calls or ()):
                self._add_call(index if call.index is None else call.index, call)
        self.text += text
        return text

    def _add_call(self, index: int, piece: WireCall) -> None:
        call = self._calls.setdefault(index, FunctionCall(id="", name="", arguments=""))
        call.id = call.id or piece.id or ""
        name = piece.function.name or ""
        # Some servers repeat the name in every piece instead of sending it once or in parts.
        call.name = name if name.startswith(call.name) else call.name + name
        arguments = piece.function.arguments or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call.arguments += arguments

    def result(self) -> CreateResult:
        """Return the whole answer; reasoning and text next to calls become its thought."""
        calls = [self._calls[index] for index in sorted(self._calls)]
        for number, call in enumerate(calls, self._earlier_calls + 1):
            call.id = call.id or f"call_{number}"
        text, thoughts = self.text, [self.reasoning]
        if not self.reasoning:
            thought, text = _split_thought(text)
            thoughts.append(thought)
        if calls:
            thoughts.append(text.strip())
        usage = self._usage or _Usage()
        return CreateResult(
            finish_reason=self._finish_reason(bool(calls)),
            content=calls or text or self._refusal,
            usage=RequestUsage(usage.prompt_tokens, usage.completion_tokens),
            cached=False,
            thought="\n\n".join(filter(None, thoughts)) or None,
        )

    def _finish_reason(self, has_calls: bool) -> FinishReasons:
        """Return the reason; a refusal without calls counts as filtered."""
        if has_calls:
            return "length" if self._finish == "length" else "function_calls"
        if self._refusal:
            return "content_filter"
        return self._finish or ("stop" if self.is_done else "unknown")


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the data of the events of a stream; a whole event can be JSON, as errors often are."""
    rest = b""
    async for chunk in chunks:
        *events, rest = _EVENT_END.split(rest + chunk)
        for event in events:
            if data := _event_data(event):
                yield data
    if (data := _event_data(rest)) and data in (rest, STREAM_END):  # else the event is cut
        yield data


def _event_data(event: bytes) -> bytes:
    is_json = event.lstrip().startswith((b"{", b"[{"))
    return event if is_json else b"\n".join(_EVENT_DATA.findall(event))


def _split_thought(text: str) -> tuple[str, str]:
    """Return the reasoning at the start of a text, as local models write it, and the rest.

    If the prompt has opened the reasoning, the text has only its end, on a line of its own.
    """
    stripped = text.lstrip()
    is_open = stripped.startswith(_REASONING_START)
    thought, end, rest = stripped.removeprefix(_REASONING_START).partition(_REASONING_END)
    is_line_end = bool(end) and (thought.endswith("\n") or rest.startswith("\n"))
    if not is_open and (not is_line_end or _REASONING_START in thought):
        return "", text
    return thought.strip(), rest.lstrip()


def write_request(request: Request, *, send_reasoning: bool) -> dict[str, Any]:
    """Return the body of a request, without the model's name.

    `send_reasoning` sends reasoning back in the field in which the model returned it.
    """
    body: dict[str, Any] = {"messages": _write_messages(request.messages, send_reasoning)}
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


def _write_messages(messages: Sequence[LLMMessage], send_reasoning: bool) -> list[dict[str, Any]]:
    """Return the messages with at most one system message: many servers accept only one.

    Those at the start are joined; later ones become user messages.
    """
    count = next(
        (i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages)
    )
    system = "\n\n".join(cast(str, message.content) for message in messages[:count])
    result = [{"role": "system", "content": system}] if count else []
    for message in messages[count:]:
        result += _write_message(message, send_reasoning)
    return result


def _write_message(message: LLMMessage, send_reasoning: bool) -> list[dict[str, Any]]:
    match message:
        case FunctionExecutionResultMessage():
            return [
                {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
                for result in message.content
            ]
        case AssistantMessage():
            return [_write_assistant(message, send_reasoning)]
        case SystemMessage() | UserMessage():
            return [{"role": "user", "content": _text_only(message.content)}]


def _write_assistant(message: AssistantMessage, send_reasoning: bool) -> dict[str, Any]:
    is_text = isinstance(message.content, str)
    fields: dict[str, Any] = {"role": "assistant", "content": message.content if is_text else None}
    if send_reasoning:
        # DeepSeek's thinking mode requires the field in all answers of a turn with calls.
        fields["reasoning_content"] = message.thought or ""
    if isinstance(message.content, str):
        return fields
    if message.thought and not send_reasoning:
        fields["content"] = message.thought
    fields["tool_calls"] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.content
    ]
    return fields


def _text_only(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = cast(list[object], content)
    if not all(isinstance(part, str) for part in parts):
        hint = "Send text: images are unsupported"
        raise InvalidArgument("a message contains an image", hint=hint)
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
