"""The base class of model clients, requests and failures.

A client implements how to answer one `Request`; everything else that AutoGen requires (streams,
usage, token estimates) is here.
"""

import asyncio
import re
import warnings
from abc import abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import BaseModel

from memrecall.errors import ModelFailed, ModelFailure
from memrecall.text_length import estimate_tokens

# The order matters: quota messages mention tokens too and are not an overflow.
_QUOTA = re.compile(r"insufficient|quota|balance|billing|credit|exceeded your (current|monthly)")
_RATE_LIMIT = re.compile(
    r"rate.?limit|too many requests|(tokens|requests) per (min|second|hour|day)"
)
_OVERFLOW = re.compile(
    r"context.?(length|window|size)|maximum context|exceed_context|string_above_max_length"
    r"|(prompt|input|request) is too (long|large)|too many (input )?tokens"
    r"|(reduce|exceeds?).{0,40}tokens"
)
_TOOLS = re.compile(r"\btools?\b|tool.?(choice|call|use)|function.?call")
_UNSUPPORTED = re.compile(
    r"not.{0,12}(support|implement|permit|allow|enable|available)|unsupported|incompatible"
    r"|requires?\b|no endpoints|unknown|unrecogni[sz]ed|unexpected|--jinja|cannot|can't"
)
_NO_TOOLS_STATUS = (400, 404, 405, 422, 500, 501)

_HINTS: dict[ModelFailure, str] = {
    "unreachable": "Check MEMRECALL_BASE_URL and whether the server runs",
    "timeout": "Raise MEMRECALL_MODEL_TIMEOUT or use a faster model",
    "rate_limited": "Try again later",
    "quota": "The account has no quota left: check its billing",
    "authentication": "Check MEMRECALL_API_KEY",
    "overflow": "Send less, or use a model that reads more",
    "no_tools": "Set MEMRECALL_TOOL_CALLS=json, or use a model that calls tools",
    "refused": "Check MEMRECALL_MODEL and MEMRECALL_BASE_URL",
    "malformed": "Check that MEMRECALL_BASE_URL speaks OpenAI's API",
}


def classify_failure(status: int, message: str) -> ModelFailure:
    """Return the kind of a failure from the HTTP status and the server's message."""
    words = message.lower()
    if status in (401, 403):
        return "authentication"
    if status == 402 or (400 <= status < 500 and _QUOTA.search(words)):
        return "quota"
    if status == 429 or (status < 500 and _RATE_LIMIT.search(words)):
        return "rate_limited"
    if status in (408, 504):
        return "timeout"
    if status == 413 or _OVERFLOW.search(words):
        return "overflow"
    if status in _NO_TOOLS_STATUS and _TOOLS.search(words) and _UNSUPPORTED.search(words):
        return "no_tools"
    return "unreachable" if status >= 500 else "refused"


def refuses_option(status: int, message: str) -> bool:
    """Return True if a server's message says that it does not support a part of the request."""
    return status in _NO_TOOLS_STATUS and bool(_UNSUPPORTED.search(message.lower()))


def make_failure(kind: ModelFailure, message: str) -> ModelFailed:
    """Return an error of a kind, with its hint."""
    return ModelFailed(message, kind=kind, hint=_HINTS[kind])


def to_model_failure(error: Exception) -> ModelFailed:
    """Return the failure for an exception of another client, without its message.

    Clients based on OpenAI's library expose the HTTP status of the server.
    """
    status = getattr(error, "status_code", None)
    kind = classify_failure(status, str(error)) if isinstance(status, int) else "malformed"
    return ModelFailed(f"the model's client failed: {type(error).__name__}", kind=kind)


AnyTool = Tool | ToolSchema
ToolChoice = Tool | Literal["auto", "required", "none"]
JsonOutput = bool | type[BaseModel] | None
Part = str | CreateResult

# The assumed context size: servers do not report that of their model.
CONTEXT_TOKENS = 128_000
T = TypeVar("T")


def text_model_info(
    family: str = ModelFamily.UNKNOWN, *, structured_output: bool = False
) -> ModelInfo:
    """Return the description of a model that reads text and calls tools."""
    return ModelInfo(
        vision=False,
        function_calling=True,
        json_output=True,
        family=family,
        structured_output=structured_output,
        multiple_system_messages=True,
    )


@dataclass(frozen=True, slots=True)
class Request:
    """One model call.

    `tool_choice` is "auto", "required", "none" or, with `forced` set, the name of that tool;
    `options` are the caller's `extra_create_args`.
    """

    messages: tuple[LLMMessage, ...]
    tools: tuple[AnyTool, ...] = ()
    tool_choice: str = "auto"
    json_output: JsonOutput = None
    options: Mapping[str, Any] | None = None
    forced: Tool | None = None
    token: CancellationToken | None = None

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the available tools."""
        return tuple(tool_name(tool) for tool in self.tools)

    def arguments(self) -> dict[str, Any]:
        """Return the request as keyword arguments for another client's `create`."""
        return {
            "tools": self.tools,
            "tool_choice": self.forced or self.tool_choice,
            "json_output": self.json_output,
            "extra_create_args": self.options or {},
            "cancellation_token": self.token,
        }


class CreateArguments(TypedDict, total=False):
    """The keyword arguments of `create` and `create_stream`, as AutoGen defines them."""

    tools: Sequence[AnyTool]
    tool_choice: ToolChoice
    json_output: JsonOutput
    extra_create_args: Mapping[str, Any] | None
    cancellation_token: CancellationToken | None


class BaseClient(ChatCompletionClient):
    """A client whose subclasses implement `_answer`, and `_stream` if they can."""

    def __init__(self, model: str, info: ModelInfo) -> None:
        self.model = model
        self._info = info
        self._prompt_tokens = 0
        self._completion_tokens = 0

    @abstractmethod
    async def _answer(self, request: Request) -> CreateResult:
        """Answer one request."""

    async def _stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """Yield the parts of the answer: by default the whole text, then the result."""
        result = await self._answer(request)
        if isinstance(result.content, str) and result.content:
            yield result.content
        yield result

    async def create(
        self, messages: Sequence[LLMMessage], **arguments: Unpack[CreateArguments]
    ) -> CreateResult:
        """Return the answer of the model."""
        result = await self._answer(_make_request(messages, arguments))
        self._count(result.usage)
        return result

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Unpack[CreateArguments]
    ) -> AsyncGenerator[Part, None]:
        """Yield the text of the answer as it arrives, then the result."""
        async with aclosing(self._stream(_make_request(messages, arguments))) as parts:
            async for part in parts:
                if isinstance(part, CreateResult):
                    self._count(part.usage)
                yield part

    async def close(self) -> None:
        """Release resources; the base class has none."""

    def actual_usage(self) -> RequestUsage:
        """Return the tokens of all calls so far, as counted by the server."""
        return RequestUsage(self._prompt_tokens, self._completion_tokens)

    def total_usage(self) -> RequestUsage:
        """Return the tokens of all calls so far, as counted by the server."""
        return self.actual_usage()

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[AnyTool] = ()) -> int:
        """Return an estimate of a request's tokens, without downloading a tokenizer."""
        texts = [text for message in messages for text in message_texts(message)]
        texts += [str(tool_schema(tool)) for tool in tools]
        return sum(map(estimate_tokens, texts)) + 4 * len(messages)

    def remaining_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[AnyTool] = ()
    ) -> int:
        """Return an estimate of the tokens left in a context of `CONTEXT_TOKENS`."""
        return CONTEXT_TOKENS - self.count_tokens(messages, tools=tools)

    @property
    def capabilities(self) -> Any:
        """The deprecated AutoGen name of `model_info`."""
        warnings.warn("capabilities is deprecated, use model_info", DeprecationWarning, 2)
        return self._info

    @property
    def model_info(self) -> ModelInfo:
        """The capabilities of the model."""
        return self._info

    def _count(self, usage: RequestUsage) -> None:
        self._prompt_tokens += usage.prompt_tokens
        self._completion_tokens += usage.completion_tokens


async def run_cancellable(token: CancellationToken | None, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; cancelling the token cancels it like a task."""
    if token is None:
        return await work
    task = asyncio.ensure_future(work)
    token.link_future(task)
    return await task


def check_token(token: CancellationToken | None) -> None:
    """Raise CancelledError if the token is cancelled."""
    if token is not None and token.is_cancelled():
        raise asyncio.CancelledError


def tool_name(tool: AnyTool) -> str:
    """Return the name of a tool."""
    return tool["name"] if isinstance(tool, dict) else tool.name


def tool_schema(tool: AnyTool) -> ToolSchema:
    """Return the schema of a tool; AutoGen computes it on each call, so keep it."""
    return tool if isinstance(tool, dict) else tool.schema


def count_tool_calls(messages: Sequence[LLMMessage]) -> int:
    """Return the number of tool calls in the messages."""
    return sum(
        len(message.content)
        for message in messages
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str)
    )


def message_texts(message: LLMMessage) -> list[str]:
    """Return the texts of a message of any kind, without images."""
    if isinstance(message.content, str):
        return [message.content]
    return [text for item in message.content if (text := _item_text(item))]


def _item_text(item: object) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, FunctionCall):
        return f"{item.name} {item.arguments}"
    return str(getattr(item, "content", ""))


def _make_request(messages: Sequence[LLMMessage], arguments: CreateArguments) -> Request:
    if unknown := arguments.keys() - CreateArguments.__annotations__.keys():
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(unknown))}")
    choice = arguments.get("tool_choice", "auto")
    return Request(
        messages=tuple(messages),
        tools=tuple(arguments.get("tools", ())),
        tool_choice=choice if isinstance(choice, str) else choice.name,
        json_output=arguments.get("json_output"),
        options=dict(arguments.get("extra_create_args") or {}) or None,
        forced=None if isinstance(choice, str) else choice,
        token=arguments.get("cancellation_token"),
    )
