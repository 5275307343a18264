"""The conversation that a recall is about: what the caller gave, and what was said before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autogen_agentchat.messages import BaseChatMessage
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.text.language import language_of as language_of  # for those who read one
from memrecall.types import Message, NewMessage, Role, check_text, parse_time

LARGEST_WINDOW = 200


@dataclass(frozen=True, slots=True)
class ConversationMessage:
    """One message of the conversation, whatever kind of object it came as."""

    role: Role
    text: str
    speaker: str | None = None
    ts: datetime | None = None
    message_id: str | None = None


def read_conversation(given: object) -> tuple[ConversationMessage, ...]:
    """A conversation from what callers have: a text, or a list of any known kind of message."""
    if isinstance(given, str):
        given = [UserMessage(content=given, source="user")]
    if not isinstance(given, Sequence):
        raise InvalidArgument(
            f"a {type(given).__name__} is not a conversation",
            hint="Give a text or a list of messages",
        )
    said = tuple(read for item in given if (read := _read(item)).text.strip())
    if not said:
        raise InvalidArgument("the conversation is empty", hint="Give at least one message")
    return said


def _read(item: object) -> ConversationMessage:
    match item:
        case Message() | NewMessage():
            return ConversationMessage(
                item.role, item.content, item.speaker, item.ts, item.message_id
            )
        case ConversationMessage():
            return item
        case UserMessage():
            return ConversationMessage(Role.USER, _text(item.content), _named(item.source))
        case AssistantMessage():
            return ConversationMessage(Role.ASSISTANT, _text(item.content), _named(item.source))
        case SystemMessage():
            return ConversationMessage(Role.SYSTEM, item.content)
        case FunctionExecutionResultMessage():
            return ConversationMessage(
                Role.TOOL, "\n".join(result.content for result in item.content)
            )
        case BaseChatMessage():
            role = Role.USER if item.source == "user" else Role.ASSISTANT
            return ConversationMessage(
                role, item.to_model_text(), _named(item.source), item.created_at
            )
        case Mapping():
            return _read_mapping(item)
    raise InvalidArgument(
        f"a {type(item).__name__} is not a message",
        hint='Give messages of AutoGen or memrecall, or {"role": …, "content": …}',
    )


def _read_mapping(item: Mapping[Any, Any]) -> ConversationMessage:
    """A message as OpenAI's API, a line of a file or a caller writes it."""
    try:
        role = Role(item.get("role", "user"))
    except ValueError:
        raise InvalidArgument(
            f"role {item.get('role')!r} is not known", hint=f"Use {', '.join(Role)}"
        ) from None
    said = item.get("ts") or item.get("created_at")
    text = check_text("a message", _text(item.get("content")))
    moment = parse_time(said, "ts") if said else None
    speaker = _word(item, "speaker") or _word(item, "name")
    return ConversationMessage(role, text, speaker, moment, _word(item, "message_id"))


def _word(item: Mapping[Any, Any], name: str) -> str | None:
    value = item.get(name)
    if value is None or isinstance(value, str):
        return value or None
    raise InvalidArgument(f"{name} {value!r} of a message is not text")


def _named(source: str) -> str | None:
    """A source that only repeats the role names nobody."""
    return None if source in ("user", "assistant", "system") else source


def _text(content: object) -> str:
    """The words of a content: a text, or the texts among its parts; None is no words."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidArgument(f"a content of {type(content).__name__} is not text")
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return "\n".join(part for part in parts if isinstance(part, str))


class Conversation:
    """What the caller gave, and behind it the bound session's older messages."""

    def __init__(self, given: tuple[ConversationMessage, ...], store: Store, scope: Scope) -> None:
        self.given = given
        self._store = store
        self._scope = scope
        self._ids = {said.message_id for said in given if said.message_id is not None}
        self._texts = {said.text.strip() for said in given}
        self._older: list[ConversationMessage] = []
        self._asked_for = 0

    @property
    def asked(self) -> ConversationMessage:
        """The message that the recall is about: the user's last one, else the last of all."""
        by_user = [said for said in self.given if said.role is Role.USER]
        return by_user[-1] if by_user else self.given[-1]

    async def window(self, size: int) -> list[ConversationMessage]:
        """The last `size` messages, or all if there are fewer; the earliest first."""
        missing = size - len(self.given)
        if missing > self._asked_for:
            self._older = await self._read_older(missing)
            self._asked_for = missing
        known = [*self._older, *self.given]
        return known[-size:]

    async def _read_older(self, count: int) -> list[ConversationMessage]:
        """From the bound session's store; what the caller gave too is not repeated."""
        if self._scope.session_id is None:
            return []
        timeline = self._store.timeline(self._scope)
        first = self.given[0].message_id
        # Without an id the caller's messages may lie among those read: ask for so many more.
        spare = 0 if first else len(self.given)
        found = await timeline.thread(first, session_id=self._scope.session_id, limit=count + spare)
        older = [said for message in found if not self.holds(said := _read(message))]
        return older[-count:]

    def holds(self, said: ConversationMessage) -> bool:
        """Whether the caller gave this message."""
        return self.gave(said.message_id, said.text)

    def gave(self, key: str | None, text: str) -> bool:
        """Whether the caller has a message already, known by its id or by its very words."""
        return key in self._ids or text.strip() in self._texts
