"""A plan: what extraction has decided, carried out in one transaction.

Between deciding and doing others may have written: what is there already is not stored twice, and
what is no longer there to be superseded is simply added.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import agent_of, claim
from memrecall.store.database.tables import memories
from memrecall.store.memories.changes import MemoryChanges
from memrecall.store.memories.records import Memories, named
from memrecall.store.messages.records import ScopedMessage, WriteResult, with_id, write_claimed
from memrecall.types import NewMemory, Origin

Event = Literal["ADD", "UPDATE", "DELETE", "NONE"]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """ADD stores `memory`; UPDATE stores it in the place of `memory_key`; DELETE ends that one."""

    event: Event
    memory: NewMemory | None = None
    memory_key: str | None = None
    origin: Origin = Origin.USER
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """What became of a step: `memory_key` is the memory it made or ended, or found there."""

    event: Event
    memory_key: str | None
    text: str = ""
    previous_key: str | None = None
    previous_text: str | None = None
    reason: str = ""


async def apply_plan(
    database: Database, scope: Scope, steps: Sequence[PlanStep], actor: str
) -> list[PlanOutcome]:
    """Carry out all steps or none."""
    plan = _Plan(database, scope, actor)
    return await database.transact(lambda connection: plan.run(connection, steps))


async def write_turn(
    database: Database,
    entries: Sequence[ScopedMessage],
    kept: Sequence[tuple[NewMemory, Origin] | None],
    actor: str,
) -> tuple[WriteResult, list[str | None]]:
    """Store messages and, where there is one, the memory that each is; all or nothing.

    The memories have no keys yet; theirs are given in the order of the messages. A message that
    was there already makes none.
    """
    given = [with_id(entry) for entry in entries]
    called = [entry for entry in entries if entry.message.message_id is not None]

    async def work(connection: AsyncConnection) -> tuple[WriteResult, list[str | None]]:
        scopes = {entry.scope for entry in given}
        claims = await claim(connection, scopes, datetime.now(UTC), with_sessions=True)
        written = await write_claimed(connection, given, claims, called)
        keys: list[str | None] = [None] * len(given)
        batches: dict[Origin, list[NewMemory]] = {}
        for at, (pair, fresh) in enumerate(zip(kept, written.created, strict=True)):
            if pair is not None and fresh:
                memory = named(pair[0]).model_copy(
                    update={"source_message_ids": (written.ids[at],)}
                )
                keys[at] = memory.memory_key
                batches.setdefault(pair[1], []).append(memory)
        for origin, batch in batches.items():
            room = Memories(database, given[0].scope)
            await room.add_claimed(connection, batch, origin, actor, claims, known={})
        await claims.release(connection)
        return written, keys

    return await database.transact(work)


class _Plan:
    def __init__(self, database: Database, scope: Scope, actor: str) -> None:
        self._memories = Memories(database, scope)
        self._changes = MemoryChanges(database, scope)
        self._scope = scope
        self._actor = actor

    async def run(
        self, connection: AsyncConnection, steps: Sequence[PlanStep]
    ) -> list[PlanOutcome]:
        # The user's row is locked before anything is looked at.
        await claim(connection, [self._scope], datetime.now(UTC), with_sessions=False)
        return [await self._carry_out(connection, step) for step in steps]

    async def _carry_out(self, connection: AsyncConnection, step: PlanStep) -> PlanOutcome:
        if step.event == "DELETE":
            return await self._end(connection, step)
        if step.event == "NONE" or step.memory is None:
            return PlanOutcome("NONE", step.memory_key, reason=step.reason)
        there = await self._find_same(connection, step.memory)
        if there is not None and there != step.memory_key:
            return PlanOutcome("NONE", there, step.memory.content, reason="known already")
        if step.event == "UPDATE" and step.memory_key is not None and there is None:
            outcome = await self._supersede(connection, step.memory, step)
            if outcome is not None:
                return outcome
        elif there is not None:
            return PlanOutcome("NONE", there, step.memory.content, reason="known already")
        fresh = named(step.memory)
        await self._memories.add_in(connection, [fresh], step.origin, self._actor)
        return PlanOutcome("ADD", fresh.memory_key, fresh.content, reason=step.reason)

    async def _supersede(
        self, connection: AsyncConnection, memory: NewMemory, step: PlanStep
    ) -> PlanOutcome | None:
        previous = str(step.memory_key)
        text = await self._text_of(connection, previous)
        try:
            key = await self._changes.supersede_in(
                connection, previous, memory, step.origin, self._actor, step.reason
            )
        except (NotFound, Conflict):
            return None
        return PlanOutcome("UPDATE", key, memory.content, previous, text, step.reason)

    async def _end(self, connection: AsyncConnection, step: PlanStep) -> PlanOutcome:
        if step.memory_key is None:
            raise InvalidArgument("a DELETE names no memory")
        text = await self._text_of(connection, step.memory_key)
        try:
            await self._changes.end_in(connection, step.memory_key, self._actor, step.reason)
        except NotFound:
            return PlanOutcome("NONE", step.memory_key, reason="not there any more")
        return PlanOutcome("DELETE", step.memory_key, text or "", reason=step.reason)

    async def _text_of(self, connection: AsyncConnection, key: str) -> str | None:
        wanted = select(memories.c.content).where(
            memories.c.user_id == self._scope.user_id, memories.c.memory_key == key
        )
        return await connection.scalar(wanted)

    async def _find_same(self, connection: AsyncConnection, memory: NewMemory) -> str | None:
        """The key of a memory that holds and says the same of the same."""
        now = datetime.now(UTC)
        wanted = select(memories.c.memory_key).where(
            memories.c.user_id == self._scope.user_id,
            memories.c.agent_id == agent_of(self._scope),
            memories.c.content == memory.content,
            memories.c.subject.is_not_distinct_from(memory.subject),
            memories.c.layer == memory.layer,
            memories.c.deleted_at.is_(None),
            or_(memories.c.valid_to.is_(None), memories.c.valid_to > now),
            or_(memories.c.expires_at.is_(None), memories.c.expires_at > now),
        )
        return await connection.scalar(wanted.limit(1))
