"""WeChat, as its common export tools write it.

WeChatMsg (留痕): CSV with `StrContent`, or text of `time name` lines above each message.
PyWxDump: CSV or JSON with `is_sender`, `talker` and `msg`, and `users.json` in the same folder.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.importers.formats.tables import TableRow, pick, read_header, read_rows
from memrecall.importers.json_stream import has_members, read_values
from memrecall.importers.records import (
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
from memrecall.importers.times import parse_written_time
from memrecall.types import Role

_HEAD = re.compile(r"(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) (.{1,120})$")
_PART = re.compile(r"_\d+_\d+$")  # PyWxDump's files have a part of a chat each
_ME = "我"
_TEXT_TYPES = ("", "1", "文本", "引用回复", "带有引用的文本消息")
_SYSTEM_TYPES = ("10000", "系统通知", "系统消息", "拍一拍")
_PLACEHOLDERS = ("[图片]", "[语音]", "[视频]", "[表情包]", "[文件]", "[音乐分享]")


def _matches(file: SourceFile) -> bool:
    header = set(read_header(file))
    if {"strcontent", "createtime"} <= header or {"is_sender", "talker", "msg"} <= header:
        return True
    if has_members(file.sample, "is_sender", "talker", "msg"):
        return True
    return file.suffix in (".txt", "") and _is_text(file.sample)


def _is_text(sample: str) -> bool:
    """Return True for text that begins with a head and a line of its message."""
    lines = sample.lstrip("\ufeff\r\n").splitlines()[:2]
    return len(lines) == 2 and bool(_HEAD.match(lines[0])) and bool(lines[1].strip())


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    chat = _Chat(_PART.sub("", file.stem), options, DerivedIds("wechat", _PART.sub("", file.stem)))
    if has_members(file.sample, "is_sender"):
        yield from _read_json(file, chat)
    elif read_header(file) and not _is_text(file.sample):
        yield from _read_table(file, chat)
    else:
        yield from _read_text(file, chat)


@dataclass(frozen=True)
class _Chat:
    title: str
    options: ReadOptions
    ids: DerivedIds

    def record(
        self, line: int, *, time: str, speaker: str, text: str, is_me: bool, kind: str, key: str
    ) -> ReadItem:
        """Return one message; what is neither text nor named media is skipped."""
        if kind in _SYSTEM_TYPES:
            return Skipped(line, "system messages")
        if kind not in _TEXT_TYPES or text.lstrip().startswith(("<msg", "<?xml")):
            return Skipped(line, "media without text")
        if text.strip() in _PLACEHOLDERS:
            return Skipped(line, "media without text")
        try:
            ts = parse_written_time(time, "ymd", self.options.zone)
        except InvalidArgument as error:
            return Fault(line, error.message)
        return message_record(
            line,
            message_id=stable_id("wechat", key) if key else self.ids.make(time, speaker, text),
            session_id=stable_id("wechat", self.title),
            role=Role.USER if is_me else Role.OTHER,
            speaker=None if is_me and speaker == _ME else speaker,
            names=(_ME,) if is_me else (),
            text=text,
            ts=ts,
            conversation=self.title,
        )


def _read_table(file: SourceFile, chat: _Chat) -> Iterator[ReadItem]:
    people = _read_people(file)
    for line, row in read_rows(file):
        yield row if isinstance(row, Fault) else _read_row(line, row, chat, people)


def _read_row(line: int, row: TableRow, chat: _Chat, people: dict[str, str]) -> ReadItem:
    is_me = pick(row, "issender", "is_sender") in ("1", "True", "true")
    sender = pick(row, "remark", "nickname", "sender", "talker")
    return chat.record(
        line,
        time=pick(row, "createtime", "strtime"),
        speaker=_ME if is_me else people.get(sender, sender) or chat.title,
        text=row.get("strcontent") or row.get("msg") or "",
        is_me=is_me,
        kind=pick(row, "type", "type_name"),
        key=pick(row, "msgsvrid"),
    )


def _read_json(file: SourceFile, chat: _Chat) -> Iterator[ReadItem]:
    people = _read_people(file)
    for number, value in read_values(file):
        if not isinstance(value, dict):
            yield Fault(number, "a message that is no object")
            continue
        row = {str(name).casefold(): _cell(cell) for name, cell in value.items()}
        yield _read_row(number, row, chat, people)


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _read_people(file: SourceFile) -> dict[str, str]:
    """Return the names of PyWxDump's accounts: the remark, else the nickname."""
    listing = file.source.get(str(file.folder / "users.json"))
    if listing is None:
        return {}
    try:
        people = [item for _, item in read_values(listing) if isinstance(item, dict)]
    except InvalidArgument:
        return {}
    return {
        wxid: str(user.get("remark") or user.get("nickname") or wxid)
        for users in people
        for wxid, user in users.items()
        if isinstance(user, dict)
    }


def _read_text(file: SourceFile, chat: _Chat) -> Iterator[ReadItem]:
    head: tuple[int, re.Match[str]] | None = None
    body = Lines()
    for number, line in file.lines():
        match = _HEAD.match(line) if line is not None and body.ends_blank else None
        if match is None:
            body.append(line or "")
            continue
        yield from _finish(head, body, chat)
        head, body = (number, match), Lines()
    yield from _finish(head, body, chat)


def _finish(head: tuple[int, re.Match[str]] | None, body: Lines, chat: _Chat) -> Iterator[ReadItem]:
    """Yield the message below a head; a head without a message is a system message."""
    if head is None:
        return
    line, match = head
    text = body.join().strip()
    yield chat.record(
        line,
        time=match[1],
        speaker=match[2].strip(),
        text=text,
        is_me=match[2].strip() == _ME,
        kind="" if text else "10000",
        key="",
    )


FORMAT = FileFormat("wechat", _matches, _read, between_people=True)
