"""An embedder over HTTP: any server with OpenAI's /embeddings endpoint."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from memrecall.embedding.base import BatchedEmbedder
from memrecall.errors import EmbedderFailed, describe_validation_error
from memrecall.retries import parse_retry_after, retry
from memrecall.settings import check_key, check_url
from memrecall.text_length import single_line

if TYPE_CHECKING:
    import ssl

    import httpx
    import numpy.typing as npt

EXCERPT_LENGTH = 200
TIMEOUT = 30.0  # seconds of one attempt


class _Item(BaseModel):
    model_config = ConfigDict(strict=True)

    index: int
    embedding: list[float]


class _Answer(BaseModel):
    data: list[_Item]


class _Transient(EmbedderFailed):
    """A failure worth a retry."""


class RemoteEmbedder(BatchedEmbedder):
    """Embeds through any OpenAI-compatible server, with up to three attempts.

    The stored name is "openai:" and the model's. It does not contain the host, so that a server can
    move and its vectors stay valid. The API key appears in no message and no repr.
    """

    def __init__(self, base_url: str, model: str, api_key: str | None = None) -> None:
        self._url = check_url(base_url).rstrip("/") + "/embeddings"
        super().__init__(f"openai:{model}", source=self._url)
        self._key = check_key(api_key) or None
        self._request: dict[str, Any] = {"model": model, "encoding_format": "float"}
        self._tls: ssl.SSLContext | None = None

    async def _embed_batch(self, texts: list[str]) -> npt.ArrayLike:
        # An httpx client is bound to one event loop, so each batch has its own; the TLS context,
        # which takes 30 ms to create, is shared.
        async with self._make_client() as client:
            request = {**self._request, "input": texts}
            answer = await retry(
                lambda: self._post(client, request),
                lambda failure: isinstance(failure, _Transient),
            )
        return self._parse(answer, len(texts))

    def _make_client(self) -> httpx.AsyncClient:
        import httpx

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            self._tls = self._tls or httpx.create_ssl_context()
            return httpx.AsyncClient(headers=headers, verify=self._tls, timeout=TIMEOUT)
        except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
            hint = "Check the environment's settings for proxies and certificates"
            raise EmbedderFailed(f"{self._url} cannot be used: {error}", hint=hint) from error

    async def _post(self, client: httpx.AsyncClient, body: dict[str, Any]) -> bytes:
        import httpx

        try:
            async with asyncio.timeout(TIMEOUT):  # httpx bounds each read, not their sum
                response = await client.post(self._url, json=body)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise _Transient(f"{self._url} did not answer in {TIMEOUT:g} seconds") from error
        except httpx.TransportError as error:
            problem = f"{type(error).__name__}: {error}"
            hint = "Check base_url and whether the server runs"
            raise _Transient(f"{self._url} cannot be reached: {problem}", hint=hint) from error
        except (httpx.DecodingError, httpx.InvalidURL) as error:
            raise EmbedderFailed(f"{self._url} cannot be read: {error}") from error
        if response.is_success:
            return response.content
        raise self._refusal(response)

    def _refusal(self, response: httpx.Response) -> EmbedderFailed:
        status = response.status_code
        message = f"{self._url} answered with status {status}"
        if status == 429 or status >= 500:
            header = response.headers.get("retry-after", "")
            retry_after = parse_retry_after(header, datetime.now(UTC))
            return _Transient(message, hint="Try again later", retry_after=retry_after)
        if status in (401, 403):
            return EmbedderFailed(message, hint="Check the API key")
        hint = "Check base_url and the model's name"
        return EmbedderFailed(f"{message}: {self._excerpt(response.text)}", hint=hint)

    def _excerpt(self, text: str) -> str:
        """Return the beginning of a response, without the key that some servers repeat."""
        redacted = text.replace(self._key, "***") if self._key else text
        return single_line(redacted, EXCERPT_LENGTH) or "no reason given"

    def _parse(self, body: bytes, count: int) -> list[list[float]]:
        try:
            items = sorted(_Answer.model_validate_json(body).data, key=lambda item: item.index)
        except ValidationError as error:
            # The error's own text would repeat the response.
            problem = describe_validation_error(error, quote_value=False)
            raise EmbedderFailed(f"{self._url} returned a malformed answer: {problem}") from None
        if [item.index for item in items] != list(range(count)):
            problem = f"{len(items)} vectors that do not match the {count} texts sent"
            raise EmbedderFailed(f"{self._url} returned a malformed answer: {problem}")
        return [item.embedding for item in items]
