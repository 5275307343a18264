"""The one parser of the messages that applications pass in, in whatever form they have them."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias, TypeGuard

from pydantic import ValidationError

from memrecall.errors import InvalidArgument, describe_validation_error
from memrecall.messages.pictures import caption_of, describe_picture, get_field, media_of
from memrecall.types import NewMessage, Origin, Role, check_json, check_text, parse_time

PICTURES = "pictures"  # the metadata key of what is stored of them
USER_SOURCES = ("user", "user_proxy")  # AutoGen's names of the user
LARGEST_BATCH = 10_000
_FORMS = 'Pass a text, {"role": "user", "content": "…"}, a message object, or a list of them'
_ALIASES = {
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
    "human": Role.USER,
    "ai": Role.ASSISTANT,
}
MessageContent: TypeAlias = str | Mapping[str, Any] | Sequence[Any]  # a text, or content parts
ROLE_NAMES = (*Role, *_ALIASES)
# The roles of LlamaIndex that no chat model has.
_OBJECT_ROLES = {"chatbot": Role.ASSISTANT, "model": Role.ASSISTANT}
# The `type` of the messages of LangChain and AutoGen, `kind` and `part_kind` of Pydantic AI.
_ROLE_OF_TYPE = {
    **_ALIASES,
    "request": Role.USER,
    "response": Role.ASSISTANT,
    "user-prompt": Role.USER,
    "system-prompt": Role.SYSTEM,
    "tool-return": Role.TOOL,
    "retry-prompt": Role.TOOL,
    "system": Role.SYSTEM,
    "tool": Role.TOOL,
    "UserMessage": Role.USER,
    "AssistantMessage": Role.ASSISTANT,
    "SystemMessage": Role.SYSTEM,
    "FunctionExecutionResultMessage": Role.TOOL,
}
_ORIGINS = {Role.ASSISTANT: Origin.ASSISTANT, Role.TOOL: Origin.TOOL, Role.SYSTEM: Origin.ASSISTANT}
_MEDIA = {
    "image_url": "image",
    "input_image": "image",
    "image-url": "image",
    "Image": "image",
    "image_asset_pointer": "image",
    "input_audio": "audio",
    "audio-url": "audio",
    "video-url": "video",
    "input_file": "file",
    "document-url": "file",
}
# The text of a part without a caption, with the line break before it.
_MARKERS = re.compile(r"(?:\n|\A)\[(?:audio|document|file|image|video)\](?=\n|\Z)")
_PARTS_WITHOUT_TEXT = {
    *("", "refusal", "thinking", "reasoning", "text_reasoning", "redacted_thinking"),
    *("tool_use", "tool_call", "tool-call", "function_call", "FunctionCall", "usage"),
}
_NO_ID = "__fake_id__"  # the id that OpenAI's Agents SDK gives to items of other servers


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """A message of a conversation, the same for every form that it was passed in."""

    role: Role
    text: str
    speaker: str | None = None
    ts: datetime | None = None
    message_id: str | None = None
    parent_message_id: str | None = None
    content_type: str = "text"
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)
    project: str | None = None

    def to_new_message(self) -> NewMessage:
        """Return the message in the form that is stored; InvalidArgument if it cannot be."""
        try:
            return NewMessage(
                content=self.text,
                role=self.role,
                message_id=self.message_id,
                ts=self.ts,
                speaker=self.speaker,
                content_type=self.content_type,
                parent_message_id=self.parent_message_id,
                metadata=self.metadata,
                project=self.project,
            )
        except ValidationError as error:
            raise InvalidArgument(describe_validation_error(error)) from None


def parse_messages(
    messages: object,
    *,
    user_sources: Collection[str] | None = None,
    read_pictures: bool = False,
) -> tuple[ConversationMessage, ...]:
    """Return a conversation from a text, a dict, a message object or a list of them.

    Message objects may be of memrecall, AutoGen, LangChain, Agent Framework, LlamaIndex,
    Pydantic AI, OpenAI's client and its Agents SDK. A message without text, such as a bare tool
    call, is left out. What is stored of pictures is read, and checked, only with `read_pictures`,
    so that no recall fails on them. `user_sources` are the sources of AutoGen messages that are
    the user; messages of other sources get the role `other`.
    """
    items = parse_items(messages, user_sources, read_pictures=read_pictures)
    parsed = tuple(message for message in items if message.text.strip())
    if not parsed:
        raise InvalidArgument(
            "the conversation is empty: no message has any text", hint="Pass at least one message"
        )
    return parsed


def parse_items(
    messages: object,
    user_sources: Collection[str] | None = None,
    *,
    read_pictures: bool = False,
) -> list[ConversationMessage]:
    """Return every message of a conversation, also those without text; see `parse_messages`."""
    items = messages if _is_list(messages) else [messages]
    parsed = ((part, parse_message(part, read_pictures)) for item in items for part in _split(item))
    if user_sources is None:
        return [message for _, message in parsed]
    return [_assign_role(item, message, user_sources) for item, message in parsed]


def _split(item: object) -> Sequence[object]:
    """Return the messages of an item: a request of Pydantic AI has one for each of its parts."""
    if get_field(item, "kind") == "request" and _is_list(parts := get_field(item, "parts")):
        return parts
    return [item]


def parse_new_messages(
    messages: object, metadata: Mapping[str, Any] | None = None
) -> list[NewMessage]:
    """Return the messages to store: parsed, with shared metadata, and validated."""
    if _is_list(messages) and len(messages) > LARGEST_BATCH:
        raise InvalidArgument(
            f"{len(messages)} messages exceed the limit of one call",
            hint=f"Pass at most {LARGEST_BATCH}",
        )
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidArgument(
            f"metadata {metadata!r} is a {type(metadata).__name__}",
            hint="Pass a dict of names and values",
        )
    shared = check_json("metadata", dict(metadata or {}))
    return [
        replace(message, metadata={**shared, **message.metadata}).to_new_message()
        for message in parse_messages(messages, read_pictures=True)
    ]


def parse_role(value: object) -> Role:
    """Return the role that a name stands for; `developer`, `human` and `ai` are aliases."""
    if isinstance(value, str):
        if value in _ALIASES:
            return _ALIASES[value]
        if value in tuple(Role):
            return Role(value)
    raise InvalidArgument(f"role {value!r} is not known", hint=f"Use {', '.join(ROLE_NAMES)}")


def join_content_parts(fields: Any) -> Any:
    """Return the fields of a message to store with content parts as one text and its type."""
    content = fields.get("content") if isinstance(fields, Mapping) else None
    if content is None or not (isinstance(content, Mapping) or _is_list(content)):
        return fields
    text, content_type, pictures = _parse_parts(content)
    if not text:
        raise InvalidArgument("content has no text", hint="Pass a part with text")
    joined = {"content_type": content_type, **fields, "content": text}
    metadata = fields.get("metadata") or {}
    if pictures and isinstance(metadata, Mapping):
        joined["metadata"] = {**metadata, PICTURES: list(map(describe_picture, pictures))}
    return joined


def strip_markers(text: str) -> str:
    """Return a text without the lines that stand for pictures and files without a caption."""
    return _MARKERS.sub("", text)


def origin_of(role: Role) -> Origin:
    """Return how far a message can be trusted: decided by its role, never by its text."""
    return _ORIGINS.get(role, Origin.USER)


def name_sources(sources: Iterable[object]) -> frozenset[str]:
    """Return the names of message sources, which are names or AutoGen agents."""
    items = [sources] if isinstance(sources, str) else sources
    return frozenset(map(name_source, items))


def name_source(source: object) -> str:
    """Return the name of a message source, which is a name or an AutoGen agent."""
    name = source if isinstance(source, str) else getattr(source, "name", None)
    if isinstance(name, str) and name:
        return name
    raise InvalidArgument(f"{source!r} is not a message source", hint="Pass a name or an agent")


def is_from_user(item: object, user_sources: Collection[str]) -> bool:
    """Return True for an AutoGen message of the user; an agent's own messages never are."""
    return (
        get_field(item, "type") != "AssistantMessage" and get_field(item, "source") in user_sources
    )


def _assign_role(
    item: object, message: ConversationMessage, user_sources: Collection[str]
) -> ConversationMessage:
    """Return the message with the role of its source, if it has one."""
    is_own = get_field(item, "type") == "AssistantMessage"
    if is_own or isinstance(item, Mapping) or get_field(item, "source") is None:
        return message
    return replace(message, role=Role.USER if is_from_user(item, user_sources) else Role.OTHER)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def parse_message(item: object, read_pictures: bool = False) -> ConversationMessage:
    """Return one message, which may have no text; see `parse_messages` for the forms."""
    if isinstance(item, ConversationMessage):
        return item
    if isinstance(item, str):
        return ConversationMessage(Role.USER, item)
    if callable(to_input_item := getattr(item, "to_input_item", None)):
        item = to_input_item()  # a result of OpenAI's Agents SDK
    role = _parse_role_of(item)
    text, content_type, pictures = _parse_content(item)
    metadata = _parse_metadata(item)
    if pictures and read_pictures:
        metadata[PICTURES] = list(map(describe_picture, pictures))
    if isinstance(item, Mapping):
        # Only JSON can bring text that no database can store this far unnoticed: objects of
        # frameworks are checked when they are stored, so that a recall never fails on them.
        check_text("the content of a message", text)
    ts = get_field(item, "ts", "timestamp", "created_at")
    return ConversationMessage(
        role,
        text,
        _parse_speaker(item),
        parse_time(ts, "ts") if ts else None,
        _parse_message_id(item),
        _get_text(item, "parent_message_id"),
        _get_text(item, "content_type") or content_type,
        metadata,
        item.project if isinstance(item, NewMessage) else None,
    )


def _get_text(item: object, *names: str) -> str | None:
    for name in names:
        value = get_field(item, name)
        if isinstance(value, str):
            return value
        if value is not None:
            raise InvalidArgument(f"{name} {value!r} is not a text", hint="Pass a string")
    return None


def _parse_message_id(item: object) -> str | None:
    name = _get_text(item, "message_id", "id")
    return None if name == _NO_ID else name


def _parse_role_of(item: object) -> Role:
    if isinstance(item, Mapping) and "role" in item:
        return parse_role(item["role"])
    role = get_field(item, "role")
    if role is not None:
        name = getattr(role, "value", role)
        return _OBJECT_ROLES.get(name) or parse_role(name)
    kind = _kind_of(item)
    if kind in _ROLE_OF_TYPE:
        return _ROLE_OF_TYPE[kind]
    if isinstance(item, Mapping) and (role := _role_of_item(kind)):
        return role
    if isinstance(item, Mapping):
        return Role.USER
    if _is_autogen_chat_message(item):
        return Role.USER if get_field(item, "source") in USER_SOURCES else Role.ASSISTANT
    raise InvalidArgument(f"a {type(item).__name__} is not a message", hint=_FORMS)


def _kind_of(item: object) -> str:
    return str(get_field(item, "type", "part_kind", "kind") or "")


def _role_of_item(kind: str) -> Role | None:
    """Return the role of an item of OpenAI's Responses API that is no message."""
    if kind.endswith("_call_output"):
        return Role.TOOL
    return Role.ASSISTANT if kind == "reasoning" or kind.endswith("_call") else None


def _is_autogen_chat_message(item: object) -> bool:
    return callable(getattr(item, "to_model_text", None)) and hasattr(item, "source")


def _parse_speaker(item: object) -> str | None:
    name = _get_text(item, "speaker", "name", "author_name")
    if name is not None or isinstance(item, Mapping):
        return name
    source = _get_text(item, "source")
    # AutoGen's default sources only repeat the role.
    return None if source in ("user", "assistant", "system") else source


def _parse_content(item: Any) -> tuple[str, str, list[object]]:
    """Return the text of a message, its content type and its pictures."""
    if isinstance(item, Mapping) and "role" not in item and _role_of_item(_kind_of(item)):
        content = item.get("output") or ""
    else:
        content = get_field(item, "contents", "blocks", "parts", "content")
    if callable(to_text := getattr(item, "model_response_str", None)):
        content = to_text()  # a tool's result of Pydantic AI, which may be any object
    if _is_autogen_chat_message(item) and not _is_list(content):
        content = item.to_model_text()
    if content is None and not isinstance(item, Mapping):
        content = get_field(item, "text")
    if content is None or isinstance(content, str):
        return content or "", "text", []
    return _parse_parts(content)


def _parse_parts(content: object) -> tuple[str, str, list[object]]:
    """Return the text of content parts, one to a line, their content type and the pictures."""
    if isinstance(content, Mapping):
        content = [content]
    if not _is_list(content):
        raise InvalidArgument(
            f"content of type {type(content).__name__} is not text",
            hint='Pass a text or a list of parts such as {"type": "text", "text": "…"}',
        )
    parts = [(*_parse_part(part), part) for part in content]
    types = [content_type for text, content_type, _ in parts if text]
    content_type = types[0] if types and "text" not in types else "text"
    pictures = [part for _, kind, part in parts if kind == "image"]
    return "\n".join(text for text, _, _ in parts if text), content_type, pictures


def _parse_part(part: object) -> tuple[str, str]:
    """Return the text of a content part and its content type; what is no text gets a caption."""
    if isinstance(part, str):
        return part, "text"
    if not isinstance(part, Mapping) and type(part).__module__ == "builtins":
        raise InvalidArgument(
            f"content part {part!r} is neither a text nor an object",
            hint='Pass parts such as {"type": "text", "text": "…"}',
        )
    kind = str(get_field(part, "type", "block_type", "part_kind", "kind") or _class_name(part))
    text = get_field(part, "text", "content", "result")
    if kind == "" and (inline := get_field(part, "inline_data", "inlineData")):  # of Gemini
        kind = media_of(inline)
    if kind in _PARTS_WITHOUT_TEXT and not (kind == "" and isinstance(text, str)):
        return "", "text"
    if isinstance(text, str):
        return text, "text"
    if kind in ("data", "uri", "binary", "file"):
        kind = media_of(part)
    content_type = _MEDIA.get(kind, kind)
    return caption_of(part) or f"[{content_type}]", content_type


def _class_name(part: object) -> str:
    return "" if isinstance(part, Mapping) else type(part).__name__


def _parse_metadata(item: object) -> dict[str, Any]:
    """Return a message's own metadata and its tool calls."""
    metadata = get_field(item, "metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidArgument(f"metadata {metadata!r} is not a JSON object", hint="Pass a dict")
    details = dict(metadata or {})
    for name in ("tool_calls", "tool_call_id"):
        if value := get_field(item, name):
            details[name] = _to_json(value)
    return check_json("metadata", details)  # type: ignore[no-any-return]


def _to_json(value: object) -> Any:
    """Return objects of a client library as plain JSON values."""
    return json.loads(
        json.dumps(value, default=lambda thing: getattr(thing, "__dict__", str(thing)))
    )
