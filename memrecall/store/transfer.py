"""Export of everything of a user as plain records, their import, and taking an import back.

An import adds what is new. What is stored stays as it is, and what was erased stays erased.
Messages whose numbers are taken get new ones at the end of their session. All that is not stored is
named.

What is new is labelled with the id of the import, its format and its file, like the metadata of
messages that were imported from files of other programs.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Integer,
    SmallInteger,
    String,
    Table,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from memrecall.errors import InvalidArgument, NotFound, describe_validation_error
from memrecall.scope import KEY_MEMBER, Scope, SpaceRole, check_member, parse_space_role, space_of
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import (
    Locks,
    SessionCounter,
    count_messages_again,
    ensure_agents,
    forget_mark,
    lock_existing_user,
    lock_scopes,
    lock_users,
)
from memrecall.store.database.memberships import IS_GRANT, note_spaces, role_of_row, store_role
from memrecall.store.database.statements import (
    new_epoch,
    select_by_keys,
    select_in_key_order,
    split,
)
from memrecall.store.database.tables import (
    MEMORY_TABLES,
    UtcTime,
    aliases,
    entities,
    memberships,
    memories,
    messages,
    relations,
    revisions,
    sessions,
    tombstones,
    users,
)
from memrecall.store.memories.removal import MessageRemover
from memrecall.store.memories.writer import PERSONAL
from memrecall.store.messages import WriteStatus
from memrecall.store.privacy import protect_row
from memrecall.store.sessions import erase_empty_sessions
from memrecall.store.texts import SEARCH_TEXT
from memrecall.text.privacy import DetectedKinds, PrivacyPolicy
from memrecall.types import (
    ID_LENGTH,
    NAME_LENGTH,
    MemoryRecord,
    Message,
    check_id,
    check_json,
    check_shown_name,
    check_time_zone,
    clean_shown_name,
    format_time,
    parse_stored_time,
)

FORMAT = 1
ID_PREFIX = "imp_"
# In an order in which rows can be inserted: referenced tables come first.
EXPORTED_TABLES = (users, sessions, tombstones, messages, memories, *MEMORY_TABLES)
# They count the writes to one database, name its imports, or are derived from other columns.
DATABASE_COLUMNS = {"version", "epoch", "change_no", "search_text", "import_label"}

ExportedRow = dict[str, Any]

_BATCH = 500
_LIST_PROJECTS = "`memrecall projects list`"
_OF_PROJECT = (sessions, messages, memories, revisions)
# Who may read a space says nothing about a user's own data.
_OF_USER = tuple(table for table in EXPORTED_TABLES if table is not memberships)
_BY_NAME = {table.name: table for table in EXPORTED_TABLES}
# An import would leave out a memory that was stored again after it had been erased.
_IS_STORED_AGAIN = (
    select(memories.c.memory_key)
    .where(
        memories.c.user_id == tombstones.c.user_id,
        memories.c.memory_key == tombstones.c.key,
        tombstones.c.kind == "memory",
    )
    .exists()
)
# What their rows are read as; the values of other tables are checked by the types of columns.
_MODELS: dict[str, type[BaseModel]] = {"messages": Message, "memories": MemoryRecord}
_SPEAKERS = {"speaker", "subject"}  # columns
_INTEGER_BITS = ((SmallInteger, 15), (BigInteger, 63), (Integer, 31))
_PYTHON_TYPES = ((Boolean, bool), (Integer, int), (String, str))
_ITEMS = {"messages": messages.c.message_id, "memories": memories.c.memory_key}
_PROFILE = {"user_name", "user_type", "profile", "time_zone"}
# What differs because a session went on.
_GOES_ON = {"update_time", "last_active_time", "last_sequence_no", "last_create_time"}
_LABELLED = (sessions, tombstones, messages, memories, *MEMORY_TABLES)
# Other rows need what these have: they are removed as far as nothing else uses them.
_NEEDED = {messages, memories, sessions, entities, aliases, memberships}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def export_user(
    database: Database, user_id: str, project: str | None = None
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield a user's rows as JSON objects, as of one moment, without vectors and traces.

    Of one project, its own sessions, messages and memories are exported, and their history.
    """
    count = 0
    async with database.read() as connection:
        tables = _OF_USER if space_of(user_id) is None else EXPORTED_TABLES
        for table in tables if project is None else _OF_PROJECT:
            statement = select_in_key_order(database.dialect, table)
            statement = statement.where(table.c.user_id == user_id)
            if table is tombstones:
                statement = statement.where(~_IS_STORED_AGAIN)
            if table is memberships:  # who is invited has nothing to do with the space yet
                statement = statement.where(IS_GRANT)
            if project is not None:
                statement = statement.where(_is_of_project(table, user_id, project))
            rows = await connection.stream(statement)
            async for row in rows.mappings():
                count += 1
                yield to_record(table.name, row)
            if table is users and not count:
                raise NotFound(f"there is no user {user_id!r}")
    if not count:
        raise NotFound(f"user {user_id!r} has no project {project!r}", hint=_LIST_PROJECTS)


def _is_of_project(table: Table, user_id: str, project: str) -> ColumnElement[bool]:
    """Return the condition for the rows of a project, in a table that names their keys."""
    if "project" in table.c:
        return table.c.project == project
    parts = (memories,) if table is revisions else (messages, memories)
    name = "memory_key" if table is revisions else "session_id"
    owned = [select(t.c[name]).where(t.c.user_id == user_id, t.c.project == project) for t in parts]
    return or_(*(table.c[name].in_(keys) for keys in owned))


def to_record(table: str, row: Mapping[Any, Any]) -> ExportedRow:
    """Return a row as a line of an export, which `parse_record` reads."""
    values = {
        name: format_time(value) if isinstance(value, datetime) else value
        for name, value in row.items()
        if name not in DATABASE_COLUMNS
    }
    return {"format": FORMAT, "table": table, "row": values}


class ImportCounts(dict[str, int]):
    """The rows of each table, the outcome of messages and memories, and what was redacted.

    `skipped` has the keys, by table, of the rows that were not stored and differ from what is;
    `joined` the sessions of the user that took in the messages of a session with the same id.
    `import_id` names the import, for taking it back.
    """

    import_id: str
    statuses: Mapping[WriteStatus, int]
    skipped: Mapping[str, Sequence[str]]
    joined: Sequence[str]
    redacted: Counter[str]


async def import_user(
    database: Database,
    user_id: str,
    records: Iterable[Mapping[str, Any]],
    member: Scope | None = None,
    *,
    invite: bool = False,
    label: str | None = None,
) -> ImportCounts:
    """Store exported rows under a user, all or nothing; return the count of each table.

    Rows whose key exists already stay as they are, and what was erased stays erased. A `member` of
    a space must still have the role that they entered it with; with `invite`, they invite the users
    who are not members yet. What is new gets the `label` of the import; the default names no file.
    """
    check_id("user_id", user_id)
    label = label or label_import(new_import_id())
    rows, redacted = await asyncio.to_thread(_parse_all, user_id, records, database.privacy)
    counts = ImportCounts((name, len(table_rows)) for name, table_rows in rows.items())
    if not rows["memberships"]:
        del counts["memberships"]
    counts.redacted = redacted

    def work(connection: Connection) -> Merge:
        inviter = member.member if member and invite else None
        merge = Merge(connection, user_id, rows, label, inviter)
        merge.run(member)
        return merge

    merge = await database.transact(work)
    counts.statuses = +merge.statuses  # without those that are 0
    counts.skipped = merge.skipped
    counts.joined = merge.joined
    counts.import_id = id_of_label(label)
    return counts


def _parse_all(
    user_id: str, records: Iterable[Mapping[str, Any]], privacy: PrivacyPolicy
) -> tuple[dict[str, list[ExportedRow]], Counter[str]]:
    """Return the rows of each table, with what is derived from them, and what was redacted."""
    rows: dict[str, list[ExportedRow]] = {table.name: [] for table in EXPORTED_TABLES}
    redacted = Counter[str]()
    for record in records:
        name, row = parse_record(record)
        if name in _MODELS and "project" not in row:  # of an earlier version
            row["project"] = _find_workspace(name, row)
        for column in _SPEAKERS & row.keys():  # a name that is refused would lose the row
            row[column] = clean_shown_name(row[column] or "") or None
        row |= protect_row(privacy, _BY_NAME[name], row, findings := DetectedKinds())
        redacted.update(findings.redacted.keys())
        if (search_text := SEARCH_TEXT.get(_BY_NAME[name])) is not None:
            row["search_text"] = search_text(row)
        rows[name].append({**row, "user_id": user_id})
    return rows, redacted


def _find_workspace(table: str, row: ExportedRow) -> str | None:
    """Return the folder that an earlier version stored as metadata, as the migration does."""
    folder = (row.get("metadata") or {}).get("workspace")
    if not isinstance(folder, str) or (table == "memories" and row.get("memory_type") in PERSONAL):
        return None
    return folder[:NAME_LENGTH] or None


def parse_record(record: Mapping[str, Any]) -> tuple[str, ExportedRow]:
    """Return the table and the row of a line of an export; InvalidArgument for anything else."""
    table = _BY_NAME.get(str(record.get("table")))
    row = record.get("row")
    if record.get("format") != FORMAT or table is None or not isinstance(row, Mapping):
        raise InvalidArgument(
            "this is not a line of an export", hint="Use a file that `memrecall export` wrote"
        )
    required = {
        column.name
        for column in table.c
        if not column.nullable
        and column.server_default is None
        and column.name not in DATABASE_COLUMNS
    }
    wrong = sorted((set(row) - set(table.c.keys())) | (required - set(row)))
    if wrong:
        raise InvalidArgument(f"a row of {table.name} has an invalid {wrong[0]!r}")
    check_json(f"a row of {table.name}", dict(row))
    values = {
        name: _parse_value(table.c[name], value)
        for name, value in row.items()
        if name not in DATABASE_COLUMNS
    }
    _require_readable(table.name, values)
    return table.name, values


def _parse_value(column: Column[Any], value: Any) -> Any:
    """Return a value as the column stores it; InvalidArgument if the column cannot."""
    name = f"{column.table.name}.{column.name}"
    if value is None and column.nullable:
        return None
    if isinstance(column.type, UtcTime):
        return parse_stored_time(value, name)
    if isinstance(column.type, JSON):
        if column.name in ("source_message_ids", "evidence"):
            is_list = isinstance(value, list)
            if not is_list or not all(isinstance(item, str) for item in value):
                raise InvalidArgument(f"{name} is not a list of ids")
        return value
    python_type: Any = next(kind for types, kind in _PYTHON_TYPES if isinstance(column.type, types))
    if type(value) is not python_type:
        raise InvalidArgument(f"{name} {value!r} is not a {python_type.__name__}")
    if getattr(column.type, "length", None) == ID_LENGTH:
        return check_id(name, value)
    if _is_too_large(column.type, value):
        raise InvalidArgument(f"{name} is too large")
    return value


def _is_too_large(column_type: Any, value: str | int) -> bool:
    if isinstance(value, str):
        return column_type.length is not None and len(value) > column_type.length
    bits = next((bits for kind, bits in _INTEGER_BITS if isinstance(column_type, kind)), 1)
    return value.bit_length() > bits


def _require_readable(table: str, values: ExportedRow) -> None:
    """Raise InvalidArgument for a row that could be stored but not be read again."""
    if table == "users":
        check_time_zone(values.get("time_zone") or "UTC")
    elif table == "memberships":
        check_member(values["member"])
        parse_space_role(values["role"])
        check_shown_name("name", values.get("name") or "")
    if table not in _MODELS:
        return
    row = {name: value for name, value in values.items() if (name, value) != ("metadata", None)}
    try:
        # The database numbers and names what an export leaves out.
        _MODELS[table].model_validate({"user_id": "-", **row})
    except ValidationError as error:
        raise InvalidArgument(f"a row of {table}: {describe_validation_error(error)}") from None


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
        self.joined: list[str] = []  # ids of sessions that exist and differ

    def run(self, member: Scope | None) -> None:
        """Store the rows. A `member` of a space must still have the role that they entered with."""
        connection = self._connection
        user_id = self._user_id
        rows = self._rows
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
        for row in new:
            # A file cannot consent for users: their grants become invitations.
            is_user = table is memberships and not row["member"].startswith(KEY_MEMBER)
            if is_user and self._inviter is not None:
                row["role"] = store_role(role_of_row(row["role"]), is_invited=True)
                row |= {"granted_by": self._inviter, "created_at": locks.now}
            row["import_label"] = self._label
            if "change_no" in table.c:
                row["change_no"] = locks.next_change(self._user_id)
        # One statement needs the same columns in all its rows.
        by_columns: dict[tuple[str, ...], list[ExportedRow]] = {}
        for row in new:
            by_columns.setdefault(tuple(sorted(row)), []).append(row)
        for batch in (part for same in by_columns.values() for part in split(same, _BATCH)):
            self._connection.execute(insert(table), list(batch))

    def _find_new(self, table: Table) -> list[ExportedRow]:
        """Return the rows of a table whose key is free, and count the others."""
        rows, stored = self._rows[table.name], self._find_stored(table)
        others: set[str] = set()  # a message and a memory cannot have the same id
        for name in _ITEMS.keys() - {table.name} if table.name in _ITEMS else ():
            keys = [(self._user_id, *_key_of(table, row)) for row in rows]
            columns = (_BY_NAME[name].c.user_id, _ITEMS[name])
            found = select_by_keys(self._connection, select(_ITEMS[name]), columns, keys)
            others = {row[_ITEMS[name]] for row in found}
        new: list[ExportedRow] = []
        for row in rows:
            key = _key_of(table, row)
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
        return {_key_of(table, row): row for row in rows}

    def _number(self, new: Sequence[ExportedRow], now: datetime) -> set[str]:
        """Give messages other numbers where a number or a time is taken; return these sessions.

        All new messages of such a session get numbers at its end, in the order of time.
        """
        by_session: dict[str, list[ExportedRow]] = {}
        for row in new:
            by_session.setdefault(row["session_id"], []).append(row)
        moved = {name for name, rows in by_session.items() if self._collide(name, rows)}
        if not moved:
            return moved
        statement = select(
            sessions.c.session_id, sessions.c.last_sequence_no, sessions.c.last_create_time
        ).where(sessions.c.user_id == self._user_id, sessions.c.session_id.in_(sorted(moved)))
        for name, last_number, last_time in self._connection.execute(statement):
            counter = SessionCounter(self._user_id, name, 1, last_number, last_time)
            if name in self._new_sessions:  # the stored numbers count what the import has
                counter = SessionCounter(self._user_id, name, 1, 0, None)
            in_time_order = sorted(
                by_session[name],
                key=lambda row: (row.get("create_time") or row["ts"], row["sequence_no"]),
            )
            for row in in_time_order:
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
        """Leave out erased messages and memories, and what was derived from them."""
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
        counts = (
            self._keep("messages", lambda row: ("message", row["message_id"]) not in erased),
            self._keep("memories", lambda row: ("memory", row["memory_key"]) not in erased),
        )
        self.statuses[WriteStatus.ERASED] += sum(counts)
        self._keep("revisions", lambda row: ("memory", row["memory_key"]) not in erased)
        for name in ("summaries", "checkpoints"):
            self._keep(name, lambda row: row["session_id"] not in sessions_of_erased)
        # Relations that only erased messages state, and the entities that no other relation names.
        erased_ids = {key for kind, key in erased if kind == "message"}
        ends = self._ends_of_relations()
        self._keep(
            "relations",
            lambda row: (
                not row["source_message_ids"]
                or not erased_ids.issuperset(row["source_message_ids"])
            ),
        )
        lonely = ends - self._ends_of_relations()
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
        self.skipped.setdefault(table.name, []).append("/".join(map(str, _key_of(table, row))))

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


def _key_of(table: Table, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of a row within its owner."""
    return tuple(row[key.name] for key in table.primary_key.columns if key.name != "user_id")


def _is_same(table: Table, row: ExportedRow, stored: Mapping[str, Any]) -> bool:
    if table.name in _ITEMS:
        return bool(row["content"] == stored["content"])
    names = row.keys() - DATABASE_COLUMNS - _GOES_ON
    return all(row[name] == stored.get(name) for name in names)


def new_import_id() -> str:
    """Return the id of an import that begins now; later ones sort after it."""
    return f"{ID_PREFIX}{time.time_ns() // 1000:x}"


def label_import(import_id: str, file: str = "-") -> str:
    """Return the label of what an import of an export writes."""
    return f"{import_id} memrecall {file}"


def id_of_label(label: str) -> str:
    """Return the id of the import that a label names."""
    return label.partition(" ")[0]


def time_of_import(import_id: str) -> datetime:
    """Return when an import began."""
    return _EPOCH + timedelta(microseconds=int(import_id.removeprefix(ID_PREFIX), 16))


class LabelledRows:
    """The rows of a scope's user that imports of exports wrote and that are still stored."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def count(self) -> dict[str, Counter[str]]:
        """Return the number of rows of each table by label."""
        counts: dict[str, Counter[str]] = {}
        for table in _LABELLED:
            label = table.c.import_label
            statement = select(label, func.count().label("number")).group_by(label)
            of_user = (table.c.user_id == self._scope.user_id, label.is_not(None))
            for row in await self._database.fetch(statement.where(*of_user)):
                counts.setdefault(row.import_label, Counter())[table.name] = row.number
        return counts

    async def keys(self, label: str) -> tuple[list[str], list[str]]:
        """Return the ids of the messages and the keys of the memories with a label."""
        of_messages = select(messages.c.message_id).where(*self._match(messages, label))
        of_memories = select(memories.c.memory_key).where(*self._match(memories, label))
        message_ids = await self._database.fetch(of_messages)
        memory_keys = await self._database.fetch(of_memories)
        return sorted(row.message_id for row in message_ids), sorted(
            row.memory_key for row in memory_keys
        )

    async def remove_others(self, label: str) -> None:
        """Remove the labelled rows other than messages and memories.

        Sessions, names and entities stay if something else uses them, and the members of a space
        if it had no admin without them.
        """

        def work(connection: Connection) -> None:
            locks = lock_existing_user(connection, self._scope)
            for table in _LABELLED:
                if table not in _NEEDED:
                    connection.execute(delete(table).where(*self._match(table, label)))
            self._remove_entities(connection, label)
            admins = select(memberships.c.import_label).where(
                memberships.c.user_id == self._scope.user_id,
                memberships.c.role == SpaceRole.ADMIN.value,
            )
            if set(connection.scalars(admins)) - {label}:
                connection.execute(delete(memberships).where(*self._match(memberships, label)))
            in_sessions = select(sessions.c.session_id).where(*self._match(sessions, label))
            names = set(connection.scalars(in_sessions))
            erase_empty_sessions(connection, self._scope.user_id, names)
            for table in _NEEDED - {messages, memories}:  # what stays is the import's no more
                kept = update(table).where(*self._match(table, label))
                connection.execute(kept.values(import_label=None))
            locks.next_change(self._scope.user_id)
            locks.save(connection, is_activity=False)
            # What was buried by the import can be stored again.
            epoch = update(users).where(users.c.user_id == self._scope.user_id)
            connection.execute(epoch.values(epoch=new_epoch()))

        await self._database.transact(work)

    def _remove_entities(self, connection: Connection, label: str) -> None:
        """Remove entities that no relation names, and aliases that no relation was stated with."""
        ends: set[str] = set()
        stated: set[str] = set()
        for side in ("source", "destination"):
            columns = (relations.c[f"{side}_id"], relations.c[f"{side}_alias"])
            of_user = select(*columns).where(relations.c.user_id == self._scope.user_id)
            for entity_id, alias in connection.execute(of_user):
                ends.add(entity_id)
                stated.add(alias)
        imported = select(entities.c.entity_id).where(*self._match(entities, label))
        own = set(connection.scalars(imported))
        self._delete(connection, aliases.c.entity_id, own - ends)
        self._delete(connection, entities.c.entity_id, own - ends)
        names = select(aliases.c.alias, aliases.c.entity_id).where(*self._match(aliases, label))
        unused = {
            row.alias
            for row in connection.execute(names)
            if row.entity_id not in own and row.alias not in stated
        }
        self._delete(connection, aliases.c.alias, unused, *self._match(aliases, label))

    def _delete(
        self,
        connection: Connection,
        key: ColumnElement[str],
        keys: Collection[str],
        *conditions: ColumnElement[bool],
    ) -> None:
        table = key.table
        of_user = (table.c.user_id == self._scope.user_id, *conditions)
        for batch in split(sorted(keys)):
            connection.execute(delete(table).where(*of_user, key.in_(batch)))

    def _match(self, table: Table, label: str) -> tuple[ColumnElement[bool], ...]:
        return table.c.user_id == self._scope.user_id, table.c.import_label == label
