"""Plain text: WhatsApp's export in many languages, chats copied out of a window, Markdown notes.

The first line of a copy, or the one below its title, shows its form: `[12:03] Anna: text`,
`老王：text`, `Anna: text` if somebody speaks twice, or as WeChat copies, a line of the name and the
time above each text. A line of a date alone is the day of those below it.
A note is what stands below a heading; its date is in the heading, in the front matter or in the
name of the file.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.importers import records
from memrecall.importers.source import SourceFile
from memrecall.importers.times import (
    DATE,
    TIME,
    WrittenDate,
    combine_date,
    find_day,
    find_order,
    normalize_spaces,
    parse_written_time,
)
from memrecall.text.times import find_times
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
_OMITTED = re.compile(r"<[^<>\n]{2,60}>$|\[(?:图片|语音|视频|文件|音乐分享|(?:动画)?表情包?)\]$")
_OMITTED_ON_IOS = re.compile("omi|weggela|ocult|忽略|省略|略過")  # in what it wrote itself
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
_WHATSAPP, _PASTED = "whatsapp", "chat"  # the names of the formats
_PLAIN_NAMES = ("_chat", "chat", "-", "standard input")
_NAME = r"(?P<name>[^\s:：，。！？,!?\[](?:[^:：，。！？,!?\n]{0,38}?[^\s:：，。！？,!?])??)"
_WORDS = r"昨天|星期.|\d{1,2}月\d{1,2}日"  # of a day without a year
_COPIES = (
    re.compile(rf"\[?(?:{DATE},? ?)?{TIME}\]? {{0,2}}{_NAME} ?[:：] ?(?P<text>.*)", re.IGNORECASE),
    re.compile(
        rf"{_NAME} {{1,3}}(?:{DATE}|(?P<day>{_WORDS}))? ?{TIME}(?P<text>) *$",
        re.IGNORECASE,
    ),
    re.compile(rf"{_NAME}：(?P<text>.*)"),
    re.compile(rf"{_NAME}(?:：|:(?: |$)) *(?P<text>.*)"),
)
_DAY = re.compile(rf"[—–=*-]* ?{DATE}[^\d:：]{{0,12}}$")
NOTICE = re.compile(  # of WeChat, between messages
    r"(?:[\"“][^\"”]{1,60}[\"”]|你|我)? ?(?:撤回了一条消息|拍了拍 ?[\"“我自].{0,90}|"
    r"修改群名为.{1,90}|(?:邀请|通过|将|与).{1,200}(?:加入了?群聊|移出了?群聊)|"
    r"已添加了.{1,90}开始聊天了。?)$"
)


@dataclass
class HeadedText:
    """A message of a text: what its first line says of it, and its lines."""

    head: Any
    body: records.Lines
    line: int = 0


MatchHead = Callable[[str, bool], HeadedText | None]


def split_messages(
    file: SourceFile, match_head: MatchHead, message: HeadedText | None = None
) -> Iterator[HeadedText | records.Fault]:
    """Yield the messages of a text; each goes on to the next line that is a head.

    `match_head` gets a line, and whether a blank line or none is above it. What is above the first
    head belongs to `message`.
    """
    for number, line in file.lines():
        if line is None:
            yield records.Fault(number, "the line is too long")
        elif (begun := match_head(line, message is None or message.body.ends_blank)) is not None:
            if message is not None:
                yield message
            message, begun.line = begun, number
        elif message is not None:
            message.body.append(line)
        elif line.strip():
            yield records.Fault(number, "the line belongs to no message")
    if message is not None:
        yield message


def _is_whatsapp(file: SourceFile) -> bool:
    lines = [line for line in file.sample.split("\n")[:5] if line.strip(_MARKS + " \r")]
    return bool(lines) and _match_head(lines[0]) is not None


def _match_head(line: str, _: bool = True) -> HeadedText | None:
    """Return the message that a line begins; None for the next line of one."""
    match = _HEAD.match(normalize_spaces(line[:_LONGEST_HEAD]))
    if match is None:
        return None
    groups = match.groups()
    head = groups[:_GROUPS] if groups[0] else groups[_GROUPS:]
    return HeadedText(head, records.Lines(line[match.end() :]))


def _find_form(file: SourceFile) -> re.Pattern[str] | None:
    """Return the pattern of a copy's first or second line, if another line has it too.

    Of names alone, which other texts have too, somebody must speak twice, and not alone.
    """
    lines = [_clean(line) for line in file.sample.split("\n")]
    said = [line for line in lines if line and not _DAY.match(line) and not NOTICE.match(line)]
    for pattern in _COPIES if file.suffix in (".txt", "") else ():
        matches = [pattern.match(line) for line in said]
        names = [match["name"] for match in matches if match]
        is_clear = pattern in _COPIES[:2] or 1 < len(set(names)) < len(names)
        is_first = pattern is not _COPIES[-1] and any(matches[:1])
        if len(names) > 1 and (is_first or (is_clear and any(matches[:2]))):
            return pattern
    return None


def _match_copy(
    pattern: re.Pattern[str], today: datetime | None, line: str, _: bool
) -> HeadedText | None:
    plain = _clean(line)
    match = _DAY.match(plain) or NOTICE.match(plain) or pattern.match(plain)
    if match is None:
        return None
    named = match.re.groupindex.values()
    values = [value for number, value in enumerate(match.groups(), 1) if number not in named]
    head = [*values, *[None] * (_GROUPS - len(values))]
    words = match.groupdict().get("day") or ""
    if today is not None or words[:1].isdecimal():  # "yesterday" would change with each import
        for span in find_times(words, today or datetime.now(UTC)):
            head[:3] = f"{span.start:%Y %m %d}".split()
    return HeadedText(head, records.Lines(f"{match['name']}: {match['text']}" if named else ""))


def _clean(line: str) -> str:
    return normalize_spaces(line).strip(_MARKS + " \r")


def _read(name: str, file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    form = None if name == _WHATSAPP else _find_form(file) or _COPIES[0]
    named = find_day(file.stem) if form else None
    match_head = partial(_match_copy, form, named) if form else _match_head
    order = options.date_order
    if order is None:
        order, notes = find_order(_read_dates(file, match_head))
        yield from notes
    title = _title_of(file)
    chat = _Chat(name, title, order or "dmy", options, records.DerivedIds(name, title))
    chat.day = tuple(f"{named:%Y %m %d}".split()) if named else None
    first = next(filter(None, map(_clean, file.sample.split("\n"))), "")
    has_title = form is not None and match_head(first, True) is None
    above = HeadedText([None] * _GROUPS, records.Lines(), 1) if has_title else None
    for item in split_messages(file, match_head, above):
        yield item if isinstance(item, records.Fault) else chat.read(item)
    if chat.lacks_day:
        yield records.Note("no dates found: using the import time; or name the file 2026-03-18.txt")


def _read_dates(file: SourceFile, match_head: MatchHead) -> Iterator[WrittenDate]:
    for _, line in file.lines():
        message = match_head(line, True) if line is not None else None
        if message is not None and message.head[0]:
            yield WrittenDate(message.head[:3], bool(message.head[3] or message.head[7]))


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


@dataclass
class _Chat:
    format: str
    title: str
    order: records.DateOrder
    options: records.ReadOptions
    ids: records.DerivedIds
    day: Any = None  # the numbers of a date
    lacks_day: bool = False

    def read(self, message: HeadedText) -> records.ReadItem:
        """Return the record of a message; skip what no person said."""
        line, clock = message.line, message.head[3:]
        self.day = message.head[:3] if message.head[0] else self.day
        match = _SPEAKER.match(message.body.join())
        if match is None:
            return records.Skipped(line, "notices")
        speaker, said = match[1].strip(f"{_MARKS}~ \u202f\u00a0"), match[2]
        written, ts = " ".join(filter(None, clock)), None
        try:
            if self.day is not None:
                ts = combine_date(self.day, clock, self.order, self.options.zone)
                # The same in all zones, so that a chat is known again when --zone is corrected.
                written = combine_date(self.day, clock, self.order, UTC).isoformat()
        except (ValueError, OverflowError):
            return records.Fault(
                line, f"{'/'.join(self.day or ())} is no date in the order {self.order}"
            )
        content = _read_content(said)
        if content[1] == "system":
            return records.Skipped(line, content[0])
        self.lacks_day = self.lacks_day or ts is None
        chat = records.PeopleChat(self.format, self.title or "chat", self.title)
        key = self.ids.make(written, speaker, content[0])
        return chat.message(line, key, (speaker,), content, ts, is_local=True)


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
    if _OMITTED.match(text) or (is_marked and _OMITTED_ON_IOS.search(text)):
        return "media without text", "system"
    return ("notices", "system") if is_marked else (text, "text")


WHATSAPP = records.FileFormat(
    _WHATSAPP, _is_whatsapp, partial(_read, _WHATSAPP), between_people=True
)
COPY = records.FileFormat(
    _PASTED, lambda file: _find_form(file) is not None, partial(_read, _PASTED), between_people=True
)


_HEADING = re.compile(r"#{1,6} +(.*)")
_CODE = ("```", "~~~")
_FRONT_MATTER = re.compile(r"---[ \r]*\n(.*?\n)?---[ \r]*(?:\n|$)", re.DOTALL)
_FIELD = re.compile(r"^(title|date|created|标题|日期) *: *[\"']?([^\"'\n]+)", re.MULTILINE)


def _read_notes(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    notes = _Notes(file, options)
    for item in split_messages(file, notes.match_heading, HeadedText("", records.Lines(), 1)):
        yield from [item] if isinstance(item, records.Fault) else notes.read(item)
    if notes.lacks_day:
        unread = f": {notes.unread_day!r} is no date" if notes.unread_day else ""
        yield records.Note(f"notes without a date get the import time{unread}")


class _Notes:
    """The notes of one file, which give way to each other at headings outside of code."""

    def __init__(self, file: SourceFile, options: records.ReadOptions) -> None:
        self._options = options
        self._name, self._title, self._day = file.name, file.stem, find_day(file.stem)
        self._ids = records.DerivedIds("markdown", file.name)
        self._fences: tuple[str, ...] = ("---", *_CODE)  # front matter only at the beginning
        self._fence = ""  # that ends what was begun
        self.lacks_day = False
        self.unread_day = ""  # in the front matter

    def match_heading(self, line: str, _: bool) -> HeadedText | None:
        """Return the note that a line begins."""
        mark, fences, self._fences = line[:3], self._fences, _CODE
        if self._fence or mark in fences:
            self._fence = "" if mark == self._fence else self._fence or mark
            return None
        match = _HEADING.match(line)
        return HeadedText(match[1].strip(" #"), records.Lines()) if match else None

    def read(self, note: HeadedText) -> Iterator[records.ReadItem]:
        """Yield the record of a note, if it has text."""
        text, heading = note.body.join(), note.head
        if not heading and (front := _FRONT_MATTER.match(text)):
            self._read_fields(dict(_FIELD.findall(front[1] or "")))
            text = text[front.end() :]
        if text.strip():
            day = find_day(heading) or self._day
            self.lacks_day = self.lacks_day or day is None
            yield records.message_record(
                note.line,
                message_id=self._ids.make(heading, text),
                session_id=records.stable_id("markdown", self._name),
                role=Role.USER,
                text=f"{heading}\n{text}",
                ts=records.in_zone(day, self._options.zone) if day else None,
                is_local=True,
                conversation=self._title,
            )
        elif heading:
            yield records.Skipped(note.line, "headings without text")

    def _read_fields(self, fields: dict[str, str]) -> None:
        self._title = fields.get("title") or fields.get("标题") or self._title
        for value in filter(None, map(fields.get, ("date", "created", "日期"))):
            try:
                self._day = parse_written_time(value, "ymd", self._options.zone)
            except InvalidArgument:
                self.unread_day = value


MARKDOWN = records.FileFormat(
    "markdown", lambda file: file.suffix in (".md", ".markdown"), _read_notes
)
