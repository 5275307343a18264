"""Export of everything of a user as plain records, and their import into a database."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
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
    or_,
    select,
)

from memrecall.errors import InvalidArgument, NotFound, describe_validation_error
from memrecall.scope import Scope, check_member, parse_space_role, space_of
from memrecall.store.database.engine import Database
from memrecall.store.database.memberships import IS_GRANT
from memrecall.store.database.statements import select_in_key_order
from memrecall.store.database.tables import (
    UtcTime,
    memberships,
    memories,
    messages,
    revisions,
    sessions,
    tombstones,
    users,
)
from memrecall.store.imports import id_of_label, label_import, new_import_id
from memrecall.store.memories.writer import PERSONAL
from memrecall.store.merging import DATABASE_COLUMNS, EXPORTED_TABLES, ExportedRow, Merge
from memrecall.store.messages import WriteStatus
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
    check_shown_name,
    check_time_zone,
    clean_shown_name,
    format_time,
    parse_stored_time,
)

FORMAT = 1
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
    """The rows of each table, what became of the messages and memories, and what was redacted.

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
