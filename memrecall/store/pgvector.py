"""Vectors in pgvector: multiplied in the PostgreSQL server, beside the rows they were made of."""

from collections.abc import Sequence
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
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import UserDefinedType

from memrecall.errors import InvalidArgument, StorageError
from memrecall.store.database.engine import Database
from memrecall.store.database.tables import id_type
from memrecall.store.vectors import VECTOR_DTYPE
from memrecall.types import ID_LENGTH

_LOCK = 0x6D656D76  # "memv": the same for every process that makes the tables
_HISTORY = 400


_EXTENSION: Any = DDL("CREATE EXTENSION IF NOT EXISTS vector")  # type: ignore[no-untyped-call]


_NOTHING = cast(literal(b""), LargeBinary)


class _Half(UserDefinedType[Any]):
    """pgvector's vector of 16-bit floats."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "halfvec"


class _Single(UserDefinedType[Any]):
    """pgvector's vector of 32-bit floats, in which products are as exact as they are in memory."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "vector"


# Not among the store's tables: derived, only on PostgreSQL, and only where a setting asks for it.
_metadata = MetaData()
far_vectors = Table(
    "far_vectors",
    _metadata,
    Column("user_id", id_type(), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("key", id_type(), nullable=False),
    Column("change_no", BigInteger, nullable=False),
    Column("embedding", _Half(), nullable=False),
    PrimaryKeyConstraint("user_id", "kind", "key"),
)
far_marks = Table(
    "far_marks",
    _metadata,
    Column("user_id", String(ID_LENGTH), primary_key=True),
    Column("history", String(_HISTORY), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("dimensions", Integer, nullable=False),
)


class PgVectors:
    """Users' vectors in the database of the store, which must be PostgreSQL with pgvector."""

    def __init__(self, database: Database) -> None:
        if database.is_sqlite:
            raise InvalidArgument(
                "vector_db 'pgvector' needs a PostgreSQL database", hint="Set db, or leave it out"
            )
        self._database = database
        self._ready = False

    async def progress(self, user_id: str, history: str) -> tuple[int, int]:
        """The change up to which a user's vectors of that history were taken (0: none), and how
        many dimensions they have.
        """
        wanted = select(far_marks.c.version, far_marks.c.dimensions).where(
            far_marks.c.user_id == user_id, far_marks.c.history == history
        )
        rows = await self._database.fetch(wanted)
        return (int(rows[0].version), int(rows[0].dimensions)) if rows else (0, 0)

    async def take(self, user_id: str, history: str, through: int, rows: Sequence[Any]) -> None:
        """Take vectors up to a change; of another history, instead of all that was there."""
        await self._database.transact(lambda c: _take(c, user_id, history, through, rows))

    async def products(
        self, user_id: str, question: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The change numbers of all vectors of a user, and their products with a question."""
        asked = cast(bindparam("asked", type_=ARRAY(REAL)), _Single())
        product = cast(far_vectors.c.embedding, _Single()).op("<#>")(asked)  # less than 0: near
        # As two packed runs of bytes: a row for each vector would take ten times as long to read.
        packed = (
            func.string_agg(func.int8send(far_vectors.c.change_no), _NOTHING).label("numbers"),
            func.string_agg(func.float4send(cast(-product, REAL)), _NOTHING).label("products"),
        )
        wanted = select(*packed).where(far_vectors.c.user_id == user_id)
        (row,) = await self._database.fetch(wanted, {"asked": question.tolist()})
        numbers = np.frombuffer(row.numbers or b"", dtype=">i8").astype(np.int64)
        products = np.frombuffer(row.products or b"", dtype=">f4").astype(np.float32)
        return numbers, products

    async def forget(self, user_id: str) -> None:
        """Leave nothing of a user."""
        await self._database.transact(lambda c: _forget(c, user_id))

    async def close(self) -> None:
        """The database is closed with its store."""

    async def prepare(self) -> None:
        """Make the tables, if they are not there."""
        if not self._ready:
            try:
                await self._database.transact(_make_tables)
            except StorageError as error:
                raise InvalidArgument(
                    f"pgvector cannot be used: {error.message}",
                    hint="Install the extension `vector` on the server, or leave out vector_db",
                ) from error
            self._ready = True


async def _make_tables(connection: AsyncConnection) -> None:
    await connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    await connection.execute(_EXTENSION)
    await connection.run_sync(_metadata.create_all)


async def _take(
    connection: AsyncConnection, user_id: str, history: str, through: int, rows: Sequence[Any]
) -> None:
    known = (
        await connection.execute(
            select(far_marks).where(far_marks.c.user_id == user_id).with_for_update()
        )
    ).one_or_none()
    if known is not None and known.history != history:
        await _forget(connection, user_id)
        known = None
    if known is not None and known.version >= through:
        return  # another process has taken them meanwhile
    dimensions = known.dimensions if known is not None else 0
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
        await connection.execute(_upsert(), values)
    now = {"history": history, "version": through, "dimensions": dimensions}
    marked = insert(far_marks).values(user_id=user_id, **now)
    await connection.execute(marked.on_conflict_do_update(index_elements=["user_id"], set_=now))


def _upsert() -> Any:
    names = ("user_id", "kind", "key", "change_no")
    numbers = cast(bindparam("numbers", type_=ARRAY(REAL)), _Half())
    made = insert(far_vectors).values(
        {**{name: bindparam(name) for name in names}, "embedding": numbers}
    )
    fresh = {name: made.excluded[name] for name in ("change_no", "embedding")}
    return made.on_conflict_do_update(index_elements=["user_id", "kind", "key"], set_=fresh)


async def _forget(connection: AsyncConnection, user_id: str) -> None:
    for table in (far_vectors, far_marks):
        await connection.execute(delete(table).where(table.c.user_id == user_id))
