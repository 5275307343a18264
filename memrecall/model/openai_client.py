"""A client for servers with OpenAI's API: DeepSeek, Ollama, vLLM, llama.cpp and others."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    FinishReasons,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from memrecall.errors import InvalidArgument, ModelFailed, RunError, describe_validation_error
from memrecall.model.client import (
    BaseClient,
    Part,
    Request,
    run_cancellable,
    text_model_info,
    tool_schema,
)
from memrecall.model.failures import (
    AcceptedOptions,
    classify_failure,
    make_failure,
    read_error,
    refuses_option,
)
from memrecall.plugins import find_plugin
from memrecall.retries import parse_retry_after, retry
from memrecall.settings import OPENAI, check_key, check_url, parse_object
from memrecall.text_length import single_line

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from memrecall.settings import Settings

_log = logging.getLogger(__name__)

_RESERVED = frozenset({"model", "messages", "tools", "tool_choice", "stream"})
_EXTRA_BODY = "extra_body"
_STREAM_TYPE = "text/event-stream"
_DRAIN_SECONDS = 0.2
_OPTIONS = '{"temperature": 0, "max_tokens": 4000}'
_QUOTED_CHARACTERS = 200  # of the message of a server
_SHORTEST_SECRET = 8  # characters of a key; masking a dummy like "k" would garble messages
_NO_KEY = "none"  # local servers need no key, but the library requires one


def make_client(settings: Settings) -> ChatCompletionClient | None:
    """Return the client of the configured model, None if no model is configured."""
    if not settings.model:
        return None
    name, divider, rest = settings.model.partition(":")
    # Model names may contain colons: only the name of an installed plugin is a prefix.
    if divider and (make := find_plugin("models", name)) is not None:
        plugin_client: ChatCompletionClient = make(rest, settings)
        return plugin_client
    return ServerClient(
        settings.model,
        base_url=settings.base_url or OPENAI,
        api_key=settings.api_key,
        timeout=settings.model_timeout,
        options=parse_object("model_options", settings.model_options, _OPTIONS),
    )


class ServerClient(BaseClient):
    """A client of a server, with up to three attempts; all failures are `ModelFailed`.

    `timeout` limits one attempt, or the wait for the next piece of a stream, in seconds. `options`
    are fields of every request, such as `temperature`; `extra_body` is merged with them,
    and so is the `extra_body` of a call's `extra_create_args`. An option that the server refuses
    is not sent again; a forced tool choice becomes "auto". Reasoning is sent back together with
    the tool calls that it led to, as DeepSeek requires. Errors quote the server, but never the key.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI,
        api_key: str = "",
        timeout: float = 60.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, text_model_info(structured_output=base_url == OPENAI))
        self._url = check_url(base_url)
        self._key = check_key(api_key)
        self._timeout = timeout
        fields = dict(options or {})
        extra = _check_extra_body(fields.pop(_EXTRA_BODY, None))
        # The fields of `extra_body` are sent among the others, as OpenAI's library does it.
        self._options = _merge(_check_reserved(fields), extra)
        self._accepted = AcceptedOptions()
        self._sends_reasoning = "deepseek" in f"{model} {base_url}".lower()
        self._server: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def refused_options(self) -> frozenset[str]:
        """The options that the server has refused, such as "tool_choice=forced"."""
        return frozenset(self._accepted.refused)

    async def load(self) -> None:
        """Import OpenAI's library, which takes a second, in a thread, and set it up."""
        if self._server is None:
            with suppress(ImportError):  # the first call reports it
                await asyncio.to_thread(import_module, "openai.resources.chat.completions")
                self._connect()

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._server is not None and self._loop is asyncio.get_running_loop():
            await self._server.close()
        self._server = None

    async def _answer(self, request: Request) -> CreateResult:
        return await run_cancellable(request.token, self._ask(request))

    async def _ask(self, request: Request) -> CreateResult:
        reply = await self._attempt(request, stream=False)
        wire_answer = self._read(reply.text)
        answer = AnswerCollector(request)
        answer.add(wire_answer)
        if answer.is_interrupted:
            raise self._interruption(answer.error)
        if not wire_answer.choices:
            raise self._malformed("has no choices")
        self._sends_reasoning = self._sends_reasoning or bool(answer.reasoning)
        return answer.result()

    async def _stream(self, request: Request) -> AsyncGenerator[Part, None]:
        reply = await run_cancellable(request.token, self._attempt(request, stream=True))
        answer = AnswerCollector(request)
        try:
            events = read_events(reply.http_response.aiter_bytes())
            while (event := await run_cancellable(request.token, self._next(events))) is not None:
                if event.startswith(STREAM_END):
                    answer.is_done = True
                    with suppress(ModelFailed, TimeoutError):  # the connection can be used again
                        async with asyncio.timeout(_DRAIN_SECONDS):
                            await self._next(events)
                    break
                if text := answer.add(self._read(event)):
                    yield text
        finally:
            await reply.http_response.aclose()
        is_stream = _STREAM_TYPE in reply.headers.get("content-type", "")
        if answer.is_cut and not answer.is_interrupted and not is_stream:
            raise self._malformed("is not a stream: the server ignores `stream`")
        if answer.is_interrupted or answer.is_cut:
            raise self._interruption(answer.error)
        self._sends_reasoning = self._sends_reasoning or bool(answer.reasoning)
        yield answer.result()

    async def _attempt(self, request: Request, *, stream: bool) -> Any:
        """Send a request, again after a transient failure or without a refused option."""
        while True:
            refused = self.refused_options
            try:
                return await retry(lambda: self._send(request, stream=stream), _is_transient)
            except ModelFailed as failure:
                if not failure.details.pop("can_adapt", False):
                    raise
                new = ", ".join(sorted(self.refused_options - refused))
                _log.warning("%s refuses %s: sent without it from now on", self.model, new)

    async def _send(self, request: Request, *, stream: bool) -> Any:
        fields = write_request(request, send_reasoning=self._sends_reasoning)
        extra = _check_extra_body(fields.pop(_EXTRA_BODY, None))
        body = _merge({**self._options, **fields}, extra)
        if stream:
            body.setdefault("stream_options", {"include_usage": True})
        body = self._accepted.adapt(body)
        completions = self._connect().chat.completions
        # The library would refuse fields that it does not know.
        fields = {"model": self.model, "messages": body.pop("messages"), _EXTRA_BODY: body}
        if stream:
            fields["stream"] = True
        async with self._guard(body):
            # The library does not validate answers, and hides how a stream ends: take the raw text.
            return await completions.with_raw_response.create(**fields)

    @asynccontextmanager
    async def _guard(self, body: Mapping[str, Any] | None = None) -> AsyncIterator[None]:
        """Apply the timeout, and convert the library's exceptions to `ModelFailed`.

        `body` has the options of a request, one of which the server may refuse.
        """
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except _library_errors() as error:
            raise self._to_failure(error, body or {}) from None

    async def _next(self, events: AsyncIterator[bytes]) -> bytes | None:
        async with self._guard():
            return await anext(events, None)

    def _connect(self) -> AsyncOpenAI:
        """Return the library's client; its connections belong to one event loop."""
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        if self._server is None or self._loop is not loop:
            self._server = AsyncOpenAI(
                api_key=self._key or _NO_KEY,
                base_url=self._url,
                timeout=self._timeout,
                max_retries=0,  # the library would wait as long as the server asks
            )
            self._loop = loop
        return self._server

    def _read(self, text: str | bytes) -> WireAnswer:
        """Parse an answer, or a chunk of one."""
        try:
            return WireAnswer.model_validate(json.loads(text))
        except ValidationError as error:
            # The message of the error would quote the answer.
            problem = describe_validation_error(error, quote_value=False)
            raise self._malformed(f"is invalid: {problem}") from None
        except ValueError:
            raise self._malformed("is not JSON") from None

    def _interruption(self, error: object) -> ModelFailed:
        """Return the failure for an answer that is an error, or ends in one, or does not end."""
        code, message = read_error(error)
        status = int(code) if re.fullmatch("[45][0-9][0-9]", code) else 0
        kind = classify_failure(status or 400, f"{code} {message}")
        if kind == "refused" and error is None:
            kind = "unreachable"
        return make_failure(kind, f"{self._where} interrupted its answer{self._quote(message)}")

    def _quote(self, message: str) -> str:
        """Return a server's message on one short line after a colon, without the key; no HTML."""
        plain = "".join(c for c in message if c.isprintable() or c.isspace())
        if len(self._key) >= _SHORTEST_SECRET:
            plain = plain.replace(self._key, "…")
        line = single_line(plain, _QUOTED_CHARACTERS)
        return f": {line}" if line and not line.startswith("<") else ""

    @property
    def _where(self) -> str:
        return f"{self.model} at {self._url}"

    def _malformed(self, problem: str) -> ModelFailed:
        return make_failure("malformed", f"the answer of {self._where} {problem}")

    def _to_failure(self, error: Exception, body: Mapping[str, Any]) -> ModelFailed:
        """Return the failure for an exception of the library; only the server is quoted."""
        from openai import APIConnectionError, APIStatusError

        where = self._where
        if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
            return make_failure("timeout", f"{where} did not answer in {self._timeout:g} seconds")
        if isinstance(error, APIConnectionError) or type(error).__module__.startswith("httpx"):
            cause = error.__cause__ if isinstance(error, APIConnectionError) else error
            # Errors while an answer is read have these names in all versions of the library.
            is_cut = type(cause).__name__ in ("RemoteProtocolError", "ReadError")
            if "without sending a response" in str(cause):  # of a connection just closed
                is_cut = False
            what = "interrupted its answer" if is_cut else "cannot be reached"
            return make_failure("unreachable", f"{where} {what}")
        if isinstance(error, APIStatusError):
            return self._refusal(error, body)
        return self._malformed("cannot be read")

    def _refusal(self, error: Any, body: Mapping[str, Any]) -> ModelFailed:
        message = f"{error.message} {error.body}"
        kind = classify_failure(error.status_code, message)
        code, words = read_error(error.body)
        name = f" ({code})" if re.fullmatch(r"[a-z][a-z_]{2,40}", code) else ""
        answer = f"answered with status {error.status_code}{name}{self._quote(words)}"
        failure = make_failure(kind, f"{self._where} {answer}")
        if kind == "authentication" and not self._key:
            failure.hint = "No key is set: set MEMRECALL_API_KEY"
        header = error.response.headers.get("retry-after", "")
        failure.details["retry_after"] = parse_retry_after(header, datetime.now(UTC))
        if refuses_option(error.status_code, message) and self._accepted.learn(body, message):
            failure.details["can_adapt"] = True
        return failure


def _check_extra_body(value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        message = f"extra_body is not an object but {type(value).__name__}"
        raise InvalidArgument(message, hint='Write it like {"thinking": {"type": "disabled"}}')
    return _check_reserved(value)


def _check_reserved(options: Mapping[str, Any]) -> Mapping[str, Any]:
    if reserved := sorted(_RESERVED.intersection(options)):
        message = f"{reserved[0]!r} cannot be an option of the model"
        raise InvalidArgument(message, hint=f"Write it like {_OPTIONS}")
    return options


def _merge(fields: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with extra ones; objects that both have are merged too."""
    result = dict(fields)
    for name, value in extra.items():
        known = result.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            value = _merge(known, value)
        result[name] = value
    return result


def _is_transient(failure: RunError) -> bool:
    """Return True unless a retry is useless or, after a timeout, too slow."""
    return isinstance(failure, ModelFailed) and failure.kind in ("unreachable", "rate_limited")


def _library_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of the library, and of its HTTP library during a stream."""
    import httpx
    from openai import OpenAIError

    errors: list[type[Exception]] = [OpenAIError, TimeoutError, ValueError, httpx.HTTPError]
    if find_spec("httpx2"):  # used by newer versions
        errors.append(import_module("httpx2").HTTPError)
    return tuple(errors)


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

    Reasoning has two names: DeepSeek's, and the one of newer vLLM and Ollama.
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
        finish = self._finish or ("stop" if self.is_done else "unknown")
        if calls:
            finish = "length" if self._finish == "length" else "function_calls"
        elif self._refusal:
            finish = "content_filter"
        return CreateResult(
            finish_reason=finish,
            content=calls or text or self._refusal,
            usage=RequestUsage(usage.prompt_tokens, usage.completion_tokens),
            cached=False,
            thought="\n\n".join(filter(None, thoughts)) or None,
        )


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
        body["tools"] = []
        for schema in map(tool_schema, request.tools):
            function = {
                "name": schema["name"],
                "description": schema.get("description", ""),
                "parameters": schema.get("parameters", {"type": "object", "properties": {}}),
            }
            body["tools"].append({"type": "function", "function": function})
        body["tool_choice"] = (
            request.tool_choice
            if request.forced is None
            else {"type": "function", "function": {"name": request.tool_choice}}
        )
    if isinstance(output := request.json_output, type):
        json_schema = {"name": output.__name__, "schema": output.model_json_schema()}
        body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    elif output is not None:
        body["response_format"] = {"type": "json_object" if output else "text"}
    return body | dict(request.options or {})


def _write_messages(messages: Sequence[LLMMessage], send_reasoning: bool) -> list[dict[str, Any]]:
    """Return the messages with at most one system message: many servers accept only one.

    Those at the start are joined; later ones become user messages.
    """
    count = next(
        (i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages)
    )
    system = "\n\n".join(cast(str, message.content) for message in messages[:count])
    result: list[dict[str, Any]] = [{"role": "system", "content": system}] if count else []
    for message in messages[count:]:
        match message:
            case FunctionExecutionResultMessage():
                result += [
                    {"role": "tool", "tool_call_id": done.call_id, "content": done.content}
                    for done in message.content
                ]
            case AssistantMessage():
                result.append(_write_assistant(message, send_reasoning))
            case SystemMessage() | UserMessage():
                result.append({"role": "user", "content": _text_only(message.content)})
    return result


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
