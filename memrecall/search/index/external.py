"""Vectors outside this process, for users who have more of them than should be in memory.

A search needs the same thing of them: the product of the query with every row, so that all users
are ranked alike. They are derived data, copied from the user's changes up to a change number, and
copied again from the start when the history was rewritten (a new epoch).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from memrecall.search.index import Floats, Rows
from memrecall.search.index.columns import Columns
from memrecall.search.index.vectors import ExternalUserVectors
from memrecall.store import Store


class VectorDB(Protocol):
    """A database that stores users' vectors and multiplies them with a query vector."""

    async def progress(self, user_id: str, history: str) -> tuple[int, int]:
        """Return the last copied change number (0: none) and the vector length."""
        ...

    async def take(self, user_id: str, history: str, through: int, rows: Sequence[Any]) -> None:
        """Store vectors (`kind`, `key`, `change_no`, `vector`: 16-bit floats) up to a change.

        Vectors of another history replace all that is stored of the user.
        """
        ...

    async def products(self, user_id: str, question: Floats) -> tuple[Rows, Floats]:
        """Return the change numbers of a user's vectors, and their products with a query."""
        ...

    async def forget(self, user_id: str) -> None:
        """Delete everything of a user."""
        ...

    async def forget_rows(self, user_id: str, keys: Mapping[str, Sequence[str]]) -> None:
        """Delete the vectors of erased rows, by kind."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


MAX_ROWS_IN_MEMORY = 200_000  # of vectors of a user; larger users' vectors stay in the database


class ExternalVectors:
    """The vector database of a library: selects the users that need it and keeps it current."""

    def __init__(self, db: VectorDB, store: Store, model: str) -> None:
        self._db = db
        self._store = store
        self._model = model

    async def applies_to(self, user_id: str) -> bool:
        """Return True if a user has more vectors than should be in memory."""
        return await self._store.vectors(self._model).count(user_id) > MAX_ROWS_IN_MEMORY

    def has_outgrown(self, columns: Columns) -> bool:
        """Return True if columns have more vectors in memory than they should."""
        if isinstance(columns.vectors, ExternalUserVectors) or columns.rows <= MAX_ROWS_IN_MEMORY:
            return False
        return int(np.count_nonzero(columns.embedded(columns.version))) > MAX_ROWS_IN_MEMORY

    async def fetch_products(self, columns: Columns, query: Floats) -> None:
        """Fetch the products of a query if the vectors of the columns are external."""
        if not isinstance(columns.vectors, ExternalUserVectors):
            return
        user_id = columns.vectors.user_id
        history = f"{columns.epoch}/{self._model}"
        copied, _ = await self._db.progress(user_id, history)
        if copied < columns.version:
            batches = self._store.feed(user_id).vectors(copied, columns.version, self._model)
            async for through, rows in batches:
                await self._db.take(user_id, history, through, rows)
        _, dimensions = await self._db.progress(user_id, history)
        columns.vectors.dimensions = dimensions
        # A query of another length is rejected by the caller, which knows where it came from.
        if dimensions == len(query):
            numbers, products = await self._db.products(user_id, query)
            columns.vectors.products = _by_row(columns, numbers, products)


def _by_row(columns: Columns, numbers: Rows, products: Floats) -> Floats:
    """Return products by row; a vector is identified by the change that created it."""
    by_row = np.zeros(columns.rows, dtype=np.float32)
    if not columns.rows:
        return by_row
    born = columns.table.vector_born
    order = np.argsort(born, kind="stable")
    places = np.searchsorted(born[order], numbers)
    places[places == len(order)] = 0
    rows = order[places]
    is_known = born[rows] == numbers
    by_row[rows[is_known]] = products[is_known]
    return by_row
