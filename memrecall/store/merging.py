"""Storing exported rows under a user who may have data already.

What is new is added, what is stored stays as it is, and what was erased stays erased. Messages
whose numbers are taken get new ones at the end of their session. All that is not stored is named.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, String, Table, insert, select, update

from memrecall.errors import InvalidArgument
from memrecall.scope import KEY_MEMBER, Scope, space_of
from memrecall.store.database.locks import (
    Locks,
    SessionCounter,
    count_messages_again,
    ensure_agents,
    forget_mark,
    lock_scopes,
    lock_users,
)
from memrecall.store.database.memberships import note_spaces, role_of_row, store_role
from memrecall.store.database.statements import select_by_keys, split
from memrecall.store.database.tables import (
    MEMORY_TABLES,
    memberships,
    memories,
    messages,
    sessions,
    tombstones,
    users,
)
from memrecall.store.memories.removal import MessageRemover
from memrecall.store.messages import WriteStatus

_BATCH = 500
# In an order in which rows can be inserted: referenced tables come first.
EXPORTED_TABLES = (users, sessions, tombstones, messages, memories, *MEMORY_TABLES)
# They count the writes to one database, name its imports, or are derived from other columns.
DATABASE_COLUMNS = {"version", "epoch", "change_no", "search_text", "import_label"}
_BY_NAME = {table.name: table for table in EXPORTED_TABLES}
_ITEMS = {"messages": messages.c.message_id, "memories": memories.c.memory_key}
_ERASABLE = (
    ("messages", "message", "message_id"),
    ("memories", "memory", "memory_key"),
    ("revisions", "memory", "memory_key"),
)
_PROFILE = {"user_name", "user_type", "profile", "time_zone"}
# What differs because a session went on.
_GOES_ON = {"update_time", "last_active_time", "last_sequence_no", "last_create_time"}

ExportedRow = dict[str, Any]


class Merge:
    """The rows of one import into one user, in a transaction."""

    def __init__(
        self,
        connection: Connection,
        user_id: str,
        rows: Mapping[str, Sequence[ExportedRow]],
        label: str,
        inviter: str | None = None,
    ) -> None:
        self._connection = connection
        self._user_id = user_id
        self._label = label  # of the rows that are new
        self._inviter = inviter  # of the users who would become members
        self._rows = {name: list(map(dict, table_rows)) for name, table_rows in rows.items()}
        self._new_sessions: set[str] = set()
        self._moved: set[str] = set()  # sessions with messages that have other numbers here
        self.statuses: Counter[WriteStatus] = Counter()  # of messages and memories
        self.skipped: dict[str, list[str]] = {}  # the keys of rows that were not stored, by table
        self.joined: list[str] = []  # sessions that exist, and differ from those of the import

    def run(self, member: Scope | None) -> None:
        """Store the rows. A `member` of a space must still have the role that they entered with."""
        connection, user_id, rows = self._connection, self._user_id, self._rows
        agents = {row["agent_id"] for table in rows.values() for row in table if "agent_id" in row}
        ensure_agents(connection, sorted(filter(None, agents)), datetime.now(UTC))
        is_new = not lock_users(connection, [user_id])
        is_space = space_of(user_id) is not None
        if is_space:
            note_spaces(connection)
        else:  # who may read a space says nothing about a user's own data
            self._keep("memberships", lambda _: False)
        first_agent = (rows["users"] or [{}])[0].get("agent_id")
        scope = member or Scope.of_owner(user_id, first_agent)
        locks = lock_scopes(connection, [scope], with_sessions=False)
        for table in EXPORTED_TABLES[1:]:
            if table is messages:  # sessions and tombstones are stored by now
                self._require_sessions()
                self._drop_erased()
            self._store(table, locks)
        count_messages_again(connection, user_id)
        # Exports of earlier versions do not say when messages expire.
        expiring = (row for row in rows["memories"] if row.get("expires_at"))
        sources = {name for row in expiring for name in row["source_message_ids"]}
        MessageRemover(connection, locks, user_id).follow_expiry(sources)
        locks.save(connection, is_activity=False)
        # Last, because the export may say that the user is disabled. A space keeps its name.
        for row in rows["users"] if is_new or not is_space else ():
            # Not the key, even to the same value: rows of a distributed table stay on their shard.
            names = row.keys() - {"user_id"} if is_new else row.keys() & _PROFILE
            statement = update(users).where(users.c.user_id == user_id)
            connection.execute(statement.values({name: row[name] for name in names}))
        forget_mark(connection)

    def _store(self, table: Table, locks: Locks) -> None:
        new = self._find_new(table)
        if table is sessions:
            self._new_sessions = {row["session_id"] for row in new}
        elif table is messages:
            self._moved |= self._number(new, locks.now)
            # They name messages by their numbers; a model makes them again.
            self._keep("summaries", lambda row: row["session_id"] not in self._moved)
        if table is memberships and self._inviter is not None:
            self._invite(new, locks.now)
        for row in new:
            row["import_label"] = self._label
            if "change_no" in table.c:
                row["change_no"] = locks.next_change(self._user_id)
        # One statement needs the same columns in all its rows.
        by_columns: dict[tuple[str, ...], list[ExportedRow]] = {}
        for row in new:
            by_columns.setdefault(tuple(sorted(row)), []).append(row)
        for batch in (part for same in by_columns.values() for part in split(same, _BATCH)):
            self._connection.execute(insert(table), list(batch))

    def _invite(self, rows: Sequence[ExportedRow], now: datetime) -> None:
        """Turn the grants of users into invitations: a file cannot consent for them."""
        for row in rows:
            if not row["member"].startswith(KEY_MEMBER):
                row["role"] = store_role(role_of_row(row["role"]), is_invited=True)
                row |= {"granted_by": self._inviter, "created_at": now}

    def _find_new(self, table: Table) -> list[ExportedRow]:
        """Return the rows of a table whose key is free, and count the others."""
        rows, stored = self._rows[table.name], self._find_stored(table)
        others: set[str] = set()  # a message and a memory cannot have the same id
        for name in _ITEMS.keys() - {table.name} if table.name in _ITEMS else ():
            keys = [(self._user_id, key) for (key,) in map(_key_of(table), rows)]
            columns = (_BY_NAME[name].c.user_id, _ITEMS[name])
            found = select_by_keys(self._connection, select(_ITEMS[name]), columns, keys)
            others = {row[_ITEMS[name]] for row in found}
        new: list[ExportedRow] = []
        for row in rows:
            key = _key_of(table)(row)
            if key not in stored and others.isdisjoint(key):
                stored[key] = row
                new.append(row)
                status = WriteStatus.NEW
            elif key in stored and _is_same(table, row, stored[key]):
                status = WriteStatus.SAME
            else:
                status = WriteStatus.CONFLICT
                if table is sessions:
                    self.joined.append(row["session_id"])
                else:
                    self._skip(table, row)
            if table is messages and row["sequence_no"] != stored.get(key, row)["sequence_no"]:
                self._moved.add(row["session_id"])
            self.statuses[status] += table.name in _ITEMS
        return new

    def _find_stored(self, table: Table) -> dict[tuple[Any, ...], Mapping[str, Any]]:
        """Return the stored rows, by key, that rows of the import may be equal to."""
        # The last text of a key is the one that few rows share.
        *_, column = (c for c in table.primary_key.columns if isinstance(c.type, String))
        keys = sorted({(self._user_id, row[column.name]) for row in self._rows[table.name]})
        found = select_by_keys(self._connection, select(table), (table.c.user_id, column), keys)
        rows = [{str(name): value for name, value in row.items()} for row in found]
        return {_key_of(table)(row): row for row in rows}

    def _number(self, new: Sequence[ExportedRow], now: datetime) -> set[str]:
        """Give messages other numbers where a number or a time is taken; return these sessions.

        All new messages of such a session get numbers at its end, in the order of time.
        """
        by_session: dict[str, list[ExportedRow]] = {}
        for row in new:
            by_session.setdefault(row["session_id"], []).append(row)
        moved = {name for name, rows in by_session.items() if self._collide(name, rows)}
        of_moved = (sessions.c.user_id == self._user_id, sessions.c.session_id.in_(sorted(moved)))
        columns = [sessions.c[n] for n in ("session_id", "last_sequence_no", "last_create_time")]
        for name, number, time in (
            self._connection.execute(select(*columns).where(*of_moved)) if moved else ()
        ):
            is_new = name in self._new_sessions  # it counts what the import has
            start = (0, None) if is_new else (number, time)
            counter = SessionCounter(self._user_id, name, 1, *start)
            for row in sorted(by_session[name], key=_time_of):
                row["sequence_no"], row["create_time"] = counter.next(now)
        return moved

    def _collide(self, session_id: str, rows: Sequence[ExportedRow]) -> bool:
        """Return True if messages cannot all have their numbers and times in a session."""
        for name in ("sequence_no", "create_time"):
            column, values = messages.c[name], [row.get(name) for row in rows]
            if None in values or len(set(values)) < len(values):
                return True
            in_session = (messages.c.user_id == self._user_id, messages.c.session_id == session_id)
            for batch in split(values):
                taken = select(column).where(*in_session, column.in_(batch)).limit(1)
                if self._connection.execute(taken).first():
                    return True
        return False

    def _drop_erased(self) -> None:
        """Leave out the messages and memories that were erased, and what was derived from them."""
        statement = select(tombstones.c.kind, tombstones.c.key)
        of_user = statement.where(tombstones.c.user_id == self._user_id)
        erased = set(map(tuple, self._connection.execute(of_user)))
        dropped = [r for r in self._rows["messages"] if ("message", r["message_id"]) in erased]
        sessions_of_erased = {row["session_id"] for row in dropped}
        texts = {row["content"].strip() for row in dropped}
        keys = {key for _, key in erased}
        self._keep(
            "feedback",
            lambda row: keys.isdisjoint(row["evidence"]) and row["query"].strip() not in texts,
        )
        for name, kind, key in _ERASABLE:
            gone = {erased_key for of_kind, erased_key in erased if of_kind == kind}
            count = self._keep(name, partial(_is_kept, column=key, gone=gone))
            self.statuses[WriteStatus.ERASED] += count if name in _ITEMS else 0
        for name in ("summaries", "checkpoints"):
            self._keep(name, lambda row: row["session_id"] not in sessions_of_erased)
        self._drop_relations({key for kind, key in erased if kind == "message"})

    def _drop_relations(self, erased: set[str]) -> None:
        """Leave out the relations that only erased messages state, and entities of no others."""

        def is_stated(row: ExportedRow) -> bool:
            sources = row["source_message_ids"]
            return not sources or not erased.issuperset(sources)

        before = self._ends_of_relations()
        self._keep("relations", is_stated)
        lonely = before - self._ends_of_relations()
        for name in ("aliases", "entities"):
            self._keep(name, lambda row: row["entity_id"] not in lonely)

    def _ends_of_relations(self) -> set[str]:
        ends = ("source_id", "destination_id")
        return {row[end] for row in self._rows["relations"] for end in ends}

    def _keep(self, name: str, condition: Callable[[ExportedRow], bool]) -> int:
        """Keep the rows of a table that meet a condition; return how many do not."""
        kept: list[ExportedRow] = []
        for row in self._rows[name]:
            if condition(row):
                kept.append(row)
            else:
                self._skip(_BY_NAME[name], row)
        count = len(self._rows[name]) - len(kept)
        self._rows[name] = kept
        return count

    def _skip(self, table: Table, row: ExportedRow) -> None:
        self.skipped.setdefault(table.name, []).append("/".join(map(str, _key_of(table)(row))))

    def _require_sessions(self) -> None:
        """Raise InvalidArgument for messages and memories of sessions that are not stored."""
        named = {row.get("session_id") for name in _ITEMS for row in self._rows[name]}
        keys = [sessions.c.user_id, sessions.c.session_id]
        pairs = [(self._user_id, name) for name in sorted(filter(None, named))]
        stored = select_by_keys(self._connection, select(sessions.c.session_id), keys, pairs)
        missing = {name for _, name in pairs} - {row["session_id"] for row in stored}
        if missing:
            raise InvalidArgument(
                f"there is no session {min(missing)!r}", hint="Import the lines in their order"
            )


def _key_of(table: Table) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return the function for the key of a row within its owner."""
    names = [column.name for column in table.primary_key.columns if column.name != "user_id"]
    return lambda row: tuple(row[name] for name in names)


def _is_same(table: Table, row: ExportedRow, stored: Mapping[str, Any]) -> bool:
    if table.name in _ITEMS:
        return bool(row["content"] == stored["content"])
    names = row.keys() - DATABASE_COLUMNS - _GOES_ON
    return all(row[name] == stored.get(name) for name in names)


def _is_kept(row: ExportedRow, column: str, gone: Set[str]) -> bool:
    return row[column] not in gone


def _time_of(row: ExportedRow) -> tuple[datetime, int]:
    return row.get("create_time") or row["ts"], row["sequence_no"]
