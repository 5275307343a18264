"""Hiding and erasing memories and their sources, in a transaction that has locked the user."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import NotFound
from memrecall.scope import Scope
from memrecall.store.database.locks import Locks
from memrecall.store.database.memory_tables import revisions
from memrecall.store.database.statements import filter_scope, mentions, select_by_keys, split
from memrecall.store.database.tables import (
    PASSAGE,
    memories,
    messages,
    tombstones,
    vectors,
)
from memrecall.store.memories.revisions import (
    PendingChange,
    StoredRow,
    filter_visible,
    write_changes,
)
from memrecall.store.messages.removal import MessageRemover
from memrecall.types import DERIVED_BY, DIGESTS, EXPERIENCE

_SOURCES_PER_CONDITION = 50  # of conditions that no index helps


@dataclass(frozen=True, slots=True)
class Removal:
    """The keys of the memories and messages that were hidden or erased."""

    memories: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()


class MemoryRemover:
    """Hides and erases one scope's memories and messages with what quotes them."""

    def __init__(self, connection: AsyncConnection, locks: Locks, scope: Scope) -> None:
        self._connection = connection
        self._locks = locks
        self._scope = scope
        self._messages = MessageRemover(connection, locks, scope.user_id)

    async def hide(
        self,
        keys: Sequence[str] | None,
        *,
        actor: str,
        reason: str,
        sources: bool = False,
        digests: bool = True,
    ) -> Removal:
        """Hide memories, or all of the scope, and with `sources` the messages that they come from.

        With `digests`, memories that summarise these messages are hidden too. Summaries of the
        messages are withdrawn. One undo takes back everything that was hidden with a memory.
        """
        statement = filter_visible(select(memories), self._scope)
        rows = await self._select(statement.where(memories.c.deleted_at.is_(None)), keys)
        message_ids = await self._sources_of(rows)
        others = await self._digests(rows) if digests and keys is not None else []
        others = [row for row in others if row["deleted_at"] is None]
        visible = await self._messages.hide(message_ids) if sources else []
        other_keys = [row["memory_key"] for row in others]
        changes = []
        for row in (*rows, *others):
            is_other = row["memory_key"] in other_keys
            with_row = {
                "memories": [] if is_other else other_keys,
                "messages": row["source_message_ids"] if sources and not is_other else [],
            }
            values = {"deleted_at": self._locks.now}
            changes.append(PendingChange(row, values, "DELETE", reason, hidden=with_row))
        await write_changes(self._connection, self._locks, changes, actor)
        await self._messages.withdraw_summaries(message_ids)
        return Removal(tuple(c.row["memory_key"] for c in changes), tuple(visible))

    async def erase(self, keys: Sequence[str], *, sources: bool = False) -> Removal:
        """Erase memories with their history, vectors, traces and passages in summaries.

        With `sources` the messages that they come from are erased too; other memories from them
        stay, without that source.
        """
        statement = filter_visible(select(memories), self._scope)
        rows = await self._select(statement, keys)
        message_ids = await self._sources_of(rows)
        rows += await self._digests(rows)
        return await self._erase(rows, message_ids, message_ids if sources else ())

    async def erase_message(self, message_id: str) -> Removal:
        """Erase a message, and the memories that were derived from it alone.

        Nothing happens if it was erased before; NotFound if the scope never had it.
        """
        user_id = self._scope.user_id
        statement = filter_scope(select(messages.c.message_id), messages, self._scope)
        if not await self._connection.scalar(statement.where(messages.c.message_id == message_id)):
            key = (tombstones.c.user_id == user_id, tombstones.c.kind == "message")
            buried = select(tombstones.c.key).where(*key, tombstones.c.key == message_id)
            if await self._connection.scalar(buried):
                return Removal()
            raise NotFound(f"there is no message {message_id!r}", hint="Check the id and the user")
        of_user = select(memories).where(memories.c.user_id == user_id)
        citing = of_user.where(mentions(memories.c.source_message_ids, [message_id]))
        rows = [dict(row) for row in (await self._connection.execute(citing)).mappings()]
        derived = [
            row
            for row in rows
            if row["source_message_ids"] == [message_id]
            and row["provenance"]["actor"] in DERIVED_BY
        ]
        derived += await self._digests(rows, derived)
        return await self._erase(derived, [message_id], [message_id])

    async def _erase(
        self, rows: Sequence[StoredRow], quoted: Sequence[str], erased: Sequence[str]
    ) -> Removal:
        """Erase memories and messages; withdraw the summaries of `quoted` messages."""
        await self._messages.withdraw_summaries(quoted)
        message_rows = await self._messages.erase(erased)
        keys = [row["memory_key"] for row in rows]
        for batch in split(keys):
            await self._erase_rows(list(batch))
        await self._messages.bury("memory", keys)
        await self._messages.bury(PASSAGE, sorted(set(quoted) - set(erased)))
        message_ids = [row["message_id"] for row in message_rows]
        texts = [row["content"] for row in (*rows, *message_rows)]
        await self._messages.erase_traces([*keys, *message_ids], texts)
        return Removal(tuple(keys), tuple(message_ids))

    async def _erase_rows(self, keys: list[str]) -> None:
        user_id = self._scope.user_id
        of_keys = or_(revisions.c.memory_key.in_(keys), revisions.c.other_key.in_(keys))
        await self._connection.execute(
            delete(revisions).where(revisions.c.user_id == user_id, of_keys)
        )
        of_memories = (vectors.c.user_id == user_id, vectors.c.kind == "memory")
        await self._connection.execute(delete(vectors).where(*of_memories, vectors.c.key.in_(keys)))
        of_user = memories.c.user_id == user_id
        # The reason why a memory was superseded may quote the memory that is erased.
        predecessors = update(memories).where(of_user, memories.c.superseded_by.in_(keys))
        await self._connection.execute(
            predecessors.values(superseded_reason=None, superseded_by=None)
        )
        erased = delete(memories).where(of_user, memories.c.memory_key.in_(keys))
        await self._connection.execute(erased)

    async def _sources_of(self, rows: Sequence[StoredRow]) -> list[str]:
        """Return the messages of the scope that memories come from."""
        ids = sorted({name for row in rows for name in row["source_message_ids"]})
        statement = filter_scope(select(messages.c.message_id), messages, self._scope)
        found = await select_by_keys(self._connection, statement, [messages.c.message_id], ids)
        return [row["message_id"] for row in found]

    async def _digests(
        self, facts: Sequence[StoredRow], without: Sequence[StoredRow] | None = None
    ) -> list[dict[str, Any]]:
        """Return the memories that summarise the messages of facts, but not known ones."""
        facts = [row for row in facts if row["memory_type"] not in DIGESTS]
        message_ids = await self._sources_of(facts)
        statement = select(messages.c.session_id).where(messages.c.user_id == self._scope.user_id)
        key = [messages.c.message_id]
        rows = await select_by_keys(self._connection, statement.distinct(), key, message_ids)
        in_session = memories.c.session_id.in_([row["session_id"] for row in rows])
        of_session = in_session & (memories.c.memory_type == EXPERIENCE)
        known = {row["memory_key"] for row in (facts if without is None else without)}
        found: dict[str, dict[str, Any]] = {}
        for batch in split(message_ids, _SOURCES_PER_CONDITION):
            statement = select(memories).where(
                memories.c.user_id == self._scope.user_id,
                memories.c.memory_type.in_(DIGESTS),
                or_(of_session, mentions(memories.c.source_message_ids, batch)),
            )
            for row in (await self._connection.execute(statement)).mappings():
                if row["memory_key"] not in known:
                    found[row["memory_key"]] = dict(row)
        return list(found.values())

    async def _select(
        self, statement: Select[Any], keys: Sequence[str] | None
    ) -> list[dict[str, Any]]:
        key = memories.c.memory_key
        rows: Sequence[StoredRow]
        if keys is None:
            rows = (await self._connection.execute(statement.order_by(key))).mappings().all()
        else:
            wanted = sorted(set(keys))
            rows = await select_by_keys(self._connection, statement, [key], wanted)
        return [dict(row) for row in rows]
