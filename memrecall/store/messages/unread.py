"""Messages that no model has read yet for memories, and the note that one has."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, select, tuple_, update

from memrecall.errors import Conflict
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.statements import filter_scope, split
from memrecall.store.database.tables import (
    PASSAGE,
    is_hidden,
    is_visible,
    memories,
    messages,
    tombstones,
)
from memrecall.store.messages.branches import SESSION_ORDER
from memrecall.store.messages.timeline import select_messages, to_message
from memrecall.types import DIGESTS, Message, Role

BY_ADD = "add"  # what an `add` notes; an extraction of stored messages notes the id of its run
_PEOPLE = (Role.USER.value, Role.OTHER.value)


@dataclass(frozen=True, slots=True)
class Reading:
    """Messages that a model has read, by an `add` or by a run of an extraction."""

    message_ids: Sequence[str]
    run: str | None = None
    once: bool = False  # Conflict if one of them was read meanwhile, as for a run


@dataclass(frozen=True, slots=True)
class UnreadSession:
    """A session in which people said something that no model has read."""

    agent_id: str
    session_id: str


class UnreadMessages:
    """The messages of a scope that no model has read, from `since` on; in a space, one's own."""

    def __init__(
        self,
        database: Database,
        scope: Scope,
        *,
        session_id: str | None = None,
        since: datetime | None = None,
    ) -> None:
        self._database = database
        self._scope = scope
        self._conditions: list[ColumnElement[bool]] = [messages.c.extracted_by.is_(None)]
        if since is not None:
            self._conditions.append(messages.c.ts >= since)
        if session_id is not None:
            self._conditions.append(messages.c.session_id == session_id)
        if scope.author is not None:
            self._conditions.append(messages.c.author == scope.author)

    async def sessions(self) -> list[UnreadSession]:
        """Return the sessions, the one that began first before the others."""
        columns = (messages.c.agent_id, messages.c.session_id)
        of_people = func.sum(case((messages.c.role.in_(_PEOPLE), 1), else_=0))
        statement = filter_scope(select(*columns), messages, self._scope)
        statement = statement.where(is_visible(messages), *self._conditions)
        grouped = statement.group_by(*columns).having(of_people > 0)
        rows = await self._database.fetch(
            grouped.order_by(func.min(messages.c.ts), messages.c.session_id)
        )
        return [UnreadSession(row.agent_id, row.session_id) for row in rows]

    async def page(
        self, session: UnreadSession, after: Message | None, limit: int
    ) -> list[Message]:
        """Return the next messages of a session in its order, of everybody in it."""
        statement = select_messages(self._scope).where(
            *self._conditions,
            messages.c.agent_id == session.agent_id,
            messages.c.session_id == session.session_id,
        )
        if after is not None:
            statement = statement.where(tuple_(*SESSION_ORDER) > (after.ts, after.sequence_no))
        rows = await self._database.fetch(statement.order_by(*SESSION_ORDER).limit(limit))
        return [to_message(row) for row in rows]

    async def among(self, message_ids: Sequence[str]) -> list[Message]:
        """Return those of some messages that are unread, in the order of their session."""
        found: list[Message] = []
        for batch in split(list(message_ids)):
            statement = select_messages(self._scope).where(
                *self._conditions, messages.c.message_id.in_(batch)
            )
            found += map(to_message, await self._database.fetch(statement))
        return sorted(found, key=lambda message: (message.ts, message.sequence_no))

    async def forgotten(self) -> frozenset[str]:
        """Return the messages, stored still, that somebody has deleted or purged a memory of.

        Reading them again would bring it back. Those of an extraction that was undone are not
        among them.
        """
        user_id = self._scope.user_id
        of_deleted = select(memories.c.source_message_ids).where(
            memories.c.user_id == user_id,
            is_hidden(memories),
            memories.c.memory_type.not_in(DIGESTS),
            memories.c.provenance["run"].as_string().is_(None),
        )
        of_purged = select(tombstones.c.key).where(
            tombstones.c.user_id == user_id, tombstones.c.kind == PASSAGE
        )
        sources = {
            name
            for row in await self._database.fetch(of_deleted)
            for name in row.source_message_ids
        }
        return frozenset(sources | {row.key for row in await self._database.fetch(of_purged)})

    async def runs(self) -> list[tuple[str, int]]:
        """Return the runs that have read messages, with their numbers, the last run first."""
        statement = filter_scope(
            select(messages.c.extracted_by, func.count().label("number")), messages, self._scope
        )
        statement = statement.where(messages.c.extracted_by != BY_ADD)
        if self._scope.author is not None:
            statement = statement.where(messages.c.author == self._scope.author)
        grouped = statement.group_by(messages.c.extracted_by)
        rows = await self._database.fetch(grouped.order_by(messages.c.extracted_by.desc()))
        return [(row.extracted_by, row.number) for row in rows]


def note_reading(connection: Connection, user_id: str, reading: Reading) -> None:
    """Note that messages were read; Conflict if they may not be read any more."""
    unread: list[Any] = [messages.c.user_id == user_id, messages.c.extracted_by.is_(None)]
    if reading.run is not None:
        unread.append(is_visible(messages))
    noted = 0
    for batch in split(list(reading.message_ids)):
        statement = update(messages).where(*unread, messages.c.message_id.in_(batch))
        values = {"extracted_by": reading.run or BY_ADD}
        noted += connection.execute(statement.values(values)).rowcount
    if (reading.run is not None or reading.once) and noted < len(reading.message_ids):
        raise Conflict(
            "messages were read, deleted or erased while the model read them",
            hint="Read what is left again",
            reason="messages_changed",
        )


def forget_reading(connection: Connection, scope: Scope, run: str) -> int:
    """Let the messages of a run be read again; return their number."""
    of_run = filter_scope(select(messages.c.message_id), messages, scope)
    ids = list(connection.scalars(of_run.where(messages.c.extracted_by == run)))
    for batch in split(ids):
        of_user = (messages.c.user_id == scope.user_id, messages.c.message_id.in_(batch))
        connection.execute(update(messages).where(*of_user).values(extracted_by=None))
    return len(ids)
