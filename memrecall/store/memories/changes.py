"""Changes of stored memories by callers, and plans that extraction makes.

Nothing is lost before it is purged: corrected, superseded and deleted memories keep their history.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, Self

from sqlalchemy import Connection, select

from memrecall.errors import Conflict, InvalidArgument, NotFound, OutdatedPlan
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_existing_user, lock_scopes
from memrecall.store.database.tables import memories
from memrecall.store.memories.history import EDITABLE_FIELDS, LAST_CHANGE, AuditEntry, write_entry
from memrecall.store.memories.removal import MemoryRemover, Removal
from memrecall.store.memories.writer import MemoryWriter, with_key
from memrecall.store.messages import (
    MessageBatch,
    ScopedMessage,
    WriteResult,
    WriteStatus,
    insert_messages,
    release_ids,
)
from memrecall.store.privacy import protect_new, protect_values
from memrecall.store.texts import truncate
from memrecall.store.timeline import Reading, note_reading
from memrecall.types import ID_LENGTH, NewMemory, NewMessage, Origin, check_text

PlanEvent = Literal["ADD", "UPDATE", "DELETE", "NONE"]
CONFIRMED = "the user said so"
OTHERS_SAID, GONE = "another member said it", "it is not there any more"
NOT_ENDED = (OTHERS_SAID, GONE)  # why a DELETE step ended nothing
SYSTEM = "memrecall"  # the actor of changes without one
_TAKEN_BACK = 100  # memories in one transaction, so that the writers of other users need not wait


@dataclass(frozen=True, slots=True)
class PlanStep:
    """ADD stores `memory`; UPDATE supersedes `memory_key` with it; DELETE ends `memory_key`.

    ADD with a `memory_key` stores what was said before that memory, as part of its history.
    Only the user replaces what the user said: an UPDATE of another origin is stored as a claim.
    Steps with the same `fact` number belong together: they are undone together. A DELETE ends its
    memory at `ended_at`, or now.
    """

    event: PlanEvent
    memory: NewMemory | None = None
    memory_key: str | None = None
    origin: Origin = Origin.USER
    reason: str = ""
    fact: int | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The result of a step: `memory_key` is the memory that it added, ended or found."""

    event: PlanEvent
    memory_key: str | None
    text: str = ""
    previous_key: str | None = None
    previous_text: str | None = None
    reason: str = ""
    truncated: bool = False  # the content was too long and is stored in part
    conflicts_with: tuple[str, ...] = ()  # it was stored as a claim against these memories
    successor_key: str | None = None  # it was stored in the history of this memory

    @classmethod
    def of_content(
        cls, event: PlanEvent, memory_key: str | None, content: str, **fields: Any
    ) -> Self:
        """Return the outcome for a content, of which the text is what can be stored."""
        text, is_cut = truncate(content)
        return cls(event, memory_key, text, truncated=is_cut, **fields)


class MemoryChanges:
    """Corrects, supersedes, deletes, restores and purges the memories of one scope."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def update(
        self,
        memory_key: str,
        values: Mapping[str, Any],
        *,
        actor: str,
        reason: str = "",
        unchanged_since: datetime | None = None,
    ) -> None:
        """Correct a memory in place; the old values stay in its history.

        Conflict if it was changed after `unchanged_since`.
        """
        unknown = sorted(set(values) - set(EDITABLE_FIELDS))
        if unknown:
            raise InvalidArgument(
                f"{unknown[0]!r} of a memory cannot be changed",
                hint=f"Use {', '.join(EDITABLE_FIELDS)}",
            )
        check_text("actor", actor)
        privacy = self._database.privacy
        values = {**values, **protect_values(privacy, {"metadata": {}, **values})}
        reason = privacy.redact(reason)

        def write(writer: MemoryWriter) -> list[str]:
            writer.require_unchanged(memory_key, unchanged_since)
            writer.update(memory_key, values, reason)
            return [memory_key]

        await self._write(AuditEntry("update", actor, memory_key), write, [memory_key])

    async def delete(
        self,
        keys: Sequence[str],
        *,
        message_ids: Sequence[str] = (),
        actor: str,
        reason: str = "",
        sources: bool = True,
        digests: bool = True,
    ) -> Removal:
        """Hide memories and messages; return what was hidden. Unknown and hidden ones are skipped.

        With `sources` the messages that the memories come from are hidden too, with `digests` the
        memories that summarise these messages. The memories that were derived from `message_ids`
        alone are hidden with them.
        """

        def hide(remover: MemoryRemover) -> Removal:
            first = remover.hide(keys, actor=actor, reason=reason, sources=sources, digests=digests)
            rest = sorted(set(message_ids).difference(first.messages))
            return first + remover.hide_messages(rest, actor=actor, reason=reason)

        return await self._remove(AuditEntry("delete", actor, _only([*keys, *message_ids])), hide)

    async def delete_all(self, *, actor: str = SYSTEM, sources: bool = True) -> Removal:
        """Hide every memory of the scope, with `sources` their messages; return what was hidden."""
        return await self._remove(
            AuditEntry("delete", actor),
            lambda remover: remover.hide(None, actor=actor, reason="all at once", sources=sources),
        )

    async def undo(
        self,
        memory_key: str,
        *,
        actor: str,
        unchanged_since: datetime | None = None,
    ) -> list[str]:
        """Take back a memory's last change that was not taken back yet; return the changed keys.

        Conflict if there is none, or if it was changed after `unchanged_since`.
        """

        def write(writer: MemoryWriter) -> list[str]:
            writer.require_unchanged(memory_key, unchanged_since)
            return writer.undo(memory_key)

        return await self._write(AuditEntry("undo", actor, memory_key), write, [memory_key])

    async def undo_message(self, message_id: str, *, actor: str) -> list[str]:
        """Show a deleted message and the memories that were hidden with it; return their keys.

        Conflict if it is not deleted, or as long as a deleted memory hides it.
        """
        return await self._write(
            AuditEntry("undo", actor, message_id),
            lambda writer: writer.undo_message(message_id),
        )

    async def undo_run(self, run: str, *, actor: str) -> tuple[list[str], int | None]:
        """Take back some of what an extraction of stored messages changed, the latest first.

        Return the changed memories, and in the last call how many messages are unread again; until
        then None.
        """
        unread: int | None = None

        def write(writer: MemoryWriter) -> list[str]:
            nonlocal unread
            changed, unread = writer.take_back(run, _TAKEN_BACK)
            return changed

        changed = await self._write(AuditEntry("undo_extraction", actor, run), write)
        return changed, unread

    async def apply_plan(
        self,
        steps: Sequence[PlanStep],
        *,
        actor: str,
        decided_at: int | None = None,
        reading: Reading | None = None,
    ) -> list[PlanOutcome]:
        """Apply the steps that extraction decided on, all or none; return their outcomes.

        OutdatedPlan if a memory of the user changed after the change `decided_at`. Without it,
        others may have written since the plan was made: a memory that exists already is not stored
        twice, and one that replaces a missing memory is simply added. The messages of the
        `reading` that the plan comes from are noted as read with it; Conflict if a run may not read
        them any more.
        """
        privacy = self._database.privacy
        steps = [
            replace(
                step,
                memory=step.memory and protect_new(privacy, step.memory),
                reason=privacy.redact(step.reason),
            )
            for step in steps
        ]

        def work(connection: Connection) -> list[PlanOutcome]:
            locks = lock_scopes(connection, [self._scope], with_sessions=False)
            last = connection.scalar(LAST_CHANGE, {"of_user": self._scope.user_id})
            if decided_at not in (None, last):
                raise OutdatedPlan("other writers change the memories all the time")
            if reading is not None:
                note_reading(connection, self._scope.user_id, reading)
            run = reading.run if reading else None
            writer = MemoryWriter(connection, locks, self._scope, actor, run)
            outcomes: list[PlanOutcome] = []
            successors: dict[int | None, str | None] = {}
            for step in steps:
                outcome = _apply(writer, step, successors.get(step.fact))
                if outcome.event in ("ADD", "UPDATE") and step.fact is not None:
                    successors[step.fact] = outcome.memory_key
                outcomes.append(outcome)
            if any(outcome.event != "NONE" for outcome in outcomes):
                locks.save(connection)
            return outcomes

        return await self._database.transact(work)

    async def write_turn(
        self,
        messages: Sequence[NewMessage],
        memories: Sequence[tuple[NewMemory, Origin] | None],
        *,
        actor: str,
    ) -> tuple[WriteResult, list[str | None]]:
        """Store messages and the memory made from each, all or nothing.

        Return the keys of the memories in the order of the messages. A message that was stored
        already makes no memory.
        """
        privacy = self._database.privacy
        messages = [protect_new(privacy, message) for message in messages]
        batch = MessageBatch([ScopedMessage(self._scope, message) for message in messages])
        pairs = [pair and (with_key(protect_new(privacy, pair[0])), pair[1]) for pair in memories]

        def work(connection: Connection) -> tuple[WriteResult, list[str | None]]:
            locks = lock_scopes(connection, [self._scope], with_sessions=True)
            result = insert_messages(connection, batch, locks)
            keys: list[str | None] = [None] * len(messages)
            new_memories: dict[Origin, list[NewMemory]] = {}
            for index, (pair, is_new) in enumerate(zip(pairs, result.created, strict=True)):
                if pair is None or not is_new:
                    continue
                source = {"source_message_ids": (result.ids[index],)}
                memory = pair[0].model_copy(update=source)
                keys[index] = memory.memory_key
                if batch.keys[index] not in batch.recovered_keys:
                    new_memories.setdefault(pair[1], []).append(memory)
            writer = MemoryWriter(connection, locks, self._scope, actor)
            named = zip(result.ids, messages, strict=True)
            projects = {name: message.project for name, message in named}
            for origin, group in new_memories.items():
                writer.insert(group, origin, projects, stored_rows={})
            locks.save(connection)
            return result.of_items(messages), keys

        return await self._database.transact(work)

    async def promote(
        self, memory: NewMemory, sources: Sequence[NewMessage], origin: Origin
    ) -> bool:
        """Store a copy of a memory and its messages in the scope's space, all or nothing.

        Return False if the space has the copy already.
        """
        key, actor = str(memory.memory_key), str(self._scope.member)
        user_id = self._scope.user_id
        entries = [ScopedMessage(self._scope, message) for message in sources]

        def work(connection: Connection) -> bool:
            locks = lock_scopes(connection, [self._scope], with_sessions=True)
            stored = select(memories.c.deleted_at).where(
                memories.c.user_id == user_id, memories.c.memory_key == key
            )
            for row in connection.execute(stored).all():
                if row.deleted_at is not None:
                    raise Conflict(
                        f"memory {key!r} was deleted in the space", hint="Undo that first"
                    )
                return False
            result = insert_messages(connection, MessageBatch(entries), locks)
            results = zip(result.ids, entries, result.statuses, strict=True)
            erased = [(name, e) for name, e, status in results if status is WriteStatus.ERASED]
            if erased:  # taken back before: stored by the same ids, from which `demote` knows them
                release_ids(connection, user_id, "message", [name for name, _ in erased])
                insert_messages(connection, MessageBatch([entry for _, entry in erased]), locks)
            copy = memory.model_copy(update={"source_message_ids": result.ids})
            MemoryWriter(connection, locks, self._scope, actor).add([copy], origin)
            write_entry(connection, self._scope, AuditEntry("promote", actor, key), locks.now)
            locks.save(connection)
            return True

        return await self._database.transact(work)

    async def purge(
        self, keys: Sequence[str], *, sources: bool = True, actor: str = SYSTEM
    ) -> Removal:
        """Erase memories and everything that quotes them, and return what was erased.

        With `sources` the messages that they come from are erased too.
        """
        entry = AuditEntry("purge", actor, _only(keys))
        return await self._erase(entry, lambda remover: remover.erase(keys, sources=sources))

    async def purge_message(self, message_id: str, *, actor: str = SYSTEM) -> Removal:
        """Erase a message, what quotes it, and the memories that were derived from it alone."""
        entry = AuditEntry("purge", actor, message_id)
        return await self._erase(entry, lambda remover: remover.erase_message(message_id))

    async def take_back(self, message_ids: Sequence[str], *, actor: str = SYSTEM) -> Removal:
        """Erase messages and what was derived from them alone; they can be stored again."""
        entry = AuditEntry("take_back", actor, _only(message_ids))
        return await self._erase(entry, lambda remover: remover.take_back(message_ids))

    async def take_back_export(
        self,
        message_ids: Sequence[str],
        memory_keys: Sequence[str],
        imported_at: datetime,
        *,
        actor: str = SYSTEM,
    ) -> Removal:
        """Erase messages and memories that an import wrote; they can be stored again."""
        entry = AuditEntry("take_back", actor, _only([*message_ids, *memory_keys]))
        return await self._erase(
            entry,
            lambda remover: remover.take_back_export(message_ids, memory_keys, imported_at),
        )

    async def erase_project(self, project: str, *, actor: str = SYSTEM) -> Removal:
        """Erase the messages and memories of a project, and what quotes them."""
        entry = AuditEntry("erase_project", actor, project[:ID_LENGTH])
        return await self._erase(entry, lambda remover: remover.erase_project(project))

    async def _erase(self, entry: AuditEntry, work: Callable[[MemoryRemover], Removal]) -> Removal:
        async with self._database.erasing():
            return await self._remove(entry, work)

    async def _remove(self, entry: AuditEntry, work: Callable[[MemoryRemover], Removal]) -> Removal:
        """Call `work` in a transaction that locks the user once, and log what it removed."""

        def remove(connection: Connection) -> Removal:
            locks = lock_existing_user(connection, self._scope)
            removal = work(MemoryRemover(connection, locks, self._scope))
            if count := len(removal.memories) + len(removal.messages):
                entry_now = replace(entry, count=count)
                write_entry(connection, self._scope, entry_now, locks.now)
            locks.save(connection)
            return removal

        return await self._database.transact(remove)

    async def _write(
        self,
        entry: AuditEntry,
        write: Callable[[MemoryWriter], list[str]],
        keys: Sequence[str] = (),
    ) -> list[str]:
        """Call `write` in a transaction that locks the user once, and log it.

        Return the keys of the memories that it changed; the state of `keys` before it matters to
        what is derived from them.
        """

        def work(connection: Connection) -> list[str]:
            locks = lock_existing_user(connection, self._scope)
            result = write(MemoryWriter(connection, locks, self._scope, entry.actor))
            write_entry(connection, self._scope, entry, locks.now)
            locks.save(connection)
            return result

        return await self._database.transact(work)


def _only(keys: Sequence[str]) -> str | None:
    return keys[0] if len(keys) == 1 else None


def _apply(writer: MemoryWriter, step: PlanStep, successor: str | None) -> PlanOutcome:
    if step.event == "DELETE":
        return _apply_end(writer, step, successor)
    if step.event == "NONE" or step.memory is None:
        content = step.memory.content if step.memory else ""
        return PlanOutcome.of_content("NONE", step.memory_key, content, reason=step.reason)
    equal = writer.find_equal(step.memory)
    confirms = step.origin is Origin.USER and not step.memory.conflicts_with
    confirmed = [key for key, is_claim in equal.items() if is_claim and confirms]
    if known := [key for key in equal if key not in confirmed]:
        content = step.memory.content
        return PlanOutcome.of_content("NONE", known[0], content, reason="known already")
    outcome = _apply_memory(writer, step, with_key(step.memory))
    for key in confirmed:  # The user says now what was only claimed.
        writer.end(key, CONFIRMED, outcome.memory_key)
    return outcome


def _apply_memory(writer: MemoryWriter, step: PlanStep, memory: NewMemory) -> PlanOutcome:
    other = step.memory_key
    if other is not None:
        if writer.must_stay(other, step.origin):
            memory = memory.as_claim(other)
            step = replace(step, reason="what it contradicts was said by others, and is kept")
            if own := writer.find_own_claim(other):
                return _supersede(writer, step, memory, own)
        else:
            try:
                if step.event == "UPDATE":
                    return _supersede(writer, step, memory, other)
                key = writer.precede(other, memory, step.origin, step.reason)
                return PlanOutcome.of_content(
                    "ADD" if key else "NONE",
                    key,
                    memory.content,
                    reason=step.reason,
                    successor_key=other,
                )
            except (NotFound, Conflict):
                # It was deleted or superseded since the plan was made.
                step = replace(step, reason=f"{step.reason}; what it replaces is gone already")
    writer.add([memory], step.origin)
    return PlanOutcome.of_content(
        "ADD",
        memory.memory_key,
        memory.content,
        reason=step.reason,
        conflicts_with=memory.conflicts_with,
    )


def _supersede(writer: MemoryWriter, step: PlanStep, memory: NewMemory, old: str) -> PlanOutcome:
    fields = {"previous_key": old, "previous_text": writer.find_content(old)}
    key = writer.supersede(old, memory, step.origin, step.reason)
    return PlanOutcome.of_content("UPDATE", key, memory.content, reason=step.reason, **fields)


def _apply_end(writer: MemoryWriter, step: PlanStep, successor: str | None) -> PlanOutcome:
    if step.memory_key is None:
        raise InvalidArgument("a DELETE step names no memory", hint="Set its memory_key")
    text = writer.find_content(step.memory_key)
    try:
        if writer.must_stay(step.memory_key, Origin.USER):
            return PlanOutcome("NONE", step.memory_key, text or "", reason=OTHERS_SAID)
        writer.end(step.memory_key, step.reason, successor, step.ended_at)
    except NotFound:
        return PlanOutcome("NONE", step.memory_key, text or "", reason=GONE)
    return PlanOutcome("DELETE", step.memory_key, text or "", reason=step.reason)
