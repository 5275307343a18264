"""The conversation that a recall is about, with the session's older messages behind it."""

import re
from dataclasses import replace

from memrecall.messages import ConversationMessage, parse_message
from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.types import Role

LARGEST_WINDOW = 200
# Texts that frameworks write as the user: AutoGen's transfers and selectors, and our own handoff.
_FRAMEWORK_TEXT = re.compile(
    r"\s*Transferred to \w+, adopting the role of "
    r"|(?s:.*)Then select the next role from \["
    r"|\s*## (?:Memory search finished|记忆搜索完成)"
)


def is_framework_text(text: str) -> bool:
    """Return True for a text that a framework wrote, although it looks like the user's."""
    return _FRAMEWORK_TEXT.match(text) is not None


class Conversation:
    """The caller's messages, and behind them the bound session's older messages."""

    def __init__(
        self, messages: tuple[ConversationMessage, ...], store: Store, scope: Scope
    ) -> None:
        # A recall leaves traces of what was asked: its words, and the searches for them.
        redact = store.database.privacy.redact
        self.messages = tuple(replace(each, text=redact(each.text)) for each in messages)
        self._store = store
        self._scope = scope
        self._ids = {each.message_id for each in messages if each.message_id is not None}
        self._texts = {message.text.strip() for message in self.messages}
        self._older: list[ConversationMessage] = []
        self._older_limit = 0

    @property
    def request(self) -> ConversationMessage:
        """The message that the recall is about: the user's last one, else the last of all."""
        written = [message for message in self.messages if not is_framework_text(message.text)]
        by_user = [message for message in written if message.role is Role.USER]
        return (by_user or written or self.messages)[-1]

    async def window(self, size: int) -> list[ConversationMessage]:
        """Return the last `size` messages, or all if there are fewer, oldest first."""
        missing = size - len(self.messages)
        if missing > self._older_limit:
            self._older = await self._load_older(missing)
            self._older_limit = missing
        return [*self._older, *self.messages][-size:]

    async def _load_older(self, count: int) -> list[ConversationMessage]:
        """Return the session's messages before the caller's first one, without repeats."""
        if self._scope.session_id is None:
            return []
        # The caller's messages may be among the stored ones (without an id, or with an id that
        # only their framework knows): read as many more, because repeats are dropped below.
        stored = await self._store.timeline(self._scope).thread(
            self.messages[0].message_id if self.messages else None,
            session_id=self._scope.session_id,
            limit=count + len(self.messages),
        )
        older = [
            message
            for message in stored
            if not self.has_message(message.message_id, message.content)
        ]
        return [parse_message(message) for message in older[-count:]]

    def has_message(self, message_id: str | None, text: str) -> bool:
        """Return True if the caller's messages include one with this id or this exact text."""
        return message_id in self._ids or text.strip() in self._texts
