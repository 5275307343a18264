"""Writing messages: in batches, all or nothing, and never twice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from memrecall.errors import CallerError, Conflict, MemrecallError, StorageBusy
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import Locks, agent_of, lock_scopes, session_of
from memrecall.store.database.statements import (
    execute_prepared,
    new_epoch,
    new_id,
    select_by_keys,
    split,
)
from memrecall.store.database.tables import memories, messages, tombstones, users
from memrecall.store.privacy import protect_new
from memrecall.store.texts import make_search_text
from memrecall.text.privacy import kinds_in
from memrecall.types import NewMemory, NewMessage, clean_shown_name
from memrecall.workers import run_to_completion

# Messages of a batch that shares a transaction, and batches in one.
_LARGEST_SHARED = 64
_MOST_SHARED = 64

_INSERT = insert(messages)
_STORED_COLUMNS = ("user_id", "message_id", "content", "ts", "role", "speaker")
_STORED = select(*(messages.c[name] for name in _STORED_COLUMNS))
_MEMORIES = select(memories.c.user_id, memories.c.memory_key)
_ERASED = select(tombstones.c.user_id, tombstones.c.key).where(tombstones.c.kind == "message")
_Key = tuple[str, str]  # user and message


@dataclass(frozen=True, slots=True)
class ScopedMessage:
    """A message to write, and the scope that trusted code writes it in."""

    scope: Scope
    message: NewMessage


class WriteStatus(StrEnum):
    """The outcome of one item of a write."""

    NEW = "new"
    SAME = "same"  # stored before, with the same content
    ERASED = "erased"  # its id was erased, and is not stored again, whatever the content
    CONFLICT = "conflict"  # stored with another content: the whole batch is refused


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The ids of a batch in its order, and the outcome of each."""

    ids: tuple[str, ...] = ()
    statuses: tuple[WriteStatus, ...] = ()
    redacted: tuple[tuple[str, ...], ...] = ()  # the kinds of secrets that are not stored

    def of_items(self, items: Sequence[NewMessage | NewMemory]) -> "WriteResult":
        """Return the result with what was redacted in each message or memory."""
        kinds = (tuple(kinds_in(item.metadata)) for item in items)
        return replace(self, redacted=tuple(kinds))

    @property
    def created(self) -> tuple[bool, ...]:
        """Whether each item is new."""
        return tuple(status is WriteStatus.NEW for status in self.statuses)

    @property
    def stored(self) -> int:
        """The number of new rows."""
        return sum(self.created)


class MessageBatch:
    """Messages to write, with ids that stay the same if their transaction is run again."""

    def __init__(self, entries: Sequence[ScopedMessage]) -> None:
        self.entries = entries
        self.keys: list[_Key] = [
            (entry.scope.user_id, entry.message.message_id or new_id("m")) for entry in entries
        ]
        self.made_keys = {
            key
            for key, entry in zip(self.keys, entries, strict=True)
            if entry.message.message_id is None
        }
        self._was_tried = False
        # What an attempt stored whose commit was not acknowledged.
        self.recovered_keys: set[_Key] = set()

    def keys_to_look_up(self) -> list[_Key]:
        """Return the keys that may be stored already: those made here only in a later attempt."""
        keys = set(self.keys) if self._was_tried else set(self.keys) - self.made_keys
        self._was_tried = True
        return sorted(keys)


async def write_messages(database: Database, entries: Sequence[ScopedMessage]) -> WriteResult:
    """Store a batch, all or nothing; Conflict if a message is stored with another content.

    Small batches that arrive at once share a transaction: it costs more than their rows.
    A distributed database stores one user's messages after another's, each user's all or nothing;
    an error names in `stored_users` those that are stored. Writing the batch again is safe.
    """
    if not entries:
        return WriteResult()
    entries = [
        replace(entry, message=protect_new(database.privacy, entry.message)) for entry in entries
    ]
    if database.is_distributed:
        result = await run_to_completion(_write_by_user(database, entries))
    elif len(entries) > _LARGEST_SHARED:
        result = await _write(database, entries)
    else:
        result = await run_to_completion(_write_shared(database, entries))
    return result.of_items([entry.message for entry in entries])


async def _write_by_user(database: Database, entries: Sequence[ScopedMessage]) -> WriteResult:
    positions = group_positions(entry.scope.user_id for entry in entries)
    results: dict[int, tuple[str, WriteStatus]] = {}
    stored_users: list[str] = []
    for user, places in positions.items():
        try:
            result = await _write(database, [entries[place] for place in places])
        except MemrecallError as error:
            if "faults" in error.details:
                faults = error.details["faults"].items()
                error.details["faults"] = {places[at]: reason for at, reason in faults}
            if len(positions) > 1:
                error.details["stored_users"] = stored_users
            raise
        stored_users.append(user)
        results |= zip(places, zip(result.ids, result.statuses, strict=True), strict=True)
    ids, statuses = zip(*(results[place] for place in range(len(entries))), strict=True)
    return WriteResult(ids, statuses)


def group_positions(owners: Iterable[str]) -> dict[str, list[int]]:
    """Return the positions of each owner, in the order of the owners."""
    positions: dict[str, list[int]] = {}
    for position, owner in enumerate(owners):
        positions.setdefault(owner, []).append(position)
    return dict(sorted(positions.items()))


async def _write_shared(database: Database, entries: Sequence[ScopedMessage]) -> WriteResult:
    write_together = database.batcher(_write_together, _MOST_SHARED, changes=True)
    return await write_together(entries) or await _write(database, entries)


async def _write_together(
    database: Database, batches: list[Sequence[ScopedMessage]]
) -> Sequence[WriteResult | None]:
    """Store batches in one transaction; None for each if they must be written one by one."""
    try:
        together = await _write(database, list(chain.from_iterable(batches)), wait=False)
    except CallerError:  # One batch is wrong: only its caller is to know.
        return [None] * len(batches)
    except StorageBusy:
        if not database.dialect.locks_rows:
            raise
        # One user's rows are locked: the others must not wait for them.
        return [None] * len(batches)
    ids, statuses = iter(together.ids), iter(together.statuses)
    return [
        WriteResult(tuple(islice(ids, len(batch))), tuple(islice(statuses, len(batch))))
        for batch in batches
    ]


async def _write(
    database: Database, entries: Sequence[ScopedMessage], *, wait: bool = True
) -> WriteResult:
    batch = MessageBatch(entries)

    def work(connection: Connection) -> WriteResult:
        scopes = {entry.scope for entry in entries}
        locks = lock_scopes(connection, scopes, with_sessions=True, wait=wait)
        result = insert_messages(connection, batch, locks)
        locks.save(connection)
        return result

    return await database.transact(work)


def insert_messages(connection: Connection, batch: MessageBatch, locks: Locks) -> WriteResult:
    """Insert the messages that are not stored yet; the caller saves the locks."""
    looked_up = batch.keys_to_look_up()
    stored_rows = _find_stored(connection, looked_up) if looked_up else {}
    batch.recovered_keys = batch.made_keys & stored_rows.keys()
    erased = find_erased(connection, [key for key in looked_up if key not in stored_rows])
    new_rows: dict[_Key, dict[str, Any]] = {}
    statuses: list[WriteStatus] = []
    errors: dict[int, CallerError] = {}
    for position, (key, entry) in enumerate(zip(batch.keys, batch.entries, strict=True)):
        stored = stored_rows.get(key, new_rows.get(key))
        if key in erased:
            statuses.append(WriteStatus.ERASED)
            continue
        is_new = stored is None or key in batch.recovered_keys
        statuses.append(WriteStatus.NEW if is_new else WriteStatus.SAME)
        try:
            if stored is None:
                new_rows[key] = _to_row(key, entry, locks)
            else:
                _require_equal(entry, stored, in_batch=key in new_rows)
        except CallerError as error:
            errors[position] = error
    if errors:
        # The first error is raised and carries the others.
        first = next(iter(errors.values()))
        first.details["faults"] = {position: str(error) for position, error in errors.items()}
        conflicts = [error for error in errors.values() if isinstance(error, Conflict)]
        first.details["conflicts"] = [error.details["message_id"] for error in conflicts]
        raise first
    if new_rows:
        execute_prepared(connection, _INSERT, list(new_rows.values()))
    return WriteResult(tuple(message_id for _, message_id in batch.keys), tuple(statuses))


def _find_stored(connection: Connection, keys: Sequence[_Key]) -> dict[_Key, Mapping[str, Any]]:
    """Return the rows that have ids of the batch; Conflict if a memory has one."""
    memory_keys = (memories.c.user_id, memories.c.memory_key)
    conflicts = select_by_keys(connection, _MEMORIES, memory_keys, keys)
    if conflicts:
        raise Conflict(
            f"message_id {conflicts[0]['memory_key']!r} is the key of a memory",
            hint="Give the message another id",
            user_id=conflicts[0]["user_id"],
            message_id=conflicts[0]["memory_key"],
        )
    message_keys = (messages.c.user_id, messages.c.message_id)
    rows = select_by_keys(connection, _STORED, message_keys, keys)
    return {(row["user_id"], row["message_id"]): dict(row) for row in rows}


def find_erased(connection: Connection, keys: Sequence[_Key]) -> set[_Key]:
    """Return the ids of messages that were erased: sent or imported again, they stay so."""
    columns = (tombstones.c.user_id, tombstones.c.key)
    rows = select_by_keys(connection, _ERASED, columns, keys)
    return {(row["user_id"], row["key"]) for row in rows}


def release_ids(connection: Connection, user_id: str, kind: str, keys: Sequence[str]) -> None:
    """Let messages or memories that were just erased be stored again."""
    of_user = (tombstones.c.user_id == user_id, tombstones.c.kind == kind)
    for batch in split(keys):
        connection.execute(delete(tombstones).where(*of_user, tombstones.c.key.in_(batch)))
    # Without tombstones, only a new epoch makes readers drop the rows.
    epoch = update(users).where(users.c.user_id == user_id).values(epoch=new_epoch())
    connection.execute(epoch)


def _require_equal(entry: ScopedMessage, stored: Mapping[str, Any], *, in_batch: bool) -> None:
    message = entry.message
    values: dict[str, object] = {
        "content": message.content,
        "role": message.role,
        "speaker": message.speaker,
        "ts": message.ts or stored["ts"],  # a message without a time has none to differ in
    }
    # An earlier version stored names of speakers as they were sent.
    stored = {**stored, "speaker": clean_shown_name(stored["speaker"] or "") or None}
    different = [name for name, value in values.items() if value != stored[name]]
    if different:
        problem = "occurs twice in this batch, with" if in_batch else "is already stored with"
        raise Conflict(
            f"message {message.message_id!r} {problem} another {different[0]}",
            hint="Messages are evidence and never rewritten; give the new one its own id",
            user_id=entry.scope.user_id,
            message_id=message.message_id,
            fields=different,
        )


def _to_row(key: _Key, entry: ScopedMessage, locks: Locks) -> dict[str, Any]:
    scope, message = entry.scope, entry.message
    session = session_of(scope)
    sequence_no, create_time = locks.sessions[scope.user_id, session].next(locks.now)
    return {
        "user_id": scope.user_id,
        "message_id": key[1],
        "agent_id": agent_of(scope),
        "session_id": session,
        "role": message.role.value,
        "speaker": message.speaker,
        "content": message.content,
        "content_type": message.content_type,
        "metadata": message.metadata,
        "parent_message_id": message.parent_message_id,
        "ts": message.ts or create_time,  # which keeps the order of a batch
        "create_time": create_time,
        "sequence_no": sequence_no,
        "search_text": make_search_text(message.content),
        "change_no": locks.next_change(scope.user_id),
        "project": scope.project or message.project,
        "author": scope.author,
    }
