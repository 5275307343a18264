"""Vectors: derived from rows, stored with the model that made them, replaceable at any time.

They are kept as 16-bit floats: half the disk and memory traffic, and the cosine of two unit
vectors moves by less than 0.001.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Select, and_, func, literal, null, select, union_all
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import EmbeddingModelMismatch
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import Locks, lock_users
from memrecall.store.database.statements import insert_missing, select_by_keys
from memrecall.store.database.tables import memories, messages, meta, vectors

VECTOR_DTYPE = np.float16
_MEMORY_TEXT = memories.c.summary + "\n" + memories.c.content


@dataclass(frozen=True, slots=True)
class RowKey:
    """Names one row of user data."""

    user_id: str
    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class PendingText:
    """A row that needs a vector, and the text to make it from."""

    row: RowKey
    text: str


class VectorStore:
    """Stores the vectors of one embedding model."""

    def __init__(self, database: Database, model: str) -> None:
        self._database = database
        self.model = model

    async def check_model(self) -> None:
        """Refuse a database whose vectors another model made."""
        async with self._database.autocommit() as connection:
            stored = await _stored_model(connection)
        if stored not in (None, self.model):
            raise EmbeddingModelMismatch(
                f"{self._database.location} has vectors of {stored!r}, not {self.model!r}",
                hint="`memrecall reindex` makes them anew, or choose the old model",
            )

    async def ensure_model(self) -> None:
        """Make this the model of a database that has none yet; refuse another one's."""
        await self._database.transact(self._take_over)
        await self.check_model()

    async def set_model(self) -> None:
        """From now on the database's model is this one; older vectors count as missing."""
        await self._database.transact(self._set_model)

    async def _take_over(self, connection: AsyncConnection) -> None:
        await insert_missing(connection, meta, [{"name": "embedding_model", "value": self.model}])

    async def _set_model(self, connection: AsyncConnection) -> None:
        await self._take_over(connection)
        await connection.execute(
            meta.update().where(meta.c.name == "embedding_model").values(value=self.model)
        )

    async def write(
        self, items: Sequence[PendingText], matrix: npt.NDArray[np.float32]
    ) -> list[RowKey]:
        """Store a vector for each row that still has the text it was made from.

        Returns the rows whose text has changed meanwhile; rows that are gone are skipped.
        """
        if not items:
            return []
        return await self._database.transact(lambda c: self._write(c, items, matrix))

    async def _write(
        self,
        connection: AsyncConnection,
        items: Sequence[PendingText],
        matrix: npt.NDArray[np.float32],
    ) -> list[RowKey]:
        now = datetime.now(UTC)
        locked = await lock_users(connection, {item.row.user_id for item in items})
        claims = Locks(now, {user: state.version for user, state in locked.items()}, {})
        # A row may have been erased or reworded while it was being embedded.
        current = await _current_texts(connection, [item.row for item in items])
        packed = matrix.astype(VECTOR_DTYPE)
        values = [
            {
                **asdict(item.row),
                "model": self.model,
                "dimensions": packed.shape[1],
                "vector": packed[at].tobytes(),
                "change_no": claims.next_change(item.row.user_id),
            }
            for at, item in enumerate(items)
            if item.row in current and current[item.row] in (None, item.text)
        ]
        if values:
            await connection.execute(_upsert(connection), values)
            await claims.release(connection, active=False)
        return [item.row for item in items if current.get(item.row) not in (None, item.text)]

    async def pending(self, limit: int, user_id: str | None = None) -> list[PendingText]:
        """Rows without a vector of this model: one user's, or anybody's for an operator."""
        async with self._database.autocommit() as connection:
            result = await connection.execute(self._pending(user_id).limit(limit))
            return [
                PendingText(RowKey(row.user_id, row.kind, row.key), row.text.strip())
                for row in result
            ]

    async def count(self, user_id: str) -> int:
        """How many vectors of this model a user has."""
        wanted = select(func.count()).select_from(vectors)
        of_user = (vectors.c.user_id == user_id, vectors.c.model == self.model)
        async with self._database.autocommit() as connection:
            return int(await connection.scalar(wanted.where(*of_user)) or 0)

    async def count_pending(self, user_id: str | None = None) -> int:
        """How many rows `pending` would give in all."""
        wanted = select(func.count()).select_from(self._pending(user_id).subquery())
        async with self._database.autocommit() as connection:
            return int(await connection.scalar(wanted) or 0)

    def _pending(self, user_id: str | None) -> Select[Any]:
        parts = [
            self._without_vector("message", messages, messages.c.message_id, messages.c.content),
            self._without_vector("memory", memories, memories.c.memory_key, _MEMORY_TEXT).where(
                memories.c.deleted_at.is_(None)
            ),
        ]
        both = union_all(*parts).subquery()
        wanted = select(both)
        return wanted if user_id is None else wanted.where(both.c.user_id == user_id)

    def _without_vector(self, kind: str, table: Any, key: Any, text: Any) -> Select[Any]:
        same_row = and_(
            vectors.c.user_id == table.c.user_id,
            vectors.c.kind == kind,
            vectors.c.key == key,
            vectors.c.model == self.model,
        )
        columns = (table.c.user_id, literal(kind).label("kind"), key.label("key"))
        joined = table.outerjoin(vectors, same_row)
        wanted = select(*columns, text.label("text")).select_from(joined)
        return wanted.where(vectors.c.key.is_(None))


async def _stored_model(connection: AsyncConnection) -> str | None:
    return await connection.scalar(select(meta.c.value).where(meta.c.name == "embedding_model"))


async def _current_texts(
    connection: AsyncConnection, rows: Sequence[RowKey]
) -> dict[RowKey, str | None]:
    """The text of each row that exists; None for messages, which never change."""
    texts: dict[RowKey, str | None] = {}
    for kind, table, key, text in (
        ("message", messages, messages.c.message_id, null()),
        ("memory", memories, memories.c.memory_key, _MEMORY_TEXT),
    ):
        keys = [(row.user_id, row.key) for row in rows if row.kind == kind]
        wanted = select(table.c.user_id, key.label("key"), text.label("text"))
        for row in await select_by_keys(connection, wanted, [table.c.user_id, key], keys):
            stored = row["text"]
            texts[RowKey(row["user_id"], kind, row["key"])] = stored and stored.strip()
    return texts


def _upsert(connection: AsyncConnection) -> Any:
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(vectors)
    replaced = {name: statement.excluded[name] for name in ("model", "dimensions", "vector")}
    return statement.on_conflict_do_update(
        index_elements=["user_id", "kind", "key"],
        set_={**replaced, "change_no": statement.excluded.change_no},
    )
