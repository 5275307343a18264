"""Rerankers: models that score the first hits of a search again, slower and better."""

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Any, Protocol

from memrecall.errors import InvalidArgument, ModelFailed, install_command
from memrecall.plugins import require_plugin
from memrecall.settings import Settings, check_key, check_url

_log = logging.getLogger(__name__)

MOST_RERANKED = 50
RERANKERS = ("endpoint:MODEL", "cross-encoder:NAME")


class Reranker(Protocol):
    """A scorer of texts against a query, from 0 to 1, higher is better."""

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return a score for each text, in order; raise ModelFailed if there are none."""
        ...


class EndpointReranker:
    """The rerank endpoint of vLLM, Jina, Cohere and others: POST {base_url}/rerank."""

    def __init__(
        self, base_url: str, model: str, *, api_key: str = "", timeout: float = 30.0
    ) -> None:
        self._url = check_url(base_url).rstrip("/") + "/rerank"
        self._model = model
        key = check_key(api_key)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = timeout

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the endpoint's scores; raise ModelFailed if it fails."""
        import httpx

        payload = {"model": self._model, "query": query, "documents": list(texts)}
        try:
            async with httpx.AsyncClient(timeout=self._timeout, headers=self._headers) as client:
                response = await client.post(self._url, json=payload)
                response.raise_for_status()
                return _parse_scores(response.json(), len(texts))
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            raise ModelFailed(
                f"the reranker answered with status {status}", kind="refused"
            ) from None
        except httpx.HTTPError as error:
            name = type(error).__name__
            raise ModelFailed(f"the reranker did not answer: {name}", kind="unreachable") from None
        except (KeyError, TypeError, ValueError, IndexError):
            raise ModelFailed("the reranker's answer cannot be read", kind="malformed") from None


class CrossEncoderReranker:
    """A cross-encoder in this process; needs the extra `sentence-transformers`.

    The model is loaded at the first query.
    """

    def __init__(self, model: str) -> None:
        self._name = model
        self._encoder: Any = None
        self._lock = asyncio.Lock()

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the cross-encoder's scores, computed in a thread."""
        pairs = [(query, text) for text in texts]
        async with self._lock:
            if self._encoder is None:
                self._encoder = await asyncio.to_thread(_load_encoder, self._name)
            scores = await asyncio.to_thread(self._encoder.predict, pairs)
        return normalize_scores([float(score) for score in scores])


class CheckedReranker:
    """A reranker of an application, of which every failure is a ModelFailed, logged once."""

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker
        self._has_warned = False

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return a score from 0 to 1 for each text; raise ModelFailed if there are none."""
        try:
            scores = [float(score) for score in await self._reranker.score(query, texts)]
            if len(scores) == len(texts):
                return normalize_scores(scores)
            problem = f"the reranker returned {len(scores)} scores for {len(texts)} texts"
            failure = ModelFailed(problem, kind="malformed")
        except ModelFailed as error:
            failure = error
        # It belongs to the application: whatever it raises, there are results without it. The
        # text of the error may contain the query and must not be logged.
        except Exception as error:
            failure = ModelFailed(f"the reranker raised {type(error).__name__}", kind="refused")
        if not self._has_warned:
            self._has_warned = True
            _log.warning("the reranker failed, results keep their order: %s", failure)
        raise failure


def make_reranker(settings: Settings) -> Reranker | None:
    """Return the reranker of the settings, or None if they name none."""
    kind, _, name = settings.reranker.partition(":")
    if not kind:
        return None
    if kind == "endpoint" and name:
        name, _, url = name.partition("@")
        if not (url or settings.base_url):
            raise InvalidArgument(
                "the reranker's endpoint has no URL", hint="Write it like endpoint:MODEL@URL"
            )
        return EndpointReranker(url or settings.base_url, name, api_key=settings.api_key)
    if kind == "cross-encoder" and name:
        return CrossEncoderReranker(name)
    make, rest = require_plugin("rerankers", settings.reranker, RERANKERS)
    reranker: Reranker = make(rest, settings)
    return reranker


def normalize_scores(scores: list[float]) -> list[float]:
    """Return scores from 0 to 1 unchanged; treat others as logits."""
    if not all(map(math.isfinite, scores)):
        raise ModelFailed("the reranker's scores are not finite numbers", kind="malformed")
    if all(0.0 <= score <= 1.0 for score in scores):
        return scores
    return [1 / (1 + math.exp(-min(60.0, max(-60.0, score)))) for score in scores]


def _load_encoder(name: str) -> Any:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        raise ModelFailed(
            "a cross-encoder needs a package that is not installed",
            kind="refused",
            hint=install_command("sentence-transformers"),
        ) from None
    try:
        return CrossEncoder(name)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelFailed(
            f"the cross-encoder {name!r} cannot be loaded: {type(error).__name__}", kind="refused"
        ) from None


def _parse_scores(payload: Any, count: int) -> list[float]:
    scores: dict[int, float] = {}
    for result in payload["results"]:
        scores[int(result["index"])] = float(result["relevance_score"])
    if set(scores) != set(range(count)):
        raise ValueError("not every text has a score")
    return normalize_scores([scores[index] for index in range(count)])
