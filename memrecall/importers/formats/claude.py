"""Claude's data export: `conversations.json`, conversations with a list of `chat_messages`."""

from collections.abc import Iterator
from typing import Any

from memrecall.importers.json_stream import has_members, read_values
from memrecall.importers.records import (
    Fault,
    FileFormat,
    ReadItem,
    ReadOptions,
    Skipped,
    current_branch,
    from_iso,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.types import Role

_ROLES = {"human": Role.USER, "assistant": Role.ASSISTANT}


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    for number, value in read_values(file):  # a list, one conversation, or one a line
        yield from _read_conversation(number, value)


def _read_conversation(number: int, data: Any) -> Iterator[ReadItem]:
    messages = data.get("chat_messages") if isinstance(data, dict) else None
    if not isinstance(messages, list):
        yield Fault(number, "a conversation without chat_messages")
        return
    messages = [message for message in messages if isinstance(message, dict)]
    visible = _visible_names(data, messages)
    for message in messages:
        if visible and message.get("uuid") not in visible:
            yield Skipped(number, "other branches")
        else:
            yield _read_message(number, data, message)


def _visible_names(data: dict[str, Any], messages: list[dict[str, Any]]) -> set[str]:
    """Return the messages of the current branch; none if the file has no branches."""
    parents = {str(message.get("uuid")): message.get("parent_message_uuid") for message in messages}
    return set(current_branch(parents, data.get("current_leaf_message_uuid")))


def _read_message(number: int, data: dict[str, Any], message: dict[str, Any]) -> ReadItem:
    role = _ROLES.get(str(message.get("sender")))
    if role is None:
        return Fault(number, f"sender {message.get('sender')!r} is neither human nor assistant")
    text, content_type = _text_of(message), "text"
    if not text and (files := _file_names(message)):
        text, content_type = f"[file] {', '.join(files)}", "file"
    return message_record(
        number,
        message_id=stable_id("claude", str(message.get("uuid"))),
        session_id=stable_id("claude", str(data.get("uuid"))),
        role=role,
        text=text,
        ts=from_iso(message.get("created_at")) or from_iso(data.get("created_at")),
        content_type=content_type,
        conversation=data.get("name"),
    )


def _text_of(message: dict[str, Any]) -> str:
    """Return the text blocks; `text` would also have placeholders for tool calls."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text" and block.get("text")
    ]
    return "\n".join(texts) if texts else str(message.get("text") or "")


def _file_names(message: dict[str, Any]) -> list[str]:
    files = [*(message.get("attachments") or ()), *(message.get("files") or ())]
    return [
        str(file["file_name"]) for file in files if isinstance(file, dict) and file.get("file_name")
    ]


FORMAT = FileFormat("claude", lambda file: has_members(file.sample, "chat_messages"), _read)
