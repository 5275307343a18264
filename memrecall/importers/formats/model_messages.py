"""Messages as chat models take them, and those of LangChain and LangGraph.

Of chat models: `{"role", "content"}` lines, or `{"messages": […]}`. A message needs neither an id
nor a time. Lines of single messages are one conversation; a line or a file with `messages` is one
each. Of LangChain: `messages_to_dict` (`type` and `data`), `dumps` (`lc` and `kwargs`), and the
state of a graph or thread, whose `messages` have their fields at the top.
"""

import re
from collections.abc import Iterator
from typing import Any

from memrecall.errors import CallerError
from memrecall.importers.json_stream import has_members, read_values
from memrecall.importers.records import (
    DerivedIds,
    Fault,
    FileFormat,
    ReadItem,
    ReadOptions,
    Skipped,
    digest,
    message_record,
    stable_id,
)
from memrecall.importers.source import SourceFile
from memrecall.messages import ConversationMessage, parse_message
from memrecall.types import Role

Numbered = tuple[int, Any]


def _is_openai(file: SourceFile) -> bool:
    is_own = has_members(file.sample, "message_id", "ts")  # memrecall's JSON lines
    return has_members(file.sample, "role", "content") and not is_own


def _read_openai(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    yield from _read_conversations("openai", read_values(file), lambda value: value)


def _read_conversations(name: str, values: Iterator[Numbered], unwrap: Any) -> Iterator[ReadItem]:
    """Yield the messages of conversations; `unwrap` makes each a dict of known form."""
    loose = _Conversation(name)
    starts = DerivedIds(name)
    for number, value in values:
        messages = _messages_of(value)
        if messages is None:
            yield from loose.read(number, unwrap(value))
            continue
        conversation = _Conversation(name, starts)
        for message in messages:
            yield from conversation.read(number, unwrap(message))
        yield from conversation.finish()
    yield from loose.finish()


def _messages_of(value: Any) -> list[Any] | None:
    """Return the messages of a conversation or of a graph's state; None for a single message."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    for holder in (value, value.get("values"), value.get("channel_values")):
        if isinstance(holder, dict) and isinstance(holder.get("messages"), list):
            messages: list[Any] = holder["messages"]
            return messages
    return None


class _Conversation:
    """Messages with ids made of what was said, in a session named after how it began.

    A conversation that goes on keeps its session. Many begin with the same instructions, so that
    the first words of the user belong to the name.
    """

    def __init__(self, name: str, starts: DerivedIds | None = None) -> None:
        self._name = name
        self._starts = starts or DerivedIds(name)
        self._waiting: list[tuple[int, ConversationMessage]] = []
        self._session: str | None = None
        self._ids: DerivedIds | None = None

    def read(self, number: int, value: Any) -> Iterator[ReadItem]:
        """Yield what is known now: nothing until the user has spoken."""
        if not isinstance(value, dict):
            yield Fault(number, "not a message")
            return
        try:
            message = parse_message(value, read_pictures=True)
        except CallerError as error:
            yield Fault(number, str(error))
            return
        if not message.text.strip():
            yield Skipped(number, "tool calls and other messages without text")
            return
        self._waiting.append((number, message))
        if self._session or message.role is Role.USER or len(self._waiting) >= 100:
            yield from self.finish()

    def finish(self) -> Iterator[ReadItem]:
        """Yield the messages that wait for the name of their session."""
        if self._session is None:
            parts = [f"{message.role}:{message.text}" for _, message in self._waiting]
            self._session = self._starts.make(digest(*parts))
            self._ids = DerivedIds(self._name, self._session)
        for number, message in self._waiting:
            yield self._record(number, message)
        self._waiting = []

    def _record(self, number: int, message: ConversationMessage) -> ReadItem:
        own_id = message.message_id
        ids = self._ids or DerivedIds(self._name)
        return message_record(
            number,
            message_id=stable_id(self._name, own_id)
            if own_id
            else ids.make(message.role.value, message.speaker or "", message.text),
            session_id=self._session,
            role=message.role,
            speaker=message.speaker,
            text=message.text,
            ts=message.ts,
            content_type=message.content_type,
            **message.metadata,
        )


OPENAI = FileFormat("openai", _is_openai, _read_openai)


_TYPE = re.compile(r'"type"\s*:\s*"(?:human|ai|HumanMessage|AIMessage(?:Chunk)?)"')
_CLASSES = re.compile(r"(Human|AI|System|Tool|Function|Chat)Message(?:Chunk)?$")
_DROPPED = ("additional_kwargs", "response_metadata", "usage_metadata", "example", "artifact")


def _is_langchain(file: SourceFile) -> bool:
    sample = file.sample
    is_dump = has_members(sample, "lc", "kwargs") and "Message" in sample
    return is_dump or (bool(_TYPE.search(sample)) and has_members(sample, "type", "content"))


def _read_langchain(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    yield from _read_conversations("langchain", read_values(file), _flatten)


def _flatten(value: Any) -> Any:
    """Return a message with its fields at the top and a type such as `human`."""
    if not isinstance(value, dict):
        return value
    fields = value.get("kwargs") if "lc" in value else value.get("data")
    path = value.get("id")
    name = path[-1] if "lc" in value and isinstance(path, list) and path else value.get("type")
    flat = dict(fields) if isinstance(fields, dict) else dict(value)
    match = _CLASSES.match(str(name))
    flat["type"] = match[1].lower() if match else str(name or flat.get("type") or "")
    if flat["type"] == "chat":
        flat.setdefault("role", "assistant")
    return {key: item for key, item in flat.items() if key not in _DROPPED and item is not None}


LANGCHAIN = FileFormat("langchain", _is_langchain, _read_langchain)
