"""The one parser of the messages that applications pass in, in whatever form they have them."""

import base64
import hashlib
import json
import mimetypes
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from pydantic import ValidationError

from memrecall.errors import InvalidArgument, describe_validation_error
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


PICTURE_BYTES = 20 * 1024**2
_CAPTIONS = ("caption", "alt", "alt_text")
_URL_LENGTH = 500
# Where the forms of APIs and frameworks have what a picture is.
_HOLDERS = ("image_url", "source", "inline_data", "inlineData")
_DATA = ("data", "base64", "image")
_URLS = ("url", "uri", "file_uri", "fileUri")
_REFERENCES = ("file_id", "asset_pointer", "path")  # to what an API or a disk has
_TYPES = ("media_type", "mediaType", "mime_type", "mimeType", "image_mimetype")
_WHOLE = "Pass the whole picture as an image/… data URL, or its http or https URL"
_SIGNATURES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftyp", "image/heic"),
    (0, b"<svg", "image/svg+xml"),
    (0, b"<?xml", "image/svg+xml"),
)
# Cameras and editors may write more after the end of a picture.
_HAS_END: dict[str, Callable[[bytes], bool]] = {
    "image/png": lambda data: b"IEND\xaeB`\x82" in data,
    "image/jpeg": lambda data: data.find(b"\xff\xd9", _find_scan(data)) > 0,
    "image/gif": lambda data: data.rstrip(b"\0\r\n").endswith(b";"),
    "image/webp": lambda data: len(data) >= 8 + int.from_bytes(data[4:8], "little"),
}


def get_field(item: object, *names: str) -> Any:
    """Return the first field that has a value, of a dict or an object."""
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None and value != "":
            return value
    return None


def caption_of(part: object) -> str | None:
    """Return the caption or alternative text of a part."""
    captions = (get_field(each, *_CAPTIONS) for each in (part, get_field(part, "image_url")))
    return next((caption for caption in captions if isinstance(caption, str)), None)


def media_of(part: object) -> str:
    """Return the kind of a part with a media type: "image", "audio", "video" or "file"."""
    media = str(get_field(part, *_TYPES)).split("/", 1)[0]
    return media if media in ("image", "audio", "video") else "file"


def describe_picture(part: object) -> dict[str, Any]:
    """Return what is stored of a picture; InvalidArgument if it is damaged or too large.

    Of a picture elsewhere, the address is stored without its query, which may be a secret.
    """
    details: dict[str, Any] = {"type": "image"}
    if caption := caption_of(part):
        details["alt"] = caption
    for holder in (part, *(get_field(part, name) for name in _HOLDERS)):
        fields = {"url": holder} if isinstance(holder, str) else holder
        if isinstance(media_type := get_field(fields, *_TYPES), str):
            details["type"] = media_type
        url, data = get_field(fields, *_URLS), get_field(fields, *_DATA)
        if isinstance(data, str) and data[:6].lower().startswith(("data:", "http:", "https:")):
            url, data = data, None  # of the AI SDK
        if callable(to_base64 := getattr(fields, "to_base64", None)):
            data = to_base64()  # of AutoGen, whose field is an open picture
        if (content := _read_data(url, data)) is not None:
            return {**details, **_describe_bytes(content)}
        if url is not None:
            return {**details, **_describe_address(str(url))}
        if get_field(fields, *_REFERENCES) is not None:
            return details
    raise InvalidArgument("a picture has neither data nor a URL", hint=_WHOLE)


def _read_data(url: object, data: object) -> bytes | None:
    """Return the bytes of a data URL or of data; None if there are none."""
    head, _, text = str(url).partition(",")
    if (head := head.lower()).startswith("data:"):
        _check_size(len(text) * 3 // 4)
        if not head.startswith("data:image/"):
            raise InvalidArgument(f"{head[:_URL_LENGTH]!r} is not a picture", hint=_WHOLE)
        return _decode(text) if head.endswith(";base64") else unquote_to_bytes(text)
    if isinstance(data, bytes | bytearray):
        _check_size(len(data))
        return bytes(data) if _type_of(bytes(data)) else _decode(bytes(data).decode("latin-1"))
    return _decode(data) if isinstance(data, str) else None


def _decode(text: str) -> bytes:
    _check_size(len(text) * 3 // 4)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise InvalidArgument(f"a picture is not valid base64: {error}", hint=_WHOLE) from None


def _check_size(size: int) -> None:
    if size > PICTURE_BYTES:
        hint = f"Use at most {PICTURE_BYTES:,} bytes"
        raise InvalidArgument(f"a picture has {size:,} bytes", hint=hint)


def _type_of(data: bytes) -> str | None:
    start = data[:16]
    return next((t for at, mark, t in _SIGNATURES if start[at:].startswith(mark)), None)


def _describe_bytes(data: bytes) -> dict[str, Any]:
    if (media_type := _type_of(data)) is None:
        hint = "Use PNG, JPEG, GIF, WebP, BMP, TIFF, HEIC, AVIF or SVG"
        raise InvalidArgument(f"a picture of {len(data):,} bytes is of no known format", hint=hint)
    if not _HAS_END.get(media_type, bool)(data):
        raise InvalidArgument(f"a picture of {len(data):,} bytes is cut off", hint=_WHOLE)
    return {"type": media_type, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _find_scan(data: bytes) -> int:
    """Return where the scan of a JPEG begins; a thumbnail before it has an end of its own."""
    at = 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return at


def _describe_address(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
    except ValueError:  # such as http://[x
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidArgument(f"{url[:_URL_LENGTH]!r} is not the URL of a picture", hint=_WHOLE)
    address = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    guess = mimetypes.guess_type(parts.path)[0]
    return {"url": address[:_URL_LENGTH]} | ({"type": guess} if guess else {})
