"""ChatGPT's data export: `conversations.json`, a list of trees of messages.

An edited question or a regenerated answer is a branch; `current_node` is the end of the one that
the user saw last.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from memrecall.importers.json_stream import has_members, read_values
from memrecall.importers.records import (
    Fault,
    FileFormat,
    ReadItem,
    ReadOptions,
    Skipped,
    current_branch,
    from_unix,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.types import Role

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    for number, value in read_values(file):
        yield from _read_conversation(number, value)


def _read_conversation(number: int, data: Any) -> Iterator[ReadItem]:
    mapping = data.get("mapping") if isinstance(data, dict) else None
    if not isinstance(mapping, dict):
        yield Fault(number, "a conversation without a mapping of messages")
        return
    nodes = {name: node for name, node in mapping.items() if isinstance(node, dict)}
    branch = current_branch(
        {name: node.get("parent") for name, node in nodes.items()},
        data.get("current_node") or _last_leaf(nodes),
    )
    session = stable_id("chatgpt", str(data.get("conversation_id") or data.get("id") or branch[:1]))
    ts = from_unix(data.get("create_time"))
    for name in branch:
        if isinstance(message := nodes[name].get("message"), dict):
            # A message without a time keeps its place: it takes that of the one before it.
            ts = from_unix(message.get("create_time")) or ts
            yield _read_message(number, name, message, session, ts, data.get("title"))
    for name in nodes.keys() - set(branch):
        if _text_of(nodes[name].get("message"))[0]:
            yield Skipped(number, "other branches")


def _last_leaf(nodes: dict[str, dict[str, Any]]) -> str | None:
    leaves = [name for name, node in nodes.items() if not node.get("children")]
    return leaves[-1] if leaves else None


def _read_message(
    number: int,
    name: str,
    message: dict[str, Any],
    session: str,
    ts: datetime | None,
    title: Any,
) -> ReadItem:
    author = message.get("author") or {}
    role = _ROLES.get(str(author.get("role")))
    details = message.get("metadata") or {}
    text, content_type = _text_of(message)
    if details.get("is_visually_hidden_from_conversation") or author.get("role") == "system":
        return Skipped(number, "hidden system messages")
    if role is None or message.get("recipient") not in (None, "all") or not text:
        return Skipped(number, "tool calls, reasoning and media without text")
    return message_record(
        number,
        message_id=stable_id("chatgpt", str(message.get("id") or name)),
        session_id=session,
        role=role,
        text=text,
        ts=ts,
        content_type=content_type,
        conversation=title,
        model=details.get("model_slug"),
    )


def _text_of(message: Any) -> tuple[str, str]:
    """Return what a person can read of a message, and its content type."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, dict) or content.get("content_type") not in (
        "text",
        "multimodal_text",
    ):
        return "", "text"
    parts = content.get("parts")
    texts = [_part_text(part) for part in parts] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if text).strip(), "text"


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    # A spoken question is a part with its transcription.
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


FORMAT = FileFormat("chatgpt", lambda file: has_members(file.sample, "mapping"), _read)
