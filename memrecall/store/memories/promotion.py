"""Copies of a user's memories in a space, with the messages that they come from."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import Conflict
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import Locks, lock_scopes
from memrecall.store.database.tables import memories
from memrecall.store.memories.history import AuditEntry, write_entry
from memrecall.store.memories.insertion import MemoryInserter
from memrecall.store.messages.records import (
    MessageBatch,
    ScopedMessage,
    WriteStatus,
    insert_messages,
)
from memrecall.types import NewMemory, NewMessage, Origin


async def promote_memory(
    database: Database,
    scope: Scope,
    memory: NewMemory,
    sources: Sequence[NewMessage],
    origin: Origin,
) -> bool:
    """Store a copy of a memory and its messages in a space, all or nothing.

    Return False if the space has the copy already.
    """
    key, actor = str(memory.memory_key), str(scope.member)

    async def work(connection: AsyncConnection) -> bool:
        locks = await lock_scopes(connection, [scope], with_sessions=True)
        of_key = (memories.c.user_id == scope.user_id, memories.c.memory_key == key)
        statement = select(memories.c.deleted_at).where(*of_key)
        for row in (await connection.execute(statement)).all():
            if row.deleted_at is not None:
                raise Conflict(f"memory {key!r} was deleted in the space", hint="Undo that first")
            return False
        ids = await _copy_messages(connection, locks, scope, sources)
        copy = memory.model_copy(update={"source_message_ids": tuple(ids)})
        await MemoryInserter(connection, locks, scope, actor).add([copy], origin)
        await write_entry(connection, scope, AuditEntry("promote", actor, key), locks.now)
        await locks.save(connection)
        return True

    return await database.transact(work)


async def _copy_messages(
    connection: AsyncConnection, locks: Locks, scope: Scope, sources: Sequence[NewMessage]
) -> list[str]:
    """Insert messages and return their ids; one that was taken back before gets a new id."""
    batch = MessageBatch([ScopedMessage(scope, message) for message in sources])
    result = await insert_messages(connection, batch, locks)
    ids = list(result.ids)
    for place, status in enumerate(result.statuses):
        if status is WriteStatus.ERASED:
            new = sources[place].model_copy(update={"message_id": None})
            again = MessageBatch([ScopedMessage(scope, new)])
            ids[place] = (await insert_messages(connection, again, locks)).ids[0]
    return ids
