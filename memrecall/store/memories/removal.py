"""Removal of memories and messages: hidden until an undo, or erased with all that quotes them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
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
from memrecall.store.memories.expiry import MessageExpiry
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
_MESSAGE_COLUMNS = (
    *("message_id", "agent_id", "session_id", "sequence_no", "content"),
    *("deleted_at", "deletion", "author"),
)
_VECTOR_KEY = (
    vectors.c.user_id == bindparam("of_user"),
    vectors.c.kind == "message",
    vectors.c.key == bindparam("of_key"),
)


class MessageRemover:
    """Hides, shows and erases messages of one user."""

    def __init__(self, connection: Connection, locks: Locks, user_id: str) -> None:
        self._connection = connection
        self._locks = locks
        self._user_id = user_id

    def hide(self, message_ids: Collection[str]) -> list[str]:
        """Hide messages; return those that were visible."""
        rows = self.find(message_ids)
        keys = [row["message_id"] for row in rows if row["deleted_at"] is None]
        self._set_deleted_at(keys, self._locks.now)
        return keys

    def hide_alone(self, hidden_with: Mapping[str, Sequence[str]]) -> list[str]:
        """Hide messages that are deleted themselves; return them.

        `hidden_with` has the keys of the memories that are hidden with each.
        """
        self.hide(hidden_with)
        rows = [
            {"of_user": self._user_id, "of_key": key, "deletion": list(keys)}
            for key, keys in hidden_with.items()
        ]
        if rows:
            self._connection.execute(update(messages).where(*_MESSAGE_KEY), rows)
        return list(hidden_with)

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
            self._connection.execute(update(vectors).where(*_VECTOR_KEY), self._number(keys))

    def end_deletion(self, message_id: str) -> None:
        """Take back that a message was deleted itself."""
        values = {"of_user": self._user_id, "of_key": message_id, "deletion": None}
        self._connection.execute(update(messages).where(*_MESSAGE_KEY), [values])

    def erase(
        self, message_ids: Collection[str], since: datetime | None = None
    ) -> list[Mapping[Any, Any]]:
        """Erase messages and return their rows; memories and checkpoints lose them too.

        With `since`, memories that were made before that time still name them.
        """
        rows = self.find(message_ids)
        keys = [row["message_id"] for row in rows]
        for session, ids in _by_session(rows, "message_id").items():
            erase_items(self._connection, self._user_id, session, ids)
        for batch in split(keys):
            for table, column in ((vectors, vectors.c.key), (messages, messages.c.message_id)):
                erased = delete(table).where(table.c.user_id == self._user_id, column.in_(batch))
                if table is vectors:
                    erased = erased.where(vectors.c.kind == "message")
                self._connection.execute(erased)
        self._drop_sources(frozenset(keys), since)
        self.bury("message", keys)
        return rows

    def bury(self, kind: str, keys: Sequence[str]) -> None:
        """Leave tombstones, from which readers learn that rows were erased."""
        if keys:
            rows = [
                {"user_id": self._user_id, "kind": kind, "key": number["of_key"]}
                | {"change_no": number["change_no"], "import_label": None}
                for number in self._number(keys)
            ]
            # What is erased here stays erased when an import that says the same is taken back.
            columns = ["change_no", "import_label"]
            self._connection.execute(upsert(self._connection, tombstones, columns), rows)

    def withdraw_summaries(self, message_ids: Collection[str]) -> None:
        """Empty the summaries that messages are part of; they are made again without them."""
        rows = self.find(message_ids)
        for session, numbers in _by_session(rows, "sequence_no").items():
            withdraw_summaries(self._connection, self._user_id, session, numbers)

    def erase_traces(self, keys: Collection[str], texts: Collection[str]) -> int:
        """Erase the traces that name any of the keys, or whose question quotes a text.

        Feedback on recalls and results of jobs are erased too, but not counted.
        """
        for batch in split(sorted(keys), STRINGS_PER_CONDITION):
            is_job = is_job_of(self._user_id)
            jobs = select(checkpoints.c.session_id).where(
                is_job, mentions(checkpoints.c.state, batch)
            )
            statement = delete(checkpoints).where(is_job, checkpoints.c.session_id.in_(jobs))
            self._connection.execute(statement)
        self._erase_recalls(feedback, feedback.c.evidence, keys, texts)
        return self._erase_recalls(traces, traces.c.body, keys, texts)

    def _erase_recalls(
        self,
        table: Table,
        names: ColumnElement[Any],
        keys: Collection[str],
        texts: Collection[str],
    ) -> int:
        quotes = [text.strip()[:_LONGEST_QUOTE] for text in texts]
        long = [text for text in quotes if len(text) >= _SHORTEST_QUOTE]
        query, count = table.c.query, 0
        for condition in (
            *(mentions(names, batch) for batch in split(sorted(keys), STRINGS_PER_CONDITION)),
            *(func.trim(query).in_(batch) for batch in split(quotes)),
            *(
                or_(*(query.contains(text, autoescape=True) for text in batch))
                for batch in split(long, STRINGS_PER_CONDITION)
            ),
        ):
            statement = delete(table).where(table.c.user_id == self._user_id, condition)
            count += self._connection.execute(statement).rowcount
        return count

    def _drop_sources(self, message_ids: frozenset[str], since: datetime | None) -> None:
        """Remove messages from the sources of memories."""
        of_key = (memories.c.user_id == self._user_id, memories.c.memory_key == bindparam("k"))
        for batch in split(sorted(message_ids), STRINGS_PER_CONDITION):
            statement = self._select(memories, memories.c.memory_key, memories.c.source_message_ids)
            is_source = mentions(memories.c.source_message_ids, batch)
            statement = statement.where(is_source)
            if since is not None:
                statement = statement.where(memories.c.created_at >= since)
            rows = self._connection.execute(statement).all()
            values = [
                {"k": key, "source_message_ids": [s for s in sources if s not in message_ids]}
                for key, sources in rows
            ]
            if values:
                self._connection.execute(update(memories).where(*of_key), values)

    def find(self, message_ids: Collection[str]) -> list[Mapping[Any, Any]]:
        """Return messages, hidden ones too."""
        statement = self._select(messages, *(messages.c[name] for name in _MESSAGE_COLUMNS))
        keys = sorted(message_ids)
        return list(select_by_keys(self._connection, statement, [messages.c.message_id], keys))

    def _select(self, table: Table, *columns: Any) -> Select[Any]:
        return select(*columns).where(table.c.user_id == self._user_id)

    def _set_deleted_at(self, keys: Sequence[str], moment: Any) -> None:
        if keys:
            statement = update(messages).where(*_MESSAGE_KEY).values(deleted_at=moment)
            self._connection.execute(statement, self._number(keys))

    def _number(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return a change number for each key, as statements take it."""
        user = self._user_id
        numbers = [self._locks.next_change(user) for _ in keys]
        pairs = zip(keys, numbers, strict=True)
        return [{"of_user": user, "of_key": key, "change_no": number} for key, number in pairs]


def _by_session(rows: Sequence[Mapping[Any, Any]], column: str) -> dict[str, set[Any]]:
    values: dict[str, set[Any]] = {}
    for row in rows:
        values.setdefault(row["session_id"], set()).add(row[column])
    return values


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
        self._expiry = MessageExpiry(connection, locks, scope.user_id)

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
        statement = filter_visible(select(memories), self._scope)
        rows = self._select(statement.where(memories.c.deleted_at.is_(None)), keys)
        message_ids = self._sources_of(rows)
        own = frozenset(self._sources_of(rows, own=True)) if sources else frozenset()
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
        ids = self._sources_of([{"source_message_ids": message_ids}])
        found = self._messages.find(ids)
        self._require_own(found)
        ids = sorted(row["message_id"] for row in found if row["deletion"] is None)
        citing = self._citing(ids)
        rows = [row for row in _derived_from(ids, citing) if row["deleted_at"] is None]
        others = [row for row in self._digests(rows, ids) if row["deleted_at"] is None]
        of_message: dict[str, list[str]] = {name: [] for name in ids}
        for row in (*rows, *others):
            cited = of_message.keys() & set(row["source_message_ids"])
            for name in cited or ids:  # experience of the session need not name the message
                of_message[name].append(row["memory_key"])
        self._write([self._hiding(row, reason) for row in (*rows, *others)], actor)
        hidden = self._messages.hide_alone(of_message)
        self._messages.withdraw_summaries(ids)
        return Removal(tuple(row["memory_key"] for row in (*rows, *others)), tuple(hidden))

    def _hiding(self, row: StoredRow, reason: str, **hidden: Sequence[str]) -> PendingChange:
        return PendingChange(row, {"deleted_at": self._locks.now}, "DELETE", reason, hidden=hidden)

    def _write(self, changes: Sequence[PendingChange], actor: str) -> None:
        write_changes(self._connection, self._locks, changes, self._scope.author or actor)
        self._expiry.follow({name for c in changes for name in c.expiring_sources})

    def erase(self, keys: Sequence[str], *, sources: bool = True) -> Removal:
        """Erase memories with their history, vectors, traces and passages in summaries.

        With `sources` the messages that they come from are erased too, in a space those of the same
        author; other memories from them stay, without that source.
        """
        statement = filter_visible(select(memories), self._scope)
        rows = self._select(statement, keys)
        message_ids = self._sources_of(rows)
        own = self._sources_of(rows, own=True) if sources else []
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
        ids = self._sources_of([{"source_message_ids": message_ids}])
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

        Of what was derived from them, that which was made after the import goes with them.
        """
        rows = self._select(filter_visible(select(memories), self._scope), memory_keys)
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
        for batch in split(keys):
            self._erase_rows(list(batch))
        self._messages.bury("memory", keys)
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
        for batch in split(keys):
            self._erase_rows(list(batch))
        self._messages.bury("memory", keys)
        self._messages.bury(PASSAGE, sorted(set(quoted) - set(erased)))
        expiring = (row for row in rows if row["expires_at"] is not None)
        self._expiry.follow({name for r in expiring for name in r["source_message_ids"]})
        message_ids = [row["message_id"] for row in message_rows]
        texts = [row["content"] for row in (*rows, *message_rows)]
        self._messages.erase_traces([*keys, *message_ids], texts)
        return Removal(tuple(keys), tuple(message_ids))

    def _erase_rows(self, keys: list[str]) -> None:
        user_id = self._scope.user_id
        of_keys = or_(revisions.c.memory_key.in_(keys), revisions.c.other_key.in_(keys))
        self._connection.execute(delete(revisions).where(revisions.c.user_id == user_id, of_keys))
        of_memories = (vectors.c.user_id == user_id, vectors.c.kind == "memory")
        self._connection.execute(delete(vectors).where(*of_memories, vectors.c.key.in_(keys)))
        of_user = memories.c.user_id == user_id
        # The reason why a memory was superseded may quote the memory that is erased.
        predecessors = update(memories).where(of_user, memories.c.superseded_by.in_(keys))
        self._connection.execute(predecessors.values(superseded_reason=None, superseded_by=None))
        erased = delete(memories).where(of_user, memories.c.memory_key.in_(keys))
        self._connection.execute(erased)

    def _sources_of(self, rows: Sequence[StoredRow], *, own: bool = False) -> list[str]:
        """Return the messages of the scope that memories come from.

        With `own`, in a space, only those that the writer may remove.
        """
        ids = sorted({name for row in rows for name in row["source_message_ids"]})
        columns = (messages.c.message_id, messages.c.author)
        statement = filter_scope(select(*columns), messages, self._scope)
        found = select_by_keys(self._connection, statement, columns[:1], ids)
        if own and not self._locks.is_admin(self._scope):
            found = [row for row in found if self._locks.is_own(self._scope, row["author"])]
        return [row["message_id"] for row in found]

    def _digests(
        self, known_rows: Sequence[StoredRow], message_ids: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return other memories that summarise messages, by default the sources of known facts."""
        if message_ids is None:
            facts = [row for row in known_rows if row["memory_type"] not in DIGESTS]
            message_ids = self._sources_of(facts)
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

    def _select(self, statement: Select[Any], keys: Sequence[str] | None) -> list[dict[str, Any]]:
        key = memories.c.memory_key
        rows: Sequence[StoredRow]
        if keys is None:
            rows = self._connection.execute(statement.order_by(key)).mappings().all()
        else:
            wanted = sorted(set(keys))
            rows = select_by_keys(self._connection, statement, [key], wanted)
        self._require_own(rows)
        return [dict(row) for row in rows]
