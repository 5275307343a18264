"""Embedders for comparisons: one that keeps its vectors, and the blend of two."""

from collections.abc import Sequence

import numpy as np

from benchmarks.report import Stopwatch
from memrecall.embedding import Embedder, Vectors
from memrecall.embedding.local import LOCAL_DIMENSIONS
from memrecall.embedding.query_map import QueryMap


class Kept:
    """An embedder that outlives the libraries that use it and keeps the vectors of all texts."""

    def __init__(self, embedder: Embedder) -> None:
        self.model = embedder.model
        self._embedder = embedder
        self._vectors: dict[str, Vectors] = {}

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return kept vectors; embed only new texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        self._vectors.update(zip(new, await self._embedder.embed(new), strict=True))
        kept = [self._vectors[text] for text in texts]
        return np.array(kept, dtype=np.float32).reshape(len(texts), self.dimensions)

    async def close(self) -> None:
        """Do nothing."""

    async def rate(self, texts: Sequence[str]) -> float:
        """Return how many of these texts are embedded in a second of CPU time."""
        watch = Stopwatch()
        await self._embedder.embed(texts)
        return len(texts) / watch.read().cpu


class Blend:
    """The joined vectors of two embedders: a cosine is the mean of theirs, of equal spread."""

    def __init__(self, first: Kept, second: Kept, unrelated: Sequence[str]) -> None:
        self.model = f"{first.model}-{second.model}"
        self._parts = (first, second)
        self._unrelated = unrelated

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return sum(part.dimensions for part in self._parts)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Join the vectors of both, each divided by the root of its cosines' spread."""
        weights = [_spread(await part.embed(self._unrelated)) ** -0.5 for part in self._parts]
        scaled = [
            await part.embed(texts) * np.float32(weight / np.linalg.norm(weights))
            for part, weight in zip(self._parts, weights, strict=True)
        ]
        joined: Vectors = np.hstack(scaled)
        return joined

    async def close(self) -> None:
        """Do nothing."""

    async def rate(self, texts: Sequence[str]) -> float:
        """Return how many of these texts both embed in a second of CPU time."""
        return float(1 / sum([1 / await part.rate(texts) for part in self._parts]))


def _spread(vectors: Vectors) -> float:
    """Return the standard deviation of the cosines of unrelated texts."""
    return float(np.std((vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]))


class MapOfFirst(QueryMap):
    """The query map of the default embedder, for vectors that begin with its vector."""

    def apply(self, vector: Vectors) -> Vectors:
        """Map the first part and keep its length."""
        first, rest = np.split(vector, [LOCAL_DIMENSIONS])
        return np.append(super().apply(first) * np.linalg.norm(first), rest).astype(np.float32)
