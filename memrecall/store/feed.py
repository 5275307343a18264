"""What changed: the rows and vectors of one user after a given change number.

Whoever derives something from a user's rows (the search index) keeps it current from here. Erasure
leaves no row behind to tell of it, so it changes the user's `epoch`: derived data starts anew.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select, bindparam, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.store.database.engine import Database
from memrecall.store.database.tables import memories, messages, users, vectors

# Every change has its own number, so a range of numbers bounds the rows held at once.
CHANGES_PER_READ = 4_000


@dataclass(frozen=True, slots=True)
class UserVersion:
    """How far a user's data has come."""

    epoch: str
    version: int
    status: int
    time_zone: str


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The rows that have a change number in one range. Up to `through` nothing is missing."""

    through: int
    messages: list[Any]
    memories: list[Any]
    vectors: list[Any]
    knowledge: list[Any] = field(default_factory=list)  # of an agent; a user has none


# Asked at every search: built once, because building costs as much as asking.
_MARK = select(users.c.epoch, users.c.version, users.c.status, users.c.time_zone).where(
    users.c.user_id == bindparam("of_user")
)
_MESSAGE = (
    messages.c.message_id.label("key"),
    messages.c.change_no,
    messages.c.ts,
    messages.c.role,
    messages.c.speaker,
    messages.c.agent_id,
    messages.c.session_id,
    messages.c.sequence_no,
    messages.c.search_text,
    or_(messages.c.content.endswith("?"), messages.c.content.endswith("？")).label("asks"),
)
# What has expired holds no longer, whatever else is known of it.
_VALID_TO = case(
    (
        func.coalesce(memories.c.valid_to, memories.c.expires_at) > memories.c.expires_at,
        memories.c.expires_at,
    ),
    else_=func.coalesce(memories.c.valid_to, memories.c.expires_at),
)
_MEMORY = (
    memories.c.memory_key.label("key"),
    memories.c.change_no,
    # What is known to hold since a time counts from then, not from when it was written down.
    func.coalesce(memories.c.valid_from, memories.c.created_at).label("ts"),
    memories.c.memory_type,
    memories.c.agent_id,
    memories.c.session_id,
    memories.c.sensitive,
    memories.c.valid_from,
    _VALID_TO.label("valid_to"),
    memories.c.deleted_at,
    memories.c.search_text,
)
_VECTOR = (vectors.c.kind, vectors.c.key, vectors.c.change_no, vectors.c.vector)


class ChangeFeed:
    """Reads one user's changes."""

    def __init__(self, database: Database, user_id: str) -> None:
        self._database = database
        self._user_id = user_id
        self.owner = user_id

    async def version(self) -> UserVersion | None:
        """Where the user stands now; None for an unknown user."""
        rows = await self._database.fetch(_MARK, {"of_user": self._user_id})
        return UserVersion(**rows[0]._mapping) if rows else None

    async def has(self, kind: str, key: str, change_no: int) -> bool:
        """Whether the row of that key carries that change number or a later one."""
        table, name = (messages, "message_id") if kind == "message" else (memories, "memory_key")
        wanted = select(table.c.change_no).where(
            table.c.user_id == self._user_id, table.c[name] == key
        )
        rows = await self._database.fetch(wanted)
        return bool(rows) and rows[0].change_no >= change_no

    async def changes(
        self, after: int, through: int, model: str | None
    ) -> AsyncIterator[RowChanges]:
        """The changes numbered from after+1 to `through`, with the vectors of `model`."""
        async with self._database.read() as connection:
            while after < through:
                upto = min(after + CHANGES_PER_READ, through)
                yield await self._range(connection, after, upto, model)
                after = upto

    async def vectors(
        self, after: int, through: int, model: str
    ) -> AsyncIterator[tuple[int, list[Any]]]:
        """The vectors of `model` alone, in runs; up to each run's number nothing is missing."""
        made = select(*_VECTOR).where(vectors.c.user_id == self._user_id, vectors.c.model == model)
        async with self._database.read() as connection:
            while after < through:
                upto = min(after + CHANGES_PER_READ, through)
                numbered = made.where(vectors.c.change_no > after, vectors.c.change_no <= upto)
                found = await connection.execute(numbered.order_by(vectors.c.change_no))
                yield upto, list(found.all())
                after = upto

    async def _range(
        self, connection: AsyncConnection, after: int, upto: int, model: str | None
    ) -> RowChanges:
        async def fetch(statement: Select[Any], table: Any) -> list[Any]:
            numbered = statement.where(
                table.c.user_id == self._user_id,
                table.c.change_no > after,
                table.c.change_no <= upto,
            )
            result = await connection.execute(numbered.order_by(table.c.change_no))
            return list(result.all())

        made = select(*_VECTOR).where(vectors.c.model == model)
        return RowChanges(
            through=upto,
            messages=await fetch(select(*_MESSAGE), messages),
            memories=await fetch(select(*_MEMORY), memories),
            vectors=[] if model is None else await fetch(made, vectors),
        )
