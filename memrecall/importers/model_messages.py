"""Messages as chat models take them: `{"role", "content"}` lines, or `{"messages": […]}`.

A message needs neither an id nor a time. Lines of single messages are one conversation; a line or a
file with `messages` is one each. And memories of mem0: the result of `get_all`, saved as JSON, or
one memory a line. They are memories here too, not messages.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from memrecall.errors import CallerError, InvalidArgument, describe_validation_error
from memrecall.importers import records
from memrecall.importers.source import SourceFile, has_members, read_values
from memrecall.json_objects import make_storable
from memrecall.messages import ConversationMessage, parse_message
from memrecall.types import NewMemory, Role

_NAME = "openai"


def _matches(file: SourceFile) -> bool:
    is_own = has_members(file.sample, "message_id", "ts")  # memrecall's JSON lines
    return has_members(file.sample, "role", "content") and not is_own


def _read(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    loose, starts = _Conversation(), records.DerivedIds(_NAME)
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

    def __init__(self, starts: records.DerivedIds | None = None) -> None:
        self._starts = starts or records.DerivedIds(_NAME)
        self._waiting: list[tuple[int, ConversationMessage]] = []
        self._session: str | None = None
        self._ids: records.DerivedIds | None = None

    def read(self, number: int, value: Any) -> Iterator[records.ReadItem]:
        """Yield what is known now: nothing until the user has spoken."""
        if not isinstance(value, dict):
            yield records.Fault(number, "not a message")
            return
        try:
            message = parse_message(value, read_pictures=True)
        except CallerError as error:
            yield records.Fault(number, str(error))
            return
        if not message.text.strip():
            yield records.Skipped(number, "tool calls and other messages without text")
            return
        self._waiting.append((number, message))
        if self._session or message.role is Role.USER or len(self._waiting) >= 100:
            yield from self.finish()

    def finish(self) -> Iterator[records.ReadItem]:
        """Yield the messages that wait for the name of their session."""
        if self._session is None:
            parts = [f"{message.role}:{message.text}" for _, message in self._waiting]
            self._session = self._starts.make(records.digest(*parts))
            self._ids = records.DerivedIds(_NAME, self._session)
        for number, message in self._waiting:
            yield self._record(number, message)
        self._waiting = []

    def _record(self, number: int, message: ConversationMessage) -> records.ReadItem:
        role, speaker, text = message.role, message.speaker, message.text
        key = message.message_id and records.stable_id(_NAME, message.message_id)
        ids = self._ids or records.DerivedIds(_NAME)
        said: dict[str, Any] = {"role": role, "speaker": speaker, "text": text, "ts": message.ts}
        place: dict[str, Any] = {"content_type": message.content_type, "session_id": self._session}
        key = key or ids.make(role.value, speaker or "", text)
        return records.message_record(number, message_id=key, **said, **place, **message.metadata)


OPENAI = records.FileFormat(_NAME, _matches, _read)


_KEPT = ("categories", "actor_id", "role")


def _is_mem0(file: SourceFile) -> bool:
    return has_members(file.sample, "memory", "id") and (
        has_members(file.sample, "created_at") or has_members(file.sample, "hash")
    )


def _read_mem0(file: SourceFile, options: records.ReadOptions) -> Iterator[records.ReadItem]:
    memories = (memory for _, value in read_values(file) for memory in _unwrap(value))
    for number, memory in enumerate(memories, 1):
        yield _read_memory(number, memory)


def _unwrap(value: Any) -> list[Any]:
    """Return the memories in the `results` of an object, or the value itself."""
    results = value.get("results") if isinstance(value, dict) else None
    return results if isinstance(results, list) else [value]


def _read_memory(number: int, value: Any) -> records.ReadItem:
    if not isinstance(value, dict) or not isinstance(value.get("memory"), str):
        return records.Fault(number, "not a memory of mem0")
    text = make_storable(value["memory"]).strip()
    if not text:
        return records.Skipped(number, "no text")
    metadata = value.get("metadata")
    extra = {name: value[name] for name in _KEPT if value.get(name)}
    created = records.from_iso(value.get("created_at"))
    try:
        memory = NewMemory(
            content=text,
            memory_key=records.stable_id("mem0", str(value.get("id") or records.digest(text))),
            metadata=make_storable({**(metadata if isinstance(metadata, dict) else {}), **extra}),
            valid_from=created,
            said_at=records.from_iso(value.get("updated_at")) or created,
        )
    except ValidationError as error:
        return records.Fault(number, describe_validation_error(error))
    except InvalidArgument as error:
        return records.Fault(number, str(error))
    user, agent = (str(value.get(name) or "") or None for name in ("user_id", "agent_id"))
    return records.Record(number, memory, None, user, agent)


MEM0 = records.FileFormat("mem0", _is_mem0, _read_mem0)
