"""One user's vectors as a matrix that grows without being copied."""

from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from memrecall.errors import EmbeddingModelMismatch
from memrecall.store import VECTOR_DTYPE

_BLOCK = 2048


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class UserVectors(Protocol):
    """What a search asks of one user's vectors, wherever they lie."""

    dimensions: int

    def nbytes(self, rows: int) -> int:
        """How much memory they take here."""
        ...

    def put(self, row: int, packed: bytes) -> None:
        """Enter the stored form of a row's vector."""
        ...

    def similarities(self, query: npt.NDArray[np.float32], rows: int) -> npt.NDArray[np.float32]:
        """The cosine of the query with each row; 0 where a row has no vector."""
        ...

    def exact_cosines(
        self, query: npt.NDArray[np.float32], rows: npt.NDArray[np.int64], digits: int
    ) -> npt.NDArray[np.float32]:
        """The cosine of the query with some rows."""
        ...

    def dump(self, rows: int) -> npt.NDArray[np.float16]:
        """All rows' vectors in their stored form, as far as they are here."""
        ...


class VectorBlocks:
    """Row i's vector lies in block i // 2048; rows without one are zero."""

    def __init__(self) -> None:
        self._blocks: dict[int, npt.NDArray[np.float32]] = {}
        self.dimensions = 0

    def nbytes(self, rows: int) -> int:
        """How much memory the filled part of the blocks takes; the system lends the rest later."""
        filled = (min(rows - number * _BLOCK, _BLOCK) for number in self._blocks)
        return sum(filled) * self.dimensions * 4

    def put(self, row: int, packed: bytes) -> None:
        """Enter the stored form of a row's vector."""
        vector = np.frombuffer(packed, dtype=VECTOR_DTYPE)
        if not self.dimensions:
            self.dimensions = len(vector)
        if len(vector) != self.dimensions:
            raise EmbeddingModelMismatch(
                f"a vector has {len(vector)} dimensions where others have {self.dimensions}",
                hint="`memrecall reindex` makes them anew",
            )
        self._block(row // _BLOCK)[row % _BLOCK] = vector

    def _block(self, number: int) -> npt.NDArray[np.float32]:
        if number not in self._blocks:
            self._blocks[number] = np.zeros((_BLOCK, self.dimensions), dtype=np.float32)
        return self._blocks[number]

    def similarities(self, query: npt.NDArray[np.float32], rows: int) -> npt.NDArray[np.float32]:
        """The cosine of the query with each row; 0 where a row has no vector."""
        cosines = np.zeros(rows, dtype=np.float32)
        # Memory is what bounds this, and a second thread that waits for its turn makes it slower:
        # on two busy cores many times slower.
        with _blas().limit(limits=1, user_api="blas"):
            for number, block in self._blocks.items():
                start = number * _BLOCK
                part = cosines[start : start + _BLOCK]
                np.matmul(block[: len(part)], query, out=part)
        return cosines

    def exact_cosines(
        self, query: npt.NDArray[np.float32], rows: npt.NDArray[np.int64], digits: int
    ) -> npt.NDArray[np.float32]:
        """The cosine of the query with some rows, the same for the same vector wherever it lies.

        `similarities` leaves out that a vector kept in 16 bits is not quite of unit length, and
        its last digits depend on the neighbours that a row is multiplied with.
        """
        cosines = np.zeros(len(rows), dtype=np.float64)
        exact = query.astype(np.float64)
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            vectors = np.stack([self._blocks[row // _BLOCK][row % _BLOCK] for row in some.tolist()])
            wide = vectors.astype(np.float64)
            lengths = np.sqrt(np.square(wide).sum(axis=1)) * np.sqrt(np.square(exact).sum())
            products = (wide * exact).sum(axis=1)
            cosines[start : start + _BLOCK] = products / np.maximum(lengths, 1e-12)
        return np.round(np.clip(cosines, -1.0, 1.0), digits).astype(np.float32)

    def dump(self, rows: int) -> npt.NDArray[np.float16]:
        """All rows' vectors in their stored form."""
        matrix = np.zeros((rows, self.dimensions), dtype=VECTOR_DTYPE)
        for number, block in self._blocks.items():
            part = matrix[number * _BLOCK : (number + 1) * _BLOCK]
            part[:] = block[: len(part)]
        return matrix

    def load(self, matrix: npt.NDArray[np.float16]) -> None:
        """Take over what `dump` gave."""
        self.dimensions = matrix.shape[1]
        if not self.dimensions:
            return
        for start in range(0, len(matrix), _BLOCK):
            part = matrix[start : start + _BLOCK]
            self._block(start // _BLOCK)[: len(part)] = part
