"""Cached vectors of the benchmarks' texts: embedding 100,000 texts takes many minutes."""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memrecall.embedding import Embedder

Matrix = npt.NDArray[np.float32]

_BLOCK = 2_000  # at most this many are lost if the benchmark is interrupted


class StoredVectors:
    """An embedder that looks up stored vectors, and embeds all other texts."""

    def __init__(self, texts: Sequence[str], matrix: Matrix, live: Embedder) -> None:
        self._row_of = {text: row for row, text in enumerate(texts)}
        self._matrix = matrix
        self.live = live

    @property
    def model(self) -> str:
        """The name of the real model."""
        return self.live.model

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return int(self._matrix.shape[1])

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return stored vectors; embed a batch that contains an unknown text."""
        rows = [self._row_of[text] for text in texts if text in self._row_of]
        if len(rows) < len(texts):
            return await self.live.embed(texts)
        stored: Matrix = self._matrix[rows]
        return stored

    async def close(self) -> None:
        """Close the real model."""
        await self.live.close()


class NameOnly:
    """The name of the model that made the stored vectors; cannot embed."""

    def __init__(self, model: str, dimensions: int) -> None:
        self.model = model
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Raise: a benchmark must not embed here."""
        raise AssertionError(f"{len(texts)} texts were to be embedded by a name")

    async def close(self) -> None:
        """Do nothing."""


async def stored_vectors(
    texts: Sequence[str], embedder: Embedder, progress: Callable[[int, int], None]
) -> Matrix:
    """Return the vectors of texts, cached in the temporary folder."""
    folder = Path(tempfile.gettempdir()) / "memrecall-benchmark-vectors"
    folder.mkdir(exist_ok=True)
    parts: list[Matrix] = []
    for start in range(0, len(texts), _BLOCK):
        block = texts[start : start + _BLOCK]
        digest = hashlib.sha256("\0".join([embedder.model, *block]).encode()).hexdigest()
        file = folder / f"{digest[:32]}.npy"
        if not file.exists():
            vectors = (await embedder.embed(block)).astype(np.float16)
            temporary = file.with_suffix(".tmp.npy")
            np.save(temporary, vectors)
            temporary.replace(file)
        parts.append(np.load(file).astype(np.float32))
        progress(start + len(block), len(texts))
    return np.concatenate(parts)


def made_up_vectors(count: int, dimensions: int) -> Matrix:
    """Return random unit vectors, which are as fast to search as real ones."""
    matrix = np.random.default_rng(1).standard_normal((count, dimensions), dtype=np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix
