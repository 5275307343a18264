"""Vectors in pgvector: the PostgreSQL server multiplies them, beside the rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import (
    DDL,
    REAL,
    BigInteger,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    bindparam,
    cast,
    delete,
    func,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import UserDefinedType

from memrecall.errors import InvalidArgument, StorageError
from memrecall.store.database.distribution import lock_schema
from memrecall.store.database.engine import Database
from memrecall.store.database.statements import split, upsert
from memrecall.store.database.tables import id_type
from memrecall.store.vectors import VECTOR_DTYPE
from memrecall.types import ID_LENGTH

_LOCK_KEY = 0x6D656D76  # "memv": the same for every process that creates the tables
_HISTORY_LENGTH = 400
_CREATE_EXTENSION: Any = DDL(  # type: ignore[no-untyped-call]
    "CREATE EXTENSION IF NOT EXISTS vector"
)
_NO_SEPARATOR = cast(literal(b""), LargeBinary)


class _Vector(UserDefinedType[Any]):
    """A type of the extension."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


_HALF = _Vector("halfvec")  # 16-bit floats
_SINGLE = _Vector("vector")  # 32-bit floats, in which products are as exact as in memory
# Not among the store's tables: derived, and only on PostgreSQL where a setting asks for it.
_metadata = MetaData()
far_vectors = Table(
    "far_vectors",
    _metadata,
    Column("user_id", id_type(), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("key", id_type(), nullable=False),
    Column("change_no", BigInteger, nullable=False),
    Column("embedding", _HALF, nullable=False),
    PrimaryKeyConstraint("user_id", "kind", "key"),
)
far_marks = Table(
    "far_marks",
    _metadata,
    Column("user_id", String(ID_LENGTH), primary_key=True),
    Column("history", String(_HISTORY_LENGTH), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("dimensions", Integer, nullable=False),
)


class PgVectors:
    """Users' vectors in the database of the store, which must be PostgreSQL with pgvector."""

    def __init__(self, database: Database) -> None:
        if database.file is not None:
            raise InvalidArgument(
                "vector_db 'pgvector' needs a PostgreSQL database",
                hint="Set db to a postgresql:// URL, or leave out vector_db",
            )
        self._database = database
        self._ready = False

    async def progress(self, user_id: str, history: str) -> tuple[int, int]:
        """Return the last change copied of a user's history (0: none), and the dimensions."""
        statement = select(far_marks.c.version, far_marks.c.dimensions).where(
            far_marks.c.user_id == user_id, far_marks.c.history == history
        )
        rows = await self._database.fetch(statement)
        return (int(rows[0].version), int(rows[0].dimensions)) if rows else (0, 0)

    async def take(self, user_id: str, history: str, through: int, rows: Sequence[Any]) -> None:
        """Store vectors up to a change; those of another history are replaced."""
        await self._database.transact(lambda c: _store(c, user_id, history, through, rows))

    async def products(
        self, user_id: str, query: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the change numbers of a user's vectors, and their products with a query."""
        vector = cast(bindparam("query", type_=ARRAY(REAL)), _SINGLE)
        # The operator returns the negative product.
        product = -cast(far_vectors.c.embedding, _SINGLE).op("<#>")(vector)
        numbers_packed = func.int8send(far_vectors.c.change_no)
        products_packed = func.float4send(cast(product, REAL))
        # As two strings of bytes: a row for each vector would take ten times as long to read.
        statement = select(
            func.string_agg(numbers_packed, _NO_SEPARATOR).label("numbers"),
            func.string_agg(products_packed, _NO_SEPARATOR).label("products"),
        ).where(far_vectors.c.user_id == user_id)
        (row,) = await self._database.fetch(statement, {"query": query.tolist()})
        numbers = np.frombuffer(row.numbers or b"", dtype=">i8").astype(np.int64)
        products = np.frombuffer(row.products or b"", dtype=">f4").astype(np.float32)
        return numbers, products

    async def forget(self, user_id: str) -> None:
        """Remove everything of a user."""
        await self._database.transact(lambda c: _forget(c, user_id))

    async def forget_rows(self, user_id: str, keys: Mapping[str, Sequence[str]]) -> None:
        """Remove the vectors of some rows, by kind."""

        async def work(connection: AsyncConnection) -> None:
            for kind, names in keys.items():
                of_kind = (far_vectors.c.user_id == user_id, far_vectors.c.kind == kind)
                for batch in split(names):
                    rows = (*of_kind, far_vectors.c.key.in_(list(batch)))
                    await connection.execute(delete(far_vectors).where(*rows))

        await self._database.transact(work)

    async def close(self) -> None:
        """Do nothing: the store closes the database."""

    async def prepare(self) -> None:
        """Create the tables if they are missing."""
        if not self._ready:
            try:
                await self._database.transact(self._create_tables)
            except StorageError as error:
                raise InvalidArgument(
                    f"pgvector cannot be used: {error.message}",
                    hint="Install the extension `vector` on the server, or leave out vector_db",
                ) from error
            self._ready = True

    async def _create_tables(self, connection: AsyncConnection) -> None:
        await lock_schema(connection, _LOCK_KEY)
        await connection.execute(_CREATE_EXTENSION)
        await connection.run_sync(_metadata.create_all)


async def _store(
    connection: AsyncConnection, user_id: str, history: str, through: int, rows: Sequence[Any]
) -> None:
    of_user = far_marks.c.user_id == user_id
    locking = select(far_marks).where(of_user).with_for_update()
    mark = (await connection.execute(locking)).one_or_none()
    if mark is not None and mark.history != history:
        await _forget(connection, user_id)
        mark = None
    if mark is not None and mark.version >= through:
        return  # another process has stored them meanwhile
    dimensions = mark.dimensions if mark is not None else 0
    if rows:
        dimensions = len(rows[0].vector) // np.dtype(VECTOR_DTYPE).itemsize
        values = [
            {
                "user_id": user_id,
                "kind": row.kind,
                "key": row.key,
                "change_no": row.change_no,
                "numbers": np.frombuffer(row.vector, dtype=VECTOR_DTYPE)
                .astype(np.float32)
                .tolist(),
            }
            for row in rows
        ]
        numbers = cast(bindparam("numbers", type_=ARRAY(REAL)), _HALF)
        statement = upsert(connection, far_vectors, ("change_no", "embedding"))
        await connection.execute(statement.values(embedding=numbers), values)
    state = {"history": history, "version": through, "dimensions": dimensions}
    await connection.execute(
        upsert(connection, far_marks, list(state)), {"user_id": user_id, **state}
    )


async def _forget(connection: AsyncConnection, user_id: str) -> None:
    for table in (far_vectors, far_marks):
        await connection.execute(delete(table).where(table.c.user_id == user_id))
