"""Rerankers: judges of the first hits of a search, better and slower than the search itself."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import httpx

from memrecall.errors import ModelFailed

RERANKED = 50  # hits that a reranker is shown


class Reranker(Protocol):
    """Scores texts against a question: one number each, from 0 to 1, higher is better."""

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """The scores in the order of the texts."""
        ...


class EndpointReranker:
    """A rerank endpoint as vLLM, Jina, Cohere and others serve it: POST {base_url}/rerank."""

    def __init__(
        self, base_url: str, model: str, *, api_key: str = "", timeout: float = 30.0
    ) -> None:
        self._url = base_url.rstrip("/") + "/rerank"
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Ask the endpoint; ModelFailed if it does not answer as it should."""
        asked = {"model": self._model, "query": query, "documents": list(texts)}
        try:
            async with httpx.AsyncClient(timeout=self._timeout, headers=self._headers) as client:
                answer = await client.post(self._url, json=asked)
                answer.raise_for_status()
                return _read_scores(answer.json(), len(texts))
        except httpx.HTTPError as error:
            raise ModelFailed(f"the reranker did not answer: {error}", kind="unreachable") from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelFailed(
                f"the reranker's answer cannot be read: {error!r}", kind="malformed"
            ) from None


class CrossEncoderReranker:
    """A cross-encoder in this process; needs the extra `sentence-transformers`."""

    def __init__(self, model: str) -> None:
        from sentence_transformers import CrossEncoder

        self._encoder: Any = CrossEncoder(model)

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Score in a thread of its own."""
        pairs = [(query, text) for text in texts]
        scores = await asyncio.to_thread(self._encoder.predict, pairs)
        return [min(1.0, max(0.0, float(score))) for score in scores]


def _read_scores(answer: Any, count: int) -> list[float]:
    scores: list[float | None] = [None] * count
    for result in answer["results"]:
        scores[int(result["index"])] = float(result["relevance_score"])
    if None in scores:
        raise ValueError("not every text has a score")
    return [min(1.0, max(0.0, score)) for score in scores if score is not None]
