"""WhatsApp's text export of Android and iOS, in the date formats of many languages."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from memrecall.importers.records import (
    DateOrder,
    DerivedIds,
    Fault,
    FileFormat,
    Lines,
    ReadItem,
    ReadOptions,
    Skipped,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.importers.times import (
    DATE,
    TIME,
    WrittenDate,
    combine_date,
    find_order,
    normalize_spaces,
)
from memrecall.types import Role

_MARKS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\ufeff"  # of the direction of writing
# [31.12.23, 21:41:05] Name: text        12/31/23, 9:41 PM - Name: text
_HEAD = re.compile(
    rf"[{_MARKS}]*(?:\[{DATE},?(?: [a-zà-ÿ]{{1,4}}\.?)? {TIME}\]"
    rf"|{DATE},?(?: [a-zà-ÿ]{{1,4}}\.?)? {TIME} [-–]) ?",
    re.IGNORECASE,
)
_LONGEST_HEAD = 60
_GROUPS = 8  # of a date and a time
_SPEAKER = re.compile(r"([^:“”\"«»]{1,100}): ?(.*)", re.DOTALL)
_ATTACHED = re.compile(r"<[^<>:]{2,30}: ([^<>]{1,200})>$|(.{1,200}) \([^()]{2,40}\)$")
_FILE = re.compile(r"[^/\n]{1,200}\.(\w{2,5})$")
_OMITTED = re.compile(r"<[^<>\n]{2,60}>$")
# iOS marks these texts as its own, Android does not.
_DELETED = re.compile(
    r"(?:You deleted this message|This message was deleted|你已?删除了?(?:这条|此)消息|"
    r"(?:这条|此)消息已(?:被)?删除|您已刪除此訊息|此訊息已刪除|"
    r"Diese Nachricht wurde gelöscht|Du hast diese Nachricht gelöscht|"
    r"Se eliminó este mensaje|Eliminaste este mensaje|"
    r"Ce message a été supprimé|Vous avez supprimé ce message|"
    r"Mensagem apagada|Es[ts]a mensagem foi apagada|Você apagou esta mensagem|"
    r"Questo messaggio è stato eliminato|Hai eliminato questo messaggio)\.?。?$"
)
_EDITED = re.compile(
    r"<(?:This message was edited|Diese Nachricht wurde bearbeitet|Se editó este mensaje|"
    r"Ce message a été modifié|Mensagem editada|Questo messaggio è stato modificato)\.?>$"
)
_KINDS = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "gif", "heic"), "image"),
    **dict.fromkeys(("mp4", "mov", "3gp", "avi"), "video"),
    **dict.fromkeys(("opus", "mp3", "m4a", "aac", "ogg", "wav"), "audio"),
}
_TITLES = (
    re.compile(r"WhatsApp[ -]+Chat (?:with|mit|-) (.+)", re.IGNORECASE),
    re.compile(r"(?:Chat de WhatsApp con|Discussion WhatsApp avec|Conversa do WhatsApp com) (.+)"),
    re.compile(r"[与與](.+?)的 ?WhatsApp ?(?:聊天|對話|对话).*"),
)
_COPY = re.compile(r" ?\(\d{1,3}\)$")
_PLAIN_NAMES = ("_chat", "chat", "-", "standard input")


@dataclass
class _Message:
    line: int
    date: tuple[str, str, str]
    clock: tuple[str | None, ...]
    body: Lines


def _matches(file: SourceFile) -> bool:
    lines = [line for line in file.sample.split("\n")[:5] if line.strip(_MARKS + " \r")]
    return bool(lines) and _match_head(lines[0]) is not None


def _match_head(line: str) -> _Message | None:
    """Return the message that a line begins; None for the next line of one."""
    match = _HEAD.match(normalize_spaces(line[:_LONGEST_HEAD]))
    if match is None:
        return None
    groups = match.groups()
    values = groups[:_GROUPS] if groups[0] else groups[_GROUPS:]
    date = (values[0], values[1], values[2])
    return _Message(0, date, values[3:], Lines(line[match.end() :]))


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    order = options.date_order
    if order is None:
        order, notes = find_order(_read_dates(file))
        yield from notes
    order = order or "dmy"
    title = _title_of(file)
    ids = DerivedIds("whatsapp", title)
    message: _Message | None = None
    for number, line in file.lines():
        if line is None:
            yield Fault(number, "the line is too long")
        elif (begun := _match_head(line)) is not None:
            if message is not None:
                yield _finish(message, order, options, title, ids)
            message = begun
            message.line = number
        elif message is not None:
            message.body.append(line)
        elif line.strip():
            yield Fault(number, "the line belongs to no message")
    if message is not None:
        yield _finish(message, order, options, title, ids)


def _read_dates(file: SourceFile) -> Iterator[WrittenDate]:
    for _, line in file.lines():
        if line is not None and (message := _match_head(line)) is not None:
            yield WrittenDate(message.date, bool(message.clock[0] or message.clock[4]))


def _title_of(file: SourceFile) -> str:
    """Return the name of the chat, which only the names of the file and the archive tell."""
    for name in (file.stem, file.source.name.removesuffix(".zip").removesuffix(".txt")):
        plain = _COPY.sub("", name)
        for pattern in _TITLES:
            if match := pattern.fullmatch(plain):
                return match[1]
        if plain.casefold() not in _PLAIN_NAMES:
            return plain
    return ""


def _finish(
    message: _Message, order: DateOrder, options: ReadOptions, title: str, ids: DerivedIds
) -> ReadItem:
    line = message.line
    text = message.body.join()
    match = _SPEAKER.match(text)
    if match is None:
        return Skipped(line, "system lines")
    speaker, said = match[1].strip(f"{_MARKS}~ \u202f\u00a0"), match[2]
    try:
        ts = combine_date(message.date, message.clock, order, options.zone)
    except (ValueError, OverflowError):
        return Fault(line, f"{'/'.join(message.date)} is no date in the order {order}")
    content, content_type = _read_content(said)
    if content_type == "system":
        return Skipped(line, content)
    return message_record(
        line,
        message_id=ids.make(ts.isoformat(), speaker, content),
        session_id=stable_id("whatsapp", title or "chat"),
        role=Role.OTHER,
        speaker=speaker,
        text=content,
        ts=ts,
        content_type=content_type,
        conversation=title,
    )


def _read_content(said: str) -> tuple[str, str]:
    """Return the text and its content type; `system` with a reason for what is no message."""
    is_marked = said.startswith("\u200e")  # iOS marks what it wrote itself
    text = _EDITED.sub("", said.strip(_MARKS + " \r\n")).rstrip(_MARKS + " \r\n")
    if _DELETED.match(text):
        return "deleted messages", "system"
    first, _, caption = text.partition("\n")
    attached = _ATTACHED.match(first.strip(_MARKS + " \r"))
    name = (attached[1] or attached[2]).strip(_MARKS + " ") if attached else ""
    file = _FILE.match(name)
    if file is not None:
        kind = _KINDS.get(file[1].lower(), "file")
        return f"[{kind}] {name}\n{caption}".strip(), kind
    if _OMITTED.match(text) or (is_marked and len(text) < 40 and "\n" not in text):
        return "media without text", "system"
    return ("system lines", "system") if is_marked else (text, "text")


FORMAT = FileFormat("whatsapp", _matches, _read, between_people=True)
