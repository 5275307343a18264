"""Knowledge: what belongs to an agent and is shared by all its users.

Who may write it is decided here, by the permission that trusted code put into the scope. Changes
are numbered for each agent alone: what one agent knows costs no other anything.
"""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import Disabled, InvalidArgument, NotFound, StorageBusy
from memrecall.scope import Permission, Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, claim_agents
from memrecall.store.database.memory_tables import knowledge, knowledge_bases, restores
from memrecall.store.database.statements import chunks, insert_missing, new_id
from memrecall.store.memories.records import truncate
from memrecall.text import analyze
from memrecall.types import NAME_LENGTH, check_id, check_json, check_text

PREFIX = "kb-"
MOST_TAGS = 100
_PAGE = 500


@dataclass(frozen=True, slots=True)
class KnowledgeEntry:
    """Something that an agent knows."""

    knowledge_key: str
    agent_id: str
    content: str
    summary: str
    tags: list[str]
    metadata: dict[str, Any]
    actor: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewKnowledge:
    """An entry to be written; without a key it gets one, without times it is of now."""

    content: str
    summary: str = ""
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    actor: str = "memrecall"
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def row(self) -> dict[str, Any]:
        """The entry's columns, checked; InvalidArgument says what cannot be stored."""
        if not self.content.strip():
            raise InvalidArgument("the content is empty", hint="Say what is known")
        content = truncate(check_text("content", self.content))[0]
        summary = truncate(check_text("summary", self.summary))[0]
        tags = [_check_tag(tag) for tag in self.tags]
        if len(tags) > MOST_TAGS:
            raise InvalidArgument(f"{len(tags)} tags are too many", hint=f"Use up to {MOST_TAGS}")
        return {
            "knowledge_key": new_key() if self.key is None else check_id("key", self.key),
            "content": content,
            "summary": summary,
            "tags": tags,
            "metadata": check_json("metadata", dict(self.metadata)),
            "actor": check_text("actor", self.actor),
            "search_text": analyze(knowledge_text(summary, content, tags)).to_search_text(),
        }


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A vector in its stored form, and the model that made it."""

    model: str
    packed: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that an agent knew at one moment."""

    version: int
    entries: list[KnowledgeEntry]


_COLUMNS = [knowledge.c[name] for name in KnowledgeEntry.__slots__]


class Knowledge:
    """The knowledge of a scope's agent."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope
        self._agent_id = agent_of(scope)

    async def add(self, entry: NewKnowledge, vector: StoredVector | None = None) -> str:
        """Store an entry, or write it anew under its key; needs the permission `knowledge`."""
        self._require_permission()
        row = {**entry.row(), **_vector_columns(vector)}
        await self._database.transact(lambda c: self._write(c, row))
        return str(row["knowledge_key"])

    async def get(self, key: str) -> KnowledgeEntry:
        """The entry of that key; NotFound if the agent has none."""
        found = await self.get_many([key])
        if not found:
            raise NotFound(f"agent {self._agent_id!r} knows nothing under {key!r}")
        return found[0]

    async def get_many(self, keys: Sequence[str]) -> list[KnowledgeEntry]:
        """Those of the entries that exist, in no particular order."""
        found: list[KnowledgeEntry] = []
        for part in chunks(keys):
            wanted = self._select().where(knowledge.c.knowledge_key.in_(list(part)))
            found += [KnowledgeEntry(**row._mapping) for row in await self._database.fetch(wanted)]
        return found

    async def page(self, after: str = "", limit: int = _PAGE) -> list[KnowledgeEntry]:
        """Entries by their keys, those behind `after`."""
        wanted = self._select().where(knowledge.c.knowledge_key > after)
        ordered = wanted.order_by(knowledge.c.knowledge_key).limit(limit)
        return [KnowledgeEntry(**row._mapping) for row in await self._database.fetch(ordered)]

    async def all(self) -> AsyncIterator[KnowledgeEntry]:
        """Every entry by its key, as of one moment, a page at a time."""
        async with self._database.read() as connection:
            async for entry in self._all(connection):
                yield entry

    async def count(self) -> int:
        """How many entries there are."""
        counted = select(func.count()).select_from(self._select().subquery())
        return int((await self._database.fetch(counted))[0][0])

    async def delete(self, key: str) -> None:
        """Hide an entry; needs the permission `knowledge`. NotFound if the agent has none."""
        self._require_permission()
        await self._database.transact(lambda c: self._hide(c, key))

    async def snapshot(self) -> "Snapshot":
        """All entries as of one moment, and the number of the last change in them."""
        async with self._database.read() as connection:
            version = await connection.scalar(self._version())
            entries = [entry async for entry in self._all(connection)]
        return Snapshot(int(version or 0), entries)

    async def replace(
        self, entries: Sequence[NewKnowledge], restore_id: str, *, version: int | None = None
    ) -> None:
        """Put these entries in the place of all others, and record that the restore was decided.

        With a `version`, StorageBusy if something was written since that snapshot.
        """
        self._require_permission()
        rows = [_dated(entry) for entry in entries]
        await self._database.transact(lambda c: self._replace(c, rows, restore_id, version))

    async def was_restored(self, restore_id: str) -> bool:
        """Whether the restore of that id was decided and its end not yet recorded."""
        wanted = select(restores.c.restore_id).where(restores.c.restore_id == restore_id)
        return bool(await self._database.fetch(wanted))

    async def close_restore(self, restore_id: str) -> None:
        """Nothing of that restore is left to do."""
        done = delete(restores).where(restores.c.restore_id == restore_id)
        await self._database.transact(lambda c: c.execute(done))

    async def _all(self, connection: AsyncConnection) -> AsyncIterator[KnowledgeEntry]:
        rows: Sequence[Any] = ()
        after: str | None = ""
        while after is not None:
            wanted = self._select().where(knowledge.c.knowledge_key > after)
            ordered = wanted.order_by(knowledge.c.knowledge_key).limit(_PAGE)
            rows = (await connection.execute(ordered)).all()
            for row in rows:
                yield KnowledgeEntry(**row._mapping)
            after = rows[-1].knowledge_key if len(rows) == _PAGE else None

    def _version(self) -> Any:
        ours = knowledge_bases.c.agent_id == self._agent_id
        return select(knowledge_bases.c.version).where(ours)

    def _select(self) -> Any:
        return select(*_COLUMNS).where(
            knowledge.c.agent_id == self._agent_id, knowledge.c.deleted_at.is_(None)
        )

    def _require_permission(self) -> None:
        if not self._scope.allows(Permission.KNOWLEDGE):
            raise Disabled(
                f"knowledge of agent {self._agent_id!r} is shared: this scope may not change it",
                hint="Bind the permission `knowledge`",
            )

    async def _write(self, connection: AsyncConnection, row: dict[str, Any]) -> None:
        now = datetime.now(UTC)
        (number,) = await next_changes(connection, self._agent_id, 1, now)
        stamped = {**row, "updated_at": now, "deleted_at": None, "change_no": number}
        same = (
            knowledge.c.agent_id == self._agent_id,
            knowledge.c.knowledge_key == row["knowledge_key"],
        )
        changed = await connection.execute(update(knowledge).where(*same).values(**stamped))
        if not changed.rowcount:
            born = {**stamped, "agent_id": self._agent_id, "created_at": now}
            await connection.execute(insert(knowledge), born)

    async def _hide(self, connection: AsyncConnection, key: str) -> None:
        now = datetime.now(UTC)
        (number,) = await next_changes(connection, self._agent_id, 1, now)
        there = update(knowledge).where(
            knowledge.c.agent_id == self._agent_id,
            knowledge.c.knowledge_key == key,
            knowledge.c.deleted_at.is_(None),
        )
        hidden = await connection.execute(there.values(deleted_at=now, change_no=number))
        if not hidden.rowcount:
            raise NotFound(f"agent {self._agent_id!r} knows nothing under {key!r}")

    async def _replace(
        self,
        connection: AsyncConnection,
        rows: list[dict[str, Any]],
        restore_id: str,
        version: int | None,
    ) -> None:
        now = datetime.now(UTC)
        numbers = await next_changes(connection, self._agent_id, len(rows), now)
        if version is not None and numbers.start != version + 1:
            raise StorageBusy("the knowledge base was written to meanwhile", hint="Try again")
        await connection.execute(delete(knowledge).where(knowledge.c.agent_id == self._agent_id))
        numbered = [
            {**row, "agent_id": self._agent_id, "change_no": number}
            for row, number in zip(rows, numbers, strict=True)
        ]
        for part in chunks(numbered, _PAGE):
            await connection.execute(insert(knowledge), list(part))
        # Rows went without a trace: what was derived from them begins anew.
        renewed = update(knowledge_bases).where(knowledge_bases.c.agent_id == self._agent_id)
        await connection.execute(renewed.values(epoch=secrets.token_hex(8)))
        decided = {"restore_id": restore_id, "agent_id": self._agent_id, "decided_at": now}
        await connection.execute(insert(restores), decided)


async def next_changes(
    connection: AsyncConnection, agent_id: str, count: int, now: datetime
) -> range:
    """Lock an agent's knowledge until the transaction ends, and take its next change numbers."""
    await claim_agents(connection, [agent_id], now)
    ours = knowledge_bases.c.agent_id == agent_id
    locked = select(knowledge_bases.c.version).where(ours).with_for_update()
    version = await connection.scalar(locked)
    if version is None:
        fresh = {"agent_id": agent_id, "version": 0, "epoch": secrets.token_hex(8)}
        await insert_missing(connection, knowledge_bases, [fresh])
        version = int(await connection.scalar(locked) or 0)
    counted = update(knowledge_bases).where(ours).values(version=version + count)
    await connection.execute(counted)
    return range(version + 1, version + count + 1)


def knowledge_text(summary: str, content: str, tags: Sequence[str]) -> str:
    """What an entry is found by: its summary, its content and its tags."""
    return "\n".join((summary, content, *tags)).strip()


def new_key() -> str:
    """A fresh key that sorts by the time it was made."""
    return PREFIX + new_id("").removeprefix("_")


def _check_tag(tag: str) -> str:
    if not tag.strip() or len(tag) > NAME_LENGTH:
        raise InvalidArgument(
            f"tag {tag[:80]!r} is blank or too long", hint=f"Use 1 to {NAME_LENGTH} characters"
        )
    return check_text("tags", tag)


def _vector_columns(vector: StoredVector | None) -> dict[str, Any]:
    if vector is None:
        return {"model": None, "vector": None}
    return {"model": vector.model, "vector": vector.packed}


def _dated(entry: NewKnowledge) -> dict[str, Any]:
    """The row of an entry that brings its own times."""
    now = datetime.now(UTC)
    return {
        **entry.row(),
        "created_at": entry.created_at or now,
        "updated_at": entry.updated_at or now,
    }
