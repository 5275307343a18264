"""Every way to write a memory, inside a transaction that has locked its user."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, or_, select, update

from memrecall.errors import Conflict, NotFound
from memrecall.json_objects import check_metadata
from memrecall.store.database.locks import agent_of
from memrecall.store.database.statements import in_project, mentions
from memrecall.store.database.tables import memories, revisions
from memrecall.store.memories.expiry import MessageExpiry
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
    require_unchanged,
    revisions_by,
    said_at,
    write_changes,
)
from memrecall.store.memories.insertion import MemoryInserter, with_key
from memrecall.store.memories.removal import MessageRemover
from memrecall.store.texts import truncate, with_search_text
from memrecall.store.timeline import forget_reading
from memrecall.types import NewMemory, Origin


class MemoryWriter(MemoryInserter):
    """Writes one scope's memories in one transaction; the caller locks and saves the locks."""

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
        row = self._require_current(memory_key)
        new = with_key(new.model_copy(update={"project": new.project or row["project"]}))
        if origin is not Origin.USER:  # Rewording a claim does not confirm it.
            new = new.as_claim(*row["provenance"].get("conflicts_with", ()))
        self.add([new], origin, supersedes=memory_key)
        begin, key = min(new.valid_from or self._locks.now, self._locks.now), new.memory_key
        # It ends when the new one begins, but not before it began itself.
        end = max(begin, began(row))
        values = {"superseded_by": key, "superseded_reason": reason, "valid_to": end}
        self._write(PendingChange(row, values, "UPDATE", reason, key))
        return str(key)

    def _require_current(self, memory_key: str) -> StoredRow:
        row = self._require(memory_key)
        if row["superseded_by"] is not None:
            raise Conflict(
                f"memory {memory_key!r} was superseded by {row['superseded_by']!r}",
                hint="Supersede that one",
                reason="superseded",
            )
        return row

    def precede(self, memory_key: str, new: NewMemory, origin: Origin, reason: str) -> str | None:
        """Add a memory that was said before another, as an earlier state in its history.

        Return its key, or None if the history says the same at that place.
        """
        later = self._require(memory_key)
        while earlier := self._find_any(later["supersedes"]):
            if said_at(earlier) <= (new.said_at or self._locks.now):
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
        of_successor = (memories.c.user_id == self._scope.user_id, memories.c.memory_key == key)
        statement = update(memories).where(*of_successor)
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
        if since is not None:
            require_unchanged(self._find(memory_key), since)

    def undo(self, memory_key: str) -> list[str]:
        """Take back the last change that was not taken back yet; return the changed keys.

        A memory without one takes the step of its predecessor back. What an undo hid stays hidden:
        only its predecessors can be walked back further, so that two never hold in its place.
        """
        row = self._find(memory_key)
        if self._has_expired(row) and not self._was_set_to_expire(memory_key):
            values = {"expires_at": None}
            self._write(PendingChange(row, values, "UNDO", "undo of its expiry"))
            return [memory_key]
        predecessor = self._find_any(row["supersedes"])
        is_taken_back = predecessor is not None and predecessor["superseded_by"] != memory_key
        last = None
        if not is_taken_back:
            last = last_revision(self._connection, self._scope.user_id, memory_key)
        if last is None and predecessor is not None:
            return self.undo(predecessor["memory_key"])
        if last is None:
            raise Conflict(
                f"memory {memory_key!r} has no change to undo",
                hint="Read its history first",
                reason="no_change",
            )
        changes = self._changes_back(last)
        self._write(*changes)
        self._show_sources(changes, last)
        return [change.row["memory_key"] for change in changes]

    def _has_expired(self, row: StoredRow) -> bool:
        """Return True for a memory that only its expiry hides."""
        expires_at = row["expires_at"]
        return row["deleted_at"] is None and bool(expires_at and expires_at <= self._locks.now)

    def _was_set_to_expire(self, memory_key: str) -> bool:
        """Return True if the change to undo is the one that gave a memory its expiry."""
        last = last_revision(self._connection, self._scope.user_id, memory_key)
        return last is not None and "expires_at" in last["before"]

    def undo_message(self, message_id: str) -> list[str]:
        """Show a deleted message, and the memories that were hidden with it; return these.

        Conflict if it is not deleted, or as long as a deleted memory hides it.
        """
        remover = MessageRemover(self._connection, self._locks, self._scope.user_id)
        rows = remover.find([message_id])
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
        remover.end_deletion(message_id)
        remover.show([message_id])
        remover.withdraw_summaries([message_id])
        return [change.row["memory_key"] for change in changes]

    def _last_deletion(self, memory_key: str) -> Mapping[str, Any] | None:
        """Return the deletion of a memory, None if it was restored or purged."""
        last = last_revision(self._connection, self._scope.user_id, memory_key)
        return last if last is not None and last["event"] == "DELETE" else None

    def _show_sources(self, changes: Sequence[PendingChange], last: Mapping[str, Any]) -> None:
        """Show the messages that a deletion hid; let summaries be made with them again."""
        remover = MessageRemover(self._connection, self._locks, self._scope.user_id)
        shown = set(last["before"].get(HIDDEN, {}).get("messages", ()))
        others = hidden_messages(self._connection, self._scope.user_id, shown)
        remover.show(shown - others)
        is_restored = (c.row["deleted_at"] is not None and not c.hides for c in changes)
        restored = [c.row for c, is_back in zip(changes, is_restored, strict=True) if is_back]
        sources = {name for row in restored for name in row["source_message_ids"]}
        remover.withdraw_summaries(sources)

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

    def take_back(self, run: str, limit: int) -> tuple[list[str], bool]:
        """Hide the last memories that an extraction added, and restore what they replaced.

        Return the changed keys, and whether nothing of the run is left.
        """
        of_run = memories.c.provenance["run"].as_string() == run
        statement = filter_visible(select(memories.c.memory_key), self._scope)
        statement = statement.where(of_run, memories.c.deleted_at.is_(None))
        latest_first = statement.order_by(memories.c.created_at.desc(), memories.c.memory_key)
        keys = list(self._connection.scalars(latest_first.limit(limit)))
        changed = [name for key in keys for name in self._take_back_memory(key, run)]
        if len(keys) == limit:
            return changed, False
        return changed + self._take_back_ends(run), True

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

    def _take_back_ends(self, run: str) -> list[str]:
        """Restore the memories that an extraction ended because somebody asked to forget them."""
        statement = select(revisions.c.memory_key, revisions.c.number).where(
            revisions.c.user_id == self._scope.user_id,
            revisions.c.run == run,
            revisions.c.event == "DELETE",
            revisions.c.other_key.is_(None),
            revisions.c.undone.is_(False),
        )
        changes = []
        for row in self._connection.execute(statement).all():
            last = last_revision(self._connection, self._scope.user_id, row.memory_key)
            if last is not None and last["number"] == row.number:  # nobody has changed it since
                changes.append(self._taking_back(last))
        self._write(*changes)
        return [change.row["memory_key"] for change in changes]

    def forget_reading(self, run: str) -> int:
        """Let the messages of an extraction be read again; return their number."""
        return forget_reading(self._connection, self._scope, run)

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
        left out, and those of the writer themselves are known: nobody else confirms them.
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
        """Return what the writer said against a memory of another member before."""
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
        expiry = MessageExpiry(self._connection, self._locks, self._scope.user_id)
        expiry.follow({name for change in changes for name in change.expiring_sources})

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


def _holds(row: StoredRow) -> bool:
    return row["deleted_at"] is None and row["valid_to"] is None
