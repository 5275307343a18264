"""iMessage and SMS as CSV: iMazing, PhoneView, and scripts that read Apple's `chat.db`."""

from collections.abc import Iterator

from memrecall.errors import InvalidArgument
from memrecall.importers.records import (
    DerivedIds,
    Fault,
    FileFormat,
    ReadItem,
    ReadOptions,
    Skipped,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.importers.tables import TableRow, pick, read_header, read_rows
from memrecall.importers.times import parse_written_time
from memrecall.types import Role

_HEADERS = (
    {"chat session", "message date", "text"},  # iMazing
    {"direction", "timestamp", "number", "content"},  # PhoneView
    {"is_from_me", "date"},  # the column names of chat.db
)
_SENT = ("outgoing", "sent", "1", "true")


def _matches(file: SourceFile) -> bool:
    header = set(read_header(file))
    return any(names <= header for names in _HEADERS)


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    ids = DerivedIds("imessage")
    for line, row in read_rows(file):
        yield row if isinstance(row, Fault) else _read_row(line, row, file.stem, options, ids)


def _read_row(
    line: int, row: TableRow, stem: str, options: ReadOptions, ids: DerivedIds
) -> ReadItem:
    kind = pick(row, "is_from_me", "direction", "type").casefold()
    if kind == "notification":
        return Skipped(line, "notices")
    text = pick(row, "text", "content", "body")
    attachment = pick(row, "attachment")
    time = pick(row, "message date", "timestamp", "date")
    try:
        ts = parse_written_time(time, options.date_order, options.zone)
    except InvalidArgument as error:
        return Fault(line, error.message)
    if not text and not attachment:
        return Skipped(line, "no text")
    is_me = kind in _SENT
    other = pick(row, "sender name", "name", "sender id", "number", "phone_number", "handle", "id")
    chat = pick(row, "chat session", "group_chat_name", "cache_roomname", "chat")
    chat = chat or pick(row, "name", "number", "phone_number", "handle") or stem
    speaker = pick(row, "sender name") if is_me else other or chat
    content = text or f"[file] {attachment}"
    return message_record(
        line,
        message_id=ids.make(chat, ts.isoformat(), "me" if is_me else speaker, content),
        session_id=stable_id("imessage", chat),
        role=Role.USER if is_me else Role.OTHER,
        speaker=speaker,
        names=tuple(filter(None, [pick(row, "sender id", "number", "phone_number")])),
        text=content,
        ts=ts,
        content_type="text" if text else "file",
        conversation=chat,
    )


FORMAT = FileFormat("imessage", _matches, _read, between_people=True)
