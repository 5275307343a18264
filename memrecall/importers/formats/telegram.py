"""Telegram Desktop's export: `result.json` of one chat, or of the whole account."""

import re
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
    from_unix,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.types import Role

_CHAT = re.compile(
    r'"type"\s*:\s*"(?:saved_messages|replies|personal_chat|bot_chat|verification_codes|'
    r'(?:private|public)_(?:group|supergroup|channel))"'
)
_MEDIA = {
    "voice_message": "audio",
    "audio_file": "audio",
    "video_file": "video",
    "video_message": "video",
    "animation": "video",
    "sticker": "sticker",
}


def _matches(file: SourceFile) -> bool:
    sample = file.sample
    if has_members(sample, "about", "personal_information"):
        return True
    return has_members(sample, "type", "id", "messages") and _CHAT.search(sample) is not None


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    with file.text() as stream:
        yield from _Chats(JsonStream(stream), options).read()


class _Chats:
    """The chats of one file; the account's owner is known once their profile was read."""

    def __init__(self, reader: JsonStream, options: ReadOptions) -> None:
        self._reader = reader
        self._options = options
        self._owner = ""

    def read(self) -> Iterator[ReadItem]:
        """Yield the messages of a chat, or of all chats of an account."""
        chat: dict[str, Any] = {}
        for name in self._reader.members():
            if name == "messages":
                yield from self._read_messages(chat)
            elif name in ("chats", "left_chats"):
                yield from self._read_list()
            elif name == "personal_information":
                profile = self._reader.value()
                if isinstance(profile, dict) and profile.get("user_id"):
                    self._owner = f"user{profile['user_id']}"
            elif name in ("name", "type", "id"):
                chat[name] = self._reader.value()
            else:
                self._reader.skip()

    def _read_list(self) -> Iterator[ReadItem]:
        for name in self._reader.members():
            if name == "list":
                for _ in self._reader.elements():
                    yield from self.read()
            else:
                self._reader.skip()

    def _read_messages(self, chat: dict[str, Any]) -> Iterator[ReadItem]:
        chat_id = str(chat.get("id") or chat.get("name") or "")
        for number in self._reader.elements():
            message = self._reader.value()
            if not isinstance(message, dict):
                yield Fault(number, "a message that is no object")
            elif message.get("type") != "message":
                yield Skipped(number, "service messages")
            else:
                yield self._read_message(number, message, chat_id, chat.get("name"))

    def _read_message(
        self, number: int, message: dict[str, Any], chat_id: str, title: Any
    ) -> ReadItem:
        author = str(message.get("from_id") or "")
        speaker = str(message.get("from") or author or title or "")
        ts = from_unix(message.get("date_unixtime"))
        ts = ts or from_iso(message.get("date"), self._options.zone)
        if ts is None:
            return Fault(number, f"date {message.get('date')!r} is not a time")
        text, media = _text_of(message.get("text")), _media_of(message)
        if not text.strip() and media and media[1]:
            text = f"[{media[0]}] {media[1]}"
        if not text.strip() and media:
            return Skipped(number, "media without text")
        reply = message.get("reply_to_message_id")
        return message_record(
            number,
            message_id=stable_id("telegram", chat_id, str(message.get("id"))),
            session_id=stable_id("telegram", chat_id),
            role=Role.USER if author and author == self._owner else Role.OTHER,
            speaker=speaker,
            names=(author,),
            text=text,
            ts=ts,
            content_type=media[0] if media else "text",
            conversation=title,
            reply_to=stable_id("telegram", chat_id, str(reply)) if reply else None,
            forwarded_from=message.get("forwarded_from"),
        )


def _text_of(text: Any) -> str:
    """Return a text, which is a list of plain and formatted pieces if it has any format."""
    if isinstance(text, str):
        return text
    pieces = text if isinstance(text, list) else []
    return "".join(
        piece if isinstance(piece, str) else str(piece.get("text", ""))
        for piece in pieces
        if isinstance(piece, str | dict)
    )


def _media_of(message: dict[str, Any]) -> tuple[str, str] | None:
    """Return the kind of the media of a message and a word about it; None if it has none."""
    if "photo" in message:
        return "image", ""
    kind = _MEDIA.get(str(message.get("media_type")))
    if kind is None and "file" not in message:
        return None
    about = message.get("sticker_emoji") or message.get("file_name") or message.get("title")
    return kind or "file", str(about or "")


FORMAT = FileFormat("telegram", _matches, _read, between_people=True)
