"""The state of a session: its summaries in levels, and checkpoints of its short-term memory."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, lock_existing_user, session_of
from memrecall.store.database.memory_tables import checkpoints, summaries
from memrecall.store.database.tables import messages
from memrecall.store.messages.timeline import select_messages, to_message
from memrecall.types import Message, check_json

STATE_BYTES = 4 * 1024 * 1024
CHECKPOINTS_KEPT = 3


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A summary of the messages numbered from `first_sequence_no` to `last_sequence_no`."""

    level: int
    number: int
    first_sequence_no: int
    last_sequence_no: int
    text: str
    made_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved state of a session."""

    number: int
    state: dict[str, Any]
    created_at: datetime


_SUMMARY = [summaries.c[name] for name in StoredSummary.__slots__]
_CHECKPOINT = [checkpoints.c[name] for name in Checkpoint.__slots__]


class SessionState:
    """The summaries and checkpoints of a scope's session."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope
        self._key = {
            "user_id": scope.user_id,
            "agent_id": agent_of(scope),
            "session_id": session_of(scope),
        }

    async def summaries(self) -> list[StoredSummary]:
        """Return all summaries by level and number."""
        statement = select(*_SUMMARY).where(*self._match(summaries))
        ordered = statement.order_by(summaries.c.level, summaries.c.number)
        return [StoredSummary(**row._mapping) for row in await self._database.fetch(ordered)]

    async def add_summaries(self, new: list[StoredSummary]) -> None:
        """Store summaries; those of the same level and number are replaced."""

        async def work(connection: AsyncConnection) -> None:
            locks = await lock_existing_user(connection, self._scope)
            for summary in new:
                same = (summaries.c.level == summary.level, summaries.c.number == summary.number)
                await connection.execute(delete(summaries).where(*self._match(summaries), *same))
                await connection.execute(insert(summaries), {**self._key, **asdict(summary)})
            await locks.save(connection)

        if new:
            await self._database.transact(work)

    async def messages_after(self, sequence_no: int, limit: int) -> list[Message]:
        """Return the session's messages numbered above `sequence_no`, oldest first."""
        statement = self._select_messages().where(messages.c.sequence_no > sequence_no)
        rows = await self._database.fetch(statement.order_by(messages.c.sequence_no).limit(limit))
        return [to_message(row) for row in rows]

    async def last_messages(self, limit: int) -> list[Message]:
        """Return the session's last messages, oldest first."""
        latest_first = self._select_messages().order_by(messages.c.sequence_no.desc())
        rows = await self._database.fetch(latest_first.limit(limit))
        return [to_message(row) for row in reversed(rows)]

    def _select_messages(self) -> Select[Any]:
        in_session = messages.c.session_id == self._key["session_id"]
        return select_messages(self._scope).where(in_session)

    async def save(self, state: dict[str, Any]) -> Checkpoint:
        """Store a state and drop all but the latest few."""
        check_json("the state", state)
        size = len(json.dumps(state))
        if size > STATE_BYTES:
            raise InvalidArgument(
                f"the state has {size} bytes of JSON", hint=f"Reduce it to {STATE_BYTES}"
            )
        return await self._database.transact(lambda c: self._save(c, state))

    async def latest(self) -> Checkpoint | None:
        """Return the latest state."""
        statement = select(*_CHECKPOINT).where(*self._match(checkpoints))
        last = statement.order_by(checkpoints.c.number.desc()).limit(1)
        rows = await self._database.fetch(last)
        return Checkpoint(**rows[0]._mapping) if rows else None

    async def delete_checkpoints(self) -> None:
        """Remove the states of a session that has ended."""
        statement = delete(checkpoints).where(*self._match(checkpoints))
        await self._database.transact(lambda c: c.execute(statement))

    async def _save(self, connection: AsyncConnection, state: dict[str, Any]) -> Checkpoint:
        locks = await lock_existing_user(connection, self._scope)
        last = select(func.max(checkpoints.c.number)).where(*self._match(checkpoints))
        number = int(await connection.scalar(last) or 0) + 1
        checkpoint = Checkpoint(number, state, locks.now)
        await connection.execute(insert(checkpoints), {**self._key, **asdict(checkpoint)})
        is_old = checkpoints.c.number <= number - CHECKPOINTS_KEPT
        await connection.execute(delete(checkpoints).where(*self._match(checkpoints), is_old))
        await locks.save(connection)
        return checkpoint

    def _match(self, table: Any) -> list[Any]:
        return [table.c[name] == value for name, value in self._key.items()]
