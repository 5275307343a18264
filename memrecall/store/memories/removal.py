"""Removal of memories and messages: hidden until an undo, or erased with all that quotes them.

A message is also hidden with the first memory from it that expires. That time is stored with the
message, so that nothing has to be written at the moment when it passes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    bindparam,
    delete,
    func,
    or_,
    select,
    update,
)

from memrecall.errors import NotFound
from memrecall.scope import Scope, SpaceRole
from memrecall.store.database.locks import Locks
from memrecall.store.database.statements import (
    STRINGS_PER_CONDITION,
    filter_scope,
    mentions,
    select_by_keys,
    split,
    upsert,
)
from memrecall.store.database.tables import (
    PASSAGE,
    checkpoints,
    feedback,
    memories,
    messages,
    revisions,
    tombstones,
    traces,
    vectors,
)
from memrecall.store.memories.history import PendingChange, StoredRow, filter_visible, write_changes
from memrecall.store.messages import find_erased, release_ids
from memrecall.store.sessions import (
    erase_empty_sessions,
    erase_items,
    is_job_of,
    withdraw_summaries,
)
from memrecall.types import DERIVED_BY, DIGESTS, EXPERIENCE

_SHORTEST_QUOTE = 12  # characters; shorter texts occur in questions by chance
_LONGEST_QUOTE = 500
_MESSAGE_KEY = (
    messages.c.user_id == bindparam("of_user"),
    messages.c.message_id == bindparam("of_key"),
)
_MEMORY_KEY = (
    memories.c.user_id == bindparam("of_user"),
    memories.c.memory_key == bindparam("of_key"),
)
_MESSAGE_VECTOR_KEY = (
    vectors.c.user_id == bindparam("of_user"),
    vectors.c.kind == "message",
    vectors.c.key == bindparam("of_key"),
)
_MESSAGE_COLUMNS = [
    messages.c.message_id,
    messages.c.agent_id,
    messages.c.session_id,
    messages.c.sequence_no,
    messages.c.content,
    messages.c.author,
    messages.c.deleted_at,
    messages.c.deletion,
    messages.c.expires_at,
]


class MessageRemover:
    """Hides, shows, expires and erases messages of one user."""

    def __init__(self, connection: Connection, locks: Locks, user_id: str) -> None:
        self._connection = connection
        self._locks = locks
        self._user_id = user_id

    def find(self, message_ids: Collection[str]) -> list[RowMapping]:
        """Return messages, hidden ones too."""
        statement = select(*_MESSAGE_COLUMNS).where(messages.c.user_id == self._user_id)
        keys = sorted(message_ids)
        return select_by_keys(self._connection, statement, [messages.c.message_id], keys)

    def hide(self, message_ids: Collection[str]) -> list[str]:
        """Hide messages; return those that were visible."""
        rows = self.find(message_ids)
        keys = [row["message_id"] for row in rows if row["deleted_at"] is None]
        self._set_deleted_at(keys, self._locks.now)
        return keys

    def hide_alone(self, hidden_with: Mapping[str, Sequence[str]]) -> None:
        """Hide messages that are deleted themselves.

        `hidden_with` has the keys of the memories that are hidden with each.
        """
        self.hide(hidden_with)
        rows = [
            {"of_user": self._user_id, "of_key": key, "deletion": list(keys)}
            for key, keys in hidden_with.items()
        ]
        if rows:
            self._connection.execute(update(messages).where(*_MESSAGE_KEY), rows)

    def show(self, message_ids: Collection[str]) -> None:
        """Show hidden messages again, to search indexes too; not those deleted themselves."""
        rows = self.find(message_ids)
        keys = [
            row["message_id"]
            for row in rows
            if row["deleted_at"] is not None and row["deletion"] is None
        ]
        self._set_deleted_at(keys, None)
        if keys:
            statement = update(vectors).where(*_MESSAGE_VECTOR_KEY)
            self._connection.execute(statement, self._number(keys))

    def show_alone(self, message_id: str) -> None:
        """Show a message that was deleted itself; let summaries be made with it again."""
        values = {"of_user": self._user_id, "of_key": message_id, "deletion": None}
        self._connection.execute(update(messages).where(*_MESSAGE_KEY), [values])
        self.show([message_id])
        self.withdraw_summaries([message_id])

    def _set_deleted_at(self, keys: Sequence[str], moment: datetime | None) -> None:
        if keys:
            statement = update(messages).where(*_MESSAGE_KEY).values(deleted_at=moment)
            self._connection.execute(statement, self._number(keys))

    def _number(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return a change number for each key, as statements take it."""
        user = self._user_id
        return [
            {"of_user": user, "of_key": key, "change_no": self._locks.next_change(user)}
            for key in keys
        ]

    def withdraw_summaries(self, message_ids: Collection[str]) -> None:
        """Empty the summaries that messages are part of; they are made again without them."""
        numbers: dict[str, set[int]] = {}
        for row in self.find(message_ids):
            numbers.setdefault(row["session_id"], set()).add(row["sequence_no"])
        for session, in_session in numbers.items():
            withdraw_summaries(self._connection, self._user_id, session, in_session)

    def first_expiry(self, message_ids: Collection[str]) -> datetime | None:
        """Return when the first of some messages expires, if any does."""
        statement = select(messages.c.expires_at).where(
            messages.c.user_id == self._user_id, messages.c.expires_at.is_not(None)
        )
        keys = sorted(message_ids)
        rows = select_by_keys(self._connection, statement, [messages.c.message_id], keys)
        return min((row["expires_at"] for row in rows), default=None)

    def follow_expiry(self, message_ids: Collection[str]) -> None:
        """Set the expiry of messages to the first of the memories from them, without deleted ones.

        What summarises the messages expires with the first of them.
        """
        earliest: dict[str, datetime] = {}
        for batch in split(sorted(message_ids), STRINGS_PER_CONDITION):
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
        old = {row["message_id"]: row["expires_at"] for row in self.find(message_ids)}
        new = {key: earliest.get(key) for key in old if old[key] != earliest.get(key)}
        if not new:
            return
        self._set_expiry("message", new)
        self._follow_with_digests(sorted(new), {old[key] for key in new})
        # What has passed already, or had, changes summaries now; else they are stale when it does.
        now = self._locks.now
        passed = [key for key in new if any(at and at <= now for at in (old[key], new[key]))]
        self.withdraw_summaries(passed)

    def _follow_with_digests(
        self, message_ids: Sequence[str], before: Collection[datetime | None]
    ) -> None:
        """Let what summarises messages expire with the first of them; `before` was their expiry."""
        columns = (memories.c.memory_key, memories.c.source_message_ids, memories.c.expires_at)
        of_user = (memories.c.user_id == self._user_id, memories.c.memory_type.in_(DIGESTS))
        values: dict[str, datetime | None] = {}
        for batch in split(message_ids, STRINGS_PER_CONDITION):
            is_digest = mentions(memories.c.source_message_ids, batch)
            statement = select(*columns).where(*of_user, is_digest)
            for key, sources, expires_at in self._connection.execute(statement).all():
                new = self.first_expiry(sources)
                is_own = expires_at is not None and expires_at not in before  # set by its writer
                if new != expires_at and not (is_own and (new is None or new > expires_at)):
                    values[key] = new
        if values:
            self._set_expiry("memory", values)

    def _set_expiry(self, kind: str, values: Mapping[str, datetime | None]) -> None:
        """Set the expiry of messages or memories, and give them and their vectors to readers."""
        numbers = self._number(list(values))
        rows = [{**number, "expires_at": values[number["of_key"]]} for number in numbers]
        target = (
            update(messages).where(*_MESSAGE_KEY)
            if kind == "message"
            else update(memories).where(*_MEMORY_KEY)
        )
        self._connection.execute(target, rows)
        of_vector = (vectors.c.kind == kind, vectors.c.key == bindparam("of_key"))
        statement = update(vectors).where(vectors.c.user_id == bindparam("of_user"), *of_vector)
        self._connection.execute(statement, numbers)

    def erase(
        self, message_ids: Collection[str], since: datetime | None = None
    ) -> list[RowMapping]:
        """Erase messages and return their rows; memories and checkpoints lose them too.

        With `since`, memories that were made before that time still name them.
        """
        rows = self.find(message_ids)
        keys = [row["message_id"] for row in rows]
        erased_ids = frozenset(keys)
        by_session: dict[str, set[str]] = {}
        for row in rows:
            by_session.setdefault(row["session_id"], set()).add(row["message_id"])
        for session, in_session in by_session.items():
            erase_items(self._connection, self._user_id, session, in_session)
        for batch in split(keys):
            for table, column in ((vectors, vectors.c.key), (messages, messages.c.message_id)):
                erased = delete(table).where(table.c.user_id == self._user_id, column.in_(batch))
                if table is vectors:
                    erased = erased.where(vectors.c.kind == "message")
                self._connection.execute(erased)
        for batch in split(sorted(keys), STRINGS_PER_CONDITION):
            citing = select(memories.c.memory_key, memories.c.source_message_ids).where(
                memories.c.user_id == self._user_id,
                mentions(memories.c.source_message_ids, batch),
            )
            if since is not None:
                citing = citing.where(memories.c.created_at >= since)
            values = [
                {
                    "of_user": self._user_id,
                    "of_key": key,
                    "source_message_ids": [name for name in sources if name not in erased_ids],
                }
                for key, sources in self._connection.execute(citing).all()
            ]
            if values:
                self._connection.execute(update(memories).where(*_MEMORY_KEY), values)
        self.bury("message", keys)
        return rows

    def bury(self, kind: str, keys: Sequence[str]) -> None:
        """Leave tombstones, from which readers learn that rows were erased."""
        if keys:
            rows = [
                {
                    "user_id": self._user_id,
                    "kind": kind,
                    "key": key,
                    "change_no": self._locks.next_change(self._user_id),
                    "import_label": None,
                }
                for key in keys
            ]
            # What is erased here stays erased when an import that says the same is taken back.
            columns = ["change_no", "import_label"]
            self._connection.execute(upsert(self._connection, tombstones, columns), rows)

    def erase_traces(self, keys: Collection[str], texts: Collection[str]) -> None:
        """Erase the traces that name any of the keys, or whose question quotes a text.

        Feedback on recalls and results of jobs are erased too.
        """
        quotes = [text.strip()[:_LONGEST_QUOTE] for text in texts]
        long = [text for text in quotes if len(text) >= _SHORTEST_QUOTE]
        for batch in split(sorted(keys), STRINGS_PER_CONDITION):
            is_job = is_job_of(self._user_id)
            jobs = select(checkpoints.c.session_id).where(
                is_job, mentions(checkpoints.c.state, batch)
            )
            statement = delete(checkpoints).where(is_job, checkpoints.c.session_id.in_(jobs))
            self._connection.execute(statement)
        for table, names in ((feedback, feedback.c.evidence), (traces, traces.c.body)):
            query = table.c.query
            for condition in (
                *(mentions(names, batch) for batch in split(sorted(keys), STRINGS_PER_CONDITION)),
                *(func.trim(query).in_(batch) for batch in split(quotes)),
                *(
                    or_(*(query.contains(text, autoescape=True) for text in batch))
                    for batch in split(long, STRINGS_PER_CONDITION)
                ),
            ):
                erased = delete(table).where(table.c.user_id == self._user_id, condition)
                self._connection.execute(erased)


def sources_of(rows: Iterable[StoredRow]) -> set[str]:
    """Return the messages that memories come from."""
    return {name for row in rows for name in row["source_message_ids"]}


def _derived_from(message_ids: Sequence[str], citing: Sequence[StoredRow]) -> list[dict[str, Any]]:
    """Return the memories that nobody wrote, and that come from some messages alone."""
    known = frozenset(message_ids)
    derived = (row for row in citing if row["provenance"]["actor"] in DERIVED_BY)
    return [dict(row) for row in derived if known.issuperset(row["source_message_ids"])]


@dataclass(frozen=True, slots=True)
class Removal:
    """The keys of the memories and messages that were hidden or erased."""

    memories: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()

    def __add__(self, other: "Removal") -> "Removal":
        return Removal((*self.memories, *other.memories), (*self.messages, *other.messages))


class MemoryRemover:
    """Hides and erases one scope's memories and messages with what quotes them."""

    def __init__(self, connection: Connection, locks: Locks, scope: Scope) -> None:
        self._connection = connection
        self._locks = locks
        self._scope = scope
        self._messages = MessageRemover(connection, locks, scope.user_id)

    def hide(
        self,
        keys: Sequence[str] | None,
        *,
        actor: str,
        reason: str,
        sources: bool = True,
        digests: bool = True,
    ) -> Removal:
        """Hide memories, or all of the scope, and with `sources` the messages that they come from.

        In a space, these are the messages of the same author. With `digests`, memories that
        summarise these messages are hidden too. Summaries of the messages are withdrawn. One undo
        takes back everything that was hidden with a memory.
        """
        rows = self._select(keys, memories.c.deleted_at.is_(None))
        message_ids = self._in_scope(sources_of(rows))
        own = frozenset(self._own(message_ids)) if sources else frozenset()
        others = self._digests(rows) if digests and keys is not None else []
        others = [row for row in others if row["deleted_at"] is None]
        visible = self._messages.hide(own)
        other_keys = [row["memory_key"] for row in others]
        changes = []
        for row in rows:
            hidden = [name for name in row["source_message_ids"] if name in own]
            changes.append(self._hiding(row, reason, memories=other_keys, messages=hidden))
        changes += [self._hiding(row, reason) for row in others]
        self._write(changes, actor)
        self._messages.withdraw_summaries(message_ids)
        return Removal(tuple(c.row["memory_key"] for c in changes), tuple(visible))

    def hide_messages(self, message_ids: Sequence[str], *, actor: str, reason: str) -> Removal:
        """Hide messages, and the memories that were derived from them alone.

        Messages that were deleted themselves before stay as they are. `undo_message` of a message
        restores it and the memories from it.
        """
        found = self._messages.find(self._in_scope(message_ids))
        self._require_own(found)
        ids = sorted(row["message_id"] for row in found if row["deletion"] is None)
        citing = self._citing(ids)
        rows = [row for row in _derived_from(ids, citing) if row["deleted_at"] is None]
        rows += [row for row in self._digests(rows, ids) if row["deleted_at"] is None]
        of_message: dict[str, list[str]] = {name: [] for name in ids}
        for row in rows:
            cited = of_message.keys() & set(row["source_message_ids"])
            for name in cited or ids:  # experience of the session need not name the message
                of_message[name].append(row["memory_key"])
        self._write([self._hiding(row, reason) for row in rows], actor)
        self._messages.hide_alone(of_message)
        self._messages.withdraw_summaries(ids)
        return Removal(tuple(row["memory_key"] for row in rows), tuple(ids))

    def _hiding(self, row: StoredRow, reason: str, **hidden: Sequence[str]) -> PendingChange:
        return PendingChange(row, {"deleted_at": self._locks.now}, "DELETE", reason, hidden=hidden)

    def _write(self, changes: Sequence[PendingChange], actor: str) -> None:
        write_changes(self._connection, self._locks, changes, self._scope.author or actor)
        self._messages.follow_expiry({name for c in changes for name in c.expiring_sources})

    def erase(self, keys: Sequence[str], *, sources: bool = True) -> Removal:
        """Erase memories with their history, vectors, traces and passages in summaries.

        With `sources` the messages that they come from are erased too, in a space only messages of
        the same author; other memories from them stay, without that source.
        """
        rows = self._select(keys)
        message_ids = self._in_scope(sources_of(rows))
        own = self._own(message_ids) if sources else []
        rows += self._digests(rows)
        return self._erase(rows, message_ids, own)

    def erase_message(self, message_id: str) -> Removal:
        """Erase a message, and the memories that were derived from it alone.

        Nothing happens if it was erased before; NotFound if the scope never had it.
        """
        removal = self.erase_messages([message_id])
        key = [(self._scope.user_id, message_id)]
        if not removal.messages and not find_erased(self._connection, key):
            raise NotFound(f"there is no message {message_id!r}", hint="Check the id and the user")
        return removal

    def erase_messages(self, message_ids: Sequence[str], since: datetime | None = None) -> Removal:
        """Erase the messages that exist, and the memories that were derived from them alone.

        With `since`, memories that were made before that time stay as they are.
        """
        ids = self._in_scope(message_ids)
        self._require_own(self._messages.find(ids))
        citing = self._citing(ids)
        derived = _derived_from(ids, citing)
        derived += self._digests(derived, ids)
        if since is not None:
            derived = [row for row in derived if row["created_at"] >= since]
        return self._erase(derived, ids, ids, since)

    def _citing(self, message_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the memories that come from any of some messages."""
        of_user = select(memories).where(memories.c.user_id == self._scope.user_id)
        citing: dict[str, dict[str, Any]] = {}
        for batch in split(message_ids, STRINGS_PER_CONDITION):
            statement = of_user.where(mentions(memories.c.source_message_ids, batch))
            found = self._connection.execute(statement).mappings()
            citing |= {row["memory_key"]: dict(row) for row in found}
        return list(citing.values())

    def take_back(self, message_ids: Sequence[str]) -> Removal:
        """Erase messages as if they had never been stored: they can be stored again."""
        user_id, key = self._scope.user_id, [messages.c.message_id]
        in_sessions = select(messages.c.session_id).where(messages.c.user_id == user_id).distinct()
        found = select_by_keys(self._connection, in_sessions, key, message_ids)
        removal = self.erase_messages(message_ids)
        release_ids(self._connection, user_id, "message", removal.messages)
        sessions = {row["session_id"] for row in found}
        erase_empty_sessions(self._connection, user_id, sessions)
        return removal

    def take_back_export(
        self, message_ids: Sequence[str], memory_keys: Sequence[str], imported_at: datetime
    ) -> Removal:
        """Erase messages and memories that an import wrote: they can be stored again.

        Memories that were derived from them after the import are erased too.
        """
        rows = self._select(memory_keys)
        removal = self._erase(rows, (), ())
        release_ids(self._connection, self._scope.user_id, "memory", removal.memories)
        removal += self.erase_messages(message_ids, since=imported_at)
        release_ids(self._connection, self._scope.user_id, "message", removal.messages)
        return removal

    def _require_own(self, rows: Sequence[StoredRow]) -> None:
        for row in rows:
            self._locks.require_own(self._scope, row["author"])

    def erase_project(self, project: str) -> Removal:
        """Erase a project's messages and memories, its sessions, and the recalls that may quote it.

        What is known about the user stays, without the messages that said so.
        """
        self._scope.require_role(SpaceRole.ADMIN)
        user_id = self._scope.user_id
        said = (messages.c.user_id == user_id, messages.c.project == project)
        found = select(messages.c.message_id, messages.c.session_id).where(*said)
        rows = self._connection.execute(found).all()
        in_sessions = memories.c.session_id.in_(select(messages.c.session_id).where(*said))
        of_project = memories.c.project == project
        digests = in_sessions & memories.c.memory_type.in_(DIGESTS)
        known = select(memories.c.memory_key).where(
            memories.c.user_id == user_id, or_(of_project, digests)
        )
        keys = list(self._connection.scalars(known))
        ids = [row.message_id for row in rows]
        self._messages.withdraw_summaries(ids)
        self._messages.erase(ids)
        self._erase_memories(keys)
        quoting = or_(traces.c.project == project, traces.c.project.is_(None))
        self._connection.execute(delete(traces).where(traces.c.user_id == user_id, quoting))
        self._connection.execute(delete(feedback).where(feedback.c.user_id == user_id))
        self._connection.execute(delete(checkpoints).where(is_job_of(user_id)))
        erase_empty_sessions(self._connection, user_id, {row.session_id for row in rows})
        return Removal(tuple(keys), tuple(ids))

    def _erase(
        self,
        rows: Sequence[StoredRow],
        quoted: Sequence[str],
        erased: Sequence[str],
        since: datetime | None = None,
    ) -> Removal:
        """Erase memories and messages; withdraw the summaries of `quoted` messages."""
        self._messages.withdraw_summaries(quoted)
        message_rows = self._messages.erase(erased, since)
        keys = [row["memory_key"] for row in rows]
        self._erase_memories(keys)
        self._messages.bury(PASSAGE, sorted(set(quoted) - set(erased)))
        expiring = [row for row in rows if row["expires_at"] is not None]
        self._messages.follow_expiry(sources_of(expiring))
        message_ids = [row["message_id"] for row in message_rows]
        texts = [row["content"] for row in (*rows, *message_rows)]
        self._messages.erase_traces([*keys, *message_ids], texts)
        return Removal(tuple(keys), tuple(message_ids))

    def _erase_memories(self, keys: Sequence[str]) -> None:
        user_id = self._scope.user_id
        of_user = memories.c.user_id == user_id
        for batch in split(keys):
            of_keys = or_(revisions.c.memory_key.in_(batch), revisions.c.other_key.in_(batch))
            history = delete(revisions).where(revisions.c.user_id == user_id, of_keys)
            self._connection.execute(history)
            of_memories = (vectors.c.user_id == user_id, vectors.c.kind == "memory")
            self._connection.execute(delete(vectors).where(*of_memories, vectors.c.key.in_(batch)))
            # The reason why a memory was superseded may quote the memory that is erased.
            predecessors = update(memories).where(of_user, memories.c.superseded_by.in_(batch))
            forgotten = predecessors.values(superseded_reason=None, superseded_by=None)
            self._connection.execute(forgotten)
            erased = delete(memories).where(of_user, memories.c.memory_key.in_(batch))
            self._connection.execute(erased)
        self._messages.bury("memory", keys)

    def _in_scope(self, message_ids: Iterable[str]) -> list[str]:
        """Return the messages that the scope has, sorted."""
        statement = filter_scope(select(messages.c.message_id), messages, self._scope)
        ids = sorted(set(message_ids))
        rows = select_by_keys(self._connection, statement, [messages.c.message_id], ids)
        return sorted(row["message_id"] for row in rows)

    def _own(self, message_ids: Collection[str]) -> list[str]:
        """Return the messages that the writer may remove: in a space, only their own."""
        if self._scope.author is None or self._locks.is_admin(self._scope):
            return list(message_ids)
        rows = self._messages.find(message_ids)
        return [row["message_id"] for row in rows if self._locks.is_own(self._scope, row["author"])]

    def _digests(
        self, known_rows: Sequence[StoredRow], message_ids: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return other memories that summarise messages, by default the sources of known facts."""
        if message_ids is None:
            facts = [row for row in known_rows if row["memory_type"] not in DIGESTS]
            message_ids = self._in_scope(sources_of(facts))
        statement = select(messages.c.session_id).where(messages.c.user_id == self._scope.user_id)
        key = [messages.c.message_id]
        rows = select_by_keys(self._connection, statement.distinct(), key, message_ids)
        in_session = memories.c.session_id.in_([row["session_id"] for row in rows])
        of_session = in_session & (memories.c.memory_type == EXPERIENCE)
        known = {row["memory_key"] for row in known_rows}
        found: dict[str, dict[str, Any]] = {}
        for batch in split(message_ids, STRINGS_PER_CONDITION):
            statement = select(memories).where(
                memories.c.user_id == self._scope.user_id,
                memories.c.memory_type.in_(DIGESTS),
                or_(of_session, mentions(memories.c.source_message_ids, batch)),
            )
            for row in self._connection.execute(statement).mappings():
                if row["memory_key"] not in known:
                    found[row["memory_key"]] = dict(row)
        return list(found.values())

    def _select(
        self, keys: Sequence[str] | None, *conditions: ColumnElement[bool]
    ) -> list[dict[str, Any]]:
        """Return memories that the writer may remove, all of the scope without keys."""
        statement = filter_visible(select(memories), self._scope).where(*conditions)
        key = memories.c.memory_key
        rows: Sequence[StoredRow]
        if keys is None:
            rows = self._connection.execute(statement.order_by(key)).mappings().all()
        else:
            rows = select_by_keys(self._connection, statement, [key], sorted(set(keys)))
        self._require_own(rows)
        return [dict(row) for row in rows]
