"""Export of everything of a user as plain records, and their import into a database."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Integer,
    SmallInteger,
    String,
    Table,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument, NotFound, describe_validation_error
from memrecall.scope import Scope, space_of
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import ensure_agents, forget_mark, lock_scopes, lock_users
from memrecall.store.database.memberships import note_spaces
from memrecall.store.database.memory_tables import MEMORY_TABLES, revisions
from memrecall.store.database.statements import (
    insert_missing,
    select_by_keys,
    select_in_key_order,
    split,
)
from memrecall.store.database.tables import UtcTime, memories, messages, sessions, tombstones, users
from memrecall.store.memories.expiry import MessageExpiry
from memrecall.store.memories.insertion import PERSONAL
from memrecall.store.messages.records import WriteStatus
from memrecall.store.privacy import protect_row
from memrecall.store.texts import SEARCH_TEXT
from memrecall.text.privacy import DetectedKinds, PrivacyPolicy
from memrecall.types import (
    ID_LENGTH,
    NAME_LENGTH,
    MemoryRecord,
    Message,
    check_id,
    check_json,
    check_time_zone,
    format_time,
    parse_stored_time,
)

FORMAT = 1
_BATCH = 500
# In an order in which rows can be inserted: referenced tables come first.
_TABLES = (users, sessions, tombstones, messages, memories, *MEMORY_TABLES)
_LIST_PROJECTS = "`memrecall projects list`"
_OF_PROJECT = (sessions, messages, memories, revisions)
_BY_NAME = {table.name: table for table in _TABLES}
# They count the writes to one database, or are derived from other columns.
_DATABASE_COLUMNS = {"version", "epoch", "change_no", "search_text"}
# What their rows are read as; the values of other tables are checked by the types of columns.
_MODELS: dict[str, type[BaseModel]] = {"messages": Message, "memories": MemoryRecord}
_ERASABLE = (
    ("messages", "message", "message_id"),
    ("memories", "memory", "memory_key"),
    ("revisions", "memory", "memory_key"),
)
_PROFILE = {"user_name", "user_type", "profile", "time_zone"}
_INTEGER_BITS = ((SmallInteger, 15), (BigInteger, 63), (Integer, 31))
_PYTHON_TYPES = ((Boolean, bool), (Integer, int), (String, str))

ExportedRow = dict[str, Any]


async def export_user(
    database: Database, user_id: str, project: str | None = None
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield a user's rows as JSON objects, as of one moment, without vectors and traces.

    Of one project, its own sessions, messages and memories are exported, and their history.
    """
    count = 0
    async with database.read() as connection:
        for table in _TABLES if project is None else _OF_PROJECT:
            statement = select_in_key_order(database.dialect, table)
            statement = statement.where(table.c.user_id == user_id)
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
        if name not in _DATABASE_COLUMNS
    }
    return {"format": FORMAT, "table": table, "row": values}


class ImportCounts(dict[str, int]):
    """The count of each table, what became of the messages and memories, and what was redacted."""

    statuses: Mapping[WriteStatus, int]
    redacted: Counter[str]


async def import_user(
    database: Database,
    user_id: str,
    records: Iterable[Mapping[str, Any]],
    member: Scope | None = None,
) -> ImportCounts:
    """Store exported rows under a user, all or nothing; return the count of each table.

    Rows whose key exists already stay as they are, and what was erased stays erased. A `member` of
    a space must still have the role that they entered it with.
    """
    check_id("user_id", user_id)
    rows, redacted = await asyncio.to_thread(_parse_all, user_id, records, database.privacy)
    if space_of(user_id) is None:  # who may read a space says nothing about a user's own data
        rows["memberships"] = []
    counts = ImportCounts((name, len(table_rows)) for name, table_rows in rows.items())
    if not rows["memberships"]:
        del counts["memberships"]
    counts.redacted = redacted
    counts.statuses = await database.transact(lambda c: _import(c, user_id, dict(rows), member))
    return counts


def _parse_all(
    user_id: str, records: Iterable[Mapping[str, Any]], privacy: PrivacyPolicy
) -> tuple[dict[str, list[ExportedRow]], Counter[str]]:
    """Return the rows of each table, with what is derived from them, and what was redacted."""
    rows: dict[str, list[ExportedRow]] = {table.name: [] for table in _TABLES}
    redacted = Counter[str]()
    for record in records:
        name, row = parse_record(record)
        if name in _MODELS and "project" not in row:  # of an earlier version
            row["project"] = _find_workspace(name, row)
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
        and column.name not in _DATABASE_COLUMNS
    }
    wrong = sorted((set(row) - set(table.c.keys())) | (required - set(row)))
    if wrong:
        raise InvalidArgument(f"a row of {table.name} has an invalid {wrong[0]!r}")
    check_json(f"a row of {table.name}", dict(row))
    values = {
        name: _parse_value(table.c[name], value)
        for name, value in row.items()
        if name not in _DATABASE_COLUMNS
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
        if column.name in ("source_message_ids", "evidence") and not _is_list_of_texts(value):
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


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_too_large(column_type: Any, value: str | int) -> bool:
    if isinstance(value, str):
        return column_type.length is not None and len(value) > column_type.length
    bits = next((bits for kind, bits in _INTEGER_BITS if isinstance(column_type, kind)), 1)
    return value.bit_length() > bits


def _require_readable(table: str, values: ExportedRow) -> None:
    """Raise InvalidArgument for a row that could be stored but not be read again."""
    if table == "users":
        check_time_zone(values.get("time_zone") or "UTC")
    if table not in _MODELS:
        return
    row = {name: value for name, value in values.items() if (name, value) != ("metadata", None)}
    try:
        # The database numbers and names what an export leaves out.
        _MODELS[table].model_validate({"user_id": "-", **row})
    except ValidationError as error:
        raise InvalidArgument(f"a row of {table}: {describe_validation_error(error)}") from None


async def _import(
    connection: AsyncConnection,
    user_id: str,
    rows: dict[str, list[ExportedRow]],
    member: Scope | None,
) -> Mapping[WriteStatus, int]:
    statuses: Counter[WriteStatus] = Counter()
    all_rows = [row for table_rows in rows.values() for row in table_rows]
    agents = {row["agent_id"] for row in all_rows if row.get("agent_id")}
    await ensure_agents(connection, sorted(agents), datetime.now(UTC))
    is_new = not await lock_users(connection, [user_id])
    if space_of(user_id) is not None:
        await note_spaces(connection)
    first_agent = (rows["users"] or [{}])[0].get("agent_id")
    scope = member or Scope.of_owner(user_id, first_agent)
    locks = await lock_scopes(connection, [scope], with_sessions=False)
    for table in _TABLES[1:]:
        if table is messages:  # sessions and tombstones are stored by now
            await _require_sessions(connection, user_id, rows)
            count = len(rows["messages"]) + len(rows["memories"])
            await _drop_erased(connection, user_id, rows)
            statuses = await _compare_stored(connection, user_id, rows)
            statuses[WriteStatus.ERASED] = count - statuses.total()
        for row in rows[table.name] if "change_no" in table.c else ():
            row["change_no"] = locks.next_change(user_id)
        # One statement needs the same columns in all its rows.
        by_columns: dict[tuple[str, ...], list[ExportedRow]] = {}
        for row in rows[table.name]:
            by_columns.setdefault(tuple(sorted(row)), []).append(row)
        for batch in (part for same in by_columns.values() for part in split(same, _BATCH)):
            await insert_missing(connection, table, batch)
    # Exports of earlier versions do not say when messages expire.
    expiring = (row for row in rows["memories"] if row.get("expires_at"))
    sources = {name for row in expiring for name in row["source_message_ids"]}
    await MessageExpiry(connection, locks, user_id).follow(sources)
    await locks.save(connection, is_activity=False)
    # Last, because the export may say that the user is disabled.
    for row in (
        rows["users"] if is_new or space_of(user_id) is None else ()
    ):  # a space keeps its name
        # Not the key, even to the same value: rows of a distributed table stay on their shard.
        names = row.keys() - {"user_id"} if is_new else row.keys() & _PROFILE
        statement = update(users).where(users.c.user_id == user_id)
        await connection.execute(statement.values({name: row[name] for name in names}))
    await forget_mark(connection)
    return +statuses  # without those that are 0


async def _compare_stored(
    connection: AsyncConnection, user_id: str, rows: Mapping[str, list[ExportedRow]]
) -> Counter[WriteStatus]:
    """Count the messages and memories that are new, stored already, or stored otherwise."""
    statuses: Counter[WriteStatus] = Counter()
    for name, _, key in _ERASABLE[:2]:
        table = _BY_NAME[name]
        for batch in split(rows[name], _BATCH):
            found = select(table.c[key], table.c.content).where(
                table.c.user_id == user_id, table.c[key].in_([row[key] for row in batch])
            )
            stored = dict(map(tuple, await connection.execute(found)))
            for row in batch:
                is_same = stored.get(row[key]) == row["content"]
                known = WriteStatus.SAME if is_same else WriteStatus.CONFLICT
                statuses[known if row[key] in stored else WriteStatus.NEW] += 1
    return statuses


async def _drop_erased(
    connection: AsyncConnection, user_id: str, rows: dict[str, list[ExportedRow]]
) -> None:
    """Leave out the messages and memories that were erased, and what was derived from them."""
    statement = select(tombstones.c.kind, tombstones.c.key)
    erased = set(
        map(tuple, await connection.execute(statement.where(tombstones.c.user_id == user_id)))
    )
    sessions_of_erased = {
        row["session_id"] for row in rows["messages"] if ("message", row["message_id"]) in erased
    }
    texts = {
        row["content"].strip()
        for row in rows["messages"]
        if ("message", row["message_id"]) in erased
    }
    keys = {key for _, key in erased}
    rows["feedback"] = [
        row
        for row in rows["feedback"]
        if keys.isdisjoint(row["evidence"]) and row["query"].strip() not in texts
    ]
    for name, kind, key in _ERASABLE:
        rows[name] = [row for row in rows[name] if (kind, row[key]) not in erased]
    for name in ("summaries", "checkpoints"):
        rows[name] = [row for row in rows[name] if row["session_id"] not in sessions_of_erased]
    _drop_relations({key for kind, key in erased if kind == "message"}, rows)


def _drop_relations(erased: set[str], rows: dict[str, list[ExportedRow]]) -> None:
    """Leave out the relations that only erased messages state, and entities of no other ones."""

    def is_erased(row: ExportedRow) -> bool:
        return bool(row["source_message_ids"]) and erased.issuperset(row["source_message_ids"])

    def ends_of(relations: list[ExportedRow]) -> set[str]:
        return {row[end] for row in relations for end in ("source_id", "destination_id")}

    dropped = [row for row in rows["relations"] if is_erased(row)]
    rows["relations"] = [row for row in rows["relations"] if not is_erased(row)]
    lonely = ends_of(dropped) - ends_of(rows["relations"])
    for name in ("aliases", "entities"):
        rows[name] = [row for row in rows[name] if row["entity_id"] not in lonely]


async def _require_sessions(
    connection: AsyncConnection, user_id: str, rows: dict[str, list[ExportedRow]]
) -> None:
    """Raise InvalidArgument for messages and memories of sessions that are not stored."""
    named = {row.get("session_id") for name in _MODELS for row in rows[name]} - {None}
    keys = [sessions.c.user_id, sessions.c.session_id]
    pairs = [(user_id, name) for name in sorted(filter(None, named))]
    stored = await select_by_keys(connection, select(sessions.c.session_id), keys, pairs)
    missing = sorted(name for name in named - {row["session_id"] for row in stored} if name)
    if missing:
        raise InvalidArgument(
            f"there is no session {missing[0]!r}", hint="Import the lines in their order"
        )
