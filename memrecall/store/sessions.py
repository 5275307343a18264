"""What is kept of a running session: summaries in layers, and checkpoints of its short memory."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, claim_known, session_of
from memrecall.store.database.memory_tables import checkpoints, summaries
from memrecall.store.database.tables import messages
from memrecall.store.messages.timeline import to_message
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
        """All summaries by level, then in the order of what they tell."""
        wanted = select(*_SUMMARY).where(*self._mine(summaries))
        ordered = wanted.order_by(summaries.c.level, summaries.c.number)
        return [StoredSummary(**row._mapping) for row in await self._database.fetch(ordered)]

    async def add_summaries(self, new: list[StoredSummary]) -> None:
        """Store summaries; one of the same level and number is replaced."""

        async def work(connection: AsyncConnection) -> None:
            claims = await claim_known(connection, self._scope, datetime.now(UTC))
            for summary in new:
                same = (summaries.c.level == summary.level, summaries.c.number == summary.number)
                await connection.execute(delete(summaries).where(*self._mine(summaries), *same))
                values = {name: getattr(summary, name) for name in StoredSummary.__slots__}
                await connection.execute(insert(summaries), {**self._key, **values})
            await claims.release(connection)

        if new:
            await self._database.transact(work)

    async def messages_after(self, sequence_no: int, limit: int) -> list[Message]:
        """The session's messages numbered above `sequence_no`, in their order."""
        wanted = self._said().where(messages.c.sequence_no > sequence_no)
        rows = await self._database.fetch(wanted.order_by(messages.c.sequence_no).limit(limit))
        return [to_message(dict(row._mapping)) for row in rows]

    async def last_messages(self, limit: int) -> list[Message]:
        """The session's last messages, in their order."""
        latest = self._said().order_by(messages.c.sequence_no.desc()).limit(limit)
        rows = await self._database.fetch(latest)
        return [to_message(dict(row._mapping)) for row in reversed(rows)]

    def _said(self) -> Select[Any]:
        wanted = select(*(c for c in messages.c if c.name not in ("search_text", "change_no")))
        wanted = wanted.where(
            messages.c.user_id == self._scope.user_id,
            messages.c.session_id == self._key["session_id"],
        )
        if self._scope.agent_id is not None:
            wanted = wanted.where(messages.c.agent_id == self._scope.agent_id)
        return wanted

    async def save(self, state: dict[str, Any]) -> Checkpoint:
        """Keep a state; the last few are kept."""
        check_json("the state", state)
        size = len(json.dumps(state))
        if size > STATE_BYTES:
            raise InvalidArgument(
                f"the state has {size} bytes of JSON", hint=f"Keep it within {STATE_BYTES}"
            )
        return await self._database.transact(lambda c: self._save(c, state))

    async def latest(self) -> Checkpoint | None:
        """The last state that was kept."""
        wanted = select(*_CHECKPOINT).where(*self._mine(checkpoints))
        last = wanted.order_by(checkpoints.c.number.desc()).limit(1)
        rows = await self._database.fetch(last)
        return Checkpoint(**rows[0]._mapping) if rows else None

    async def delete_checkpoints(self) -> None:
        """Remove the states of a session that has ended."""
        gone = delete(checkpoints).where(*self._mine(checkpoints))
        await self._database.transact(lambda c: c.execute(gone))

    async def _save(self, connection: AsyncConnection, state: dict[str, Any]) -> Checkpoint:
        now = datetime.now(UTC)
        claims = await claim_known(connection, self._scope, now)
        last = select(func.max(checkpoints.c.number)).where(*self._mine(checkpoints))
        number = int(await connection.scalar(last) or 0) + 1
        row = {"number": number, "state": state, "created_at": now}
        await connection.execute(insert(checkpoints), {**self._key, **row})
        old = checkpoints.c.number <= number - CHECKPOINTS_KEPT
        await connection.execute(delete(checkpoints).where(*self._mine(checkpoints), old))
        await claims.release(connection)
        return Checkpoint(number, state, now)

    def _mine(self, table: Any) -> list[Any]:
        return [table.c[name] == value for name, value in self._key.items()]
