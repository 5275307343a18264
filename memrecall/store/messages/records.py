"""Writing messages: in batches, all or nothing, and never twice."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import CallerError, Conflict, StorageBusy
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import Locks, agent_of, lock_scopes, session_of
from memrecall.store.database.statements import execute_prepared, new_id, select_by_keys
from memrecall.store.database.tables import memories, messages, tombstones
from memrecall.store.texts import make_search_text
from memrecall.types import NewMessage
from memrecall.workers import run_to_completion

# Messages of a batch that shares a transaction, and batches in one.
_LARGEST_SHARED = 64
_MOST_SHARED = 64

_INSERT = insert(messages)
_Key = tuple[str, str]  # user and message


@dataclass(frozen=True, slots=True)
class ScopedMessage:
    """A message to write, and the scope that trusted code writes it in."""

    scope: Scope
    message: NewMessage


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The ids of a batch in its order, and which of them are new."""

    ids: tuple[str, ...] = ()
    created: tuple[bool, ...] = ()

    @property
    def stored(self) -> int:
        """The number of new rows."""
        return sum(self.created)


async def write_messages(database: Database, entries: Sequence[ScopedMessage]) -> WriteResult:
    """Store a batch, all or nothing; Conflict if a message is stored with another content.

    Small batches that arrive at once share a transaction: it costs more than their rows.
    """
    if not entries:
        return WriteResult()
    if len(entries) > _LARGEST_SHARED:
        return await _write(database, entries)
    return await run_to_completion(_write_shared(database, entries))


async def _write_shared(database: Database, entries: Sequence[ScopedMessage]) -> WriteResult:
    write_together = database.grouped(_write_together, _MOST_SHARED)
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
    return list(_split_result(together, map(len, batches)))


def _split_result(together: WriteResult, sizes: Iterable[int]) -> Iterator[WriteResult]:
    ids, created = iter(together.ids), iter(together.created)
    for size in sizes:
        yield WriteResult(tuple(islice(ids, size)), tuple(islice(created, size)))


async def _write(
    database: Database, entries: Sequence[ScopedMessage], *, wait: bool = True
) -> WriteResult:
    async def work(connection: AsyncConnection) -> WriteResult:
        scopes = {entry.scope for entry in entries}
        locks = await lock_scopes(connection, scopes, with_sessions=True, wait=wait)
        result = await insert_messages(connection, entries, locks)
        await locks.save(connection)
        return result

    return await database.transact(work)


async def insert_messages(
    connection: AsyncConnection, entries: Sequence[ScopedMessage], locks: Locks
) -> WriteResult:
    """Insert the entries that are not stored yet; the caller saves the locks."""
    # Only messages with their own ids can be stored already; an id made here is new.
    keys = [(entry.scope.user_id, entry.message.message_id or new_id("m")) for entry in entries]
    own_keys = {key for key, e in zip(keys, entries, strict=True) if e.message.message_id}
    stored_rows = await _find_stored(connection, sorted(own_keys)) if own_keys else {}
    erased = await _find_erased(connection, sorted(own_keys - set(stored_rows)))
    new_rows: dict[_Key, dict[str, Any]] = {}
    created: list[bool] = []
    errors: dict[int, CallerError] = {}
    for position, (key, entry) in enumerate(zip(keys, entries, strict=True)):
        stored = stored_rows.get(key, new_rows.get(key))
        created.append(stored is None and key not in erased)
        if key in erased:
            continue
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
        raise first
    if new_rows:
        await execute_prepared(connection, _INSERT, list(new_rows.values()))
    return WriteResult(tuple(message_id for _, message_id in keys), tuple(created))


async def _find_stored(connection: AsyncConnection, keys: Sequence[_Key]) -> dict[_Key, RowMapping]:
    """Return the rows that have ids of the batch; Conflict if a memory has one."""
    columns = [memories.c.user_id, memories.c.memory_key]
    conflicts = await select_by_keys(connection, select(*columns), columns, keys)
    if conflicts:
        raise Conflict(
            f"message_id {conflicts[0]['memory_key']!r} is the key of a memory",
            hint="Give the message another id",
            user_id=conflicts[0]["user_id"],
            message_id=conflicts[0]["memory_key"],
        )
    columns = [messages.c.user_id, messages.c.message_id]
    values = (messages.c.content, messages.c.ts, messages.c.role, messages.c.speaker)
    rows = await select_by_keys(connection, select(*columns, *values), columns, keys)
    return {(row["user_id"], row["message_id"]): row for row in rows}


async def _find_erased(connection: AsyncConnection, keys: Sequence[_Key]) -> set[_Key]:
    """Return the ids of messages that were erased: sent or imported again, they stay so."""
    columns = [tombstones.c.user_id, tombstones.c.key]
    statement = select(*columns).where(tombstones.c.kind == "message")
    rows = await select_by_keys(connection, statement, columns, keys)
    return {(row["user_id"], row["key"]) for row in rows}


def _require_equal(
    entry: ScopedMessage, stored: RowMapping | dict[str, Any], *, in_batch: bool
) -> None:
    message = entry.message
    values: dict[str, object] = {
        "content": message.content,
        "role": message.role,
        "speaker": message.speaker,
        "ts": message.ts or stored["ts"],  # a message without a time has none to differ in
    }
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
    }
