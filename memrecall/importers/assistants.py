"""Data exports of assistants: ChatGPT, Claude, and Gemini in Google Takeout.

ChatGPT's `conversations.json` is a list of trees of messages. An edited question or a regenerated
answer is a branch; `current_node` is the end of the one that the user saw last. Claude's has
conversations with a list of `chat_messages`. Gemini's `MyActivity.json` has an entry for each
prompt with its answer, and does not say which belong to one conversation: those of a day do here.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.importers import records
from memrecall.importers.html_text import html_to_text
from memrecall.importers.source import SourceFile, has_members, read_values
from memrecall.types import Role

_CHATGPT_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT}


def _read_chatgpt(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    for number, value in read_values(file):
        yield from _read_tree(number, value)


def _read_tree(number: int, data: Any) -> Iterator[records.ReadItem]:
    mapping = data.get("mapping") if isinstance(data, dict) else None
    if not isinstance(mapping, dict):
        yield records.Fault(number, "a conversation without a mapping of messages")
        return
    nodes = {name: node for name, node in mapping.items() if isinstance(node, dict)}
    branch = records.current_branch(
        {name: node.get("parent") for name, node in nodes.items()},
        data.get("current_node") or _last_leaf(nodes),
    )
    session = records.stable_id(
        "chatgpt", str(data.get("conversation_id") or data.get("id") or branch[:1])
    )
    ts = records.from_unix(data.get("create_time"))
    for name in branch:
        if isinstance(message := nodes[name].get("message"), dict):
            # A message without a time keeps its place: it takes that of the one before it.
            ts = records.from_unix(message.get("create_time")) or ts
            yield _read_node(number, name, message, session, ts, data.get("title"))
    for name in nodes.keys() - set(branch):
        if _node_text(nodes[name].get("message"))[0]:
            yield records.Skipped(number, "other branches")


def _last_leaf(nodes: dict[str, dict[str, Any]]) -> str | None:
    leaves = [name for name, node in nodes.items() if not node.get("children")]
    return leaves[-1] if leaves else None


def _read_node(
    number: int,
    name: str,
    message: dict[str, Any],
    session: str,
    ts: datetime | None,
    title: Any,
) -> records.ReadItem:
    author = message.get("author") or {}
    role = _CHATGPT_ROLES.get(str(author.get("role")))
    details = message.get("metadata") or {}
    text, content_type, pictures = _node_text(message)
    if details.get("is_visually_hidden_from_conversation") or author.get("role") == "system":
        return records.Skipped(number, "hidden system messages")
    if role is None or message.get("recipient") not in (None, "all") or not text:
        return records.Skipped(number, "tool calls, reasoning and media without text")
    return records.message_record(
        number,
        message_id=records.stable_id("chatgpt", str(message.get("id") or name)),
        session_id=session,
        role=role,
        text=text,
        ts=ts,
        content_type=content_type,
        conversation=title,
        pictures=pictures,
        model=details.get("model_slug"),
    )


def _node_text(message: Any) -> tuple[str, str, list[dict[str, Any]]]:
    """Return what a person can read of a message, its content type and its pictures."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, dict) or content.get("content_type") not in (
        "text",
        "multimodal_text",
    ):
        return "", "text", []
    parts = content["parts"] if isinstance(content.get("parts"), list) else []
    written = "\n".join(filter(None, map(_part_text, parts))).strip()
    pictures = [_read_picture(part) for part in parts if _is_picture(part)]
    shown = [str(picture.get("alt", "" if written else "[image]")) for picture in pictures]
    content_type = "image" if pictures and not written else "text"
    return "\n".join(filter(None, [written, *shown])), content_type, pictures


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("content_type") == "image_asset_pointer"


def _read_picture(part: dict[str, Any]) -> dict[str, Any]:
    """Return the size of a picture, and what a drawn one was to show."""
    metadata = part.get("metadata")
    drawing = metadata.get("dalle") if isinstance(metadata, dict) else None
    prompt = drawing.get("prompt") if isinstance(drawing, dict) else None
    picture = {"type": "image", "size": part.get("size_bytes"), "alt": prompt}
    return {name: value for name, value in picture.items() if value}


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    # A spoken question is a part with its transcription.
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


CHATGPT = records.FileFormat(
    "chatgpt", lambda file: has_members(file.sample, "mapping"), _read_chatgpt
)


_CLAUDE_ROLES = {"human": Role.USER, "assistant": Role.ASSISTANT}


def _read_claude(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    for number, value in read_values(file):  # a list, one conversation, or one a line
        yield from _read_list(number, value)


def _read_list(number: int, data: Any) -> Iterator[records.ReadItem]:
    messages = data.get("chat_messages") if isinstance(data, dict) else None
    if not isinstance(messages, list):
        yield records.Fault(number, "a conversation without chat_messages")
        return
    messages = [message for message in messages if isinstance(message, dict)]
    visible = _visible_names(data, messages)
    for message in messages:
        if visible and message.get("uuid") not in visible:
            yield records.Skipped(number, "other branches")
        else:
            yield _read_chat_message(number, data, message)


def _visible_names(data: dict[str, Any], messages: list[dict[str, Any]]) -> set[str]:
    """Return the messages of the current branch; none if the file has no branches."""
    parents = {str(message.get("uuid")): message.get("parent_message_uuid") for message in messages}
    return set(records.current_branch(parents, data.get("current_leaf_message_uuid")))


def _read_chat_message(
    number: int, data: dict[str, Any], message: dict[str, Any]
) -> records.ReadItem:
    role = _CLAUDE_ROLES.get(str(message.get("sender")))
    if role is None:
        return records.Fault(
            number, f"sender {message.get('sender')!r} is neither human nor assistant"
        )
    text, content_type = _blocks_text(message), "text"
    if not text:
        text, content_type = records.file_text(_file_names(message))
    return records.message_record(
        number,
        message_id=records.stable_id("claude", str(message.get("uuid"))),
        session_id=records.stable_id("claude", str(data.get("uuid"))),
        role=role,
        text=text,
        ts=records.from_iso(message.get("created_at")) or records.from_iso(data.get("created_at")),
        content_type=content_type,
        conversation=data.get("name"),
    )


def _blocks_text(message: dict[str, Any]) -> str:
    """Return the text blocks; `text` would also have placeholders for tool calls."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text" and block.get("text")
    ]
    return "\n".join(texts) if texts else str(message.get("text") or "")


def _file_names(message: dict[str, Any]) -> list[Any]:
    files = [*(message.get("attachments") or ()), *(message.get("files") or ())]
    return [file.get("file_name") for file in files if isinstance(file, dict)]


CLAUDE = records.FileFormat(
    "claude", lambda file: has_members(file.sample, "chat_messages"), _read_claude
)


_PRODUCTS = ("Gemini", "Bard")
_PROMPT = re.compile(r"(?:Prompted|Asked|Said|Eingegebener Prompt:)\s")
_HTML_NAME = re.compile(r"(?:^|/)My ?Activity[^/]*\.html$", re.IGNORECASE)


def _is_gemini(file: SourceFile) -> bool:
    names_product = any(product in file.sample for product in _PRODUCTS)
    if _HTML_NAME.search(file.name):
        return names_product or "Gemini" in file.name
    return names_product and has_members(file.sample, "header", "title", "time")


def _read_gemini(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    if file.suffix == ".html":
        raise InvalidArgument(
            "activity in HTML has times only in the words of your language",
            hint="Choose JSON for My Activity in Google Takeout, under «Multiple formats»",
        )
    ids = records.DerivedIds("gemini")
    for number, entry in read_values(file):
        yield from _read_activity(number, entry, ids)


def _read_activity(number: int, entry: Any, ids: records.DerivedIds) -> Iterator[records.ReadItem]:
    if not isinstance(entry, dict):
        yield records.Fault(number, "an activity that is no object")
        return
    title, ts = str(entry.get("title") or ""), records.from_iso(entry.get("time"))
    products = f"{entry.get('header')} {entry.get('products')}"
    answers = [html_to_text(html) for html in _answers(entry)]
    if not any(product in products for product in _PRODUCTS):
        yield records.Skipped(number, "activity of other products")
    elif not answers and not _PROMPT.match(title):
        yield records.Skipped(number, "activity that is no prompt")
    elif ts is None:
        yield records.Fault(number, f"time {entry.get('time')!r} is not a time")
    else:
        session = records.stable_id("gemini", f"{ts:%Y-%m-%d}")
        key = ids.make(ts.isoformat(), title)
        prompt = _PROMPT.sub("", title, count=1)
        yield records.message_record(
            number, message_id=key, session_id=session, role=Role.USER, text=prompt, ts=ts
        )
        for _ in answers[1:]:
            yield records.Skipped(number, "other drafts of an answer")
        if answers:
            yield records.message_record(
                number,
                message_id=f"{key}-answer",
                session_id=session,
                role=Role.ASSISTANT,
                text=answers[-1],
                ts=ts + timedelta(milliseconds=1),  # the time of the prompt is all there is
            )


def _answers(entry: dict[str, Any]) -> list[str]:
    items = entry.get("safeHtmlItem")
    items = items if isinstance(items, list) else []
    return [str(item["html"]) for item in items if isinstance(item, dict) and item.get("html")]


GEMINI = records.FileFormat("gemini", _is_gemini, _read_gemini)
