"""Learned maps of vectors: of a question towards its answers, and of tokens to few dimensions.

A question and the line that answers it are not close in an embedder's space. The query map is a
square matrix, applied to questions only: stored vectors stay as they are. Each belongs to one
embedder and one version of it, by name; other embedders get none. `benchmarks/fit_query_map.py`
fits it and names the data.

Vectors of single tokens compare two texts token by token (late interaction). They come from the
input table of the local model, before any context: looking them up costs a fraction of embedding a
text. The map to fewer dimensions keeps the directions in which they differ most
(`benchmarks/fit_rerank.py` makes it).
"""

from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_FOLDER = Path(__file__).with_name("query_maps")


class QueryMap:
    """The map of one embedder."""

    def __init__(self, change: npt.NDArray[np.floating]) -> None:
        """`change` is the matrix minus the identity, as files store it."""
        self._matrix = np.eye(len(change), dtype=np.float32) + change.astype(np.float32)

    def apply(self, vector: Floats) -> Floats:
        """Return the mapped vector of a question, of length 1."""
        mapped = self._matrix @ vector
        scaled: Floats = (mapped / max(float(np.linalg.norm(mapped)), 1e-9)).astype(np.float32)
        return scaled


def map_file(model: str) -> Path:
    """Return the file of an embedder's map, whether it exists or not."""
    return _FOLDER / f"{model}.npy"


@cache
def load_query_map(model: str) -> QueryMap | None:
    """Return the map of an embedder, or None if it has none."""
    file = map_file(model)
    return QueryMap(np.load(file)) if file.is_file() else None


_CACHED_TEXTS = 2_000
_CHARACTERS = 300  # of a text, at its beginning
_FILE = Path(__file__).with_name("token_maps") / "usem3-512-p1.npz"


class TokenRows(NamedTuple):
    """A row of unit length for each token of a text, and weights whose sum is one."""

    vectors: Floats
    weights: Floats


class LocalTokenVectors:
    """The token vectors of the local model. Reads its table only: any thread may call it."""

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder
        self.encode = lru_cache(_CACHED_TEXTS)(self._encode)

    def _encode(self, text: str) -> TokenRows:
        tokenizer = self.encoder._tokenizer
        ids = np.array(tokenizer.encode(text[:_CHARACTERS], out_type=int), dtype=np.int64)
        matrix, centre = load_token_map()
        rows = (read_table(self.encoder._model, ids) - centre) @ matrix
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        vectors = (rows / np.maximum(lengths, 1e-6)).astype(np.float32)
        # The model's scores are logarithms of how often tokens occur: a rare one says more.
        weights = np.array([-tokenizer._scores[at] for at in ids], dtype=np.float32)
        return TokenRows(vectors, weights / max(float(weights.sum()), 1e-6))


def read_table(model: Any, ids: npt.NDArray[np.int64]) -> Floats:
    """Return the rows of the model's input table."""
    chunk = ids % len(model.scale)  # each chunk of the table is quantised on its own
    scale, lowest = model.scale[chunk, None], model.lo[chunk, None]
    rows: Floats = model.table[ids].astype(np.float32) * scale + lowest
    return rows


def best_matches(asked: TokenRows, told: TokenRows) -> Floats:
    """Return for each token asked for the cosine of the nearest token told; 0 without any."""
    if not len(told.vectors):
        return np.zeros(len(asked.vectors), dtype=np.float32)
    matches: Floats = (asked.vectors @ told.vectors.T).max(axis=1)
    return matches


@cache
def load_token_map() -> tuple[Floats, Floats]:
    """Return the matrix to fewer dimensions, and the centre that is subtracted before."""
    with np.load(_FILE) as arrays:
        return arrays["matrix"].astype(np.float32), arrays["centre"].astype(np.float32)
