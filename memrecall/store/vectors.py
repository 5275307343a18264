"""Vectors: derived from rows, stored with the model that made them, replaceable at any time.

They are kept as 16-bit floats: half the disk and memory traffic, and the cosine of two unit
vectors moves by less than 0.001.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Select, and_, func, literal, select, union_all
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import EmbeddingModelMismatch
from memrecall.store.claims import Claims, lock_users
from memrecall.store.engine import Database
from memrecall.store.statements import insert_missing, select_by_keys
from memrecall.store.tables import memories, messages, meta, vectors

STORED_AS = np.float16


@dataclass(frozen=True, slots=True)
class RowKey:
    """Names one row of user data."""

    user_id: str
    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class PendingText:
    """A row that has no vector of the wanted model yet, and the text to make it from."""

    row: RowKey
    text: str


class VectorStore:
    """Stores the vectors of one embedding model."""

    def __init__(self, database: Database, model: str) -> None:
        self._database = database
        self.model = model

    async def check_model(self) -> None:
        """Refuse a database whose vectors another model made."""
        async with self._database.peek() as connection:
            stored = await _stored_model(connection)
        if stored not in (None, self.model):
            raise EmbeddingModelMismatch(
                f"{self._database.place} has vectors of {stored!r}, not {self.model!r}",
                hint="`memrecall reindex` makes them anew, or choose the old model",
            )

    async def claim_model(self) -> None:
        """Make this the model of a database that has none yet; refuse another one's."""
        await self._database.transact(self._take_over)
        await self.check_model()

    async def adopt(self) -> None:
        """From now on the database's model is this one; older vectors count as missing."""
        await self._database.transact(self._set_model)

    async def _take_over(self, connection: AsyncConnection) -> None:
        await insert_missing(connection, meta, [{"name": "embedding_model", "value": self.model}])

    async def _set_model(self, connection: AsyncConnection) -> None:
        await self._take_over(connection)
        await connection.execute(
            meta.update().where(meta.c.name == "embedding_model").values(value=self.model)
        )

    async def write(self, rows: Sequence[RowKey], matrix: npt.NDArray[np.float32]) -> None:
        """Store a vector for each row that still exists, replacing an older one."""
        if rows:
            await self._database.transact(lambda c: self._write(c, rows, matrix))

    async def _write(
        self, connection: AsyncConnection, rows: Sequence[RowKey], matrix: npt.NDArray[np.float32]
    ) -> None:
        now = datetime.now(UTC)
        locked = await lock_users(connection, {row.user_id for row in rows})
        claims = Claims(now, {user: state.version for user, state in locked.items()}, {})
        # A row may have been erased while it was being embedded, perhaps with its user.
        present = await _existing(connection, rows)
        packed = matrix.astype(STORED_AS)
        values = [
            {
                "user_id": row.user_id,
                "kind": row.kind,
                "key": row.key,
                "model": self.model,
                "dimensions": packed.shape[1],
                "vector": packed[at].tobytes(),
                "change_no": claims.next_change(row.user_id),
            }
            for at, row in enumerate(rows)
            if row in present
        ]
        if values:
            await connection.execute(_upsert(connection), values)
            await claims.release(connection, active=False)

    async def pending(self, limit: int, user_id: str | None = None) -> list[PendingText]:
        """Rows without a vector of this model: one user's, or anybody's for an operator."""
        async with self._database.peek() as connection:
            result = await connection.execute(self._pending(user_id).limit(limit))
            return [
                PendingText(RowKey(row.user_id, row.kind, row.key), row.text.strip())
                for row in result
            ]

    async def count(self, user_id: str) -> int:
        """How many vectors of this model a user has."""
        wanted = select(func.count()).select_from(vectors)
        of_user = (vectors.c.user_id == user_id, vectors.c.model == self.model)
        async with self._database.peek() as connection:
            return int(await connection.scalar(wanted.where(*of_user)) or 0)

    async def count_pending(self, user_id: str | None = None) -> int:
        """How many rows `pending` would give in all."""
        wanted = select(func.count()).select_from(self._pending(user_id).subquery())
        async with self._database.peek() as connection:
            return int(await connection.scalar(wanted) or 0)

    def _pending(self, user_id: str | None) -> Select[Any]:
        summary = memories.c.summary + "\n" + memories.c.content
        parts = [
            self._without_vector("message", messages, messages.c.message_id, messages.c.content),
            self._without_vector("memory", memories, memories.c.memory_key, summary).where(
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


async def _existing(connection: AsyncConnection, rows: Sequence[RowKey]) -> set[RowKey]:
    present: set[RowKey] = set()
    for kind, table, key in (
        ("message", messages, messages.c.message_id),
        ("memory", memories, memories.c.memory_key),
    ):
        keys = [(row.user_id, row.key) for row in rows if row.kind == kind]
        wanted = select(table.c.user_id, key.label("key"))
        for row in await select_by_keys(connection, wanted, [table.c.user_id, key], keys):
            present.add(RowKey(row["user_id"], kind, row["key"]))
    return present


def _upsert(connection: AsyncConnection) -> Any:
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(vectors)
    replaced = {name: statement.excluded[name] for name in ("model", "dimensions", "vector")}
    return statement.on_conflict_do_update(
        index_elements=["user_id", "kind", "key"],
        set_={**replaced, "change_no": statement.excluded.change_no},
    )
