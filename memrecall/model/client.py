"""The base class of model clients, their requests, and the client that works without a model.

A client implements how to answer one `Request`; everything else that AutoGen requires (streams,
usage, token estimates) is here.
"""

import asyncio
import warnings
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from autogen_core import CancellationToken
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
    SystemMessage,
)
from autogen_core.tools import BaseTool, Tool, ToolSchema
from pydantic import BaseModel

from memrecall.errors import ModelFailed, WorkerFailed
from memrecall.model.prompts import OFFLINE_FAMILY, prompt_name
from memrecall.model.protocol import message_texts
from memrecall.text_length import estimate_tokens
from memrecall.types import Language
from memrecall.workers import SMALL_TEXT, ignore_outcome, in_process

AnyTool = Tool | ToolSchema
ToolChoice = Tool | Literal["auto", "required", "none"]
JsonOutput = bool | type[BaseModel] | None
Part = str | CreateResult

# The assumed context size: servers do not report what their model reads.
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

    async def load(self) -> None:
        """Import what the first call needs, also of a wrapped client."""
        if isinstance(inner := getattr(self, "_inner", None), BaseClient):
            await inner.load()

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


PromptRule = Callable[[Language, Sequence[LLMMessage]], str]
"""What answers a prompt without a model, from its language and the messages after it."""


class RuleClient(BaseClient):
    """A client that answers each prompt by its rule, deterministically."""

    def __init__(self, rules: Mapping[str, PromptRule]) -> None:
        super().__init__(OFFLINE_FAMILY, text_model_info(OFFLINE_FAMILY))
        self._rules = dict(rules)

    async def _answer(self, request: Request) -> CreateResult:
        check_token(request.token)
        prompt, language, messages = _read_prompt(request.messages)
        rule = self._rules.get(prompt)
        if rule is None:
            names = ", ".join(sorted(self._rules)) or "none"
            raise ModelFailed(
                f"the offline client has no rule for the prompt {prompt!r}",
                kind="refused",
                hint=f"There are rules for: {names}. Set a model to use this prompt",
            )
        texts = (text for message in request.messages for text in message_texts(message))
        length = sum(map(len, texts))
        work = in_process(length, rule, language, messages)
        try:
            # Most texts are short, and a task costs as much as reading them.
            is_short = length <= SMALL_TEXT
            answer = await (work if is_short else run_cancellable(request.token, work))
        except WorkerFailed as error:
            raise ModelFailed(
                f"the rules failed with {length:,} characters: {error}",
                kind="timeout",
                hint="Pass fewer or shorter messages",
            ) from error
        return CreateResult(
            finish_reason="stop", content=answer, usage=RequestUsage(0, 0), cached=False
        )


class SchemaTool(BaseTool[Any, Any]):
    """A tool by its schema alone: a request can name it, but it does not run by itself."""

    def __init__(
        self, schema: ToolSchema, arguments: type[BaseModel], result: type[BaseModel]
    ) -> None:
        super().__init__(arguments, result, schema["name"], schema.get("description", ""))
        self._schema = schema

    @property
    def schema(self) -> ToolSchema:
        """The schema for the model."""
        return self._schema

    async def run(self, args: Any, cancellation_token: CancellationToken) -> Any:
        """Refuse to run: a call needs the context of an interface."""
        raise NotImplementedError(f"{self.name} only names a tool; the recall loop runs it")


async def run_cancellable(token: CancellationToken | None, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; cancelling the token cancels it like a task."""
    if token is None:
        return await work
    task = asyncio.ensure_future(work)
    token.link_future(task)
    task.add_done_callback(ignore_outcome)  # a cancelled caller does not wait for it
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


def _read_prompt(
    messages: Sequence[LLMMessage],
) -> tuple[str, Language, tuple[LLMMessage, ...]]:
    """Return the name and language of the prompt in the messages, and the other messages."""
    for message in messages:
        if isinstance(message, SystemMessage) and (known := prompt_name(message.content)):
            return *known, tuple(other for other in messages if other is not message)
    raise ModelFailed(
        "the request has no prompt that the offline client knows",
        kind="refused",
        hint="Send a prompt of memrecall, unchanged, as the system message, or set a model",
    )
