"""Change feeds: the rows and vectors of a user, or of an agent's knowledge, since a change.

The search index keeps itself current from here. A row that is erased leaves a tombstone. Erasing a
session or a user leaves nothing that could show it, so it changes the owner's `epoch`, and readers
rebuild what they derived.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Select, Table, bindparam, case, func, literal, null, or_, select

from memrecall.store.database.engine import Database
from memrecall.store.database.statements import Reads
from memrecall.store.database.tables import (
    EXPIRED_AT,
    PASSAGE,
    agents,
    knowledge,
    knowledge_bases,
    memories,
    messages,
    tombstones,
    users,
    vectors,
)

# Every change has its own number, so a range of numbers bounds the rows that are read at once.
CHANGES_PER_READ = 4_000
_LAST_CHANGE = 2**63 - 1
KNOWLEDGE = "knowledge"


@dataclass(frozen=True, slots=True)
class UserVersion:
    """The state of an owner's data: it changes whenever the data does, or a memory expires."""

    epoch: str
    version: int
    status: int
    time_zone: str
    expired_at: datetime | None = None  # the last memory

    @classmethod
    def of_row(cls, row: Any) -> "UserVersion":
        """Return the version in a row that has these columns among others."""
        return cls(*(getattr(row, name) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The rows changed in one range of numbers; up to `through` nothing is missing."""

    through: int
    messages: list[Any] = field(default_factory=list)
    memories: list[Any] = field(default_factory=list)
    vectors: list[Any] = field(default_factory=list)
    knowledge: list[Any] = field(default_factory=list)  # of an agent; a user has none
    tombstones: list[Any] = field(default_factory=list)  # of erased messages and memories


_STATE = (users.c.epoch, users.c.version, users.c.status, users.c.time_zone, EXPIRED_AT)
# Every search reads the version: built once, because building costs as much as running.
USER_VERSION = select(*_STATE).where(users.c.user_id == bindparam("of_owner"))
_KNOWLEDGE_VERSION = (
    select(
        knowledge_bases.c.epoch,
        knowledge_bases.c.version,
        agents.c.status,
        literal("UTC").label("time_zone"),
        null().label("expired_at"),
    )
    .join(agents, agents.c.agent_id == knowledge_bases.c.agent_id)
    .where(knowledge_bases.c.agent_id == bindparam("of_owner"))
)
_MESSAGE = (
    messages.c.message_id.label("key"),
    messages.c.ts,
    messages.c.role,
    messages.c.speaker,
    messages.c.agent_id,
    messages.c.project,
    messages.c.session_id,
    messages.c.sequence_no,
    messages.c.expires_at.label("valid_to"),
    messages.c.deleted_at,
    messages.c.search_text,
    or_(messages.c.content.endswith("?"), messages.c.content.endswith("？")).label("asks"),
)
_END = func.coalesce(memories.c.valid_to, memories.c.expires_at)
_MEMORY = (
    memories.c.memory_key.label("key"),
    # A memory with a beginning counts from then, not from when it was written.
    func.coalesce(memories.c.valid_from, memories.c.created_at).label("ts"),
    memories.c.memory_type,
    memories.c.agent_id,
    memories.c.project,
    memories.c.session_id,
    memories.c.sensitive,
    memories.c.valid_from,
    # A memory that has expired is not valid, whatever its own end is.
    case((memories.c.expires_at < _END, memories.c.expires_at), else_=_END).label("valid_to"),
    memories.c.deleted_at,
    memories.c.search_text,
    memories.c.provenance["conflicts_with"].label("conflicts"),
)
_TOMBSTONES = select(tombstones.c.kind, tombstones.c.key).where(tombstones.c.kind != PASSAGE)
_VECTOR = (vectors.c.kind, vectors.c.key, vectors.c.vector)
_ENTRY = (
    knowledge.c.knowledge_key.label("key"),
    knowledge.c.updated_at.label("ts"),
    literal(KNOWLEDGE).label("memory_type"),
    knowledge.c.agent_id,
    null().label("project"),
    null().label("session_id"),
    literal(False).label("sensitive"),
    null().label("valid_from"),
    null().label("valid_to"),
    knowledge.c.deleted_at,
    knowledge.c.search_text,
    null().label("conflicts"),
)
_ENTRY_VECTOR = (
    literal(KNOWLEDGE).label("kind"),
    knowledge.c.knowledge_key.label("key"),
    knowledge.c.vector,
)


def _in_range(statement: Select[Any], table: Table, *, until: str = "until") -> Select[Any]:
    """Return the query for the rows of one owner in a range of change numbers.

    Rows beyond `through`, which the last range includes, count as changed by that change.
    """
    owner = table.c["agent_id" if table is knowledge else "user_id"]
    number, through = table.c.change_no, bindparam("through", type_=BigInteger)
    counted = case((number > through, through), else_=number).label("change_no")
    in_range = statement.add_columns(counted).where(
        owner == bindparam("of_owner"),
        number > bindparam("after"),
        number <= bindparam(until, type_=BigInteger),
    )
    return in_range.order_by(number)


# Built once, like the versions: a search that follows a write executes most of these.
_OF_MODEL: Any = bindparam("of_model")
_MESSAGES = _in_range(select(*_MESSAGE), messages)
_MEMORIES = _in_range(select(*_MEMORY), memories)
# Vectors have no open end: vector databases tell them apart by their change numbers.
_VECTORS = _in_range(select(*_VECTOR).where(vectors.c.model == _OF_MODEL), vectors, until="through")
_ERASED = _in_range(_TOMBSTONES, tombstones)
_ENTRIES = _in_range(select(*_ENTRY), knowledge)
_ENTRY_VECTORS = _in_range(
    select(*_ENTRY_VECTOR).where(knowledge.c.model == _OF_MODEL, knowledge.c.vector.is_not(None)),
    knowledge,
    until="through",
)


@dataclass(frozen=True, slots=True)
class _Range:
    """The numbers from after+1 to `through` of one owner; rows up to `until` are read."""

    owner_id: str
    after: int
    through: int
    until: int

    def read(
        self, reads: Reads, queries: Mapping[str, Select[Any]], model: str | None
    ) -> RowChanges:
        """Return the rows of queries by field; without a model there are no vectors."""
        bounds = {
            "of_owner": self.owner_id,
            "after": self.after,
            "through": self.through,
            "until": self.until,
            "of_model": model,
        }
        left_out = set() if model is not None else {"vectors"}
        if not self.after:  # what was erased before the first row is in no index
            left_out.add("tombstones")
        fields = {
            name: list(reads.fetch(query, bounds))
            for name, query in queries.items()
            if name not in left_out
        }
        return RowChanges(self.through, **fields)


class _Feed:
    """What the feeds of users and of agents have in common."""

    _version: Select[Any]
    _queries: ClassVar[Mapping[str, Select[Any]]]  # by field of the changes
    _tables: ClassVar[Mapping[str, Table]]  # by kind of row
    _owner_prefix = ""

    def __init__(self, database: Database, owner_id: str) -> None:
        self._database = database
        self._owner_id = owner_id
        self.owner = self._owner_prefix + owner_id

    async def version(self) -> UserVersion | None:
        """Return the state of the data; None for an unknown owner."""
        rows = await self._database.fetch(self._version, {"of_owner": self._owner_id})
        return UserVersion.of_row(rows[0]) if rows else None

    async def has(self, kind: str, key: str, change_no: int) -> bool:
        """Return whether the row of that key has that change number or a later one."""
        table = self._tables.get(kind)
        if table is None:
            return False
        owner, key_column = table.primary_key.columns
        statement = select(table.c.change_no).where(owner == self._owner_id, key_column == key)
        rows = await self._database.fetch(statement)
        return bool(rows) and rows[0].change_no >= change_no

    async def changes(
        self, after: int, through: int, model: str | None
    ) -> AsyncIterator[RowChanges]:
        """Yield the changes numbered from after+1 to `through`, with the vectors of `model`.

        A row that is rewritten while this runs is in the last range, in its new form.
        """
        for part in self._ranges(after, through):
            read = partial(self._read, part, model)
            yield await self._database.read_together(read, is_search=True)

    def _read(self, part: _Range, model: str | None, reads: Reads) -> RowChanges:
        return part.read(reads, self._queries, model)

    def _ranges(self, after: int, through: int) -> Iterator[_Range]:
        """Yield short ranges. The last one has no end, so that no row is missing.

        The reads share no snapshot: a row that changes between them moves to a later number.
        """
        for start in range(after, through, CHANGES_PER_READ):
            end = min(start + CHANGES_PER_READ, through)
            yield _Range(self._owner_id, start, end, end if end < through else _LAST_CHANGE)


class ChangeFeed(_Feed):
    """The changes of one user."""

    _version = USER_VERSION
    _queries: ClassVar[Mapping[str, Select[Any]]] = {
        "messages": _MESSAGES,
        "memories": _MEMORIES,
        "vectors": _VECTORS,
        "tombstones": _ERASED,
    }
    _tables: ClassVar[Mapping[str, Table]] = {"message": messages, "memory": memories}

    async def vectors(
        self, after: int, through: int, model: str
    ) -> AsyncIterator[tuple[int, list[Any]]]:
        """Yield the vectors of `model` alone; up to each number nothing is missing."""
        for part in self._ranges(after, through):
            read = partial(part.read, queries={"vectors": _VECTORS}, model=model)
            rows = await self._database.read_together(read)
            yield part.through, rows.vectors


class KnowledgeFeed(_Feed):
    """The changes of one agent's knowledge, which the index treats as one more owner's rows."""

    _version = _KNOWLEDGE_VERSION
    _queries: ClassVar[Mapping[str, Select[Any]]] = {
        "vectors": _ENTRY_VECTORS,
        "knowledge": _ENTRIES,
    }
    _tables: ClassVar[Mapping[str, Table]] = {KNOWLEDGE: knowledge}
    _owner_prefix = "\0agent "  # no user's id contains a NUL
