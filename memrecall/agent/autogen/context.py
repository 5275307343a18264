"""Recall inside a parent's model context, for parents that change nothing else.

`MemoryContext` is a model context; `RecallMemory` is AutoGen's `Memory` protocol.
"""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from autogen_core.tools import BaseTool, ToolSchema
from pydantic import BaseModel, Field

from memrecall.agent.driver import Recaller, RecallOptions
from memrecall.agent.offline.needs import needs_recall
from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import (
    BLOCK_CHARACTERS,
    BlockPlace,
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
from memrecall.messages import USER_SOURCES, is_from_user, name_sources, parse_messages
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
_PART_CHARACTERS = 4_000  # of a long message, in one result of the tool that reads it
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
    """Recalls for the last user message of a context and writes the block for its model."""

    def __init__(
        self,
        recaller: Recaller,
        judge: NeedJudge,
        user_sources: Iterable[object],
        characters: int = BLOCK_CHARACTERS,
        place: BlockPlace = "before",
    ) -> None:
        self.recaller = recaller
        self.user_sources = name_sources(user_sources)
        self._judge = judge
        self._characters = characters
        self._place = place

    def last_request(self, messages: Sequence[LLMMessage]) -> int | None:
        """Return the index of the user's last message."""
        return _last_index(messages, self.user_sources)

    async def recall_block(self, messages: Sequence[LLMMessage]) -> tuple[str, RecallResult | None]:
        """Return the block and the result for the last message; no block if it needs no recall.

        A failed recall becomes a block that says so, because it must not fail the parent.
        """
        try:
            (request,) = parse_messages(messages[-1:])
        except InvalidArgument:  # a message without text, such as a picture
            return "", None
        conversation = parse_messages(
            [each for each in messages if not is_block_message(each)],
            user_sources=self.user_sources,
        )
        language = language_of(request.text)
        texts = [message.text for message in conversation]
        if not await self._judge.needs_recall(texts, language):
            return "", None
        try:
            result = await self.recaller.recall(conversation)
        except MemrecallError as error:
            _log.warning("no recall: %s", error)
            return write_failure(error.message, language), None
        return write_block(result, self._characters, place=self._place), result


def _last_index(messages: Sequence[LLMMessage], user_sources: Collection[str]) -> int | None:
    indexes = range(len(messages) - 1, -1, -1)
    return next((i for i in indexes if is_from_user(messages[i], user_sources)), None)


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
        user_sources: Iterable[object] = USER_SOURCES,
        decide_with_model: bool = False,
        block_characters: int = BLOCK_CHARACTERS,
        long_message_characters: int = LONG_MESSAGE,
    ) -> None:
        super().__init__(initial_messages)
        self._recaller = Recaller(library, scope, model_client, options)
        judge = NeedJudge(model_client if decide_with_model else None)
        self._block_recaller = BlockRecaller(self._recaller, judge, user_sources, block_characters)
        self._long_message = long_message_characters
        self._has_reader = False
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
        conversation = parse_messages(messages, user_sources=self._block_recaller.user_sources)
        return await self._recaller.recall(
            conversation, as_of=as_of, observer=observer, cancellation_token=cancellation_token
        )

    async def get_messages(self) -> list[LLMMessage]:
        """Return the messages, with the recalled block before the last user message.

        That message and all after it are whole; long ones before it may be shortened, see
        `message_tool`.
        """
        messages = list(self._messages)
        index = self._block_recaller.last_request(messages)
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
        if self._has_reader:
            numbered = enumerate(messages[:index], 1)
            messages[:index] = [self._shorten(message, number) for number, message in numbered]
        if block:
            messages.insert(index, block_message(block))
        return messages

    def message_tool(self, language: Language = "en") -> "ReadMessageTool":
        """Return a tool that reads long messages, and shorten those before the request from now on.

        Without the tool every message stays whole, because the parent's model could not read it.
        """
        self._has_reader = True
        return ReadMessageTool(self._read, language)

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

    def _shorten(self, message: LLMMessage, number: int) -> LLMMessage:
        text = message.content
        if not isinstance(message, UserMessage | AssistantMessage) or not isinstance(text, str):
            return message
        if len(text) <= self._long_message or is_block_message(message):
            return message
        start = text[:_START_CHARACTERS]
        note = say(language_of(text), "long_message", number=number, total=len(text), start=start)
        return message.model_copy(update={"content": note})

    def _read(self, number: int) -> str | None:
        """Return the text of a message, None if there is none."""
        message = self._messages[number - 1] if number <= len(self._messages) else None
        return message.content if message and isinstance(message.content, str) else None


class ReadMessageArguments(BaseModel):
    """Arguments of `read_message`."""

    number: int = Field(ge=1)
    start: int = Field(default=0, ge=0)


class ReadMessageTool(BaseTool[ReadMessageArguments, Any]):
    """Reads a long message of a parent's context, part by part."""

    def __init__(self, read: Callable[[int], str | None], language: Language) -> None:
        description = say(language, "read_message")
        super().__init__(ReadMessageArguments, str, "read_message", description)
        self._read = read
        self._language = language

    @property
    def schema(self) -> ToolSchema:
        """The schema for the parent's model, in the language of the tool."""
        schema = super().schema
        for name, argument in schema["parameters"]["properties"].items():
            argument["description"] = say(self._language, f"read_message_{name}")
        return schema

    async def run(self, args: ReadMessageArguments, cancellation_token: CancellationToken) -> str:
        """Return a part of the message, with what is left of it."""
        text = self._read(args.number)
        if text is None:
            return say(self._language, "read_message_missing", number=args.number)
        end = min(args.start + _PART_CHARACTERS, len(text))
        place = say(
            self._language, "read_message_place", start=args.start, end=end, total=len(text)
        )
        return f"{place}\n{text[args.start : end]}"


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
        user_sources: Iterable[object] = USER_SOURCES,
        block_characters: int = BLOCK_CHARACTERS,
    ) -> None:
        self._recaller = Recaller(library, scope, model_client, options)
        self._block_recaller = BlockRecaller(
            self._recaller, NeedJudge(), user_sources, block_characters, "after"
        )

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Recall for the last user message, and add the result to the context as one message."""
        messages = await model_context.get_messages()
        index = self._block_recaller.last_request(messages)
        block, result = "", None
        if index is not None and not any(map(_is_answer, messages[index + 1 :])):
            block, result = await self._block_recaller.recall_block(messages[: index + 1])
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


def _is_answer(message: LLMMessage) -> bool:
    """Return True for a message that shows that the request before it has had its recall."""
    return isinstance(message, AssistantMessage) or is_block_message(message)


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
    """Return the memories; if none may be shown, a note that some are withheld."""
    contents = [_content(memory, result.withheld) for memory in result.memories]
    if result.withheld and not contents:
        language: Language = "zh" if result.language == "zh" else "en"
        contents = [
            MemoryContent(
                content=say(language, "block_withheld", count=result.withheld),
                mime_type=MemoryMimeType.TEXT,
                metadata={"kind": "withheld", "withheld": result.withheld},
            )
        ]
    return MemoryQueryResult(results=contents)


def _content(memory: RecalledMemory, withheld: int) -> MemoryContent:
    metadata = {
        "memory_key": memory.memory_key,
        "kind": memory.kind,
        "memory_type": memory.memory_type,
        "score": memory.relevance_score,
        "speaker": memory.speaker or memory.role,
        "said_at": format_time(memory.ts),
        "withheld": withheld,
    }
    return MemoryContent(content=memory.content, mime_type=MemoryMimeType.TEXT, metadata=metadata)
