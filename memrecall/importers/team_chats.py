"""JSON exports of chats between people: Discord, Slack and Telegram.

DiscordChatExporter writes one channel a file, or a part of one. Slack writes a folder for each
channel with a file for each day, and `users.json`. Telegram Desktop writes `result.json` of one
chat, or of the whole account.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from html import unescape
from pathlib import PurePosixPath
from typing import Any

from memrecall.importers import records
from memrecall.importers.source import (
    JsonStream,
    Source,
    SourceFile,
    has_members,
    read_objects,
    read_values,
)
from memrecall.types import Role

_DISCORD_KINDS = ("Default", "Reply")


def _read_discord(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
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
                chat = records.PeopleChat("discord", str(channel.get("id")), title)
                for number in reader.elements():
                    yield _read_discord_message(number, reader.value(), chat)
            else:
                reader.skip()


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_discord_message(number: int, message: Any, chat: records.PeopleChat) -> records.ReadItem:
    if not isinstance(message, dict):
        return records.Fault(number, "a message that is no object")
    if message.get("type", "Default") not in _DISCORD_KINDS:
        return records.Skipped(number, "notices")
    ts = records.from_iso(message.get("timestamp"))
    if ts is None:
        return records.Fault(number, f"timestamp {message.get('timestamp')!r} is not a time")
    author = _object(message.get("author"))
    names = [str(author[key]) for key in ("nickname", "name", "id") if author.get(key)]
    reference = _object(message.get("reference")).get("messageId")
    reply = records.stable_id("discord", str(reference)) if reference else None
    key = records.stable_id("discord", str(message.get("id")))
    return chat.message(number, key, names, _discord_text(message), ts, reply_to=reply)


def _discord_text(message: dict[str, Any]) -> tuple[str, str]:
    text = str(message.get("content") or "").strip()
    if text:
        return text, "text"
    return records.file_text(
        _object(file).get("fileName") for file in message.get("attachments") or ()
    )


DISCORD = records.FileFormat(
    "discord",
    lambda file: has_members(file.sample, "guild", "channel", "messages"),
    _read_discord,
    between_people=True,
)


_SLACK_DAY = re.compile(r"(?:^|/)(?:([^/]+)/)?\d{4}-\d{2}-\d{2}\.json$")
_MARKUP = re.compile(r"<([^<>]{1,4000})>")
# What people say; all other subtypes tell of joins, topics and settings.
_SPOKEN = (None, "thread_broadcast", "me_message", "bot_message", "file_share", "file_comment")


def _is_slack(file: SourceFile) -> bool:
    return bool(_SLACK_DAY.search(file.name)) and has_members(file.sample, "type", "ts")


def _read_slack(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    source = file.source
    # The lists are beside the folders of the channels, and read once for all days.
    people = source.shared.get("slack people") or _read_people(source, file.folder.parent)
    source.shared["slack people"] = people
    match = _SLACK_DAY.search(file.name)
    folder = match[1] if match else None
    title = folder or ("slack" if source.is_single else source.name)
    # A channel keeps its id when it is renamed.
    channel = records.PeopleChat("slack", people.channels.get(title, title), title)
    for number, message in read_values(file):
        yield _read_slack_message(number, message, channel, people.names)


@dataclass(frozen=True, slots=True)
class People:
    """The members of a workspace by id, the name to show first, and its channels by name."""

    names: dict[str, tuple[str, ...]]
    channels: dict[str, str]


def _read_people(source: Source, folder: PurePosixPath) -> People:
    users, more_users, channels, groups = (
        read_objects(source.get(str(folder / name)))
        for name in ("users.json", "org_users.json", "channels.json", "groups.json")
    )
    return People(
        {user["id"]: _names_of(user) for user in users + more_users if "id" in user},
        {item["name"]: item["id"] for item in channels + groups if "id" in item and "name" in item},
    )


def _names_of(user: dict[str, Any]) -> tuple[str, ...]:
    profile = user.get("profile") or {}
    names = (
        profile.get("display_name"),
        user.get("real_name") or profile.get("real_name"),
        user.get("name"),
        user["id"],
        profile.get("email"),
    )
    return tuple(dict.fromkeys(str(name) for name in names if name))


def _read_slack_message(
    number: int, message: Any, channel: records.PeopleChat, people: dict[str, tuple[str, ...]]
) -> records.ReadItem:
    if not isinstance(message, dict):
        return records.Fault(number, "a message that is no object")
    if message.get("type") != "message" or message.get("subtype") not in _SPOKEN:
        return records.Skipped(number, "notices")
    ts = records.from_unix(message.get("ts"))
    if ts is None:
        return records.Fault(number, f"ts {message.get('ts')!r} is not a time")
    thread, key = (
        message.get("thread_ts"),
        records.stable_id("slack", channel.key, str(message["ts"])),
    )
    is_reply = bool(thread) and thread != message["ts"]
    reply = records.stable_id("slack", channel.key, str(thread)) if is_reply else None
    content = _slack_text(message, people)
    return channel.message(number, key, _author(message, people), content, ts, reply_to=reply)


def _author(message: dict[str, Any], people: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    user = str(message.get("user") or "")
    profile = message.get("user_profile") or {}
    name = profile.get("display_name") or profile.get("real_name") or message.get("username")
    return people.get(user) or tuple(str(part) for part in (name, user) if part)


def _slack_text(message: dict[str, Any], people: dict[str, tuple[str, ...]]) -> tuple[str, str]:
    text = _MARKUP.sub(partial(_resolve, people), str(message.get("text") or ""))
    if text.strip():
        return unescape(text).strip(), "text"
    files = map(_object, message.get("files") or ())
    return records.file_text(file.get("title") or file.get("name") for file in files)


def _resolve(people: dict[str, tuple[str, ...]], match: re.Match[str]) -> str:
    """Return a mention, a channel or a link as a reader sees it."""
    target, _, label = match[1].partition("|")
    if target.startswith("@"):
        return f"@{label or people.get(target[1:], (target[1:],))[0]}"
    if target.startswith("#"):
        return f"#{label or target[1:]}"
    if target.startswith("!"):
        return label or f"@{target[1:].partition('^')[0]}"
    return f"{label} ({target})" if label and label not in target else target


SLACK = records.FileFormat("slack", _is_slack, _read_slack, between_people=True)


_TELEGRAM_CHAT = re.compile(
    r'"type"\s*:\s*"(?:saved_messages|replies|personal_chat|bot_chat|verification_codes|'
    r'(?:private|public)_(?:group|supergroup|channel))"'
)
_TELEGRAM_MEDIA = {
    "voice_message": "audio",
    "audio_file": "audio",
    "video_file": "video",
    "video_message": "video",
    "animation": "video",
    "sticker": "sticker",
}


def _is_telegram(file: SourceFile) -> bool:
    sample = file.sample
    if has_members(sample, "about", "personal_information"):
        return True
    return (
        has_members(sample, "type", "id", "messages") and _TELEGRAM_CHAT.search(sample) is not None
    )


def _read_telegram(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    with file.text() as stream:
        yield from _TelegramChats(JsonStream(stream), options).read()


class _TelegramChats:
    """The chats of one file; the account's owner is known once their profile was read."""

    def __init__(self, reader: JsonStream, options: records.ReadOptions) -> None:
        self._reader = reader
        self._options = options
        self._owner = ""

    def read(self) -> Iterator[records.ReadItem]:
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

    def _read_list(self) -> Iterator[records.ReadItem]:
        for name in self._reader.members():
            if name == "list":
                for _ in self._reader.elements():
                    yield from self.read()
            else:
                self._reader.skip()

    def _read_messages(self, chat: dict[str, Any]) -> Iterator[records.ReadItem]:
        title = str(chat.get("name") or "")
        conversation = records.PeopleChat("telegram", str(chat.get("id") or title), title)
        for number in self._reader.elements():
            message = self._reader.value()
            if not isinstance(message, dict):
                yield records.Fault(number, "a message that is no object")
            elif message.get("type") != "message":
                yield records.Skipped(number, "notices")
            else:
                yield self._read_message(number, message, conversation)

    def _read_message(
        self, number: int, message: dict[str, Any], chat: records.PeopleChat
    ) -> records.ReadItem:
        author = str(message.get("from_id") or "")
        speaker = str(message.get("from") or author or chat.title)
        ts = records.from_unix(message.get("date_unixtime"))
        ts = ts or records.from_iso(message.get("date"), self._options.zone)
        if ts is None:
            return records.Fault(number, f"date {message.get('date')!r} is not a time")
        text, media = _telegram_text(message.get("text")), _telegram_media(message)
        if not text.strip() and media and media[1]:
            text = f"[{media[0]}] {media[1]}"
        to = message.get("reply_to_message_id")
        fields = {
            "role": Role.USER if author and author == self._owner else Role.OTHER,
            "reply_to": records.stable_id("telegram", chat.key, str(to)) if to else None,
            "forwarded_from": message.get("forwarded_from"),
        }
        key = records.stable_id("telegram", chat.key, str(message.get("id")))
        content = (text, media[0] if media else "text")
        return chat.message(number, key, (speaker, author), content, ts, is_local=True, **fields)


def _telegram_text(text: Any) -> str:
    """Return a text, which is a list of plain and formatted pieces if it has any format."""
    if isinstance(text, str):
        return text
    pieces = text if isinstance(text, list) else []
    return "".join(
        piece if isinstance(piece, str) else str(piece.get("text", ""))
        for piece in pieces
        if isinstance(piece, str | dict)
    )


def _telegram_media(message: dict[str, Any]) -> tuple[str, str] | None:
    """Return the kind of the media of a message and a word about it; None if it has none."""
    if "photo" in message:
        return "image", ""
    kind = _TELEGRAM_MEDIA.get(str(message.get("media_type")))
    if kind is None and "file" not in message:
        return None
    about = message.get("sticker_emoji") or message.get("file_name") or message.get("title")
    return kind or "file", str(about or "")


TELEGRAM = records.FileFormat("telegram", _is_telegram, _read_telegram, between_people=True)
