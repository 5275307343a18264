"""Erasing what was derived from a user's rows: histories, graph, summaries, checkpoints."""

from typing import Any

from sqlalchemy import ColumnElement, Delete, delete, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.store.memory_tables import (
    OF_USERS,
    aliases,
    checkpoints,
    entities,
    relations,
    revisions,
    summaries,
)
from memrecall.store.tables import memories


async def erase_derived(connection: AsyncConnection, user_id: str, session_id: str | None) -> int:
    """Remove what was derived of a user, or of a session; how many rows. Before the rows go."""
    if session_id is None:
        return sum(
            [
                await _count(connection, delete(table).where(table.c.user_id == user_id))
                for table in OF_USERS
            ]
        )
    gone = await _erase_revisions(connection, user_id, session_id)
    for table in (summaries, checkpoints, relations):
        gone += await _count(
            connection,
            delete(table).where(table.c.user_id == user_id, table.c.session_id == session_id),
        )
    return gone + await _erase_names(connection, user_id, session_id)


async def _erase_revisions(connection: AsyncConnection, user_id: str, session_id: str) -> int:
    """Histories of the session's memories, and what others' histories tell of them."""
    of_session = select(memories.c.memory_key).where(
        memories.c.user_id == user_id, memories.c.session_id == session_id
    )
    silenced = update(memories).where(
        memories.c.user_id == user_id, memories.c.superseded_by.in_(of_session)
    )
    await connection.execute(silenced.values(superseded_by=None, superseded_reason=None))
    told = or_(revisions.c.memory_key.in_(of_session), revisions.c.other_key.in_(of_session))
    return await _count(connection, delete(revisions).where(revisions.c.user_id == user_id, told))


async def _erase_names(connection: AsyncConnection, user_id: str, session_id: str) -> int:
    """Names that were first said in the session, and entities that nothing relates to any more."""
    gone = await _count(
        connection,
        delete(aliases).where(
            aliases.c.user_id == user_id,
            aliases.c.session_id == session_id,
            ~_related(aliases.c.entity_id, user_id),
        ),
    )
    unnamed = ~exists().where(
        aliases.c.user_id == user_id, aliases.c.entity_id == entities.c.entity_id
    )
    return gone + await _count(
        connection, delete(entities).where(entities.c.user_id == user_id, unnamed)
    )


def _related(entity_id: Any, user_id: str) -> ColumnElement[bool]:
    ends = or_(relations.c.source_id == entity_id, relations.c.destination_id == entity_id)
    found = select(func.count()).select_from(relations)
    return found.where(relations.c.user_id == user_id, ends).scalar_subquery() > 0


async def _count(connection: AsyncConnection, statement: Delete) -> int:
    return (await connection.execute(statement)).rowcount
