"""The conversation that a recall is about, and whether its last message needs one."""

import json
import re
from dataclasses import replace
from typing import Literal, get_args

from memrecall.errors import InvalidArgument
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
RecallWhen = Literal["auto", "always"]
_LONGEST_COURTESY = 60  # characters
# In this order: "thanks, bye" says goodbye.
_COURTESIES = {
    "bye": "(?:good)?bye|see you|good night|再见|拜拜|晚安",
    "thanks": "thanks?(?: you| a lot)?(?: (?:so|very) much)?|thx|谢谢?[你您]?|多谢|辛苦了?",
    "hello": "hi|hello|hey|there|good (?:morning|afternoon|evening)|how are you|how's it going"
    "|what's up|[你您]好|大家好|早上好?|[上中下]午好|晚上好|早安|嗨|哈喽|在吗"
    "|最近(?:怎么样|好吗|如何)",
    "noted": "ok(?:ay)?|sure|great|nice|cool|perfect|sounds good|got it|lol|haha+"
    "|好的?|嗯+|行|收到|明白|知道|没问题|没事|不客气|哈+",
}
_COURTESY_PATTERNS = {name: re.compile(words, re.IGNORECASE) for name, words in _COURTESIES.items()}
_COURTESY = re.compile(
    rf"\W*(?:(?:{'|'.join(_COURTESIES.values())})(?:[\W吧啊呀哦啦了]+|$)){{1,4}}", re.IGNORECASE
)
_HAS_WORDS = re.compile(r"\w").search


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
        if missing > self._older_limit and self._scope.session_id is not None:
            # The caller's messages may be among the stored ones (without an id, or with an id that
            # only their framework knows): read as many more, because repeats are dropped below.
            stored = await self._store.timeline(self._scope).thread(
                self.messages[0].message_id if self.messages else None,
                session_id=self._scope.session_id,
                limit=missing + len(self.messages),
            )
            older = [
                message
                for message in stored
                if not self.has_message(message.message_id, message.content)
            ]
            self._older = [parse_message(message) for message in older[-missing:]]
            self._older_limit = missing
        return [*self._older, *self.messages][-size:]

    def has_message(self, message_id: str | None, text: str) -> bool:
        """Return True if the caller's messages include one with this id or this exact text."""
        return message_id in self._ids or text.strip() in self._texts


def needs_recall(text: str, when: RecallWhen = "auto") -> bool:
    """Return False for an empty text; unless `when` is "always", also for a greeting or thanks.

    Nor can JSON that asks nothing, which frameworks pass as a user's message. For everything else a
    recall costs less than a missing answer.
    """
    if when == "always":
        return bool(text.strip())
    return _HAS_WORDS(text) is not None and not is_greeting(text) and not _is_data(text)


def _is_data(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")) or "?" in text or "？" in text:
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def check_when(when: str) -> None:
    """Raise InvalidArgument if a value is not a `RecallWhen`."""
    if when not in get_args(RecallWhen):
        raise InvalidArgument(f"when is {when!r}", hint=f"Use {' or '.join(get_args(RecallWhen))}")


def find_courtesy(text: str) -> str | None:
    """Return "bye", "thanks", "hello" or "noted" for a text that says nothing else."""
    if len(text) > _LONGEST_COURTESY or _COURTESY.fullmatch(text) is None:
        return None
    return next(name for name, words in _COURTESY_PATTERNS.items() if words.search(text))


def is_greeting(text: str) -> bool:
    """Return True if a text is only a greeting, thanks or an acknowledgement."""
    return find_courtesy(text) is not None
