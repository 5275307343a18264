"""A client for servers with OpenAI's API: DeepSeek, Ollama, vLLM, llama.cpp and others."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from autogen_core.models import ChatCompletionClient, CreateResult
from pydantic import ValidationError

from memrecall.errors import InvalidArgument, ModelFailed, RunError, describe_validation_error
from memrecall.model.client import BaseClient, Part, Request, run_cancellable, text_model_info
from memrecall.model.failures import (
    AcceptedOptions,
    classify_failure,
    make_failure,
    read_error,
    refuses_option,
)
from memrecall.model.wire import STREAM_END, AnswerCollector, WireAnswer, read_events, write_request
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
    are fields of every request, such as `temperature`; those of `extra_body` are merged with them,
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
        self._options = _check_options(options or {})
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
            is_cut = is_cut and "without sending a response" not in str(
                cause
            )  # of a connection just closed
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


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the fields of `extra_body` among them, as OpenAI's library sends them."""
    fields = dict(options)
    extra = _check_extra_body(fields.pop(_EXTRA_BODY, None))
    return _merge(_check_reserved(fields), extra)


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
