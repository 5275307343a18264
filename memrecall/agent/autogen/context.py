"""Recall inside a parent's model context, for parents that change nothing else.

`MemoryContext` is a model context; `RecallMemory` is AutoGen's `Memory` protocol.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from autogen_core import CancellationToken
from autogen_core.memory import (
    Memory,
    MemoryContent,
    MemoryMimeType,
    MemoryQueryResult,
    UpdateContextResult,
)
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import AssistantMessage, ChatCompletionClient, LLMMessage, UserMessage
from pydantic import BaseModel, Field

from memrecall.agent.driver import Recaller, RecallOptions
from memrecall.agent.offline.needs import needs_recall
from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import (
    BLOCK_CHARACTERS,
    block_message,
    is_block_message,
    to_json,
    write_block,
    write_failure,
)
from memrecall.agent.result import RecalledMemory, RecallResult
from memrecall.agent.trace import Observer
from memrecall.errors import InvalidArgument, MemrecallError, NotFound
from memrecall.library.library import Library
from memrecall.messages import parse_messages
from memrecall.model.structured import ask_prompt
from memrecall.scope import Scope
from memrecall.text.language import language_of
from memrecall.types import Language, NewMemory, Origin, format_time

_log = logging.getLogger(__name__)

DECISION_SECONDS = 10.0  # a parent waits for the answer
# Texts that frameworks write as the user: AutoGen's transfers and selectors, and our own handoff.
_FRAMEWORK_TEXT = re.compile(
    r"\s*Transferred to \w+, adopting the role of "
    r"|(?s:.*)Then select the next role from \["
    r"|\s*## (?:Memory search finished|记忆搜索完成)"
)
_MAX_TEXTS = 5
_MAX_CHARACTERS = 1_000
LONG_MESSAGE = 8_000  # characters
_START_CHARACTERS = 300
_PART_CHARACTERS = 25_000  # up to four bytes each: within the limit of a memory
_TEXT_TYPES = (MemoryMimeType.TEXT.value, MemoryMimeType.MARKDOWN.value, MemoryMimeType.JSON.value)


class Need(BaseModel):
    """The answer of a model to the prompt `needs_recall`."""

    needed: bool


class NeedJudge:
    """Decides whether the last of some texts needs a recall."""

    def __init__(
        self, model_client: ChatCompletionClient | None = None, seconds: float = DECISION_SECONDS
    ) -> None:
        self._client = model_client
        self._seconds = seconds

    async def needs_recall(self, texts: Sequence[str], language: Language) -> bool:
        """Return True if the rules see a need, or else if the model does.

        Texts of a framework never need a recall.
        """
        if _FRAMEWORK_TEXT.match(texts[-1]):
            return False
        if needs_recall(texts[-1], texts[:-1]):
            return True
        if self._client is None:
            return False
        lines = [to_json({"text": text[:_MAX_CHARACTERS]}) for text in texts[-_MAX_TEXTS:]]
        answer = await ask_prompt(
            self._client, "needs_recall", language, lines, Need, seconds=self._seconds
        )
        # Without a readable answer of the model, the verdict of the rules stands.
        return answer.value is not None and answer.value.needed


class BlockRecaller:
    """Recalls for the last message of a context and writes the block for its model."""

    def __init__(
        self, recaller: Recaller, judge: NeedJudge, characters: int = BLOCK_CHARACTERS
    ) -> None:
        self.recaller = recaller
        self._judge = judge
        self._characters = characters

    async def recall_block(
        self, messages: Sequence[object], observer: Observer | None = None
    ) -> tuple[str, RecallResult | None]:
        """Return the block and the result for the last message; no block if it needs no recall.

        A failed recall becomes a block that says so, because it must not fail the parent.
        """
        try:
            (request,) = parse_messages(messages[-1:])
        except InvalidArgument:  # a message without text, such as a picture
            return "", None
        conversation = parse_messages([each for each in messages if not is_block_message(each)])
        language = language_of(request.text)
        texts = [message.text for message in conversation]
        if not await self._judge.needs_recall(texts, language):
            return "", None
        try:
            result = await self.recaller.recall(conversation, observer=observer)
        except MemrecallError as error:
            _log.warning("no recall: %s", error)
            return write_failure(error.message, language), None
        return write_block(result, self._characters), result


class MemoryContextState(BaseModel):
    """The saved state: the messages, and the block that was recalled for one of them."""

    messages: list[LLMMessage] = Field(default_factory=list)
    blocks: dict[int, str] = Field(default_factory=dict)


class MemoryContext(ChatCompletionContext):
    """The messages of one conversation, with what the last user message refers to.

    `recall` can be called by itself. As a context, `get_messages` recalls at most once for one user
    message and inserts the result before it as one block of data.
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
        judge = NeedJudge(model_client if decide_with_model else None)
        self._block_recaller = BlockRecaller(self._recaller, judge, block_characters)
        self._long_message = long_message_characters
        self._blocks: dict[int, str] = {}  # by the index of the user message
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
        """Add a message; a very long one is stored as memories and replaced by a reference."""
        await super().add_message(await self._shorten(message))

    async def get_messages(self) -> list[LLMMessage]:
        """Return the messages, with the recalled block before the last user message."""
        messages = list(self._messages)
        index = _last_user_index(messages)
        if index is None:
            return messages
        blocks = self._blocks  # `clear` replaces the dict: a late recall is not for what follows
        async with self._lock:  # a second caller waits for the recall of the first
            if index not in blocks:
                self.last_result = None
                block, self.last_result = await self._block_recaller.recall_block(
                    messages[: index + 1]
                )
                blocks.clear()
                blocks[index] = block
            block = blocks[index]
        if block:
            messages.insert(index, block_message(block))
        return messages

    async def clear(self) -> None:
        """Remove the messages and the recalled block; nothing stored is touched."""
        await super().clear()
        self._blocks = {}
        self.last_result = None

    async def save_state(self) -> Mapping[str, Any]:
        """Return the messages and the recalled block as JSON."""
        state = MemoryContextState(messages=self._messages, blocks=self._blocks)
        return state.model_dump(mode="json")

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Replace the messages and the block by those of a saved state."""
        loaded = MemoryContextState.model_validate(state)
        self._messages = loaded.messages
        self._blocks = loaded.blocks

    async def _shorten(self, message: LLMMessage) -> LLMMessage:
        if not isinstance(message, UserMessage | AssistantMessage):
            return message
        text = message.content
        if not isinstance(text, str) or len(text) <= self._long_message:
            return message
        origin = Origin.USER if isinstance(message, UserMessage) else Origin.ASSISTANT
        try:
            keys = await self._store(text, origin)
        except (MemrecallError, ValueError) as error:  # ValueError: no memory can hold the text
            _log.warning("a long message stays in the context: %s", type(error).__name__)
            return message
        if not keys:
            return message
        reference = say(
            language_of(text),
            "long_message",
            total=len(text),
            key=", ".join(keys),
            start=text[:_START_CHARACTERS],
        )
        return message.model_copy(update={"content": reference})

    async def _store(self, text: str, origin: Origin) -> list[str]:
        """Store a long text and return its keys; none if the same text was deleted before."""
        library, scope = self._recaller.library, self._recaller.scope
        parts = _split_into_memories(text)
        await library.add_memories(scope, parts, origin=origin, actor="memory_context")
        keys = [str(part.memory_key) for part in parts]
        readable = await library.store.memories(scope).get_many(keys)
        return keys if len(readable) == len(keys) else []


def _split_into_memories(text: str) -> list[NewMemory]:
    """Return a long text as memories within their size limit; equal texts get equal keys."""
    name = f"long_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    return [
        NewMemory(
            content=text[start : start + _PART_CHARACTERS],
            summary=text[start : start + _START_CHARACTERS].strip(),
            memory_key=f"{name}_{number}",
        )
        for number, start in enumerate(range(0, len(text), _PART_CHARACTERS), 1)
    ]


def _last_user_index(messages: list[LLMMessage]) -> int | None:
    by_user = (isinstance(m, UserMessage) and not is_block_message(m) for m in messages)
    return max((index for index, is_user in enumerate(by_user) if is_user), default=None)


class RecallMemory(Memory):
    """A memory for a parent agent's `memory=[...]`.

    Each turn adds at most one message of data to the parent's context, before the model is called;
    a message that needs no recall adds none.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        *,
        model_client: ChatCompletionClient | None = None,
        options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
        block_characters: int = BLOCK_CHARACTERS,
    ) -> None:
        self._recaller = Recaller(library, scope, model_client, options)
        self._block_recaller = BlockRecaller(self._recaller, NeedJudge(), block_characters)

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Recall for the last user message, and add the result to the context as one message."""
        messages = await model_context.get_messages()
        last = messages[-1] if messages else None
        block, result = "", None
        if isinstance(last, UserMessage) and not is_block_message(last):
            block, result = await self._block_recaller.recall_block(messages)
        if block:
            await model_context.add_message(block_message(block))
        memories = MemoryQueryResult(results=[]) if result is None else _query_result(result)
        return UpdateContextResult(memories=memories)

    async def query(
        self,
        query: str | MemoryContent,
        cancellation_token: CancellationToken | None = None,
        **kwargs: Any,
    ) -> MemoryQueryResult:
        """Recall what a text refers to."""
        text = query if isinstance(query, str) else _text_of(query)
        result = await self._recaller.recall(text, cancellation_token=cancellation_token)
        return _query_result(result)

    async def add(
        self, content: MemoryContent, cancellation_token: CancellationToken | None = None
    ) -> None:
        """Store a text, a Markdown text or a JSON object as a memory."""
        memory = NewMemory(content=_text_of(content), metadata=dict(content.metadata or {}))
        await self._recaller.library.add_memories(
            self._recaller.scope, [memory], origin=Origin.ASSISTANT, actor="autogen"
        )

    async def clear(self) -> None:
        """Delete the memories of this scope; messages stay."""
        with contextlib.suppress(NotFound):  # the user has no data
            await self._recaller.library.store.changes(self._recaller.scope).delete_all()

    async def close(self) -> None:
        """Do nothing: the library belongs to whoever opened it."""


def _text_of(memory: MemoryContent) -> str:
    mime_type, content = memory.mime_type, memory.content
    kind = mime_type.value if isinstance(mime_type, MemoryMimeType) else mime_type
    if isinstance(content, str) and kind in _TEXT_TYPES:
        return content
    if isinstance(content, dict) and kind == MemoryMimeType.JSON.value:
        return json.dumps(content, ensure_ascii=False)
    raise InvalidArgument(
        f"content of type {type(content).__name__} and MIME type {kind} is not text",
        hint="Use text, markdown or JSON",
    )


def _query_result(result: RecallResult) -> MemoryQueryResult:
    return MemoryQueryResult(results=[_content(memory) for memory in result.memories])


def _content(memory: RecalledMemory) -> MemoryContent:
    metadata = {
        "memory_key": memory.memory_key,
        "kind": memory.kind,
        "memory_type": memory.memory_type,
        "score": memory.relevance_score,
        "speaker": memory.speaker or memory.role,
        "said_at": format_time(memory.ts),
    }
    return MemoryContent(content=memory.content, mime_type=MemoryMimeType.TEXT, metadata=metadata)
