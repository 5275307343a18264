"""The expiry of messages: each one is hidden with the first memory from it that expires.

It is stored with the message, so that nothing has to be written at the moment when it passes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from memrecall.store.database.locks import Locks
from memrecall.store.database.statements import (
    STRINGS_PER_CONDITION,
    mentions,
    select_by_keys,
    split,
)
from memrecall.store.database.tables import memories, messages, vectors
from memrecall.store.sessions import withdraw_summaries
from memrecall.types import DIGESTS

_MESSAGE_KEY = (
    messages.c.user_id == bindparam("of_user"),
    messages.c.message_id == bindparam("of_key"),
)
_MEMORY_KEY = (
    memories.c.user_id == bindparam("of_user"),
    memories.c.memory_key == bindparam("of_key"),
)
_VECTOR_KEY = (
    vectors.c.user_id == bindparam("of_user"),
    vectors.c.kind == bindparam("of_kind"),
    vectors.c.key == bindparam("of_key"),
)
_COLUMNS = ("message_id", "session_id", "sequence_no", "expires_at")


class MessageExpiry:
    """Keeps the expiry of one user's messages equal to that of the memories from them."""

    def __init__(self, connection: Connection, locks: Locks, user_id: str) -> None:
        self._connection = connection
        self._locks = locks
        self._user_id = user_id

    def follow(self, message_ids: Collection[str]) -> None:
        """Set the expiry of messages by the memories from them that are not deleted."""
        if not message_ids:
            return
        earliest = self._earliest(sorted(message_ids))
        changed = [
            row
            for row in self._find(sorted(message_ids))
            if row["expires_at"] != earliest.get(row["message_id"])
        ]
        values = {row["message_id"]: earliest.get(row["message_id"]) for row in changed}
        self._write(messages, _MESSAGE_KEY, "message", values)
        self._follow_digests(changed)
        now = self._locks.now
        # What has passed already, or had, changes summaries now; else they are stale when it does.
        was_or_is_past = (
            row
            for row in changed
            if any(at and at <= now for at in (row["expires_at"], values[row["message_id"]]))
        )
        for session, numbers in _by_session(was_or_is_past).items():
            withdraw_summaries(self._connection, self._user_id, session, numbers)

    def of_sources(self, message_ids: Collection[str]) -> dict[str, datetime]:
        """Return when messages expire, without those that do not."""
        rows = self._find(sorted(message_ids))
        return {row["message_id"]: row["expires_at"] for row in rows if row["expires_at"]}

    def _earliest(self, message_ids: Sequence[str]) -> dict[str, datetime]:
        """Return the first expiry of the memories from each message."""
        earliest: dict[str, datetime] = {}
        for batch in split(message_ids, STRINGS_PER_CONDITION):
            statement = select(memories.c.source_message_ids, memories.c.expires_at).where(
                memories.c.user_id == self._user_id,
                memories.c.deleted_at.is_(None),
                memories.c.expires_at.is_not(None),
                memories.c.memory_type.not_in(DIGESTS),
                mentions(memories.c.source_message_ids, batch),
            )
            for sources, expires_at in self._connection.execute(statement).all():
                for name in sources:
                    earliest[name] = min(expires_at, earliest.get(name, expires_at))
        return earliest

    def _find(self, message_ids: Sequence[str]) -> Sequence[Mapping[Any, Any]]:
        statement = select(*(messages.c[name] for name in _COLUMNS)).where(
            messages.c.user_id == self._user_id
        )
        return select_by_keys(self._connection, statement, [messages.c.message_id], message_ids)

    def _follow_digests(self, changed: Sequence[Mapping[Any, Any]]) -> None:
        """Let what summarises messages expire with the first of them."""
        if not changed:
            return
        before = {row["expires_at"] for row in changed}
        columns = (memories.c.memory_key, memories.c.source_message_ids, memories.c.expires_at)
        of_user = (memories.c.user_id == self._user_id, memories.c.memory_type.in_(DIGESTS))
        values: dict[str, datetime | None] = {}
        for batch in split(sorted(row["message_id"] for row in changed), STRINGS_PER_CONDITION):
            is_digest = mentions(memories.c.source_message_ids, batch)
            statement = select(*columns).where(*of_user, is_digest)
            for key, sources, expires_at in self._connection.execute(statement).all():
                new = min(self.of_sources(sources).values(), default=None)
                is_own = expires_at is not None and expires_at not in before  # set by its writer
                if new != expires_at and not (is_own and (new is None or new > expires_at)):
                    values[key] = new
        self._write(memories, _MEMORY_KEY, "memory", values)

    def _write(
        self, table: Any, key: Any, kind: str, values: Mapping[str, datetime | None]
    ) -> None:
        """Set the expiry of rows, and give them and their vectors to search indexes again."""
        if not values:
            return
        rows, of_vectors = [], []
        for name, expires_at in values.items():
            number = self._locks.next_change(self._user_id)
            numbered = {"of_user": self._user_id, "of_key": name, "change_no": number}
            rows.append({**numbered, "expires_at": expires_at})
            of_vectors.append({**numbered, "of_kind": kind})
        self._connection.execute(update(table).where(*key), rows)
        self._connection.execute(update(vectors).where(*_VECTOR_KEY), of_vectors)


def _by_session(rows: Iterable[Mapping[Any, Any]]) -> dict[str, set[int]]:
    numbers: dict[str, set[int]] = {}
    for row in rows:
        numbers.setdefault(row["session_id"], set()).add(row["sequence_no"])
    return numbers
