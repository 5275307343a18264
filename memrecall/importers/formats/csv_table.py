"""Any CSV table with a message a row. `--map` names the columns; common names need no map."""

from collections.abc import Iterator, Mapping

from memrecall.errors import CallerError, InvalidArgument
from memrecall.importers.records import (
    DateOrder,
    DerivedIds,
    Fault,
    FileFormat,
    Note,
    ReadItem,
    ReadOptions,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.importers.tables import TableRow, read_header, read_rows
from memrecall.importers.times import WrittenDate, find_order, parse_written_time, split_date
from memrecall.messages import parse_role
from memrecall.types import Role

FIELDS = ("text", "time", "speaker", "role", "session", "id", "user")
_COMMON = {
    "text": ("text", "content", "message", "body", "msg", "内容", "消息", "消息内容"),
    "time": ("time", "timestamp", "date", "datetime", "ts", "created_at", "时间", "日期"),
    "speaker": ("speaker", "sender", "from", "author", "name", "发送者", "发送人", "昵称"),
    "role": ("role", "角色"),
    "session": ("session", "session_id", "conversation", "thread", "chat", "channel", "会话"),
    "id": ("id", "message_id", "编号"),
    "user": ("user_id",),
}


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    columns = find_columns(read_header(file), options.columns, file.name)
    yield from _note_missing(columns)
    order = options.date_order
    if order is None:
        order, notes = find_order(_read_dates(file, columns.get("time")))
        yield from notes
    ids = DerivedIds("csv")
    for line, row in read_rows(file):
        if isinstance(row, Fault):
            yield row
            continue
        cells = {name: row.get(column, "").strip() for name, column in columns.items()}
        try:
            yield _read_row(line, cells, file.stem, options, order, ids)
        except CallerError as error:
            yield Fault(line, str(error))


def find_columns(header: list[str], mapping: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the column of each field; InvalidArgument if a map is wrong or text has none."""
    columns = {}
    for field in FIELDS:
        column = mapping.get(field, "").casefold()
        if column and column not in header:
            raise InvalidArgument(
                f"{name} has no column {mapping[field]!r}", hint=f"It has {', '.join(header)}"
            )
        found = column or next((word for word in _COMMON[field] if word in header), "")
        if found:
            columns[field] = found
    if "text" not in columns:
        raise InvalidArgument(
            f"none of the columns {', '.join(header)} is known to have the text",
            hint="Say which: --map text=COLUMN,time=COLUMN,speaker=COLUMN",
        )
    return columns


def _note_missing(columns: dict[str, str]) -> Iterator[Note]:
    if "time" not in columns:
        yield Note("no time column found: using the import time (set one with --map time=COLUMN)")
    if "speaker" not in columns and "role" not in columns:
        yield Note("no speaker column found: treating every message as the user's")


def _read_dates(file: SourceFile, column: str | None) -> Iterator[WrittenDate]:
    for _, row in read_rows(file) if column else ():
        parts = None if isinstance(row, Fault) else split_date(row.get(column or "", ""))
        if parts is not None:
            yield parts


def _read_row(
    line: int,
    cells: TableRow,
    stem: str,
    options: ReadOptions,
    order: DateOrder | None,
    ids: DerivedIds,
) -> ReadItem:
    time, speaker = cells.get("time", ""), cells.get("speaker", "")
    role = _role_of(cells.get("role", ""), speaker)
    session = cells.get("session") or stem
    own_id = cells.get("id", "")
    return message_record(
        line,
        message_id=stable_id("csv", session, own_id)
        if own_id
        else ids.make(session, time, speaker, role, cells["text"]),
        session_id=stable_id("csv", session),
        role=role,
        speaker=speaker,
        text=cells["text"],
        ts=parse_written_time(time, order, options.zone) if time else None,
        user_id=cells.get("user") or None,
    )


def _role_of(role: str, speaker: str) -> Role:
    if role:
        return parse_role(role.casefold())
    return Role.OTHER if speaker else Role.USER


FORMAT = FileFormat(
    "csv",
    lambda file: file.suffix in (".csv", ".tsv") and len(read_header(file)) > 1,
    _read,
    between_people=True,
)
