"""JSON of DiscordChatExporter: one channel a file, or a part of one."""

from collections.abc import Iterator
from typing import Any

from memrecall.importers.json_stream import JsonStream, has_members
from memrecall.importers.records import (
    Fault,
    FileFormat,
    ReadItem,
    ReadOptions,
    Skipped,
    from_iso,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.types import Role

_KINDS = ("Default", "Reply")


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    guild: dict[str, Any] = {}
    channel: dict[str, Any] = {}
    with file.text() as stream:
        reader = JsonStream(stream)
        for name in reader.members():
            if name == "guild":
                guild = _object(reader.value())
            elif name == "channel":
                channel = _object(reader.value())
            elif name == "messages":
                title = " / ".join(
                    str(part["name"]) for part in (guild, channel) if part.get("name")
                )
                for number in reader.elements():
                    yield _read_message(number, reader.value(), str(channel.get("id")), title)
            else:
                reader.skip()


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_message(number: int, message: Any, channel: str, title: str) -> ReadItem:
    if not isinstance(message, dict):
        return Fault(number, "a message that is no object")
    if message.get("type", "Default") not in _KINDS:
        return Skipped(number, "joins, pins and other notices")
    ts = from_iso(message.get("timestamp"))
    if ts is None:
        return Fault(number, f"timestamp {message.get('timestamp')!r} is not a time")
    text, content_type = _text_of(message)
    if not text:
        return Skipped(number, "media without text")
    author = _object(message.get("author"))
    names = [str(author[key]) for key in ("nickname", "name", "id") if author.get(key)]
    reference = _object(message.get("reference")).get("messageId")
    return message_record(
        number,
        message_id=stable_id("discord", str(message.get("id"))),
        session_id=stable_id("discord", channel),
        role=Role.OTHER,
        speaker=names[0] if names else None,
        names=tuple(names[1:]),
        text=text,
        ts=ts,
        content_type=content_type,
        conversation=title,
        reply_to=stable_id("discord", str(reference)) if reference else None,
    )


def _text_of(message: dict[str, Any]) -> tuple[str, str]:
    text = str(message.get("content") or "").strip()
    if text:
        return text, "text"
    files = message.get("attachments")
    names = [str(_object(file).get("fileName") or "") for file in files or () if file]
    return (f"[file] {', '.join(filter(None, names))}", "file") if any(names) else ("", "text")


FORMAT = FileFormat(
    "discord",
    lambda file: has_members(file.sample, "guild", "channel", "messages"),
    _read,
    between_people=True,
)
