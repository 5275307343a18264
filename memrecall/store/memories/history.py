"""What happened to memories: a history entry for each change, and an audit log of a user's data.

Every change goes through `write_changes`. It loses nothing: the revision stores what the row said
before, for the history and for undo. The audit log says who changed what and when, without
contents.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

from sqlalchemy import Connection, Select, bindparam, delete, func, insert, select, update

from memrecall.errors import NotFound
from memrecall.scope import Permission, Scope
from memrecall.store.database.cursors import KeyedPage
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import Locks, lock_users
from memrecall.store.database.statements import filter_scope, mentions, new_id, select_by_keys
from memrecall.store.database.tables import audit_log, memories, revisions, vectors
from memrecall.types import format_time, parse_stored_time

StoredRow = Mapping[Any, Any]  # values by column name
RevisionEvent = Literal["UPDATE", "DELETE", "UNDO"]

EDITABLE_FIELDS = (
    "content",
    "summary",
    "memory_type",
    "layer",
    "keywords",
    "metadata",
    "sensitive",
    "valid_from",
    "valid_to",
    "subject",
    "speaker",
    "field",
    "pinned",
    "expires_at",
)
# Callers edit the fields above; the others follow from what is done to a memory.
_STATE = (
    *EDITABLE_FIELDS,
    "truncated",
    "deleted_at",
    "search_text",
    "superseded_by",
    "superseded_reason",
)
HIDDEN = "hidden"  # in the old values of a deletion: the memories and messages hidden with it
_TIMES = frozenset({"valid_from", "valid_to", "expires_at", "deleted_at"})
LAST_CHANGE = select(func.coalesce(func.max(memories.c.change_no), 0).label("change_no")).where(
    memories.c.user_id == bindparam("of_user")
)
_CAN_BE_UNDONE = (revisions.c.undone.is_(False), revisions.c.event != "UNDO")
_VECTOR_KEY = (
    vectors.c.user_id == bindparam("of_user"),
    vectors.c.kind == "memory",
    vectors.c.key == bindparam("of_key"),
)


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A pending change of one row, and its history entry."""

    row: Mapping[str, Any]
    values: Mapping[str, Any]
    event: RevisionEvent
    reason: str = ""
    other_key: str | None = None
    hidden: Mapping[str, Sequence[str]] = field(default_factory=dict)  # with the row, by a deletion

    @property
    def key(self) -> dict[str, Any]:
        """The row's key, as statements take it."""
        return {"of_user": self.row["user_id"], "of_key": self.row["memory_key"]}

    @property
    def changes_text(self) -> bool:
        """Whether the row's vector was made from another text."""
        return any(
            name in self.values and self.values[name] != self.row[name]
            for name in ("content", "summary")
        )

    @property
    def hides(self) -> bool:
        """Whether the memory is deleted after the change."""
        return self.values.get("deleted_at", self.row["deleted_at"]) is not None

    @property
    def expiring_sources(self) -> Sequence[str]:
        """The messages of a memory that expires at some time, before or after the change."""
        can_expire = self.row["expires_at"] or self.values.get("expires_at")
        return self.row["source_message_ids"] if can_expire else ()

    def revision(self, number: int, now: datetime, actor: str, run: str | None) -> dict[str, Any]:
        """Return the history entry, with the old values as JSON."""
        before = {name: self.row[name] for name in self.values if name != "search_text"}
        if any(self.hidden.values()):
            before[HIDDEN] = self.hidden
        new_text = self.values.get("content", self.row["content"])
        return {
            "user_id": self.row["user_id"],
            "memory_key": self.row["memory_key"],
            "number": number,
            "event": self.event,
            "old_text": self.row["content"],
            "new_text": None if self.event == "DELETE" or self.hides else new_text,
            "other_key": self.other_key,
            "reason": self.reason,
            "actor": actor,
            "at": now,
            "before": {
                name: format_time(value) if isinstance(value, datetime) else value
                for name, value in before.items()
            },
            "undone": False,
            "run": run,
        }


def write_changes(
    connection: Connection,
    locks: Locks,
    changes: Sequence[PendingChange],
    actor: str,
    run: str | None = None,
) -> None:
    """Write changes of one user's memories and their history; the caller saves the locks."""
    if not changes:
        return
    user_id = changes[0].row["user_id"]
    key_column = revisions.c.memory_key
    last = select(key_column, func.max(revisions.c.number).label("number"))
    last = last.where(revisions.c.user_id == user_id).group_by(key_column)
    keys = [change.row["memory_key"] for change in changes]
    found = select_by_keys(connection, last, [key_column], keys)
    numbers = {row["memory_key"]: row["number"] for row in found}
    rows, history = [], []
    for change in changes:
        key = change.row["memory_key"]
        state = {name: change.values.get(name, change.row[name]) for name in _STATE}
        rows.append({**change.key, **state, "change_no": locks.next_change(user_id)})
        numbers[key] = numbers.get(key, 0) + 1
        history.append(change.revision(numbers[key], locks.now, actor, run))
    statement = update(memories).where(
        memories.c.user_id == bindparam("of_user"), memories.c.memory_key == bindparam("of_key")
    )
    connection.execute(statement.values(updated_at=locks.now), rows)
    connection.execute(insert(revisions), history)
    # The vectors of changed texts are removed; the others are given to readers again.
    stale = [change.key for change in changes if change.changes_text]
    if stale:
        connection.execute(delete(vectors).where(*_VECTOR_KEY), stale)
    current = [
        {**change.key, "change_no": locks.next_change(user_id)}
        for change in changes
        if not change.changes_text and not change.hides
    ]
    if current:
        connection.execute(update(vectors).where(*_VECTOR_KEY), current)


def last_revision(
    connection: Connection, user_id: str, memory_key: str
) -> Mapping[str, Any] | None:
    """Return the latest change of a memory that was not undone, with its `before` as columns."""
    of_memory = (revisions.c.user_id == user_id, revisions.c.memory_key == memory_key)
    statement = select(revisions).where(*of_memory, *_CAN_BE_UNDONE)
    latest = statement.order_by(revisions.c.number.desc()).limit(1)
    row = connection.execute(latest).mappings().one_or_none()
    return _with_times(row) if row is not None else None


def revisions_by(connection: Connection, user_id: str, successor: str) -> list[Mapping[str, Any]]:
    """Return the changes that a memory made to the ones it superseded, without undone changes."""
    by_successor = (revisions.c.user_id == user_id, revisions.c.other_key == successor)
    statement = select(revisions).where(*by_successor, *_CAN_BE_UNDONE)
    ordered = statement.order_by(revisions.c.memory_key, revisions.c.number)
    return [_with_times(row) for row in connection.execute(ordered).mappings()]


def hidden_messages(connection: Connection, user_id: str, message_ids: Collection[str]) -> set[str]:
    """Return the messages that deletions of memories hide, if these are among them."""
    if not message_ids:
        return set()
    statement = select(revisions.c.before).where(
        revisions.c.user_id == user_id,
        revisions.c.event == "DELETE",
        revisions.c.undone.is_(False),
        mentions(revisions.c.before, sorted(message_ids)),
    )
    values = connection.scalars(statement).all()
    return {key for before in values for key in before.get(HIDDEN, {}).get("messages", ())}


def began(row: Mapping[Any, Any]) -> datetime:
    """Return when a stored memory began to hold."""
    return cast(datetime, row["valid_from"] or row["created_at"])


def _with_times(row: Mapping[Any, Any]) -> Mapping[str, Any]:
    before = {
        name: parse_stored_time(value) if name in _TIMES and value is not None else value
        for name, value in row["before"].items()
    }
    return {**row, "before": before}


def mark_undone(connection: Connection, revision: Mapping[str, Any]) -> None:
    """Record that a change was taken back."""
    key = [column == revision[column.name] for column in revisions.primary_key.columns]
    connection.execute(update(revisions).where(*key).values(undone=True))


@dataclass(frozen=True, slots=True)
class Revision:
    """An entry in a memory's history; `other_key` is its successor, or on ADD its predecessor.

    The messages are those that state what was added.
    """

    memory_key: str
    number: int
    event: str
    old_text: str | None
    new_text: str | None
    actor: str
    at: datetime
    reason: str = ""
    other_key: str | None = None
    undone: bool = False
    source_message_ids: tuple[str, ...] = ()


REVISION_COLUMNS = tuple(name for name in Revision.__slots__ if name in revisions.c)


def filter_visible(statement: Select[Any], scope: Scope) -> Select[Any]:
    """Restrict a query to the memories that a scope may see, deleted ones included."""
    statement = filter_scope(statement, memories, scope)
    if not scope.allows(Permission.SENSITIVE):
        statement = statement.where(memories.c.sensitive.is_(False))
    return statement


def memory_not_found(memory_key: str) -> NotFound:
    """Return the error for a key that the scope has no memory of."""
    return NotFound(f"there is no memory {memory_key!r}", hint="Check the key and the user")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change that a caller made; `target` is the key of what was changed, if it was one thing."""

    action: str
    actor: str
    target: str | None = None
    count: int = 1
    at: datetime | None = None
    entry_id: str = ""


def write_entry(connection: Connection, scope: Scope, entry: AuditEntry, now: datetime) -> None:
    """Add an entry in the transaction of its change; in a space, the actor is the member."""
    row = {
        "user_id": scope.user_id,
        "agent_id": scope.agent_id,
        "entry_id": new_id("au"),
        "action": entry.action,
        "actor": scope.author or entry.actor,
        "target": entry.target,
        "count": entry.count,
        "at": now,
    }
    connection.execute(insert(audit_log), row)


class AuditLog:
    """The audit log of one scope."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def add(self, entry: AuditEntry) -> None:
        """Add the entry of a change that the tables of memories do not contain."""

        def work(connection: Connection) -> None:
            # Lock the user so it cannot be erased concurrently; unknown users have nothing to log.
            if lock_users(connection, [self._scope.user_id]):
                write_entry(connection, self._scope, entry, datetime.now(UTC))

        await self._database.transact(work)

    async def page(self, *, limit: int, after: str | None = None) -> KeyedPage[AuditEntry]:
        """Return a page of entries, latest first; `after` is the last id of the page before."""
        columns = [audit_log.c[name] for name in AuditEntry.__slots__]
        statement = filter_scope(select(*columns), audit_log, self._scope)
        if after is not None:
            statement = statement.where(audit_log.c.entry_id < after)
        # Ids begin with the time of their creation.
        latest_first = statement.order_by(audit_log.c.entry_id.desc())
        rows = await self._database.fetch(latest_first.limit(limit + 1))
        items = tuple(AuditEntry(**row._mapping) for row in rows[:limit])
        return KeyedPage(items, items[-1].entry_id if len(rows) > limit else None)
