"""Slack's export: a folder for each channel with a JSON file for each day, and `users.json`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from html import unescape
from pathlib import PurePosixPath
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.importers.json_stream import has_members, read_values
from memrecall.importers.records import (
    Fault,
    FileFormat,
    ReadItem,
    ReadOptions,
    Skipped,
    from_unix,
    message_record,
    stable_id,
)
from memrecall.importers.source import Source, SourceFile
from memrecall.types import Role

_DAY = re.compile(r"(?:^|/)(?:([^/]+)/)?\d{4}-\d{2}-\d{2}\.json$")
_MARKUP = re.compile(r"<([^<>]{1,4000})>")
# What people say; all other subtypes tell of joins, topics and settings.
_SPOKEN = (None, "thread_broadcast", "me_message", "bot_message", "file_share", "file_comment")


def _matches(file: SourceFile) -> bool:
    return bool(_DAY.search(file.name)) and has_members(file.sample, "type", "ts")


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    source = file.source
    # The lists are beside the folders of the channels, and read once for all days.
    people = source.shared.get("slack people") or _read_people(source, file.folder.parent)
    source.shared["slack people"] = people
    match = _DAY.search(file.name)
    folder = match[1] if match else None
    title = folder or ("slack" if source.is_single else source.name)
    # A channel keeps its id when it is renamed.
    channel = _Channel(people.channels.get(title, title), title)
    for number, message in read_values(file):
        yield _read_message(number, message, channel, people.names)


@dataclass(frozen=True, slots=True)
class _Channel:
    id: str
    title: str


@dataclass(frozen=True, slots=True)
class People:
    """The members of a workspace by id, the name to show first, and its channels by name."""

    names: dict[str, tuple[str, ...]]
    channels: dict[str, str]


def _read_people(source: Source, folder: PurePosixPath) -> People:
    users, more_users, channels, groups = (
        _read_list(source.get(str(folder / name)))
        for name in ("users.json", "org_users.json", "channels.json", "groups.json")
    )
    return People(
        {user["id"]: _names_of(user) for user in users + more_users if "id" in user},
        {item["name"]: item["id"] for item in channels + groups if "id" in item and "name" in item},
    )


def _read_list(file: SourceFile | None) -> list[dict[str, Any]]:
    """Return the objects of a list; none if there is no such file."""
    if file is None:
        return []
    try:
        return [item for _, item in read_values(file) if isinstance(item, dict)]
    except InvalidArgument:
        return []  # of another application


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


def _read_message(
    number: int, message: Any, channel: _Channel, people: dict[str, tuple[str, ...]]
) -> ReadItem:
    if not isinstance(message, dict):
        return Fault(number, "a message that is no object")
    if message.get("type") != "message" or message.get("subtype") not in _SPOKEN:
        return Skipped(number, "joins, topics and other notices")
    ts = from_unix(message.get("ts"))
    if ts is None:
        return Fault(number, f"ts {message.get('ts')!r} is not a time")
    text, content_type = _text_of(message, people)
    if not text:
        return Skipped(number, "media without text")
    names = _author(message, people)
    thread = message.get("thread_ts")
    is_reply = bool(thread) and thread != message["ts"]
    return message_record(
        number,
        message_id=stable_id("slack", channel.id, str(message["ts"])),
        session_id=stable_id("slack", channel.id),
        role=Role.OTHER,
        speaker=names[0] if names else None,
        names=names[1:],
        text=text,
        ts=ts,
        content_type=content_type,
        conversation=channel.title,
        reply_to=stable_id("slack", channel.id, str(thread)) if is_reply else None,
    )


def _author(message: dict[str, Any], people: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    user = str(message.get("user") or "")
    profile = message.get("user_profile") or {}
    name = profile.get("display_name") or profile.get("real_name") or message.get("username")
    return people.get(user) or tuple(str(part) for part in (name, user) if part)


def _text_of(message: dict[str, Any], people: dict[str, tuple[str, ...]]) -> tuple[str, str]:
    text = _MARKUP.sub(partial(_resolve, people), str(message.get("text") or ""))
    if text.strip():
        return unescape(text).strip(), "text"
    files = [file for file in message.get("files") or () if isinstance(file, dict)]
    names = [str(file.get("title") or file.get("name") or "") for file in files]
    return (f"[file] {', '.join(filter(None, names))}", "file") if any(names) else ("", "text")


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


FORMAT = FileFormat("slack", _matches, _read, between_people=True)
