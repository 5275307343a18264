"""Messages: written in batches, never rewritten, read by time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import CallerError, Conflict
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import Locks, agent_of, claim, session_of
from memrecall.store.database.statements import new_id, select_by_keys
from memrecall.store.database.tables import memories, messages
from memrecall.text import analyze
from memrecall.types import NewMessage

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ScopedMessage:
    """A message to be written, and the scope that trusted code wrote it in."""

    scope: Scope
    message: NewMessage


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a batch did: the ids in the order given, and which of them are new."""

    ids: tuple[str, ...] = ()
    created: tuple[bool, ...] = ()

    @property
    def stored(self) -> int:
        """How many rows are new."""
        return sum(self.created)


async def write_messages(database: Database, entries: Sequence[ScopedMessage]) -> WriteResult:
    """Store a batch, all or nothing. What is there already is left alone, unless it differs."""
    named = [with_id(entry) for entry in entries]
    if not named:
        return WriteResult()
    called = [entry for entry in entries if entry.message.message_id is not None]
    return await database.transact(lambda connection: _write(connection, named, called))


def with_id(entry: ScopedMessage) -> ScopedMessage:
    """The entry with an id of its message: its own, or a new one."""
    if entry.message.message_id is not None:
        return entry
    return ScopedMessage(entry.scope, entry.message.model_copy(update={"message_id": new_id("m")}))


async def _write(
    connection: AsyncConnection, entries: list[ScopedMessage], called: Sequence[ScopedMessage]
) -> WriteResult:
    now = datetime.now(UTC)
    claims = await claim(connection, (e.scope for e in entries), now, with_sessions=True)
    written = await write_claimed(connection, entries, claims, called)
    await claims.release(connection)
    return written


async def write_claimed(
    connection: AsyncConnection,
    entries: list[ScopedMessage],
    claims: Locks,
    called: Sequence[ScopedMessage],
) -> WriteResult:
    """Store entries with ids under claims that the caller releases.

    Only those `called` by somebody else can be there already; an id made here is new.
    """
    known = await _known(connection, called) if called else {}
    ours: set[_Key] = set()  # what this batch itself brings
    rows: list[dict[str, Any]] = []
    fresh: list[bool] = []
    faults: dict[int, CallerError] = {}
    for position, entry in enumerate(entries):
        stored = known.get(_key(entry))
        fresh.append(stored is None)
        try:
            if stored is not None:
                _require_same(entry, stored, in_batch=_key(entry) in ours)
                continue
            row = _row(entry, claims)
        except CallerError as error:
            faults[position] = error
            continue
        rows.append(row)
        known[_key(entry)] = row
        ours.add(_key(entry))
    _require_faultless(faults)
    if rows:
        await connection.execute(insert(messages), rows)
    return WriteResult(tuple(_key(entry)[1] for entry in entries), tuple(fresh))


def _require_faultless(faults: dict[int, CallerError]) -> None:
    """Refuse the batch with its first fault, which also tells of the others."""
    if faults:
        first = next(iter(faults.values()))
        first.details["faults"] = {position: str(error) for position, error in faults.items()}
        raise first


def _key(entry: ScopedMessage) -> _Key:
    assert entry.message.message_id is not None  # noqa: S101 -- `with_id` gave it one
    return entry.scope.user_id, entry.message.message_id


async def _known(connection: AsyncConnection, entries: Iterable[ScopedMessage]) -> dict[_Key, Any]:
    """What is stored under the batch's ids. An id that names a memory cannot name a message."""
    keys = sorted({_key(entry) for entry in entries})
    taken = await select_by_keys(
        connection,
        select(memories.c.user_id, memories.c.memory_key),
        [memories.c.user_id, memories.c.memory_key],
        keys,
    )
    if taken:
        raise Conflict(
            f"message_id {taken[0]['memory_key']!r} is the key of a memory",
            hint="Give the message another id",
            user_id=taken[0]["user_id"],
            message_id=taken[0]["memory_key"],
        )
    columns = (messages.c.content, messages.c.ts, messages.c.role, messages.c.speaker)
    rows = await select_by_keys(
        connection,
        select(messages.c.user_id, messages.c.message_id, *columns),
        [messages.c.user_id, messages.c.message_id],
        keys,
    )
    return {(row["user_id"], row["message_id"]): row for row in rows}


def _require_same(
    entry: ScopedMessage, stored: RowMapping | dict[str, Any], *, in_batch: bool
) -> None:
    said = entry.message
    given: dict[str, object] = {
        "content": said.content,
        "role": said.role,
        "speaker": said.speaker,
        "ts": said.ts or stored["ts"],  # no time given: nothing to differ from
    }
    different = [name for name, value in given.items() if value != stored[name]]
    if different:
        twice = f"comes twice in this batch, with another {different[0]}"
        before = f"is already stored with another {different[0]}"
        raise Conflict(
            f"message {said.message_id!r} {twice if in_batch else before}",
            hint="Messages are evidence and never rewritten; give the new one its own id",
            user_id=entry.scope.user_id,
            message_id=said.message_id,
            fields=different,
        )


def _row(entry: ScopedMessage, claims: Locks) -> dict[str, Any]:
    scope, message = entry.scope, entry.message
    session = session_of(scope)
    sequence_no, create_time = claims.counters[scope.user_id, session].next(claims.now)
    return {
        "user_id": scope.user_id,
        "message_id": message.message_id,
        "agent_id": agent_of(scope),
        "session_id": session,
        "role": message.role.value,
        "speaker": message.speaker,
        "content": message.content,
        "content_type": message.content_type,
        "metadata": message.metadata,
        "parent_message_id": message.parent_message_id,
        "ts": message.ts or create_time,  # in the order of a batch
        "create_time": create_time,
        "sequence_no": sequence_no,
        "search_text": analyze(message.content).to_search_text(),
        "change_no": claims.next_change(scope.user_id),
    }
