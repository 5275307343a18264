"""Models behind servers: OpenAI, DeepSeek, Ollama, vLLM, llama.cpp and whoever speaks their API."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from autogen_core.models import ChatCompletionClient, CreateResult, ModelFamily, ModelInfo
from pydantic import ValidationError

from memrecall.errors import ModelFailed
from memrecall.model.client import (
    BaseClient,
    Part,
    Request,
    classify_failure,
    make_failure,
    run_cancellable,
)
from memrecall.model.json_calls import JsonCallClient
from memrecall.model.wire import WireAnswer, start_answer, write_request
from memrecall.plugins import find_plugin
from memrecall.settings import OPENAI, check_key, check_url

if TYPE_CHECKING:
    from openai import APIError, AsyncOpenAI

    from memrecall.settings import Settings

NO_KEY = "none"  # local servers want no key, the library wants one
# Seconds before the second and the third attempt, if the server names none itself.
PAUSES = (0.5, 1.0)
LONGEST_PAUSE = 10.0


def make_client(settings: Settings) -> ChatCompletionClient | None:
    """The client of the model that the settings name; None if they name none."""
    if not settings.model:
        return None
    name, divider, rest = settings.model.partition(":")
    # Names of models have colons too: only an installed plugin's name is one.
    if divider and (make := find_plugin("models", name)) is not None:
        made: ChatCompletionClient = make(rest, settings)
        return made
    client = ServerClient(
        settings.model,
        base_url=settings.base_url or OPENAI,
        api_key=settings.api_key,
        timeout=settings.model_timeout,
    )
    return JsonCallClient(client) if settings.tool_calls == "json" else client


class ServerClient(BaseClient):
    """Asks a server, at most three times if the failure may pass; every failure is `ModelFailed`.

    `timeout` bounds one attempt, or one wait for the next piece of a stream, in seconds. Thoughts
    of reasoning models are kept and sent back beside the tool calls that they led to, as DeepSeek
    demands. No error shows the key or what was said.
    """

    def __init__(
        self, model: str, *, base_url: str = OPENAI, api_key: str = "", timeout: float = 60.0
    ) -> None:
        info = ModelInfo(
            vision=False,
            function_calling=True,
            json_output=True,
            family=ModelFamily.UNKNOWN,
            structured_output=base_url == OPENAI,
            multiple_system_messages=True,
        )
        super().__init__(model, info)
        self._url = check_url(base_url)
        self._key = check_key(api_key)
        self._timeout = timeout
        self._reasons = "deepseek" in f"{model} {base_url}".lower()
        self._server: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._server is not None and self._loop is asyncio.get_running_loop():
            await self._server.close()
        self._server = None

    async def _answer(self, request: Request) -> CreateResult:
        return await run_cancellable(request.token, self._ask(request))

    async def _ask(self, request: Request) -> CreateResult:
        reply = await self._attempt(request, stream=False)
        answer = self._read(reply.text)
        if not answer.choices:
            raise self._malformed("has no choices")
        collected = start_answer(request)
        collected.add(answer)
        self._reasons = self._reasons or bool(collected.reasoning)
        return collected.result()

    async def _stream(self, request: Request) -> AsyncGenerator[Part, None]:
        stream = await run_cancellable(request.token, self._attempt(request, stream=True))
        collected = start_answer(request)
        try:
            chunks = aiter(stream)
            while (chunk := await run_cancellable(request.token, self._next(chunks))) is not None:
                if text := collected.add(self._check(chunk.model_dump(warnings=False))):
                    yield text
        finally:
            await stream.close()
        if collected.is_broken_off:
            message = f"{self.model} at {self._url} broke its answer off"
            raise make_failure("unreachable", message)
        self._reasons = self._reasons or bool(collected.reasoning)
        yield collected.result()

    async def _attempt(self, request: Request, *, stream: bool) -> Any:
        for pause in PAUSES:
            try:
                return await self._send(request, stream=stream)
            except ModelFailed as failure:
                named = failure.details.get("retry_after")
                if failure.kind not in ("unreachable", "rate_limited") or (
                    named is not None and named > LONGEST_PAUSE
                ):
                    raise
                await asyncio.sleep(pause if named is None else named)
        return await self._send(request, stream=stream)

    async def _send(self, request: Request, *, stream: bool) -> Any:
        body = write_request(request, reasons=self._reasons)
        completions = self._connect().chat.completions
        async with self._guarded():
            if stream:
                body.setdefault("stream_options", {"include_usage": True})
                return await completions.create(model=self.model, stream=True, **body)
            # The library's own reading checks nothing: take the text as it came.
            return await completions.with_raw_response.create(model=self.model, **body)

    @asynccontextmanager
    async def _guarded(self) -> AsyncIterator[None]:
        """Bound a wait, and turn what the library raises into `ModelFailed`."""
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except _library_errors() as error:
            raise self._failed(error) from None

    async def _next(self, chunks: AsyncIterator[Any]) -> Any:
        async with self._guarded():
            return await anext(chunks, None)

    def _connect(self) -> AsyncOpenAI:
        """The library's client; its connections belong to one event loop."""
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        if self._server is None or self._loop is not loop:
            self._server = AsyncOpenAI(
                api_key=self._key or NO_KEY,
                base_url=self._url,
                timeout=self._timeout,
                max_retries=0,  # the library would wait as long as the server likes
            )
            self._loop = loop
        return self._server

    def _read(self, text: str) -> WireAnswer:
        try:
            return self._check(json.loads(text))
        except ValueError:
            raise self._malformed("is not JSON") from None

    def _check(self, answer: object) -> WireAnswer:
        try:
            return WireAnswer.model_validate(answer)
        except ValidationError as error:
            # Its own text would repeat the answer.
            problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
            place = ".".join(map(str, problem["loc"])) or "its top"
            raise self._malformed(f"is wrong at {place}") from None

    def _malformed(self, what: str) -> ModelFailed:
        """The error for an answer that cannot be read."""
        return make_failure("malformed", f"the answer of {self.model} at {self._url} {what}")

    def _failed(self, error: Exception) -> ModelFailed:
        """What an exception of the library means, without its words: they may quote anything."""
        from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

        where = f"{self.model} at {self._url}"
        if isinstance(error, TimeoutError | APITimeoutError):
            return make_failure("timeout", f"{where} did not answer in {self._timeout:g} seconds")
        if isinstance(error, APIConnectionError) or type(error).__module__.startswith("httpx"):
            return make_failure("unreachable", f"{where} cannot be reached")
        if isinstance(error, APIStatusError):
            return self._refusal(where, error)
        if isinstance(error, APIError):  # in the middle of a stream
            code = error.code or ""
            kind = classify_failure(int(code) if code.isdecimal() else 500, str(error))
            return make_failure(kind, f"{where} broke its answer off{_named(error)}")
        return self._malformed("cannot be read")

    def _refusal(self, where: str, error: Any) -> ModelFailed:
        kind = classify_failure(error.status_code, f"{error.message} {error.body}")
        failure = make_failure(
            kind, f"{where} answered with status {error.status_code}{_named(error)}"
        )
        if kind == "authentication" and not self._key:
            failure.hint = "No key is set: put it into MEMRECALL_API_KEY"
        failure.details["retry_after"] = _seconds(error.response.headers.get("retry-after", ""))
        return failure


def _library_errors() -> tuple[type[Exception], ...]:
    """What the library raises, and what the HTTP library under it does in the midst of a stream."""
    import httpx
    from openai import OpenAIError

    errors: list[type[Exception]] = [OpenAIError, TimeoutError, ValueError, httpx.HTTPError]
    if find_spec("httpx2"):  # what newer versions stand on
        errors.append(import_module("httpx2").HTTPError)
    return tuple(errors)


def _named(error: APIError) -> str:
    """The server's name for an error, if it is a name and not a sentence."""
    names = [str(name) for name in (error.code, error.type) if name]
    named = next((name for name in names if re.fullmatch(r"[a-z][a-z_]{2,40}", name)), "")
    return f" ({named})" if named else ""


def _seconds(retry_after: str) -> float | None:
    return float(retry_after) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", retry_after) else None
