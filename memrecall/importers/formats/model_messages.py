"""Messages as chat models take them: `{"role", "content"}` lines, or `{"messages": […]}`.

A message needs neither an id nor a time. Lines of single messages are one conversation; a line or a
file with `messages` is one each.
"""

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

_NAME = "openai"


def _matches(file: SourceFile) -> bool:
    is_own = has_members(file.sample, "message_id", "ts")  # memrecall's JSON lines
    return has_members(file.sample, "role", "content") and not is_own


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    loose, starts = _Conversation(), DerivedIds(_NAME)
    for number, value in read_values(file):
        messages = value.get("messages") if isinstance(value, dict) else value
        if not isinstance(messages, list):
            yield from loose.read(number, value)
            continue
        conversation = _Conversation(starts)
        for message in messages:
            yield from conversation.read(number, message)
        yield from conversation.finish()
    yield from loose.finish()


class _Conversation:
    """Messages with ids made of what was said, in a session named after how it began.

    A conversation that goes on keeps its session. Many begin with the same instructions, so that
    the first words of the user belong to the name.
    """

    def __init__(self, starts: DerivedIds | None = None) -> None:
        self._starts = starts or DerivedIds(_NAME)
        self._waiting: list[tuple[int, ConversationMessage]] = []
        self._session: str | None = None
        self._ids: DerivedIds | None = None

    def read(self, number: int, value: Any) -> Iterator[ReadItem]:
        """Yield what is known now: nothing until the user has spoken."""
        if not isinstance(value, dict):
            yield Fault(number, "not a message")
            return
        try:
            message = parse_message(value)
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
            self._ids = DerivedIds(_NAME, self._session)
        for number, message in self._waiting:
            yield self._record(number, message)
        self._waiting = []

    def _record(self, number: int, message: ConversationMessage) -> ReadItem:
        own_id = message.message_id
        ids = self._ids or DerivedIds(_NAME)
        return message_record(
            number,
            message_id=stable_id(_NAME, own_id)
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


FORMAT = FileFormat(_NAME, _matches, _read)
