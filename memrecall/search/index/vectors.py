"""One user's vectors: a matrix that grows without being copied, or external ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from memrecall.search.index import Floats, Rows
from memrecall.store import VECTOR_DTYPE

_BLOCK = 2048
_LEAST_ROWS = 8


@cache
def _blas_libraries() -> list[Any]:
    return [
        library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"
    ]


@contextmanager
def _single_threaded_blas() -> Iterator[None]:
    # Like `ThreadpoolController.limit`, which takes longer than the product of a few hundred rows.
    counts = [(library, library.get_num_threads()) for library in _blas_libraries()]
    changed = [(library, count) for library, count in counts if count != 1]
    for library, _ in changed:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, count in changed:
            library.set_num_threads(count)


def mean_direction(vector: Floats, other: Floats, weight: float) -> Floats:
    """Return the direction of a vector and a weighted other one."""
    total = vector + np.float32(weight) * other
    return (total / max(float(np.linalg.norm(total)), 1e-9)).astype(np.float32)


class VectorBlocks:
    """Vectors in memory: row i is in block i // 2048; rows without a vector are zero.

    A block grows with its rows. If each had room for all of its rows from the start, the blocks of
    many small users would take hundreds of times the memory of their vectors: the allocator reuses
    freed blocks, and has to fill them with zeros.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, Floats] = {}
        self.dimensions = 0

    def nbytes(self, rows: int) -> int:
        """Return the memory of the blocks."""
        del rows
        return sum(block.nbytes for block in self._blocks.values())

    def put(self, row: int, packed: bytes) -> bool:
        """Set a row's vector from its stored form; return whether all others were dropped.

        They are of another length, and an embedder of this one replaces them one by one.
        """
        vector = np.frombuffer(packed, dtype=VECTOR_DTYPE)
        is_first = self.dimensions not in (0, len(vector))
        if is_first:
            self._blocks.clear()
        self.dimensions = len(vector)
        at = row % _BLOCK
        self._reserve(row // _BLOCK, at + 1)[at] = vector
        return is_first

    def _reserve(self, number: int, rows: int) -> Floats:
        """Return a block with room for that many rows."""
        block = self._blocks.get(number, np.zeros((0, self.dimensions), dtype=np.float32))
        if len(block) < rows:
            capacity = max(_LEAST_ROWS, 1 << (rows - 1).bit_length())
            larger = np.zeros((capacity, self.dimensions), dtype=np.float32)
            larger[: len(block)] = block
            self._blocks[number] = block = larger
        return block

    def similarities(self, query: Floats, rows: int) -> Floats:
        """Return the cosine of the query with each row; 0 where a row has no vector."""
        cosines = np.zeros(rows, dtype=np.float32)
        # The product is bound by memory: a second BLAS thread makes it slower, and many times
        # slower on two busy cores.
        with _single_threaded_blas():
            for number, block in self._blocks.items():
                start = number * _BLOCK
                part = cosines[start : start + len(block)]
                np.matmul(block[: len(part)], query, out=part)
        return cosines

    def take(self, rows: Rows) -> Floats:
        """Return the vectors of some rows; zeros for a row without one, or below 0."""
        vectors = np.zeros((len(rows), self.dimensions), dtype=np.float32)
        for at, row in enumerate(rows.tolist()):
            block = self._blocks.get(row // _BLOCK)
            if row >= 0 and block is not None and row % _BLOCK < len(block):
                vectors[at] = block[row % _BLOCK]
        return vectors

    def exact_cosines(self, query: Floats, rows: Rows, digits: int) -> Floats:
        """Return the cosine of the query with some rows, equal for equal vectors.

        `similarities` ignores that a vector stored in 16 bits is not exactly of unit length, and
        its last digits depend on the other rows of the block.
        """
        cosines = np.zeros(len(rows), dtype=np.float64)
        exact_query = query.astype(np.float64)
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK].tolist()
            vectors = np.stack([self._blocks[row // _BLOCK][row % _BLOCK] for row in part])
            exact = vectors.astype(np.float64)
            lengths = np.sqrt(np.square(exact).sum(axis=1)) * np.sqrt(np.square(exact_query).sum())
            products = (exact * exact_query).sum(axis=1)
            cosines[start : start + _BLOCK] = products / np.maximum(lengths, 1e-12)
        return np.round(np.clip(cosines, -1.0, 1.0), digits).astype(np.float32)

    def dump(self, rows: int) -> npt.NDArray[np.float16]:
        """Return the vectors of all rows in their stored form."""
        matrix = np.zeros((rows, self.dimensions), dtype=VECTOR_DTYPE)
        for number, block in self._blocks.items():
            start = number * _BLOCK
            part = matrix[start : start + len(block)]
            part[:] = block[: len(part)]
        return matrix

    def load(self, matrix: npt.NDArray[np.float16]) -> None:
        """Replace the vectors by what `dump` returned."""
        self.dimensions = matrix.shape[1]
        if not self.dimensions:
            return
        for start in range(0, len(matrix), _BLOCK):
            part = matrix[start : start + _BLOCK]
            self._reserve(start // _BLOCK, len(part))[: len(part)] = part


class ExternalUserVectors:
    """The vectors of one user in a vector database, and their products with the current query.

    Columns serve one search at a time, which fetches the products before it ranks.
    """

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self.dimensions = 0
        self.products: Floats = np.zeros(0, dtype=np.float32)

    def nbytes(self, rows: int) -> int:
        """Return the memory of the products."""
        return 4 * rows

    def put(self, row: int, packed: bytes) -> bool:
        """Note the length of a row's vector, which is stored in the vector database."""
        del row
        length = len(packed) // np.dtype(VECTOR_DTYPE).itemsize
        is_first = self.dimensions not in (0, length)
        self.dimensions = length
        return is_first

    def similarities(self, query: Floats, rows: int) -> Floats:
        """Return the cosine of the query with each row; 0 where a row has no vector."""
        cosines = np.zeros(rows, dtype=np.float32)
        cosines[: len(self.products)] = self.products[:rows]
        return cosines

    def exact_cosines(self, query: Floats, rows: Rows, digits: int) -> Floats:
        """Return the cosine of the query with some rows, rounded."""
        cosines = np.clip(self.products[rows].astype(np.float64), -1.0, 1.0)
        return np.round(cosines, digits).astype(np.float32)

    def dump(self, rows: int) -> npt.NDArray[np.float16]:
        """Return no vectors: a snapshot does not contain external ones."""
        return np.zeros((rows, 0), dtype=VECTOR_DTYPE)


UserVectors = VectorBlocks | ExternalUserVectors
