"""An event of a client, from its JSON to what may be stored and recalled for.

Nothing in a payload is trusted: it names no user, and no file that is read.
"""

import json
import os
import re
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from memrecall.importers.projects import find_project, find_root, is_ignored
from memrecall.importers.turns import clean_turn, turn_id
from memrecall.integrations.hooks.bindings import Binding, HookError
from memrecall.integrations.hooks.client import MAX_INPUT
from memrecall.integrations.hooks.clients import CLIENTS, Client, HookEvent, TurnRole
from memrecall.text.privacy import SECRETS_ONLY

MAX_RECALLED = 10_000  # characters that are recalled for
MASK = "[redacted]"
COMPACT = "compact"  # the source of a session that starts with a summary
# What the clients use: UUIDs and names. No separators of paths, which some program might follow.
_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")


class BadPayload(ValueError):
    """A payload that no documented client sends; the message quotes nothing of it."""


class CapturedMessage(NamedTuple):
    """A message of an event; its id depends on nothing but the event."""

    message_id: str
    session_id: str
    role: TurnRole
    content: str
    ts: str = ""  # "": now


class Payload(NamedTuple):
    """The checked content of an event."""

    session_id: str
    folders: tuple[str, ...]  # the first is the one that the client works in
    messages: tuple[CapturedMessage, ...]
    source: str = ""  # why a session starts


def parse_payload(client: Client, event: HookEvent, data: bytes) -> Payload:
    """Return the checked content of a client's JSON; raise BadPayload if it is something else."""
    fields = _parse_object(data)
    session = _read_id(fields, client.session)
    turn = _read_id(fields, client.turn) if fields.get(client.turn) else ""
    messages = (
        CapturedMessage(turn_id(client.name, session, turn, role, text), session, role, text)
        for role, name in event.texts
        if (text := _read_text(fields, name))
    )
    folders = _read_folders(fields, client.folder)
    return Payload(session, folders, tuple(messages), str(fields.get("source", "")))


def _parse_object(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_INPUT:
        raise BadPayload(f"the input is larger than {MAX_INPUT:,} bytes")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise BadPayload("the input is not JSON") from None
    if not isinstance(fields, dict):
        raise BadPayload("the input is not a JSON object")
    return fields


def _read_id(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise BadPayload(f"{name} is not an id of 1 to 64 letters, digits and . _ : -")
    return value


def _read_folders(fields: dict[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name) or []
    folders = value if isinstance(value, list) else [value]
    if not all(isinstance(folder, str) and "\0" not in folder for folder in folders):
        raise BadPayload(f"{name} is not a folder")
    # A relative one would be a folder of whatever process reads it.
    return tuple(filter(os.path.isabs, folders))


def _read_text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:  # an answer without text
        return ""
    if not isinstance(value, str):
        raise BadPayload(f"{name} is not a text")
    return clean_turn(value)


class CapturedEvent(NamedTuple):
    """An event that is not ignored, without secrets."""

    client: Client
    event: HookEvent
    session_id: str
    folder: str  # the repository, or the folder of the session; "": unknown
    project: str | None
    messages: tuple[CapturedMessage, ...]  # at least one, unless the event has no texts
    is_compacted: bool = False  # the session goes on with a summary of itself

    @property
    def recalls(self) -> bool:
        """Whether the client shows its model what is recalled for the first message."""
        return self.event.recalls and self.client.can_inject

    @property
    def shows(self) -> bool:
        """Whether the client waits for something to show."""
        return self.recalls or self.event.briefs

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the messages."""
        workspace = {"workspace": self.folder} if self.folder else {}
        return {"client": self.client.name, **workspace}

    def entry(self, message: CapturedMessage) -> dict[str, Any]:
        """Return a message of the event in the form in which a service takes it."""
        return {
            **message._asdict(),
            "ts": message.ts or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "project": self.project,
            "metadata": self.metadata,
        }

    def format_output(self, block: str) -> str:
        """Return what the client expects a hook to print; "" for no block."""
        return self.client.format_output(self.event.name, block) if block else ""


def read_event(binding: Binding, event_name: str, data: bytes) -> CapturedEvent | None:
    """Return the event of a client's JSON; None if a text is missing or a folder is ignored."""
    client = CLIENTS.get(binding.client)
    event = client.event(event_name) if client else None
    if client is None or event is None:
        raise HookError("the client has no such event; connect it again")
    payload = parse_payload(client, event, data)
    redacted = (each._replace(content=_redact(binding, each.content)) for each in payload.messages)
    messages = tuple(each for each in redacted if each.content)
    if (event.texts and not messages) or any(map(is_ignored, payload.folders)):
        return None
    if folder := binding.workspace or next(iter(payload.folders), ""):
        folder = find_root(folder)
    project = find_project(folder) if folder else None
    is_compacted = payload.source == COMPACT
    return CapturedEvent(client, event, payload.session_id, folder, project, messages, is_compacted)


def _redact(binding: Binding, text: str) -> str:
    return redact_patterns(SECRETS_ONLY.redact(text), binding.redact_patterns)


def redact_patterns(text: str, patterns: Iterable[str]) -> str:
    """Return the text with a mask in place of each match of a user's patterns."""
    for pattern in patterns:
        text = re.sub(pattern, MASK, text)
    return text
