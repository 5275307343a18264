"""Memories: what is remembered, with the messages it came from."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import bindparam, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.scope import Permission, Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import Locks, agent_of, claim, claim_known
from memrecall.store.database.statements import chunks, new_id, select_by_keys
from memrecall.store.database.tables import memories, messages
from memrecall.store.memories.edits import Edit, only_visible, write_edits
from memrecall.store.messages.records import WriteResult
from memrecall.text import analyze
from memrecall.types import (
    MEMORY_BYTES,
    MemoryRecord,
    NewMemory,
    Origin,
    Provenance,
    check_text,
)


class Memories:
    """The memories of one scope."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def add(
        self, batch: Sequence[NewMemory], *, origin: Origin, actor: str = "memrecall"
    ) -> WriteResult:
        """Store a batch, all or nothing. Origin and actor are the caller's word, not the text's."""
        check_text("actor", actor)
        given = [named(memory) for memory in batch]
        if not given:
            return WriteResult()
        return await self._database.transact(
            lambda connection: self.add_in(connection, given, origin, actor)
        )

    async def get(self, memory_key: str) -> MemoryRecord:
        """The memory of that key; NotFound if this scope has none or may not see it."""
        found = await self.get_many([memory_key])
        if not found:
            raise NotFound(f"there is no memory {memory_key!r}", hint="Check the key and the user")
        return found[0]

    async def get_many(self, keys: Sequence[str]) -> list[MemoryRecord]:
        """Those of the memories that exist and may be seen, in no particular order."""
        wanted = _by_key(self._scope.agent_id is None, self._scope.allows(Permission.SENSITIVE))
        given = {"of_user": self._scope.user_id, "of_agent": self._scope.agent_id}
        found: list[MemoryRecord] = []
        for part in chunks(keys):
            rows = await self._database.fetch(wanted, {**given, "keys": list(part)})
            found += [MemoryRecord.model_validate(dict(row._mapping)) for row in rows]
        return found

    async def delete_all(self) -> int:
        """Hide every memory of this scope at once; tells how many. The messages stay."""
        return await self._database.transact(self._delete_all)

    async def _delete_all(self, connection: AsyncConnection) -> int:
        claims = await claim_known(connection, self._scope, datetime.now(UTC))
        wanted = only_visible(select(memories), self._scope).where(memories.c.deleted_at.is_(None))
        rows = (await connection.execute(wanted.order_by(memories.c.memory_key))).mappings().all()
        hidden = [
            Edit(dict(row), {"deleted_at": claims.now}, "DELETE", "all at once") for row in rows
        ]
        await write_edits(connection, claims, hidden, "memrecall")
        await claims.release(connection)
        return len(rows)

    async def add_in(
        self,
        connection: AsyncConnection,
        batch: list[NewMemory],
        origin: Origin,
        actor: str,
        *,
        supersedes: str | None = None,
    ) -> WriteResult:
        """The same inside a transaction; every memory has a key."""
        now = datetime.now(UTC)
        labelled = self._scope.session_id is not None
        claims = await claim(connection, [self._scope], now, with_sessions=labelled)
        await self._require_sources(connection, batch)
        written = await self.add_claimed(
            connection, batch, origin, actor, claims, supersedes=supersedes
        )
        await claims.release(connection)
        return written

    async def add_claimed(
        self,
        connection: AsyncConnection,
        batch: list[NewMemory],
        origin: Origin,
        actor: str,
        claims: Locks,
        *,
        supersedes: str | None = None,
        known: dict[str, Any] | None = None,
    ) -> WriteResult:
        """The same under claims that the caller releases, from messages that are there.

        Who made the keys just now says that none is `known`.
        """
        now = claims.now
        if known is None:
            known = await self._known(connection, batch)
        rows: list[dict[str, Any]] = []
        fresh: list[bool] = []
        for memory in batch:
            row = {**self._row(memory, origin, actor, now), "supersedes": supersedes}
            stored = known.get(row["memory_key"])
            fresh.append(stored is None)
            if stored is not None:
                _require_same(row, stored)
                continue
            for counter in claims.counters.values():
                counter.require_open()
            row["change_no"] = claims.next_change(self._scope.user_id)
            known[row["memory_key"]] = row
            rows.append(row)
        if rows:
            await connection.execute(insert(memories), rows)
        return WriteResult(tuple(str(m.memory_key) for m in batch), tuple(fresh))

    async def _known(self, connection: AsyncConnection, batch: list[NewMemory]) -> dict[str, Any]:
        keys = [memory.memory_key for memory in batch]
        taken = await select_by_keys(
            connection,
            select(messages.c.message_id).where(messages.c.user_id == self._scope.user_id),
            [messages.c.message_id],
            keys,
        )
        if taken:
            raise Conflict(
                f"memory_key {taken[0]['message_id']!r} is the id of a message",
                hint="Give the memory another key",
            )
        rows = await select_by_keys(
            connection,
            select(memories).where(memories.c.user_id == self._scope.user_id),
            [memories.c.memory_key],
            keys,
        )
        return {row["memory_key"]: row for row in rows}

    async def _require_sources(self, connection: AsyncConnection, batch: list[NewMemory]) -> None:
        named = sorted({source for memory in batch for source in memory.source_message_ids})
        found = await select_by_keys(
            connection,
            select(messages.c.message_id).where(messages.c.user_id == self._scope.user_id),
            [messages.c.message_id],
            named,
        )
        missing = sorted(set(named) - {row["message_id"] for row in found})
        if missing:
            raise InvalidArgument(
                f"source message {missing[0]!r} does not exist", hint="Store the message first"
            )

    def _row(self, memory: NewMemory, origin: Origin, actor: str, now: datetime) -> dict[str, Any]:
        content, truncated = truncate(memory.content)
        provenance = Provenance(
            origin=origin,
            actor=actor,
            session_id=self._scope.session_id,
            time=now,
            sha256=hashlib.sha256(memory.content.encode()).hexdigest(),
        )
        return {
            **memory.model_dump(exclude={"content", "keywords", "source_message_ids"}),
            "content": content,
            "truncated": truncated,
            "keywords": [keyword.model_dump() for keyword in memory.keywords],
            "source_message_ids": list(memory.source_message_ids),
            "user_id": self._scope.user_id,
            "agent_id": agent_of(self._scope),
            "session_id": self._scope.session_id,
            "provenance": provenance.model_dump(mode="json"),
            "created_at": now,
            "updated_at": now,
            "search_text": memory_search_text(memory.summary, content, memory.keywords),
        }


@cache
def _by_key(any_agent: bool, sensitive_too: bool) -> Any:
    """The statement that every search ends with: building it costs as much as asking it."""
    wanted = select(memories).where(
        memories.c.user_id == bindparam("of_user"),
        memories.c.memory_key.in_(bindparam("keys", expanding=True)),
        memories.c.deleted_at.is_(None),
    )
    if not any_agent:
        wanted = wanted.where(memories.c.agent_id == bindparam("of_agent"))
    return wanted if sensitive_too else wanted.where(memories.c.sensitive.is_(False))


def memory_search_text(summary: str, content: str, keywords: Sequence[Any]) -> str:
    """What a memory is found by: its summary, its content and its keywords."""
    words = "\n".join(str(keyword.keyword) for keyword in keywords)
    return analyze(f"{summary}\n{content}\n{words}").to_search_text()


def truncate(content: str) -> tuple[str, bool]:
    """The content within 100 KB, and whether something had to go."""
    data = content.encode()
    if len(data) <= MEMORY_BYTES:
        return content, False
    return data[:MEMORY_BYTES].decode(errors="ignore"), True


def named(memory: NewMemory) -> NewMemory:
    """The memory with a key: its own, or a new one."""
    if memory.memory_key is not None:
        return memory
    return memory.model_copy(update={"memory_key": new_id("mem")})


def _require_same(row: dict[str, Any], stored: Any) -> None:
    given = {**row, "content": row["provenance"]["sha256"]}  # of the whole, before it was cut
    known = {**stored, "content": stored["provenance"]["sha256"]}
    for name in ("content", "summary", "memory_type", "sensitive"):
        if given[name] != known[name]:
            raise Conflict(
                f"memory {row['memory_key']!r} is already stored with another {name}",
                hint="Give the new memory its own key",
                memory_key=row["memory_key"],
            )
