"""A learned map from the vector of a question towards the vectors of its answers.

A question and the line that answers it are not close in an embedder's space. The map is a square
matrix, applied to questions only: stored vectors stay as they are. Each belongs to one embedder and
one version of it, by name; other embedders get none. `benchmarks/fit_query_map.py` fits it and
names the data.
"""

from functools import cache
from pathlib import Path

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
