"""Adding, correcting, superseding and ending memories, and taking that back.

All of it happens in a transaction that has locked the user.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, insert, or_, select, update

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.json_objects import check_metadata
from memrecall.scope import Scope
from memrecall.store.database.locks import Locks, agent_of
from memrecall.store.database.statements import in_project, mentions, new_id, select_by_keys
from memrecall.store.database.tables import memories, messages, revisions
from memrecall.store.memories.history import (
    HIDDEN,
    PendingChange,
    StoredRow,
    began,
    filter_visible,
    hidden_messages,
    last_revision,
    mark_undone,
    memory_not_found,
    revisions_by,
    write_changes,
)
from memrecall.store.memories.removal import MessageRemover, sources_of
from memrecall.store.messages import (
    WriteResult,
    WriteStatus,
)
from memrecall.store.texts import truncate, with_search_text
from memrecall.store.timeline import forget_reading
from memrecall.types import DIGESTS, USER, NewMemory, Origin, Provenance, format_time

PERSONAL = frozenset({"user_profile", "user_preference", "relationship", "habit"})
_NOT_COLUMNS = {"content", "source_message_ids", "conflicts_with", "doubts", "said_at"}


class MemoryWriter:
    """Writes one scope's memories in one transaction; the caller locks and saves the locks."""

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
        self._messages = MessageRemover(connection, locks, scope.user_id)

    def add(
        self, batch: Sequence[NewMemory], origin: Origin, *, supersedes: str | None = None
    ) -> WriteResult:
        """Insert memories that have keys; one that is stored already must be the same.

        InvalidArgument if a source is not stored, Conflict if a message has one of the keys.
        """
        of_user = messages.c.user_id == self._scope.user_id
        sources = sorted({name for memory in batch for name in memory.source_message_ids})
        statement = select(messages.c.message_id, messages.c.project).where(of_user)
        rows = select_by_keys(self._connection, statement, [messages.c.message_id], sources)
        projects = {row["message_id"]: row["project"] for row in rows}
        missing = [name for name in sources if name not in projects]
        if missing:
            raise InvalidArgument(
                f"source message {missing[0]!r} does not exist", hint="Store the message first"
            )
        keys = sorted({str(memory.memory_key) for memory in batch})
        statement = select(messages.c.message_id).where(of_user)
        conflicts = select_by_keys(self._connection, statement, [messages.c.message_id], keys)
        if conflicts:
            raise Conflict(
                f"memory_key {conflicts[0]['message_id']!r} is the id of a message",
                hint="Give the memory another key",
            )
        same = select(memories).where(memories.c.user_id == self._scope.user_id)
        rows = select_by_keys(self._connection, same, [memories.c.memory_key], keys)
        stored_rows = {row["memory_key"]: row for row in rows}
        return self.insert(batch, origin, projects, stored_rows, supersedes)

    def insert(
        self,
        batch: Sequence[NewMemory],
        origin: Origin,
        projects: Mapping[str, str | None],
        stored_rows: Mapping[str, Any],
        supersedes: str | None = None,
    ) -> WriteResult:
        """Insert memories with keys and existing sources, without those among the stored rows.

        `projects` has the project of each source.
        """
        new_rows: dict[str, dict[str, Any]] = {}
        statuses: list[WriteStatus] = []
        session = None
        if self._scope.session_id is not None:
            session = self._locks.open_session(self._connection, self._scope)
        for memory in batch:
            row = {**self._to_row(memory, origin, projects), "supersedes": supersedes}
            stored = stored_rows.get(row["memory_key"], new_rows.get(row["memory_key"]))
            statuses.append(WriteStatus.NEW if stored is None else WriteStatus.SAME)
            if stored is not None:
                _require_equal(row, stored)
                continue
            if session is not None and self._run is None:  # its messages were said before its end
                session.require_open()
            if row["memory_type"] in DIGESTS:  # it expires with the first of its sources
                ends = (row["expires_at"], self._messages.first_expiry(row["source_message_ids"]))
                row["expires_at"] = min(filter(None, ends), default=None)
            row["change_no"] = self._locks.next_change(self._scope.user_id)
            new_rows[row["memory_key"]] = row
        if new_rows:
            self._connection.execute(insert(memories), list(new_rows.values()))
            expiring = [row for row in new_rows.values() if row["expires_at"] is not None]
            self._messages.follow_expiry(sources_of(expiring))
        return WriteResult(tuple(str(m.memory_key) for m in batch), tuple(statuses))

    def _to_row(
        self, memory: NewMemory, origin: Origin, projects: Mapping[str, str | None]
    ) -> dict[str, Any]:
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
        # Who the user is and what they like holds in every project. Other memories belong to the
        # scope's project, else to their own, else to the one of the last source that has any.
        project = None
        is_about_user = memory.subject in (None, USER, memory.speaker)
        if memory.memory_type not in PERSONAL or not is_about_user:
            of_sources = (projects.get(name) for name in reversed(memory.source_message_ids))
            project = self._scope.project or memory.project or next(filter(None, of_sources), None)
        row = {
            **memory.model_dump(exclude=_NOT_COLUMNS),
            "content": content,
            "truncated": truncated,
            "source_message_ids": list(memory.source_message_ids),
            "user_id": self._scope.user_id,
            "agent_id": agent_of(self._scope),
            "session_id": self._scope.session_id,
            "project": project,
            "author": self._scope.author,
            "provenance": provenance.model_dump(mode="json", exclude_defaults=True),
            "created_at": self._locks.now,
            "updated_at": self._locks.now,
        }
        return with_search_text(row, row)

    def update(self, memory_key: str, values: Mapping[str, Any], reason: str) -> None:
        """Correct fields of a memory; new metadata is merged into the old."""
        row = self._require(memory_key)
        new = dict(values)
        if "metadata" in new:
            new["metadata"] = {**row["metadata"], **new["metadata"]}
            check_metadata(new["metadata"])
        if "content" in new:
            new["content"], new["truncated"] = truncate(new["content"])
        if "keywords" in new:
            new["keywords"] = [keyword.model_dump() for keyword in new["keywords"]]
        self._write(PendingChange(row, with_search_text(row, new), "UPDATE", reason))

    def supersede(self, memory_key: str, new: NewMemory, origin: Origin, reason: str) -> str:
        """Add a memory in the place of another, which ends; return the new key."""
        row = self._require(memory_key)
        if row["superseded_by"] is not None:
            raise Conflict(
                f"memory {memory_key!r} was superseded by {row['superseded_by']!r}",
                hint="Supersede that one",
                reason="superseded",
            )
        new = with_key(new.model_copy(update={"project": new.project or row["project"]}))
        if origin is not Origin.USER:  # Rewording a claim does not confirm it.
            new = new.as_claim(*row["provenance"].get("conflicts_with", ()))
        self.add([new], origin, supersedes=memory_key)
        begin = min(new.valid_from or self._locks.now, self._locks.now)
        values = {
            "superseded_by": new.memory_key,
            "superseded_reason": reason,
            # It ends when the new one begins, but not before it began itself.
            "valid_to": max(begin, began(row)),
        }
        self._write(PendingChange(row, values, "UPDATE", reason, new.memory_key))
        return str(new.memory_key)

    def precede(self, memory_key: str, new: NewMemory, origin: Origin, reason: str) -> str | None:
        """Add a memory that was said before another, as an earlier state in its history.

        Return its key, or None if the history says the same at that place.
        """
        later = self._require(memory_key)
        while earlier := self._find_any(later["supersedes"]):
            provenance = Provenance.model_validate(earlier["provenance"])
            if (provenance.said_at or provenance.time) <= (new.said_at or self._locks.now):
                break
            later = earlier
        if earlier is not None and earlier["content"] == new.content:
            return None
        self.add([new], origin, supersedes=later["supersedes"] if earlier else None)
        row = self._find(str(new.memory_key))
        self._link(row, later, reason)
        if earlier is not None:
            self._relink(earlier, later, row)
        return str(new.memory_key)

    def _link(self, row: StoredRow, successor: StoredRow, reason: str) -> None:
        """End a memory when its successor begins, but not before it began itself."""
        key = successor["memory_key"]
        end = max(began(successor), began(row))
        values = {"valid_to": end, "superseded_by": key, "superseded_reason": reason}
        self._write(PendingChange(row, values, "UPDATE", reason, key))
        of_user = memories.c.user_id == self._scope.user_id
        statement = update(memories).where(of_user, memories.c.memory_key == key)
        self._connection.execute(statement.values(supersedes=row["memory_key"]))

    def _relink(self, row: StoredRow, old_successor: StoredRow, successor: StoredRow) -> None:
        """Mark a memory as superseded, as one undoable change."""
        user_id, key = self._scope.user_id, old_successor["memory_key"]
        for revision in revisions_by(self._connection, user_id, key):
            if revision["memory_key"] == row["memory_key"]:
                row = {**row, **{n: v for n, v in revision["before"].items() if n != HIDDEN}}
                mark_undone(self._connection, revision)
        self._link(row, successor, f"it was said before: {successor['content']}")

    def end(
        self,
        memory_key: str,
        reason: str,
        successor: str | None = None,
        ended_at: datetime | None = None,
    ) -> None:
        """End a memory's validity, now if not before, for a successor if it has one.

        Only searches as of an earlier time find it.
        """
        row = self._require(memory_key)
        # It does not end before it began itself.
        end = max(min(ended_at or self._locks.now, self._locks.now), began(row))
        values = {"valid_to": end, "superseded_reason": reason}
        self._write(PendingChange(row, values, "DELETE", reason, successor))

    def require_unchanged(self, memory_key: str, since: datetime | None) -> None:
        """Raise Conflict if a memory was changed after a moment."""
        if since is None:
            return
        changed_at = self._find(memory_key)["updated_at"]
        if changed_at > since:
            raise Conflict(
                f"memory {memory_key!r} was changed at {format_time(changed_at)}",
                hint="Read it again",
                reason="changed",
                memory_key=memory_key,
            )

    def undo(self, memory_key: str) -> list[str]:
        """Take back the last change that was not taken back yet; return the changed keys.

        A memory without one takes the step of its predecessor back. What an undo hid stays hidden:
        only its predecessors can be walked back further, so that two never hold in its place.
        """
        row = self._find(memory_key)
        last = last_revision(self._connection, self._scope.user_id, memory_key)
        gave_expiry = last is not None and "expires_at" in last["before"]
        if self._has_expired(row) and not gave_expiry:
            values = {"expires_at": None}
            self._write(PendingChange(row, values, "UNDO", "undo of its expiry"))
            return [memory_key]
        predecessor = self._find_any(row["supersedes"])
        if predecessor is not None:
            is_taken_back = predecessor["superseded_by"] != memory_key
            if is_taken_back or last is None:
                return self.undo(predecessor["memory_key"])
        if last is None:
            raise Conflict(
                f"memory {memory_key!r} has no change to undo",
                hint="Read its history first",
                reason="no_change",
            )
        changes = self._changes_back(last)
        self._write(*changes)
        # The messages that a deletion hid are shown, and summaries are made with them again.
        shown = set(last["before"].get(HIDDEN, {}).get("messages", ()))
        self._messages.show(shown - hidden_messages(self._connection, self._scope.user_id, shown))
        restored = [c.row for c in changes if c.row["deleted_at"] is not None and not c.hides]
        self._messages.withdraw_summaries(sources_of(restored))
        return [change.row["memory_key"] for change in changes]

    def _has_expired(self, row: StoredRow) -> bool:
        """Return True for a memory that only its expiry hides."""
        expires_at = row["expires_at"]
        return row["deleted_at"] is None and bool(expires_at and expires_at <= self._locks.now)

    def undo_message(self, message_id: str) -> list[str]:
        """Show a deleted message, and the memories that were hidden with it; return these.

        Conflict if it is not deleted, or as long as a deleted memory hides it.
        """
        rows = self._messages.find([message_id])
        if not rows:
            raise NotFound(f"there is no message {message_id!r}", hint="Check the id and the user")
        row = rows[0]
        self._locks.require_own(self._scope, row["author"])
        if message_id in hidden_messages(self._connection, self._scope.user_id, [message_id]):
            raise Conflict(
                f"message {message_id!r} is hidden with a memory that comes from it",
                hint="Undo the deletion of that memory",
                reason="hidden_with_memory",
            )
        if row["deleted_at"] is None:
            raise Conflict(
                f"message {message_id!r} is not deleted",
                hint="Undo takes back a deletion",
                reason="no_change",
            )
        taken_back = [self._last_deletion(key) for key in row["deletion"] or ()]
        changes = [self._taking_back(each) for each in taken_back if each is not None]
        self._write(*changes)
        self._messages.show_alone(message_id)
        return [change.row["memory_key"] for change in changes]

    def _last_deletion(self, memory_key: str) -> Mapping[str, Any] | None:
        """Return the deletion of a memory, None if it was restored or purged."""
        last = last_revision(self._connection, self._scope.user_id, memory_key)
        return last if last is not None and last["event"] == "DELETE" else None

    def _changes_back(self, last: Mapping[str, Any]) -> list[PendingChange]:
        """Return what takes back a change, with the others of the fact that made it."""
        taken_back, successor = [last], None
        if last["other_key"] is not None:
            successor = self._find(last["other_key"])
            if successor["superseded_by"] is not None:
                raise Conflict(
                    f"memory {last['other_key']!r}, its successor, was superseded itself",
                    hint="Undo that first",
                    reason="superseded",
                )
            user_id = self._scope.user_id
            taken_back = revisions_by(self._connection, user_id, last["other_key"])
        changes = []
        for key in last["before"].get(HIDDEN, {}).get("memories", ()):
            digest = self._last_deletion(key)
            taken_back += [digest] if digest is not None else []
        changes += [self._taking_back(revision) for revision in taken_back]
        if successor is not None and successor["deleted_at"] is None:
            hidden = {"deleted_at": self._locks.now}
            reason = f"undo of {last['memory_key']}"
            changes.append(PendingChange(successor, hidden, "UNDO", reason))
        return changes

    def _taking_back(self, revision: Mapping[str, Any]) -> PendingChange:
        """Mark a change as undone, and return the change that takes it back."""
        row = self._find(revision["memory_key"])
        values = {n: value for n, value in revision["before"].items() if n != HIDDEN}
        if revision["event"] == "DELETE" and self._has_expired({**row, **values}):
            values["expires_at"] = None  # it would be hidden still
        mark_undone(self._connection, revision)
        reason = f"undo of {revision['event']}"
        restored = with_search_text(row, values)
        return PendingChange(row, restored, "UNDO", reason, revision["other_key"])

    def take_back(self, run: str, limit: int) -> tuple[list[str], int | None]:
        """Hide the last memories that an extraction added, and restore what they replaced.

        Return the changed keys and, once nothing of the run is left, how many messages are unread
        again; until then None.
        """
        of_run = memories.c.provenance["run"].as_string() == run
        statement = filter_visible(select(memories.c.memory_key), self._scope)
        statement = statement.where(of_run, memories.c.deleted_at.is_(None))
        latest_first = statement.order_by(memories.c.created_at.desc(), memories.c.memory_key)
        keys = list(self._connection.scalars(latest_first.limit(limit)))
        changed = [name for key in keys for name in self._take_back_memory(key, run)]
        if len(keys) == limit:
            return changed, None
        # What it ended because somebody asked to forget it is restored last.
        ended = select(revisions.c.memory_key, revisions.c.number).where(
            revisions.c.user_id == self._scope.user_id,
            revisions.c.run == run,
            revisions.c.event == "DELETE",
            revisions.c.other_key.is_(None),
            revisions.c.undone.is_(False),
        )
        changes = []
        for row in self._connection.execute(ended).all():
            last = last_revision(self._connection, self._scope.user_id, row.memory_key)
            if last is not None and last["number"] == row.number:  # nobody has changed it since
                changes.append(self._taking_back(last))
        self._write(*changes)
        changed += [change.row["memory_key"] for change in changes]
        return changed, forget_reading(self._connection, self._scope, run)

    def _take_back_memory(self, memory_key: str, run: str) -> list[str]:
        """Hide a memory that an extraction added; return it with what changed because of it.

        What holds in its place stays, as the successor of what it replaced itself.
        """
        row = self._find(memory_key)
        successor = self._find_any(row["superseded_by"])
        hidden = PendingChange(row, {"deleted_at": self._locks.now}, "UNDO", f"undo of {run}")
        if successor is None or successor["deleted_at"] is not None:
            ended = revisions_by(self._connection, self._scope.user_id, memory_key)
            changes = [self._taking_back(revision) for revision in ended]
            self._write(*changes, hidden)
            return [change.row["memory_key"] for change in (*changes, hidden)]
        predecessor = self._find_any(row["supersedes"])
        if predecessor is not None and predecessor["superseded_by"] == memory_key:
            self._relink(predecessor, row, successor)
        else:
            key = (memories.c.user_id == row["user_id"], memories.c.supersedes == memory_key)
            self._connection.execute(update(memories).where(*key).values(supersedes=None))
        self._write(hidden)
        return [memory_key, successor["memory_key"]]

    def find_content(self, memory_key: str) -> str | None:
        """Return the content of a memory of the user; None if there is none."""
        statement = select(memories.c.content).where(
            memories.c.user_id == self._scope.user_id, memories.c.memory_key == memory_key
        )
        return self._connection.scalar(statement)

    def must_stay(self, memory_key: str, origin: Origin) -> bool:
        """Return True if a plan may not replace a memory: others said it, not who speaks now.

        What the user said is replaced by the user only; in a space, by its author only.
        """
        row = self._find_any(memory_key)
        if row is None or row["deleted_at"] is not None:
            return False
        is_user = row["provenance"]["origin"] == Origin.USER
        is_own = self._locks.is_own(self._scope, row["author"])
        return not is_own or (is_user and origin is not Origin.USER)

    def find_equal(self, memory: NewMemory) -> dict[str, bool]:
        """Return the valid memories with the same content about the same subject.

        The values say whether they are unconfirmed claims. In a space, claims of other members are
        left out, and the writer's own claims are known: nobody else confirms them.
        """
        columns = (memories.c.memory_key, memories.c.provenance, memories.c.author)
        statement = self._select_current(*columns).where(
            memories.c.agent_id == agent_of(self._scope),
            memories.c.content == memory.content,
            memories.c.subject.is_not_distinct_from(memory.subject),
            memories.c.layer == memory.layer,
        )
        if self._scope.project is not None:  # one of another project is not read here
            statement = statement.where(in_project(memories, self._scope.project))
        rows = self._connection.execute(statement)
        if self._scope.author is None:
            return {row.memory_key: "conflicts_with" in row.provenance for row in rows}
        mine = self._scope.author
        said = (row for row in rows if row.author == mine or "conflicts_with" not in row.provenance)
        return {row.memory_key: False for row in said}

    def find_own_claim(self, memory_key: str) -> str | None:
        """Return what the writer of a space said against a memory of another member before."""
        if self._scope.author is None:
            return None
        statement = self._select_current(memories.c.memory_key, memories.c.provenance)
        named = mentions(memories.c.provenance, [memory_key])
        mine = statement.where(memories.c.author == self._scope.author, named)
        claims = self._connection.execute(mine.order_by(memories.c.created_at.desc())).all()
        keys = (r.memory_key for r in claims if memory_key in r.provenance["conflicts_with"])
        return next(keys, None)

    def _select_current(self, *columns: Any) -> Select[Any]:
        """Return the query for the memories of the user that hold now."""
        now = self._locks.now
        return select(*columns).where(
            memories.c.user_id == self._scope.user_id,
            memories.c.deleted_at.is_(None),
            or_(memories.c.valid_to.is_(None), memories.c.valid_to > now),
            or_(memories.c.expires_at.is_(None), memories.c.expires_at > now),
        )

    def _write(self, *changes: PendingChange) -> None:
        for change in changes:
            self._locks.require_own(self._scope, change.row["author"])
        actor = self._scope.author or self._actor
        write_changes(self._connection, self._locks, changes, actor, self._run)
        self._messages.follow_expiry(
            {name for change in changes for name in change.expiring_sources}
        )

    def _find(self, memory_key: str) -> StoredRow:
        row = self._find_any(memory_key)
        if row is None:
            raise memory_not_found(memory_key)
        return row

    def _find_any(self, memory_key: str | None) -> StoredRow | None:
        statement = filter_visible(select(memories), self._scope)
        statement = statement.where(memories.c.memory_key == memory_key)
        row = self._connection.execute(statement).mappings().one_or_none()
        return dict(row) if row is not None else None

    def _require(self, memory_key: str) -> StoredRow:
        row = self._find(memory_key)
        if row["deleted_at"] is not None:
            raise NotFound(f"memory {memory_key!r} is deleted", hint="Undo that first")
        return row


def with_key(memory: NewMemory) -> NewMemory:
    """Return the memory with its own key or a new one."""
    if memory.memory_key is not None:
        return memory
    return memory.model_copy(update={"memory_key": new_id("mem")})


def _require_equal(row: Mapping[str, Any], stored: Any) -> None:
    """Raise Conflict if a new memory is not the one that is stored with its key."""
    # The checksum was made of the content before it was truncated.
    new = {**row, "content": row["provenance"]["sha256"]}
    old = {**stored, "content": stored["provenance"]["sha256"]}
    for name in ("content", "summary", "memory_type", "sensitive"):
        if new[name] != old[name]:
            raise Conflict(
                f"memory {row['memory_key']!r} is already stored with another {name}",
                hint="Give the new memory its own key",
                memory_key=row["memory_key"],
            )
