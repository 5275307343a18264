"""A client's JSON for one event, checked: whose session, which folder, what was said.

Nothing in a payload is trusted: it names no user, and no file that is read.
"""

import hashlib
import json
import re
from typing import Any, NamedTuple

from memrecall.integrations.hooks.client import MAX_INPUT
from memrecall.integrations.hooks.clients import Client, HookEvent, TurnRole
from memrecall.json_objects import make_storable

MAX_CHARACTERS = 100_000  # of one message; the rest is cut
MAX_RECALLED = 10_000  # characters that are recalled for
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


class Payload(NamedTuple):
    """The checked content of an event."""

    session_id: str
    folders: tuple[str, ...]  # the first is the one that the client works in
    messages: tuple[CapturedMessage, ...]


def parse_payload(client: Client, event: HookEvent, data: bytes) -> Payload:
    """Return the checked content of a client's JSON; raise BadPayload if it is something else."""
    fields = _parse_object(data)
    session = _read_id(fields, client.session)
    turn = _read_id(fields, client.turn) if fields.get(client.turn) else ""
    messages = (
        CapturedMessage(_message_id(client, session, turn, role, text), session, role, text)
        for role, name in event.texts
        if (text := _read_text(fields, name))
    )
    return Payload(session, _read_folders(fields, client.folder), tuple(messages))


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
    value = fields.get(name)
    folders = value if isinstance(value, list) else [value]
    if not all(isinstance(folder, str) and "\0" not in folder for folder in folders):
        raise BadPayload(f"{name} is not a folder")
    return tuple(filter(None, folders))


def _read_text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n\n".join(value)
    if value is None:  # an answer without text
        return ""
    if not isinstance(value, str):
        raise BadPayload(f"{name} is not a text")
    text: str = make_storable(value)
    return text.strip()[:MAX_CHARACTERS]


def _message_id(client: Client, session: str, turn: str, role: TurnRole, text: str) -> str:
    """Return the id under which the same event is always stored."""
    source = json.dumps([client.name, session, turn, role, text]).encode()
    return f"hook-{hashlib.sha256(source).hexdigest()[:40]}"
