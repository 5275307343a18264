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
from memrecall.importers import records
from memrecall.importers.plain_text import NOTICE, HeadedText, split_messages
from memrecall.importers.source import SourceFile, has_members, read_objects, read_values
from memrecall.importers.tables import TableRow, pick, read_header, read_rows
from memrecall.importers.times import parse_written_time
from memrecall.types import Role

_HEAD = re.compile(r"(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) (.{1,120})$")
_PART = re.compile(r"_\d+_\d+$")  # PyWxDump's files have a part of a chat each
_ME = "我"
_TEXT_TYPES = ("", "1", "文本", "引用回复", "带有引用的文本消息")
_SYSTEM_TYPES = ("10000", "10002", "系统通知", "系统消息", "撤回消息", "拍一拍")
_PLACEHOLDERS = ("<msg", "<?xml", "[图片]", "[语音]", "[视频]", "[表情包]", "[文件]", "[音乐分享]")


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


def _read(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    title = _PART.sub("", file.stem)
    chat = _Chat(title, options, records.DerivedIds("wechat", title))
    is_table = has_members(file.sample, "is_sender") or read_header(file)
    yield from (_read_rows if is_table and not _is_text(file.sample) else _read_text)(file, chat)


@dataclass(frozen=True)
class _Chat:
    title: str
    options: records.ReadOptions
    ids: records.DerivedIds

    def record(
        self, line: int, *, time: str, speaker: str, text: str, is_me: bool, kind: str, key: str
    ) -> records.ReadItem:
        """Return one message; what is neither text nor named media is skipped."""
        if kind in _SYSTEM_TYPES or NOTICE.match(text.strip()):
            return records.Skipped(line, "notices")
        if kind not in _TEXT_TYPES or text.lstrip().startswith(_PLACEHOLDERS):
            return records.Skipped(line, "media without text")
        try:
            ts = parse_written_time(time, "ymd", self.options.zone)
        except InvalidArgument as error:
            return records.Fault(line, error.message)
        names = ((speaker, _ME) if speaker != _ME else ("", _ME)) if is_me else (speaker,)
        message_id = records.stable_id("wechat", key) if key else self.ids.make(time, speaker, text)
        role = Role.USER if is_me else Role.OTHER
        chat = records.PeopleChat("wechat", self.title, self.title)
        return chat.message(line, message_id, names, (text, "text"), ts, role=role, is_local=True)


def _read_rows(file: SourceFile, chat: _Chat) -> Iterator[records.ReadItem]:
    people = _read_people(file)
    rows = _json_rows(file) if has_members(file.sample, "is_sender") else read_rows(file)
    for line, row in rows:
        yield row if isinstance(row, records.Fault) else _read_row(line, row, chat, people)


def _read_row(line: int, row: TableRow, chat: _Chat, people: dict[str, str]) -> records.ReadItem:
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


def _json_rows(file: SourceFile) -> Iterator[tuple[int, TableRow | records.Fault]]:
    for number, value in read_values(file):
        if isinstance(value, dict):
            yield number, {str(name).casefold(): _cell(cell) for name, cell in value.items()}
        else:
            yield number, records.Fault(number, "a message that is no object")


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _read_people(file: SourceFile) -> dict[str, str]:
    """Return the names of PyWxDump's accounts: the remark, else the nickname."""
    people = read_objects(file.source.get(str(file.folder / "users.json")))
    return {
        wxid: str(user.get("remark") or user.get("nickname") or wxid)
        for users in people
        for wxid, user in users.items()
        if isinstance(user, dict)
    }


def _read_text(file: SourceFile, chat: _Chat) -> Iterator[records.ReadItem]:
    """Yield the message below each head; a head without a message is a notice."""
    for item in split_messages(file, _match_head):
        if isinstance(item, records.Fault):
            yield item
            continue
        text, speaker = item.body.join().strip(), item.head[2].strip()
        yield chat.record(
            item.line,
            time=item.head[1],
            speaker=speaker,
            text=text,
            is_me=speaker == _ME,
            kind="" if text else _SYSTEM_TYPES[0],
            key="",
        )


def _match_head(line: str, is_below_blank: bool) -> HeadedText | None:
    match = _HEAD.match(line) if is_below_blank else None
    return HeadedText(match, records.Lines()) if match else None


FORMAT = records.FileFormat("wechat", _matches, _read, between_people=True)
