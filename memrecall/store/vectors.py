"""Vectors: derived from rows, stored with the model that made them, replaceable at any time.

They are stored as 16-bit floats: half the disk and memory traffic, and the cosine of two unit
vectors moves by less than 0.001.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    delete,
    func,
    literal,
    null,
    or_,
    select,
    union_all,
    update,
)

from memrecall.errors import EmbeddingModelMismatch, StorageError
from memrecall.store.database.distribution import begin_distributed_changes
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import MARK_NAME, Locks, forget_mark, lock_users
from memrecall.store.database.statements import insert_missing, select_by_keys, upsert
from memrecall.store.database.tables import knowledge, memories, messages, meta, users, vectors
from memrecall.store.knowledge import take_change_numbers
from memrecall.store.messages import group_positions
from memrecall.store.texts import knowledge_text

VECTOR_DTYPE = np.float16
_MODEL_NAME = "embedding_model"  # the row of `meta`
_SIZE_NAME = "embedding_dimensions"  # another one: the length of its vectors
EMBEDDING_FACTS = (_MODEL_NAME, _SIZE_NAME)
_FACTS = select(meta.c.name, meta.c.value).where(meta.c.name.in_(EMBEDDING_FACTS))
LEASE_NAME = "embedding_process"  # another one: which process embeds, and until when
_MOST_ASKED = 1_000  # users of other processes in that row
_MEMORY_TEXT = memories.c.summary + "\n" + memories.c.content
# Of messages none, because they never change.
_TEXTS: dict[str, tuple[Any, Any]] = {
    "message": (messages.c.message_id, null()),
    "memory": (memories.c.memory_key, _MEMORY_TEXT),
}

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RowKey:
    """The key of one row of user data."""

    user_id: str
    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class PendingText:
    """A row that needs a vector, and the text to make it from."""

    row: RowKey
    text: str
    change_no: int = field(default=0, compare=False)


def _without_vector(kind: str, table: Any, key: Any, text: Any) -> Select[Any]:
    same_row = (vectors.c.user_id == table.c.user_id, vectors.c.kind == kind, vectors.c.key == key)
    # Not a join: of tables that it has not analyzed yet, PostgreSQL compares all pairs of rows.
    vector = select(vectors.c.key).where(*same_row, vectors.c.model == bindparam("of_model"))
    columns = (table.c.user_id, literal(kind).label("kind"), key.label("key"), text.label("text"))
    statement = select(*columns, table.c.change_no).where(vector.scalar_subquery().is_(None))
    return statement.where(table.c.deleted_at.is_(None))


def _pending_of_user() -> Select[Any]:
    """Return the query for a user's rows without a vector in the order of their changes.

    The last row is the user, with the number of the latest change.
    """
    of_user: Any = bindparam("of_user")
    parts = []
    for part, table in zip(_WITHOUT_VECTOR, (messages, memories), strict=True):
        later = part.where(table.c.user_id == of_user, table.c.change_no > bindparam("after"))
        # Each part has its limit: a large backlog is not sorted for every batch.
        limited = later.order_by(table.c.change_no).limit(bindparam("most", 0))
        parts.append(select(limited.subquery()))
    columns = (users.c.user_id, literal("user"), literal(""), literal(""), users.c.version)
    both = union_all(*parts, select(*columns).where(users.c.user_id == of_user)).subquery()
    return select(both).order_by(both.c.change_no, both.c.kind == "user")


_WITHOUT_VECTOR: Sequence[Select[Any]] = (
    _without_vector("message", messages, messages.c.message_id, messages.c.content),
    _without_vector("memory", memories, memories.c.memory_key, _MEMORY_TEXT),
)
_PENDING = _pending_of_user()  # Built once, because every write is followed by one.


class VectorStore:
    """The vectors of one embedding model."""

    def __init__(self, database: Database, model: str) -> None:
        self._database = database
        self.model = model
        self._meta = {"name": _MODEL_NAME, "value": model}

    async def check_model(self, size: int | None = None) -> int | None:
        """Return the length of the database's vectors; None while it is not known.

        Raises EmbeddingModelMismatch if another model made them, or if they are not of this size.
        """
        facts = {row.name: row.value for row in await self._database.fetch(_FACTS)}
        model = facts.get(_MODEL_NAME)
        if model not in (None, self.model):
            raise EmbeddingModelMismatch(
                f"{self._database.location} has vectors of {model!r}, not {self.model!r}",
                hint="Run `memrecall reindex` to embed all rows again, or use the old model",
            )
        stored = int(facts[_SIZE_NAME]) if model and _SIZE_NAME in facts else None
        if size is not None and stored not in (None, size):
            raise EmbeddingModelMismatch(
                f"{self._database.location} has vectors of {stored} numbers, and {self.model!r} "
                f"now returns {size}",
                hint="Use the embedder that made them, or run `memrecall reindex` to replace them",
            )
        return stored

    async def ensure_model(self) -> None:
        """Make this the model of a database that has none; refuse another model."""
        await self._database.transact(self._claim_model)
        await self.check_model()

    def _claim_model(self, connection: Connection) -> None:
        if self._database.is_distributed:
            begin_distributed_changes(connection)
        insert_missing(connection, meta, [self._meta])
        facts = {row.name: row.value for row in connection.execute(_FACTS)}
        if _SIZE_NAME in facts or facts[_MODEL_NAME] != self.model:
            return
        # An earlier version stored vectors without noting their size, and accepted several.
        sizes = select(vectors.c.dimensions).where(vectors.c.model == self.model)
        sizes = sizes.group_by(vectors.c.dimensions).order_by(func.count().desc()).limit(1)
        size = connection.scalar(sizes)
        if size is not None:
            self._set_size(connection, size)

    def _set_size(self, connection: Connection, size: int) -> bool:
        """Note the size of this model's vectors; remove the others and return if there are any."""
        row = {"name": _SIZE_NAME, "value": str(size)}
        connection.execute(upsert(connection, meta, ["value"]), row)
        others = (vectors.c.model == self.model, vectors.c.dimensions != size)
        removed = connection.execute(delete(vectors).where(*others))
        has_other = func.length(knowledge.c.vector) != size * np.dtype(VECTOR_DTYPE).itemsize
        statement = update(knowledge).where(knowledge.c.model == self.model, has_other)
        changed = connection.execute(statement.values(model=None, vector=None))
        return bool(removed.rowcount or changed.rowcount)

    async def set_model(self, size: int) -> bool:
        """Make this the database's model; rows with other vectors become pending.

        Return whether there were vectors of another size, which indexes still have.
        """

        def work(connection: Connection) -> bool:
            if self._database.is_distributed:
                begin_distributed_changes(connection)
            connection.execute(upsert(connection, meta, ["value"]), self._meta)
            forget_mark(connection)
            return self._set_size(connection, size)

        return await self._database.transact(work)

    async def bind_size(self, size: int) -> None:
        """Make this the size of the vectors of a database that has none; refuse another size."""

        def work(connection: Connection) -> None:
            facts = {row.name: row.value for row in connection.execute(_FACTS)}
            if facts.get(_MODEL_NAME) == self.model:
                insert_missing(connection, meta, [{"name": _SIZE_NAME, "value": str(size)}])

        if await self.check_model(size) is None:
            await self._database.transact(work)
            await self.check_model(size)

    async def mark(self) -> datetime | None:
        """Return since when a user must have been active to have rows without a vector."""
        statement = select(meta.c.value).where(meta.c.name == MARK_NAME)
        rows = await self._database.fetch(statement)
        return datetime.fromisoformat(rows[0].value) if rows else None

    async def set_mark(self, moment: datetime) -> None:
        """Note that users who were not active since a moment have no rows without a vector."""
        row = {"name": MARK_NAME, "value": moment.isoformat()}
        await self._database.transact(lambda c: c.execute(upsert(c, meta, ["value"]), row))

    async def write(self, items: Sequence[PendingText], matrix: Matrix) -> None:
        """Store a vector for each row that still exists with the text it was made from.

        Raises EmbeddingModelMismatch if the database has vectors of another size.
        """
        if not items:
            return
        await self.bind_size(matrix.shape[1])
        if self._database.is_distributed:
            await self._write_by_user(items, matrix)
        else:
            await self._database.transact(lambda c: self._write(c, items, matrix))

    async def _write_by_user(self, items: Sequence[PendingText], matrix: Matrix) -> None:
        """Store the vectors user by user, so that a failed node affects its own users only."""
        failures: list[StorageError] = []
        for places in group_positions(item.row.user_id for item in items).values():
            part = [items[place] for place in places]
            work = partial(self._write, items=part, matrix=matrix[places])
            try:
                await self._database.transact(work, retry=False)
            except StorageError as error:
                failures.append(error)
        if failures:  # those rows stay pending
            raise failures[0]

    def _write(self, connection: Connection, items: Sequence[PendingText], matrix: Matrix) -> None:
        locked = lock_users(connection, {item.row.user_id for item in items})
        locks = Locks(datetime.now(UTC), {name: user.version for name, user in locked.items()}, {})
        # A row may have been erased or changed while it was being embedded.
        current: dict[RowKey, str | None] = {}  # the texts of rows that exist; messages have None
        for kind, (key, text) in _TEXTS.items():
            keys = [(item.row.user_id, item.row.key) for item in items if item.row.kind == kind]
            owner = key.table.c.user_id
            statement = select(owner, key.label("key"), text.label("text"))
            for row in select_by_keys(connection, statement, (owner, key), keys):
                stored = row["text"]
                current[RowKey(row["user_id"], kind, row["key"])] = stored and stored.strip()
        packed = matrix.astype(VECTOR_DTYPE)
        rows = [
            {
                "user_id": item.row.user_id,
                "kind": item.row.kind,
                "key": item.row.key,
                "model": self.model,
                "dimensions": packed.shape[1],
                "vector": packed[index].tobytes(),
                "change_no": locks.next_change(item.row.user_id),
            }
            for index, item in enumerate(items)
            if item.row in current and current[item.row] in (None, item.text)
        ]
        if rows:
            # A search and the background may both embed a row. The vector that came first stays:
            # with the number of a later change, a search of the version between would not see it.
            columns = ("model", "dimensions", "vector", "change_no")
            change = upsert(connection, vectors, columns, if_changed=("model", "dimensions"))
            connection.execute(change, rows)
            locks.save(connection, is_activity=False)

    async def pending(
        self, user_id: str, limit: int, after: int = 0
    ) -> tuple[list[PendingText], int]:
        """Return a user's first rows after a change without a vector of this model.

        The number says up to which change no other row lacks one.
        """
        bounds = {"of_user": user_id, "of_model": self.model, "after": after, "most": limit}
        rows = await self._database.fetch(_PENDING, bounds)
        texts = [
            PendingText(RowKey(row.user_id, row.kind, row.key), row.text.strip(), row.change_no)
            for row in rows[:-1][:limit]
        ]
        last = texts if len(texts) == limit else rows
        return texts, last[-1].change_no if last else 0

    async def count(self, user_id: str) -> int:
        """Return the number of a user's vectors of this model."""
        statement = select(func.count().label("n")).select_from(vectors)
        of_user = (vectors.c.user_id == user_id, vectors.c.model == self.model)
        return int((await self._database.fetch(statement.where(*of_user)))[0].n)

    async def count_pending(self, user_id: str | None = None) -> int:
        """Return the number of rows without a vector of this model: one user's, or all."""
        return sum((await self.count_by_user(None if user_id is None else [user_id])).values())

    async def count_by_user(self, user_ids: Sequence[str] | None) -> dict[str, int]:
        """Return how many rows of users, or of all, have no vector of this model."""
        parts = _WITHOUT_VECTOR
        if user_ids is not None:
            tables = (messages, memories)
            parts = [p.where(t.c.user_id.in_(user_ids)) for p, t in zip(parts, tables, strict=True)]
        both = union_all(*parts).subquery()
        counts = select(both.c.user_id, func.count().label("n")).group_by(both.c.user_id)
        rows = await self._database.fetch(counts, {"of_model": self.model})
        return {row.user_id: row.n for row in rows}

    async def claim(self, owner: str, seconds: float, asked: Sequence[str]) -> list[str] | None:
        """Let one process embed for some seconds; return the users that others have asked for.

        None while another process embeds: it gets those that this one asks for. In a distributed
        database every process embeds, because a write to this table needs all nodes.
        """
        if self._database.is_distributed:
            return []
        name = meta.c.name == LEASE_NAME

        def work(connection: Connection) -> list[str] | None:
            value = connection.scalar(select(meta.c.value).where(name).with_for_update())
            lease: dict[str, Any] = json.loads(value) if value else {"owner": owner, "users": []}
            others: list[str] = lease["users"]
            is_free = lease["owner"] == owner or lease["until"] <= time.time()
            if is_free:
                lease = {"owner": owner, "until": time.time() + seconds, "users": []}
            else:
                lease["users"] = sorted({*others, *asked})[:_MOST_ASKED]
            row = {"name": LEASE_NAME, "value": json.dumps(lease)}
            connection.execute(upsert(connection, meta, ["value"]), row)
            return others if is_free else None

        return await self._database.transact(work)


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """A knowledge entry without a vector of the model, and the text to make it from."""

    agent_id: str
    key: str
    change_no: int
    text: str


class KnowledgeVectors:
    """The vectors that one model made of knowledge; they are stored with the entries."""

    def __init__(self, database: Database, model: str) -> None:
        self._database = database
        self.model = model

    async def pending(self, limit: int, agent_id: str | None = None) -> list[PendingEntry]:
        """Return entries without a vector of this model: one agent's, or any agent's."""
        has_no_vector = or_(knowledge.c.model.is_(None), knowledge.c.model != self.model)
        statement = select(knowledge).where(has_no_vector, knowledge.c.deleted_at.is_(None))
        if agent_id is not None:
            statement = statement.where(knowledge.c.agent_id == agent_id)
        return [
            PendingEntry(
                row.agent_id,
                row.knowledge_key,
                row.change_no,
                knowledge_text(row.summary, row.content, row.tags),
            )
            for row in await self._database.fetch(statement.limit(limit))
        ]

    async def write(self, entries: Sequence[PendingEntry], matrix: Matrix) -> None:
        """Store the vectors of entries that were not rewritten since they were read."""
        if entries:
            await VectorStore(self._database, self.model).bind_size(matrix.shape[1])
        by_agent: dict[str, list[tuple[PendingEntry, bytes]]] = {}
        for entry, vector in zip(entries, matrix.astype(VECTOR_DTYPE), strict=True):
            by_agent.setdefault(entry.agent_id, []).append((entry, vector.tobytes()))
        for agent_id, pairs in sorted(by_agent.items()):
            await self._database.transact(partial(self._write, agent_id=agent_id, pairs=pairs))

    def _write(
        self,
        connection: Connection,
        agent_id: str,
        pairs: Sequence[tuple[PendingEntry, bytes]],
    ) -> None:
        numbers = take_change_numbers(connection, agent_id, len(pairs))
        for number, (entry, packed) in zip(numbers, pairs, strict=True):
            statement = update(knowledge).where(
                knowledge.c.agent_id == agent_id,
                knowledge.c.knowledge_key == entry.key,
                knowledge.c.change_no == entry.change_no,
            )
            values = {"model": self.model, "vector": packed, "change_no": number}
            connection.execute(statement.values(**values))
