"""Messages as applications write them: a text, a dict of OpenAI's form, or a list of either."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from memrecall.errors import InvalidArgument
from memrecall.types import (
    NewMessage,
    Origin,
    Role,
    check_json,
    describe_validation_error,
    parse_time,
)

Redact = Callable[[str], str]

LARGEST_BATCH = 10_000
_ROLES = {"developer": Role.SYSTEM, "function": Role.TOOL, "human": Role.USER, "ai": Role.ASSISTANT}
_CAPTIONS = {"image_url": "[image]", "input_audio": "[audio]", "file": "[file]", "refusal": ""}
_ORIGINS = {Role.ASSISTANT: Origin.ASSISTANT, Role.TOOL: Origin.TOOL, Role.SYSTEM: Origin.ASSISTANT}


def read_messages(
    given: object, metadata: Mapping[str, Any] | None = None, redact: Redact | None = None
) -> list[NewMessage]:
    """The messages to be stored. One without any words (a mere tool call, null) is left out."""
    items = [given] if isinstance(given, str | Mapping | NewMessage) else given
    if not isinstance(items, Sequence) or isinstance(items, bytes | bytearray):
        raise InvalidArgument(
            f"a {type(given).__name__} is not a conversation",
            hint='Give a text, {"role": …, "content": …} or a list of them',
        )
    if len(items) > LARGEST_BATCH:
        raise InvalidArgument(
            f"{len(items)} messages at once are too many", hint=f"Give at most {LARGEST_BATCH}"
        )
    shared = check_json("metadata", dict(metadata or {}))
    read = [_read(item, shared) for item in items]
    said = [redacted(message, redact) for message in read if message.content.strip()]
    if not said:
        raise InvalidArgument("there is nothing to remember", hint="Give at least one message")
    return said


def origin_of(role: Role) -> Origin:
    """How far what a message says can be trusted: set by its role, never by its words."""
    return _ORIGINS.get(role, Origin.USER)


def redacted(message: NewMessage, redact: Redact | None) -> NewMessage:
    """The message as the application's hook lets it be stored."""
    if redact is None:
        return message
    changed = {"content": redact(message.content), "metadata": scrub(message.metadata, redact)}
    return NewMessage.model_validate({**message.model_dump(), **changed})


def scrub(value: Any, redact: Redact | None) -> Any:
    """JSON with every text in it redacted."""
    if redact is None:
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {name: scrub(item, redact) for name, item in value.items()}
    return [scrub(item, redact) for item in value] if isinstance(value, list | tuple) else value


def _read(item: object, shared: dict[str, Any]) -> NewMessage:
    if isinstance(item, NewMessage):
        return item.model_copy(update={"metadata": {**shared, **item.metadata}})
    if isinstance(item, str):
        item = {"role": "user", "content": item}
    if not isinstance(item, Mapping):
        raise InvalidArgument(
            f"a {type(item).__name__} is not a message", hint='Write {"role": …, "content": …}'
        )
    said = item.get("ts") or item.get("timestamp")
    fields = {
        "content": _text(item.get("content")),
        "role": _role(item.get("role", "user")),
        "ts": None if said is None else parse_time(said, "ts"),
        "speaker": item.get("speaker") or item.get("name"),
        "message_id": item.get("message_id") or item.get("id"),
        "parent_message_id": item.get("parent_message_id"),
        "metadata": {**shared, **_details(item)},
    }
    try:
        return NewMessage.model_validate(fields)
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)) from None


def _role(given: object) -> Role:
    if isinstance(given, Role):
        return given
    try:
        return _ROLES[given] if given in _ROLES else Role(str(given))
    except (ValueError, TypeError):
        raise InvalidArgument(
            f"role {given!r} is not known", hint=f"Use {', '.join(Role)}"
        ) from None


def _text(content: object) -> str:
    """The words of a content: a text, or its parts, where what is no text has a caption."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, Sequence):
        raise InvalidArgument(f"a content of {type(content).__name__} is not text")
    return "\n".join(filter(None, map(_part, content)))


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InvalidArgument(f"a part of a content is {part!r}", hint='{"type": "text", …}')
    text = part.get("text")
    if isinstance(text, str):
        return text
    kind = str(part.get("type", ""))
    caption = part.get("caption")
    return caption if isinstance(caption, str) else _CAPTIONS.get(kind, f"[{kind}]" if kind else "")


def _details(item: Mapping[Any, Any]) -> dict[str, Any]:
    """What else a message of a chat says: its metadata, its tool calls."""
    own = item.get("metadata")
    if own is not None and not isinstance(own, Mapping):
        raise InvalidArgument(f"the metadata of a message is {own!r}", hint="Give a dict")
    details = dict(own or {})
    for name in ("tool_calls", "tool_call_id"):
        if item.get(name):
            details[name] = _plain(item[name])
    return check_json("metadata", details)  # type: ignore[no-any-return]


def _plain(value: object) -> Any:
    """Objects of a client library as JSON."""
    return json.loads(
        json.dumps(value, default=lambda thing: getattr(thing, "__dict__", str(thing)))
    )
