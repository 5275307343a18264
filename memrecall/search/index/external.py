"""Vectors kept outside this process, for users who have more of them than should lie in memory.

What is asked of them is the same: the product of the question with every row, so that such a user
is ranked as everybody is. They are derived data: taken from the user's changes up to a number, and
begun anew where the history was changed (another epoch).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memrecall.errors import EmbeddingModelMismatch
from memrecall.search.index.columns import Columns
from memrecall.store import VECTOR_DTYPE, Store, UserVersion

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


class VectorDB(Protocol):
    """Keeps users' vectors and multiplies them with questions."""

    async def progress(self, user_id: str, history: str) -> tuple[int, int]:
        """The change up to which a user's vectors of that history were taken (0: none), and how
        many dimensions they have.
        """
        ...

    async def take(self, user_id: str, history: str, through: int, rows: Sequence[Any]) -> None:
        """Take vectors (`kind`, `key`, `change_no`, `vector`: 16-bit floats) up to a change.

        Of another history than before: instead of all that was there.
        """
        ...

    async def products(self, user_id: str, question: Floats) -> tuple[Numbers, Floats]:
        """The change numbers of all vectors of a user, and their products with a question."""
        ...

    async def forget(self, user_id: str) -> None:
        """Leave nothing of a user."""
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...


class ExternalUserVectors:
    """The vectors of one user's columns, kept elsewhere; here are their products with a question.

    Columns are in one search at a time, which brings the products before it ranks.
    """

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self.dimensions = 0
        self._products: Floats = np.zeros(0, dtype=np.float32)

    def nbytes(self, rows: int) -> int:
        """How much memory the products take."""
        return 4 * rows

    def put(self, row: int, packed: bytes) -> None:
        """A row has a vector; it lies elsewhere."""
        del row
        length = len(packed) // np.dtype(VECTOR_DTYPE).itemsize
        self.dimensions = self.dimensions or length
        if length != self.dimensions:
            raise EmbeddingModelMismatch(
                f"a vector has {length} dimensions where others have {self.dimensions}",
                hint="`memrecall reindex` makes them anew",
            )

    def hold(self, products: Floats) -> None:
        """Take the products of a question with all rows."""
        self._products = products

    def similarities(self, query: Floats, rows: int) -> Floats:
        """The cosine of the question with each row; 0 where a row has no vector."""
        held = np.zeros(rows, dtype=np.float32)
        held[: len(self._products)] = self._products[:rows]
        return held

    def exact_cosines(self, query: Floats, rows: Numbers, digits: int) -> Floats:
        """The cosine of the question with some rows."""
        cosines = np.clip(self._products[rows].astype(np.float64), -1.0, 1.0)
        return np.round(cosines, digits).astype(np.float32)

    def dump(self, rows: int) -> npt.NDArray[np.float16]:
        """Nothing: a snapshot need not have what lies elsewhere."""
        return np.zeros((rows, 0), dtype=VECTOR_DTYPE)


class ExternalVectors:
    """Decides whose vectors lie elsewhere, and brings them up to date there."""

    def __init__(self, db: VectorDB, store: Store, model: str, most_rows: int) -> None:
        self._db = db
        self._store = store
        self._model = model
        self._most_rows = most_rows

    async def wants(self, user_id: str) -> bool:
        """Whether a user has more vectors than should lie in memory."""
        return await self._store.vectors(self._model).count(user_id) > self._most_rows

    def outgrown(self, columns: Columns) -> bool:
        """Whether columns hold more vectors than they should."""
        held = not isinstance(columns.vectors, ExternalUserVectors)
        return held and columns.rows > self._most_rows and columns.embedded_rows() > self._most_rows

    async def bring(self, columns: Columns, mark: UserVersion, question: Floats) -> None:
        """Have the products of a question at hand, if the columns' vectors lie elsewhere."""
        if not isinstance(columns.vectors, ExternalUserVectors):
            return
        user_id = columns.vectors.user_id
        history = f"{mark.epoch}/{self._model}"
        done, _ = await self._db.progress(user_id, history)
        if done < mark.version:
            runs = self._store.feed(user_id).vectors(done, mark.version, self._model)
            async for through, rows in runs:
                await self._db.take(user_id, history, through, rows)
        _, dimensions = await self._db.progress(user_id, history)
        columns.vectors.dimensions = dimensions
        if dimensions == len(question):  # else it is refused by whoever knows where it came from
            numbers, products = await self._db.products(user_id, question)
            columns.vectors.hold(_by_row(columns, numbers, products))

    async def forget(self, user_id: str) -> None:
        """Leave nothing of a user there."""
        await self._db.forget(user_id)

    async def close(self) -> None:
        """Give everything back."""
        await self._db.close()


def _by_row(columns: Columns, numbers: Numbers, products: Floats) -> Floats:
    """The products in the order of the rows: a vector is known by the change that bore it."""
    held = np.zeros(columns.rows, dtype=np.float32)
    born = columns.table.vector_born
    order = np.argsort(born, kind="stable")
    places = np.searchsorted(born[order], numbers)
    places[places == len(order)] = 0
    rows = order[places] if len(order) else places
    known = born[rows] == numbers if len(order) else np.zeros(0, dtype=np.bool_)
    held[rows[known]] = products[known]
    return held
