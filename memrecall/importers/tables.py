"""CSV tables with a message a row, by the names of their columns.

`--map` names the columns of a table; common names need no map.
"""

import csv
from collections.abc import Iterator, Mapping

from memrecall.errors import CallerError, InvalidArgument
from memrecall.importers import records
from memrecall.importers.source import MAX_LINE, SourceFile
from memrecall.importers.times import WrittenDate, find_order, parse_written_time, split_date
from memrecall.messages import parse_role
from memrecall.types import MESSAGE_LENGTH, Role

_DELIMITERS = ",;\t|"
_MAX_FIELD = 4 * MESSAGE_LENGTH

TableRow = dict[str, str]


def read_header(file: SourceFile) -> list[str]:
    """Return the names of the columns, in lower case; none if the file is no table."""
    if file.suffix == ".json" or "\0" in file.sample[:1_000]:
        return []
    line = file.sample.lstrip("\ufeff").partition("\n")[0].strip("\r")
    try:
        row = next(csv.reader([line], delimiter=_delimiter(line)), [])
    except csv.Error:
        return []
    return [_name(cell) for cell in row] if len(row) > 1 else []


def read_rows(file: SourceFile) -> Iterator[tuple[int, TableRow | records.Fault]]:
    """Yield the rows below the header, by the names of the columns in lower case."""
    # The limit is the process's: one for a whole message must fit.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD))
    header = read_header(file)
    first = file.sample.lstrip("\ufeff").partition("\n")[0]
    reader = csv.reader(_lines(file), delimiter=_delimiter(first))
    next(reader, None)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, records.Fault(reader.line_num, f"not CSV: {error}")
            continue
        if any(row):
            yield reader.line_num, dict(zip(header, row, strict=False))


def _lines(file: SourceFile) -> Iterator[str]:
    for number, line in file.lines():
        if line is None:
            raise csv.Error(f"line {number} has more than {MAX_LINE:,} characters")
        yield line + "\n"


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _name(cell: str) -> str:
    return " ".join(cell.strip().strip('"').casefold().split())


def pick(row: TableRow, *names: str) -> str:
    """Return the first of these cells that is not empty."""
    return next((row[name].strip() for name in names if row.get(name, "").strip()), "")


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


def _read_csv(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    columns = find_columns(read_header(file), options.columns, file.name)
    yield from _note_missing(columns)
    order = options.date_order
    if order is None:
        order, notes = find_order(_read_dates(file, columns.get("time")))
        yield from notes
    ids = records.DerivedIds("csv")
    for line, row in read_rows(file):
        if isinstance(row, records.Fault):
            yield row
            continue
        cells = {name: row.get(column, "").strip() for name, column in columns.items()}
        try:
            yield _read_csv_row(line, cells, file.stem, options, order, ids)
        except CallerError as error:
            yield records.Fault(line, str(error))


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


def _note_missing(columns: dict[str, str]) -> Iterator[records.Note]:
    if "time" not in columns:
        yield records.Note(
            "no time column found: using the import time (set one with --map time=COLUMN)"
        )
    if "speaker" not in columns and "role" not in columns:
        yield records.Note("no speaker column found: treating every message as the user's")


def _read_dates(file: SourceFile, column: str | None) -> Iterator[WrittenDate]:
    for _, row in read_rows(file) if column else ():
        parts = None if isinstance(row, records.Fault) else split_date(row.get(column or "", ""))
        if parts is not None:
            yield parts


def _read_csv_row(
    line: int,
    cells: TableRow,
    stem: str,
    options: records.ReadOptions,
    order: records.DateOrder | None,
    ids: records.DerivedIds,
) -> records.ReadItem:
    time, speaker = cells.get("time", ""), cells.get("speaker", "")
    role = _role_of(cells.get("role", ""), speaker)
    session = cells.get("session") or stem
    own_id = cells.get("id", "")
    return records.message_record(
        line,
        message_id=records.stable_id("csv", session, own_id)
        if own_id
        else ids.make(session, time, speaker, role, cells["text"]),
        session_id=records.stable_id("csv", session),
        role=role,
        speaker=speaker,
        text=cells["text"],
        ts=parse_written_time(time, order, options.zone) if time else None,
        is_local=not own_id,
        user_id=cells.get("user") or None,
    )


def _role_of(role: str, speaker: str) -> Role:
    if role:
        return parse_role(role.casefold())
    return Role.OTHER if speaker else Role.USER


CSV = records.FileFormat(
    "csv",
    lambda file: file.suffix in (".csv", ".tsv") and len(read_header(file)) > 1,
    _read_csv,
    between_people=True,
)
