"""New memories, inserted in a transaction that has locked their user, and copies in spaces."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, insert, select

from memrecall.errors import Conflict, InvalidArgument
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import Locks, agent_of, lock_scopes
from memrecall.store.database.statements import new_id, select_by_keys
from memrecall.store.database.tables import memories, messages
from memrecall.store.memories.expiry import MessageExpiry
from memrecall.store.memories.history import AuditEntry, StoredRow, require_equal, write_entry
from memrecall.store.messages import (
    MessageBatch,
    ScopedMessage,
    WriteResult,
    WriteStatus,
    insert_messages,
    release_ids,
)
from memrecall.store.texts import truncate, with_search_text
from memrecall.types import DIGESTS, USER, NewMemory, NewMessage, Origin, Provenance

PERSONAL = frozenset({"user_profile", "user_preference", "relationship", "habit"})
NO_PROJECTS: Mapping[str, str | None] = {}
_NOT_COLUMNS = {"content", "source_message_ids", "conflicts_with", "doubts", "said_at"}


class MemoryInserter:
    """Inserts one scope's memories in one transaction; the caller locks and saves the locks."""

    def __init__(
        self,
        connection: Connection,
        locks: Locks,
        scope: Scope,
        actor: str,
        run: str | None = None,
    ) -> None:
        self._connection = connection
        self._locks = locks
        self._scope = scope
        self._actor = actor
        self._run = run  # the extraction of stored messages, if that writes

    @property
    def is_shared(self) -> bool:
        """Whether the memories are those of a space, in which others write too."""
        return self._scope.author is not None

    def add(
        self, batch: Sequence[NewMemory], origin: Origin, *, supersedes: str | None = None
    ) -> WriteResult:
        """Insert memories that have keys; one that is stored already must be the same."""
        projects = self._require_sources(batch)
        stored_rows = self._find_stored(batch)
        return self.insert(batch, origin, stored_rows, supersedes, projects)

    def insert(
        self,
        batch: Sequence[NewMemory],
        origin: Origin,
        stored_rows: Mapping[str, Any],
        supersedes: str | None = None,
        projects: Mapping[str, str | None] = NO_PROJECTS,
    ) -> WriteResult:
        """Insert memories with keys and existing sources, without those among the stored rows.

        `projects` are those of the sources.
        """
        new_rows: dict[str, dict[str, Any]] = {}
        statuses: list[WriteStatus] = []
        session = None
        if self._scope.session_id is not None:
            session = self._locks.open_session(self._connection, self._scope)
        for memory in batch:
            row = {**self._to_row(memory, origin), "supersedes": supersedes}
            row["project"] = self._find_project(memory, projects)
            stored = stored_rows.get(row["memory_key"], new_rows.get(row["memory_key"]))
            statuses.append(WriteStatus.NEW if stored is None else WriteStatus.SAME)
            if stored is not None:
                require_equal(row, stored)
                continue
            if session is not None and self._run is None:  # its messages were said before its end
                session.require_open()
            row["change_no"] = self._locks.next_change(self._scope.user_id)
            new_rows[row["memory_key"]] = row
        if new_rows:
            self._insert(list(new_rows.values()))
        return WriteResult(tuple(str(m.memory_key) for m in batch), tuple(statuses))

    def _insert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows; messages expire with memories from them, and digests with messages."""
        expiry = MessageExpiry(self._connection, self._locks, self._scope.user_id)
        for row in rows:
            if row["memory_type"] in DIGESTS and row["source_message_ids"]:
                ends = expiry.of_sources(row["source_message_ids"]).values()
                row["expires_at"] = min(filter(None, [row["expires_at"], *ends]), default=None)
        self._connection.execute(insert(memories), rows)
        expiring = (row for row in rows if row["expires_at"] is not None)
        expiry.follow({name for row in expiring for name in row["source_message_ids"]})

    def _find_stored(self, batch: Sequence[NewMemory]) -> dict[str, Any]:
        """Return the rows that have keys of the batch; Conflict if a message has one."""
        keys = [str(memory.memory_key) for memory in batch]
        statement = select(messages.c.message_id)
        statement = statement.where(messages.c.user_id == self._scope.user_id)
        conflicts = self._select_by_keys(statement, messages.c.message_id, keys)
        if conflicts:
            raise Conflict(
                f"memory_key {conflicts[0]['message_id']!r} is the id of a message",
                hint="Give the memory another key",
            )
        statement = select(memories).where(memories.c.user_id == self._scope.user_id)
        rows = self._select_by_keys(statement, memories.c.memory_key, keys)
        return {row["memory_key"]: row for row in rows}

    def _find_project(self, memory: NewMemory, projects: Mapping[str, str | None]) -> str | None:
        """Return the scope's project, else its own, else that of the last source that has one."""
        # Who the user is and what they like holds in every project.
        if memory.memory_type in PERSONAL and memory.subject in (None, USER, memory.speaker):
            return None
        of_sources = (projects.get(name) for name in reversed(memory.source_message_ids))
        return self._scope.project or memory.project or next(filter(None, of_sources), None)

    def _require_sources(self, batch: Sequence[NewMemory]) -> dict[str, str | None]:
        """Return the project of each source; InvalidArgument if one is not stored."""
        sources = {source for memory in batch for source in memory.source_message_ids}
        statement = select(messages.c.message_id, messages.c.project)
        statement = statement.where(messages.c.user_id == self._scope.user_id)
        rows = self._select_by_keys(statement, messages.c.message_id, list(sources))
        missing = sorted(sources - {row["message_id"] for row in rows})
        if missing:
            raise InvalidArgument(
                f"source message {missing[0]!r} does not exist", hint="Store the message first"
            )
        return {row["message_id"]: row["project"] for row in rows}

    def _select_by_keys(
        self, statement: Select[Any], column: Any, keys: Sequence[str]
    ) -> Sequence[StoredRow]:
        return select_by_keys(self._connection, statement, [column], sorted(set(keys)))

    def _to_row(self, memory: NewMemory, origin: Origin) -> dict[str, Any]:
        content, truncated = truncate(memory.content)
        provenance = Provenance(
            origin=origin,
            actor=self._actor,
            session_id=self._scope.session_id,
            time=self._locks.now,
            sha256=hashlib.sha256(memory.content.encode()).hexdigest(),
            conflicts_with=memory.conflicts_with,
            doubts=memory.doubts,
            said_at=memory.said_at,
            run=self._run,
        )
        row = {
            **memory.model_dump(exclude=_NOT_COLUMNS),
            "content": content,
            "truncated": truncated,
            "source_message_ids": list(memory.source_message_ids),
            "user_id": self._scope.user_id,
            "agent_id": agent_of(self._scope),
            "session_id": self._scope.session_id,
            "author": self._scope.author,
            "provenance": provenance.model_dump(mode="json", exclude_defaults=True),
            "created_at": self._locks.now,
            "updated_at": self._locks.now,
        }
        return with_search_text(row, row)


def with_key(memory: NewMemory) -> NewMemory:
    """Return the memory with its own key or a new one."""
    if memory.memory_key is not None:
        return memory
    return memory.model_copy(update={"memory_key": new_id("mem")})


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

    def work(connection: Connection) -> bool:
        locks = lock_scopes(connection, [scope], with_sessions=True)
        of_key = (memories.c.user_id == scope.user_id, memories.c.memory_key == key)
        statement = select(memories.c.deleted_at).where(*of_key)
        for row in connection.execute(statement).all():
            if row.deleted_at is not None:
                raise Conflict(f"memory {key!r} was deleted in the space", hint="Undo that first")
            return False
        ids = _copy_messages(connection, locks, scope, sources)
        copy = memory.model_copy(update={"source_message_ids": tuple(ids)})
        MemoryInserter(connection, locks, scope, actor).add([copy], origin)
        write_entry(connection, scope, AuditEntry("promote", actor, key), locks.now)
        locks.save(connection)
        return True

    return await database.transact(work)


def _copy_messages(
    connection: Connection, locks: Locks, scope: Scope, sources: Sequence[NewMessage]
) -> list[str]:
    """Insert messages and return their ids, also those that were taken back before."""
    entries = [ScopedMessage(scope, message) for message in sources]
    result = insert_messages(connection, MessageBatch(entries), locks)
    erased = [place for place, status in enumerate(result.statuses) if status is WriteStatus.ERASED]
    if erased:
        # By the same ids, from which `demote` knows them.
        release_ids(connection, scope.user_id, "message", [result.ids[n] for n in erased])
        again = MessageBatch([entries[place] for place in erased])
        insert_messages(connection, again, locks)
    return list(result.ids)
