"""`MemoryContext`: a model context that recalls, for parents that change nothing else."""

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from autogen_core import CancellationToken
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    LLMMessage,
    UserMessage,
)
from pydantic import BaseModel, Field

from memrecall.agent.driver import Recaller, RecallOptions
from memrecall.agent.needs import NeedJudge
from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import (
    BLOCK_CHARACTERS,
    as_message,
    is_block,
    write_block,
    write_failure,
)
from memrecall.agent.result import RecallResult
from memrecall.agent.trace import Observer
from memrecall.errors import InvalidArgument, MemrecallError
from memrecall.library.library import Library
from memrecall.messages import parse_messages
from memrecall.scope import Scope
from memrecall.text.language import language_of
from memrecall.types import NewMemory, Origin

_log = logging.getLogger(__name__)

LONG_MESSAGE = 8_000  # characters
_BEGINNING = 300
_PART = 25_000  # four bytes a character at most: within what a memory may hold


class MemoryContextState(BaseModel):
    """What `save_state` saves: the messages, and what was recalled for which of them."""

    messages: list[LLMMessage] = Field(default_factory=list)
    blocks: dict[int, str] = Field(default_factory=dict)


class MemoryContext(ChatCompletionContext):
    """The messages of one conversation, with what the last user message refers to.

    `recall` can be called by itself. As a context, `get_messages` recalls at most once for one user
    message and puts the result before it as one block of data.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        *,
        model_client: ChatCompletionClient | None = None,
        options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
        initial_messages: list[LLMMessage] | None = None,
        decide_with_model: bool = False,
        block_characters: int = BLOCK_CHARACTERS,
        long_message_characters: int = LONG_MESSAGE,
    ) -> None:
        super().__init__(initial_messages)
        self._recaller = Recaller(library, scope, model_client, options)
        self._judge = NeedJudge(model_client if decide_with_model else None)
        self._block_characters = block_characters
        self._long = long_message_characters
        self._blocks: dict[int, str] = {}  # by the place of the user message
        self._lock = asyncio.Lock()
        self.last_result: RecallResult | None = None

    async def recall(
        self,
        messages: object,
        *,
        as_of: datetime | None = None,
        observer: Observer | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> RecallResult:
        """Find what the last user message of a conversation refers to."""
        return await self._recaller.recall(
            messages, as_of=as_of, observer=observer, cancellation_token=cancellation_token
        )

    async def add_message(self, message: LLMMessage) -> None:
        """Take a message; a very long one is stored as a memory and replaced by a reference."""
        await super().add_message(await self._shorten(message))

    async def get_messages(self) -> list[LLMMessage]:
        """The messages, and before the last user message what was recalled for it, if needed."""
        messages = list(self._messages)
        place = _last_user_place(messages)
        if place is None:
            return messages
        blocks = self._blocks  # another one after `clear`: a late recall is not for what follows
        async with self._lock:  # a second caller waits for the first one's recall
            if place not in blocks:
                block = await self._recall_block(messages[: place + 1])
                blocks.clear()
                blocks[place] = block
            block = blocks[place]
        if block:
            messages.insert(place, as_message(block))
        return messages

    async def clear(self) -> None:
        """Forget the messages and what was recalled for them; nothing stored is touched."""
        await super().clear()
        self._blocks = {}
        self.last_result = None

    async def save_state(self) -> Mapping[str, Any]:
        """The messages and the recalled block, as JSON."""
        state = MemoryContextState(messages=self._messages, blocks=self._blocks)
        return state.model_dump(mode="json")

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where a saved context was."""
        loaded = MemoryContextState.model_validate(state)
        self._messages = loaded.messages
        self._blocks = loaded.blocks

    async def _recall_block(self, messages: list[LLMMessage]) -> str:
        """The block for the last message; nothing if it needs no recall. Never fails the parent."""
        self.last_result = None
        try:
            (asked,) = parse_messages(messages[-1:])
        except InvalidArgument:  # no words at all: a picture, say
            return ""
        said = parse_messages([each for each in messages if not is_block(each)])
        language = language_of(asked.text)
        if not await self._judge.needs_recall([each.text for each in said], language):
            return ""
        try:
            self.last_result = await self.recall(said)
        except MemrecallError as error:
            _log.warning("no recall: %s", error)
            return write_failure(error.message, language)
        return write_block(self.last_result, self._block_characters)

    async def _shorten(self, message: LLMMessage) -> LLMMessage:
        if not isinstance(message, UserMessage | AssistantMessage):
            return message
        text = message.content
        if not isinstance(text, str) or len(text) <= self._long:
            return message
        origin = Origin.USER if isinstance(message, UserMessage) else Origin.ASSISTANT
        try:
            keys = await self._store(text, origin)
        except (MemrecallError, ValueError) as error:  # or the text is one that no memory can hold
            _log.warning("a long message stays in the context: %s", type(error).__name__)
            return message
        if not keys:
            return message
        reference = say(
            language_of(text),
            "long_message",
            total=len(text),
            key=", ".join(keys),
            start=text[:_BEGINNING],
        )
        return message.model_copy(update={"content": reference})

    async def _store(self, text: str, origin: Origin) -> list[str]:
        """The keys under which a long text can be read now; none if it was stored and forgotten."""
        library, scope = self._recaller.library, self._recaller.scope
        parts = _as_memories(text)
        await library.add_memories(scope, parts, origin=origin, actor="memory_context")
        keys = [str(part.memory_key) for part in parts]
        readable = await library.store.memories(scope).get_many(keys)
        return keys if len(readable) == len(keys) else []


def _as_memories(text: str) -> list[NewMemory]:
    """A long text as memories, none longer than a memory may be; the same text, the same keys."""
    name = f"long_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    starts = range(0, len(text), _PART)
    return [
        NewMemory(
            content=text[start : start + _PART],
            summary=text[start : start + _BEGINNING].strip(),
            memory_key=f"{name}_{number}",
        )
        for number, start in enumerate(starts, 1)
    ]


def _last_user_place(messages: list[LLMMessage]) -> int | None:
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, UserMessage) and not is_block(message):
            return place
    return None
