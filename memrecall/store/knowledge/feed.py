"""The changes of one agent's knowledge, in the form in which a user's changes come.

The search index keeps an agent's knowledge as it keeps a user's rows: an owner of its own.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import bindparam, literal, null, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.store.database.engine import Database
from memrecall.store.database.memory_tables import knowledge, knowledge_bases
from memrecall.store.database.tables import agents
from memrecall.store.feed import CHANGES_PER_READ, RowChanges, UserVersion
from memrecall.store.knowledge.entries import StoredVector, knowledge_text, next_changes
from memrecall.store.vectors import VECTOR_DTYPE

KIND = "knowledge"

_MARK = (
    select(
        knowledge_bases.c.epoch,
        knowledge_bases.c.version,
        agents.c.status,
        literal("UTC").label("time_zone"),
    )
    .join(agents, agents.c.agent_id == knowledge_bases.c.agent_id)
    .where(knowledge_bases.c.agent_id == bindparam("of_agent"))
)
_ROW = (
    knowledge.c.knowledge_key.label("key"),
    knowledge.c.change_no,
    knowledge.c.updated_at.label("ts"),
    literal(KIND).label("memory_type"),
    knowledge.c.agent_id,
    null().label("session_id"),
    literal(False).label("sensitive"),
    null().label("valid_from"),
    null().label("valid_to"),
    knowledge.c.deleted_at,
    knowledge.c.search_text,
)
_VECTOR = (
    literal(KIND).label("kind"),
    knowledge.c.knowledge_key.label("key"),
    knowledge.c.change_no,
    knowledge.c.vector,
)


class KnowledgeFeed:
    """Reads one agent's changes."""

    def __init__(self, database: Database, agent_id: str) -> None:
        self._database = database
        self._agent_id = agent_id
        self.owner = f"\0agent {agent_id}"  # no user's id contains a NUL

    async def version(self) -> UserVersion | None:
        """Where the agent's knowledge stands now; None for an agent that knows nothing."""
        rows = await self._database.fetch(_MARK, {"of_agent": self._agent_id})
        return UserVersion(**rows[0]._mapping) if rows else None

    async def has(self, kind: str, key: str, change_no: int) -> bool:
        """Whether the entry of that key carries that change number or a later one."""
        wanted = select(knowledge.c.change_no).where(
            knowledge.c.agent_id == self._agent_id, knowledge.c.knowledge_key == key
        )
        rows = await self._database.fetch(wanted)
        return kind == KIND and bool(rows) and rows[0].change_no >= change_no

    async def changes(
        self, after: int, through: int, model: str | None
    ) -> AsyncIterator[RowChanges]:
        """The changes numbered from after+1 to `through`, with the vectors of `model`."""
        async with self._database.read() as connection:
            while after < through:
                upto = min(after + CHANGES_PER_READ, through)
                yield await self._range(connection, after, upto, model)
                after = upto

    async def _range(
        self, connection: AsyncConnection, after: int, upto: int, model: str | None
    ) -> RowChanges:
        numbered = (
            knowledge.c.agent_id == self._agent_id,
            knowledge.c.change_no > after,
            knowledge.c.change_no <= upto,
        )
        rows = select(*_ROW).where(*numbered).order_by(knowledge.c.change_no)
        made = knowledge.c.model == model
        vectors = select(*_VECTOR).where(*numbered, made, knowledge.c.vector.is_not(None))
        return RowChanges(
            through=upto,
            messages=[],
            memories=[],
            vectors=[] if model is None else list((await connection.execute(vectors)).all()),
            knowledge=list((await connection.execute(rows)).all()),
        )


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """An entry that has no vector of the wanted model yet, and the text to make it from."""

    agent_id: str
    key: str
    change_no: int
    text: str


class KnowledgeVectors:
    """Vectors of knowledge, made by one model; they live beside the entries."""

    def __init__(self, database: Database, model: str) -> None:
        self._database = database
        self.model = model

    def pack(self, vector: npt.NDArray[np.float32]) -> StoredVector:
        """A vector in its stored form."""
        return StoredVector(self.model, vector.astype(VECTOR_DTYPE).tobytes())

    async def pending(self, limit: int, agent_id: str | None = None) -> list[PendingEntry]:
        """Entries without a vector of this model: one agent's, or any agent's for an operator."""
        lacking = or_(knowledge.c.model.is_(None), knowledge.c.model != self.model)
        wanted = select(knowledge).where(lacking, knowledge.c.deleted_at.is_(None))
        if agent_id is not None:
            wanted = wanted.where(knowledge.c.agent_id == agent_id)
        return [
            PendingEntry(
                row.agent_id,
                row.knowledge_key,
                row.change_no,
                knowledge_text(row.summary, row.content, row.tags),
            )
            for row in await self._database.fetch(wanted.limit(limit))
        ]

    async def write(self, entries: Sequence[PendingEntry], matrix: npt.NDArray[np.float32]) -> None:
        """Give entries their vectors, unless they were rewritten meanwhile."""
        given: dict[str, list[tuple[PendingEntry, StoredVector]]] = {}
        for entry, vector in zip(entries, matrix, strict=True):
            given.setdefault(entry.agent_id, []).append((entry, self.pack(vector)))
        for agent_id, pairs in sorted(given.items()):
            await self._database.transact(partial(_fill, agent_id=agent_id, pairs=pairs))


async def _fill(
    connection: AsyncConnection, agent_id: str, pairs: Sequence[tuple[PendingEntry, StoredVector]]
) -> None:
    numbers = await next_changes(connection, agent_id, len(pairs), datetime.now(UTC))
    for number, (entry, vector) in zip(numbers, pairs, strict=True):
        same: list[Any] = [
            knowledge.c.agent_id == agent_id,
            knowledge.c.knowledge_key == entry.key,
            knowledge.c.change_no == entry.change_no,
        ]
        filled = update(knowledge).where(*same)
        await connection.execute(
            filled.values(model=vector.model, vector=vector.packed, change_no=number)
        )
